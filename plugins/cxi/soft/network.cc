// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::cxi {
namespace {

constexpr int kCallers = 1024;  // that wait in the kernel

sockaddr_in socket_address(uint32_t address, uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(address);
  return to;
}

sdk::UniqueFd stream_socket() {
  return sdk::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

bool bind_to(int socket, uint32_t address, uint16_t port) {
  const sockaddr_in at = socket_address(address, port);
  return ::bind(socket, reinterpret_cast<const sockaddr *>(&at), sizeof at) == 0;
}

// Why a NIC cannot listen, with what can be done.
tl::unexpected<Error> refusal(uint32_t address, uint16_t port, int code) {
  const std::string at = text_of_address(address);
  if (code == EADDRNOTAVAIL)
    return fail(code,
                "cxi: no interface of this host has %s: FI_CXI_SOFT_DEVICES wants an address of "
                "this host",
                at.c_str());
  if (code == EADDRINUSE)
    return fail(code,
                "cxi: port %u of %s belongs to another program or user: set FI_CXI_SOFT_PORT, the "
                "same on all hosts",
                port, at.c_str());
  return fail(code, "cxi: the NIC cannot listen at %s, port %u: %s", at.c_str(), port,
              strerror(code));
}

}  // namespace

std::string text_of_address(uint32_t address) {
  char text[INET_ADDRSTRLEN];
  const in_addr in{htonl(address)};
  return ::inet_ntop(AF_INET, &in, text, sizeof text) != nullptr ? text : "";
}

bool is_own_address(uint32_t address) {
  const sdk::UniqueFd fd = stream_socket();
  return fd.get() >= 0 && bind_to(fd.get(), address, 0);
}

Result<sdk::UniqueFd> listen_at(uint32_t address, uint16_t port, bool is_shared) {
  sdk::UniqueFd fd = stream_socket();
  if (fd.get() < 0) return refusal(address, port, errno);
  set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (is_shared) set(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
  if (!bind_to(fd.get(), address, port) || ::listen(fd.get(), kCallers) != 0)
    return refusal(address, port, errno);
  return fd;
}

uint16_t port_of(int socket) {
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr *>(&own), &size) != 0) return 0;
  return ntohs(own.sin_port);
}

uint32_t caller_of(int socket) {
  sockaddr_in peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(socket, reinterpret_cast<sockaddr *>(&peer), &size) != 0) return 0;
  return ntohl(peer.sin_addr.s_addr);
}

sdk::UniqueFd call_at(uint32_t from, uint32_t to, uint16_t port) {
  sdk::UniqueFd fd = stream_socket();
  if (fd.get() < 0) return fd;
  // Only the address: the kernel chooses the port when it knows the other end, so that there are
  // as many as it needs.
  set(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  set(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  const sockaddr_in at = socket_address(to, port);
  if (bind_to(fd.get(), from, 0) &&
      (::connect(fd.get(), reinterpret_cast<const sockaddr *>(&at), sizeof at) == 0 ||
       errno == EINPROGRESS))
    return fd;
  const int code = errno;
  fd.reset();
  errno = code;
  return fd;
}

void keep_alive(int socket, unsigned timeout_ms) {
  const int pause = int(std::max(1u, timeout_ms / 3000));
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, pause);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool is_silent(int socket, unsigned timeout_ms) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const uint32_t silence = std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv);
  // Questions of the kernel: bytes that were not acknowledged, or probes.
  return silence > timeout_ms && (info.tcpi_unacked != 0 || info.tcpi_probes >= 2);
}

}  // namespace weft::cxi
