// SPDX-License-Identifier: BSD-2-Clause
// Whether units can stand over each other as a stack says, judged before anything is loaded.
//
// Example (statements):
//    const weft::ElementKind tcp{"tcp", WEFT_KIND_PROVIDER, 0, WEFT_EP_BIT(FI_EP_MSG)};
//    const weft::ElementKind shm{"shm", WEFT_KIND_PROVIDER, 0, WEFT_EP_BIT(FI_EP_RDM)};
//    const weft::ElementKind rxm{"rxm", WEFT_KIND_LAYER, WEFT_EP_BIT(FI_EP_MSG),
//                                WEFT_EP_BIT(FI_EP_RDM)};
//    weft::ElementKind link{"link", WEFT_KIND_LAYER, WEFT_EP_BIT(FI_EP_RDM),
//                           WEFT_EP_BIT(FI_EP_RDM)};
//    link.inner_max = 4;
//    link.branches = {{shm}, {rxm, tcp}};
//    const weft::Result<void> order = weft::check_order({link});
//
// Not for the names of units and for what the policy says of them: core/select.
#ifndef WEFT_CORE_STACK_CHECK_ORDER_H
#define WEFT_CORE_STACK_CHECK_ORDER_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct ElementKind {
  std::string name;
  uint32_t kind = 0;
  uint32_t needs_ep = 0, offers_ep = 0;   // 0: not stated
  uint32_t inner_min = 1, inner_max = 1;  // layers: how many providers it takes
  // Of the last element of a chain, if it is a layer over several providers: a chain for each.
  std::vector<std::vector<ElementKind>> branches = {};
};

// `elements` run from the application down. One provider is at the bottom of each branch. Each
// layer stands over as many providers as it takes, and each of them offers an endpoint type that it
// needs. No layer stands beneath itself, and no hook twice on one element.
Result<void> check_order(const std::vector<ElementKind> &elements);

}  // namespace weft

#endif
