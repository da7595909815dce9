// SPDX-License-Identifier: BSD-2-Clause
// Two processes: what one sees when the other closes, exits or is killed (fi_cm.3).
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

constexpr size_t kSize = 100000, kForked = 3'000'000;

// The other process: connects to the address that it gets, and obeys the orders that it gets.
enum Command : uint64_t { kSend = 1, kEcho, kShutdown, kClose, kWriteForEver, kLeave };

void other_process(int socket) {
  const std::string address = hear_text(socket);
  Side side;
  side.open(options_info(side.options).get());
  side.make_endpoint(side.info.get());
  must(fi_connect(side.ep, address.data(), nullptr, 0));
  if (wait_event(side.eq, {&side}).type != FI_CONNECTED) throw std::runtime_error("not connected");
  std::vector<uint8_t> bytes = pattern(kSize, 1);
  const auto finish = [&](fid_cq *cq) {
    std::optional<Done> done;
    if (!until([&] { return (done = poll_cq(cq)).has_value(); }, {&side}))
      throw std::runtime_error("no completion");
    must(-done->err);
  };
  for (;;) {
    switch (hear(socket, {&side})) {
      case kSend:
        must(fi_send(side.ep, bytes.data(), bytes.size(), nullptr, 0, nullptr));
        finish(side.tx_cq);
        break;
      case kEcho: {
        std::vector<uint8_t> in(kSize);
        must(fi_recv(side.ep, in.data(), in.size(), nullptr, 0, nullptr));
        tell(socket, 1);
        finish(side.rx_cq);
        must(fi_send(side.ep, in.data(), in.size(), nullptr, 0, nullptr));
        finish(side.tx_cq);
        break;
      }
      case kShutdown:
        must(fi_shutdown(side.ep, 0));
        break;
      case kClose:
        side.ep.reset();
        break;
      case kWriteForEver: {
        tell(socket, 1);
        const uint64_t to = hear(socket), key = hear(socket);
        for (;;) {
          if (fi_write(side.ep, bytes.data(), bytes.size(), nullptr, 0, to, key, nullptr) != 0)
            side.progress();
          while (poll_cq(side.tx_cq)) {
          }
        }
      }
      default:
        return;
    }
    tell(socket, 0);
  }
}

// This process: listens, accepts.
struct Here : Driver {
  void meet(Child &child) {
    side.open(options_info(side.options, nullptr, FI_SOURCE).get());
    listener = std::make_unique<Listener>(side);
    tell_text(child.socket(), listener->address());
    const Event request = next_request(side, {&side});
    side.make_endpoint(request.info.get());
    must(fi_accept(side.ep, nullptr, 0));
    EXPECT_EQ(wait_event(side.eq, {&side}).type, uint32_t(FI_CONNECTED));
  }
  void progress() override { side.progress(); }
  void expect_end() {
    EXPECT_EQ(wait_event(side.eq, {&side}).type, uint32_t(FI_SHUTDOWN));
    EXPECT_EQ(wait(side.rx_cq).err, FI_ECANCELED);
  }
  Side side;
  std::unique_ptr<Listener> listener;
};

TEST(Process, DataBothWays) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  Child child(other_process);
  Here here;
  here.meet(child);
  std::vector<uint8_t> out = pattern(kSize, 7), in(kSize);
  must(fi_recv(here.side.ep, in.data(), in.size(), nullptr, 0, nullptr));
  tell(child.socket(), kSend);
  EXPECT_EQ(here.wait(here.side.rx_cq).len, kSize);
  EXPECT_EQ(in, pattern(kSize, 1));
  EXPECT_EQ(hear(child.socket(), {&here.side}), 0u);
  must(fi_recv(here.side.ep, in.data(), in.size(), nullptr, 0, nullptr));
  tell(child.socket(), kEcho);
  EXPECT_EQ(hear(child.socket(), {&here.side}), 1u);
  must(fi_send(here.side.ep, out.data(), out.size(), nullptr, 0, nullptr));
  EXPECT_EQ(here.wait(here.side.tx_cq).err, 0);
  EXPECT_EQ(here.wait(here.side.rx_cq).len, kSize);
  EXPECT_EQ(in, out);
  EXPECT_EQ(hear(child.socket(), {&here.side}), 0u);
  tell(child.socket(), kLeave);
  child.join();
}

// The other process ends the connection in the way that it is ordered to.
void expect_end_by(uint64_t command) {
  Child child(other_process);
  Here here;
  here.meet(child);
  char in[8];
  must(fi_recv(here.side.ep, in, sizeof in, nullptr, 0, in));
  tell(child.socket(), command);
  here.expect_end();
  EXPECT_EQ(hear(child.socket(), {&here.side}), 0u);
  tell(child.socket(), kLeave);
  child.join();
}

TEST(Process, ThePeerShutsDown) {
  NEEDS_PROCESSES();
  if (in_fresh_process()) expect_end_by(kShutdown);
}

TEST(Process, ThePeerCloses) {
  NEEDS_PROCESSES();
  if (in_fresh_process()) expect_end_by(kClose);
}

TEST(Process, ThePeerExitsWithoutClosingAnything) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  Child child([](int socket) {
    // _exit by the harness runs no destructor of this one.
    Side *side = new Side;
    const std::string address = hear_text(socket);
    side->open(options_info(side->options).get());
    side->make_endpoint(side->info.get());
    must(fi_connect(side->ep, address.data(), nullptr, 0));
    if (wait_event(side->eq, {side}).type != FI_CONNECTED)
      throw std::runtime_error("not connected");
    hear(socket, {side});
  });
  Here here;
  here.meet(child);
  char in[8];
  must(fi_recv(here.side.ep, in, sizeof in, nullptr, 0, in));
  tell(child.socket(), 0);
  here.expect_end();
  child.join();
}

TEST(Process, ThePeerIsKilled) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  NEEDS_WAITING_MESSAGES();
  Child child(other_process);
  Here here;
  here.meet(child);
  char in[8], out[8] = {};
  must(fi_recv(here.side.ep, in, sizeof in, nullptr, 0, in));
  // An operation that waits for the peer's answer fails as well.
  const iovec iov{out, sizeof out};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  must(fi_sendmsg(here.side.ep, &message, FI_DELIVERY_COMPLETE));
  here.side.progress();
  child.kill();
  here.expect_end();
  EXPECT_NE(here.wait(here.side.tx_cq).err, 0);
}

TEST(Process, ThePeerIsKilledInTheMiddleOfAWrite) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  Child child(other_process);
  Here here;
  here.meet(child);
  std::vector<uint8_t> memory(kSize);
  here.side.expose(memory.data(), memory.size(), FI_REMOTE_WRITE, 5);
  char in[8];
  must(fi_recv(here.side.ep, in, sizeof in, nullptr, 0, in));
  tell(child.socket(), kWriteForEver);
  EXPECT_EQ(hear(child.socket(), {&here.side}), 1u);
  tell(child.socket(), here.side.base_of(memory.data()));
  tell(child.socket(), fi_mr_key(here.side.regions.back()));
  ASSERT_TRUE(until([&] { return memory.back() != 0; }, {&here.side}));
  child.kill();
  here.expect_end();
  EXPECT_EQ(memory, pattern(kSize, 1));
}

TEST(Process, AListenerThatDiesRefusesWaitingPeers) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  Child child([](int socket) {
    Side side;
    side.open(options_info(side.options, nullptr, FI_SOURCE).get());
    Listener listener(side);
    tell_text(socket, listener.address());
    next_request(side, {&side});
    tell(socket, 0);
    hear(socket, {&side});
  });
  Side side;
  const std::string address = hear_text(child.socket());
  side.open(options_info(side.options).get());
  side.make_endpoint(side.info.get());
  must(fi_connect(side.ep, address.data(), nullptr, 0));
  // The request is there and not answered.
  std::optional<Event> event;
  EXPECT_EQ(hear(child.socket(), {&side}), 0u);
  EXPECT_FALSE(poll_eq(side.eq).has_value());
  child.kill();
  ASSERT_TRUE(until([&] { return (event = poll_eq(side.eq)).has_value(); }, {&side}));
  EXPECT_NE(event->err, 0);
}

TEST(Process, FiftyPeersKilledAtOnce) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  constexpr int kPeers = 50;
  Child child([](int socket) {
    Options options;
    const std::string address = hear_text(socket);
    Side side(options);
    side.open(options_info(options).get());
    std::vector<Handle<fid_ep>> endpoints(kPeers);
    for (Handle<fid_ep> &ep : endpoints) {
      must(fi_endpoint(side.domain, side.info.get(), ep.out(), nullptr));
      must(fi_ep_bind(ep, side.eq.fid(), 0));
      must(fi_ep_bind(ep, side.tx_cq.fid(), FI_TRANSMIT));
      must(fi_ep_bind(ep, side.rx_cq.fid(), FI_RECV));
      must(fi_connect(ep, address.data(), nullptr, 0));
    }
    for (int i = 0; i < kPeers; ++i)
      if (wait_event(side.eq, {&side}).type != FI_CONNECTED)
        throw std::runtime_error("not connected");
    tell(socket, 0);
    hear(socket, {&side});
  });
  Side side;
  side.open(options_info(side.options, nullptr, FI_SOURCE).get());
  Listener listener(side);
  tell_text(child.socket(), listener.address());
  std::vector<Handle<fid_ep>> endpoints;
  int connected = 0;
  char in[8];
  ASSERT_TRUE(until(
      [&] {
        while (const auto event = poll_eq(side.eq)) {
          EXPECT_EQ(event->err, 0);
          if (event->type == FI_CONNECTED) ++connected;
          if (event->type != FI_CONNREQ) continue;
          endpoints.emplace_back();
          must(fi_endpoint(side.domain, event->info.get(), endpoints.back().out(), nullptr));
          must(fi_ep_bind(endpoints.back(), side.eq.fid(), 0));
          must(fi_ep_bind(endpoints.back(), side.tx_cq.fid(), FI_TRANSMIT));
          must(fi_ep_bind(endpoints.back(), side.rx_cq.fid(), FI_RECV));
          must(fi_enable(endpoints.back()));
          must(fi_recv(endpoints.back(), in, sizeof in, nullptr, 0, nullptr));
          must(fi_accept(endpoints.back(), nullptr, 0));
        }
        return connected == kPeers;
      },
      {&side}));
  EXPECT_EQ(hear(child.socket(), {&side}), 0u);
  child.kill();
  int ended = 0, cancelled = 0;
  EXPECT_TRUE(until(
      [&] {
        while (const auto event = poll_eq(side.eq)) ended += event->type == FI_SHUTDOWN;
        while (const auto done = poll_cq(side.rx_cq)) cancelled += done->err == FI_ECANCELED;
        return ended == kPeers && cancelled == kPeers;
      },
      {&side}));
}

// A child that shuts down and closes what is its parent's: the connections go on, with what is
// under way.
TEST(Process, AForkedChildThatClosesAllDisturbsNothing) {
  if (!in_fresh_process()) return;
  Options options;
  options.eq = Options::eq_attr(FI_WAIT_UNSPEC);
  for (const auto exits : kForkedEnds) {
    Pair pair(options);
    std::vector<uint8_t> out = pattern(kForked, 3), in(kForked);
    must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, nullptr));
    must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr));
    in_forked_child(
        [&] {
          if (fi_shutdown(pair.a.ep, 0) != 0) _exit(1);
          const Pair closes = std::move(pair);
        },
        exits);
    EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
    EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
    EXPECT_EQ(in, out);
    must(fi_recv(pair.a.ep, in.data(), in.size(), nullptr, 0, nullptr));
    must(fi_send(pair.b.ep, out.data(), 8, nullptr, 0, nullptr));
    EXPECT_EQ(pair.wait(pair.a.rx_cq).len, 8u);
    EXPECT_EQ(pair.wait(pair.b.tx_cq).err, 0);
    // Its end comes, and the listener takes another connection.
    must(fi_shutdown(pair.a.ep, 0));
    EXPECT_EQ(pair.wait_event(pair.b.eq, FI_SHUTDOWN).fid, pair.b.ep.fid());
    Side other;
    other.open(options_info(other.options).get());
    other.make_endpoint(other.info.get());
    must(fi_connect(other.ep, pair.listener->address().data(), nullptr, 0));
    EXPECT_EQ(wait_event(pair.b.eq, {&pair.b, &other}).type, uint32_t(FI_CONNREQ));
  }
}

}  // namespace
}  // namespace weft::conformance
