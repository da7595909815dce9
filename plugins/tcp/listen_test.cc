// SPDX-License-Identifier: BSD-2-Clause
// Passive endpoints with many strangers, applications that read events late, and connected
// endpoints beneath a layer whose peer is a stranger.
#include <unistd.h>
#include <weft/sdk/layers/carrier.h>

#include <chrono>
#include <cstring>
#include <optional>

#include "plugins/tcp/test_stranger.h"
#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

sockaddr_in address_of(const Listener &listener) {
  const std::string bytes = listener.address();
  sockaddr_in in{};
  std::memcpy(&in, bytes.data(), std::min(bytes.size(), sizeof in));
  return in;
}

// The application looks for events, but does not read them.
TEST(Listen, UnreadRequestsWaitInTheKernel) {
  if (!in_fresh_process()) return;
  limit_descriptors(256);
  Options options;
  options.eq = Options::eq_attr(FI_WAIT_FD);
  Side side(options);
  side.open(options_info(options).get());
  Listener listener(side);
  constexpr int kCount = 400;
  Crowd crowd(address_of(listener), kCount, [](int) { return std::string(); });
  fid *fids[] = {side.eq.fid()};
  const auto look = [&] { fi_trywait(side.fabric, fids, 1); };
  ASSERT_TRUE(until(
      [&] {
        look();
        return crowd.is_there();
      },
      {}));
  for (int i = 0; i < 100; ++i) look();
  EXPECT_LT(count_descriptors(), 200);
  // In the end the application reads and answers all of them.
  int requests = 0;
  EXPECT_TRUE(until(
      [&] {
        while (const auto event = poll_eq(side.eq)) {
          EXPECT_EQ(event->type, uint32_t(FI_CONNREQ)) << event->err;
          if (event->type != FI_CONNREQ) return false;
          ++requests;
          must(fi_reject(listener.pep, event->info->handle, nullptr, 0));
        }
        return requests == kCount;
      },
      {&side}))
      << requests;
}

// The time limit for connecting is the peer's. It does not run out while the application makes no
// progress.
TEST(Connect, AComputationMayTakeLongerThanTheTimeToConnect) {
  if (!in_fresh_process({"FI_TCP_CONNECT_TIMEOUT_MS=50"})) return;
  Side active, passive;
  for (Side *side : {&active, &passive}) side->open(options_info({}).get());
  Listener listener(passive);
  active.make_endpoint(active.info.get());
  must(fi_connect(active.ep, listener.address().data(), nullptr, 0));
  for (const Deadline computation(std::chrono::milliseconds(100)); !computation.passed();) {
  }
  const Event request = next_request(passive, {&active, &passive});
  passive.make_endpoint(request.info.get());
  must(fi_accept(passive.ep, nullptr, 0));
  EXPECT_EQ(wait_event(active.eq, {&active, &passive}).type, uint32_t(FI_CONNECTED));
}

// An endpoint may take a passive endpoint's address. The kernel remembers its connection for a
// while (TIME_WAIT), and the address is free all the same.
TEST(Connect, TheAddressIsFreeWhenTheConnectionHasEnded) {
  Side active, passive;
  for (Side *side : {&active, &passive}) side->open(options_info({}).get());
  Listener listener(passive);
  Handle<fid_pep> pep;
  must(fi_passive_ep(active.fabric, active.info.get(), pep.out(), nullptr));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  must(fi_setname(pep.fid(), &name, sizeof name));
  size_t size = sizeof name;
  must(fi_getname(pep.fid(), &name, &size));
  active.info->handle = pep.fid();
  active.make_endpoint(active.info.get());
  must(fi_connect(active.ep, listener.address().data(), nullptr, 0));
  const Event request = next_request(passive, {&active, &passive});
  passive.make_endpoint(request.info.get());
  must(fi_accept(passive.ep, nullptr, 0));
  for (Side *side : {&active, &passive})
    EXPECT_EQ(wait_event(side->eq, {&active, &passive}).type, uint32_t(FI_CONNECTED));
  active.ep.reset();
  EXPECT_EQ(wait_event(passive.eq, {&passive}).type, uint32_t(FI_SHUTDOWN));
  passive.ep.reset();
  active.info->handle = nullptr;
  must(fi_passive_ep(active.fabric, active.info.get(), pep.out(), nullptr));
  EXPECT_EQ(fi_setname(pep.fid(), &name, sizeof name), 0);
}

// ---- beneath a layer ----

struct Beneath {
  Beneath() {
    side.open(options_info({}).get());
    listener.emplace(side);
    peer.emplace(address_of(*listener), "");
    const Event request = next_request(side, {&side});
    side.before_enable = [](Side &opened) {
      void *ops = nullptr;
      must(fi_open_ops(opened.ep.fid(), WEFT_CARRIER_OPS, 0, &ops, nullptr));
      must(static_cast<weft_carrier_ops *>(ops)->identify(opened.ep, 1));
    };
    side.make_endpoint(request.info.get());
    must(fi_accept(side.ep, nullptr, 0));
    EXPECT_EQ(wait_event(side.eq, {&side}).type, uint32_t(FI_CONNECTED));
  }

  Side side;
  std::optional<Listener> listener;
  std::optional<Stranger> peer;
};

// The target of a refused access ends its half of the connection. A peer that does not notice holds
// no operation for ever.
TEST(Beneath, APeerThatIgnoresARefusalIsLeft) {
  if (!in_fresh_process({"FI_TCP_HANDSHAKE_TIMEOUT_MS=500"})) return;
  Beneath b;
  b.peer->bad_write();
  ASSERT_TRUE(until([&] { return !b.peer->drop(); }, {&b.side}));
  char bytes[8] = {};
  must(fi_send(b.side.ep, bytes, sizeof bytes, nullptr, 0, bytes));
  std::optional<Completion> sent;
  ASSERT_TRUE(until([&] { return (sent = poll(b.side.tx_cq)).has_value(); }, {}));
  EXPECT_EQ(sent->err, FI_ECONNRESET);
  EXPECT_EQ(wait_event(b.side.eq, {&b.side}).type, uint32_t(FI_SHUTDOWN));
}

// Writes that the peer has not acknowledged yet leave room for the answers that it asks for.
TEST(Beneath, WritesWithoutAnAnswerLeaveRoomForAnswers) {
  Beneath b;
  std::vector<uint8_t> memory = pattern(8, 1);
  fid_mr *const region = b.side.expose(memory.data(), memory.size(), FI_REMOTE_READ, 77);
  constexpr size_t kWrites = 70'000, kFrame = 16 + 24 + 8;
  size_t heard = 0, completed = 0;
  const auto hear = [&] {
    heard += b.peer->drop().value_or(0);
    while (const auto done = poll(b.side.tx_cq)) completed += done->err == 0;
  };
  for (size_t i = 0; i < kWrites; ++i) {
    ssize_t rc;
    while ((rc = fi_write(b.side.ep, memory.data(), 8, nullptr, 0, 0, 1, nullptr)) == -FI_EAGAIN)
      hear();
    must(rc);
  }
  ASSERT_TRUE(until(
      [&] {
        hear();
        return completed == kWrites;
      },
      {}));
  b.peer->read(0, fi_mr_key(region));
  constexpr size_t kAll = 32 + kWrites * kFrame + 16 + 8;  // with the accept, and the answer
  EXPECT_TRUE(until(
      [&] {
        hear();
        return heard == kAll;
      },
      {}))
      << heard << " of " << kAll;
}

}  // namespace
}  // namespace weft::conformance
