// SPDX-License-Identifier: BSD-2-Clause
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/ip/paths.h>
#include <weft/sdk/unit/info_list.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace weft::sdk {
namespace {

// The address that the kernel would send from, by its routing table. Nothing is sent.
std::optional<SockAddr> route_source(const SockAddr &dest) {
  const int fd = ::socket(dest.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  SockAddr to = dest;
  if (to.port() == 0) to.set_port(9);  // connect(2) of some kernels refuses port 0
  std::optional<SockAddr> source;
  if (::connect(fd, to.c(), to.size()) == 0) source = socket_name(fd);
  ::close(fd);
  if (source) source->set_port(0);
  return source;
}

std::string network_name(const Interface &interface) {
  const SockAddr &a = interface.address;
  if (a.family() == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, a.c(), sizeof v4);
    // Applications tell each other the name, and ask for it: it must be the one that stock gives.
    if (ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) return "127.0.0.1/32";
    const uint32_t mask =
        interface.prefix == 0 ? 0 : ~uint32_t(0) << (32 - std::min(interface.prefix, 32u));
    v4.sin_addr.s_addr &= htonl(mask);
    return SockAddr(v4).ip() + "/" + std::to_string(interface.prefix);
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, a.c(), sizeof v6);
  for (unsigned bit = interface.prefix; bit < 128; ++bit)
    v6.sin6_addr.s6_addr[bit / 8] &= uint8_t(~(0x80u >> (bit % 8)));
  v6.sin6_scope_id = 0;
  return SockAddr(v6).ip() + "/" + std::to_string(interface.prefix);
}

bool same_ip(const SockAddr &a, const SockAddr &b) {
  return a.same_prefix(b, a.family() == AF_INET ? 32 : 128);
}

// The addresses that the call and its hints name.
struct Asked {
  std::vector<SockAddr> sources, dests;
};
Result<Asked> asked_addresses(const GetinfoQuery &query, uint32_t format) {
  Asked asked;
  const fi_info *hints = query.hints;
  if (query.node != nullptr || query.service != nullptr) {
    const bool source = query.flags & FI_SOURCE;
    WEFT_TRY(auto found, resolve(query.node, query.service,
                                 {.family = family_of(format),
                                  .numeric = (query.flags & FI_NUMERICHOST) != 0,
                                  .local = source}));
    (source ? asked.sources : asked.dests) = std::move(found);
  }
  if (hints != nullptr && hints->src_addr != nullptr && asked.sources.empty()) {
    WEFT_TRY(const SockAddr address,
             read_sock_address(format, hints->src_addr, hints->src_addrlen));
    asked.sources.push_back(address);
  }
  if (hints != nullptr && hints->dest_addr != nullptr && asked.dests.empty()) {
    WEFT_TRY(const SockAddr address,
             read_sock_address(format, hints->dest_addr, hints->dest_addrlen));
    asked.dests.push_back(address);
  }
  return asked;
}

// Collects the paths over the interfaces that may be used, or the reason why there is none.
class PathFinder {
 public:
  PathFinder(const InterfaceRanking &ranking, const IpPathSettings &settings, int family)
      : ranking_(ranking), settings_(settings), family_(family) {}

  void add(const SockAddr &source, const SockAddr &dest) {
    if (family_ != AF_UNSPEC && source.family() != family_) return;
    if (source.is_any()) {
      paths_.push_back({settings_.provider, settings_.fabric, source, dest, smallest_mtu()});
      return;
    }
    if (const Interface *interface = interface_with(source)) {
      paths_.push_back({interface->name, network_name(*interface), source, dest, interface->mtu});
      return;
    }
    why_not_ = "no interface that may be used has the address " + source.ip();
    for (const RankedInterface &i : ranking_.left_out)
      if (same_ip(i.interface.address, source)) why_not_ = i.text();
  }
  void add_to(const SockAddr &dest, const std::vector<SockAddr> &sources) {
    if (!sources.empty()) {
      for (const SockAddr &source : sources)
        if (source.family() == dest.family()) add(source, dest);
    } else if (auto source = route_source(dest)) {
      add(*source, dest);
    } else {
      why_not_ = "there is no route to " + dest.ip();
    }
  }
  Result<std::vector<IpPath>> take() {
    if (!paths_.empty()) return std::move(paths_);
    return fail(
        FI_ENODATA, "%s",
        why_not_.empty() ? "no interface has an address of the wanted family" : why_not_.c_str());
  }

 private:
  // Of all interfaces: a packet must fit whichever it leaves by.
  unsigned smallest_mtu() const {
    unsigned mtu = 0;
    for (const RankedInterface &i : ranking_.used)
      if (i.interface.mtu != 0 && (mtu == 0 || i.interface.mtu < mtu)) mtu = i.interface.mtu;
    return mtu;
  }
  // Null: none has the address. 127.0.0.2 is no interface's address, yet every host has it.
  const Interface *interface_with(const SockAddr &source) const {
    for (const RankedInterface &i : ranking_.used)
      if (same_ip(i.interface.address, source)) return &i.interface;
    for (const RankedInterface &i : ranking_.used) {
      const SockAddr &own = i.interface.address;
      if (own.is_loopback() && source.is_loopback() && own.family() == source.family())
        return &i.interface;
    }
    return nullptr;
  }

  const InterfaceRanking &ranking_;
  const IpPathSettings &settings_;
  const int family_;
  std::vector<IpPath> paths_;
  std::string why_not_;
};

}  // namespace

Result<InterfaceRanking> usable_interfaces(const std::vector<std::string> &patterns) {
  WEFT_TRY(const std::vector<Interface> facts, list_interfaces());
  WEFT_TRY(const InterfaceFilter filter, InterfaceFilter::parse(patterns));
  return rank_interfaces(facts, filter);
}

Result<std::vector<IpPath>> ip_paths(const GetinfoQuery &query, const IpPathSettings &settings) {
  const uint32_t format =
      query.hints != nullptr ? query.hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  if (format != FI_FORMAT_UNSPEC && !is_socket_format(format))
    return fail(FI_ENODATA,
                "hints.addr_format %u: %s has FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6 and "
                "FI_ADDR_STR",
                format, settings.provider);
  WEFT_TRY(const InterfaceRanking ranking, usable_interfaces(settings.interfaces));
  if (ranking.used.empty()) return fail(FI_ENODEV, "%s", ranking.nothing.c_str());
  WEFT_TRY(const Asked asked, asked_addresses(query, format));

  PathFinder finder(ranking, settings, family_of(format));
  if (!asked.dests.empty()) {
    for (const SockAddr &dest : asked.dests) finder.add_to(dest, asked.sources);
  } else if (!asked.sources.empty()) {
    for (const SockAddr &source : asked.sources) finder.add(source, {});
  } else {
    for (const RankedInterface &i : ranking.used) finder.add(i.interface.address, {});
  }
  return finder.take();
}

Result<void> set_path(fi_info &info, const IpPath &path, const fi_info *hints) {
  const uint32_t format = hints != nullptr ? hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  info.addr_format =
      format == FI_FORMAT_UNSPEC || format == FI_SOCKADDR_IP ? format_of(path.source) : format;
  WEFT_CHECK(set_info_address(info.src_addr, info.src_addrlen, info.addr_format, path.source));
  if (path.dest.size() == 0) return {};
  return set_info_address(info.dest_addr, info.dest_addrlen, info.addr_format, path.dest);
}

Result<void> explain_interfaces(const std::vector<std::string> &patterns, const LineSink &line) {
  WEFT_TRY(const InterfaceRanking ranking, usable_interfaces(patterns));
  for (const RankedInterface &i : ranking.used) line("%s", i.text().c_str());
  for (const RankedInterface &i : ranking.left_out) line("%s", i.text().c_str());
  if (ranking.used.empty()) line("%s", ranking.nothing.c_str());
  return {};
}

}  // namespace weft::sdk
