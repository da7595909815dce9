// SPDX-License-Identifier: BSD-2-Clause
//
// What one rank gives to a collective operation and what it must get, the same for fi_collective
// and for MPI: buffers of doubles, and a check of the first result of each size.
//
// Example:
//     void checked_sum(CollectiveWork &work) {
//       work.prepare(Collective::kAllreduce, 64);
//       std::copy_n(work.operand(), work.count(), work.result());  // where MPI_Allreduce stands
//       work.check_call();
//     }
//
// The root of the broadcasts goes around, so none of them runs ahead of those that receive; or it
// is rank 0 always (broadcast_one_root).
#ifndef WEFT_BENCH_COLLECTIVE_WORK_H
#define WEFT_BENCH_COLLECTIVE_WORK_H

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench.h"

namespace weft::bench {

enum class Collective { kBarrier, kBroadcast, kBroadcastOneRoot, kAllreduce, kAlltoall };

inline const std::vector<std::string> &collective_names() {
  static const std::vector<std::string> names = {"barrier", "broadcast", "broadcast_one_root",
                                                 "allreduce", "alltoall"};
  return names;
}

inline Collective collective_named(const std::string &name) {
  const auto &names = collective_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) fail("'%s' is no collective operation", name);
  return static_cast<Collective>(found - names.begin());
}

// The calling thread stays on one CPU, the next one for each rank: the scheduler may leave
// processes that yield on one CPU together, while another one idles.
inline void take_cpu(uint32_t rank) {
  cpu_set_t allowed, own;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail("sched_getaffinity failed");
  int left = static_cast<int>(rank) % CPU_COUNT(&allowed), cpu = 0;
  while (!CPU_ISSET(cpu, &allowed) || left-- != 0) ++cpu;
  CPU_ZERO(&own);
  CPU_SET(cpu, &own);
  if (sched_setaffinity(0, sizeof own, &own) != 0) fail("sched_setaffinity failed");
}

// Doubles in large pages: how the pages of a heap happen to lie decides more than any algorithm.
class LargePages {
 public:
  explicit LargePages(size_t count) : bytes_((count * sizeof(double) + kPage - 1) / kPage * kPage) {
    void *const memory = aligned_alloc(kPage, std::max(bytes_, kPage));
    if (memory == nullptr) fail("no memory for %d bytes", bytes_);
    doubles_.reset(static_cast<double *>(memory));
    madvise(memory, bytes_, MADV_HUGEPAGE);
  }
  double *data() { return doubles_.get(); }
  double &operator[](size_t i) { return doubles_.get()[i]; }
  const double &operator[](size_t i) const { return doubles_.get()[i]; }

 private:
  static constexpr size_t kPage = 2u << 20;
  struct Freer {
    void operator()(double *memory) const { free(memory); }
  };
  const size_t bytes_;
  std::unique_ptr<double, Freer> doubles_;
};

class CollectiveWork {
 public:
  // `largest`: bytes of an operation, of one slice for alltoall.
  CollectiveWork(uint32_t rank, uint32_t ranks, size_t largest)
      : rank_(rank),
        ranks_(ranks),
        operand_(doubles(largest) * ranks),
        result_(doubles(largest) * ranks) {}

  // Buffers for an operation of `bytes`, whose root is rank 0.
  void prepare(Collective what, size_t bytes) {
    what_ = what;
    count_ = doubles(bytes);
    for (size_t i = 0; i < all(); ++i) operand_[i] = given(rank_, i);
    for (size_t i = 0; i < all(); ++i) result_[i] = is_broadcast() && rank_ == 0 ? given(0, i) : -1;
  }
  void check_call() const {
    for (size_t i = 0; what_ != Collective::kBarrier && i < all(); ++i)
      if (result_[i] != wanted(i))
        fail("rank %d: element %d is %f, not %f", rank_, i, result_[i], wanted(i));
  }
  double *operand() { return operand_.data(); }
  double *result() { return result_.data(); }
  size_t count() const { return count_; }  // doubles, of one slice for alltoall
  uint32_t root(uint64_t iteration) const {
    return what_ == Collective::kBroadcastOneRoot ? 0 : static_cast<uint32_t>(iteration % ranks_);
  }

 private:
  static size_t doubles(size_t bytes) { return (bytes + 7) / 8; }
  static double given(uint32_t rank, size_t i) {
    return static_cast<double>(rank * 1000 + i % 1000);
  }
  bool is_broadcast() const {
    return what_ == Collective::kBroadcast || what_ == Collective::kBroadcastOneRoot;
  }
  size_t all() const { return what_ == Collective::kAlltoall ? count_ * ranks_ : count_; }
  double wanted(size_t i) const {
    switch (what_) {
      case Collective::kAllreduce: {
        double sum = 0;
        for (uint32_t rank = 0; rank < ranks_; ++rank) sum += given(rank, i);
        return sum;
      }
      case Collective::kAlltoall:
        return given(static_cast<uint32_t>(i / count_), rank_ * count_ + i % count_);
      default:
        return given(0, i);
    }
  }

  const uint32_t rank_, ranks_;
  Collective what_ = Collective::kBarrier;
  size_t count_ = 0;
  LargePages operand_, result_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_COLLECTIVE_WORK_H
