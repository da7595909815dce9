// SPDX-License-Identifier: BSD-2-Clause
// Processes of several hosts: those of one test program, whose folders differ, and whose NICs have
// addresses of the loopback.
#include "plugins/cxi/soft/hosts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plugins/cxi/soft/devices.h"
#include "plugins/cxi/soft/network.h"
#include "plugins/cxi/soft/test_hosts.h"

namespace weft::cxi {
namespace {

TEST(Hosts, AProcessThatClosesIsGoneThoughAChildHasItsSockets) {
  const FarHost here, far;
  std::optional<Node> a(here.process(5));
  Node b = far.process(6, kVni, {.timeout_ms = 300});
  b.start(Op::kPut, here.at(5), pattern(0));
  EXPECT_EQ(b.result({&*a}), Rc::kEntryNotFound);
  TestProcess child([](const auto &ready) {
    ready();
    pause();
  });
  a.reset();
  b.start(Op::kPut, here.at(5), pattern(0));
  EXPECT_EQ(b.result(), Rc::kUndeliverable);
}

TEST(Hosts, WhatIsPutThereCanBeReadBack) {
  const FarHost here, far;
  Node a = here.process(5), b = far.process(6);
  std::vector<uint8_t> there(1'000'000);
  b.append(region(1, 0), there);
  for (const size_t length : {0, 1, 5000, 1'000'000}) {
    const std::vector<uint8_t> out = pattern(length);
    std::vector<uint8_t> got(length);
    a.start(Op::kPut, b.at(), out);
    ASSERT_EQ(a.result({&b}), Rc::kOk);
    a.start(Op::kGet, b.at(), got);
    ASSERT_EQ(a.result({&b}), Rc::kOk);
    EXPECT_EQ(got, out);
  }
  EXPECT_EQ(a.neighbours->connections(), 1u);
}

TEST(Hosts, BothMayCallAtTheSameTime) {
  const FarHost here, far;
  Node a = here.process(5), b = far.process(6);
  std::vector<uint8_t> in_a(300'000), in_b(300'000);
  a.append(region(1, 0), in_a);
  b.append(region(1, 0), in_b);
  const std::vector<uint8_t> out = pattern(300'000);
  for (int i = 0; i < 20; ++i) {
    a.start(Op::kPut, b.at(), out);
    b.start(Op::kPut, a.at(), out);
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(a.result({&b}), Rc::kOk);
    ASSERT_EQ(b.result({&a}), Rc::kOk);
    while (Process::take(*a.events) || Process::take(*b.events)) {
    }
  }
  EXPECT_EQ(in_a, out);
  EXPECT_EQ(in_b, out);
}

// Two that answer each other.
TEST(Hosts, AnswersGoAlongWithMessages) {
  const FarHost here, far;
  Node a = here.process(5);
  const std::vector<uint8_t> out = pattern(8);
  std::vector<uint8_t> in_a(8), in_b(8);
  a.append(region(1, 0), in_a);
  {
    Node b = far.process(6);
    b.append(region(1, 0), in_b);
    const auto sides = {std::pair(&a, &b), std::pair(&b, &a)};
    for (const auto &[from, to] : sides) {
      from->start(Op::kPut, to->at(), out);
      EXPECT_EQ(from->result({to}), Rc::kOk);
      EXPECT_TRUE(Process::take(*to->events));
    }
    const auto end = std::chrono::steady_clock::now() + kPatience;
    const auto next = [&](EventQueue &queue, std::initializer_list<Node *> nodes) {
      std::optional<Event> event;
      while (!(event = Process::take(queue)) && std::chrono::steady_clock::now() < end)
        for (Node *const node : nodes) node->neighbours->poll(Neighbours::Answers::kWait);
      return event ? event->rc : Rc::kNone;
    };
    for (int round = 0; round < 10; ++round) {
      for (const auto &[from, to] : sides) {
        from->start(Op::kPut, to->at(), out);
        from->neighbours->push();
        ASSERT_EQ(next(*to->events, {to}), Rc::kOk);
      }
      ASSERT_EQ(next(*a.acks, {&a, &b}), Rc::kOk) << "along with the message of b";
      ASSERT_EQ(next(*b.acks, {&a, &b}), Rc::kOk) << "by itself, with the next poll";
    }
    EXPECT_EQ(b.neighbours->taken_along(), 10u);
    EXPECT_EQ(a.neighbours->connections(), 2u);
    // What nobody goes along with leaves before a pause.
    a.start(Op::kPut, b.at(), out);
    a.neighbours->push();
    ASSERT_EQ(next(*b.events, {&b}), Rc::kOk);
    b.neighbours->settle();
    EXPECT_EQ(next(*a.acks, {&a}), Rc::kOk);
  }
  EXPECT_EQ(in_a, out);
  EXPECT_EQ(in_b, out);
  // Both connections are over.
  a.start(Op::kPut, far.at(6), out);
  EXPECT_NE(a.result(), Rc::kOk);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (a.neighbours->connections() != 0 && std::chrono::steady_clock::now() < end)
    a.neighbours->poll();
  EXPECT_EQ(a.neighbours->connections(), 0u);
}

// Threads that send and poll at the same time, to processes that come and go.
TEST(Hosts, ThreadsMayPollTogether) {
  const FarHost here, far;
  HostsOptions options;
  options.timeout_ms = 2000;  // ticks come often all the same, while it calls
  Node a = here.process(5, kVni, options);
  std::vector<uint8_t> there(1000);
  const std::vector<uint8_t> out = pattern(1000);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) a.neighbours->poll();
  });
  for (Pid pid = 1; pid < 5; ++pid) {
    Node b = far.process(pid);
    b.append(region(1, 0), there);
    std::atomic<bool> is_done{false};
    std::thread target([&] {
      while (!is_done) {
        b.neighbours->poll();
        while (Process::take(*b.events)) {
        }
      }
    });
    for (int i = 0; i < 100; ++i) {
      a.start(Op::kPut, far.at(pid), out);
      a.start(Op::kPut, far.at(Pid(pid + 100)), out);
      std::array<Rc, 2> got = {a.result(), a.result()};
      std::ranges::sort(got);
      EXPECT_EQ(got[0], Rc::kOk);
      EXPECT_EQ(got[1], Rc::kPtlteNotFound);
    }
    is_done = true;
    target.join();
  }
  is_over = true;
  other.join();
  EXPECT_EQ(there, out);
}

TEST(Hosts, ItSaysWhatIsMissing) {
  const FarHost here, far, nobody;
  Node a = here.process(5), b = far.process(6);
  const std::vector<uint8_t> out(1);
  a.start(Op::kPut, nobody.at(6), out);
  EXPECT_EQ(a.result(), Rc::kUndeliverable);
  a.start(Op::kPut, far.at(7), out);
  EXPECT_EQ(a.result({&b}), Rc::kPtlteNotFound);
  a.start(Op::kPut, far.at(6, 9), out);
  EXPECT_EQ(a.result({&b}), Rc::kPtlteNotFound) << "b itself says so";
  Node other = here.process(5, Vni{1});
  other.start(Op::kPut, b.at(), out);
  EXPECT_EQ(other.result({&b}), Rc::kVniNotFound);
}

TEST(Hosts, AnyProcessOfAHostKnowsTheOthers) {
  const FarHost here, far;
  std::vector<std::unique_ptr<TestProcess>> others;
  for (Pid pid = 0; pid < 6; ++pid)
    others.push_back(std::make_unique<TestProcess>([&](const auto &ready) {
      Node node = far.process(pid);
      std::vector<uint8_t> there(100);
      node.append(region(1, 0), there);
      ready();
      serve(*node.neighbours);
    }));
  Node a = here.process(5);
  const std::vector<uint8_t> out = pattern(100);
  for (Pid pid = 0; pid < 6; ++pid) {
    a.start(Op::kPut, far.at(pid), out);
    EXPECT_EQ(a.result(), Rc::kOk) << pid;
  }
  EXPECT_EQ(a.neighbours->connections(), 6u);
  // Each may go; who remains is found by new ones.
  for (Pid pid = 0; pid < 5; ++pid) {
    others[pid]->kill_it();
    Node b = here.process(kAnyPid);
    b.start(Op::kPut, far.at(5), out);
    EXPECT_EQ(b.result(), Rc::kOk) << pid;
    b.start(Op::kPut, far.at(pid), out);
    EXPECT_EQ(b.result(), Rc::kPtlteNotFound) << pid;
  }
}

TEST(Hosts, AProcessThatIsStoppedHidesNoOther) {
  const FarHost here, far;
  const auto body = [&](const auto &ready) {
    Node node = far.process(kAnyPid);
    std::vector<uint8_t> there(100);
    node.append(region(1, 0), there);
    ready();
    serve(*node.neighbours);
  };
  TestProcess stopped(body), second(body), third(body);
  ::kill(stopped.pid(), SIGSTOP);
  const std::vector<uint8_t> out = pattern(100);
  for (int i = 0; i < 8; ++i) {
    Node a = here.process(5);
    a.start(Op::kPut, far.at(1 + i % 2), out);
    EXPECT_EQ(a.result(), Rc::kOk) << i;
  }
}

// A message that waits at a lossless portal keeps its sender waiting, and that is no silence.
TEST(Hosts, AMessageMayWaitForLongerThanTheTimeout) {
  const FarHost here, far;
  const HostsOptions hasty{.timeout_ms = 100};
  Node a = here.process(5, kVni, hasty), b = far.process(6, kVni, hasty);
  const auto portal =
      must(b.lni->portal({.is_matching = true, .flow_control = true, .lossless = true}, *b.events));
  must(portal->map(*b.endpoint, 1));
  portal->set_state(PortalState::kEnabled, 0);
  b.events->ack(1);
  const std::vector<uint8_t> out = pattern(100);
  std::vector<uint8_t> there(100);
  a.start(Op::kPut, far.at(6, 1), out);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  while (std::chrono::steady_clock::now() < end || !b.neighbours->engine().has_waiting()) {
    a.neighbours->poll();
    b.neighbours->poll();
    ASSERT_FALSE(Process::take(*a.acks).has_value());
  }
  Entry entry = receive(1);
  entry.memory = b.everything;
  entry.start = reinterpret_cast<uintptr_t>(there.data());
  entry.length = there.size();
  portal->append(List::kPriority, entry);
  EXPECT_EQ(a.result({&b}), Rc::kOk);
  EXPECT_EQ(there, out);
}

TEST(Hosts, OneConnectionReachesAllOfAProcess) {
  const FarHost here, far;
  Node a = here.process(5), b = far.process(6);
  const auto second = must(b.lni->endpoint(kVni, 7)), third = must(b.lni->endpoint(kVni, 8));
  const std::vector<uint8_t> out(1);
  std::vector<uint8_t> there(1);
  b.append(region(1, 0), there);
  for (const Pid pid : {6, 7, 8, 6}) a.start(Op::kPut, far.at(pid), out);
  int good = 0;
  for (int i = 0; i < 4; ++i) good += a.result({&b}) == Rc::kOk ? 1 : 0;
  EXPECT_EQ(good, 2) << "the others have no portal";
  EXPECT_EQ(a.neighbours->connections(), 1u);
}

TEST(Hosts, AnEndpointThatMovesIsFoundAgain) {
  const FarHost here, far;
  Node a = here.process(5), first = far.process(1), second = far.process(2);
  const std::vector<uint8_t> out = pattern(10);
  for (Node *const node : {&first, &second, &first}) {
    node->endpoint = must(node->lni->endpoint(kVni, 9));
    must(node->inbox->map(*node->endpoint, 0));
    std::vector<uint8_t> there(10);
    node->append(region(1, 0), there);
    Rc rc = Rc::kNone;  // who has had it says so once
    for (int i = 0; i < 2 && rc != Rc::kOk; ++i) {
      a.start(Op::kPut, far.at(9), out);
      rc = a.result({&first, &second});
    }
    EXPECT_EQ(rc, Rc::kOk);
    EXPECT_EQ(there, out);
    node->inbox->unlink(List::kPriority, 1);
    node->endpoint.reset();
  }
}

TEST(Hosts, AKilledProcessFailsWhatIsUnderWayWithItAlone) {
  const FarHost here, far;
  Node a = here.process(5);
  TestProcess victim([&](const auto &ready) {
    Node node = far.process(6);
    ready();
    std::vector<uint8_t> there(1);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    node.append(region(1, 0), there);  // for one put; then it answers nothing
    while (!Process::take(*node.events) && std::chrono::steady_clock::now() < end)
      node.neighbours->poll();
    node.neighbours->poll();
    raise(SIGSTOP);
  });
  TestProcess other([&](const auto &ready) {
    Node node = far.process(7);
    std::vector<uint8_t> there(100);
    node.append(region(1, 0), there);
    ready();
    serve(*node.neighbours);
  });
  const std::vector<uint8_t> one = pattern(1), out = pattern(100);
  a.start(Op::kPut, far.at(6), one);
  EXPECT_EQ(a.result(), Rc::kOk);
  victim.wait_until_it_stops();  // else it may still read the next one
  a.start(Op::kPut, far.at(6), out);
  a.start(Op::kPut, far.at(7), out);
  EXPECT_EQ(a.result(), Rc::kOk) << "of the other one";
  victim.kill_it();
  EXPECT_EQ(a.result(), Rc::kUndeliverable);
  a.start(Op::kPut, far.at(6), out);
  EXPECT_EQ(a.result(), Rc::kPtlteNotFound);
  a.start(Op::kPut, far.at(7), out);
  EXPECT_EQ(a.result(), Rc::kOk);
}

TEST(Hosts, ANicOfThisHostNeedsNoNetwork) {
  const FarHost here;
  const Nid second = some_nid();
  Node a = here.process(5), b(here.folder.path, second, 6);  // b does not listen
  std::vector<uint8_t> there(10);
  b.append(region(1, 0), there);
  const std::vector<uint8_t> out = pattern(10);
  a.start(Op::kPut, b.at(), out);
  EXPECT_EQ(a.result({&b}), Rc::kOk);
  EXPECT_EQ(there, out);
}

TEST(Hosts, OnlyAnAddressOutsideOfTheLoopbackListens) {
  const auto devices = must(SoftDevices::make({"cxi0=127.0.0.1", "cxi1=10.1.2.3"}));
  EXPECT_EQ(devices->list()[0].network_address, 0u);
  EXPECT_EQ(devices->list()[1].network_address, 0x0a010203u);
  const auto usual = must(SoftDevices::make({}));
  for (const DeviceFacts &facts : usual->list()) EXPECT_EQ(facts.network_address, 0u);
  // And what has no address does not listen.
  const FarHost here, far;
  Node a = here.process(5), b(far.folder.path, far.nid, 6);
  a.start(Op::kPut, b.at(), pattern(0));
  EXPECT_EQ(a.result({&b}), Rc::kUndeliverable);
}

TEST(Hosts, AnAddressThatCannotBeHadIsRefusedInWords) {
  const TestFolder folder;
  const auto neighbours = must(Neighbours::open(folder.path, 1));
  const auto refused = neighbours->open_nic(0x20304, 0xc0020304);  // 192.2.3.4
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().text.find("192.2.3.4"), std::string::npos) << refused.error().text;
  EXPECT_NE(refused.error().text.find("FI_CXI_SOFT_DEVICES"), std::string::npos);
  const Nid nid = some_nid();
  const auto taken = must(listen_at(ip_of(nid), HostsOptions().port, false));
  const auto second = neighbours->open_nic(nid, ip_of(nid));
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().text.find("FI_CXI_SOFT_PORT"), std::string::npos);
}

}  // namespace
}  // namespace weft::cxi
