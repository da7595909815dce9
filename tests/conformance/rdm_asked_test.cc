// SPDX-License-Identifier: BSD-2-Clause
// What applications get only if they ask (fi_getinfo.3, fi_endpoint.3): larger queues hold as many
// operations as they say, larger injects keep no buffer, and each order that is granted is kept.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <span>
#include <thread>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// ---- sizes ----

// The largest of these sizes that the stack grants if it is asked for.
size_t largest(void (*set)(Options &, size_t), std::initializer_list<size_t> sizes) {
  size_t best = 0;
  for (const size_t size : sizes) {
    Options options;
    set(options, size);
    if (find_info(options)) best = std::max(best, size);
  }
  return best;
}

TEST(Asked, AQueueHoldsAsManySendsAsGranted) {
  covers("sizes by hints");
  const size_t size = largest([](Options &o, size_t n) { o.tx_size = n; }, {1024, 4096, 65536});
  ASSERT_GE(size, 4096u);
  Options options;
  options.tx_size = size;
  options.rx_size = largest([](Options &o, size_t n) { o.rx_size = n; }, {1024, 8192, 65536});
  Net net(2, options);
  ASSERT_GE(net[0].info->tx_attr->size, size);
  // Without progress none of them completes, and all have a place in the queue.
  char word = 'x';
  size_t sent = 0;
  ssize_t rc = 0;
  for (; sent < size && rc == 0; ++sent)
    rc = fi_tsend(net[0].ep, &word, 1, nullptr, net.at(0, 1), 1, &word);
  EXPECT_EQ(rc, 0) << "send " << sent << " of " << size;
  std::vector<char> in(sent);
  for (char &c : in)
    net.post([&] { return fi_trecv(net[1].ep, &c, 1, nullptr, FI_ADDR_UNSPEC, 1, 0, &c); });
  for (size_t i = 0; i < sent; ++i) {
    const Completion done = net.wait(net[1].rx_cq);
    ASSERT_EQ(done.err, 0);
    ASSERT_EQ(done.context, &in[i]);
  }
  for (size_t i = 0; i < sent; ++i) ASSERT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_TRUE(std::ranges::all_of(in, [](char c) { return c == 'x'; }));
}

TEST(Asked, AQueueHoldsAsManyReceivesAsGranted) {
  covers("sizes by hints");
  const size_t size = largest([](Options &o, size_t n) { o.rx_size = n; }, {1024, 8192, 65536});
  ASSERT_GE(size, 8192u);
  Options options;
  options.rx_size = size;
  std::vector<uint32_t> in(size);
  Net net(2, options);
  ASSERT_GE(net[1].info->rx_attr->size, size);
  for (uint32_t &word : in)
    ASSERT_EQ(fi_recv(net[1].ep, &word, sizeof word, nullptr, FI_ADDR_UNSPEC, &word), 0)
        << &word - in.data();
  constexpr size_t kSome = 3000;
  for (uint32_t i = 0; i < kSome; ++i)
    net.post([&] { return fi_inject(net[0].ep, &i, sizeof i, net.at(0, 1)); });
  for (size_t i = 0; i < kSome; ++i) ASSERT_EQ(net.wait(net[1].rx_cq).context, &in[i]);
  for (uint32_t i = 0; i < kSome; ++i) ASSERT_EQ(in[i], i);
}

class Inject : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Inject, ::testing::Values(128, 256, 1024, 1472, 4096, 16384));

// The memory is the caller's again when the call returns, also while nothing can leave: the
// messages to a peer that is not there yet wait.
TEST_P(Inject, LeavesTheBufferToTheCaller) {
  covers("sizes by hints");
  const size_t size = GetParam();
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA;
  options.inject_size = size;
  if (!find_info(options)) GTEST_SKIP() << stack() << " does not offer to inject " << size;
  constexpr unsigned kMessages = 20;
  // Each write has a place of its own: writes have no order.
  std::vector<uint8_t> memory(kMessages * size), out(size);
  Net net(2, options, [](Node &node) { node.count(FI_SEND | FI_WRITE); });
  EXPECT_GE(net[0].info->tx_attr->inject_size, size);
  fid_ep *ep = net[0].ep;
  fid_cntr *sent = net[0].counters[0];
  fid_mr *mr = net[1].expose(memory.data(), memory.size(), FI_REMOTE_WRITE, 7);
  const uint64_t at = net[1].base_of(memory.data());
  const fi_addr_t to = net.at(0, 1);
  EXPECT_EQ(fi_inject(ep, out.data(), size_t(1) << 40, to), -FI_EMSGSIZE);
  const auto send = [&](unsigned i) {
    out = pattern(size, i);
    net.post([&] {
      switch (i % 4) {
        case 0:
          return fi_inject(ep, out.data(), size, to);
        case 1:
          return fi_injectdata(ep, out.data(), size, i, to);
        case 2:
          return fi_tinject(ep, out.data(), size, to, i);
        default:
          return fi_inject_write(ep, out.data(), size, to, at + i * size, fi_mr_key(mr));
      }
    });
    std::ranges::fill(out, uint8_t(0xee));
  };
  // The receives come first or last. In both cases the bytes at the time of the call are sent.
  for (const bool early : {false, true}) {
    std::vector<std::vector<uint8_t>> in(kMessages, std::vector<uint8_t>(size));
    std::ranges::fill(memory, uint8_t(0));
    const auto receive = [&] {
      for (unsigned i = 0; i < kMessages; ++i) {
        if (i % 4 == 3) continue;
        must(i % 4 == 2
                 ? fi_trecv(net[1].ep, in[i].data(), size, nullptr, FI_ADDR_UNSPEC, i, 0, &in[i])
                 : fi_recv(net[1].ep, in[i].data(), size, nullptr, FI_ADDR_UNSPEC, &in[i]));
      }
    };
    if (early) receive();
    const uint64_t before = fi_cntr_read(sent);
    for (unsigned i = 0; i < kMessages; ++i) send(i);
    if (!early) receive();
    for (unsigned i = 0; i < kMessages; ++i) {
      if (i % 4 == 3) continue;
      const Completion done = net.wait(net[1].rx_cq);
      EXPECT_EQ(done.err, 0);
      EXPECT_EQ(done.len, size);
    }
    net.wait_count(sent, before + kMessages);
    for (unsigned i = 0; i < kMessages; ++i) {
      const std::vector<uint8_t> sent_bytes = pattern(size, i);
      if (i % 4 != 3) {
        EXPECT_EQ(in[i], sent_bytes) << i;
        continue;
      }
      EXPECT_TRUE(net.until([&] {
        return std::ranges::equal(sent_bytes, std::span(memory).subspan(i * size, size));
      })) << i;
    }
    EXPECT_FALSE(poll_cq(net[0].tx_cq)) << "injects tell nothing";
  }
}

// ---- persistent memory ----

}  // namespace
}  // namespace weft::conformance::rdm

namespace {

// What was written to the medium since it was last asked: with msync, which plugins find here.
std::mutex synced_mutex;
std::vector<std::pair<uintptr_t, uintptr_t>> synced;

bool was_synced(const void *at, size_t length) {
  std::lock_guard guard(synced_mutex);
  const auto begin = reinterpret_cast<uintptr_t>(at);
  return std::ranges::any_of(
      synced, [&](const auto &s) { return s.first <= begin && begin + length <= s.second; });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int msync(void *at, size_t length, int flags) {
  const int rc = int(syscall(SYS_msync, at, length, flags));
  if (rc == 0 && flags & MS_SYNC) {
    std::lock_guard guard(synced_mutex);
    const auto begin = reinterpret_cast<uintptr_t>(at);
    synced.emplace_back(begin, begin + length);
  }
  return rc;
}

namespace weft::conformance::rdm {
namespace {

// A file of `size` bytes, mapped.
class MappedFile {
 public:
  explicit MappedFile(size_t size) : size_(size) {
    char path[] = "/tmp/weft-pmem-XXXXXX";
    file_ = mkstemp(path);
    EXPECT_GE(file_, 0);
    unlink(path);
    EXPECT_EQ(ftruncate(file_, off_t(size)), 0);
    memory_ =
        static_cast<uint8_t *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~MappedFile() {
    munmap(memory_, size_);
    close(file_);
  }
  uint8_t *memory() const { return memory_; }
  std::vector<uint8_t> bytes(size_t offset, size_t size) const {
    std::vector<uint8_t> out(size);
    EXPECT_EQ(pread(file_, out.data(), size, off_t(offset)), ssize_t(size));
    return out;
  }

 private:
  const size_t size_;
  int file_;
  uint8_t *memory_;
};

// Committed bytes are in the file, on its medium, before the initiator gets its completion.
TEST(Asked, ACommittedWriteIsInTheFile) {
  constexpr uint64_t kCaps = FI_MSG | FI_RMA | FI_RMA_PMEM;
  covers("FI_RMA_PMEM,FI_COMMIT_COMPLETE");
  Options options;
  options.caps = kCaps;
  options.tx_op_flags = FI_COMMIT_COMPLETE;
  if (!find_info(options)) GTEST_SKIP() << "no FI_COMMIT_COMPLETE with FI_RMA_PMEM";
  constexpr size_t kSize = 100'000;
  const MappedFile file(kSize);
  uint8_t *const memory = file.memory();
  Net net(2, options);
  fid_mr *mr = net[1].expose(memory, kSize, FI_REMOTE_WRITE, 3, FI_RMA_PMEM);
  for (const bool by_call : {true, false}) {
    for (const size_t size : {size_t(1), size_t(5000), kSize - 7}) {
      const std::vector<uint8_t> out = pattern(size, unsigned(size) + by_call);
      const iovec iov{const_cast<uint8_t *>(out.data()), size};
      const fi_rma_iov to{net[1].base_of(memory) + 7, size, fi_mr_key(mr)};
      const fi_msg_rma msg{.msg_iov = &iov,
                           .iov_count = 1,
                           .addr = net.at(0, 1),
                           .rma_iov = &to,
                           .rma_iov_count = 1,
                           .context = &net};
      {
        std::lock_guard guard(synced_mutex);
        synced.clear();
      }
      net.post([&] {
        return by_call ? fi_writemsg(net[0].ep, &msg, FI_COMMIT_COMPLETE | FI_COMPLETION)
                       : fi_write(net[0].ep, out.data(), size, nullptr, msg.addr, to.addr, to.key,
                                  &net);
      });
      const Completion done = net.wait(net[0].tx_cq);
      EXPECT_EQ(done.err, 0);
      EXPECT_EQ(done.context, &net);
      EXPECT_TRUE(was_synced(memory + 7, size)) << size << " bytes are not on the medium yet";
      EXPECT_EQ(file.bytes(7, size), out) << "at its completion";
    }
  }
}

TEST(Asked, ACommittedAtomicIsInTheFile) {
  covers("FI_COMMIT_COMPLETE");
  Options options;
  options.caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_PMEM;
  options.tx_op_flags = FI_COMMIT_COMPLETE;
  if (!find_info(options)) GTEST_SKIP() << "no FI_COMMIT_COMPLETE with FI_ATOMIC";
  const MappedFile file(4096);
  Net net(2, options);
  fid_mr *mr = net[1].expose(file.memory(), 4096, FI_REMOTE_WRITE | FI_REMOTE_READ, 3, FI_RMA_PMEM);
  const uint64_t at = net[1].base_of(file.memory()) + 64;
  uint64_t value = 5, old = 1;
  for (const bool fetches : {false, true}) {
    {
      std::lock_guard guard(synced_mutex);
      synced.clear();
    }
    net.post([&] {
      return fetches ? fi_fetch_atomic(net[0].ep, &value, 1, nullptr, &old, nullptr, net.at(0, 1),
                                       at, fi_mr_key(mr), FI_UINT64, FI_SUM, nullptr)
                     : fi_atomic(net[0].ep, &value, 1, nullptr, net.at(0, 1), at, fi_mr_key(mr),
                                 FI_UINT64, FI_SUM, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_TRUE(was_synced(file.memory() + 64, 8));
    uint64_t now;
    std::memcpy(&now, file.bytes(64, 8).data(), 8);
    EXPECT_EQ(now, fetches ? 10u : 5u);
  }
  EXPECT_EQ(old, 5u);
}

// ---- orders ----

// An order of accesses holds for remote reads and writes, whatever it holds for besides.
std::string order_text(uint64_t order) {
  constexpr std::pair<uint64_t, uint64_t> kAliases[] = {{FI_ORDER_RAR, FI_ORDER_RMA_RAR},
                                                        {FI_ORDER_RAW, FI_ORDER_RMA_RAW},
                                                        {FI_ORDER_WAW, FI_ORDER_RMA_WAW},
                                                        {FI_ORDER_WAR, FI_ORDER_RMA_WAR}};
  for (const auto &[alias, one] : kAliases)
    if (order & alias) order = (order & ~alias) | one;
  return fi_tostr(&order, FI_TYPE_MSG_ORDER);
}

// Two applications that asked for one order; the second's memory is at `memory`.
class Order : public ::testing::Test {
 protected:
  static constexpr uint64_t kKey = 5;
  static constexpr size_t kLarge = 200'000;
  static constexpr size_t kSizes[] = {8, 4000, 70'000, kLarge};

  // False: not offered.
  bool open(uint64_t order, uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA) {
    Options options;
    options.caps = caps;
    options.order = order;
    covers(order_text(order));
    if (!find_info(options)) return false;
    net = std::make_unique<Net>(2, options);
    mr = (*net)[1].expose(memory.data(), memory.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, kKey);
    return true;
  }
  fid_ep *ep() { return (*net)[0].ep; }
  fi_addr_t to() { return net->at(0, 1); }
  uint64_t at(size_t offset = 0) { return (*net)[1].base_of(memory.data()) + offset; }
  void write(const std::vector<uint8_t> &from, size_t offset = 0) {
    net->post([&] {
      return fi_write(ep(), from.data(), from.size(), nullptr, to(), at(offset), fi_mr_key(mr),
                      nullptr);
    });
    ++posted;
  }
  void read(std::vector<uint8_t> &into, size_t offset = 0) {
    net->post([&] {
      return fi_read(ep(), into.data(), into.size(), nullptr, to(), at(offset), fi_mr_key(mr),
                     nullptr);
    });
    ++posted;
  }
  void atomic(const uint64_t &value, enum fi_op op = FI_ATOMIC_WRITE) {
    net->post([&] {
      return fi_atomic(ep(), &value, 1, nullptr, to(), at(), fi_mr_key(mr), FI_UINT64, op, nullptr);
    });
    ++posted;
  }
  void fetch(uint64_t &result) {
    net->post([&] {
      return fi_fetch_atomic(ep(), nullptr, 1, nullptr, &result, nullptr, to(), at(), fi_mr_key(mr),
                             FI_UINT64, FI_ATOMIC_READ, nullptr);
    });
    ++posted;
  }
  void finish() {
    for (; posted != 0; --posted) ASSERT_EQ(net->wait((*net)[0].tx_cq).err, 0);
  }
  // It becomes so, which may be later than the completion, and stays so.
  bool settles(const std::function<bool()> &predicate) {
    if (!net->until(predicate)) return false;
    net->settle();
    return predicate();
  }
  uint64_t word() const {
    uint64_t value;
    std::memcpy(&value, memory.data(), sizeof value);
    return value;
  }

  std::vector<uint8_t> memory = std::vector<uint8_t>(kLarge + 64);
  std::unique_ptr<Net> net;
  fid_mr *mr = nullptr;
  size_t posted = 0;
};

#define ORDER_OPEN(...) \
  if (!open(__VA_ARGS__)) GTEST_SKIP() << stack() << " does not offer it"

TEST_F(Order, ReadAfterWrite) {
  for (const uint64_t order : {FI_ORDER_RMA_RAW, FI_ORDER_RAW}) {
    ORDER_OPEN(order);
    for (unsigned round = 0; round < 40; ++round) {
      const size_t size = kSizes[round % 4];
      const std::vector<uint8_t> out = pattern(size, round);
      std::vector<uint8_t> in(size);
      write(out);
      read(in);
      finish();
      ASSERT_EQ(in, out) << round;
    }
  }
}

TEST_F(Order, WriteAfterWrite) {
  for (const uint64_t order : {FI_ORDER_RMA_WAW, FI_ORDER_WAW}) {
    ORDER_OPEN(order);
    for (unsigned round = 0; round < 40; ++round) {
      const std::vector<uint8_t> first = pattern(kSizes[round % 4], round),
                                 second = pattern(kSizes[(round + 2) % 4], round + 1000);
      write(first);
      write(second);
      finish();
      ASSERT_TRUE(settles([&] { return std::equal(second.begin(), second.end(), memory.begin()); }))
          << round;
    }
  }
}

// Memory that a peer reads meanwhile: a race that is meant, and is not ThreadSanitizer's business.
__attribute__((no_sanitize("thread"))) void count_up(volatile uint64_t &counter,
                                                     const std::atomic<bool> &over) {
  while (!over) counter = counter + 1;
}

// A peer reads a number that another thread counts up: the values never decrease.
TEST_F(Order, ReadAfterRead) {
  for (const uint64_t order : {FI_ORDER_RMA_RAR, FI_ORDER_RAR}) {
    ORDER_OPEN(order);
    constexpr size_t kReads = 8;
    std::atomic<bool> over{false};
    auto *counter = reinterpret_cast<volatile uint64_t *>(memory.data());
    std::thread counting([&] { count_up(*counter, over); });
    for (unsigned round = 0; round < 50; ++round) {
      std::vector<uint8_t> in[kReads];
      for (size_t i = 0; i < kReads; ++i) {
        in[i].resize(i % 2 == 0 ? kLarge : 8);
        read(in[i]);
      }
      finish();
      uint64_t last = 0;
      for (const auto &bytes : in) {
        uint64_t value;
        std::memcpy(&value, bytes.data(), sizeof value);
        EXPECT_GE(value, last);
        last = value;
      }
    }
    over = true;
    counting.join();
  }
}

TEST_F(Order, AtomicsAndAccesses) {
  constexpr uint64_t kCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
  ORDER_OPEN(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW, kCaps);
  for (unsigned round = 0; round < 100; ++round) {
    const uint64_t first = round * 2 + 1, second = round * 2 + 2;
    std::vector<uint8_t> bytes(kSizes[round % 4]), in(8);
    uint64_t fetched = 0;
    // A write is seen by the atomic behind it, an atomic by the read and the write behind it.
    std::memcpy(bytes.data(), &first, 8);
    write(bytes);
    fetch(fetched);
    atomic(second);
    read(in);
    finish();
    uint64_t seen;
    std::memcpy(&seen, in.data(), 8);
    ASSERT_EQ(fetched, first) << round;
    ASSERT_EQ(seen, second) << round;
    atomic(first, FI_SUM);
    write(bytes);
    finish();
    ASSERT_TRUE(settles([&] { return word() == first; })) << round << ": " << word();
    write(bytes);
    atomic(second);
    finish();
    ASSERT_TRUE(settles([&] { return word() == second; })) << round << ": " << word();
  }
}

// When the bytes of a later write are there, an earlier message with a receive has arrived, and its
// completion can be read.
TEST_F(Order, AccessesBehindMessages) {
  for (const uint64_t caps :
       {uint64_t(FI_MSG | FI_TAGGED | FI_RMA), uint64_t(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)}) {
    if (caps & FI_ATOMIC && net != nullptr && !open(FI_ORDER_RAS | FI_ORDER_WAS, caps)) break;
    ORDER_OPEN(FI_ORDER_RAS | FI_ORDER_WAS, caps);
    for (unsigned round = 0; round < 40; ++round) {
      const size_t size = kSizes[round % 4];
      const std::vector<uint8_t> out = pattern(size, round), flag(8, uint8_t(round + 1));
      std::vector<uint8_t> in(size);
      must(fi_trecv((*net)[1].ep, memory.data() + 64, size, nullptr, FI_ADDR_UNSPEC, round, 0,
                    nullptr));
      net->post([&] { return fi_tsend(ep(), out.data(), size, nullptr, to(), round, nullptr); });
      ++posted;
      if (round % 2 == 0) {
        read(in, 64);
        finish();
        ASSERT_EQ(in, out) << round;
      } else {
        write(flag);
        ASSERT_TRUE(net->until([&] { return memory[0] == flag[0]; }));
        ASSERT_TRUE(std::equal(out.begin(), out.end(), memory.begin() + 64)) << round;
        finish();
      }
      ASSERT_EQ(net->wait((*net)[1].rx_cq).err, 0);
    }
    // A message without a receive must not stop what is behind it, if it can be saved.
    const std::vector<uint8_t> out = pattern(100, 9), flag(8, 77);
    std::vector<uint8_t> in(100);
    if (stack() == "tcp") {
      net->post([&] { return fi_tsend(ep(), out.data(), 100, nullptr, to(), 99, nullptr); });
      ++posted;
      write(flag);
      ASSERT_TRUE(net->until([&] { return memory[0] == 77; }));
      must(fi_trecv((*net)[1].ep, in.data(), 100, nullptr, FI_ADDR_UNSPEC, 99, 0, nullptr));
      finish();
      ASSERT_EQ(net->wait((*net)[1].rx_cq).err, 0);
      ASSERT_EQ(in, out);
    }
  }
}

// What a read returns is what was there before a later write.
TEST_F(Order, WriteAfterRead) {
  for (const uint64_t order : {FI_ORDER_RMA_WAR, FI_ORDER_WAR}) {
    ORDER_OPEN(order);
    EXPECT_NE((*net)[0].info->ep_attr->max_order_war_size, 0u);
    for (unsigned round = 0; round < 40; ++round) {
      const std::vector<uint8_t> before = pattern(kLarge, round),
                                 after = pattern(kLarge, round + 1);
      std::vector<uint8_t> in(kSizes[round % 4]);
      std::ranges::copy(before, memory.begin());
      read(in);
      write(after);
      finish();
      ASSERT_TRUE(std::ranges::equal(in, std::span(before).first(in.size()))) << round;
      ASSERT_TRUE(settles([&] { return std::equal(after.begin(), after.end(), memory.begin()); }));
    }
  }
}

// When a message arrives, what was read before it has been read.
TEST_F(Order, MessagesBehindReads) {
  ORDER_OPEN(FI_ORDER_SAR);
  for (unsigned round = 0; round < 40; ++round) {
    const std::vector<uint8_t> before = pattern(kLarge, round);
    std::vector<uint8_t> in(kSizes[(round + 3) % 4]);
    uint8_t note = 1, got = 0;
    std::ranges::copy(before, memory.begin());
    must(fi_recv((*net)[1].ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr));
    read(in);
    net->post([&] { return fi_send(ep(), &note, 1, nullptr, to(), nullptr); });
    ++posted;
    ASSERT_EQ(net->wait((*net)[1].rx_cq).err, 0);
    std::ranges::fill(memory, 0xdd);
    finish();
    ASSERT_TRUE(std::ranges::equal(in, std::span(before).first(in.size()))) << round;
  }
}

// Atomics behind atomics: each sees what those before it have done.
TEST_F(Order, AtomicsBehindAtomics) {
  for (const uint64_t order :
       {FI_ORDER_ATOMIC_RAR, FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW}) {
    ORDER_OPEN(order, FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
    for (unsigned round = 0; round < 20; ++round) {
      uint64_t values[4], seen[4] = {};
      for (uint64_t i = 0; i < 4; ++i) values[i] = round * 4 + i + 1;
      if (order == FI_ORDER_ATOMIC_RAR) {
        atomic(values[0]);
        finish();
        // Two readings that another endpoint's write comes between or not: never backwards.
        for (uint64_t &one : seen) fetch(one);
        std::memcpy(memory.data(), &values[1], 8);
        finish();
        for (size_t i = 1; i < 4; ++i) ASSERT_GE(seen[i], seen[i - 1]);
        continue;
      }
      for (size_t i = 0; i < 4; ++i) {
        atomic(values[i]);
        if (order != FI_ORDER_ATOMIC_WAW) fetch(seen[i]);
      }
      finish();
      ASSERT_TRUE(settles([&] { return word() == values[3]; })) << word();
      if (order == FI_ORDER_ATOMIC_WAW) continue;
      for (size_t i = 0; i < 4; ++i) {
        // Behind the write before it (RAW), and before the one that follows it (WAR).
        if (order == FI_ORDER_ATOMIC_RAW) {
          ASSERT_GE(seen[i], values[i]);
        } else if (order == FI_ORDER_ATOMIC_WAR) {
          ASSERT_LE(seen[i], values[i]);
        }
      }
    }
  }
}

TEST_F(Order, MessagesBehindWrites) {
  ORDER_OPEN(FI_ORDER_SAW | FI_ORDER_SAS);
  for (unsigned round = 0; round < 40; ++round) {
    const std::vector<uint8_t> out = pattern(kSizes[round % 4], round);
    uint8_t note = 1, got = 0;
    must(fi_recv((*net)[1].ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr));
    write(out);
    net->post([&] { return fi_send(ep(), &note, 1, nullptr, to(), nullptr); });
    ++posted;
    ASSERT_EQ(net->wait((*net)[1].rx_cq).err, 0);
    ASSERT_TRUE(std::equal(out.begin(), out.end(), memory.begin())) << round;
    finish();
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
