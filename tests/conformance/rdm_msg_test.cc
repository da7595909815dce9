// SPDX-License-Identifier: BSD-2-Clause
// Messages between reliable datagram endpoints (fi_msg.3, fi_endpoint.3): every form of send and
// receive over every size at which a protocol changes, truncation, cancel, order.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kData = 0x1122334455667788;

struct Form {
  const char *name;
  bool injects, has_data;
  ssize_t (*send)(Net &net, std::vector<uint8_t> &out);
};
std::ostream &operator<<(std::ostream &out, const Form &form) {
  return out << form.name;
}

fi_msg message_of(const std::vector<iovec> &iov, fi_addr_t to, void *context) {
  fi_msg message{};
  message.msg_iov = iov.data();
  message.iov_count = iov.size();
  message.addr = to;
  message.context = context;
  message.data = kData;
  return message;
}

const Form kForms[] = {
    {"Send", false, false,
     [](Net &net, std::vector<uint8_t> &out) {
       return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), &out);
     }},
    {"Sendv", false, false,
     [](Net &net, std::vector<uint8_t> &out) {
       const auto iov = cut(out, net[0].info->tx_attr->iov_limit);
       return fi_sendv(net[0].ep, iov.data(), nullptr, iov.size(), net.at(0, 1), &out);
     }},
    {"Sendmsg", false, false,
     [](Net &net, std::vector<uint8_t> &out) {
       const auto iov = cut(out, 2);
       const fi_msg message = message_of(iov, net.at(0, 1), &out);
       return fi_sendmsg(net[0].ep, &message, FI_COMPLETION);
     }},
    {"SendmsgWithData", false, true,
     [](Net &net, std::vector<uint8_t> &out) {
       const auto iov = cut(out, 2);
       const fi_msg message = message_of(iov, net.at(0, 1), &out);
       return fi_sendmsg(net[0].ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA);
     }},
    {"Senddata", false, true,
     [](Net &net, std::vector<uint8_t> &out) {
       return fi_senddata(net[0].ep, out.data(), out.size(), nullptr, kData, net.at(0, 1), &out);
     }},
    {"Inject", true, false,
     [](Net &net, std::vector<uint8_t> &out) {
       std::vector<uint8_t> copy = out;
       const ssize_t rc = fi_inject(net[0].ep, copy.data(), copy.size(), net.at(0, 1));
       std::fill(copy.begin(), copy.end(), 0xdd);  // the buffer is the caller's again
       return rc;
     }},
    {"Injectdata", true, true,
     [](Net &net, std::vector<uint8_t> &out) {
       std::vector<uint8_t> copy = out;
       const ssize_t rc = fi_injectdata(net[0].ep, copy.data(), copy.size(), kData, net.at(0, 1));
       std::fill(copy.begin(), copy.end(), 0xdd);
       return rc;
     }},
};

// When the receive is posted, relative to the arrival of the message.
enum class When { kBefore, kAfter };

class RdmMsgForm : public ::testing::TestWithParam<std::tuple<Form, When>> {};
INSTANTIATE_TEST_SUITE_P(All, RdmMsgForm,
                         ::testing::Combine(::testing::ValuesIn(kForms),
                                            ::testing::Values(When::kBefore, When::kAfter)),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == When::kBefore ? "Expected"
                                                                            : "Unexpected");
                         });

TEST_P(RdmMsgForm, EverySizeArrivesOnce) {
  RDM_NEEDS(FI_MSG);
  const Form &form = std::get<0>(GetParam());
  const When when = std::get<1>(GetParam());
  Net net;
  const size_t limit = net[0].info->tx_attr->inject_size;
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, unsigned(size)), in(size + 8, 0xee);
    if (form.injects && size > limit) {
      const ssize_t rc = net.attempt([&] { return form.send(net, out); });
      EXPECT_LT(rc, 0) << "above inject_size";
      continue;
    }
    const auto receive = [&] {
      must(fi_recv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
    };
    if (when == When::kBefore) receive();
    net.post([&] { return form.send(net, out); });
    if (when == When::kAfter) {
      net.settle();
      EXPECT_FALSE(poll(net[1].rx_cq).has_value()) << "a completion without a receive";
      receive();
    }
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    EXPECT_EQ(got.context, &in);
    EXPECT_EQ(got.len, size);
    EXPECT_EQ(got.flags & (FI_RECV | FI_MSG), uint64_t(FI_RECV | FI_MSG));
    EXPECT_EQ(bool(got.flags & FI_REMOTE_CQ_DATA), form.has_data);
    if (form.has_data) {
      EXPECT_EQ(got.data, kData);
    }
    EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
    for (size_t i = size; i < in.size(); ++i) ASSERT_EQ(in[i], 0xee) << "behind the buffer";
    if (!form.injects) {
      const Completion sent = net.wait(net[0].tx_cq);
      EXPECT_EQ(sent.err, 0) << fi_strerror(sent.err);
      EXPECT_EQ(sent.context, &out);
      EXPECT_EQ(sent.flags & (FI_SEND | FI_MSG), uint64_t(FI_SEND | FI_MSG));
    }
  }
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq).has_value());
  EXPECT_FALSE(poll(net[1].rx_cq).has_value());
}

TEST(RdmMsg, RecvvAndRecvmsgScatter) {
  RDM_NEEDS(FI_MSG);
  Net net;
  for (size_t size : edges()) {
    for (size_t parts = 1; parts <= net[1].info->rx_attr->iov_limit; ++parts) {
      SCOPED_TRACE(std::to_string(size) + " in " + std::to_string(parts));
      std::vector<uint8_t> out = pattern(size, unsigned(parts)), in(size);
      const auto iov = cut(in, parts);
      if (parts % 2 == 0) {
        must(fi_recvv(net[1].ep, iov.data(), nullptr, iov.size(), FI_ADDR_UNSPEC, &in));
      } else {
        const fi_msg message = message_of(iov, FI_ADDR_UNSPEC, &in);
        must(fi_recvmsg(net[1].ep, &message, FI_COMPLETION));
      }
      net.post([&] { return kForms[0].send(net, out); });
      const Completion got = net.wait(net[1].rx_cq);
      ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
      EXPECT_EQ(got.len, size);
      EXPECT_EQ(in, out);
      EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    }
  }
}

TEST(RdmMsg, MoreVectorsThanTheLimitAreRefused) {
  RDM_NEEDS(FI_MSG);
  Net net;
  net.exchange(0, 1);  // so that no refusal stands for a connection that is still being made
  std::vector<uint8_t> bytes(64);
  auto iov = cut(bytes, net[0].info->tx_attr->iov_limit + 1);
  EXPECT_LT(fi_sendv(net[0].ep, iov.data(), nullptr, iov.size(), net.at(0, 1), nullptr), 0);
  iov = cut(bytes, net[0].info->rx_attr->iov_limit + 1);
  EXPECT_LT(fi_recvv(net[0].ep, iov.data(), nullptr, iov.size(), FI_ADDR_UNSPEC, nullptr), 0);
}

// fi_cq.3: FI_ETRUNC, olen is what did not fit; the endpoint goes on.
TEST(RdmMsg, TruncationIsAnErrorOfThatReceiveOnly) {
  RDM_NEEDS(FI_MSG);
  Net net;
  for (size_t size : {100, 5000, 20000, 200000, 1 << 20}) {
    for (size_t room : {size_t(0), size_t(10), size - 1}) {
      SCOPED_TRACE(std::to_string(size) + " into " + std::to_string(room));
      std::vector<uint8_t> out = pattern(size, 1), in(size, 0xee);
      must(fi_recv(net[1].ep, in.data(), room, nullptr, FI_ADDR_UNSPEC, &in));
      net.post([&] { return kForms[0].send(net, out); });
      const Completion got = net.wait(net[1].rx_cq);
      EXPECT_EQ(got.err, FI_ETRUNC);
      EXPECT_EQ(got.context, &in);
      EXPECT_EQ(got.olen, size - room);
      for (size_t i = room; i < size; ++i) ASSERT_EQ(in[i], 0xee) << "behind the buffer, at " << i;
      net.wait(net[0].tx_cq);  // good or bad by the protocol: the man pages leave it open
      net.exchange(0, 1, size);
    }
  }
}

TEST(RdmMsg, ManyUnexpectedMessagesWaitInOrder) {
  RDM_NEEDS(FI_MSG);
  Net net;
  constexpr size_t kCount = 1000;
  for (size_t i = 0; i < kCount; ++i) {
    std::vector<uint8_t> out = pattern(i % 60, unsigned(i));
    net.post([&] { return fi_inject(net[0].ep, out.data(), out.size(), net.at(0, 1)); });
  }
  for (size_t i = 0; i < kCount; ++i) {
    std::vector<uint8_t> in(64);
    must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    in.resize(got.len);
    ASSERT_EQ(in, pattern(i % 60, unsigned(i))) << "message " << i;
  }
}

// Large messages that nobody expects, of every protocol, mixed.
TEST(RdmMsg, LargeUnexpectedMessagesWaitInOrder) {
  RDM_NEEDS(FI_MSG);
  Options options;
  options.order = FI_ORDER_SAS;
  Net net(2, options);
  std::vector<std::vector<uint8_t>> out;
  const size_t sizes[] = {10, 300000, 17000, 0, 140000, 5000, 1 << 20, 64};
  for (size_t i = 0; i < 24; ++i) out.push_back(pattern(sizes[i % std::size(sizes)], unsigned(i)));
  for (auto &bytes : out) net.post([&] { return kForms[0].send(net, bytes); });
  net.settle();
  for (auto &bytes : out) {
    std::vector<uint8_t> in(1 << 20);
    must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    in.resize(got.len);
    ASSERT_EQ(in, bytes);
  }
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

// fi_endpoint.3, FI_ORDER_SAS: sends are matched in the order in which they were posted.
TEST(RdmMsg, SendsOfOnePeerMatchInOrder) {
  RDM_NEEDS(FI_MSG);
  covers("FI_ORDER_SAS");
  Options options;
  options.order = FI_ORDER_SAS;
  Net net(2, options);
  const size_t sizes[] = {8, 100, 20000, 0, 150000, 64, 3000};
  constexpr size_t kCount = 56;
  std::vector<std::vector<uint8_t>> out, in(kCount, std::vector<uint8_t>(150000));
  for (auto &buffer : in)
    must(fi_recv(net[1].ep, buffer.data(), buffer.size(), nullptr, FI_ADDR_UNSPEC, &buffer));
  for (size_t i = 0; i < kCount; ++i) out.push_back(pattern(sizes[i % 7], unsigned(i)));
  for (auto &bytes : out) net.post([&] { return kForms[0].send(net, bytes); });
  for (size_t i = 0; i < kCount; ++i) {
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    auto &buffer = *static_cast<std::vector<uint8_t> *>(got.context);
    buffer.resize(got.len);
  }
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(in[i], out[i]) << "message " << i;
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

TEST(RdmMsg, CancelEndsAReceive) {
  RDM_NEEDS(FI_MSG);
  Net net;
  std::vector<uint8_t> first(100), second(100);
  must(fi_recv(net[1].ep, first.data(), first.size(), nullptr, FI_ADDR_UNSPEC, &first));
  must(fi_recv(net[1].ep, second.data(), second.size(), nullptr, FI_ADDR_UNSPEC, &second));
  EXPECT_EQ(fi_cancel(net[1].ep.fid(), &first), 0);
  const Completion cancelled = net.wait(net[1].rx_cq);
  EXPECT_EQ(cancelled.err, FI_ECANCELED);
  EXPECT_EQ(cancelled.context, &first);
  std::vector<uint8_t> out = pattern(100, 3);
  net.post([&] { return kForms[0].send(net, out); });
  const Completion got = net.wait(net[1].rx_cq);
  EXPECT_EQ(got.context, &second);
  EXPECT_EQ(second, out);
}

TEST(RdmMsg, AnEndpointSendsToItself) {
  RDM_NEEDS(FI_MSG);
  Net net(1);
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 5), in(size);
    must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    net.post(
        [&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 0), &out); });
    const Completion got = net.wait(net[0].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    EXPECT_EQ(in, out);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
}

TEST(RdmMsg, MessagesAndTaggedMessagesDoNotMix) {
  RDM_NEEDS(FI_MSG | FI_TAGGED);
  Net net;
  std::vector<uint8_t> plain(64), tagged(64), out = pattern(64, 1), out2 = pattern(64, 2);
  must(fi_recv(net[1].ep, plain.data(), 64, nullptr, FI_ADDR_UNSPEC, &plain));
  must(fi_trecv(net[1].ep, tagged.data(), 64, nullptr, FI_ADDR_UNSPEC, 0, ~0ull, &tagged));
  net.post([&] { return fi_tsend(net[0].ep, out.data(), 64, nullptr, net.at(0, 1), 0, &out); });
  net.post([&] { return fi_send(net[0].ep, out2.data(), 64, nullptr, net.at(0, 1), &out2); });
  net.wait(net[1].rx_cq);
  net.wait(net[1].rx_cq);
  EXPECT_EQ(tagged, out);
  EXPECT_EQ(plain, out2);
}

TEST(RdmMsg, DirectedReceivesTakeFromTheirSourceOnly) {
  RDM_NEEDS(FI_MSG | FI_DIRECTED_RECV);
  Options options;
  options.caps |= FI_DIRECTED_RECV;
  Net net(3, options);
  for (size_t size : {10, 20000, 200000}) {
    for (bool expected : {true, false}) {
      SCOPED_TRACE(std::to_string(size) + (expected ? " expected" : " unexpected"));
      std::vector<uint8_t> of1(size), of2(size), out1 = pattern(size, 1), out2 = pattern(size, 2);
      const auto receive = [&] {
        must(fi_recv(net[0].ep, of2.data(), size, nullptr, net.at(0, 2), &of2));
        must(fi_recv(net[0].ep, of1.data(), size, nullptr, net.at(0, 1), &of1));
      };
      if (expected) receive();
      net.post([&] { return fi_send(net[1].ep, out1.data(), size, nullptr, net.at(1, 0), &out1); });
      net.settle();
      net.post([&] { return fi_send(net[2].ep, out2.data(), size, nullptr, net.at(2, 0), &out2); });
      net.settle();
      if (!expected) receive();
      for (int i = 0; i < 2; ++i) EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
      EXPECT_EQ(of1, out1);
      EXPECT_EQ(of2, out2);
      net.wait(net[1].tx_cq);
      net.wait(net[2].tx_cq);
    }
  }
}

TEST(RdmMsg, SourcesAreNamedByTheAddressVector) {
  RDM_NEEDS(FI_MSG | FI_SOURCE);
  Options options;
  options.caps |= FI_SOURCE;
  Net net(4, options);
  for (size_t from : {3, 1, 2, 1}) {
    for (size_t size : {8, 20000, 200000}) {
      std::vector<uint8_t> out = pattern(size, 1), in(size);
      must(fi_recv(net[0].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
      net.post(
          [&] { return fi_send(net[from].ep, out.data(), size, nullptr, net.at(from, 0), &out); });
      EXPECT_EQ(net.wait(net[0].rx_cq).source, net.at(0, from));
      net.wait(net[from].tx_cq);
    }
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
