// SPDX-License-Identifier: BSD-2-Clause
// Addresses and their formats.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "core/match/parts.h"

namespace weft::matching {
namespace {

bool is_socket_format(uint32_t format) {
  return format == FI_SOCKADDR || format == FI_SOCKADDR_IP || format == FI_SOCKADDR_IN ||
         format == FI_SOCKADDR_IN6;
}

// Whether addresses of the offered format are of the wanted kind.
bool format_fits(uint32_t wanted, const fi_info &offer) {
  const uint32_t offered = offer.addr_format;
  if (wanted == offered) return true;
  const auto family = [&]() -> int {
    if (offered == FI_SOCKADDR_IN) return AF_INET;
    if (offered == FI_SOCKADDR_IN6) return AF_INET6;
    for (const auto &[addr, length] : {std::pair(offer.src_addr, offer.src_addrlen),
                                       std::pair(offer.dest_addr, offer.dest_addrlen)}) {
      if (addr == nullptr || length < sizeof(sa_family_t)) continue;
      sa_family_t value;
      std::memcpy(&value, addr, sizeof value);
      return value;
    }
    return AF_UNSPEC;  // whatever will be opened
  };
  switch (wanted) {
    case FI_SOCKADDR:
      return is_socket_format(offered) || offered == FI_SOCKADDR_IB;
    case FI_SOCKADDR_IP:
      return is_socket_format(offered);
    case FI_SOCKADDR_IN:
      return (offered == FI_SOCKADDR || offered == FI_SOCKADDR_IP) &&
             (family() == AF_INET || family() == AF_UNSPEC);
    case FI_SOCKADDR_IN6:
      return (offered == FI_SOCKADDR || offered == FI_SOCKADDR_IP) &&
             (family() == AF_INET6 || family() == AF_UNSPEC);
    default:
      return false;
  }
}

struct AddressAndPort {  // an IP address and a port; zeros are wildcards
  int family = AF_UNSPEC;
  unsigned char address[16] = {};
  uint16_t port = 0;
};

AddressAndPort address_and_port(const void *addr, size_t length) {
  AddressAndPort where;
  sa_family_t family = AF_UNSPEC;
  if (addr == nullptr || length < sizeof family) return where;
  std::memcpy(&family, addr, sizeof family);
  if (family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, addr, sizeof in);
    std::memcpy(where.address, &in.sin_addr, sizeof in.sin_addr);
    where.port = in.sin_port;
    where.family = family;
  } else if (family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in6;
    std::memcpy(&in6, addr, sizeof in6);
    std::memcpy(where.address, &in6.sin6_addr, sizeof in6.sin6_addr);
    where.port = in6.sin6_port;
    where.family = family;
  }
  return where;
}

bool is_wildcard(const AddressAndPort &where) {
  return std::all_of(std::begin(where.address), std::end(where.address),
                     [](unsigned char byte) { return byte == 0; });
}

std::string address_text(const AddressAndPort &where) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(where.family, where.address, text, sizeof text);
  return text;
}

}  // namespace

void check_addresses(Check &check, uint64_t flags, const fi_info &hints, const fi_info &offer) {
  if (hints.addr_format != FI_FORMAT_UNSPEC && !format_fits(hints.addr_format, offer))
    check.differs("addr_format", hints.addr_format, offer.addr_format, FI_TYPE_ADDR_FORMAT);

  // FI_SOURCE lets node and service say what src_addr would.
  const bool source_counts = (flags & FI_SOURCE) == 0 && hints.src_addr != nullptr;
  if (source_counts && hints.src_addrlen == 0)
    check.says("src_addrlen", " is 0 although hints.src_addr is set");
  if (hints.dest_addr != nullptr && hints.dest_addrlen == 0)
    check.says("dest_addrlen", " is 0 although hints.dest_addr is set");
  const bool text_addresses = hints.addr_format == FI_ADDR_STR || offer.addr_format == FI_ADDR_STR;
  if (!source_counts || text_addresses) return;
  const AddressAndPort wanted = address_and_port(hints.src_addr, hints.src_addrlen);
  const AddressAndPort offered = address_and_port(offer.src_addr, offer.src_addrlen);
  if (wanted.family == AF_UNSPEC || offered.family == AF_UNSPEC) return;
  if (wanted.family != offered.family) {
    check.says("src_addr", ": " + address_text(wanted) +
                               " wanted, an address of this family is not offered (" +
                               address_text(offered) + ")");
  } else if (!is_wildcard(wanted) && !is_wildcard(offered) &&
             std::memcmp(wanted.address, offered.address, sizeof wanted.address) != 0) {
    check.differs("src_addr", address_text(wanted), address_text(offered));
  }
}

}  // namespace weft::matching
