// SPDX-License-Identifier: BSD-2-Clause
// The socket calls of the tcp provider, with errors that name the limit that was reached.
//
// Example:
//    #include <sys/socket.h>
//    #include <unistd.h>
//    #include <cstring>
//    // A connection on its way to a peer, from a port of this address.
//    inline Result<int> connect(const sdk::SockAddr &from, const sdk::SockAddr &to,
//                               const Settings &settings) {
//      WEFT_TRY(const int fd, open_socket(to.family(), settings));
//      Result<void> done = bind_socket(fd, from);
//      if (done && ::connect(fd, to.c(), to.size()) != 0 && errno != EINPROGRESS)
//        done = fail(errno, "connect to %s: %s", to.to_string().c_str(), strerror(errno));
//      if (done) return fd;  // when it is writable: apply_peer_settings()
//      ::close(fd);
//      return tl::unexpected(done.error());
//    }
//
// Not for the bytes on the socket: stream.h, attempt.h.
#ifndef WEFT_PLUGINS_TCP_SOCKET_H
#define WEFT_PLUGINS_TCP_SOCKET_H

#include <weft/result.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/progress/unique_fd.h>

#include <optional>
#include <string>

#include "plugins/tcp/settings.h"

namespace weft::tcp {

// A non-blocking stream socket with the settings applied, whose packets have this DSCP.
Result<int> open_socket(int family, const Settings &settings, uint8_t dscp = 0);
void apply_settings(int fd, const Settings &settings);
// Settings that depend on the peer's address; for a connected socket.
void apply_peer_settings(int fd, const Settings &settings);
// What for: kConnect lets the kernel choose a port at connect(), if none is given. kName has one at
// once. kListen has it alone: nobody else binds to it before listen(), for which share_port() makes
// it ready.
enum class BindFor { kConnect, kName, kListen };
Result<void> bind_socket(int fd, const sdk::SockAddr &address, BindFor what = BindFor::kConnect);
// Without it a connection blocks the port for the next listener for a while. Accepted sockets
// inherit it.
void share_port(int fd);
// A socket of a connected endpoint with this name, and its name as it is then.
Result<sdk::UniqueFd> named_socket(const sdk::Address &local, const Settings &settings,
                                   uint8_t dscp);
sdk::Address local_name(int fd, const sdk::Address &asked);
using sdk::socket_name;
using sdk::socket_peer;

// Time for a peer's next answer if we read its last one too late.
inline constexpr uint64_t kLateAnswerNs = 1'000'000'000;

// "Too many open files: 1024 of 1024 are in use; raise `ulimit -n`" for EMFILE and ENFILE; strerror
// otherwise.
std::string descriptor_error(int error);

// How many descriptors this process may have open.
size_t descriptor_limit();

// Whether the kernel holds bytes for which the peer has no room: it drops them when the socket is
// closed and the peer sends something.
bool has_unsent(int fd);

// Has the kernel ask the other host, within seconds, whether the connection still exists. The host
// of a peer that was restarted answers that it does not.
void keep_alive(int fd);

}  // namespace weft::tcp

#endif
