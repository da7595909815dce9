// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/socket.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cerrno>
#include <cstring>

namespace weft::tcp {

std::string descriptor_error(int error) {
  if (error == EMFILE) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return "too many open files: the limit of this process is " + std::to_string(limit.rlim_cur) +
           "; raise it with `ulimit -n` (hard limit " + std::to_string(limit.rlim_max) + ")";
  }
  if (error == ENFILE) return "too many open files in the system: raise sysctl fs.file-max";
  return strerror(error);
}

size_t descriptor_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? size_t(limit.rlim_cur) : 1024;
}

void apply_settings(int fd, const Settings &settings) {
  const int on = 1;
  if (settings.nodelay) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (settings.send_buffer != 0)
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &settings.send_buffer, sizeof settings.send_buffer);
  if (settings.recv_buffer != 0)
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &settings.recv_buffer, sizeof settings.recv_buffer);
}

namespace {

std::string congestion_of(int fd) {
  char name[16] = {};  // TCP_CA_NAME_MAX of the kernel
  socklen_t size = sizeof name;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return {};
  return {name, strnlen(name, size)};
}

// A kernel without the algorithm, or that reserves it for root, keeps the one that it has. That is
// slower, but correct.
void set_congestion(int fd, const std::string &name) {
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), socklen_t(name.size()));
}

bool paces(const std::string &congestion) {
  return congestion.starts_with("bbr");
}

// The kernel goes on pacing a socket that has had an algorithm which paces, whatever it has later:
// a message of 64 KiB takes twice as long as one of 63. So sockets do not even begin with such a
// default, and get it back when the peer turns out to be on another host.
void begin_unpaced(int fd, const Settings &settings) {
  if (!settings.local_congestion.empty() && paces(congestion_of(fd)))
    set_congestion(fd, settings.local_congestion);
}

void end_unpaced(int fd, int family, const Settings &settings) {
  if (congestion_of(fd) != settings.local_congestion) return;
  const sdk::UniqueFd other(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string usual = congestion_of(other.get());
  if (paces(usual)) set_congestion(fd, usual);
}

bool is_on_this_host(int fd, const sdk::SockAddr &peer) {
  if (peer.is_loopback()) return true;
  const auto local = socket_name(fd);
  return local && local->same_prefix(peer, peer.family() == AF_INET6 ? 128 : 32);
}

}  // namespace

void apply_peer_settings(int fd, const Settings &settings) {
  if (settings.local_congestion.empty()) return;
  const auto peer = socket_peer(fd);
  if (!peer) return;
  if (is_on_this_host(fd, *peer))
    set_congestion(fd, settings.local_congestion);
  else
    end_unpaced(fd, peer->family(), settings);
}

bool has_unsent(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQNSD, &bytes) == 0 && bytes > 0;
}

void keep_alive(int fd) {
  const int on = 1, idle = 1, pause = 2, count = 15;  // seconds; half a minute in all
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

Result<int> open_socket(int family, const Settings &settings, uint8_t dscp) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    const int error = errno;
    return fail(error, "socket: %s", descriptor_error(error).c_str());
  }
  apply_settings(fd, settings);
  begin_unpaced(fd, settings);
  if (dscp == 0) return fd;
  if (auto done = sdk::set_dscp(fd, family, dscp); !done) {
    ::close(fd);
    return tl::unexpected(done.error());
  }
  return fd;
}

void share_port(int fd) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

Result<void> bind_socket(int fd, const sdk::SockAddr &address, BindFor what) {
  const int on = 1;
  const bool chooses = address.port() == 0;
  if (what == BindFor::kConnect && chooses)
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  if (what != BindFor::kListen && !chooses) share_port(fd);
  if (::bind(fd, address.c(), address.size()) == 0) return {};
  int error = errno;
  if (what == BindFor::kListen && error == EADDRINUSE && !chooses) {
    // Connections of an earlier listener may still have the port.
    share_port(fd);
    if (::bind(fd, address.c(), address.size()) == 0) return {};
    error = errno;
  }
  return fail(error, "bind to %s: %s%s", address.to_string().c_str(), strerror(error),
              error == EADDRNOTAVAIL ? "; no interface has this address"
              : error == EADDRINUSE  ? "; another socket has this port"
                                     : "");
}

Result<sdk::UniqueFd> named_socket(const sdk::Address &local, const Settings &settings,
                                   uint8_t dscp) {
  WEFT_TRY(const sdk::SockAddr address, sdk::SockAddr::from(local));
  WEFT_TRY(const int fd, open_socket(address.family(), settings, dscp));
  sdk::UniqueFd opened(fd);
  WEFT_CHECK(bind_socket(fd, address, BindFor::kName));
  return opened;
}

sdk::Address local_name(int fd, const sdk::Address &asked) {
  const auto name = socket_name(fd);
  return name ? sdk::Address(*name) : asked;
}

}  // namespace weft::tcp
