// SPDX-License-Identifier: BSD-2-Clause
// The network that a NIC in software is in, and the socket calls for it.
//
// Example:
//    // The IPv4 address of a NIC that ours, 10.1.2.3, calls 0x10204.
//    static_assert(address_of(0x0a010203, 0x10204) == 0x0a010204);
//    static_assert(!reaches_other_hosts(0x7f000001));
//
// Addresses are in the order of the host. All sockets are non-blocking. Not for what is said on
// them.
#ifndef WEFT_PLUGINS_CXI_SOFT_NETWORK_H
#define WEFT_PLUGINS_CXI_SOFT_NETWORK_H

#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cstdint>
#include <string>

#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

constexpr uint32_t address_of(uint32_t own, Nid nid) {
  return (own & ~kMaxNid) | nid;
}
constexpr bool is_in_network_of(uint32_t own, uint32_t address) {
  return ((own ^ address) & ~kMaxNid) == 0;
}
// 127.0.0.0/8 is within the host.
constexpr bool reaches_other_hosts(uint32_t address) {
  return address >> 24 != 127;
}
std::string text_of_address(uint32_t address);

// Whether an interface of this host has it.
bool is_own_address(uint32_t address);

// Port 0: any that is free. `is_shared`: other processes of the user may listen there, too, and the
// kernel gives a caller to one of them.
Result<sdk::UniqueFd> listen_at(uint32_t address, uint16_t port, bool is_shared);
uint16_t port_of(int socket);
uint32_t caller_of(int socket);  // its address; 0: it has gone

// A connection on its way, from any port of `from`. None: errno says why.
sdk::UniqueFd call_at(uint32_t from, uint32_t to, uint16_t port);

// Has the kernel ask now and then whether the other host is there. `timeout_ms`: as of is_silent().
void keep_alive(int socket, unsigned timeout_ms);
// Whether the other host has not said a word for so long, though it was asked. A process that does
// not read is not silent: its kernel answers for it.
bool is_silent(int socket, unsigned timeout_ms);

}  // namespace weft::cxi

#endif
