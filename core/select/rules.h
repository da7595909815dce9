// SPDX-License-Identifier: BSD-2-Clause
// The rules of providers.rank, applied to a stack before it is opened and to each fi_info that it
// offers.
//
// Example:
//     // Nothing: the rules leave the offer out.
//     inline std::optional<int32_t> rank_of(const Policy &policy,
//                                           const StackUnits &units,
//                                           const fi_info &offer) {
//       const Place place = Place::of_process();
//       // This refuses only what no device could save.
//       if (!judge_stack(policy, units, place).accepted) return std::nullopt;
//       const RuleOutcome outcome = judge_info(policy, units, place, offer);
//       if (!outcome.verdict.accepted) return std::nullopt;
//       return outcome.rank.value_or(rank_of(units));
//     }
//
// Of the rules that match, the strongest (last) one with `enable` decides whether the stack is
// used, and the strongest one with `rank` its rank. Patterns are those of fnmatch(3). Not for
// enable and disable lists (policy.h).
#ifndef WEFT_CORE_SELECT_RULES_H
#define WEFT_CORE_SELECT_RULES_H

#include <rdma/fabric.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/loader/loader.h"
#include "core/select/policy.h"

namespace weft {

// An interface of this machine that rules take for another one.
struct SupposedDevice {
  std::string real, name;
  sockaddr_storage address{};  // in place of its own
  size_t address_length = 0;   // 0: it has its own
};

// The host and program of this process. The functions are called only if a rule needs them.
struct Place {
  std::function<std::string()> hostname;
  std::function<std::string()> executable;  // full path
  // The network interface that has an address; empty: none.
  std::function<std::string(const struct sockaddr *addr)> netdev_of;
  std::vector<SupposedDevice> devices = {};  // suppositions.h

  static Place of_process();
};

Judgement judge_stack(const Policy &policy, const StackUnits &units, const Place &place);

// The same for many stacks. Those of the same units are judged once.
class StackRules {
 public:
  StackRules(const Policy &policy, const Place &place) : policy_(policy), place_(place) {}
  const Judgement &judge(const StackUnits &units);

 private:
  const Policy &policy_;
  const Place &place_;
  std::map<std::string, Judgement> known_;  // by the names of the units
};

struct RuleOutcome {
  Judgement verdict;
  std::optional<int32_t> rank;
  Rule rank_rule;  // the place of the rule
};
RuleOutcome judge_info(const Policy &policy, const StackUnits &units, const Place &place,
                       const struct fi_info &info);

// Whether an address lies in a subnet, "172.17.0.0/16" or "fd00::/8".
bool in_subnet(const struct sockaddr *addr, size_t length, const std::string &subnet);

}  // namespace weft

#endif
