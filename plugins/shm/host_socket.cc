// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/host_socket.h"

#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace weft::shm {
namespace {

constexpr char kPrefix[] = "weft-shm/";
constexpr size_t kPrefixSize = sizeof kPrefix - 1;
constexpr size_t kMostDescriptors = 4;  // that are received, to be closed

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;
};

// "\0weft-shm/NAME", without a zero at its end.
Name socket_name(const sdk::Address &name) {
  static_assert(sizeof(sockaddr_un::sun_path) >= 1 + kPrefixSize + sdk::Address::kMaxSize);
  Name out;
  out.address.sun_family = AF_UNIX;
  char *const at = out.address.sun_path + 1;
  std::memcpy(at, kPrefix, kPrefixSize);
  const size_t size = strnlen(static_cast<const char *>(name.data()), name.size());
  std::memcpy(at + kPrefixSize, name.data(), size);
  out.size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + kPrefixSize + size);
  return out;
}

sdk::UniqueFd open_socket() {
  return sdk::UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

Result<sdk::UniqueFd> listen_as(const sdk::Address &name, int backlog) {
  sdk::UniqueFd fd = open_socket();
  if (fd.get() < 0) return fail(errno, "socket: %s: see `ulimit -n`", strerror(errno));
  const Name at = socket_name(name);
  if (bind(fd.get(), reinterpret_cast<const sockaddr *>(&at.address), at.size) != 0)
    return fail(errno, "the name %s cannot be had on this host: %s", name.to_string().c_str(),
                strerror(errno));
  if (listen(fd.get(), backlog) != 0) return fail(errno, "listen: %s", strerror(errno));
  return fd;
}

Result<sdk::UniqueFd> connect_to(const sdk::Address &name) {
  sdk::UniqueFd fd = open_socket();
  if (fd.get() < 0) return fail(errno, "socket: %s: see `ulimit -n`", strerror(errno));
  const Name at = socket_name(name);
  if (connect(fd.get(), reinterpret_cast<const sockaddr *>(&at.address), at.size) != 0)
    return fail(errno == EINTR ? FI_EAGAIN : errno, "%s cannot be reached: %s",
                name.to_string().c_str(), strerror(errno));
  return fd;
}

sdk::UniqueFd accept_from(int listener) {
  return sdk::UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::optional<Process> process_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return Process{.pid = credentials.pid, .uid = credentials.uid};
}

int send_packet(int socket, std::span<const uint8_t> packet, int fd) {
  iovec part{const_cast<uint8_t *>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ssize_t n;
  do {
    n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : 0;
}

ssize_t receive_packet(int socket, std::span<uint8_t> packet, sdk::UniqueFd *fd) {
  iovec part{packet.data(), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return -errno;
  for (cmsghdr *h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int one;
      std::memcpy(&one, CMSG_DATA(h) + i * sizeof one, sizeof one);
      sdk::UniqueFd held(one);
      if (fd != nullptr && fd->get() < 0) *fd = std::move(held);
    }
  }
  return message.msg_flags & MSG_TRUNC ? -EMSGSIZE : n;
}

void hang_up(sdk::UniqueFd &socket) {
  if (socket.get() >= 0) shutdown(socket.get(), SHUT_RDWR);
  socket.reset();
}

bool is_alive(int socket) {
  pollfd one{socket, POLLRDHUP, 0};
  int n;
  do {
    n = poll(&one, 1, 0);
  } while (n < 0 && errno == EINTR);
  return n == 0;
}

}  // namespace weft::shm
