// SPDX-License-Identifier: BSD-2-Clause
// Processes of a host: those of one test program, and some that are killed.
#include "plugins/cxi/soft/neighbours.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "plugins/cxi/soft/test_node.h"
#include "plugins/cxi/soft/test_process.h"

namespace weft::cxi {
namespace {

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

// A connection that has ended wakes nobody, though a child of fork() has its socket.
TEST(Neighbours, AChildMayKeepAConnectionThatEnds) {
  const TestFolder folder;
  Node a(folder.path, 1, 5);
  TestProcess other([&](const auto &ready) {
    Node node(folder.path, 2, 6);
    ready();
    serve(*node.neighbours);
  });
  a.start(Op::kPut, {2, 6, 0}, pattern(0));
  EXPECT_EQ(a.result(), Rc::kEntryNotFound);
  TestProcess child([](const auto &ready) {
    ready();
    pause();
  });
  other.kill_it();
  a.start(Op::kPut, {2, 6, 0}, pattern(0));
  EXPECT_NE(a.result(), Rc::kOk);
  pollfd descriptor{a.neighbours->wait_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&descriptor, 1, 0), 0);
}

TEST(Neighbours, SocketsOfKilledProcessesGoWithTheNextOne) {
  const TestFolder folder;
  const auto files_of = [&](uint32_t process) {
    int count = 0;
    for (const auto &file : std::filesystem::directory_iterator(folder.path))
      count += file.path().filename().string().starts_with("cxi-" + std::to_string(process) + "-");
    return count;
  };
  const auto body = [&](const auto &ready) {
    Node node(folder.path, 2, kAnyPid);
    ready();
    pause();
  };
  TestProcess killed(body), living(body);
  const uint32_t gone = uint32_t(killed.pid());
  killed.kill_it();
  EXPECT_EQ(files_of(gone), 1);
  Node a(folder.path, 1, 5);
  EXPECT_EQ(files_of(gone), 0);
  EXPECT_EQ(files_of(uint32_t(living.pid())), 1);
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
        add.initiator = match_id(node.endpoint->pid(), 1);
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
