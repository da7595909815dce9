// SPDX-License-Identifier: BSD-2-Clause
//
// What one rank gives to a collective operation and what it must get, the same for fi_collective and
// for MPI: buffers of doubles, and a check of the first result of each size.
//
// Example:
//     void CheckedSum(CollectiveWork &work) {
//       work.Prepare(Collective::kAllreduce, 64);
//       std::copy_n(work.operand(), work.count(), work.result());  // where MPI_Allreduce stands
//       work.Check();
//     }
//
// The root of the broadcasts goes around, so none of them runs ahead of those that receive.
#ifndef WEFT_BENCH_COLLECTIVE_WORK_H_
#define WEFT_BENCH_COLLECTIVE_WORK_H_

#include <algorithm>
#include <string>
#include <vector>

#include "bench.h"

namespace weft::bench {

enum class Collective { kBarrier, kBroadcast, kAllreduce, kAlltoall };

inline const std::vector<std::string> &CollectiveNames() {
  static const std::vector<std::string> names = {"barrier", "broadcast", "allreduce", "alltoall"};
  return names;
}

inline Collective CollectiveNamed(const std::string &name) {
  const auto &names = CollectiveNames();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) Fail("'%s' is no collective operation", name);
  return static_cast<Collective>(found - names.begin());
}

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
    for (size_t i = 0; i < all(); ++i)
      result_[i] = what == Collective::kBroadcast && rank_ == 0 ? Given(0, i) : -1;
  }
  void Check() const {
    for (size_t i = 0; what_ != Collective::kBarrier && i < all(); ++i)
      if (result_[i] != Wanted(i))
        Fail("rank %d: element %d is %f, not %f", rank_, i, result_[i], Wanted(i));
  }
  double *operand() { return operand_.data(); }
  double *result() { return result_.data(); }
  size_t count() const { return count_; }  // doubles, of one slice for alltoall
  uint32_t root(uint64_t iteration) const { return static_cast<uint32_t>(iteration % ranks_); }

 private:
  static size_t Doubles(size_t bytes) { return (bytes + 7) / 8; }
  static double Given(uint32_t rank, size_t i) {
    return static_cast<double>(rank * 1000 + i % 1000);
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
  std::vector<double> operand_, result_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_COLLECTIVE_WORK_H_
