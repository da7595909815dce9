// SPDX-License-Identifier: BSD-2-Clause
// Arrivals: at which addresses of this host the datagrams of a socket come that is bound to all of
// them. The kernel tells (ip.7, IP_PKTINFO; ipv6.7, IPV6_RECVPKTINFO), which costs time: so it is
// asked for a number of datagrams only.
//
// Example:
//    // A read of one datagram, while arrivals.wanted().
//    inline ssize_t read(int fd, Arrivals &arrivals, iovec &to) {
//      alignas(cmsghdr) char control[Arrivals::kControl];
//      msghdr message{};
//      message.msg_iov = &to;
//      message.msg_iovlen = 1;
//      message.msg_control = control;
//      message.msg_controllen = sizeof control;
//      const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT);
//      if (n >= 0) arrivals.note(message, fd);
//      return n;
//    }
//
// Not for who has sent a datagram, nor for datagrams to groups.
#ifndef WEFT_PLUGINS_UDP_ARRIVALS_H
#define WEFT_PLUGINS_UDP_ARRIVALS_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <weft/sdk/ip/sock_addr.h>

#include <optional>
#include <vector>

namespace weft::udp {

class Arrivals {
 public:
  static constexpr size_t kControl = CMSG_SPACE(sizeof(in6_pktinfo));  // bytes for one datagram

  // Notes where the next datagrams come. `name`: of the socket `fd`.
  void want(int fd, const sdk::SockAddr &name);
  bool wanted() const { return left_ != 0; }
  // Of a datagram, or of several to the same address.
  void note(const msghdr &message, int fd);
  // An address that was noted, each only once.
  std::optional<sdk::SockAddr> next();

 private:
  static constexpr unsigned kNoted = 64;  // datagrams
  static constexpr size_t kMostAddresses = 64;

  void add(const sdk::SockAddr &address);
  void tell(int fd, bool on) const;

  sdk::SockAddr name_;
  unsigned left_ = 0;
  std::vector<sdk::SockAddr> noted_;
  size_t given_ = 0;  // of noted_
};

}  // namespace weft::udp

#endif
