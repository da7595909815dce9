// SPDX-License-Identifier: BSD-2-Clause
// Tagged messages (fi_tagged.3): every form, matching by tag, ignore mask and source, and receives
// that only look: FI_PEEK, FI_CLAIM, FI_DISCARD.
#include <algorithm>
#include <cstring>
#include <random>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kTaggedData = 0x8877665544332211;
// As many bits as the stack's tags have.
uint64_t tag_mask() {
  static const uint64_t mask = tag_bits(*find_info());
  return mask;
}
uint64_t tag() {
  return 0x0123456789abcdef & tag_mask();
}

fi_msg_tagged message_of(const std::vector<iovec> &iov, fi_addr_t to, uint64_t tag,
                         uint64_t ignore = 0, void *context = nullptr) {
  fi_msg_tagged message{};
  message.msg_iov = iov.data();
  message.iov_count = iov.size();
  message.addr = to;
  message.tag = tag;
  message.ignore = ignore;
  message.context = context;
  message.data = kTaggedData;
  return message;
}

void receive(Node &node, std::vector<uint8_t> &in, uint64_t tag, uint64_t ignore = 0,
             fi_addr_t from = FI_ADDR_UNSPEC) {
  must(fi_trecv(node.ep, in.data(), in.size(), nullptr, from, tag, ignore, &in));
}
void send(Net &net, size_t from, size_t to, std::vector<uint8_t> &out, uint64_t tag) {
  net.post([&] {
    return fi_tsend(net[from].ep, out.data(), out.size(), nullptr, net.at(from, to), tag, &out);
  });
}

struct TaggedForm {
  const char *name;
  bool injects, has_data;
  ssize_t (*send)(Net &net, std::vector<uint8_t> &out);
};
std::ostream &operator<<(std::ostream &out, const TaggedForm &form) {
  return out << form.name;
}
const TaggedForm kTaggedForms[] = {
    {"Tsend", false, false,
     [](Net &net, std::vector<uint8_t> &out) {
       return fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), tag(), &out);
     }},
    {"Tsendv", false, false,
     [](Net &net, std::vector<uint8_t> &out) {
       const auto iov = cut(out, net[0].info->tx_attr->iov_limit);
       return fi_tsendv(net[0].ep, iov.data(), nullptr, iov.size(), net.at(0, 1), tag(), &out);
     }},
    {"Tsendmsg", false, true,
     [](Net &net, std::vector<uint8_t> &out) {
       const auto iov = cut(out, std::min<size_t>(2, net[0].info->tx_attr->iov_limit));
       const auto message = message_of(iov, net.at(0, 1), tag(), 0, &out);
       return fi_tsendmsg(net[0].ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA);
     }},
    {"Tsenddata", false, true,
     [](Net &net, std::vector<uint8_t> &out) {
       return fi_tsenddata(net[0].ep, out.data(), out.size(), nullptr, kTaggedData, net.at(0, 1),
                           tag(), &out);
     }},
    {"Tinject", true, false,
     [](Net &net, std::vector<uint8_t> &out) {
       std::vector<uint8_t> copy = out;
       const ssize_t rc = fi_tinject(net[0].ep, copy.data(), copy.size(), net.at(0, 1), tag());
       std::fill(copy.begin(), copy.end(), 0xdd);
       return rc;
     }},
    {"Tinjectdata", true, true,
     [](Net &net, std::vector<uint8_t> &out) {
       std::vector<uint8_t> copy = out;
       const ssize_t rc =
           fi_tinjectdata(net[0].ep, copy.data(), copy.size(), kTaggedData, net.at(0, 1), tag());
       std::fill(copy.begin(), copy.end(), 0xdd);
       return rc;
     }},
};

class RdmTaggedForm : public ::testing::TestWithParam<std::tuple<TaggedForm, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, RdmTaggedForm,
                         ::testing::Combine(::testing::ValuesIn(kTaggedForms), ::testing::Bool()),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) ? "Expected" : "Unexpected");
                         });

TEST_P(RdmTaggedForm, EverySizeArrivesOnce) {
  RDM_NEEDS(FI_TAGGED);
  const TaggedForm &form = std::get<0>(GetParam());
  const bool expected = std::get<1>(GetParam());
  Net net;
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    if (form.injects && size > net[0].info->tx_attr->inject_size) continue;
    std::vector<uint8_t> out = pattern(size, unsigned(size)), in(size);
    if (expected) receive(net[1], in, tag());
    net.post([&] { return form.send(net, out); });
    if (!expected) {
      net.settle();
      receive(net[1], in, tag());
    }
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    EXPECT_EQ(got.context, &in);
    EXPECT_EQ(got.len, size);
    EXPECT_EQ(got.tag, tag());
    EXPECT_EQ(got.flags & (FI_RECV | FI_TAGGED), uint64_t(FI_RECV | FI_TAGGED));
    EXPECT_EQ(bool(got.flags & FI_REMOTE_CQ_DATA), form.has_data);
    if (form.has_data) {
      EXPECT_EQ(got.data, kTaggedData);
    }
    EXPECT_EQ(in, out);
    if (!form.injects) {
      const Completion sent = net.wait(net[0].tx_cq);
      EXPECT_EQ(sent.context, &out);
      EXPECT_EQ(sent.err, 0);
      EXPECT_EQ(sent.flags & (FI_SEND | FI_TAGGED), uint64_t(FI_SEND | FI_TAGGED));
    }
  }
}

TEST(RdmTagged, TrecvvAndTrecvmsgScatter) {
  RDM_NEEDS(FI_TAGGED);
  Net net;
  for (size_t size : edges()) {
    for (size_t parts = 1; parts <= net[1].info->rx_attr->iov_limit; ++parts) {
      SCOPED_TRACE(std::to_string(size) + " in " + std::to_string(parts));
      std::vector<uint8_t> out = pattern(size, unsigned(parts)), in(size);
      const auto iov = cut(in, parts);
      if (parts % 2 == 0) {
        must(fi_trecvv(net[1].ep, iov.data(), nullptr, iov.size(), FI_ADDR_UNSPEC, 7, 0, &in));
      } else {
        const auto message = message_of(iov, FI_ADDR_UNSPEC, 7, 0, &in);
        must(fi_trecvmsg(net[1].ep, &message, FI_COMPLETION));
      }
      send(net, 0, 1, out, 7);
      EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
      EXPECT_EQ(in, out);
      EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    }
  }
}

// (tag & ~ignore) == (message tag & ~ignore)
TEST(RdmTagged, OnlyBitsThatAreNotIgnoredMustMatch) {
  RDM_NEEDS(FI_TAGGED);
  Net net;
  struct Case {
    uint64_t wanted, ignore, sent;
  };
  const uint64_t top = tag_mask() ^ tag_mask() >> 1;
  const Case cases[] = {{0x10, 0, 0x11},
                        {0x10, 0xf, 0x20},
                        {0x10, ~uint64_t(0xff), 0xff11},
                        {top, 0, 0},
                        {0, ~top, top}};
  for (const Case &c : cases) {
    SCOPED_TRACE(c.sent);
    std::vector<uint8_t> wrong = pattern(32, 1), right = pattern(32, 2), in(32), rest(32);
    receive(net[1], in, c.wanted, c.ignore);
    send(net, 0, 1, wrong, c.sent);
    net.settle();
    EXPECT_FALSE(poll(net[1].rx_cq).has_value()) << "matched a wrong tag";
    const uint64_t tag = c.wanted ^ (c.ignore & tag_mask() & 0x5555555555555555);
    send(net, 0, 1, right, tag);
    Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.context, &in);
    EXPECT_EQ(got.tag, tag) << "the sender's tag, not the receiver's";
    EXPECT_EQ(in, right);
    receive(net[1], rest, 0, ~uint64_t(0));  // matches every tag
    got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.tag, c.sent);
    EXPECT_EQ(rest, wrong);
    net.wait(net[0].tx_cq);
    net.wait(net[0].tx_cq);
  }
}

// Receives are matched in the order in which they were posted, exact and wild ones alike.
TEST(RdmTagged, TheFirstPostedReceiveThatMatchesWins) {
  RDM_NEEDS(FI_TAGGED);
  std::vector<std::vector<uint8_t>> in(6, std::vector<uint8_t>(8));
  Net net;
  receive(net[1], in[0], 1);
  receive(net[1], in[1], 0, ~uint64_t(0));
  receive(net[1], in[2], 1);
  receive(net[1], in[3], 2, 1);
  receive(net[1], in[4], 2);
  receive(net[1], in[5], 0, ~uint64_t(0));
  const std::pair<uint64_t, size_t> order[] = {{2, 1}, {1, 0}, {2, 3}, {1, 2}, {2, 4}, {9, 5}};
  for (auto [tag, which] : order) {
    std::vector<uint8_t> out = pattern(8, unsigned(which));
    send(net, 0, 1, out, tag);
    const Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.context, &in[which]) << "tag " << tag;
    EXPECT_EQ(in[which], out);
    net.wait(net[0].tx_cq);
  }
}

TEST(RdmTagged, UnexpectedMessagesAreTakenOldestFirst) {
  RDM_NEEDS(FI_TAGGED);
  Options options;
  options.order = FI_ORDER_SAS;
  std::vector<std::vector<uint8_t>> out;
  Net net(2, options);
  for (unsigned i = 0; i < 6; ++i) out.push_back(pattern(i % 2 ? 30000 : 30, i));
  for (unsigned i = 0; i < 6; ++i) send(net, 0, 1, out[i], i % 3);
  net.settle();
  const std::pair<uint64_t, unsigned> order[] = {{2, 2}, {0, 0}, {0, 3}};
  for (auto [tag, which] : order) {
    std::vector<uint8_t> in(out[which].size());
    receive(net[1], in, tag);
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(in, out[which]) << "tag " << tag;
  }
  for (unsigned which : {1, 4, 5}) {
    std::vector<uint8_t> in(out[which].size());
    receive(net[1], in, 0, ~uint64_t(0));
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(in, out[which]);
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

TEST(RdmTagged, ManyOutstandingInAnyOrder) {
  RDM_NEEDS(FI_TAGGED);
  Net net;
  constexpr size_t kCount = 500;
  std::mt19937 random(1);
  std::vector<size_t> order(kCount);
  for (size_t i = 0; i < kCount; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::vector<uint8_t>> out, in(kCount, std::vector<uint8_t>(256));
  for (size_t i = 0; i < kCount; ++i) out.push_back(pattern(i % 256, unsigned(i)));
  for (size_t i = 0; i < kCount / 2; ++i) receive(net[1], in[order[i]], order[i]);
  for (size_t i = 0; i < kCount; ++i) send(net, 0, 1, out[i], i);
  net.settle();
  for (size_t i = kCount / 2; i < kCount; ++i) receive(net[1], in[order[i]], order[i]);
  for (size_t i = 0; i < kCount; ++i) {
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    EXPECT_EQ(got.context, &in[got.tag]);
    EXPECT_EQ(got.len, out[got.tag].size());
    in[got.tag].resize(got.len);
  }
  EXPECT_EQ(in, out);
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

TEST(RdmTagged, DirectedReceivesTakeFromTheirSourceOnly) {
  RDM_NEEDS(FI_TAGGED | FI_DIRECTED_RECV);
  Options options;
  options.caps |= FI_DIRECTED_RECV;
  Net net(3, options);
  for (bool expected : {true, false}) {
    std::vector<uint8_t> of1(64), of2(64), any(64), out1 = pattern(64, 1), out2 = pattern(64, 2);
    const auto post = [&] {
      receive(net[0], of2, 5, 0, net.at(0, 2));
      receive(net[0], of1, 0, ~uint64_t(0), net.at(0, 1));
    };
    if (expected) post();
    send(net, 1, 0, out1, 5);
    net.settle();
    send(net, 2, 0, out2, 5);
    net.settle();
    if (!expected) post();
    net.wait(net[0].rx_cq);
    net.wait(net[0].rx_cq);
    EXPECT_EQ(of1, out1);
    EXPECT_EQ(of2, out2);
  }
}

TEST(RdmTagged, TruncationIsAnErrorOfThatReceiveOnly) {
  RDM_NEEDS(FI_TAGGED);
  Net net;
  for (size_t size : {100, 20000, 300000}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), in(size / 2);
    receive(net[1], in, 3);
    send(net, 0, 1, out, 3);
    const Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.err, FI_ETRUNC);
    EXPECT_EQ(got.tag, 3u);
    EXPECT_EQ(got.olen, size - in.size());
    net.wait(net[0].tx_cq);
    net.exchange(0, 1, size);
  }
}

TEST(RdmTagged, CancelEndsOneReceive) {
  RDM_NEEDS(FI_TAGGED);
  std::vector<uint8_t> a(8), b(8), out = pattern(8, 1);
  Net net;
  receive(net[1], a, 1);
  receive(net[1], b, 1);
  EXPECT_EQ(fi_cancel(net[1].ep.fid(), &a), 0);
  const Completion got = net.wait(net[1].rx_cq);
  EXPECT_EQ(got.err, FI_ECANCELED);
  EXPECT_EQ(got.context, &a);
  send(net, 0, 1, out, 1);
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &b);
  EXPECT_EQ(b, out);
}

// ---- peek, claim, discard ----

class RdmPeek : public ::testing::TestWithParam<size_t> {
 protected:
  ssize_t look(Net &net, uint64_t tag, uint64_t flags, void *context, uint64_t ignore = 0) {
    const std::vector<iovec> none;
    const auto message = message_of(none, FI_ADDR_UNSPEC, tag, ignore, context);
    return fi_trecvmsg(net[1].ep, &message, flags);
  }
  // Peeks until the message is there; a peek does not wait for it.
  Completion find(Net &net, uint64_t tag, uint64_t flags, fi_context *context) {
    Completion got;
    EXPECT_TRUE(net.until([&] {
      must(look(net, tag, flags, context));
      got = net.wait(net[1].rx_cq);
      EXPECT_EQ(got.context, context);
      return got.err != FI_ENOMSG;
    }));
    EXPECT_EQ(got.err, 0) << fi_strerror(got.err);
    return got;
  }
};
INSTANTIATE_TEST_SUITE_P(Bytes, RdmPeek, ::testing::Values(0, 10, 5000, 20000, 300000));

TEST_P(RdmPeek, WithoutAMessageIsENOMSG) {
  RDM_NEEDS(FI_TAGGED);
  covers("FI_PEEK");
  std::vector<uint8_t> out(GetParam()), in(GetParam());
  fi_context context;
  Net net;
  send(net, 0, 1, out, 8);
  must(look(net, 9, FI_PEEK, &context));
  const Completion got = net.wait(net[1].rx_cq);
  EXPECT_EQ(got.err, FI_ENOMSG);
  EXPECT_EQ(got.context, &context);
  receive(net[1], in, 8);
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
}

// A program that only peeks makes progress: it reads nothing but errors of the peeks.
TEST_P(RdmPeek, MakesProgress) {
  RDM_NEEDS(FI_TAGGED);
  covers("FI_PEEK");
  std::vector<uint8_t> out = pattern(GetParam(), 1), in(GetParam());
  Net net;
  net.exchange(0, 1, 8);
  send(net, 0, 1, out, 8);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (bool found = false; !found;) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    fi_context context;
    must(look(net, 8, FI_PEEK, &context));
    const auto seen = poll_cq(net[1].rx_cq);
    ASSERT_TRUE(seen.has_value()) << "a peek is answered at once";
    found = seen->err != FI_ENOMSG;
    fi_cq_read(net[0].tx_cq, nullptr, 0);  // the sender's own progress
  }
  receive(net[1], in, 8);
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in, out);
}

TEST_P(RdmPeek, ReportsTheMessageAndLeavesItThere) {
  RDM_NEEDS(FI_TAGGED);
  covers("FI_PEEK");
  std::vector<uint8_t> out = pattern(GetParam(), 1), in(GetParam());
  fi_context context;
  Net net;
  net.post([&] { return kTaggedForms[3].send(net, out); });
  for (int i = 0; i < 2; ++i) {
    const Completion seen = find(net, tag(), FI_PEEK, &context);
    EXPECT_EQ(seen.len, out.size());
    EXPECT_EQ(seen.tag, tag());
    EXPECT_TRUE(seen.flags & FI_REMOTE_CQ_DATA);
    EXPECT_EQ(seen.data, kTaggedData);
  }
  receive(net[1], in, tag());
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in, out);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

TEST_P(RdmPeek, AClaimedMessageIsForItsClaimantOnly) {
  RDM_NEEDS(FI_TAGGED);
  covers("FI_CLAIM");
  std::vector<uint8_t> first = pattern(GetParam(), 1), second = pattern(GetParam(), 2);
  std::vector<uint8_t> in(GetParam()), claimed(GetParam());
  fi_context context;
  Net net;
  send(net, 0, 1, first, 4);
  send(net, 0, 1, second, 4);
  EXPECT_EQ(find(net, 4, FI_PEEK | FI_CLAIM, &context).len, first.size());
  receive(net[1], in, 4);
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
  EXPECT_EQ(in, second);
  const auto iov = cut(claimed, 1);
  const auto message = message_of(iov, FI_ADDR_UNSPEC, 4, 0, &context);
  must(fi_trecvmsg(net[1].ep, &message, FI_CLAIM));
  const Completion got = net.wait(net[1].rx_cq);
  EXPECT_EQ(got.err, 0) << fi_strerror(got.err);
  EXPECT_EQ(got.context, &context);
  EXPECT_EQ(got.len, first.size());
  EXPECT_EQ(claimed, first);
}

TEST_P(RdmPeek, ADiscardedMessageIsGone) {
  RDM_NEEDS(FI_TAGGED);
  covers("FI_DISCARD");
  std::vector<uint8_t> first = pattern(GetParam(), 1), second = pattern(GetParam(), 2);
  std::vector<uint8_t> in(GetParam());
  fi_context context;
  Net net;
  send(net, 0, 1, first, 4);
  send(net, 0, 1, second, 4);
  EXPECT_EQ(find(net, 4, FI_PEEK | FI_DISCARD, &context).err, 0);
  receive(net[1], in, 4);
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in, second);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0) << "the sender need not know";
}

TEST_P(RdmPeek, AClaimedMessageCanBeDiscarded) {
  RDM_NEEDS(FI_TAGGED);
  covers("FI_CLAIM, FI_DISCARD");
  std::vector<uint8_t> first = pattern(GetParam(), 1), second = pattern(GetParam(), 2);
  std::vector<uint8_t> in(GetParam());
  fi_context context;
  Net net;
  send(net, 0, 1, first, 4);
  find(net, 4, FI_PEEK | FI_CLAIM, &context);
  must(look(net, 4, FI_CLAIM | FI_DISCARD, &context));
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  send(net, 0, 1, second, 4);
  receive(net[1], in, 4);
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in, second);
}

}  // namespace
}  // namespace weft::conformance::rdm
