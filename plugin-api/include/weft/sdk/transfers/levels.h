// SPDX-License-Identifier: BSD-2-Clause
// The completion levels: operation flags that say when an operation counts as complete
// (fi_cq.3, fi_endpoint.3).
//
// Example:
//    constexpr uint64_t kSendFlags = FI_COMPLETION | FI_INJECT | FI_MORE | kLevelFlags;
//    bool awaits_peer(uint64_t flags) { return (flags & kRemoteLevels) != 0; }
//
// Not for what an endpoint offers: a provider removes the levels that it does not have.
#ifndef WEFT_SDK_TRANSFERS_LEVELS_H
#define WEFT_SDK_TRANSFERS_LEVELS_H

#include <rdma/fabric.h>

#include <cstdint>

namespace weft::sdk {

// All levels.
inline constexpr uint64_t kLevelFlags = FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
                                        FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE |
                                        FI_COMMIT_COMPLETE;

// The levels of messages that are reached only with the peer's acknowledgement. A match needs a
// receive, so remote accesses have no FI_MATCH_COMPLETE.
inline constexpr uint64_t kRemoteLevels = kLevelFlags & ~uint64_t(FI_INJECT_COMPLETE);
inline constexpr uint64_t kRmaRemoteLevels = kRemoteLevels & ~uint64_t(FI_MATCH_COMPLETE);

}  // namespace weft::sdk

#endif
