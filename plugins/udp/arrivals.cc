// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/arrivals.h"

#include <algorithm>
#include <cstring>

namespace weft::udp {

void Arrivals::tell(int fd, bool on) const {
  const int value = on;
  if (name_.family() == AF_INET)
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &value, sizeof value);
  else
    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &value, sizeof value);
}

void Arrivals::want(int fd, const sdk::SockAddr &name) {
  if (noted_.size() == kMostAddresses) return;
  name_ = name;
  if (left_ == 0) tell(fd, true);
  left_ = kNoted;
}

void Arrivals::note(const msghdr &message, int fd) {
  for (const cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr *>(&message), const_cast<cmsghdr *>(c))) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr = info.ipi_addr;
      // They differ for groups and broadcasts.
      if (info.ipi_addr.s_addr == info.ipi_spec_dst.s_addr) add(sdk::SockAddr(address));
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_addr = info.ipi6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) address.sin6_scope_id = info.ipi6_ifindex;
      if (!IN6_IS_ADDR_MULTICAST(&info.ipi6_addr)) add(sdk::SockAddr(address));
    }
  }
  if (--left_ == 0) tell(fd, false);
}

void Arrivals::add(const sdk::SockAddr &address) {
  sdk::SockAddr named = address;
  named.set_port(name_.port());
  if (noted_.size() < kMostAddresses && std::ranges::find(noted_, named) == noted_.end())
    noted_.push_back(named);
}

std::optional<sdk::SockAddr> Arrivals::next() {
  if (given_ == noted_.size()) return std::nullopt;
  return noted_[given_++];
}

}  // namespace weft::udp
