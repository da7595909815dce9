// SPDX-License-Identifier: BSD-2-Clause
// OneHost: whether the members of a group are all on this host, which may have many addresses.
// own_cpus(): its CPUs that this member may use.
//
// Example:
//    inline bool are_here(const sdk::Address &own, const std::vector<sdk::Address> &members) {
//      OneHost host(own);
//      return std::ranges::all_of(members, [&](const auto &member) { return host.has(member); });
//    }
//
// Containers with networks of their own are hosts. A member that cannot ask its system may come to
// another answer than the others: what counts is what all of them say when they join
// (group/group.h).
#ifndef WEFT_PLUGINS_COLL_ONE_HOST_H
#define WEFT_PLUGINS_COLL_ONE_HOST_H

#include <weft/sdk/addresses/address.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/coll/group/group.h"

namespace weft::coll {

class OneHost {
 public:
  explicit OneHost(const sdk::Address &own) : own_(own) {}
  // Asks the system once, and only when an address is another one than `own`.
  bool has(const sdk::Address &member);

 private:
  const sdk::Address own_;
  std::optional<std::set<std::string>> addresses_;
};

// Those of the calling thread (sched_getaffinity(2)).
Cpus own_cpus();

}  // namespace weft::coll

#endif
