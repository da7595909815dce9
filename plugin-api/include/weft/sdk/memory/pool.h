// SPDX-License-Identifier: BSD-2-Clause
// Pool: objects of one type, allocated in chunks and recycled without the allocator.
//
// Example:
//    struct SendOp {};
//    bool send(Pool<SendOp> &ops) {
//      SendOp *op = ops.take();
//      if (op == nullptr) return false;  // all in use, or no memory
//      ops.give(op);
//      return true;
//    }
//    Pool<SendOp> ops(1024);  // at most that many in use
//
// Memory is kept until the pool goes: its size is the largest number of objects that were in use at
// a time. Not thread-safe. Objects are value-initialised once and not again.
#ifndef WEFT_SDK_MEMORY_POOL_H
#define WEFT_SDK_MEMORY_POOL_H

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace weft::sdk {

template <class T>
class Pool {
 public:
  explicit Pool(size_t limit, size_t chunk = 32)
      : limit_(limit), chunk_(std::max<size_t>(chunk, 1)) {}

  T *take() {
    if (free_count_ == 0 && !grow()) [[unlikely]]
      return nullptr;
    return free_[--free_count_];
  }
  void give(T *object) { free_[free_count_++] = object; }  // there is room for all
  // All objects that there are, in use or not.
  template <class F>
  void visit(F each) {
    for (const Chunk &chunk : chunks_)
      for (size_t i = 0; i < chunk.count; ++i) each(chunk.objects[i]);
  }
  // The first object, in use or not, for which `is` returns true; null: there is none.
  template <class F>
  T *find(F is) {
    for (const Chunk &chunk : chunks_)
      for (size_t i = 0; i < chunk.count; ++i)
        if (is(chunk.objects[i])) return &chunk.objects[i];
    return nullptr;
  }
  size_t in_use() const { return made_ - free_count_; }
  size_t limit() const { return limit_; }

 private:
  struct Chunk {
    std::unique_ptr<T[]> objects;
    size_t count;
  };
  static constexpr size_t kLaterChunk = 32, kMany = 4096;

  [[gnu::noinline]] bool grow() {
    // A user that began with a small chunk and needs many objects gets more at once; one that needs
    // thousands gets an eighth of what it has, so that their memory takes no time that grows faster
    // than they do.
    const size_t later = made_ < kMany ? kLaterChunk : made_ / 8;
    const size_t n = std::min(std::clamp(made_, chunk_, std::max(chunk_, later)), limit_ - made_);
    if (n == 0) return false;
    try {
      auto more = std::make_unique_for_overwrite<T *[]>(made_ + n);
      chunks_.push_back({std::make_unique<T[]>(n), n});
      free_ = std::move(more);  // the old one is empty
    } catch (const std::bad_alloc &) {
      return false;
    }
    made_ += n;
    for (size_t i = n; i-- > 0;) give(&chunks_.back().objects[i]);
    return true;
  }

  const size_t limit_, chunk_;
  size_t made_ = 0;
  size_t free_count_ = 0;
  std::unique_ptr<T *[]> free_;
  std::vector<Chunk> chunks_;
};

}  // namespace weft::sdk

#endif
