// SPDX-License-Identifier: BSD-2-Clause
// What fuzz targets with state share: the input as a list of events, memory of an application with
// red zones, and a domain without a provider for the SDK's objects.
//
// Example:
//     extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
//       Input input(data, size);
//       Memory memory;
//       std::vector<uint8_t *> posted;
//       while (!input.empty()) {
//         if (input.byte() % 2 == 0) {
//           // A receive is posted: until its completion the provider may write into the buffer.
//           posted.push_back(memory.lend(input.byte(), 0x5c));
//         } else if (!posted.empty()) {
//           // It completed: from now on the provider may neither write nor read there.
//           memory.take_back(posted.back());
//           posted.pop_back();
//         }
//       }
//       FUZZ_CHECK(memory.lent() == posted.size(), "a receive was lost");
//       return 0;  // ~Memory() looks at every byte
//     }
//
// A write beside a buffer, or into one that was taken back, is found at once under ASan, and in
// ~Memory() without it. Not for unit tests: those have googletest and test_instance.h.
#ifndef WEFT_TESTS_FUZZ_WORLD_H
#define WEFT_TESTS_FUZZ_WORLD_H

#include <rdma/fabric.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "tests/fuzz/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define WEFT_FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_FUZZ_ASAN 1
#endif
#endif
#ifdef WEFT_FUZZ_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace weft::fuzz {

// Past its end everything is 0.
class Input {
 public:
  Input(const uint8_t *data, size_t size) : rest_(data, size) {}
  bool empty() const { return rest_.empty(); }
  std::span<const uint8_t> take(size_t n) {
    n = std::min(n, rest_.size());
    const auto taken = rest_.first(n);
    rest_ = rest_.subspan(n);
    return taken;
  }
  uint8_t byte() {
    const auto one = take(1);
    return one.empty() ? uint8_t{0} : one[0];
  }
  uint32_t number(size_t bytes) {  // low byte first
    uint32_t n = 0;
    for (size_t i = 0; i < bytes; ++i) n |= uint32_t(byte()) << (8 * i);
    return n;
  }

 private:
  std::span<const uint8_t> rest_;
};

// An application's buffers, each between red zones.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  ~Memory() {
    for (auto &[data, block] : blocks_) {
      if (block.lent) {
        check(block, kZone, kZone + block.size);
      } else {
        check(block, 0, 0);
      }
      unpoison(block.bytes.get(), block.size + 2 * kZone);
    }
  }

  uint8_t *lend(size_t size, uint8_t fill) {
    Block block{size, true, std::make_unique<uint8_t[]>(size + 2 * kZone)};
    uint8_t *bytes = block.bytes.get();
    std::memset(bytes, kRed, size + 2 * kZone);
    std::memset(bytes + kZone, fill, size);
    poison(bytes, kZone);
    poison(bytes + kZone + size, kZone);
    blocks_.emplace(bytes + kZone, std::move(block));
    ++lent_;
    return bytes + kZone;
  }
  // The buffer is the application's again: from now on the provider may neither write nor read it.
  void take_back(uint8_t *data) {
    Block &block = blocks_.at(data);
    FUZZ_CHECK(block.lent, "a buffer was given back twice");
    block.lent = false;
    --lent_;
    std::memset(data, kRed, block.size);
    poison(data, block.size);
  }
  size_t lent() const { return lent_; }
  // Whether it is in one of the buffers, be it lent or not.
  bool owns(const void *at) const {
    auto it = blocks_.upper_bound(static_cast<uint8_t *>(const_cast<void *>(at)));
    if (it == blocks_.begin()) return false;
    --it;
    return size_t(static_cast<const uint8_t *>(at) - it->first) < it->second.size;
  }
  size_t blocks() const { return blocks_.size(); }
  // Whether [at, at + length) lies in one buffer that is lent.
  bool holds(const void *at, size_t length) const {
    auto it = blocks_.upper_bound(static_cast<uint8_t *>(const_cast<void *>(at)));
    if (it == blocks_.begin()) return false;
    --it;
    const auto offset = size_t(static_cast<const uint8_t *>(at) - it->first);
    return it->second.lent && offset <= it->second.size && length <= it->second.size - offset;
  }

 private:
  static constexpr size_t kZone = 32;
  static constexpr uint8_t kRed = 0xdb;
  struct Block {
    size_t size;
    bool lent;
    std::unique_ptr<uint8_t[]> bytes;
  };
  // Checks that all bytes but [from, to) are as lend() or take_back() left them.
  static void check(const Block &block, size_t from, size_t to) {
    unpoison(block.bytes.get(), block.size + 2 * kZone);
    for (size_t i = 0; i < block.size + 2 * kZone; ++i)
      FUZZ_CHECK((i >= from && i < to) || block.bytes[i] == kRed,
                 "memory of the application was written where it must not");
  }
  static void poison([[maybe_unused]] void *at, [[maybe_unused]] size_t size) {
#ifdef WEFT_FUZZ_ASAN
    __asan_poison_memory_region(at, size);
#endif
  }
  static void unpoison([[maybe_unused]] void *at, [[maybe_unused]] size_t size) {
#ifdef WEFT_FUZZ_ASAN
    __asan_unpoison_memory_region(at, size);
#endif
  }

  std::map<uint8_t *, Block> blocks_;
  size_t lent_ = 0;
};

// Stands for a provider's domain, as far as the SDK's objects need it. No plugin, no core.
class Domain {
 public:
  Domain() : engine(false) {
    instance_.magic = WEFT_INSTANCE_MAGIC;
    instance_.struct_size = sizeof instance_;
    instance_.core = &kCore;
    instance_.plugin_state = this;
    instance_.stack = "fuzz";
    context.instance = &instance_;
    context.fid = &fid_;
    context.engine = &engine;
    context.api_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  }
  Domain(const Domain &) = delete;
  Domain &operator=(const Domain &) = delete;
  ~Domain() { FUZZ_CHECK(context.children.load() == 0, "objects were left open"); }
  const weft_instance *instance() const { return &instance_; }

  sdk::Engine engine;
  sdk::DomainContext context;

 private:
  static int32_t log_enabled(const weft_instance *, int32_t, int32_t) { return 0; }
  static void log(const weft_instance *, int32_t, int32_t, const char *, int32_t, const char *) {}
  static int32_t opened(struct fid *, struct fid *, weft_error *) { return 0; }
  static void closing(struct fid *) {}
  static constexpr weft_core_services kCore = {
      .struct_size = sizeof(weft_core_services),
      .log_enabled = log_enabled,
      .log = log,
      .object_opened = opened,
      .object_closing = closing,
  };
  weft_instance instance_{};
  struct fid fid_ {};
};

}  // namespace weft::fuzz

#endif
