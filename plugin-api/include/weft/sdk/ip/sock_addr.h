// SPDX-License-Identifier: BSD-2-Clause
// SockAddr: an IPv4 or IPv6 address with a port, for providers that use IP: what system calls take,
// and what fi_getinfo's node and service resolve to. Elsewhere it is an Address (address.h), which
// it becomes by itself.
//
// Example:
//    weft::Result<void> dial(int fd, const char *host, const char *port) {
//      WEFT_TRY(const std::vector<SockAddr> found, resolve(host, port, {}));
//      const SockAddr &peer = found.front();
//      if (::connect(fd, peer.c(), peer.size()) == 0) return {};
//      return weft::fail(errno, "connect %s", peer.to_string().c_str());  // "[fe80::1%eth0]:7471"
//    }
//    int getname(int fd, uint32_t addr_format, void *addr, size_t *addrlen) {  // fi_getname
//      return write_address(*socket_name(fd), addr_format, addr, addrlen);
//    }
//
// Not for addresses of other families.
#ifndef WEFT_SDK_IP_SOCK_ADDR_H
#define WEFT_SDK_IP_SOCK_ADDR_H

#include <netinet/in.h>
#include <rdma/fabric.h>
#include <sys/socket.h>
#include <weft/result.h>
#include <weft/sdk/addresses/address.h>

#include <cassert>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::sdk {

class SockAddr {
 public:
  SockAddr() : v6_{} {}  // family AF_UNSPEC
  explicit SockAddr(const sockaddr_in &address) : v6_{} { v4_ = address; }
  explicit SockAddr(const sockaddr_in6 &address) : v6_{address} {}
  static SockAddr any(int family, uint16_t port = 0);
  static SockAddr loopback(int family, uint16_t port = 0);
  // Reads no further than `length`.
  static Result<SockAddr> from(const void *sockaddr, size_t length);
  // An error: an address of another format than FI_SOCKADDR_IN and FI_SOCKADDR_IN6.
  static Result<SockAddr> from(const Address &address);
  // An address without a port: "10.0.0.1", "fe80::1%eth0", "fe80::1%2".
  static Result<SockAddr> from_ip(std::string_view text, uint16_t port = 0);

  // Of an address that is known to be one of these, such as those in the vectors of providers that
  // use IP. Read and written word by word, as it was made: anything else stalls the processor.
  static SockAddr of(const Address &address) {
    assert(address.format() == FI_SOCKADDR_IN || address.format() == FI_SOCKADDR_IN6);
    SockAddr result;
    uint64_t word;
    std::memcpy(&word, address.data(), sizeof word);
    std::memcpy(&result.v6_, &word, sizeof word);
    if (address.size() == sizeof(sockaddr_in6))
      std::memcpy(&result.v6_, address.data(), sizeof(sockaddr_in6));
    return result;
  }

  // Without the flow label, which is no part of an address.
  operator Address() const {
    if (family() == AF_INET)
      return Address::ipv4(reinterpret_cast<const unsigned char *>(&v4_) +
                           offsetof(sockaddr_in, sin_port));
    if (family() != AF_INET6) return {};
    sockaddr_in6 settled = v6_;
    settled.sin6_flowinfo = 0;
    return Address::of(FI_SOCKADDR_IN6, &settled, sizeof settled);
  }

  const sockaddr *c() const { return &base_; }
  socklen_t size() const;  // bytes behind c(); 0: AF_UNSPEC
  int family() const { return base_.sa_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_any() const;
  bool is_loopback() const;
  bool is_link_local() const;
  // Whether the first `bits` bits of the addresses are the same; false for different families.
  bool same_prefix(const SockAddr &other, unsigned bits) const;

  std::string ip() const;         // "10.0.0.1", "fe80::1%eth0"
  std::string to_string() const;  // "10.0.0.1:7471", "[fe80::1%eth0]:7471", "unspecified"

  // By family, address, scope and port; a flow label makes no difference.
  bool operator==(const SockAddr &other) const { return (*this <=> other) == 0; }
  std::strong_ordering operator<=>(const SockAddr &other) const;
  size_t hash() const;

 private:
  std::string_view bytes() const;  // of the address alone

  union {
    sockaddr base_;
    sockaddr_in v4_;
    sockaddr_in6 v6_;
  };
};

struct SockAddrHash {
  size_t operator()(const SockAddr &address) const { return address.hash(); }
};

// ---- from names ----

struct ResolveOptions {
  int family = AF_UNSPEC;
  bool numeric = false;  // FI_NUMERICHOST: no look-ups
  bool local = false;    // FI_SOURCE: no node means "any address", not loopback
};

// What fi_getinfo's node and service mean, in the resolver's order; never empty. Node may also be
// an address string (service must be null then). May block in the resolver. Either may be null, not
// both.
Result<std::vector<SockAddr>> resolve(const char *node, const char *service,
                                      const ResolveOptions &options);

// ---- OFI's forms ----

// FI_ADDR_STR taken apart: format://node:service. Node may be a name, an address without brackets,
// or empty (any); service may be empty (port 0). A `/field` or `?key=value` after it is not for
// sockets and is left out.
struct AddressString {
  uint32_t format = FI_SOCKADDR;  // FI_SOCKADDR, _IN, _IN6, _IP
  std::string node;
  std::string service;
};
Result<AddressString> parse_address_string(std::string_view text);

// Whether it is a format of addresses of IP, or FI_ADDR_STR.
bool is_socket_format(uint32_t addr_format);
// The format that names exactly the address's family: FI_SOCKADDR_IN or FI_SOCKADDR_IN6.
uint32_t format_of(const SockAddr &address);
// AF_INET or AF_INET6 where the format allows one only, else AF_UNSPEC.
int family_of(uint32_t addr_format);

// The addresses of a socket (getsockname, getpeername).
std::optional<SockAddr> socket_name(int fd);
std::optional<SockAddr> socket_peer(int fd);

// read_address() for those who need an address of IP: any other is an error.
Result<SockAddr> read_sock_address(uint32_t addr_format, const void *address,
                                   size_t length = SIZE_MAX);
// The same for the text of an FI_ADDR_STR.
Result<SockAddr> read_sock_string(std::string_view text);

}  // namespace weft::sdk

#endif
