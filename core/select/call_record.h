// SPDX-License-Identifier: BSD-2-Clause
// One fi_getinfo() or fi_fabric() of a program as a line of JSON, for `weft why -- COMMAND`.
//
// Example:
//     #include <functional>
//
//     inline void tell(const std::function<void(std::string_view)> &listener, const fi_info *hints,
//                      int result, const fi_info *answers, const std::vector<Decision> &misses) {
//       const Question question{.version = FI_VERSION(2, 6), .node = "host", .hints = hints};
//       if (listener) listener(getinfo_record(question, result, answers, misses));
//     }
//
// Later releases only add members. A record is made only if a reader wants it
// (FrontOptions::record).
#ifndef WEFT_CORE_SELECT_CALL_RECORD_H
#define WEFT_CORE_SELECT_CALL_RECORD_H

#include <rdma/fabric.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/decision.h"

namespace weft {

struct Question {
  uint32_t version = 0;
  const char *node = nullptr, *service = nullptr;
  uint64_t flags = 0;
  const fi_info *hints = nullptr;
};

// The hints that are set, in the order of the structs: {"ep_attr.type", "FI_EP_RDM"}. Members
// without a value (0, NULL, FI_..._UNSPEC) are left out.
std::vector<std::pair<std::string, std::string>> set_hints(const fi_info &hints);

// {"call": "getinfo", "thread", "version", "node", "service", "flags", "hints": {attribute: value},
// "result", "error", "answers": [{"provider", "stack", "endpoint", "domain", "fabric", "source"}],
// "answer_count", "misses": [{"candidate", "stage", "reason", "remedy", "text": all in one line}]}.
// "stack" is there only where `tree_of` has a name that is not empty for the answer.
using TreeOf = std::function<std::string(const fi_info &answer)>;
std::string getinfo_record(const Question &question, int result, const fi_info *answers,
                           const std::vector<Decision> &misses, const TreeOf &tree_of = {});

// The elements of a stack, from the application down. The last one may have branches.
struct ElementName {
  std::string name;
  std::vector<std::vector<ElementName>> branches = {};
};
using StackNames = std::vector<ElementName>;

// "rxm > tcp"; with branches "link > (shm | rxm > tcp)".
std::string text_of(const StackNames &stack);

// {"call": "fabric", "thread", "provider", "fabric", "stack": ["rxm", "tcp"] or, with branches,
// ["link", [["shm"], ["rxm", "tcp"]]], "result", "error": the reason in words}
std::string fabric_record(std::string_view provider, std::string_view fabric,
                          const StackNames &stack, int result, const std::string &reason);

}  // namespace weft

#endif
