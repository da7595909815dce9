// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/fuzz/sockets.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <set>

extern "C" {
int __real_socket(int domain, int type, int protocol);
int __real_bind(int fd, const sockaddr *address, socklen_t size);
int __real_connect(int fd, const sockaddr *address, socklen_t size);
int __real_getsockname(int fd, sockaddr *address, socklen_t *size);
int __real_getpeername(int fd, sockaddr *address, socklen_t *size);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __real_poll(pollfd *fds, nfds_t count, int timeout);
int __real_getpid(void);
}

namespace weft::tcp::fuzz {
namespace {

struct Network {
  uint64_t now_ns = 0;
  uint64_t random = 0;
  uint16_t next_port = 0;
  int process = 1;
  int send_buffer = 0;
  std::set<int> refused;  // connect() failed, which TCP would report later
};
Network net;

// The name in the abstract name space: a zero, a mark, the process, address and port.
constexpr char kMark[] = "weft-fuzz";
constexpr size_t kAddressAt = 1 + sizeof kMark + sizeof(int);
constexpr size_t kNameSize = kAddressAt + 6;

socklen_t to_local(const sockaddr_in &in, sockaddr_un &un) {
  un = {};
  un.sun_family = AF_UNIX;
  const int process = __real_getpid();
  std::memcpy(un.sun_path + 1, kMark, sizeof kMark);
  std::memcpy(un.sun_path + 1 + sizeof kMark, &process, sizeof process);
  std::memcpy(un.sun_path + kAddressAt, &in.sin_addr, 4);
  std::memcpy(un.sun_path + kAddressAt + 4, &in.sin_port, 2);
  return offsetof(sockaddr_un, sun_path) + kNameSize;
}

int from_local(const sockaddr_un &un, socklen_t un_size, sockaddr *out, socklen_t *size) {
  if (un_size < offsetof(sockaddr_un, sun_path) + kNameSize) {
    errno = ENOTCONN;
    return -1;
  }
  sockaddr_in in{};
  in.sin_family = AF_INET;
  std::memcpy(&in.sin_addr, un.sun_path + kAddressAt, 4);
  std::memcpy(&in.sin_port, un.sun_path + kAddressAt + 4, 2);
  std::memcpy(out, &in, std::min<size_t>(*size, sizeof in));
  *size = sizeof in;
  return 0;
}

int bind_local(int fd, sockaddr_in in) {
  sockaddr_un un;
  if (in.sin_port != 0) return __real_bind(fd, reinterpret_cast<sockaddr *>(&un), to_local(in, un));
  for (int i = 0; i < 1000; ++i) {
    in.sin_port = htons(net.next_port++);
    const socklen_t size = to_local(in, un);
    if (__real_bind(fd, reinterpret_cast<sockaddr *>(&un), size) == 0) return 0;
    if (errno != EADDRINUSE) return -1;
  }
  return -1;
}

}  // namespace

void reset_network(uint64_t seed) {
  net = {};
  net.now_ns = 1'000'000'000;
  net.random = seed;
  net.next_port = 20000;
}
void set_process(int process) {
  net.process = process;
}
void set_send_buffer(int bytes) {
  net.send_buffer = bytes;
}
void pass_time(uint64_t ns) {
  net.now_ns += ns;
}

sockaddr_in address_of(uint8_t host, uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(0x0a000000u | host);
  in.sin_port = htons(port);
  return in;
}

}  // namespace weft::tcp::fuzz

using weft::tcp::fuzz::net;

extern "C" {

int __wrap_socket(int domain, int type, int protocol) {
  if (domain != AF_INET) return __real_socket(domain, type, protocol);
  const int fd = __real_socket(AF_UNIX, type, 0);
  if (fd < 0) return fd;
  net.refused.erase(fd);
  if (net.send_buffer != 0)
    __real_setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &net.send_buffer, sizeof net.send_buffer);
  return fd;
}

int __wrap_bind(int fd, const sockaddr *address, socklen_t size) {
  if (address->sa_family != AF_INET) return __real_bind(fd, address, size);
  sockaddr_in in;
  std::memcpy(&in, address, sizeof in);
  return weft::tcp::fuzz::bind_local(fd, in);
}

int __wrap_connect(int fd, const sockaddr *address, socklen_t size) {
  if (address->sa_family != AF_INET) return __real_connect(fd, address, size);
  sockaddr_un own{};
  socklen_t own_size = sizeof own;
  __real_getsockname(fd, reinterpret_cast<sockaddr *>(&own), &own_size);
  if (own_size <= offsetof(sockaddr_un, sun_path) &&
      weft::tcp::fuzz::bind_local(fd, weft::tcp::fuzz::address_of(250, 0)) != 0)
    return -1;
  sockaddr_in in;
  std::memcpy(&in, address, sizeof in);
  sockaddr_un un;
  const socklen_t un_size = weft::tcp::fuzz::to_local(in, un);
  if (__real_connect(fd, reinterpret_cast<sockaddr *>(&un), un_size) == 0) return 0;
  net.refused.insert(fd);
  errno = EINPROGRESS;
  return -1;
}

int __wrap_getsockname(int fd, sockaddr *address, socklen_t *size) {
  sockaddr_un un{};
  socklen_t un_size = sizeof un;
  if (__real_getsockname(fd, reinterpret_cast<sockaddr *>(&un), &un_size) != 0) return -1;
  return weft::tcp::fuzz::from_local(un, un_size, address, size);
}

int __wrap_getpeername(int fd, sockaddr *address, socklen_t *size) {
  sockaddr_un un{};
  socklen_t un_size = sizeof un;
  if (__real_getpeername(fd, reinterpret_cast<sockaddr *>(&un), &un_size) != 0) return -1;
  return weft::tcp::fuzz::from_local(un, un_size, address, size);
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
  if (level != SOL_SOCKET || name == SO_REUSEADDR) return 0;
  return __real_setsockopt(fd, level, name, value, size);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size) {
  if (level != SOL_SOCKET || name != SO_ERROR || net.refused.count(fd) == 0)
    return __real_getsockopt(fd, level, name, value, size);
  const int error = ECONNREFUSED;
  std::memcpy(value, &error, sizeof error);
  return 0;
}

// The process has one thread: a socket that is not ready now is not ready before the timeout.
int __wrap_poll(pollfd *fds, nfds_t count, int timeout) {
  const int ready = __real_poll(fds, count, 0);
  if (ready == 0 && timeout != 0)
    net.now_ns += timeout > 0 ? uint64_t(timeout) * 1'000'000u : 1'000'000'000u;
  return ready;
}

int __wrap_clock_gettime(clockid_t, timespec *out) {
  net.now_ns += 50;
  out->tv_sec = time_t(net.now_ns / 1'000'000'000u);
  out->tv_nsec = long(net.now_ns % 1'000'000'000u);
  return 0;
}

int __wrap_getpid(void) {
  return net.process;
}

ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned) {
  auto *out = static_cast<uint8_t *>(buffer);
  for (size_t i = 0; i < size; ++i) {
    net.random = net.random * 6364136223846793005u + 1442695040888963407u;
    out[i] = uint8_t(net.random >> 56);
  }
  return ssize_t(size);
}

}  // extern "C"
