// SPDX-License-Identifier: BSD-2-Clause
// The socket calls of the udp provider, with errors that name the limit that was reached.
//
// Example:
//    // A socket that gets the datagrams of a group, on the interface that has the address `local`.
//    inline Result<UniqueFd> open_member(const Settings &settings, const sdk::SockAddr &group,
//                                        const sdk::SockAddr &local) {
//      WEFT_TRY(UniqueFd fd, open_socket(group.family(), settings));
//      WEFT_CHECK(bind_to_group(fd.get(), group));
//      WEFT_CHECK(join_group(fd.get(), group, local));
//      return fd;
//    }
//
// Not for sending and receiving: outlet.h, inlet.h.
#ifndef WEFT_PLUGINS_UDP_SOCKET_H
#define WEFT_PLUGINS_UDP_SOCKET_H

#include <weft/result.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/progress/unique_fd.h>

#include <span>

#include "plugins/udp/settings.h"

namespace weft::udp {

using sdk::UniqueFd;

// A non-blocking datagram socket with the settings applied. An IPv6 socket takes no IPv4, so that
// an address has one form only.
Result<UniqueFd> open_socket(int family, const Settings &settings);
Result<void> bind_socket(int fd, const sdk::SockAddr &address);

bool is_multicast(const sdk::SockAddr &address);
// Datagrams for groups leave by the interface that has the address `local`.
Result<void> send_groups_from(int fd, const sdk::SockAddr &local);
// Membership of `group` on the interface that has the address `local` (any: the kernel chooses by
// its routes; an IPv6 scope in the group comes first).
Result<void> join_group(int fd, const sdk::SockAddr &group, const sdk::SockAddr &local);
// The socket keeps the network's errors for datagrams that it sent, for read_error().
Result<void> tell_errors(int fd);
struct NetworkError {
  int error = 0;        // errno
  bool remote = false;  // reported by ICMP, not by this host
  sdk::SockAddr to;     // destination of the datagram
  size_t length = 0;    // bytes of the datagram that came back
};
// The next of these errors. False: there is none.
bool read_error(int fd, std::span<char> datagram, NetworkError &out);
void leave_group(int fd, const sdk::SockAddr &group, const sdk::SockAddr &local);
// Several sockets of this host may be bound to the group's address, and all get its datagrams.
Result<void> bind_to_group(int fd, const sdk::SockAddr &group);

}  // namespace weft::udp

#endif
