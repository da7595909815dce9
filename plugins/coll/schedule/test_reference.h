// SPDX-License-Identifier: BSD-2-Clause
// Reference: what a collective operation is to do, said as plainly as it can be, for tests.
//
// Example:
//    inline bool is_right(const Task &task, const std::vector<uint8_t> &result) {
//      return Reference(task, FI_SUM, FI_UINT64).result_after(task.rank) == result;
//    }
//
// Not for operations whose result depends on the order of operands.
#ifndef WEFT_PLUGINS_COLL_SCHEDULE_TEST_REFERENCE_H
#define WEFT_PLUGINS_COLL_SCHEDULE_TEST_REFERENCE_H

#include <rdma/fi_atomic.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/reduce.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plugins/coll/schedule/schedule.h"

namespace weft::coll {

class Reference {
 public:
  // kAnyNumbers: floating point numbers of all kinds, for members to agree on; else small whole
  // numbers, of which each order of operands makes the same.
  enum Numbers { kSmallNumbers, kAnyNumbers };

  Reference(const Task &task, int op, int datatype, Numbers numbers = kSmallNumbers)
      : task_(task), op_(op), datatype_(datatype), numbers_(numbers) {}

  int op() const { return op_; }
  int datatype() const { return datatype_; }

  std::vector<uint8_t> operand(uint32_t rank) const {
    Task own = task_;
    own.rank = rank;
    return data(rank, operand_bytes(own));
  }
  std::vector<uint8_t> result_before(uint32_t rank) const {
    Task own = task_;
    own.rank = rank;
    if (task_.coll == FI_BROADCAST && rank == task_.root) return data(rank, task_.bytes());
    return std::vector<uint8_t>(result_bytes(own), 0);
  }
  std::vector<uint8_t> result_after(uint32_t rank) const {
    std::vector<uint8_t> result = result_before(rank);
    const uint64_t slice = task_.bytes();
    const auto take = [&](uint64_t at, uint32_t from, uint64_t from_at) {
      const std::vector<uint8_t> all = operand(from);
      std::copy_n(all.begin() + ptrdiff_t(from_at), slice, result.begin() + ptrdiff_t(at));
    };
    switch (task_.coll) {
      case FI_BROADCAST:
        return result_before(task_.root);
      case FI_ALLTOALL:
        for (uint32_t i = 0; i < task_.size; ++i) take(i * slice, i, rank * slice);
        break;
      case FI_ALLGATHER:
        for (uint32_t i = 0; i < task_.size; ++i) take(i * slice, i, 0);
        break;
      case FI_SCATTER:
        take(0, task_.root, rank * slice);
        break;
      case FI_GATHER:
        if (rank == task_.root)
          for (uint32_t i = 0; i < task_.size; ++i) take(i * slice, i, 0);
        break;
      case FI_REDUCE:
        if (rank == task_.root) reduce(result, 0);
        break;
      case FI_ALLREDUCE:
        reduce(result, 0);
        break;
      case FI_REDUCE_SCATTER:
        reduce(result, rank * slice);
        break;
      default:
        break;
    }
    return result;
  }

 private:
  void reduce(std::vector<uint8_t> &result, uint64_t at) const {
    for (uint32_t i = 0; i < task_.size; ++i) {
      const std::vector<uint8_t> all = operand(i);
      if (i == 0)
        std::copy_n(all.begin() + ptrdiff_t(at), result.size(), result.begin());
      else
        sdk::reduce_execute(op_, datatype_, result.data(), result.data(), all.data() + at,
                            result.size() / task_.unit);
    }
  }
  std::vector<uint8_t> data(uint32_t rank, uint64_t bytes) const {
    std::vector<uint8_t> all(bytes, 0);
    for (uint64_t i = 0; i < bytes / task_.unit; ++i)
      write(all.data() + i * task_.unit, uint64_t{rank} * 1000003 + i * 7919 + task_.root);
    return all;
  }
  // Of floating point 1, 2 or -1, so that sums and products are exact; of complex numbers 1 or 2,
  // so that no zero has a sign.
  void write(uint8_t *at, uint64_t seed) const {
    const uint64_t mixed = (seed + 1) * 0x9e3779b97f4a7c15 >> 17;
    const double real = numbers_ == kAnyNumbers ? any_number(mixed)
                                                : (mixed % 3 == 0   ? 2.0
                                                   : mixed % 3 == 1 ? 1.0
                                                                    : -1.0);
    switch (datatype_) {
      case FI_FLOAT:
        return put(at, float(real));
      case FI_DOUBLE:
        return put(at, real);
      case FI_FLOAT_COMPLEX:
        return put(at, std::complex<float>(std::abs(float(real)), 0));
      case FI_DOUBLE_COMPLEX:
        return put(at, std::complex<double>(std::abs(real), 0));
      case FI_LONG_DOUBLE:
        return put_long(at, real);
      case FI_LONG_DOUBLE_COMPLEX:
        put_long(at, std::abs(real));
        return put_long(at + sizeof(long double), 0);
      default:
        std::memcpy(at, &mixed, std::min<size_t>(task_.unit, sizeof mixed));
    }
  }
  static double any_number(uint64_t mixed) {
    switch (mixed % 16) {
      case 0:
        return std::nan("");
      case 1:
        return -0.0;
      case 2:
        return 0.0;
      case 3:
        return INFINITY;
      default:
        return double(mixed % 10007) / 3 - 1000;
    }
  }
  template <class T>
  static void put(uint8_t *at, T value) {
    std::memcpy(at, &value, sizeof value);
  }
  static void put_long(uint8_t *at, long double value) { std::memcpy(at, &value, 10); }

  const Task task_;
  const int op_, datatype_;
  const Numbers numbers_;
};

}  // namespace weft::coll

#endif
