// SPDX-License-Identifier: BSD-2-Clause
//
// These tests give the data check, the raw socket and the control connection wrong data, and check
// that they report it.

#include "bench.h"

#include <gtest/gtest.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "control.h"
#include "distance.h"
#include "patterns.h"
#include "raw.h"

namespace weft::bench {
namespace {

struct Pair {
  Fd client, server;
};

Pair connected() {
  Fd listener = listen("127.0.0.1", 0);
  Pair pair;
  pair.client = dial("127.0.0.1", local_port(listener.get()), 5);
  pair.server = accept_one(listener.get(), 5);
  return pair;
}

std::string failure_of(const std::function<void()> &run) {
  try {
    run();
  } catch (const Error &failure) {
    return failure.what();
  }
  return "no failure";
}

TEST(Pattern, SeesEveryWrongByteAndEveryWrongMessage) {
  for (size_t size : {1, 7, 8, 9, 64, 1000}) {
    std::vector<char> data(size);
    fill_pattern(data.data(), size, 5);
    EXPECT_EQ(check_pattern(data.data(), size, 5), size);
    EXPECT_NE(check_pattern(data.data(), size, 6), size) << size;
    for (size_t i = 0; i < size; ++i) {
      data[i] ^= 1;
      EXPECT_EQ(check_pattern(data.data(), size, 5), i);
      data[i] ^= 1;
    }
  }
}

TEST(Pattern, SeesAShiftedMessage) {
  std::vector<char> data(72);
  fill_pattern(data.data(), data.size(), 1);
  EXPECT_NE(check_pattern(data.data() + 8, 64, 1), 64u);
}

TEST(Arena, SlotsAreAlignedAndHaveRoomInFront) {
  Spec spec;
  spec.size = 100;
  spec.window = 5;
  Arena arena(spec);
  std::vector<char *> starts;
  for (uint64_t i = 0; i < 5; ++i) {
    starts.push_back(arena.tx(i).data);
    starts.push_back(arena.rx(i).data);
  }
  std::sort(starts.begin(), starts.end());
  EXPECT_GE(starts.front() - arena.base(), 64);
  for (size_t i = 0; i < starts.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(starts[i]) % 64, 0u);
    if (i > 0) {
      EXPECT_GE(starts[i] - starts[i - 1], 64 + 100);
    }
  }
  EXPECT_LE(starts.back() + 100, arena.base() + arena.length());
  EXPECT_TRUE(arena.fits(spec));
  spec.size = 101;
  EXPECT_FALSE(arena.fits(spec));
}

TEST(Samples, NearestRank) {
  Samples samples;
  for (uint64_t i = 100; i > 0; --i) samples.add(i);
  samples.sort();
  EXPECT_EQ(samples.percentile(0), 1u);
  EXPECT_EQ(samples.percentile(0.5), 50u);
  EXPECT_EQ(samples.percentile(0.99), 99u);
  EXPECT_EQ(samples.percentile(1), 100u);
  EXPECT_EQ(samples.total(), 5050);
  EXPECT_EQ(Samples().percentile(0.5), 0u);
}

TEST(Control, CarriesMessagesAndReportsErrorsAndTheEnd) {
  Pair pair = connected();
  Control client(std::move(pair.client));
  {
    Control server(std::move(pair.server));
    EXPECT_FALSE(client.readable());
    server.send({{"a", 1}});
    server.send({{"b", std::string(10000, 'x')}});
    EXPECT_EQ(client.receive(5).value("a", 0), 1);
    EXPECT_EQ(client.receive(5).value("b", "").size(), 10000u);
    client.check_peer();
    server.send({{"error", "out of cheese"}});
    EXPECT_NE(failure_of([&] { client.receive(5); }).find("out of cheese"), std::string::npos);
    server.send({{"error", "still out"}});
    EXPECT_TRUE(client.readable(5));
    EXPECT_NE(failure_of([&] { client.check_peer(); }).find("still out"), std::string::npos);
    EXPECT_THROW(client.receive(5), Error);
    EXPECT_NE(failure_of([&] { client.receive(0.01); }).find("no answer"), std::string::npos);
  }
  EXPECT_NE(failure_of([&] { client.receive(5); }).find("gone"), std::string::npos);
  EXPECT_NE(failure_of([&] { client.check_peer(); }).find("gone"), std::string::npos);
}

TEST(Control, RefusesWhatIsNotJson) {
  Pair pair = connected();
  Control client(std::move(pair.client));
  ASSERT_EQ(send(pair.server.get(), "hello\n", 6, 0), 6);
  EXPECT_NE(failure_of([&] { client.receive(5); }).find("no JSON"), std::string::npos);
  ASSERT_EQ(send(pair.server.get(), "{\"a\":", 5, 0), 5);
  pair.server.reset();
  EXPECT_NE(failure_of([&] { client.receive(5); }).find("middle"), std::string::npos);
}

TEST(Control, DialWithoutAListenerFails) {
  uint16_t port;
  {
    Fd listener = listen("127.0.0.1", 0);
    port = local_port(listener.get());
  }
  EXPECT_NE(failure_of([&] { dial("127.0.0.1", port, 5); }).find("refused"), std::string::npos);
  EXPECT_NE(failure_of([&] { dial("no-such-host.invalid", 1, 5); }).find("cannot resolve"),
            std::string::npos);
}

// Every pattern over the socket with each byte checked, both sides in this process.
class RawPattern : public testing::TestWithParam<std::tuple<Test, size_t, bool>> {};

TEST_P(RawPattern, DeliversEveryByte) {
  const auto [test, size, more] = GetParam();
  Spec spec;
  spec.test = test;
  spec.size = size;
  spec.window = is_latency(test) ? 1 : 6;
  spec.ack_every = is_latency(test) ? 1 : 3;
  spec.iterations = 6;
  spec.check = true;
  spec.more = more;
  Pair pair = connected();
  std::string server_failure;
  Watch client_watch(nullptr), server_watch(nullptr);
  client_watch.start("client", 60);
  server_watch.start("server", 60);
  RawTransport client(std::move(pair.client), &client_watch);
  RawTransport server(std::move(pair.server), &server_watch);
  Arena client_arena(spec), server_arena(spec);
  client.begin(client_arena, spec);
  server.begin(server_arena, spec);
  prepare(client, client_arena, spec, true);
  prepare(server, server_arena, spec, false);
  std::thread thread(
      [&] { server_failure = failure_of([&] { run_server(server, server_arena, spec); }); });
  Samples samples;
  EXPECT_EQ(failure_of([&] { run_client(client, client_arena, spec, &samples); }), "no failure");
  thread.join();
  EXPECT_EQ(server_failure, "no failure");
  EXPECT_EQ(samples.count(), spec.iterations);
  // begin() throws if bytes of the measurement are left over.
  client.begin(client_arena, spec);
  server.begin(server_arena, spec);
}

INSTANTIATE_TEST_SUITE_P(All, RawPattern,
                         testing::Combine(testing::Values(Test::kLat, Test::kBw, Test::kRate,
                                                          Test::kWriteLat, Test::kWriteBw,
                                                          Test::kReadLat, Test::kReadBw),
                                          testing::Values<size_t>(1, 64, 8192, 8193, 300000),
                                          testing::Bool()));

TEST(Raw, ReportsAClosedPeerAndAStreamOutOfStep) {
  Spec spec;
  spec.size = 64;
  for (bench::Test test : {bench::Test::kLat, bench::Test::kBw}) {
    spec.test = test;
    Arena arena(spec);
    Watch watch(nullptr);
    watch.start("test", 60);
    const auto wait = [&](RawTransport &t) {
      return failure_of([&] { spin_until(t, [&] { return t.received() > 0; }); });
    };
    {
      Pair pair = connected();
      RawTransport transport(std::move(pair.client), &watch);
      transport.begin(arena, spec);
      transport.post_receive(arena.rx(0), spec.size);
      ASSERT_EQ(send(pair.server.get(), "0123456789abcdef0123", 20, 0), 20);
      EXPECT_NE(wait(transport).find("out of step"), std::string::npos);
    }
    {
      Pair pair = connected();
      RawTransport transport(std::move(pair.client), &watch);
      transport.begin(arena, spec);
      transport.post_receive(arena.rx(0), spec.size);
      pair.server.reset();
      EXPECT_NE(wait(transport).find("closed"), std::string::npos);
    }
  }
}

TEST(SharedLine, MeasuresARoundTripAndEndsWithoutAnswer) {
  SharedLine asks;
  SharedLine answers(Fd(dup(asks.fd())));
  for (int i = 0; i < 2; ++i) {
    std::jthread other([&] { answers.answer(60); });
    const double ns = asks.ask(60);
    other.join();
    EXPECT_GT(ns, 1);  // between no two threads is it shorter
    EXPECT_LT(ns, 1e9);
  }
  EXPECT_THROW(answers.answer(0.01), Error);
  EXPECT_THROW(asks.ask(0.01), Error);
}

TEST(Watch, EndsASpinAtItsDeadline) {
  Spec spec;
  spec.size = 64;
  Arena arena(spec);
  Pair pair = connected();
  Watch watch(nullptr);
  watch.start("waiting for Godot", 0.05);
  RawTransport transport(std::move(pair.client), &watch);
  transport.begin(arena, spec);
  transport.post_receive(arena.rx(0), spec.size);
  EXPECT_NE(failure_of([&] {
              spin_until(transport, [&] { return transport.received() > 0; });
            }).find("waiting for Godot did not finish"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::bench
