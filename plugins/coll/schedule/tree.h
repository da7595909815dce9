// SPDX-License-Identifier: BSD-2-Clause
// Tree: a binomial tree over the ranks of a group, counted from the root. Each part of it has ranks
// that follow each other.
//
// Example:
//    // How many messages this member sends in a broadcast.
//    inline uint32_t messages_of(const Task &task) {
//      uint32_t count = 0;
//      Tree(task).for_children([&](const Tree::Child &) { ++count; });
//      return count;
//    }
//
// Not for what is sent along it.
#ifndef WEFT_PLUGINS_COLL_SCHEDULE_TREE_H
#define WEFT_PLUGINS_COLL_SCHEDULE_TREE_H

#include "plugins/coll/schedule/parts.h"

namespace weft::coll {

class Tree {
 public:
  struct Child {
    uint32_t rank, relative, members;  // of the part of the tree that it is the root of
  };

  explicit Tree(const Task &task) : order_{task.size, task.root}, own_(order_.of(task.rank)) {}

  bool is_root() const { return own_ == 0; }
  uint32_t relative() const { return own_; }
  uint32_t members() const { return members_of(own_); }
  uint32_t parent() const { return order_.rank(own_ - lowest_bit(own_)); }
  // The one with the largest part comes first.
  template <class F>
  void for_children(F see) const {
    uint32_t distance = is_root() ? std::bit_ceil(order_.size) : lowest_bit(own_);
    while ((distance >>= 1) != 0)
      if (distance < order_.size - own_)
        see(Child{order_.rank(own_ + distance), own_ + distance, members_of(own_ + distance)});
  }

 private:
  static uint32_t lowest_bit(uint32_t n) { return n & -n; }
  uint32_t members_of(uint32_t relative) const {
    const uint32_t rest = order_.size - relative;
    return relative == 0 ? rest : std::min(lowest_bit(relative), rest);
  }

  const Relative order_;
  const uint32_t own_;
};

}  // namespace weft::coll

#endif
