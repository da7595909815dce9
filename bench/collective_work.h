// SPDX-License-Identifier: BSD-2-Clause
//
// What one rank gives to a collective operation and what it must get, the same for fi_collective
// and for MPI: buffers of doubles, and a check of the first result of each size.
//
// Example:
//     void CheckedSum(CollectiveWork &work) {
//       work.Prepare(Collective::kAllreduce, 64);
//       std::copy_n(work.operand(), work.count(), work.result());  // where MPI_Allreduce stands
//       work.Check();
//     }
//
// The root of the broadcasts goes around, so none of them runs ahead of those that receive; or it
// is rank 0 always (broadcast_one_root).
#ifndef WEFT_BENCH_COLLECTIVE_WORK_H_
#define WEFT_BENCH_COLLECTIVE_WORK_H_

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

inline const std::vector<std::string> &CollectiveNames() {
  static const std::vector<std::string> names = {"barrier", "broadcast", "broadcast_one_root",
                                                 "allreduce", "alltoall"};
  return names;
}

inline Collective CollectiveNamed(const std::string &name) {
  const auto &names = CollectiveNames();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) Fail("'%s' is no collective operation", name);
  return static_cast<Collective>(found - names.begin());
}

// The calling thread stays on one CPU, the next one for each rank: the scheduler may leave
// processes that yield on one CPU together, while another one idles.
inline void TakeCpu(uint32_t rank) {
  cpu_set_t allowed, own;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) Fail("sched_getaffinity failed");
  int left = static_cast<int>(rank) % CPU_COUNT(&allowed), cpu = 0;
  while (!CPU_ISSET(cpu, &allowed) || left-- != 0) ++cpu;
  CPU_ZERO(&own);
  CPU_SET(cpu, &own);
  if (sched_setaffinity(0, sizeof own, &own) != 0) Fail("sched_setaffinity failed");
}

// Doubles in large pages: how the pages of a heap happen to lie decides more than any algorithm.
class LargePages {
 public:
  explicit LargePages(size_t count) : bytes_((count * sizeof(double) + kPage - 1) / kPage * kPage) {
    void *const memory = aligned_alloc(kPage, std::max(bytes_, kPage));
    if (memory == nullptr) Fail("no memory for %d bytes", bytes_);
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
        operand_(Doubles(largest) * ranks),
        result_(Doubles(largest) * ranks) {}

  // Buffers for an operation of `bytes`, whose root is rank 0.
  void Prepare(Collective what, size_t bytes) {
    what_ = what;
    count_ = Doubles(bytes);
    for (size_t i = 0; i < all(); ++i) operand_[i] = Given(rank_, i);
    for (size_t i = 0; i < all(); ++i) result_[i] = IsBroadcast() && rank_ == 0 ? Given(0, i) : -1;
  }
  void Check() const {
    for (size_t i = 0; what_ != Collective::kBarrier && i < all(); ++i)
      if (result_[i] != Wanted(i))
        Fail("rank %d: element %d is %f, not %f", rank_, i, result_[i], Wanted(i));
  }
  double *operand() { return operand_.data(); }
  double *result() { return result_.data(); }
  size_t count() const { return count_; }  // doubles, of one slice for alltoall
  uint32_t root(uint64_t iteration) const {
    return what_ == Collective::kBroadcastOneRoot ? 0 : static_cast<uint32_t>(iteration % ranks_);
  }

 private:
  static size_t Doubles(size_t bytes) { return (bytes + 7) / 8; }
  static double Given(uint32_t rank, size_t i) {
    return static_cast<double>(rank * 1000 + i % 1000);
  }
  bool IsBroadcast() const {
    return what_ == Collective::kBroadcast || what_ == Collective::kBroadcastOneRoot;
  }
  size_t all() const { return what_ == Collective::kAlltoall ? count_ * ranks_ : count_; }
  double Wanted(size_t i) const {
    switch (what_) {
      case Collective::kAllreduce: {
        double sum = 0;
        for (uint32_t rank = 0; rank < ranks_; ++rank) sum += Given(rank, i);
        return sum;
      }
      case Collective::kAlltoall:
        return Given(static_cast<uint32_t>(i / count_), rank_ * count_ + i % count_);
      default:
        return Given(0, i);
    }
  }

  const uint32_t rank_, ranks_;
  Collective what_ = Collective::kBarrier;
  size_t count_ = 0;
  LargePages operand_, result_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_COLLECTIVE_WORK_H_
