// SPDX-License-Identifier: BSD-2-Clause
// Rabenseifner: the halving of a vector, at one of a power of two of members. In each step two of
// them share what both have: each gives the half that it loses, and reduces the one that it keeps.
//
// Example:
//    // The first step, over all data in the result.
//    inline void first_step(const Task &task, Steps &steps) {
//      const Fold fold(task.size);
//      Rabenseifner(task, fold, fold.inner(task.rank), {task.size, 0}, Place::kResult, 0)
//          .reduce(0, 2, steps);
//    }
//
// Not for how the parts come together again.
#ifndef WEFT_PLUGINS_COLL_SCHEDULE_RABENSEIFNER_H
#define WEFT_PLUGINS_COLL_SCHEDULE_RABENSEIFNER_H

#include "plugins/coll/schedule/parts.h"

namespace weft::coll {

class Rabenseifner {
 public:
  // `number`: this member's in the power of two, whose ranks are counted in `order`. The data is at
  // `place`, and what comes from others at `other_at` of the scratch memory.
  Rabenseifner(const Task &task, const Fold &fold, uint32_t number, const Relative &order,
               Place place, uint64_t other_at)
      : cut_{task.count, fold.power, task.unit},
        halving_{fold.power, number},
        fold_(fold),
        order_(order),
        place_(place),
        other_at_(other_at) {}

  // Of step k, which halves what step k - 1 has left.
  uint32_t peer(uint32_t k) const { return order_.rank(fold_.outer(halving_.number ^ 1u << k)); }
  Slice kept(uint32_t k) const {
    return cut_.slice(place_, halving_.from(k + 1), halving_.to(k + 1));
  }
  Slice lost(uint32_t k) const {
    return cut_.slice(place_, halving_.lost_from(k + 1), halving_.lost_to(k + 1));
  }
  void reduce(uint32_t k, uint32_t label, Steps &steps) const {
    const Slice own = kept(k);
    reduce_from(place_, {Place::kScratch, other_at_, own.bytes}, k, label, steps);
  }
  // The same where this member's data is still at `from`, and what comes goes to `other`.
  void reduce_from(Place from, const Slice &other, uint32_t k, uint32_t label, Steps &steps) const {
    const Slice own = kept(k), given = lost(k);
    steps.receive(peer(k), label, other);
    steps.send(peer(k), label, {from, given.at, given.bytes});
    steps.reduce_into(own, {from, own.at, own.bytes}, other, (halving_.number >> k & 1) != 0);
  }

 private:
  const Cut cut_;
  const Halving halving_;
  const Fold fold_;
  const Relative order_;
  const Place place_;
  const uint64_t other_at_;
};

}  // namespace weft::coll

#endif
