// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/ip/interfaces.h"

#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>

namespace weft::sdk {
namespace {

bool exists(const std::string &path) {
  return access(path.c_str(), F_OK) == 0;
}

std::string read_text(const std::string &path) {
  char text[512];
  const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  // Some attributes of an interface that is down cannot be read; that is as good as absent.
  const size_t size = file != nullptr ? std::fread(text, 1, sizeof text, file.get()) : 0;
  return std::string(text, size);
}

// 0 for what is absent, negative or no number: drivers report an unknown speed in all these ways.
unsigned read_number(const std::string &path) {
  const std::string text = read_text(path);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr unsigned kUnknownSpeed = UINT32_MAX;
  return error == std::errc() && number != kUnknownSpeed ? number : 0;
}

InterfaceKind kind_of(const std::string &folder, const std::string &name, bool loopback) {
  if (loopback) return InterfaceKind::kLoopback;
  if (exists(folder + "/bridge")) return InterfaceKind::kBridge;
  if (exists(folder + "/tun_flags")) return InterfaceKind::kTunnel;
  const std::string uevent = read_text(folder + "/uevent");
  const auto is = [&uevent](const char *type) {
    return uevent.find(std::string("DEVTYPE=") + type + "\n") != std::string::npos;
  };
  if (is("bridge")) return InterfaceKind::kBridge;
  if (is("vxlan") || is("geneve") || is("gre") || is("wireguard") || is("ppp")) {
    return InterfaceKind::kTunnel;
  }
  if (exists(folder + "/device") || exists(folder + "/bonding") || is("bond") || is("team") ||
      is("vlan")) {
    return InterfaceKind::kPhysical;
  }
  // Without sysfs (a sandbox) the name is all there is.
  for (const char *pattern : {"docker*", "virbr*", "br-*", "lxcbr*", "lxdbr*", "cni*", "podman*"}) {
    if (fnmatch(pattern, name.c_str(), 0) == 0) return InterfaceKind::kBridge;
  }
  for (const char *pattern : {"tun*", "tap*", "wg*", "vxlan*", "flannel*", "cali*"}) {
    if (fnmatch(pattern, name.c_str(), 0) == 0) return InterfaceKind::kTunnel;
  }
  return exists(folder) ? InterfaceKind::kVirtual : InterfaceKind::kPhysical;
}

unsigned prefix_of(const SockAddr &mask) {
  unsigned bits = 0;
  const size_t size = mask.family() == AF_INET ? 4 : 16;
  const void *bytes =
      mask.family() == AF_INET
          ? static_cast<const void *>(&reinterpret_cast<const sockaddr_in *>(mask.c())->sin_addr)
          : &reinterpret_cast<const sockaddr_in6 *>(mask.c())->sin6_addr;
  for (size_t i = 0; i < size; ++i) bits += std::popcount(static_cast<const uint8_t *>(bytes)[i]);
  return bits;
}

// How good an address is; lower is better.
int class_of(const Interface &interface) {
  if (interface.kind == InterfaceKind::kLoopback || interface.address.is_loopback()) return 5;
  if (interface.address.is_link_local()) return 4;
  switch (interface.kind) {
    case InterfaceKind::kPhysical:
      return 0;
    case InterfaceKind::kVirtual:
      return 1;
    case InterfaceKind::kBridge:
      return 2;
    default:
      return 3;
  }
}

std::string describe(const Interface &interface) {
  static constexpr const char *kClasses[] = {"routable",
                                             "routable, a virtual device",
                                             "a bridge, for local guests",
                                             "a tunnel",
                                             "link-local, reaches the same network only",
                                             "loopback, reaches this host only"};
  std::string text = kClasses[class_of(interface)];
  if (interface.speed != 0) text += ", " + std::to_string(interface.speed) + " Mbit/s";
  return text;
}

std::string joined(const std::vector<InterfaceFilter::Pattern> &patterns) {
  std::string text;
  for (const InterfaceFilter::Pattern &pattern : patterns) {
    text += (text.empty() ? "" : ",") + std::string(pattern.exclude ? "!" : "") + pattern.text;
  }
  return text;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces(const std::string &sysfs) {
  ifaddrs *list = nullptr;
  if (getifaddrs(&list) != 0) {
    return fail(errno, "cannot list the network interfaces (getifaddrs): %s", std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);

  std::vector<Interface> found;
  std::map<std::string, Interface>
      known;  // an interface's facts are read once for all its addresses
  for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const size_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const Result<SockAddr> address = SockAddr::from(entry->ifa_addr, size);
    if (!address) continue;

    auto [place, fresh] = known.try_emplace(entry->ifa_name);
    Interface &interface = place->second;
    if (fresh) {
      const std::string folder = sysfs + "/" + entry->ifa_name;
      interface.name = entry->ifa_name;
      interface.index = if_nametoindex(entry->ifa_name);
      interface.up = (entry->ifa_flags & IFF_UP) != 0;
      interface.running = (entry->ifa_flags & IFF_RUNNING) != 0;
      interface.kind = kind_of(folder, interface.name, (entry->ifa_flags & IFF_LOOPBACK) != 0);
      interface.speed = read_number(folder + "/speed");
      interface.mtu = read_number(folder + "/mtu");
    }
    interface.address = *address;
    interface.prefix = 0;
    if (entry->ifa_netmask != nullptr && entry->ifa_netmask->sa_family == family) {
      if (const Result<SockAddr> mask = SockAddr::from(entry->ifa_netmask, size)) {
        interface.prefix = prefix_of(*mask);
      }
    }
    found.push_back(interface);
  }
  return found;
}

Result<InterfaceFilter> InterfaceFilter::parse(std::span<const std::string> patterns) {
  InterfaceFilter filter;
  for (const std::string &entry : patterns) {
    Pattern pattern;
    pattern.exclude = entry.starts_with('!');
    pattern.text = entry.substr(pattern.exclude ? 1 : 0);
    if (pattern.text.empty()) {
      return fail(FI_EINVAL,
                  "interface pattern \"%s\" is empty: give a name, a network or an address",
                  entry.c_str());
    }
    const size_t slash = pattern.text.find('/');
    if (slash != std::string::npos) {
      const Result<SockAddr> network = SockAddr::from_ip(pattern.text.substr(0, slash));
      const char *first = pattern.text.data() + slash + 1;
      const char *last = pattern.text.data() + pattern.text.size();
      const auto [end, error] = std::from_chars(first, last, pattern.prefix);
      const unsigned most = network && network->family() == AF_INET ? 32 : 128;
      if (!network || error != std::errc() || end != last || pattern.prefix > most) {
        return fail(
            FI_EINVAL,
            "interface pattern \"%.100s\" is no network: it should look like 10.1.0.0/16 or "
            "fd00:1::/64",
            pattern.text.c_str());
      }
      pattern.network = *network;
    } else if (const Result<SockAddr> address = SockAddr::from_ip(pattern.text)) {
      pattern.network = *address;
      pattern.prefix = address->family() == AF_INET ? 32 : 128;
    }
    filter.patterns_.push_back(std::move(pattern));
  }
  return filter;
}

bool InterfaceFilter::Pattern::matches(const Interface &interface) const {
  if (network.family() == AF_UNSPEC) return fnmatch(text.c_str(), interface.name.c_str(), 0) == 0;
  return interface.address.same_prefix(network, prefix);
}

std::string RankedInterface::text() const {
  return interface.name + " " + interface.address.ip() + "/" + std::to_string(interface.prefix) +
         ": " + reason;
}

InterfaceRanking rank_interfaces(std::span<const Interface> facts, const InterfaceFilter &filter) {
  const auto &patterns = filter.patterns();
  const bool has_inclusion = std::any_of(patterns.begin(), patterns.end(),
                                         [](const auto &pattern) { return !pattern.exclude; });
  struct Candidate {
    size_t preference;  // the first inclusion that matches
    const Interface *interface;
    std::string reason;
    auto key() const {
      return std::tuple(preference, class_of(*interface), UINT32_MAX - interface->speed,
                        interface->index, interface->address);
    }
  };
  std::vector<Candidate> candidates;
  InterfaceRanking ranking;
  bool filtered = false;  // whether the filter is what left something out
  for (const Interface &interface : facts) {
    const auto leave_out = [&](const std::string &reason) {
      ranking.left_out.push_back({interface, "left out: " + reason});
    };
    const auto excluding = std::find_if(patterns.begin(), patterns.end(), [&](const auto &pattern) {
      return pattern.exclude && pattern.matches(interface);
    });
    const auto including = std::find_if(patterns.begin(), patterns.end(), [&](const auto &pattern) {
      return !pattern.exclude && pattern.matches(interface);
    });
    if (excluding != patterns.end()) {
      filtered = true;
      leave_out("the filter says !" + excluding->text);
    } else if (has_inclusion && including == patterns.end()) {
      filtered = true;
      leave_out("the filter " + joined(patterns) + " does not name it");
    } else if (!interface.up) {
      leave_out("it is down");
    } else if (!interface.running) {
      leave_out("it has no carrier");
    } else {
      std::string reason = describe(interface);
      if (including != patterns.end()) reason += ", named by " + including->text;
      candidates.push_back({static_cast<size_t>(including - patterns.begin()), &interface, reason});
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate &a, const Candidate &b) { return a.key() < b.key(); });
  for (const Candidate &candidate : candidates) {
    ranking.used.push_back({*candidate.interface, candidate.reason});
  }
  if (ranking.used.empty()) {
    ranking.nothing = facts.empty() ? "this host has no interface with an IPv4 or IPv6 address"
                      : filtered
                          ? "the filter " + joined(patterns) + " matches no interface that is up"
                          : "no interface of this host is up";
    std::string names;
    for (const RankedInterface &entry : ranking.left_out) {
      const std::string one = entry.interface.name + " " + entry.interface.address.ip();
      names += (names.empty() ? "" : ", ") + one;
    }
    if (!names.empty()) ranking.nothing += " (there are " + names + ")";
  }
  return ranking;
}

}  // namespace weft::sdk
