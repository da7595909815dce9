// SPDX-License-Identifier: BSD-2-Clause
// Pool: objects of one type, allocated in chunks and recycled without the allocator.
//
//   Pool<SendOp> ops(1024);            // at most that many in use
//   SendOp *op = ops.take();           // null: all in use, or no memory
//   ops.give(op);
//
// Memory is kept until the pool goes: its high-water mark is its size. Not thread-safe; objects are
// value-initialised once and not again.
#ifndef WEFT_SDK_POOL_H
#define WEFT_SDK_POOL_H

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace weft::sdk {

template <class T>
class Pool {
 public:
  explicit Pool(size_t limit, size_t chunk = 32)
      : limit_(limit), chunk_(std::max<size_t>(chunk, 1)) {}

  T *take() {
    if (free_.empty() && !grow()) return nullptr;
    T *object = free_.back();
    free_.pop_back();
    return object;
  }
  void give(T *object) {
    free_.push_back(object);
  }  // never allocates: capacity was reserved with the chunk
  // All objects that there are, in use or not.
  template <class F>
  void visit(F each) {
    for (size_t i = 0, left = made_; i < chunks_.size(); ++i) {
      const size_t n = std::min(chunk_, left);
      for (size_t k = 0; k < n; ++k) each(chunks_[i][k]);
      left -= n;
    }
  }
  size_t in_use() const { return made_ - free_.size(); }
  size_t limit() const { return limit_; }

 private:
  bool grow() {
    const size_t n = std::min(chunk_, limit_ - made_);
    if (n == 0) return false;
    try {
      free_.reserve(made_ + n);
      chunks_.push_back(std::make_unique<T[]>(n));
    } catch (const std::bad_alloc &) {
      return false;
    }
    made_ += n;
    for (size_t i = n; i-- > 0;) free_.push_back(&chunks_.back()[i]);
    return true;
  }

  const size_t limit_, chunk_;
  size_t made_ = 0;
  std::vector<T *> free_;
  std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace weft::sdk

#endif
