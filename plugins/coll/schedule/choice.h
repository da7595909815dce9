// SPDX-License-Identifier: BSD-2-Clause
// Choice: which algorithm a collective operation takes, by its size and that of the group.
//
// Example:
//    // As a user asks for it: a ring for all allreduce, but pairs for small alltoall.
//    inline weft::Result<Choice> wanted() {
//      const std::string items[] = {"allreduce=ring", "alltoall:256=pairwise"};
//      return Choice::with(items);
//    }
//
// A row holds up to a number of bytes and of members, for all groups, for those on one host or for
// those that are a crowd there; the first one that holds is taken. Bytes are those of
// Task::bytes(): all data of a broadcast, an allreduce and a reduce, else one slice. All members
// must have the same table, which hash() shows. Not for what an algorithm does: schedule.h.
#ifndef WEFT_PLUGINS_COLL_SCHEDULE_CHOICE_H
#define WEFT_PLUGINS_COLL_SCHEDULE_CHOICE_H

#include <weft/result.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugins/coll/schedule/schedule.h"

namespace weft::coll {

class Choice {
 public:
  Choice();
  // `items`: COLLECTIVE[:BYTES[:MEMBERS[:WHERE]]]=ALGORITHM, which come before the rows that there
  // are, in their order. BYTES may end in K or M; it and MEMBERS may be empty: any. WHERE is "host"
  // or "crowd".
  static Result<Choice> with(std::span<const std::string> items);

  // Fills in task.algorithm.
  void choose(Task &task) const;
  // A line for each row, in the form of `items`.
  std::vector<std::string> lines() const;
  uint64_t hash() const { return hash_; }

 private:
  static constexpr uint64_t kAny = UINT64_MAX;
  struct Rule {
    fi_collective_op coll;
    Algorithm algorithm;
    uint64_t bytes = kAny, members = kAny;    // at most
    Placement placement = Placement::kHosts;  // or closer together
  };
  static Result<Rule> parse(const std::string &item);
  uint64_t hash_of_lines() const;

  std::vector<Rule> rules_;
  uint64_t hash_;  // a group compares it once per member
};

}  // namespace weft::coll

#endif
