// SPDX-License-Identifier: BSD-2-Clause
// Shared receive contexts (fi_endpoint.3, fi_srx_context): one pool of receives for several
// endpoints.
#include <netinet/in.h>

#include <cstring>
#include <map>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

constexpr int kCallers = 4;

// A passive side with a shared receive context, and callers connected to it.
struct Hub : Driver {
  explicit Hub(uint64_t more_caps = 0, size_t rx_size = 0) {
    Options options;
    options.caps = FI_MSG | FI_RMA | more_caps;
    options.rx_size = rx_size;
    options.shared_receive = true;
    hub = std::make_unique<Side>(options);
    hub->open(options_info(options, nullptr, FI_SOURCE).get());
    listener = std::make_unique<Listener>(*hub);
    const std::string address = listener->address();
    Options plain;
    plain.caps = FI_MSG | FI_RMA;
    for (int i = 0; i < kCallers; ++i) {
      callers.push_back(std::make_unique<Side>(plain));
      Side &caller = *callers.back();
      caller.open(options_info(plain).get());
      caller.make_endpoint(caller.info.get());
      must(fi_connect(caller.ep, address.data(), nullptr, 0));
      Event request = next_request(*hub, {hub.get(), &caller});
      endpoints.emplace_back();
      Handle<fid_ep> &ep = endpoints.back();
      must(fi_endpoint(hub->domain, request.info.get(), ep.out(), nullptr));
      must(fi_ep_bind(ep, hub->eq.fid(), 0));
      must(fi_ep_bind(ep, hub->tx_cq.fid(), FI_TRANSMIT));
      must(fi_ep_bind(ep, hub->rx_cq.fid(), FI_RECV));
      must(fi_ep_bind(ep, hub->srx.fid(), 0));
      must(fi_enable(ep));
      must(fi_accept(ep, nullptr, 0));
      EXPECT_EQ(wait_event(caller.eq, {hub.get(), &caller}).type, uint32_t(FI_CONNECTED));
      EXPECT_EQ(wait_event(hub->eq, {hub.get(), &caller}).type, uint32_t(FI_CONNECTED));
    }
  }
  void progress() override {
    hub->progress();
    for (auto &caller : callers) caller->progress();
  }

  std::unique_ptr<Side> hub;
  std::unique_ptr<Listener> listener;
  std::vector<std::unique_ptr<Side>> callers;
  std::vector<Handle<fid_ep>> endpoints;
};

TEST(Srx, EveryEndpointTakesFromTheSamePool) {
  Hub h;
  char in[kCallers * 3][16];
  for (auto &buffer : in) must(fi_recv(h.hub->srx, buffer, sizeof buffer, nullptr, 0, buffer));
  std::map<std::string, int> sent, received;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kCallers; ++i) {
      const std::string text = "caller " + std::to_string(i) + "." + std::to_string(round);
      ++sent[text];
      must(fi_inject(h.callers[i]->ep, text.c_str(), text.size() + 1, 0));
    }
  }
  for (int i = 0; i < kCallers * 3; ++i) {
    const Done done = h.wait(h.hub->rx_cq);
    ASSERT_EQ(done.err, 0);
    ++received[static_cast<char *>(done.context)];
  }
  EXPECT_EQ(received, sent);
}

TEST(Srx, ReceivesPostedLaterTakeWaitingMessages) {
  NEEDS_WAITING_MESSAGES();
  Hub h;
  for (int i = 0; i < kCallers; ++i) must(fi_inject(h.callers[i]->ep, &i, sizeof i, 0));
  for (int i = 0; i < 30; ++i) h.progress();
  EXPECT_FALSE(poll_cq(h.hub->rx_cq).has_value());
  // One receive at a time: each takes one of the waiting messages, and none is forgotten.
  std::map<int, int> seen;
  for (int i = 0; i < kCallers; ++i) {
    int number = -1;
    must(fi_recv(h.hub->srx, &number, sizeof number, nullptr, 0, nullptr));
    EXPECT_EQ(h.wait(h.hub->rx_cq).err, 0);
    ++seen[number];
  }
  EXPECT_EQ(seen.size(), size_t(kCallers));
}

TEST(Srx, LargeMessagesOfAllAtOnce) {
  Hub h;
  constexpr size_t kSize = 300000;
  std::vector<std::vector<uint8_t>> out, in(kCallers, std::vector<uint8_t>(kSize));
  for (int i = 0; i < kCallers; ++i) {
    out.push_back(pattern(kSize, unsigned(i)));
    must(fi_recv(h.hub->srx, in[i].data(), kSize, nullptr, 0, &in[i]));
    must(fi_send(h.callers[i]->ep, out[i].data(), kSize, nullptr, 0, nullptr));
  }
  for (int i = 0; i < kCallers; ++i) EXPECT_EQ(h.wait(h.hub->rx_cq).len, kSize);
  for (const auto &bytes : in) EXPECT_NE(std::find(out.begin(), out.end(), bytes), out.end());
}

TEST(Srx, AnEndpointThatEndsLeavesTheOthersTheirReceives) {
  Hub h;
  char in[kCallers][16];
  for (auto &buffer : in) must(fi_recv(h.hub->srx, buffer, sizeof buffer, nullptr, 0, buffer));
  must(fi_shutdown(h.callers[0]->ep, 0));
  Event end;
  ASSERT_TRUE(until(
      [&] {
        auto event = poll_eq(h.hub->eq);
        if (event) end = std::move(*event);
        return event.has_value();
      },
      {h.hub.get(), h.callers[0].get()}));
  EXPECT_EQ(end.type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(end.fid, h.endpoints[0].fid());
  EXPECT_FALSE(poll_cq(h.hub->rx_cq).has_value()) << "shared receives are not flushed";
  for (int i = 0; i < kCallers; ++i) must(fi_inject(h.callers[1]->ep, "hello", 6, 0));
  for (int i = 0; i < kCallers; ++i) EXPECT_EQ(h.wait(h.hub->rx_cq).err, 0);
}

TEST(Srx, OrderOfEachSenderIsKept) {
  Hub h;
  constexpr int kCount = 500;
  struct Message {
    int caller, number;
  };
  std::vector<Message> in(64);
  for (Message &message : in)
    must(fi_recv(h.hub->srx, &message, sizeof message, nullptr, 0, &message));
  // Without FI_RM_ENABLED a message that finds no receive ends its connection.
  const bool wait = find_info(Options{.resource_mgmt = FI_RM_ENABLED}) != nullptr;
  const int most = wait ? kCount * kCallers : int(in.size());  // that are under way
  int sent[kCallers] = {}, received[kCallers] = {}, total_sent = 0, total = 0;
  const Deadline deadline;
  while (total < kCount * kCallers && !deadline.passed() && !::testing::Test::HasFailure()) {
    for (int i = 0; i < kCallers; ++i) {
      const Message message{i, sent[i]};
      if (sent[i] == kCount || total_sent - total == most) continue;
      if (fi_inject(h.callers[i]->ep, &message, sizeof message, 0) != 0) continue;
      ++sent[i];
      ++total_sent;
    }
    h.progress();
    while (const auto done = poll_cq(h.hub->rx_cq)) {
      ASSERT_EQ(done->err, 0);
      auto *message = static_cast<Message *>(done->context);
      EXPECT_EQ(message->number, received[message->caller]++);
      ++total;
      must(fi_recv(h.hub->srx, message, sizeof *message, nullptr, 0, message));
    }
  }
  EXPECT_EQ(total, kCount * kCallers);
}

TEST(Srx, MultiReceiveBuffersAreShared) {
  NEEDS_OFFER(Options{.caps = FI_MSG | FI_RMA | FI_MULTI_RECV}, "FI_MULTI_RECV");
  Hub h(FI_MULTI_RECV);
  std::vector<uint8_t> buffer(8192);
  post_multi(h.hub->srx, buffer);
  std::map<std::string, int> sent, received;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kCallers; ++i) {
      const std::string text = std::to_string(i) + "/" + std::to_string(round);
      ++sent[text];
      must(fi_inject(h.callers[i]->ep, text.c_str(), text.size() + 1, 0));
    }
  }
  for (int i = 0; i < kCallers * 10; ++i) {
    const Done done = h.wait(h.hub->rx_cq);
    ASSERT_EQ(done.err, 0);
    ++received[static_cast<char *>(done.buf)];
  }
  EXPECT_EQ(received, sent);
}

// A multi-receive buffer takes messages one behind the other, so it must be one vector.
TEST(Srx, AMultiReceiveBufferIsOneVector) {
  NEEDS_OFFER(Options{.caps = FI_MSG | FI_RMA | FI_MULTI_RECV}, "FI_MULTI_RECV");
  Hub h(FI_MULTI_RECV);
  // The parts are placed so that a write beyond the first one shows.
  std::vector<uint8_t> bytes(4096, 0xca);
  const iovec iov[2] = {{bytes.data(), 64}, {bytes.data() + 2048, 64}};
  fi_msg message{};
  message.msg_iov = iov;
  message.context = &bytes;
  for (size_t count : {0, 2}) {
    message.iov_count = count;
    EXPECT_EQ(fi_recvmsg(h.hub->srx, &message, FI_MULTI_RECV), -FI_EINVAL) << count;
  }
  const iovec null{nullptr, 64};
  message.msg_iov = &null;
  message.iov_count = 1;
  EXPECT_EQ(fi_recvmsg(h.hub->srx, &message, FI_MULTI_RECV), -FI_EINVAL);
  EXPECT_EQ(fi_recvmsg(h.hub->srx, &message, 0), 0) << "programs do so, and nothing fits in there";

  // As a default of the context it holds for every call.
  fi_rx_attr attr = *h.hub->info->rx_attr;
  attr.op_flags = FI_MULTI_RECV;
  Handle<fid_ep> context;
  must(fi_srx_context(h.hub->domain, &attr, context.out(), nullptr));
  EXPECT_EQ(fi_recvv(context, iov, nullptr, 2, 0, &bytes), -FI_EINVAL);

  for (int i = 0; i < 4; ++i) must(fi_inject(h.callers[0]->ep, &i, sizeof i, 0));
  for (int i = 0; i < 30; ++i) h.progress();
  EXPECT_EQ(bytes, std::vector<uint8_t>(4096, 0xca));
}

// A buffer that a message fills is returned when the message is complete, not before.
TEST(Srx, CancelOfABufferThatIsBeingFilledWaits) {
  NEEDS_OFFER(Options{.caps = FI_MSG | FI_RMA | FI_MULTI_RECV}, "FI_MULTI_RECV");
  Hub h(FI_MULTI_RECV);
  constexpr size_t kSize = 8 << 20;
  std::vector<uint8_t> buffer(2 * kSize), out = pattern(kSize, 3);
  post_multi(h.hub->srx, buffer);
  must(fi_send(h.callers[0]->ep, out.data(), kSize, nullptr, 0, nullptr));
  // Until the first byte of it is there; the rest waits for its sender to go on.
  for (const Deadline deadline; buffer[1] != out[1] && !deadline.passed();) h.hub->progress();
  ASSERT_EQ(buffer[1], out[1]);
  EXPECT_EQ(fi_cancel(h.hub->srx.fid(), &buffer), 0);
  EXPECT_EQ(fi_cancel(h.hub->srx.fid(), &buffer), -FI_ENOENT) << "it is cancelled already";
  for (int i = 0; i < 3; ++i) h.hub->progress();
  EXPECT_FALSE(poll_cq(h.hub->rx_cq).has_value()) << "reported while it is written to";
  // Other messages go to other receives.
  char small[8] = {};
  must(fi_recv(h.hub->srx, small, sizeof small, nullptr, 0, small));
  must(fi_inject(h.callers[1]->ep, "hello", 6, 0));
  Done done = h.wait(h.hub->rx_cq);
  if (done.context == small) {
    EXPECT_STREQ(small, "hello");
    done = h.wait(h.hub->rx_cq);
  }
  EXPECT_EQ(done.context, &buffer);
  EXPECT_EQ(done.err, 0);
  EXPECT_EQ(done.len, kSize);
  EXPECT_EQ(done.flags & FI_MULTI_RECV, 0u);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), buffer.begin()));
  done = h.wait(h.hub->rx_cq);
  EXPECT_EQ(done.context, &buffer);
  EXPECT_EQ(done.err, FI_ECANCELED);
  EXPECT_NE(done.flags & FI_MULTI_RECV, 0u);
}

TEST(Srx, AReceiveWithoutAContextIsNotCancelled) {
  Hub h;
  char in[8];
  must(fi_recv(h.hub->srx, in, sizeof in, nullptr, 0, nullptr));
  EXPECT_EQ(fi_cancel(h.hub->srx.fid(), nullptr), -FI_ENOENT);
  must(fi_inject(h.callers[0]->ep, "hello", 6, 0));
  EXPECT_EQ(h.wait(h.hub->rx_cq).err, 0);
}

TEST(Srx, AFullContextOfADeviceIsEAGAIN) {
  if (!is_of_a_device(FI_EP_MSG)) GTEST_SKIP() << "software takes more: Msg";
  Hub h(0, 16);
  char in[4];
  int posted = 0;
  ssize_t rc = 0;
  while (posted < 100000 && (rc = fi_recv(h.hub->srx, in, sizeof in, nullptr, 0, nullptr)) == 0)
    ++posted;
  EXPECT_EQ(rc, -FI_EAGAIN);
  EXPECT_GE(posted, 16);
}

TEST(Srx, SendsOfTheEndpointsWorkAsWithoutIt) {
  Hub h;
  for (int i = 0; i < kCallers; ++i) {
    char in[8];
    must(fi_recv(h.callers[i]->ep, in, sizeof in, nullptr, 0, in));
    must(fi_send(h.endpoints[i], "hello", 6, nullptr, 0, nullptr));
    EXPECT_EQ(h.wait(h.callers[i]->rx_cq).context, in);
    EXPECT_EQ(h.wait(h.hub->tx_cq).err, 0);
  }
}

// fi_endpoint.3, rx_ctx_cnt: an endpoint that asked for a shared context receives through one.
TEST(Srx, AnEndpointThatAskedForOneIsNotEnabledWithoutIt) {
  Options options;
  options.shared_receive = true;
  const Info hints = options_info(options);
  hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  const Info info = get_info(options.node.c_str(), nullptr, 0, hints.get());
  EXPECT_EQ(info->ep_attr->rx_ctx_cnt, size_t(FI_SHARED_CONTEXT));
  Side side(options);
  side.open(info.get());
  side.make_unbound_endpoint(info.get());
  must(fi_ep_bind(side.ep, side.eq.fid(), 0));
  must(fi_ep_bind(side.ep, side.tx_cq.fid(), FI_TRANSMIT));
  must(fi_ep_bind(side.ep, side.rx_cq.fid(), FI_RECV));
  EXPECT_LT(fi_enable(side.ep), 0);
  const sockaddr_in nobody = {};
  EXPECT_LT(fi_connect(side.ep, &nobody, nullptr, 0), 0) << "it would enable the endpoint";
  must(fi_ep_bind(side.ep, side.srx.fid(), 0));
  EXPECT_EQ(fi_enable(side.ep), 0);
}

// The endpoint of a request is what the listener was opened for.
TEST(Srx, AnAcceptedEndpointInheritsTheWishForOne) {
  Options options;
  options.shared_receive = true;
  Side hub(options), caller;
  const Info hints = options_info(options, nullptr, FI_SOURCE);
  hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  hub.open(hints.get());
  const Listener listener(hub, *hints);
  caller.open(options_info({}).get());
  caller.make_endpoint(caller.info.get());
  must(fi_connect(caller.ep, listener.address().data(), nullptr, 0));
  const Event request = next_request(hub, {&hub, &caller});
  EXPECT_EQ(request.info->ep_attr->rx_ctx_cnt, size_t(FI_SHARED_CONTEXT));
  hub.make_unbound_endpoint(request.info.get());
  must(fi_ep_bind(hub.ep, hub.eq.fid(), 0));
  must(fi_ep_bind(hub.ep, hub.tx_cq.fid(), FI_TRANSMIT));
  must(fi_ep_bind(hub.ep, hub.rx_cq.fid(), FI_RECV));
  EXPECT_LT(fi_enable(hub.ep), 0);
  EXPECT_LT(fi_accept(hub.ep, nullptr, 0), 0) << "it would enable the endpoint";
  must(fi_ep_bind(hub.ep, hub.srx.fid(), 0));
  must(fi_accept(hub.ep, nullptr, 0));
  EXPECT_EQ(wait_event(caller.eq, {&hub, &caller}).type, uint32_t(FI_CONNECTED));
}

}  // namespace
}  // namespace weft::conformance
