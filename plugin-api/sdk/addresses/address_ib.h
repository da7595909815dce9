// SPDX-License-Identifier: BSD-2-Clause
// Where the fields of FI_SOCKADDR_IB and FI_ADDR_IB_UD stand. There is no struct, because
// rdma-core's headers define one of the same name.
//
// Example (statements):
//    unsigned char name[ib_ud::kSize] = {};
//    const uint32_t queue_pair = 17;
//    std::memcpy(name + ib_ud::kQueuePair, &queue_pair, sizeof queue_pair);
//
// Not for queue pairs or address handles: those are the provider's.
#ifndef WEFT_SDK_ADDRESSES_ADDRESS_IB_H
#define WEFT_SDK_ADDRESSES_ADDRESS_IB_H

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::sdk {

inline constexpr sa_family_t kFamilyIb = 27;  // AF_IB

// struct sockaddr_ib (infiniband/ib.h); all numbers in network order.
namespace ib {
inline constexpr size_t kPartition = 2;     // 2 bytes
inline constexpr size_t kFlow = 4;          // 4
inline constexpr size_t kGid = 8;           // 16
inline constexpr size_t kService = 24;      // 8: the service id; its lowest 16 bits are the port
inline constexpr size_t kServiceMask = 32;  // 8
inline constexpr size_t kScope = 40;        // 8
inline constexpr size_t kSize = 48;
}  // namespace ib

// Numbers in the order of the processor.
namespace ib_ud {
inline constexpr size_t kGid = 0;            // 16 bytes
inline constexpr size_t kQueuePair = 16;     // 4
inline constexpr size_t kLid = 20;           // 2
inline constexpr size_t kPartition = 22;     // 2
inline constexpr size_t kService = 24;       // 2; 0: any
inline constexpr size_t kServiceLevel = 26;  // 1
inline constexpr size_t kPadding = 27;       // 5; 0
inline constexpr size_t kSize = 32;
}  // namespace ib_ud

}  // namespace weft::sdk

#endif
