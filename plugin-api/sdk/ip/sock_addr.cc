// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/ip/sock_addr.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

namespace weft::sdk {
namespace {

// The names of formats in address strings.
struct FormatName {
  std::string_view name;
  uint32_t format;
};
constexpr FormatName kFormats[] = {
    {"fi_sockaddr", FI_SOCKADDR},
    {"fi_sockaddr_in", FI_SOCKADDR_IN},
    {"fi_sockaddr_in6", FI_SOCKADDR_IN6},
    {"fi_sockaddr_ip", FI_SOCKADDR_IP},
};

int length_of(std::string_view text) {  // for %.*s
  return static_cast<int>(std::min<size_t>(text.size(), 200));
}

std::optional<uint16_t> parse_port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool format_allows(uint32_t addr_format, int family) {
  const int only = family_of(addr_format);
  return only == AF_UNSPEC || only == family;
}

}  // namespace

SockAddr SockAddr::any(int family, uint16_t port) {
  SockAddr address;
  address.base_.sa_family = static_cast<sa_family_t>(family);
  address.set_port(port);
  return address;
}

SockAddr SockAddr::loopback(int family, uint16_t port) {
  SockAddr address = any(family, port);
  if (family == AF_INET) address.v4_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (family == AF_INET6) address.v6_.sin6_addr = in6addr_loopback;
  return address;
}

Result<SockAddr> SockAddr::from(const void *sockaddr, size_t length) {
  sa_family_t family = AF_UNSPEC;
  if (sockaddr == nullptr || length < sizeof family) {
    return fail(FI_EINVAL, "no socket address in %zu bytes", sockaddr == nullptr ? 0 : length);
  }
  std::memcpy(&family, sockaddr, sizeof family);
  const size_t needed = family == AF_INET    ? sizeof(sockaddr_in)
                        : family == AF_INET6 ? sizeof(sockaddr_in6)
                                             : 0;
  if (needed == 0) {
    return fail(FI_EINVAL, "a socket address of family %u: AF_INET and AF_INET6 can be used",
                static_cast<unsigned>(family));
  }
  if (length < needed) {
    return fail(FI_EINVAL, "a socket address of family %s in %zu bytes: it takes %zu",
                family == AF_INET ? "AF_INET" : "AF_INET6", length, needed);
  }
  SockAddr address;
  std::memcpy(&address.v6_, sockaddr, needed);
  return address;
}

Result<SockAddr> SockAddr::from(const Address &address) {
  if (address.format() == FI_SOCKADDR_IN || address.format() == FI_SOCKADDR_IN6) return of(address);
  return fail(FI_EINVAL, "address %s is of another format than FI_SOCKADDR_IN and FI_SOCKADDR_IN6",
              address.to_string().c_str());
}

Result<SockAddr> SockAddr::from_ip(std::string_view text, uint16_t port) {
  char buffer[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE];
  if (text.size() < sizeof buffer && text.find('\0') == std::string_view::npos) {
    text.copy(buffer, text.size());
    buffer[text.size()] = '\0';
    SockAddr address;
    if (inet_pton(AF_INET, buffer, &address.v4_.sin_addr) == 1) {
      address.v4_.sin_family = AF_INET;
      address.set_port(port);
      return address;
    }
    char *scope = std::strchr(buffer, '%');
    if (scope != nullptr) *scope++ = '\0';
    address = SockAddr();
    if (inet_pton(AF_INET6, buffer, &address.v6_.sin6_addr) == 1) {
      address.v6_.sin6_family = AF_INET6;
      address.set_port(port);
      if (scope == nullptr) return address;
      const std::string_view name = scope;
      uint32_t index = 0;
      if (all_digits(name)) {
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
        if (error != std::errc()) index = 0;
      } else {
        index = if_nametoindex(scope);
      }
      if (index == 0) {
        return fail(FI_EINVAL, "the address %.*s names an interface that this host does not have",
                    length_of(text), text.data());
      }
      address.v6_.sin6_scope_id = index;
      return address;
    }
  }
  return fail(FI_EINVAL, "\"%.*s\" is no IPv4 or IPv6 address", length_of(text), text.data());
}

socklen_t SockAddr::size() const {
  return family() == AF_INET    ? sizeof(sockaddr_in)
         : family() == AF_INET6 ? sizeof(sockaddr_in6)
                                : 0;
}

uint16_t SockAddr::port() const {
  return family() == AF_INET    ? ntohs(v4_.sin_port)
         : family() == AF_INET6 ? ntohs(v6_.sin6_port)
                                : 0;
}

void SockAddr::set_port(uint16_t port) {
  if (family() == AF_INET) v4_.sin_port = htons(port);
  if (family() == AF_INET6) v6_.sin6_port = htons(port);
}

std::string_view SockAddr::bytes() const {
  if (family() == AF_INET) return {reinterpret_cast<const char *>(&v4_.sin_addr), 4};
  if (family() == AF_INET6) return {reinterpret_cast<const char *>(&v6_.sin6_addr), 16};
  return {};
}

bool SockAddr::is_any() const {
  const std::string_view all = bytes();
  return std::all_of(all.begin(), all.end(), [](char c) { return c == 0; });
}

bool SockAddr::is_loopback() const {
  return family() == AF_INET ? (ntohl(v4_.sin_addr.s_addr) >> 24) == 127
                             : family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6_.sin6_addr);
}

bool SockAddr::is_link_local() const {
  return family() == AF_INET ? (ntohl(v4_.sin_addr.s_addr) >> 16) == 0xa9fe  // 169.254/16
                             : family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6_.sin6_addr);
}

bool SockAddr::same_prefix(const SockAddr &other, unsigned bits) const {
  const std::string_view a = bytes(), b = other.bytes();
  if (family() != other.family() || bits > a.size() * 8) return false;
  const size_t whole = bits / 8;
  if (a.substr(0, whole) != b.substr(0, whole)) return false;
  if (bits % 8 == 0) return true;
  const unsigned mask = 0xffu << (8 - bits % 8);
  return ((static_cast<unsigned char>(a[whole]) ^ static_cast<unsigned char>(b[whole])) & mask &
          0xffu) == 0;
}

std::string SockAddr::ip() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (family() != AF_INET && family() != AF_INET6) return "unspecified";
  inet_ntop(family(), bytes().data(), text, sizeof text);
  std::string result = text;
  if (family() == AF_INET6 && v6_.sin6_scope_id != 0) {
    char name[IF_NAMESIZE];
    result += '%';
    result += if_indextoname(v6_.sin6_scope_id, name) != nullptr
                  ? std::string(name)
                  : std::to_string(v6_.sin6_scope_id);
  }
  return result;
}

std::string SockAddr::to_string() const {
  if (family() == AF_INET) return ip() + ":" + std::to_string(port());
  if (family() == AF_INET6) return "[" + ip() + "]:" + std::to_string(port());
  return "unspecified";
}

std::strong_ordering SockAddr::operator<=>(const SockAddr &other) const {
  if (auto order = family() <=> other.family(); order != 0) return order;
  if (auto order = bytes() <=> other.bytes(); order != 0) return order;
  if (family() == AF_INET6) {
    if (auto order = v6_.sin6_scope_id <=> other.v6_.sin6_scope_id; order != 0) return order;
  }
  return port() <=> other.port();
}

size_t SockAddr::hash() const {
  const size_t seed = std::hash<std::string_view>()(bytes());
  return seed ^ (size_t{port()} * 0x9e3779b97f4a7c15u);
}

// ---- from names ----

Result<std::vector<SockAddr>> resolve(const char *node, const char *service,
                                      const ResolveOptions &options) {
  std::string own_node, own_service;
  ResolveOptions effective = options;
  if (node != nullptr && std::strstr(node, "://") != nullptr) {
    if (service != nullptr) {
      return fail(FI_EINVAL, "node %.200s is a whole address, so service must be null, not %.100s",
                  node, service);
    }
    WEFT_TRY(AddressString parts, parse_address_string(node));
    const int only = family_of(parts.format);
    if (only != AF_UNSPEC) {
      if (options.family != AF_UNSPEC && options.family != only) {
        return fail(FI_ENODATA, "node %.200s is not of the address family that was asked for",
                    node);
      }
      effective.family = only;
    }
    // Nothing named is the wildcard address, as a string says it: there is no peer to mean.
    if (parts.node.empty()) effective.local = true;
    own_node = std::move(parts.node);
    own_service = parts.service.empty() ? "0" : std::move(parts.service);
    node = own_node.empty() ? nullptr : own_node.c_str();
    service = own_service.c_str();
  }
  if (node == nullptr && service == nullptr) {
    return fail(FI_EINVAL, "neither node nor service to resolve");
  }
  // The resolver takes a number that is too large and cuts it.
  if (service != nullptr && all_digits(service) && !parse_port(service)) {
    return fail(FI_EINVAL, "port %.100s is out of range: 0 to 65535", service);
  }

  addrinfo hints{};
  hints.ai_family = effective.family;
  hints.ai_socktype = SOCK_STREAM;  // one entry per address
  if (effective.numeric) hints.ai_flags |= AI_NUMERICHOST;
  if (effective.local) hints.ai_flags |= AI_PASSIVE;
  addrinfo *list = nullptr;
  const int rc = getaddrinfo(node, service, &hints, &list);
  if (rc != 0) {
    const int code = rc == EAI_MEMORY ? FI_ENOMEM : FI_ENODATA;
    return fail(code, "cannot resolve node \"%.200s\", service \"%.100s\"%s: %s",
                node != nullptr ? node : "", service != nullptr ? service : "",
                effective.numeric ? " (numeric addresses only)" : "",
                rc == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(rc));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<SockAddr> found;
  for (const addrinfo *entry = list; entry != nullptr; entry = entry->ai_next) {
    Result<SockAddr> address = SockAddr::from(entry->ai_addr, entry->ai_addrlen);
    if (address && std::find(found.begin(), found.end(), *address) == found.end()) {
      found.push_back(*address);
    }
  }
  if (found.empty()) {
    return fail(FI_ENODATA, "node \"%.200s\" has no IPv4 or IPv6 address",
                node != nullptr ? node : "");
  }
  return found;
}

// ---- OFI's forms ----

Result<AddressString> parse_address_string(std::string_view text) {
  const std::string_view all = text;
  const auto wrong = [all](const char *what) {
    return fail(FI_EINVAL,
                "address \"%.*s\" %s: it should look like fi_sockaddr_in://10.0.0.1:7471 or "
                "fi_sockaddr_in6://[fe80::1%%eth0]:7471",
                length_of(all), all.data(), what);
  };
  if (text.find('\0') != std::string_view::npos) return wrong("has a zero byte in it");
  AddressString parts;
  const size_t colon = text.find("://");
  const std::string_view scheme = text.substr(0, colon);
  const auto *format = std::find_if(std::begin(kFormats), std::end(kFormats),
                                    [&](const FormatName &f) { return f.name == scheme; });
  if (format == std::end(kFormats)) return wrong("does not begin with a known format");
  parts.format = format->format;
  if (colon == std::string_view::npos) return parts;
  text.remove_prefix(colon + 3);

  if (!text.empty() && text.front() == '[') {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return wrong("has a [ without its ]");
    parts.node = text.substr(1, end - 1);
    if (parts.node.empty()) return wrong("has nothing between [ and ]");
    text.remove_prefix(end + 1);
    if (!text.empty() && text.front() != ':' && text.front() != '/' && text.front() != '?') {
      return wrong("goes on strangely after the ]");
    }
  } else {
    const size_t end = std::min(text.find_first_of(":/?"), text.size());
    parts.node = text.substr(0, end);
    text.remove_prefix(end);
  }
  if (!text.empty() && text.front() == ':') {
    text.remove_prefix(1);
    parts.service = text.substr(0, text.find_first_of("/?"));
    if (parts.service.find(':') != std::string::npos) {
      return wrong("has more colons than one: an IPv6 address stands in brackets");
    }
  }
  return parts;
}

bool is_socket_format(uint32_t addr_format) {
  return addr_format == FI_SOCKADDR || addr_format == FI_SOCKADDR_IN ||
         addr_format == FI_SOCKADDR_IN6 || addr_format == FI_SOCKADDR_IP ||
         addr_format == FI_ADDR_STR;
}

uint32_t format_of(const SockAddr &address) {
  return address.family() == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
}

int family_of(uint32_t addr_format) {
  return addr_format == FI_SOCKADDR_IN    ? AF_INET
         : addr_format == FI_SOCKADDR_IN6 ? AF_INET6
                                          : AF_UNSPEC;
}

Result<SockAddr> read_sock_string(std::string_view text) {
  WEFT_TRY(AddressString parts, parse_address_string(text));
  const std::optional<uint16_t> port =
      parts.service.empty() ? std::optional<uint16_t>(0) : parse_port(parts.service);
  if (!port) {
    return fail(FI_EINVAL, "address \"%.*s\": port \"%.100s\" is no number from 0 to 65535",
                length_of(text), text.data(), parts.service.c_str());
  }
  if (parts.node.empty())
    return SockAddr::any(parts.format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET, *port);
  WEFT_TRY(const SockAddr address, SockAddr::from_ip(parts.node, *port));
  if (!format_allows(parts.format, address.family())) {
    return fail(FI_EINVAL, "address %s is no %s address, as its format says",
                address.to_string().c_str(), family_of(parts.format) == AF_INET ? "IPv4" : "IPv6");
  }
  return address;
}

Result<SockAddr> read_sock_address(uint32_t addr_format, const void *address, size_t length) {
  WEFT_TRY(const Address any, read_address(addr_format, address, length));
  return SockAddr::from(any);
}

namespace {
std::optional<SockAddr> name_by(int (*call)(int, sockaddr *, socklen_t *), int fd) {
  sockaddr_storage name;
  socklen_t size = sizeof name;
  if (call(fd, reinterpret_cast<sockaddr *>(&name), &size) != 0) return {};
  auto address = SockAddr::from(&name, size);
  if (!address) return {};
  return *address;
}
}  // namespace

std::optional<SockAddr> socket_name(int fd) {
  return name_by(::getsockname, fd);
}
std::optional<SockAddr> socket_peer(int fd) {
  return name_by(::getpeername, fd);
}

}  // namespace weft::sdk
