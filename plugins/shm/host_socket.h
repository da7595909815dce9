// SPDX-License-Identifier: BSD-2-Clause
// Sockets with abstract names: how endpoints of a host find each other. Such a name is in no
// folder, and goes with its socket, so that nothing is left of a process that was killed.
//
// Example:
//    // A socket that listens as `name`, and one that is connected to it.
//    inline Result<sdk::UniqueFd> talk_to_self(const sdk::Address &name, sdk::UniqueFd &listener) {
//      WEFT_TRY(listener, listen_as(name, 16));
//      return connect_to(name);
//    }
//
// Packets are whole (SOCK_SEQPACKET), and no call blocks. Each end learns from the kernel which
// process the other is. Not for what packets say: wire/hello.h.
#ifndef WEFT_PLUGINS_SHM_HOST_SOCKET_H
#define WEFT_PLUGINS_SHM_HOST_SOCKET_H

#include <sys/socket.h>
#include <sys/types.h>
#include <weft/result.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cstdint>
#include <optional>
#include <span>

namespace weft::shm {

// FI_EADDRINUSE: another endpoint of this host has the name.
Result<sdk::UniqueFd> listen_as(const sdk::Address &name, int backlog);
// FI_ECONNREFUSED: no endpoint has the name; FI_EAGAIN: it has not answered others yet.
Result<sdk::UniqueFd> connect_to(const sdk::Address &name);
// Without a socket: there is no more, or an error.
sdk::UniqueFd accept_from(int listener);

// The process at the other end when the connection began: its listener's, or who connected. A PID
// of 0: the kernel does not show it here (another PID namespace). Nothing: the kernel does not
// tell.
struct Process {
  pid_t pid = 0;
  uid_t uid = 0;
};
std::optional<Process> process_of(int socket);

// One packet, perhaps with a descriptor. 0 or -errno.
int send_packet(int socket, std::span<const uint8_t> packet, int fd = -1);
// Its length; 0: the other end has closed its socket or is gone; -EAGAIN: nothing is there; or
// another -errno. All descriptors that come along are closed, but the first.
ssize_t receive_packet(int socket, std::span<uint8_t> packet, sdk::UniqueFd *fd = nullptr);
// Whether the other end has not closed its socket, as far as the kernel knows now.
bool is_alive(int socket);
// Closes it, also for a copy that a child has after fork(2).
void hang_up(sdk::UniqueFd &socket);

}  // namespace weft::shm

#endif
