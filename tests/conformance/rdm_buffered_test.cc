// SPDX-License-Identifier: BSD-2-Clause
// Messages in memory of the provider (fi_msg.3, "Buffered Receives" and "Variable Length Messages";
// fi_tagged.3, "Buffered Tagged Receives"; fi_endpoint.3, FI_OPT_BUFFERED_LIMIT and
// FI_OPT_BUFFERED_MIN): the mode FI_BUFFERED_RECV and the capability FI_VARIABLE_MSG of the API
// before 2.0, whose headers have the names.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kMode = 1ULL << 51;        // FI_BUFFERED_RECV
constexpr uint64_t kCapability = 1ULL << 48;  // FI_VARIABLE_MSG
// Longer than what the stacks over sockets keep of a message without a receive.
size_t very_long() {
  return has_devices_inside() ? 6 << 20 : 70 << 20;
}

class RdmBuffered : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kSender = 0, kTarget = 1, kOther = 2;
  static constexpr uint64_t kTag = 7;

  // How the application asks for it.
  static bool by_mode() { return GetParam(); }
  void SetUp() override {
    covers(by_mode() ? "FI_BUFFERED_RECV" : "FI_VARIABLE_MSG");
    const Info info = find_info(options());
    if (!info || !((info->mode & kMode) || (info->caps & kCapability)))
      GTEST_SKIP() << stack() << " has no buffered receives";
  }
  static Options options() {
    Options options;
    options.mode = by_mode() ? kMode : 0;
    options.caps =
        FI_MSG | FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV | (by_mode() ? 0 : kCapability);
    return options;
  }
  void open(size_t nodes = 2, const Options &asked = options(), size_t min = 0, size_t limit = 0) {
    net.emplace(nodes, asked, [&](Node &node) {
      if (limit != 0)
        must(
            fi_setopt(&node.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &limit, sizeof limit));
      if (min != 0)
        must(fi_setopt(&node.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &min, sizeof min));
    });
  }
  static size_t option(fid_ep *ep, int name) {
    size_t value = 0, length = sizeof value;
    must(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, name, &value, &length));
    return value;
  }
  fid_ep *target() { return (*net)[kTarget].ep; }
  void send(const std::vector<uint8_t> &out, bool tagged = false, uint64_t tag = kTag,
            size_t from = kSender) {
    net->post([&, ep = (*net)[from].ep.get(), to = net->at(from, kTarget)] {
      return tagged ? fi_tsend(ep, out.data(), out.size(), nullptr, to, tag, nullptr)
                    : fi_send(ep, out.data(), out.size(), nullptr, to, nullptr);
    });
  }
  void sent(size_t from = kSender) { EXPECT_EQ(net->wait((*net)[from].tx_cq).err, 0); }
  void post_tag(void *context, uint64_t tag = kTag, fi_addr_t source = FI_ADDR_UNSPEC) {
    net->post([&] { return fi_trecv(target(), nullptr, 0, nullptr, source, tag, 0, context); });
  }
  // What the application is told of the next message.
  Completion notice() {
    const Completion told = net->wait((*net)[kTarget].rx_cq);
    EXPECT_EQ(told.err, 0) << fi_strerror(told.err);
    EXPECT_NE(told.context, nullptr);
    EXPECT_EQ(told.flags & FI_CLAIM, 0u);
    return told;
  }
  ssize_t post_claim(void *context, void *buffer, size_t size, bool tagged = false,
                     uint64_t flags = FI_CLAIM) {
    const iovec iov{buffer, size};
    const fi_msg msg{.msg_iov = &iov, .iov_count = 1, .context = context};
    const fi_msg_tagged tmsg{.msg_iov = &iov, .iov_count = 1, .context = context};
    return net->attempt([&] {
      return tagged ? fi_trecvmsg(target(), &tmsg, flags) : fi_recvmsg(target(), &msg, flags);
    });
  }
  Completion claim(const Completion &told, std::vector<uint8_t> &in, bool tagged = false) {
    static_cast<fi_recv_context *>(told.context)->context = &in;
    EXPECT_EQ(post_claim(told.context, in.data(), in.size(), tagged), 0);
    const Completion done = net->wait((*net)[kTarget].rx_cq);
    EXPECT_EQ(done.context, &in);
    EXPECT_TRUE(done.flags & FI_CLAIM);
    return done;
  }
  void discard(const Completion &told, bool tagged = false) {
    EXPECT_EQ(post_claim(told.context, nullptr, 0, tagged, FI_DISCARD), 0);
  }
  static bool begins_with(const void *buffer, const std::vector<uint8_t> &out, size_t n) {
    return n == 0 || std::memcmp(buffer, out.data(), n) == 0;
  }

  std::optional<Net> net;
};
INSTANTIATE_TEST_SUITE_P(As, RdmBuffered, ::testing::Bool(), [](const auto &info) {
  return std::string(info.param ? "Mode" : "Capability");
});

TEST_P(RdmBuffered, GetinfoOffersItIfAskedFor) {
  const Info asked = find_info(options());
  EXPECT_EQ((asked->mode & kMode) != 0, by_mode());
  EXPECT_EQ((asked->rx_attr->mode & kMode) != 0, by_mode());
  EXPECT_EQ((asked->caps & kCapability) != 0, !by_mode());
  EXPECT_EQ((asked->rx_attr->caps & kCapability) != 0, !by_mode());
  EXPECT_FALSE(asked->caps & FI_MULTI_RECV) << "such an endpoint has no buffers of the application";
  const Info plain = find_info(Options());
  EXPECT_FALSE(plain->mode & kMode);
  EXPECT_FALSE(plain->caps & kCapability);
  const Info later = find_info(options(), 0, FI_VERSION(2, 0));
  if (by_mode()) {
    ASSERT_NE(later, nullptr);
    EXPECT_FALSE(later->mode & kMode) << "2.0 has no such mode";
  } else {
    EXPECT_EQ(later, nullptr) << "2.0 has another capability in its place";
  }
  Options all = options();
  all.mode = ~UINT64_C(0);
  all.caps &= ~kCapability;
  const Info needed = find_info(all);
  EXPECT_FALSE(needed->mode & kMode) << "not for who only asks which modes are needed";
  Options multi = options();
  multi.caps |= FI_MULTI_RECV;
  const Info other = find_info(multi);
  EXPECT_TRUE(other == nullptr || !(other->mode & kMode));
}

TEST_P(RdmBuffered, LimitAndMinimumAreOptions) {
  size_t most = 0;
  open(2, options(), 0, SIZE_MAX);
  fid_ep *const ep = target();
  most = option(ep, FI_OPT_BUFFERED_LIMIT);
  EXPECT_GE(most, 4096u);
  EXPECT_LT(most, SIZE_MAX);
  EXPECT_EQ(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &most, sizeof most),
            -FI_EOPBADSTATE);
  EXPECT_EQ(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &most, sizeof most),
            -FI_EOPBADSTATE);
  Net others(1, options(), [&](Node &node) {
    struct fid *fid = &node.ep->fid;
    const auto set = [fid](int name, size_t value) {
      return fi_setopt(fid, FI_OPT_ENDPOINT, name, &value, sizeof value);
    };
    const size_t usual = option(node.ep, FI_OPT_BUFFERED_LIMIT);
    EXPECT_LE(usual, most);
    EXPECT_LE(option(node.ep, FI_OPT_BUFFERED_MIN), usual);
    EXPECT_EQ(set(FI_OPT_BUFFERED_LIMIT, most + 1), -FI_EMSGSIZE);
    EXPECT_EQ(set(FI_OPT_BUFFERED_LIMIT, 1000), 0);
    EXPECT_EQ(set(FI_OPT_BUFFERED_MIN, 1001), -FI_EMSGSIZE);
    EXPECT_EQ(set(FI_OPT_BUFFERED_MIN, 500), 0);
    EXPECT_EQ(set(FI_OPT_BUFFERED_LIMIT, 499), -FI_EMSGSIZE);
    EXPECT_EQ(option(node.ep, FI_OPT_BUFFERED_LIMIT), 1000u);
    EXPECT_EQ(option(node.ep, FI_OPT_BUFFERED_MIN), 500u);
    EXPECT_EQ(fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &most, 3), -FI_EINVAL);
    EXPECT_EQ(set(FI_OPT_BUFFERED_MIN, 0), 0);
  });
  Net plain(1);
  EXPECT_EQ(
      fi_setopt(&plain[0].ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &most, sizeof most),
      -FI_ENOPROTOOPT);
}

TEST_P(RdmBuffered, AMessageComesWithoutAReceive) {
  open();
  for (const size_t size : {0u, 1u, 100u, 3000u, 16384u}) {
    SCOPED_TRACE(size);
    const auto out = pattern(size, 1);
    std::vector<uint8_t> in(size);
    for (const bool keeps : {false, true}) {
      send(out);
      const Completion told = notice();
      EXPECT_EQ(told.flags, FI_MSG | FI_RECV);
      EXPECT_EQ(told.len, size);
      EXPECT_EQ(told.source, net->at(kTarget, kSender));
      const auto &context = *static_cast<fi_recv_context *>(told.context);
      EXPECT_EQ(context.ep, target());
      EXPECT_EQ(context.context, nullptr);
      EXPECT_TRUE(begins_with(told.buf, out, size));
      sent();
      if (!keeps) {
        discard(told);
        continue;
      }
      const Completion done = claim(told, in);
      EXPECT_EQ(done.err, 0);
      EXPECT_EQ(done.flags, FI_MSG | FI_RECV | FI_CLAIM);
      EXPECT_EQ(done.len, size);
      EXPECT_EQ(done.source, net->at(kTarget, kSender));
      EXPECT_EQ(in, out);
    }
  }
}

TEST_P(RdmBuffered, OfALongMessageTheStartComes) {
  for (const size_t min : {0u, 64u, 5000u}) {
    open(2, options(), min);
    for (const size_t size : {16385u, 70'000u, 300'000u, 3'000'000u}) {
      for (const bool tagged : {false, true}) {
        SCOPED_TRACE(std::to_string(min) + " of " + std::to_string(size) +
                     (tagged ? " tagged" : ""));
        const auto out = pattern(size, 2), small = pattern(10, 3);
        int mine = 0;
        std::vector<uint8_t> in(size), rest(10);
        for (const bool keeps : {false, true}) {
          if (tagged) post_tag(&mine);
          send(out, tagged);
          const Completion told = notice();
          EXPECT_EQ(told.flags, (tagged ? FI_TAGGED : FI_MSG) | FI_RECV | FI_MORE);
          EXPECT_EQ(told.len, size);
          EXPECT_TRUE(begins_with(told.buf, out, min));
          if (keeps) {
            const Completion done = claim(told, in, tagged);
            EXPECT_EQ(done.err, 0);
            EXPECT_EQ(done.len, size);
            EXPECT_EQ(in, out);
          } else {
            discard(told, tagged);
          }
          sent();
        }
        send(small);
        const Completion told = notice();
        EXPECT_EQ(told.flags, FI_MSG | FI_RECV);
        EXPECT_EQ(claim(told, rest).err, 0);
        EXPECT_EQ(rest, small);
        sent();
      }
    }
  }
}

TEST_P(RdmBuffered, AVeryLongMessageIsClaimed) {
  if (by_mode()) GTEST_SKIP() << "tested as a message of variable length";
  const auto out = pattern(very_long(), 4);
  for (const size_t min : {0u, 1000u}) {
    std::vector<uint8_t> in(out.size() + 5);
    open(2, options(), min);
    send(out);
    Completion told = notice();
    EXPECT_EQ(told.flags, FI_MSG | FI_RECV | FI_MORE);
    EXPECT_EQ(told.len, out.size());
    EXPECT_TRUE(begins_with(told.buf, out, min));
    const Completion done = claim(told, in);
    EXPECT_EQ(done.err, 0);
    EXPECT_EQ(done.len, out.size());
    EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
    sent();
    int mine = 0;
    post_tag(&mine);
    send(out, true);
    told = notice();
    EXPECT_EQ(told.len, out.size());
    EXPECT_TRUE(begins_with(told.buf, out, min));
    discard(told, true);
    sent();
    const auto last = pattern(3, 1);
    send(last);
    EXPECT_EQ(notice().len, 3u);
    sent();
    net.reset();
  }
}

TEST_P(RdmBuffered, ATagIsPostedForAMessage) {
  open(3);
  const auto out = pattern(100, 5);
  int first = 0, second = 0, third = 0;
  post_tag(&first, kTag, net->at(kTarget, kOther));
  post_tag(&second, kTag);
  send(out, true);
  Completion told = notice();
  EXPECT_EQ(told.flags, FI_TAGGED | FI_RECV);
  EXPECT_EQ(told.tag, kTag);
  const auto &context = *static_cast<fi_recv_context *>(told.context);
  EXPECT_EQ(context.ep, nullptr);
  EXPECT_EQ(context.context, &second) << "the first was for another source";
  EXPECT_TRUE(begins_with(told.buf, out, out.size()));
  discard(told, true);
  send(out, true, kTag, kOther);
  told = notice();
  EXPECT_EQ(static_cast<fi_recv_context *>(told.context)->context, &first);
  EXPECT_EQ(told.source, net->at(kTarget, kOther));
  std::vector<uint8_t> in(100);
  EXPECT_EQ(claim(told, in, true).tag, kTag);
  EXPECT_EQ(in, out);

  send(out, true, kTag + 1);
  net->settle();
  EXPECT_FALSE(poll((*net)[kTarget].rx_cq)) << "it has no tag yet";
  post_tag(&third, kTag + 1);
  told = notice();
  EXPECT_EQ(told.tag, kTag + 1);
  EXPECT_EQ(static_cast<fi_recv_context *>(told.context)->context, &third);
  discard(told, true);

  post_tag(&first, kTag + 2);
  must(fi_cancel(&target()->fid, &first));
  const Completion gone = net->wait((*net)[kTarget].rx_cq);
  EXPECT_EQ(gone.err, FI_ECANCELED);
  EXPECT_EQ(gone.context, &first);
  net.reset();  // it may read the buffers
}

TEST_P(RdmBuffered, AShortBufferTruncates) {
  for (const size_t min : {0u, 64u}) {
    open(2, options(), min);
    for (const size_t size : {1000u, 50'000u, 1'000'000u}) {
      SCOPED_TRACE(size);
      const auto out = pattern(size, 6);
      std::vector<uint8_t> in(40);
      send(out);
      const Completion done = claim(notice(), in);
      EXPECT_EQ(done.err, FI_ETRUNC);
      EXPECT_EQ(done.olen, size - in.size());
      EXPECT_TRUE(std::equal(in.begin(), in.end(), out.begin()));
      sent();
    }
  }
}

TEST_P(RdmBuffered, WrongUseIsRefused) {
  open();
  std::vector<uint8_t> in(100);
  const auto out = pattern(100, 7);
  fi_recv_context foreign{target(), nullptr};
  EXPECT_EQ(fi_recv(target(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in), -FI_EOPNOTSUPP)
      << "untagged messages need no receive";
  for (const uint64_t flags : {FI_CLAIM, FI_DISCARD, FI_CLAIM | FI_DISCARD}) {
    EXPECT_EQ(post_claim(&foreign, in.data(), in.size(), false, flags), -FI_EINVAL);
    EXPECT_EQ(post_claim(&foreign, in.data(), in.size(), true, flags), -FI_EINVAL);
    EXPECT_EQ(post_claim(nullptr, in.data(), in.size(), false, flags), -FI_EINVAL);
  }
  send(out);
  Completion told = notice();
  EXPECT_EQ(post_claim(told.context, in.data(), in.size(), true), -FI_EINVAL) << "it has no tag";
  EXPECT_EQ(post_claim(static_cast<char *>(told.context) + 8, in.data(), in.size()), -FI_EINVAL);
  EXPECT_EQ(post_claim(told.context, nullptr, in.size()), -FI_EINVAL);
  EXPECT_EQ(post_claim(told.context, in.data(), in.size(), false, FI_CLAIM | FI_MULTI_RECV),
            -FI_EBADFLAGS);
  EXPECT_EQ(claim(told, in).err, 0);
  EXPECT_EQ(in, out);
  EXPECT_EQ(post_claim(told.context, in.data(), in.size()), -FI_EINVAL) << "claimed already";
  EXPECT_EQ(post_claim(told.context, nullptr, 0, false, FI_DISCARD), -FI_EINVAL);
  send(out);
  told = notice();
  discard(told);
  EXPECT_EQ(post_claim(told.context, nullptr, 0, false, FI_DISCARD), -FI_EINVAL);
  EXPECT_EQ(post_claim(told.context, in.data(), in.size()), -FI_EINVAL);
  net.reset();  // it may read the buffers
}

TEST_P(RdmBuffered, AnApplicationMayBeSlow) {
  Options few = options();
  few.rx_cq.size = 64;
  open(2, few);
  constexpr size_t kCount = 500;
  std::vector<std::vector<uint8_t>> out;
  for (size_t i = 0; i < kCount; ++i) out.push_back(pattern(i % 40 == 5 ? 20'000 : i, unsigned(i)));
  std::deque<Completion> open_ones;
  size_t next = 0;
  const auto take = [&] {
    if (const auto told = poll((*net)[kTarget].rx_cq)) {
      EXPECT_EQ(told->err, 0);
      open_ones.push_back(*told);
    }
    while (poll((*net)[kSender].tx_cq)) {
    }
  };
  for (const auto &one : out) send(one);
  net->settle();
  while (next != kCount) {
    ASSERT_TRUE(net->until([&] {
      take();
      return open_ones.size() == std::min<size_t>(100, kCount - next);
    }));
    // Those that are open are known by their place: messages of one sender come in order.
    const Completion told = open_ones.front();
    open_ones.pop_front();
    ASSERT_EQ(told.len, out[next].size());
    EXPECT_TRUE(begins_with(told.buf, out[next], told.flags & FI_MORE ? 0 : told.len));
    discard(told);
    ++next;
  }
  net.reset();  // it may read the buffers
}

TEST_P(RdmBuffered, CountersCountNoticesAndClaims) {
  fid_cntr *counter = nullptr;
  net.emplace(2, options(), [&](Node &node) { counter = node.count(FI_RECV); });
  const auto out = pattern(100, 1);
  std::vector<uint8_t> in(100), few(5);
  send(out);
  const Completion told = notice();
  net->wait_count(counter, 1);
  EXPECT_EQ(claim(told, in).err, 0);
  net->wait_count(counter, 2);
  send(out);
  EXPECT_EQ(claim(notice(), few).err, FI_ETRUNC);
  EXPECT_EQ(fi_cntr_readerr(counter), 1u);
  net.reset();  // it may read the buffers
}

TEST_P(RdmBuffered, EndpointsCloseWithWhatNobodyClaimed) {
  for (const size_t min : {0u, 64u}) {
    std::vector<std::vector<uint8_t>> out;
    for (const size_t size : {10u, 20'000u, 300'000u, 5'000'000u}) out.push_back(pattern(size, 1));
    open(2, options(), min);
    int mine = 0;
    post_tag(&mine);
    for (const auto &one : out) send(one);
    for (const auto &one : out) send(one, true);
    net->settle();
    (void)notice();
    (void)notice();
    net.reset();
  }
}

// The sender goes before its message is claimed. What has come is there, and what hasn't fails.
TEST_P(RdmBuffered, ASenderMayGo) {
  for (const size_t size : {size_t(100), size_t(300'000), very_long()}) {
    SCOPED_TRACE(size);
    if (by_mode() && size > 1'000'000) break;  // the sender waits for a while before it goes
    const auto out = pattern(size, 1);
    std::vector<uint8_t> in(size);
    auto gone = std::make_unique<Net>(1, options());
    Node &sender = (*gone)[0];
    net.emplace(2, options());
    const fi_addr_t to = sender.insert((*net)[kTarget].name());
    must(fi_send(sender.ep, out.data(), out.size(), nullptr, to, nullptr));
    std::optional<Completion> told;
    ASSERT_TRUE(net->until([&] {
      gone->progress();
      told = poll((*net)[kTarget].rx_cq);
      return told.has_value();
    }));
    EXPECT_EQ(told->len, size);
    gone.reset();
    net->settle();
    const Completion done = claim(*told, in);
    if (done.err == 0) {
      EXPECT_EQ(in, out);
    }
    const auto last = pattern(7, 1);
    send(last);
    EXPECT_EQ(notice().len, 7u);
    sent();
    net.reset();
  }
}

TEST_P(RdmBuffered, AnyOrderOfAnyCalls) {
  std::minstd_rand random(20260101);
  const auto below = [&](size_t n) { return size_t(random() % n); };
  for (int round = 0; round < 4; ++round) {
    std::vector<std::vector<uint8_t>> out;
    std::vector<std::unique_ptr<std::vector<uint8_t>>> ins;
    open(2, options(), below(2) * below(3000), 3000 + below(20'000));
    const size_t limit = option(target(), FI_OPT_BUFFERED_LIMIT);
    const size_t min = option(target(), FI_OPT_BUFFERED_MIN);
    constexpr size_t kCount = 120;
    for (size_t i = 0; i < kCount; ++i)
      out.push_back(pattern(below(4) == 0 ? below(400'000) : below(2 * limit), unsigned(i)));
    // The tag of a message is its number; untagged ones tell it in their data.
    std::vector<char> tagged(kCount);
    for (auto &t : tagged) t = char(below(2));
    std::vector<Completion> open_ones;
    std::map<void *, size_t> claims;  // by buffer: the message
    size_t sent_ones = 0, posted = 0, over = 0;
    const auto number_of = [](const Completion &c) {
      return size_t(c.flags & FI_TAGGED ? c.tag : c.data);
    };
    const auto settle_one = [&] {
      const size_t i = below(open_ones.size());
      const Completion told = open_ones[i];
      open_ones.erase(open_ones.begin() + long(i));
      const bool has_tag = told.flags & FI_TAGGED;
      if (below(3) == 0) {
        discard(told, has_tag);
        ++over;
        return;
      }
      ins.push_back(std::make_unique<std::vector<uint8_t>>(told.len));
      auto &in = *ins.back();
      static_cast<fi_recv_context *>(told.context)->context = &in;
      claims[&in] = number_of(told);
      ASSERT_EQ(post_claim(told.context, in.data(), in.size(), has_tag), 0);
    };
    const auto look = [&] {
      while (poll((*net)[kSender].tx_cq)) {
      }
      const auto done = poll((*net)[kTarget].rx_cq);
      if (!done) return;
      ASSERT_EQ(done->err, 0) << fi_strerror(done->err);
      const size_t number = number_of(*done);
      ASSERT_LT(number, kCount);
      ASSERT_EQ(done->len, out[number].size());
      if (done->flags & FI_CLAIM) {
        auto &in = *static_cast<std::vector<uint8_t> *>(done->context);
        ASSERT_EQ(claims.at(&in), number);
        ASSERT_EQ(in, out[number]);
        ++over;
        return;
      }
      ASSERT_EQ((done->flags & FI_MORE) != 0, done->len > limit);
      ASSERT_TRUE(begins_with(done->buf, out[number], done->flags & FI_MORE ? min : done->len));
      open_ones.push_back(*done);
    };
    ASSERT_TRUE(net->until([&] {
      switch (below(4)) {
        case 0:
          if (sent_ones == kCount) break;
          net->post([&, ep = (*net)[kSender].ep.get(), to = net->at(kSender, kTarget)] {
            const auto &one = out[sent_ones];
            return tagged[sent_ones]
                       ? fi_tsenddata(ep, one.data(), one.size(), nullptr, 1, to, sent_ones,
                                      nullptr)
                       : fi_senddata(ep, one.data(), one.size(), nullptr, sent_ones, to, nullptr);
          });
          ++sent_ones;
          break;
        case 1:
          if (posted != kCount && tagged[posted]) post_tag(&posted, posted);
          posted = std::min(posted + 1, kCount);
          break;
        case 2:
          if (!open_ones.empty()) settle_one();
          break;
        default:
          look();
      }
      return over == kCount || HasFatalFailure();
    }));
    if (HasFatalFailure()) return;
    net.reset();
  }
}

}  // namespace

}  // namespace weft::conformance::rdm
