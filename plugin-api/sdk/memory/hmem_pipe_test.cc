// SPDX-License-Identifier: BSD-2-Clause
// HmemOutput and HmemInput on the double of CUDA's driver, which copies as late as it may.
#include <gtest/gtest.h>
#include <weft/sdk/memory/hmem_pipe.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "tests/hmem/device.h"

namespace weft::sdk {
namespace {

using hmem::DeviceMemory;

class HmemPipe : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hmem::have_double()) GTEST_SKIP() << "WEFT_TEST_CUDA names no double of libcuda";
    auto opened = Hmem::open({.cuda = std::getenv("WEFT_TEST_CUDA")});
    ASSERT_TRUE(opened) << opened.error().text;
    hmem_ = *opened;
  }
  void TearDown() override {
    if (hmem::have_double()) hmem::fail_no_more();
  }
  std::vector<uint8_t> noise(size_t size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t &byte : bytes) byte = uint8_t(random_());
    return bytes;
  }
  size_t below(size_t n) { return random_() % n; }

  std::shared_ptr<const Hmem> hmem_;
  std::mt19937 random_;
};

// A queue of vectors, of the host and of devices, as a stream sends it. It takes as many bytes at a
// time as it is told to.
class Queue {
 public:
  Queue(HmemOutput &output) : output_(output) {}
  ~Queue() { output_.forget(this); }

  void push_host(std::vector<uint8_t> bytes) {
    Item item{.size = bytes.size(), .expected = bytes};
    item.host = std::move(bytes);
    items_.push_back(std::move(item));
  }
  void push_device(const std::vector<uint8_t> &bytes, int device) {
    items_.push_back({.size = bytes.size(),
                      .expected = bytes,
                      .device = std::make_unique<DeviceMemory>(bytes, device)});
  }
  // What overtakes the others is the next that is sent, at the beginning of an item.
  void push_first(std::vector<uint8_t> bytes) {
    Item item{.size = bytes.size(), .expected = bytes};
    item.host = std::move(bytes);
    items_.insert(items_.begin() + ptrdiff_t(first_ + (offset_ != 0 ? 1 : 0)), std::move(item));
  }
  bool empty() const { return first_ == items_.size(); }
  // False: a device has failed. Checks the bytes, and that not more are held back than necessary.
  bool send(size_t room) {
    std::vector<iovec> iov;
    for (size_t i = first_; i < items_.size() && iov.size() < 8; ++i) {
      const size_t skip = i == first_ ? offset_ : 0;
      iov.push_back({items_[i].data() + skip, items_[i].size - skip});
    }
    size_t count = iov.size();
    if (!output_.stage(this, iov, count)) return false;
    EXPECT_GT(count, 0u);
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < count; ++i) {
      const auto *from = static_cast<const uint8_t *>(iov[i].iov_base);
      bytes.insert(bytes.end(), from, from + iov[i].iov_len);
    }
    const size_t sent = std::min(room, bytes.size());
    output_.on_sent({iov.data(), count}, sent);
    for (size_t done = 0; done != sent;) {
      Item &item = items_[first_];
      const size_t n = std::min(sent - done, item.size - offset_);
      EXPECT_EQ(std::memcmp(bytes.data() + done, item.expected.data() + offset_, n), 0);
      done += n;
      offset_ += n;
      if (offset_ != item.size) continue;
      // It belongs to its owner again, who may do anything with it.
      if (item.device) item.device->write(std::vector<uint8_t>(item.size, 0xdd));
      item.device.reset();
      ++first_;
      offset_ = 0;
    }
    return true;
  }

 private:
  struct Item {
    size_t size;
    std::vector<uint8_t> expected, host = {};
    std::unique_ptr<DeviceMemory> device = nullptr;
    uint8_t *data() { return device ? device->data() : host.data(); }
  };
  HmemOutput &output_;
  std::vector<Item> items_;
  size_t first_ = 0, offset_ = 0;
};

TEST_F(HmemPipe, StreamsOfAnyPiecesArriveAsTheyWere) {
  for (unsigned seed = 0; seed < rounds(30); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_.seed(seed);
    HmemOutput output(hmem_);
    auto queues = std::vector<std::unique_ptr<Queue>>();
    for (int i = 0; i < 2; ++i) {
      queues.push_back(std::make_unique<Queue>(output));
      for (size_t left = 1 + below(12); left != 0; --left) {
        const size_t size = 1 + below(below(4) == 0 ? 2 * HmemOutput::kPart : 5000);
        if (below(3) == 0)
          queues[size_t(i)]->push_host(noise(size));
        else
          queues[size_t(i)]->push_device(noise(size), int(below(2)));
      }
    }
    size_t turn = 0;
    for (int i = 0; i < 10000 && !(queues[0]->empty() && queues[1]->empty()); ++i) {
      if (below(5) == 0) turn = 1 - turn;
      if (queues[turn]->empty()) turn = 1 - turn;
      if (below(20) == 0) queues[turn]->push_first(noise(1 + below(50)));
      ASSERT_TRUE(
          queues[turn]->send(below(3) == 0 ? 1 + below(3000) : below(2 * HmemOutput::kPart)));
      if (below(200) == 0) queues[turn] = std::make_unique<Queue>(output);  // its peer is gone
    }
    EXPECT_TRUE(queues[0]->empty() && queues[1]->empty());
  }
}

// The next part is copied while this one is sent, and nothing is copied twice.
TEST_F(HmemPipe, EachByteIsCopiedOnce) {
  HmemOutput output(hmem_);
  Queue queue(output);
  queue.push_device(noise(HmemOutput::kFirst + 3 * HmemOutput::kPart + 5), 0);
  const uint64_t before = hmem::count("copies");
  ASSERT_TRUE(queue.send(100));
  EXPECT_EQ(hmem::count("copies") - before, 2u);
  while (!queue.empty()) ASSERT_TRUE(queue.send(100000));
  EXPECT_EQ(hmem::count("copies") - before, 5u);
}

TEST_F(HmemPipe, ShortPiecesAreCopiedTogether) {
  HmemOutput output(hmem_);
  Queue queue(output);
  for (int i = 0; i < 6; ++i) {
    queue.push_host(noise(20));
    queue.push_device(noise(1000), 0);
  }
  ASSERT_TRUE(queue.send(SIZE_MAX));  // the 8 vectors of a call
  ASSERT_TRUE(queue.send(SIZE_MAX));
  EXPECT_TRUE(queue.empty());
}

TEST_F(HmemPipe, ACopyThatFailsIsTold) {
  for (uint64_t good = 0; good < 5; ++good) {
    HmemOutput output(hmem_);
    Queue queue(output);
    queue.push_device(noise(HmemOutput::kFirst + 3 * HmemOutput::kPart + 5), 0);
    hmem::fail_after(good);
    bool failed = false;
    while (!queue.empty() && !failed) failed = !queue.send(SIZE_MAX);
    EXPECT_TRUE(failed) << good;
    hmem::fail_no_more();
    while (!queue.empty()) ASSERT_TRUE(queue.send(SIZE_MAX)) << "it could go on";
  }
}

TEST_F(HmemPipe, TheBuffersAreRegisteredOnceAndNoLonger) {
  const uint64_t before = hmem::count("registrations");
  {
    HmemOutput output(hmem_);
    EXPECT_EQ(hmem::count("registered"), 0u) << "no device has been met";
    Queue queue(output);
    for (int i = 0; i < 3; ++i) queue.push_device(noise(HmemOutput::kPart), 0);
    while (!queue.empty()) ASSERT_TRUE(queue.send(SIZE_MAX));
    EXPECT_EQ(hmem::count("registered"), 1u);
  }
  EXPECT_EQ(hmem::count("registered"), 0u);
  EXPECT_EQ(hmem::count("registrations") - before, 1u);
}

TEST_F(HmemPipe, WhatIsReceivedArrives) {
  HmemInput input(hmem_);
  const std::vector<uint8_t> bytes = noise(3 * HmemInput::kPart + 100001);
  DeviceMemory memory(bytes.size());
  const HmemPlace place = hmem_->find(memory.data(), memory.size());
  for (size_t done = 0; done != bytes.size();) {
    const size_t n = std::min(bytes.size() - done, HmemInput::kPart);
    std::memcpy(input.bytes(), bytes.data() + done, n);
    // A part may have the bytes of several places.
    const size_t half = n / 2;
    uint8_t *const at = input.bytes();
    ASSERT_TRUE(input.start(memory.data() + done, place, at, half));
    ASSERT_TRUE(input.start(memory.data() + done + half, place, at + half, n - half));
    done += n;
  }
  EXPECT_NE(memory.read(), bytes) << "the last copy need not be over";
  EXPECT_TRUE(input.finish());
  EXPECT_EQ(memory.read(), bytes);
  hmem::fail_after(0);
  EXPECT_FALSE(input.start(memory.data(), place, input.bytes(), 10));
  EXPECT_TRUE(input.finish()) << "nothing is under way";
}

}  // namespace
}  // namespace weft::sdk
