// SPDX-License-Identifier: BSD-2-Clause
// Ways: by which provider an endpoint reaches each peer, and what the peer is called there. A word
// per peer in use, which senders read without a lock.
//
// Example:
//    inline bool is_here(const Ways &ways, fi_addr_t peer) {
//      return ways.of(peer).is_known() && ways.of(peer).branch() == kLocal;
//    }
//
// Not for how a way is found: Endpoint::decide().
#ifndef WEFT_PLUGINS_LINK_WAYS_H
#define WEFT_PLUGINS_LINK_WAYS_H

#include <rdma/fabric.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/link/branch.h"

namespace weft::link {

class Way {
 public:
  Way() = default;  // none is known
  Way(size_t branch, fi_addr_t name, bool is_watched = false)
      : word_(kKnown | uint64_t(branch) << kBranchAt | (is_watched ? kWatched : 0) | name) {}
  explicit Way(uint64_t word) : word_(word) {}

  bool is_known() const { return word_ != 0; }
  // Its operations are watched (watch.h).
  bool is_watched() const { return (word_ & kWatched) != 0; }
  // Known, and nothing more is to be done.
  bool is_plain() const { return (word_ & (kKnown | kWatched)) == kKnown; }
  size_t branch() const { return size_t(word_ >> kBranchAt) & 1; }
  fi_addr_t name() const { return word_ & kMostName; }
  uint64_t word() const { return word_; }

  static constexpr fi_addr_t kMostName = (UINT64_C(1) << 61) - 1;

 private:
  static constexpr unsigned kBranchAt = 62;
  static constexpr uint64_t kKnown = UINT64_C(1) << 63, kWatched = UINT64_C(1) << 61;
  uint64_t word_ = 0;
};

class Ways {
 public:
  // By any thread.
  Way of(fi_addr_t peer) const {
    const Table *const table = table_.load(std::memory_order_acquire);
    if (table == nullptr || peer >= table->size) return {};
    return Way(table->words[peer].load(std::memory_order_relaxed));
  }

  // ---- one thread at a time ----
  // Throws std::bad_alloc, and nothing has changed. A Way() needs no memory.
  void set(uint32_t peer, Way way);
  // The ways through memory.
  void forget_local();

 private:
  struct Table {
    explicit Table(size_t size)
        : size(size), words(std::make_unique<std::atomic<uint64_t>[]>(size)) {}
    const size_t size;
    const std::unique_ptr<std::atomic<uint64_t>[]> words;
  };
  Table *grow(size_t size);

  std::atomic<Table *> table_{nullptr};
  // The last one is table_. Others stay, as senders may be reading them: together they are not
  // larger than the last one.
  std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace weft::link

#endif
