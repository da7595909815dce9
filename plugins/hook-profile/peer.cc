// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-profile/peer.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace weft::profile {
namespace {

// An IPv6 address; an IPv4 address is mapped to one.
struct Place {
  in6_addr address{};
  in_port_t port = 0;
  bool known = false;
};

Place place_of(const void *address, size_t length) {
  Place place;
  sa_family_t family = AF_UNSPEC;
  if (length < sizeof(sockaddr_in)) return place;
  std::memcpy(&family, address, sizeof family);
  if (family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    place.address.s6_addr[10] = place.address.s6_addr[11] = 0xff;
    std::memcpy(&place.address.s6_addr[12], &in.sin_addr, 4);
    place.port = in.sin_port;
    place.known = true;
  } else if (family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in;
    std::memcpy(&in, address, sizeof in);
    place.address = in.sin6_addr;
    place.port = in.sin6_port;
    place.known = true;
  }
  return place;
}

bool same(const in6_addr &a, const in6_addr &b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

bool is_local(const in6_addr &address) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (IN6_IS_ADDR_LOOPBACK(&address) ||
      (std::memcmp(&address, kMapped, sizeof kMapped) == 0 && address.s6_addr[12] == 127))
    return true;
  ifaddrs *list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs *one = list; one != nullptr && !found; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const Place mine =
        place_of(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    found = mine.known && same(mine.address, address);
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

const char *peer_name(PeerClass where) {
  static constexpr const char *kNames[kPeerClasses] = {"any", "process", "host", "remote"};
  return kNames[where];
}

PeerClass peer_class(const void *address, size_t length, const std::vector<std::string> &own) {
  const Place peer = place_of(address, length);
  if (!peer.known) return kAny;
  if (!is_local(peer.address)) return kRemote;
  const bool here = std::any_of(own.begin(), own.end(), [&](const std::string &name) {
    const Place mine = place_of(name.data(), name.size());
    return mine.known && mine.port == peer.port &&
           (same(mine.address, peer.address) || IN6_IS_ADDR_UNSPECIFIED(&mine.address));
  });
  return here ? kProcess : kHost;
}

}  // namespace weft::profile
