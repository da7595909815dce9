// SPDX-License-Identifier: BSD-2-Clause
// Which network interfaces this host has, and in which order to use them.
//
// Example:
//    weft::Result<SockAddr> best(const std::vector<std::string> &patterns) {
//      WEFT_TRY(const std::vector<Interface> facts, list_interfaces());
//      WEFT_TRY(const InterfaceFilter filter, InterfaceFilter::parse(patterns));
//      const InterfaceRanking ranking = rank_interfaces(facts, filter);
//      if (ranking.used.empty()) return weft::fail(FI_ENODATA, "%s", ranking.nothing.c_str());
//      return ranking.used.front().interface.address;
//    }
//
// Without a filter: routable addresses of real devices first (the fastest first), then virtual
// devices, bridges and tunnels, link-local addresses, and loopback last. Interfaces that are down
// are left out. Ranking is a pure function of the facts. Not for watching changes: facts are those
// of one moment.
#ifndef WEFT_SDK_IP_INTERFACES_H
#define WEFT_SDK_IP_INTERFACES_H

#include <weft/result.h>
#include <weft/sdk/ip/sock_addr.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft::sdk {

enum class InterfaceKind {
  kPhysical,  // a device of this machine (or one that a hypervisor gives it), and what is built of
              // those alone: bond, vlan
  kVirtual,   // veth, macvlan, dummy, ...: what a container has, as a rule
  kBridge,    // bridges of containers and virtual machines
  kTunnel,    // tun, tap, wireguard, vxlan, ...
  kLoopback,
};

// One address of an interface; an interface with several addresses has several entries.
struct Interface {
  std::string name;
  unsigned index = 0;   // the kernel's
  SockAddr address;     // port 0
  unsigned prefix = 0;  // bits of the network's part
  InterfaceKind kind = InterfaceKind::kPhysical;
  bool up = false;       // configured to be
  bool running = false;  // and has a carrier
  unsigned speed = 0;    // Mbit/s, 0: unknown
  unsigned mtu = 0;      // bytes, 0: unknown
};

// The facts, from the kernel. `sysfs` is for tests.
Result<std::vector<Interface>> list_interfaces(const std::string &sysfs = "/sys/class/net");

// Patterns: a name with wildcards (hsn*), a network (10.1.0.0/16), an address; with a ! in front
// those are left out. Only exclusions: all others are used. Several inclusions: those that match
// the first one stand first.
class InterfaceFilter {
 public:
  InterfaceFilter() = default;  // all interfaces
  static Result<InterfaceFilter> parse(std::span<const std::string> patterns);
  static Result<InterfaceFilter> parse(const std::vector<std::string> &patterns) {
    return parse(std::span(patterns));
  }

  struct Pattern {
    std::string text;  // without the !
    bool exclude = false;
    SockAddr network;  // AF_UNSPEC: `text` is a pattern of names
    unsigned prefix = 0;
    bool matches(const Interface &interface) const;
  };
  const std::vector<Pattern> &patterns() const { return patterns_; }

 private:
  std::vector<Pattern> patterns_;
};

struct RankedInterface {
  Interface interface;
  std::string reason;  // "routable, 100000 Mbit/s", "left out: no carrier"
  // "eth0 10.0.0.2/24: routable, 1000 Mbit/s"
  std::string text() const;
};

struct InterfaceRanking {
  std::vector<RankedInterface> used;  // best first
  std::vector<RankedInterface> left_out;
  std::string nothing;  // if no interface is used: why, in one sentence
};

InterfaceRanking rank_interfaces(std::span<const Interface> facts, const InterfaceFilter &filter);

}  // namespace weft::sdk

#endif
