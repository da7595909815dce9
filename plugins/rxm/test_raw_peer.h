// SPDX-License-Identifier: BSD-2-Clause
// RawPeer: a socket that is a peer of an endpoint of rxm over tcp. It says and reads frames of tcp
// with packets of rxm in them, one by one, acknowledges nothing, and knows no refusal, as stock
// peers.
//
// Example (statements):
//    Peer a;
//    RawPeer peer(a, {.level = 1});  // of rxm's extensions; 0: stock
//    must(fi_inject(a.ep, "x", 1, a.insert(peer.address())));
//    until({&a}, [&] { return peer.frame().has_value(); });
//
// Not for peers that use the API: test_peer.h.
#ifndef WEFT_PLUGINS_RXM_TEST_RAW_PEER_H
#define WEFT_PLUGINS_RXM_TEST_RAW_PEER_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "plugins/rxm/test_peer.h"
#include "plugins/rxm/wire/connect_data.h"
#include "plugins/rxm/wire/packet.h"

namespace weft::conformance {

struct RawOptions {
  uint8_t level = 0;
  int receive_buffer = 0;  // SO_RCVBUF; 0: the kernel's
};

class RawPeer {
 public:
  // Connects, and has the answer when this returns.
  RawPeer(Peer &to, const RawOptions &options) : address_(to.name) {
    address_.sin_port = htons(4242);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (options.receive_buffer != 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer, sizeof(int));
    if (fd_ < 0 ||
        ::connect(fd_, reinterpret_cast<const sockaddr *>(&to.name), sizeof to.name) != 0)
      throw std::runtime_error(std::string("connect: ") + strerror(errno));
    const rxm::ConnectBytes data = rxm::encode(rxm::ConnectData{.port = 4242,
                                                                .eager_limit = 16384,
                                                                .receive_count = 255,
                                                                .level = options.level,
                                                                .process = 1});
    std::string request("\3\0\0\0", 4);
    request[3] = char(data.size());
    request += std::string(20, '\0') + little(uint64_t(1)) +
               std::string(reinterpret_cast<const char *>(data.data()), data.size());
    say(request);
    constexpr size_t kAnswer = 32 + rxm::kAcceptSize;
    if (!until({&to}, [&] { return fill(kAnswer); }) || bytes_[1] != 1)
      throw std::runtime_error("the connection was not accepted");
    bytes_.erase(0, kAnswer);
  }
  ~RawPeer() { close(); }
  RawPeer(const RawPeer &) = delete;
  RawPeer &operator=(const RawPeer &) = delete;

  // By which the endpoint knows it.
  const sockaddr_in &address() const { return address_; }
  // The next frame, if all of it has come.
  std::optional<std::string> frame() {
    uint64_t size = 16;
    if (!fill(size)) return {};
    std::memcpy(&size, bytes_.data() + 8, sizeof size);
    if (!fill(size)) return {};
    std::string one = bytes_.substr(0, size);
    bytes_.erase(0, size);
    return one;
  }
  // The endpoint has closed the connection, and all that came is read.
  bool is_over() const { return is_over_; }
  // The header of the packet in a frame of a message.
  static rxm::WireHeader packet_of(const std::string &frame) {
    rxm::WireHeader header{};
    if (frame.size() >= 16 + sizeof header) std::memcpy(&header, frame.data() + 16, sizeof header);
    return header;
  }
  // A packet: its header and what follows it.
  template <class T>
  void packet(const rxm::WireHeader &header, const T &more) {
    std::string bytes("\3\0\0\0\0\0\20\0", 8);
    bytes += little(uint64_t(16 + sizeof header + sizeof more));
    bytes.append(reinterpret_cast<const char *>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char *>(&more), sizeof more);
    say(bytes);
  }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  static std::string little(uint64_t value) {
    return {reinterpret_cast<const char *>(&value), sizeof value};
  }
  void say(const std::string &bytes) {
    if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) != ssize_t(bytes.size()))
      throw std::runtime_error(std::string("send: ") + strerror(errno));
  }
  // Whether there are so many bytes by now.
  bool fill(size_t count) {
    char some[65536];
    while (bytes_.size() < count) {
      const ssize_t n = ::recv(fd_, some, sizeof some, MSG_DONTWAIT);
      is_over_ = n == 0 || (n < 0 && errno != EAGAIN);
      if (n <= 0) return false;
      bytes_.append(some, size_t(n));
    }
    return true;
  }

  sockaddr_in address_;
  int fd_ = -1;
  bool is_over_ = false;
  std::string bytes_;  // read, and not taken
};

}  // namespace weft::conformance

#endif
