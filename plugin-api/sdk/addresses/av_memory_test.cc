// SPDX-License-Identifier: BSD-2-Clause
// How much memory an address vector takes, and what it does when there is none.
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_addresses.h"
#include "plugin-api/sdk/testing/test_av.h"
#include "plugin-api/sdk/testing/test_rounds.h"

// Counts the bytes that the program has allocated, as the allocator rounds them, with its own word
// per block. Makes one allocation fail.
namespace {
std::atomic<size_t> held{0}, most_held{0};
std::atomic<long> allocations_left{-1};  // negative: no limit

size_t weight(void *memory) {
  return malloc_usable_size(memory) + sizeof(size_t);
}
}  // namespace

// All forms: a sanitizer replaces each of them.
void *operator new(size_t size, const std::nothrow_t &) noexcept {
  if (allocations_left >= 0 && allocations_left-- == 0) return nullptr;
  void *memory = std::malloc(size);
  if (memory == nullptr) return nullptr;
  const size_t now = held += weight(memory);
  if (now > most_held) most_held = now;
  return memory;
}
void *operator new(size_t size) {
  if (void *memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void *operator new[](size_t size) {
  return operator new(size);
}
void *operator new[](size_t size, const std::nothrow_t &) noexcept {
  return operator new(size, std::nothrow);
}
void operator delete(void *memory) noexcept {
  if (memory != nullptr) held -= weight(memory);
  std::free(memory);
}
void operator delete(void *memory, size_t) noexcept {
  operator delete(memory);
}
void operator delete[](void *memory) noexcept {
  operator delete(memory);
}
void operator delete[](void *memory, size_t) noexcept {
  operator delete(memory);
}

namespace weft::sdk {
namespace {

template <class Address>
void expect_compact(uint32_t format, Address (*make)(uint32_t), double per_peer) {
  constexpr uint32_t kPeers = rounds(1'000'000);
  fi_av_attr attr{};
  attr.flags = FI_AV_USER_ID;
  Vector v(format, attr);
  std::vector<Address> peers;
  peers.reserve(kPeers);
  for (uint32_t i = 0; i < kPeers; ++i) peers.push_back(make(i + 1));
  std::vector<fi_addr_t> out(kPeers);

  size_t before = held;
  most_held = before;
  ASSERT_EQ(fi_av_insert(v.c, peers.data(), kPeers, out.data(), 0, nullptr), int(kPeers));
  EXPECT_LE(double(held - before) / kPeers, per_peer);
  EXPECT_LE(double(most_held - before) / kPeers, per_peer) << "peak during the insertion";
  testing::Test::RecordProperty("bytes", std::to_string(double(held - before) / kPeers));

  const size_t inserted = held;
  most_held = inserted;
  EXPECT_EQ(v.find(*read_address(format, &peers[4711], sizeof(Address))), 4711u);
  EXPECT_LE(double(most_held - inserted) / kPeers, 16) << "reverse look-up";
  testing::Test::RecordProperty("find", std::to_string(double(held - inserted) / kPeers));

  const size_t indexed = held;
  for (uint32_t i = 0; i < kPeers; ++i) ASSERT_EQ(fi_av_set_user_id(v.c, i, i, 0), 0);
  EXPECT_LE(double(held - indexed) / kPeers, 8.2) << "identifiers";

  ASSERT_EQ(fi_av_remove(v.c, out.data(), kPeers, 0), 0);
  EXPECT_LE(double(held - before) / kPeers, 0.5) << "all of it is given back";
}

TEST(AvMemory, OfAMillionIpv4Peers) {
  expect_compact<sockaddr_in>(
      FI_SOCKADDR_IN, [](uint32_t n) { return v4(n); }, 8);
}

TEST(AvMemory, OfAMillionIpv6Peers) {
  expect_compact<sockaddr_in6>(
      FI_SOCKADDR_IN6, [](uint32_t n) { return v6(n, 2); }, 20);
}

// Of the other formats: the size of the format, and a byte for what the vector needs itself.
template <size_t kSize>
using NativeName = std::array<unsigned char, kSize>;

TEST(AvMemory, OfAMillionDatagramPeersOfVerbs) {
  expect_compact<NativeName<32>>(
      FI_ADDR_IB_UD, [](uint32_t n) { return numbered_name<32>(FI_ADDR_IB_UD, n); }, 33);
}

TEST(AvMemory, OfAMillionPeersOfInfiniband) {
  expect_compact<NativeName<48>>(
      FI_SOCKADDR_IB, [](uint32_t n) { return numbered_name<48>(FI_SOCKADDR_IB, n); }, 49);
}

TEST(AvMemory, OfAMillionPeersOfCxi) {
  expect_compact<NativeName<8>>(
      FI_ADDR_CXI, [](uint32_t n) { return numbered_name<8>(FI_ADDR_CXI, n); }, 11.1);
}

// The lanes of a scalable endpoint: a peer that was only inserted costs nothing more.
TEST(AvMemory, OfViews) {
  constexpr uint32_t kPeers = 100'000, kViews = 8;
  Vector v;
  for (uint32_t i = 0; i < kPeers; ++i) v.insert(v4(i + 1));
  v.find(v4(1));
  TestDomain lanes[kViews];
  const size_t before = held;
  std::vector<Av *> views;
  for (TestDomain &lane : lanes) views.push_back(*Av::open_view(lane.context, *v.av));
  for (uint32_t i = 0; i < kViews; ++i) {
    Guard guard(lanes[i].engine.lock());
    EXPECT_EQ(views[i]->peer_of(kPeers - 1 - i), kPeers - 1 - i);
  }
  EXPECT_LE(double(held - before) / kPeers / kViews, 0.25);
  for (Av *view : views) view->close_view();
}

TEST(AvMemory, OfTheReverseTableWhileItGrows) {
  constexpr uint32_t kPeers = 300'000;
  Vector v;
  EXPECT_EQ(v.find(v4(1)), Av::kNone);
  const size_t before = held;
  for (uint32_t i = 0; i < kPeers; ++i) {
    const sockaddr_in address = v4(i + 1);
    most_held = held.load();
    ASSERT_EQ(fi_av_insert(v.c, &address, 1, nullptr, 0, nullptr), 1);
    if (i > 10'000) {
      ASSERT_LE(double(most_held - before) / (i + 1), 8 + 16) << i;
    }
  }
  for (uint32_t i = 0; i < kPeers; ++i) ASSERT_EQ(v.find(v4(i + 1)), i);
}

TEST(AvMemory, RunningOutLosesNoEntry) {
  for (long step = 0; step < 40; ++step) {
    Vector v(FI_SOCKADDR);
    for (uint32_t i = 0; i < 120; ++i) v.insert(v4(i + 1));
    EXPECT_EQ(v.find(v4(1)), 0u);
    std::vector<sockaddr_in6> peers;
    for (uint32_t i = 0; i < 200; ++i) peers.push_back(v6(i + 1, 1 + i % 5));
    std::vector<fi_addr_t> out(200, 5);
    std::vector<int> errors(200, -1);
    allocations_left = step;
    const int done = fi_av_insert(v.c, peers.data(), 200, out.data(), FI_SYNC_ERR | FI_AV_USER_ID,
                                  errors.data());
    const bool failed = allocations_left < 0;
    allocations_left = -1;
    if (done < 0) {  // for an error's text, or the log
      EXPECT_EQ(done, -FI_ENOMEM);
      continue;
    }
    EXPECT_EQ(done != 200, failed) << step;
    EXPECT_EQ(v.av->count(), 120u + size_t(done));
    Guard guard(v.domain.engine.lock());
    for (uint32_t i = 0; i < 200; ++i) {
      if (errors[i] == 0) {
        EXPECT_EQ(v.av->address(uint32_t(out[i])), SockAddr(peers[i]));
        EXPECT_EQ(v.av->find(SockAddr(peers[i])), out[i]);
        EXPECT_EQ(v.av->reported(uint32_t(out[i])), 5u);
      } else {
        EXPECT_EQ(errors[i], FI_ENOMEM);
        EXPECT_EQ(out[i], kNotAvailable);
        EXPECT_EQ(v.av->find(SockAddr(peers[i])), Av::kNone);
      }
    }
  }
}

TEST(AvMemory, EachProcessThatSharesAVectorKeepsACompactCopy) {
  Name name;
  constexpr uint32_t kPeers = 100'000;
  Vector a(FI_SOCKADDR_IN, named(name.text)), b(FI_SOCKADDR_IN, named(name.text));
  std::vector<sockaddr_in> peers;
  for (uint32_t i = 0; i < kPeers; ++i) peers.push_back(v4(i + 1));
  const size_t before = held;
  ASSERT_EQ(fi_av_insert(a.c, peers.data(), kPeers, nullptr, 0, nullptr), int(kPeers));
  EXPECT_EQ(b.lookup(kPeers - 1), a.lookup(kPeers - 1));
  EXPECT_EQ(b.av->count(), kPeers);
  EXPECT_LE(double(held - before) / kPeers, 2 * 8);
}

}  // namespace
}  // namespace weft::sdk
