// SPDX-License-Identifier: BSD-2-Clause
// Processes of a host: those of one test program, and some that are killed.
#include "plugins/cxi/soft/neighbours.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "plugins/cxi/soft/test_nic.h"
#include "plugins/cxi/soft/test_process.h"

namespace weft::cxi {
namespace {

// What a process opens of one NIC.
struct Node {
  Node(const std::string &folder, Nid nid, Pid pid, Vni vni = kVni)
      : neighbours(must(Neighbours::open(folder, nid * 1000 + pid))),
        lni(must(neighbours->open_nic(nid))),
        endpoint(must(lni->endpoint(vni, pid))),
        events(must(lni->event_queue({.places = 256}))),
        acks(must(lni->event_queue({.places = 256}))),
        queue(must(lni->transmit_queue(64, {.vni = vni}))),
        everything(must(lni->map(0, UINT64_MAX, Lni::kRead | Lni::kWrite))),
        inbox(must(lni->portal({.is_matching = true}, *events))),
        nid(nid) {
    must(inbox->map(*endpoint, 0));
    inbox->set_state(PortalState::kEnabled, 0);
    events->ack(1);
  }
  Address at() const { return {nid, endpoint->pid(), 0}; }
  void append(Entry entry, std::vector<uint8_t> &memory) {
    entry.memory = everything;
    entry.start = reinterpret_cast<uintptr_t>(memory.data());
    entry.length = memory.size();
    inbox->append(List::kPriority, entry);
  }
  void start(Op op, const Address &to, const std::vector<uint8_t> &memory) {
    Transfer t;
    t.op = op;
    t.to = to;
    t.memory = everything;
    t.local = reinterpret_cast<uintptr_t>(memory.data());
    t.length = uint32_t(memory.size());
    t.initiator = match_id(endpoint->pid(), nid);
    t.eq = acks.get();
    ASSERT_EQ(queue->post(t), 0);
    queue->flush();
  }
  // The next acknowledgement, while these make progress.
  Rc result(std::initializer_list<Node *> others = {}) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < end) {
      neighbours->poll();
      for (Node *const other : others) other->neighbours->poll();
      if (const auto event = Process::take(*acks)) return event->rc;
    }
    return Rc::kNone;
  }

  std::unique_ptr<Neighbours> neighbours;
  std::unique_ptr<Lni> lni;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<EventQueue> events, acks;
  std::unique_ptr<TransmitQueue> queue;
  Memory everything;
  std::unique_ptr<Portal> inbox;
  const Nid nid;
};

std::vector<uint8_t> pattern(size_t length) {
  std::vector<uint8_t> bytes(length);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  return bytes;
}

// Answers for ever.
[[noreturn]] void serve(Neighbours &neighbours) {
  while (true) {
    pollfd descriptor{neighbours.wait_fd(), POLLIN, 0};
    ::poll(&descriptor, 1, -1);
    neighbours.poll();
  }
}

TEST(Neighbours, WhatIsPutThereCanBeReadBack) {
  const TestFolder folder;
  Node a(folder.path, 1, 5), b(folder.path, 2, 6);
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

TEST(Neighbours, ItSaysWhatIsMissing) {
  const TestFolder folder;
  Node a(folder.path, 1, 5), b(folder.path, 2, 6);
  const std::vector<uint8_t> out(1);
  a.start(Op::kPut, {3, 6, 0}, out);
  EXPECT_EQ(a.result(), Rc::kUndeliverable);
  a.start(Op::kPut, {2, 7, 0}, out);
  EXPECT_EQ(a.result(), Rc::kPtlteNotFound);
  Node other(folder.path, 1, 5, 1);  // the other VNI of the usual service
  other.start(Op::kPut, b.at(), out);
  EXPECT_EQ(other.result({&b}), Rc::kVniNotFound);
  a.start(Op::kPut, {2, 6, 9}, out);
  EXPECT_EQ(a.result({&b}), Rc::kPtlteNotFound) << "b itself says so";
}

TEST(Neighbours, AnEndpointThatMovesIsFoundAgain) {
  const TestFolder folder;
  Node a(folder.path, 1, 5);
  const std::vector<uint8_t> out = pattern(10);
  for (int i = 0; i < 3; ++i) {
    Node b(folder.path, 2, 6);
    std::vector<uint8_t> there(10);
    b.append(region(1, 0), there);
    a.start(Op::kPut, b.at(), out);
    ASSERT_EQ(a.result({&b}), Rc::kOk) << i;
    EXPECT_EQ(there, out);
    b.inbox.reset();
  }
}

TEST(Neighbours, ANicIsSharedByItsProcesses) {
  const TestFolder folder;
  Node a(folder.path, 1, 5);
  EXPECT_THROW(Node(folder.path, 1, 5), std::runtime_error);
  Node b(folder.path, 1, 6);
  std::vector<uint8_t> there(10);
  b.append(region(1, 0), there);
  a.start(Op::kPut, b.at(), pattern(0));
  EXPECT_EQ(a.result({&b}), Rc::kOk);
  EXPECT_EQ(a.neighbours->pool(1).used(Resource::kListEntry), 1u)
      << "b's entry is in one pool with a's";
}

TEST(Neighbours, EachNicHasAPoolOfItsOwn) {
  const TestFolder folder;
  Node a(folder.path, 1, 5), b(folder.path, 2, 6);
  auto of_two = must(a.neighbours->open_nic(2)), of_one = must(b.neighbours->open_nic(1));
  std::vector<uint8_t> there(10);
  a.append(region(1, 0), there);
  b.append(region(1, 0), there);
  b.append(region(2, 0), there);
  for (Node *const node : {&a, &b}) {
    EXPECT_EQ(node->neighbours->pool(1).used(Resource::kListEntry), 1u);
    EXPECT_EQ(node->neighbours->pool(2).used(Resource::kListEntry), 2u);
  }
}

TEST(Neighbours, AKilledProcessFailsWhatIsUnderWayWithItAlone) {
  const TestFolder folder;
  Node a(folder.path, 1, 5);
  TestProcess child([&](const auto &ready) {
    Node victim(folder.path, 2, 6);
    ready();
    pause();  // it answers nothing
    serve(*victim.neighbours);
  });
  TestProcess other([&](const auto &ready) {
    Node node(folder.path, 2, 7);
    std::vector<uint8_t> there(100);
    node.append(region(1, 0), there);
    ready();
    serve(*node.neighbours);
  });
  const std::vector<uint8_t> out = pattern(100);
  a.start(Op::kPut, {2, 7, 0}, out);
  EXPECT_EQ(a.result(), Rc::kOk);
  a.start(Op::kPut, {2, 6, 0}, out);
  a.neighbours->poll();
  EXPECT_FALSE(Process::take(*a.acks).has_value());
  child.kill_it();
  EXPECT_EQ(a.result(), Rc::kUndeliverable);
  a.start(Op::kPut, {2, 6, 0}, out);
  EXPECT_EQ(a.result(), Rc::kPtlteNotFound);
  a.start(Op::kPut, {2, 7, 0}, out);
  EXPECT_EQ(a.result(), Rc::kOk);
}

TEST(Neighbours, ManyProcessesReachOne) {
  const TestFolder folder;
  Node hub(folder.path, 1, 5);
  constexpr int kOthers = 8, kEach = 200;
  std::vector<uint8_t> word(8);
  hub.append(region(1, 0), word);
  std::vector<std::unique_ptr<TestProcess>> others;
  for (int i = 0; i < kOthers; ++i)
    others.push_back(std::make_unique<TestProcess>([&](const auto &ready) {
      Node node(folder.path, 1, kAnyPid);
      ready();
      const uint64_t one = 1;
      for (int k = 0; k < kEach; ++k) {
        Transfer add;
        add.op = Op::kAtomic;
        add.to = hub.at();
        add.inline_bytes = &one;
        add.length = 8;
        add.eq = node.acks.get();
        if (node.queue->post(add) != 0) _exit(3);
        node.queue->flush();
        if (node.result() != Rc::kOk) _exit(4);
      }
      pause();
    }));
  uint64_t sum = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (sum != uint64_t{kOthers} * kEach && std::chrono::steady_clock::now() < end) {
    hub.neighbours->poll();
    while (Process::take(*hub.events)) {
    }
    memcpy(&sum, word.data(), sizeof sum);
  }
  EXPECT_EQ(sum, uint64_t{kOthers} * kEach);
}

// Threads that send and poll at the same time.
TEST(Neighbours, ThreadsMayPollTogether) {
  const TestFolder folder;
  Node a(folder.path, 1, 5), b(folder.path, 2, 6);
  std::vector<uint8_t> there(1000);
  Entry entry = region(1, 0);
  entry.comm_disable = true;
  b.append(entry, there);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (Node *const node : {&a, &b, &b})
    threads.emplace_back([&over, node] {
      while (!over) node->neighbours->poll();
    });
  const std::vector<uint8_t> out = pattern(1000);
  for (int i = 0; i < 300; ++i) {
    a.start(Op::kPut, b.at(), out);
    ASSERT_EQ(a.result(), Rc::kOk);
  }
  over = true;
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(there, out);
}

TEST(Neighbours, ALongFolderIsRefusedInWords) {
  const std::string path = "/tmp/" + std::string(200, 'x');
  const auto refused = Neighbours::open(path, 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ENAMETOOLONG);
  EXPECT_NE(refused.error().text.find("WEFT_RUNTIME_DIR"), std::string::npos);
}

}  // namespace
}  // namespace weft::cxi
