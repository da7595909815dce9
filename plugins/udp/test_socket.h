// SPDX-License-Identifier: BSD-2-Clause
// A plain UDP socket as a peer in tests.
//
// Example (statements):
//    TestSocket here, there;
//    here.send(there.name(), pattern(100, /*seed=*/1));
//    here.send_cut(there.name(), pattern(3000, /*seed=*/2), 1000);  // three datagrams
//    const std::optional<Bytes> first = there.receive();  // 100 bytes; null: nothing came
//
// Not for a peer on another host.
#ifndef WEFT_PLUGINS_UDP_TEST_SOCKET_H
#define WEFT_PLUGINS_UDP_TEST_SOCKET_H

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/ip/sock_addr.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::udp {

using Bytes = std::vector<uint8_t>;

// Bytes that depend on the datagram and the position in it.
inline Bytes pattern(size_t size, unsigned seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = uint8_t(i * 31 + (i >> 8) * 7 + seed * 13 + 1);
  return bytes;
}

class TestSocket {
 public:
  explicit TestSocket(const sdk::SockAddr &local = sdk::SockAddr::loopback(AF_INET))
      : fd_(::socket(local.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0 || ::bind(fd_, local.c(), local.size()) != 0) give_up("bind");
    const int size = 8 << 20;
    if (setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) != 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  }
  ~TestSocket() { ::close(fd_); }
  TestSocket(const TestSocket &) = delete;
  TestSocket &operator=(const TestSocket &) = delete;

  int fd() const { return fd_; }
  sdk::SockAddr name() const { return *sdk::socket_name(fd_); }

  void send(const sdk::SockAddr &to, const Bytes &bytes) {
    if (::sendto(fd_, bytes.data(), bytes.size(), 0, to.c(), to.size()) != ssize_t(bytes.size()))
      give_up("sendto");
  }
  void send_cut(const sdk::SockAddr &to, const Bytes &bytes, uint16_t segment) {
    iovec iov{const_cast<uint8_t *>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof segment)] = {};
    msghdr message{};
    message.msg_name = const_cast<sockaddr *>(to.c());
    message.msg_namelen = to.size();
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof segment);
    std::memcpy(CMSG_DATA(header), &segment, sizeof segment);
    if (::sendmsg(fd_, &message, 0) != ssize_t(bytes.size())) give_up("sendmsg of segments");
  }
  std::optional<Bytes> receive() {
    Bytes bytes(65536);
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EAGAIN) return {};
    if (n < 0) give_up("recv");
    bytes.resize(size_t(n));
    return bytes;
  }

 private:
  [[noreturn]] static void give_up(const char *what) {
    throw std::runtime_error(std::string(what) + ": " + strerror(errno));
  }
  const int fd_;
};

}  // namespace weft::udp

#endif
