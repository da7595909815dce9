// SPDX-License-Identifier: BSD-2-Clause
// What an idle connection of rxm over queue pairs with shared receives costs: less than 4 KiB of
// memory that weft allocates. What the device keeps (the double's memory) is not counted: the
// manual page of rxm says how many entries a connection's queues have.
//
// It has an operator new of its own, which counts.
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "tests/verbs/rxm_exchange.h"

namespace {

// The code of weft: the library, and its plugins.
struct Code {
  uintptr_t begin, end;
};
Code weft_code[8];
size_t weft_codes = 0;
size_t held = 0;  // bytes that weft holds

int note_code(dl_phdr_info *info, size_t, void *) {
  const std::string_view path = info->dlpi_name;
  if (!path.ends_with("/rxm.so") && !path.ends_with("/verbs-doubled.so") &&
      path.find("/libfabric.so") == std::string_view::npos)
    return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto &part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || !(part.p_flags & PF_X) || weft_codes == std::size(weft_code))
      continue;
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    weft_code[weft_codes++] = {begin, begin + part.p_memsz};
  }
  return 0;
}

// In front of what is allocated.
struct alignas(std::max_align_t) Header {
  size_t counted;
  void *block;
};

void *allocate(size_t size, size_t alignment, const void *caller) {
  const size_t before = std::max(sizeof(Header), alignment);
  void *const block = std::aligned_alloc(std::max(alignment, alignof(Header)),
                                         (before + size + before - 1) / before * before);
  if (block == nullptr) throw std::bad_alloc();
  char *const start = static_cast<char *>(block) + before;
  const auto at = reinterpret_cast<uintptr_t>(caller);
  const bool mine = std::any_of(weft_code, weft_code + weft_codes,
                                [at](const Code &c) { return at >= c.begin && at < c.end; });
  // As malloc counts: what it rounds up to, and its own header.
  const size_t counted = mine ? (size + 8 + 15) / 16 * 16 : 0;
  held += counted;
  new (start - sizeof(Header)) Header{counted, block};
  return start;
}

void release(void *start) {
  if (start == nullptr) return;
  const Header header = *reinterpret_cast<Header *>(static_cast<char *>(start) - sizeof(Header));
  held -= header.counted;
  std::free(header.block);
}

}  // namespace

void *operator new(size_t size) {
  return allocate(size, 16, __builtin_return_address(0));
}
void *operator new[](size_t size) {
  return allocate(size, 16, __builtin_return_address(0));
}
void *operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, size_t(alignment), __builtin_return_address(0));
}
void *operator new(size_t size, const std::nothrow_t &) noexcept {
  return allocate(size, 16, __builtin_return_address(0));
}
void *operator new[](size_t size, const std::nothrow_t &) noexcept {
  return allocate(size, 16, __builtin_return_address(0));
}
void operator delete(void *start) noexcept {
  release(start);
}
void operator delete[](void *start) noexcept {
  release(start);
}
void operator delete(void *start, size_t) noexcept {
  release(start);
}
void operator delete[](void *start, size_t) noexcept {
  release(start);
}
void operator delete(void *start, std::align_val_t) noexcept {
  release(start);
}
void operator delete(void *start, size_t, std::align_val_t) noexcept {
  release(start);
}
void operator delete(void *start, const std::nothrow_t &) noexcept {
  release(start);
}
void operator delete[](void *start, const std::nothrow_t &) noexcept {
  release(start);
}

namespace weft::conformance {
namespace {

// Each of 125 endpoints connects to one endpoint, which makes what every endpoint has once; then to
// eight others. Both ends of these 1000 connections are in this process.
TEST(RxmOverVerbsMemory, AnIdleConnectionCostsLessThanFourKiB) {
  constexpr size_t kClients = 125, kServers = 8;
  std::vector<std::unique_ptr<Peer>> servers, clients;
  for (size_t i = 0; i <= kServers; ++i) servers.push_back(std::make_unique<Peer>());
  weft_codes = 0;
  dl_iterate_phdr(note_code, nullptr);
  ASSERT_GE(weft_codes, 3u);
  for (size_t i = 0; i < kClients; ++i) clients.push_back(std::make_unique<Peer>());
  const auto connect_to = [&](Peer &server) {
    for (auto &client : clients) exchange(*client, server, client->insert(server), 64, 1);
  };
  connect_to(*servers[0]);
  for (size_t i = 1; i <= kServers; ++i)
    exchange(*clients[0], *servers[i], clients[0]->insert(*servers[i]), 64, 1);
  const size_t before = held;
  ASSERT_NE(before, 0u);
  for (size_t i = 1; i <= kServers; ++i) connect_to(*servers[i]);
  for (auto &client : clients) client->done.shrink_to_fit();
  const size_t ends = 2 * kServers * kClients;
  const size_t each = (held - before) / ends;
  RecordProperty("bytes_per_connection", int(each));
  EXPECT_GT(each, 100u) << "it does not count";
  EXPECT_LT(each, 4096u);
}

}  // namespace
}  // namespace weft::conformance
