// SPDX-License-Identifier: BSD-2-Clause
// Hosts that do not keep to it: what they say in others' names, and how much they get.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cxi/soft/hosts.h"
#include "plugins/cxi/soft/network.h"
#include "plugins/cxi/soft/room.h"
#include "plugins/cxi/soft/test_hosts.h"

namespace weft::cxi {
namespace {

TEST(Strangers, AFrameReachesOnlyWhatItNames) {
  const FarHost here, far;
  Node b = far.process(6), other = far.process(6, Vni{1});
  const auto second_nic = must(b.neighbours->open_nic(1));
  const auto inside = must(second_nic->endpoint(kVni, 3));
  std::vector<uint8_t> memory(8);
  b.append(region(1, 0), memory);
  Stranger first(here, far, HostsOptions().port);
  first.call(far.at(6));
  const auto where = first.answer({&b, &other});  // either may have heard
  ASSERT_TRUE(where.has_value());
  const uint16_t port = where->port;
  ASSERT_NE(port, 0);
  const auto reply_to = [&](const Packet &packet) -> std::optional<Rc> {
    Stranger stranger(here, far, port);
    stranger.call(far.at(6));
    if (!stranger.answer({&b})) return std::nullopt;
    stranger.say(frame_bytes(packet));
    const std::vector<uint8_t> bytes = stranger.hear(kHeadSize, {&b});
    if (bytes.size() != kHeadSize) return std::nullopt;
    return parse_head(std::span<const uint8_t, kHeadSize>(bytes))->reply.rc;
  };
  EXPECT_EQ(reply_to(packet_to(here, far.at(6))), Rc::kOk);
  EXPECT_EQ(reply_to(packet_to(here, far.at(6), kVni + 2)), Rc::kVniNotFound);
  EXPECT_EQ(reply_to(packet_to(here, far.at(6), Vni{1})), Rc::kVniNotFound)
      << "that endpoint is another process's";
  EXPECT_EQ(reply_to(packet_to(here, far.at(7))), Rc::kPtlteNotFound);
  EXPECT_EQ(reply_to(packet_to(here, {1, 3, 0})), std::nullopt) << "a NIC of the host itself";
  Packet other_source = packet_to(here, far.at(6)), other_name = other_source, rank = other_source;
  other_source.source = far.nid;
  EXPECT_EQ(reply_to(other_source), std::nullopt) << "from a NIC that it is not";
  for (const uint32_t name : {far.nid, here.nid ^ 1, here.nid | 1u << kNidBits}) {
    other_name.initiator = match_id(5, name);
    EXPECT_EQ(reply_to(other_name), std::nullopt) << "in the name of another NIC";
  }
  rank.initiator = match_id(5, kLogical | 3);
  EXPECT_EQ(reply_to(rank), Rc::kOk) << "a rank says nothing of a NIC";
}

// Neither another host, nor another process of the host that was asked.
TEST(Strangers, AnAnswerCountsOnlyFromWhomWasAsked) {
  const FarHost here, far, other;
  Node a = here.process(5), b = far.process(6);
  const auto portal =
      must(b.lni->portal({.is_matching = true, .flow_control = true, .lossless = true}, *b.events));
  must(portal->map(*b.endpoint, 1));
  portal->set_state(PortalState::kEnabled, 0);
  b.events->ack(1);
  const std::vector<uint8_t> out = pattern(1);
  a.start(Op::kPut, far.at(6, 1), out);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!b.neighbours->engine().has_waiting() && std::chrono::steady_clock::now() < end) {
    a.neighbours->poll();
    b.neighbours->poll();
  }
  ASSERT_TRUE(b.neighbours->engine().has_waiting());
  for (const FarHost *const from : {&other, &far}) {
    Stranger stranger(*from, here, HostsOptions().port);
    stranger.call(here.at(5));
    ASSERT_TRUE(stranger.answer({&a, &b}).has_value());
    for (uint64_t slot = 0; slot < 8; ++slot) {
      std::array<uint8_t, kHeadSize> head;
      write_head(Reply{.token = uint64_t{1} << 24 | slot}, false, head);
      stranger.say(head);
    }
    EXPECT_TRUE(stranger.hear(1, {&a, &b}).empty()) << "it is over";
  }
  EXPECT_FALSE(Process::take(*a.acks).has_value());
  std::vector<uint8_t> there(1);
  Entry entry = receive(1);
  entry.memory = b.everything;
  entry.start = reinterpret_cast<uintptr_t>(there.data());
  entry.length = there.size();
  portal->append(List::kPriority, entry);
  EXPECT_EQ(a.result({&b}), Rc::kOk);
  EXPECT_EQ(there, out);
}

TEST(Hosts, StrangersGetLittle) {
  const FarHost here, far;
  HostsOptions options;
  options.timeout_ms = 1000;
  Node a = here.process(5), b = far.process(6, kVni, options);
  std::vector<uint8_t> memory(8);
  b.append(region(1, 0), memory);
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(std::make_unique<Stranger>(here, far, options.port));
    if (i % 3 == 0) crowd.back()->say(std::array<uint8_t, 5>{'w', 'e', 'f', 't', 'c'});
    if (i % 3 == 1) crowd.back()->say(std::vector<uint8_t>(i, uint8_t(i)));
    b.neighbours->poll();
    EXPECT_LE(b.neighbours->visitors(), Hosts::kMaxVisitors);
  }
  const std::vector<uint8_t> out = pattern(8);
  a.start(Op::kPut, b.at(), out);
  EXPECT_EQ(a.result({&b}), Rc::kOk);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (b.neighbours->visitors() != 0 && std::chrono::steady_clock::now() < end)
    b.neighbours->poll();
  EXPECT_EQ(b.neighbours->visitors(), 0u) << "their time is over";
  EXPECT_EQ(b.neighbours->connections(), 1u);
}

TEST(Strangers, AnotherVersionIsToldOurs) {
  const FarHost here, far;
  Node b = far.process(6);
  std::array<uint8_t, kHelloSize> bytes;
  write_hello({.vni = kVni, .to = far.at(6)}, bytes);
  ++bytes[8];
  Stranger stranger(here, far, HostsOptions().port);
  stranger.say(bytes);
  const auto answer = stranger.answer({&b});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->kind, Hello::Kind::kRefused);
  Stranger other(here, far, HostsOptions().port);
  bytes[0] ^= 1;
  other.say(bytes);
  EXPECT_TRUE(other.hear(1, {&b}).empty()) << "no NIC gets no answer";
}

// What another host may answer: nothing; another version; garbage; that it is always elsewhere.
TEST(Strangers, AStrangeHostIsGivenUp) {
  enum class Mood { kMute, kVersion, kGarbage, kElsewhere, kHangsUp };
  for (const Mood mood :
       {Mood::kMute, Mood::kVersion, Mood::kGarbage, Mood::kElsewhere, Mood::kHangsUp}) {
    const FarHost here, far;
    const auto listener = must(listen_at(ip_of(far.nid), HostsOptions().port, false));
    std::string said;
    HostsOptions options;
    options.timeout_ms = 500;
    options.say = [&](const std::string &text) { said = text; };
    Node a = here.process(5, kVni, options);
    a.start(Op::kPut, far.at(6), pattern(0));
    std::vector<sdk::UniqueFd> accepted;
    std::optional<Event> event;
    const auto begin = std::chrono::steady_clock::now();
    while (!event && std::chrono::steady_clock::now() < begin + kPatience) {
      a.neighbours->poll();
      event = Process::take(*a.acks);
      sdk::UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd.get() < 0 || mood == Mood::kHangsUp) continue;
      std::array<uint8_t, kHelloSize> bytes{};
      write_hello({.kind = Hello::Kind::kElsewhere, .port = HostsOptions().port}, bytes);
      if (mood == Mood::kVersion) ++bytes[8];
      if (mood == Mood::kGarbage) bytes.fill(0x5a);
      if (mood != Mood::kMute) ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      accepted.push_back(std::move(fd));
    }
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->rc, Rc::kUndeliverable);
    EXPECT_LT(accepted.size(), 20u);
    EXPECT_EQ(said.find("another version") != std::string::npos, mood == Mood::kVersion) << said;
    EXPECT_EQ(a.neighbours->connections(), 0u);
  }
}

// ---- how much they get ----

// `ulimit -n`, of which shares are made.
class FileLimit {
 public:
  explicit FileLimit(rlim_t files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit less{files, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &less), 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  static size_t open() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return size_t(std::distance(begin(all), end(all)));
  }

 private:
  rlimit before_{};
};

// A message of which `to` has to read the rest, at that PID of the sender's NIC.
std::array<uint8_t, kHeadSize> long_message(const FarHost &from, const Address &to, Pid pid) {
  Packet packet = packet_to(from, to);
  packet.op = Op::kRendezvousPut;
  packet.length = 100;
  packet.initiator = match_id(pid, from.nid);
  return frame_bytes(packet);
}

template <class F>
bool until(F condition, std::initializer_list<Node *> nodes) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (Node *const node : nodes) node->neighbours->poll();
  }
  return true;
}

// Hosts that take calls and say nothing, and have messages read at many PIDs.
TEST(Strangers, MakeItCallFewAtATime) {
  struct Case {
    size_t hosts, pids, most;
  };
  for (const auto &[hosts, pids, most] : {Case{1, 40, 16}, Case{3, 20, 32}}) {
    const FileLimit limit(256);
    const FarHost here, far;
    const HostsOptions hasty{.timeout_ms = 300};
    Node a = here.process(5, kVni, hasty), b = far.process(6);
    std::vector<uint8_t> memory(100), there(8);
    a.append(region(1, 0), memory);
    b.append(region(1, 0), there);
    std::vector<std::unique_ptr<FarHost>> silent;
    std::vector<sdk::UniqueFd> doors;
    std::vector<Stranger> strangers;
    for (size_t i = 0; i < hosts; ++i) {
      silent.push_back(std::make_unique<FarHost>());
      doors.push_back(must(listen_at(ip_of(silent[i]->nid), hasty.port, false)));
      strangers.emplace_back(*silent[i], here, hasty.port);
      strangers[i].call(here.at(5));
      ASSERT_TRUE(strangers[i].answer({&a}).has_value());
    }
    const size_t before = FileLimit::open();
    for (size_t i = 0; i < hosts; ++i)
      for (Pid pid = 0; pid < pids; ++pid)
        strangers[i].say(long_message(*silent[i], here.at(5), pid));
    size_t called = 0, ended = 0;
    a.start(Op::kPut, far.at(6), pattern(8));
    EXPECT_EQ(a.result({&b}), Rc::kOk) << "what it says by itself waits for nobody";
    EXPECT_TRUE(until(
        [&] {
          called = std::max(called, FileLimit::open() - before);
          while (const auto event = Process::take(*a.events)) {
            if (event->type != EventType::kReply) continue;
            EXPECT_EQ(event->rc, Rc::kUndeliverable);
            ++ended;
          }
          return ended == hosts * pids;
        },
        {&a, &b}));
    EXPECT_GE(called, most) << "at the same time";
    EXPECT_LE(called, most + 4) << "with those of b, and of this look";
  }
}

// More processes of a host than may be called at a time: those that are done make room.
TEST(Strangers, AreAllAnsweredInTheEnd) {
  const FileLimit limit(256);
  const FarHost here, far;
  Node a = here.process(5);
  std::vector<uint8_t> memory(100);
  a.append(region(1, 0), memory);
  std::vector<std::unique_ptr<Node>> theirs;
  Stranger stranger(far, here, HostsOptions().port);
  stranger.call(here.at(5));
  ASSERT_TRUE(stranger.answer({&a}).has_value());
  for (Pid pid = 0; pid < 24; ++pid) {
    theirs.push_back(std::make_unique<Node>(far.process(pid)));
    stranger.say(long_message(far, here.at(5), pid));
  }
  size_t answered = 0;
  EXPECT_TRUE(until(
      [&] {
        for (const auto &node : theirs) node->neighbours->poll();
        while (const auto event = Process::take(*a.events)) {
          if (event->type != EventType::kReply) continue;
          EXPECT_EQ(event->rc, Rc::kPtlteNotFound) << "it has no portal for reads";
          ++answered;
        }
        return answered == theirs.size();
      },
      {&a}));
  EXPECT_LE(a.neighbours->connections(), 17u);
}

// Connected, and silent.
TestProcess crowd_of(const FarHost &from, const FarHost &to, size_t count) {
  return TestProcess([&, count](const auto &ready) {
    std::vector<Stranger> all;
    for (size_t i = 0; i < count; ++i) {
      all.emplace_back(from, to, HostsOptions().port);
      all.back().call(to.at(5));
    }
    ready();
    pause();
  });
}

TEST(Strangers, ThatAreSilentMakeRoomForOthers) {
  const FarHost here, silent, second, honest, friendly;
  const HostsOptions hasty{.timeout_ms = 1000};
  Node a = here.process(5, kVni, hasty);
  std::vector<uint8_t> there(8), theirs(8);
  a.append(region(1, 0), there);
  const FileLimit limit(128);
  // One host may have 24 connections, all strangers 48.
  TestProcess crowd = crowd_of(silent, here, 50);
  EXPECT_TRUE(until([&] { return a.neighbours->connections() == 24; }, {&a}));
  Node first = honest.process(6);
  first.start(Op::kPut, here.at(5), pattern(8));
  EXPECT_EQ(first.result({&a}), Rc::kOk) << "another host has a share of its own";
  TestProcess others = crowd_of(second, here, 50);
  EXPECT_TRUE(until([&] { return a.neighbours->connections() == 48; }, {&a}));
  for (Pid pid = 7; pid < 10; ++pid) {
    Node next = honest.process(pid);
    next.start(Op::kPut, here.at(5), pattern(8));
    EXPECT_EQ(next.result({&a, &first}), Rc::kOk) << "who is silent makes room";
    EXPECT_LE(a.neighbours->connections(), 49u);
  }
  // A host that this process calls by itself needs nobody's room.
  Node known = friendly.process(6);
  known.append(region(1, 0), theirs);
  a.start(Op::kPut, friendly.at(6), pattern(8));
  EXPECT_EQ(a.result({&known}), Rc::kOk);
  known.start(Op::kPut, here.at(5), pattern(8));
  EXPECT_EQ(known.result({&a}), Rc::kOk);
  first.start(Op::kPut, here.at(5), pattern(8));
  EXPECT_EQ(first.result({&a}), Rc::kOk) << "and who speaks stays";
}

// They say nothing, and are as many as may be heard at a time.
TEST(Strangers, KeepNoOtherFromSayingWhomItWants) {
  const FarHost here, silent, honest;
  Node a = here.process(5);
  Stranger slow(honest, here, HostsOptions().port);
  ASSERT_TRUE(until([&] { return a.neighbours->visitors() == 1; }, {&a}));
  std::vector<Stranger> crowd;
  for (size_t i = 0; i < Hosts::kMaxVisitors + 20; ++i) {
    crowd.emplace_back(silent, here, HostsOptions().port);
    a.neighbours->poll();
  }
  ASSERT_TRUE(until([&] { return a.neighbours->visitors() == Hosts::kMaxVisitors; }, {&a}));
  slow.call(here.at(5));
  const auto answer = slow.answer({&a});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->kind, Hello::Kind::kWelcome);
}

// It is not read any more, and others are.
TEST(Strangers, HaveFewBytesWaiting) {
  const FarHost here, greedy, honest;
  Node a = here.process(5), b = honest.process(6);
  const auto portal =
      must(a.lni->portal({.is_matching = true, .flow_control = true, .lossless = true}, *a.events));
  must(portal->map(*a.endpoint, 1));
  portal->set_state(PortalState::kEnabled, 0);
  a.events->ack(1);
  std::vector<uint8_t> there(8);
  a.append(region(1, 0), there);
  {
    Stranger stranger(greedy, here, HostsOptions().port);
    stranger.call(here.at(5));
    ASSERT_TRUE(stranger.answer({&a}).has_value());
    Packet packet = packet_to(greedy, here.at(5, 1));
    packet.length = 1u << 20;
    std::vector<uint8_t> bytes(kHeadSize + packet.length + 1, 1);
    std::ranges::copy(frame_bytes(packet), bytes.begin());
    size_t sent = 0;
    for (int idle = 0; idle < 100; ++idle) {
      a.neighbours->poll();
      const size_t now = stranger.try_to_say(std::span(bytes).subspan(sent % bytes.size()));
      sent += now;
      if (now != 0) idle = 0;
      ASSERT_LT(sent, size_t{64} << 20) << "its memory grows";
    }
    EXPECT_GT(sent, Room::kMuch);
    EXPECT_TRUE(a.neighbours->engine().has_waiting());
    b.start(Op::kPut, here.at(5), pattern(8));
    EXPECT_EQ(b.result({&a}), Rc::kOk);
    stranger.hang_up();
  }
  EXPECT_TRUE(until([&] { return !a.neighbours->engine().has_waiting(); }, {&a}))
      << "what waits ends with its sender";
}

TEST(Room, HasALimitForOneHostAndForAllStrangers) {
  Rooms all;
  Room first(all), own;
  EXPECT_TRUE(first.take(Room::kMuch));
  EXPECT_FALSE(first.is_short());
  EXPECT_TRUE(first.take(1));
  EXPECT_TRUE(first.is_short());
  EXPECT_FALSE(first.take(Room::kMost));
  first.give(1);
  EXPECT_TRUE(all.has_freed);
  std::vector<std::unique_ptr<Room>> others;
  do {
    others.push_back(std::make_unique<Room>(all));
  } while (others.size() < 100 && others.back()->take(Room::kMost));
  EXPECT_EQ(others.size(), 4u) << "with the first one they have all there is, but for 8 MiB";
  EXPECT_TRUE(own.take(Room::kMost));
  Room &known = *others.back();
  known.be_known();
  EXPECT_TRUE(known.take(Room::kMost));
  EXPECT_TRUE(first.take(Room::kMost - Room::kMuch));
  EXPECT_FALSE(first.take(1));
  known.give(Room::kMost);
  others[0]->be_known();
  EXPECT_EQ(all.strangers, 3 * Room::kMost);
}

}  // namespace
}  // namespace weft::cxi
