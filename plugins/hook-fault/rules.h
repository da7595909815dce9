// SPDX-License-Identifier: BSD-2-Clause
// The rules of the hook fault: which calls fail, and how.
//
// Example:
//    std::string first_action(std::string_view text) {
//      const auto rules = parse_rules(text);  // "send:size>1000:p=0.01:drop; recv:nth=3:error=EIO"
//      if (!rules) return rules.error().text;  // "... column 6: unknown condition ..."
//      return rules->rules.empty() ? "" : rules->rules.front().text;
//    }
//
// The grammar:
//
//   rules      := item { ";" item }
//   item       := "seed=" number | operations { ":" condition } ":" action
//   operations := name { "," name }
//
//   operation   send tsend inject tinject recv trecv read write inject_write atomic cq_read;
//               also message (the first four), post (all but cq_read)
//   condition   size>N size>=N size<N size<=N size=N   bytes; K M G for powers of 1024
//               p=0.01     with this probability
//               nth=N      the Nth call of the operation on the endpoint (or read of the queue)
//               every=N    each Nth call
//               count=N    at most N times on one object
//               peer=N     to this fi_addr_t
//   action      drop dup reorder delay=N truncate=N corrupt     of messages that are sent
//               error=ERRNO                                     of operations with a completion
//               fail=ERRNO eagain full kill                     of what is posted
//               eagain fail=ERRNO overrun                       of cq_read
//
// The first rule that applies to a call decides. fault.cc and weft-hook-fault(7) say what the
// actions do. A rule that can never have an effect is an error.
#ifndef WEFT_PLUGINS_HOOK_FAULT_RULES_H
#define WEFT_PLUGINS_HOOK_FAULT_RULES_H

#include <weft/result.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::fault {

enum Operation : uint8_t {
  kSend,
  kTsend,
  kInject,
  kTinject,
  kRecv,
  kTrecv,
  kRead,
  kWrite,
  kInjectWrite,
  kAtomic,
  kCqRead,
};
inline constexpr size_t kOperations = kCqRead + 1;

enum class Action : uint8_t {
  kDrop,
  kDuplicate,
  kReorder,
  kDelay,
  kTruncate,
  kCorrupt,
  kError,
  kFail,
  kAgain,
  kFull,
  kKill,
  kOverrun,
};

struct Rule {
  uint32_t operations = 0;                // a bit per operation
  uint64_t least = 0, most = UINT64_MAX;  // bytes
  double probability = 1;
  uint64_t nth = 0, every = 0;  // 0: any call
  uint64_t times = UINT64_MAX;
  uint64_t peer = UINT64_MAX;  // any
  Action action = Action::kDrop;
  uint64_t number = 0;  // of delay and truncate; the errno of error and fail
  std::string text;     // as it was written

  bool is_for(Operation operation) const { return (operations >> operation & 1) != 0; }
};

struct Rules {
  uint64_t seed = 1;
  std::vector<Rule> rules;
};

inline constexpr size_t kMaxRules = 64;

Result<Rules> parse_rules(std::string_view text);

// A number in [0, 1) that depends on the arguments only. So the same program meets the same faults
// again, whatever its other threads do.
double chance(uint64_t seed, uint64_t object, uint32_t operation, uint64_t call, uint32_t rule);
// The same, any number.
uint64_t mixed(uint64_t seed, uint64_t object, uint32_t operation, uint64_t call, uint32_t rule);

}  // namespace weft::fault

#endif
