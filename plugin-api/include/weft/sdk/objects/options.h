// SPDX-License-Identifier: BSD-2-Clause
// What endpoints of every kind answer to fi_getopt and fi_control in the same way.
//
// Example:
//    struct Endpoint {
//      int getopt(int, int name, void *value, size_t *length) {
//        if (name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
//        return get_option(min_multi_recv, value, length);
//      }
//      int control(int command, void *arg) {
//        return control_op_flags(command, arg, FI_COMPLETION | FI_INJECT, &tx_flags, &rx_flags);
//      }
//      size_t min_multi_recv = 64;
//      uint64_t tx_flags = 0, rx_flags = 0;
//    };
//
// It takes no lock and knows no option.
#ifndef WEFT_SDK_OBJECTS_OPTIONS_H
#define WEFT_SDK_OBJECTS_OPTIONS_H

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>

namespace weft::sdk {

// Operation flags that a receive may have.
inline constexpr uint64_t kRecvFlags = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;

// An option that is a size: 0; -FI_ETOOSMALL with the length that is needed; -FI_EINVAL.
int get_option(size_t option, void *value, size_t *length);
// The same in the other direction: its length must be that of the option.
int set_option(size_t &option, const void *value, size_t length);

// FI_GETOPSFLAG and FI_SETOPSFLAG (fi_endpoint.3: FI_TRANSMIT or FI_RECV among the flags says which
// side); -FI_ENOSYS for all other commands. `tx` or `rx` is null where there is no such side;
// `tx_known` are the flags that transmits may have, `rx_known` those of receives.
int control_op_flags(int command, void *arg, uint64_t tx_known, uint64_t *tx, uint64_t *rx,
                     uint64_t rx_known = kRecvFlags);

}  // namespace weft::sdk

#endif
