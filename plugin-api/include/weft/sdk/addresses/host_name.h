// SPDX-License-Identifier: BSD-2-Clause
// kHostName: the format of an Address that is the name of an endpoint within its host.
//
// Example:
//    #include <weft/sdk/addresses/av.h>
//    // fi_av_open of a provider whose endpoints have names.
//    int open(DomainContext &domain, fi_av_attr *attr, fid_av **av, void *context) {
//      return open_av(domain, FI_ADDR_STR, attr, av, context, "shm", kHostName);
//    }
//
// It is no format of OFI: applications see FI_ADDR_STR, fi_shm://NAME or fi_ns://NAME (fi_shm.7).
// The bytes are the name with zeros behind it, at least one. fi_av_insert takes pointers to texts,
// and, as stock's shm, the texts one behind the other. Not for names that other hosts know.
#ifndef WEFT_SDK_ADDRESSES_HOST_NAME_H
#define WEFT_SDK_ADDRESSES_HOST_NAME_H

#include <cstddef>
#include <cstdint>

namespace weft::sdk {

inline constexpr uint32_t kHostName = 31;
inline constexpr size_t kHostNameSize =
    46;  // bytes, as many as a shared address vector has room for

}  // namespace weft::sdk

#endif
