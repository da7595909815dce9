// SPDX-License-Identifier: BSD-2-Clause
// The codecs of FI_SOCKADDR_IN and FI_SOCKADDR_IN6. Their text is SockAddr's.
#include <netinet/in.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <cstddef>

#include "address_codec.h"

namespace weft::sdk {
namespace {

Result<void> settle_ipv4(unsigned char *bytes) {
  std::memset(bytes + offsetof(sockaddr_in, sin_zero), 0, sizeof(sockaddr_in::sin_zero));
  return {};
}

// A flow label is no part of an address.
Result<void> settle_ipv6(unsigned char *bytes) {
  store(bytes, offsetof(sockaddr_in6, sin6_flowinfo), uint32_t(0));
  return {};
}

// An IP address that is not the wildcard, and a port.
bool ipv4_names_peer(const unsigned char *bytes) {
  return load<in_addr_t>(bytes, offsetof(sockaddr_in, sin_addr)) != 0 &&
         load<in_port_t>(bytes, offsetof(sockaddr_in, sin_port)) != 0;
}
bool ipv6_names_peer(const unsigned char *bytes) {
  const unsigned char *ip = bytes + offsetof(sockaddr_in6, sin6_addr);
  return std::any_of(ip, ip + sizeof(in6_addr), [](unsigned char c) { return c != 0; }) &&
         load<in_port_t>(bytes, offsetof(sockaddr_in6, sin6_port)) != 0;
}

std::string ip_text(const Address &address) {
  return SockAddr::from(address)->to_string();
}

}  // namespace

const AddressCodec kIpv4Codec{.format = FI_SOCKADDR_IN,
                              .name = "fi_sockaddr_in",
                              .size = sizeof(sockaddr_in),
                              .host_at = offsetof(sockaddr_in, sin_addr),
                              .host_size = sizeof(in_addr),
                              .packed_at = offsetof(sockaddr_in, sin_port),
                              .packed_size = sizeof(in_port_t) + sizeof(in_addr),
                              .settle = settle_ipv4,
                              .names_peer = ipv4_names_peer,
                              .identify = nullptr,
                              .text = ip_text,
                              .parse = nullptr};

const AddressCodec kIpv6Codec{.format = FI_SOCKADDR_IN6,
                              .name = "fi_sockaddr_in6",
                              .size = sizeof(sockaddr_in6),
                              .host_at = offsetof(sockaddr_in6, sin6_addr),
                              .host_size = sizeof(in6_addr),
                              .packed_at = offsetof(sockaddr_in6, sin6_port),
                              .packed_size = sizeof(in_port_t) + sizeof(in6_addr),
                              .settle = settle_ipv6,
                              .names_peer = ipv6_names_peer,
                              .identify = nullptr,
                              .text = ip_text,
                              .parse = nullptr};

}  // namespace weft::sdk
