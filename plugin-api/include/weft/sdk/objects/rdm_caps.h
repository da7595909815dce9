// SPDX-License-Identifier: BSD-2-Clause
// What RdmEndpoint, Receiver and DomainCore let a provider or a layer offer (fi_getinfo.3, caps).
//
// Example:
//    inline uint64_t offered(bool without_atomics) {
//      const uint64_t all = kRdmTransmitCaps | kRdmReceiveCaps;
//      return without_atomics ? all & ~uint64_t(FI_ATOMIC) : all;
//    }
//
// Not for the scope (FI_LOCAL_COMM, FI_REMOTE_COMM), which the network decides.
#ifndef WEFT_SDK_OBJECTS_RDM_CAPS_H
#define WEFT_SDK_OBJECTS_RDM_CAPS_H

#include <rdma/fabric.h>

#include <cstdint>

namespace weft::sdk {

inline constexpr uint64_t kRdmTransmitCaps =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE | FI_TRIGGER | FI_FENCE;
inline constexpr uint64_t kRdmReceiveCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV |
                                            FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV |
                                            FI_DIRECTED_RECV | FI_SOURCE | FI_SOURCE_ERR |
                                            FI_AV_USER_ID | FI_RMA_EVENT | FI_PEER | FI_TRIGGER;

}  // namespace weft::sdk

#endif
