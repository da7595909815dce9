// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/one_host.h"

#include <netinet/in.h>
#include <sched.h>
#include <weft/sdk/ip/interfaces.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace weft::coll {
namespace {

// The bytes of an IP address, of an IPv4 address in IPv6's form those of IPv4. Empty: of no IP.
std::string ip_of(const sdk::Address &address) {
  if (address.format() != FI_SOCKADDR_IN && address.format() != FI_SOCKADDR_IN6) return {};
  constexpr std::string_view kMapped("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
  std::string ip(address.host().begin(), address.host().end());
  if (ip.size() == 16 && ip.starts_with(kMapped)) ip.erase(0, kMapped.size());
  return ip;
}

bool is_loopback(const std::string &ip) {
  if (ip.size() == 4) return ip[0] == 127;
  return std::memcmp(ip.data(), &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

// Empty as well if the system does not tell them.
std::set<std::string> addresses_of_this_host() {
  std::set<std::string> all;
  if (const auto interfaces = sdk::list_interfaces())
    for (const sdk::Interface &one : *interfaces) all.insert(ip_of(one.address));
  return all;
}

}  // namespace

bool OneHost::has(const sdk::Address &member) {
  const auto moved = own_.with_port(member.port());
  if (own_.has_port() && moved && *moved == member) return true;
  const std::string ip = ip_of(member);
  if (ip.empty() || ip_of(own_).empty()) return false;
  if (is_loopback(ip)) return true;
  if (!addresses_) addresses_ = addresses_of_this_host();
  return addresses_->contains(ip);
}

Cpus own_cpus() {
  // The kernel refuses a set that has no room for all CPUs of the host.
  for (size_t most = CPU_SETSIZE; most <= UINT16_MAX; most *= 2) {
    std::vector<cpu_set_t> sets(most / CPU_SETSIZE);
    const size_t bytes = sets.size() * sizeof sets[0];
    if (sched_getaffinity(0, bytes, sets.data()) != 0) {
      if (errno != EINVAL) break;
      continue;
    }
    size_t first = 0;
    while (first < most && !CPU_ISSET_S(first, bytes, sets.data())) ++first;
    return {.count = uint16_t(std::min(CPU_COUNT_S(bytes, sets.data()), UINT16_MAX)),
            .first = uint16_t(first)};
  }
  return {};
}

}  // namespace weft::coll
