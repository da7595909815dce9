// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/paths.h"

#include <algorithm>

namespace weft::verbs {
namespace {

constexpr int kResolveMs = 2000;

struct Asked {
  std::vector<sdk::SockAddr> sources, dests;
};

Result<Asked> asked_addresses(const sdk::GetinfoQuery &query, uint32_t format) {
  Asked asked;
  if (query.node != nullptr || query.service != nullptr) {
    const bool source = query.flags & FI_SOURCE;
    WEFT_TRY(auto found, sdk::resolve(query.node, query.service,
                                      {.family = sdk::family_of(format),
                                       .numeric = (query.flags & FI_NUMERICHOST) != 0,
                                       .local = source}));
    (source ? asked.sources : asked.dests) = std::move(found);
  }
  const fi_info *const hints = query.hints;
  if (hints != nullptr && hints->src_addr != nullptr && asked.sources.empty()) {
    WEFT_TRY(const sdk::SockAddr address,
             sdk::read_sock_address(format, hints->src_addr, hints->src_addrlen));
    asked.sources.push_back(address);
  }
  if (hints != nullptr && hints->dest_addr != nullptr && asked.dests.empty()) {
    WEFT_TRY(const sdk::SockAddr address,
             sdk::read_sock_address(format, hints->dest_addr, hints->dest_addrlen));
    asked.dests.push_back(address);
  }
  return asked;
}

bool same_ip(const sdk::SockAddr &a, const sdk::SockAddr &b) {
  return a.family() == b.family() && a.same_prefix(b, a.family() == AF_INET ? 32 : 128);
}

DevicePath path_of(const DeviceFacts &facts, const sdk::SockAddr &source,
                   const sdk::SockAddr &dest) {
  return {facts, {facts.name, fabric_name(facts), source, dest, unsigned(facts.mtu)}};
}

}  // namespace

std::vector<DevicePath> source_paths(const std::vector<DeviceFacts> &all,
                                     const std::vector<sdk::SockAddr> &sources, int family) {
  std::vector<DevicePath> paths;
  const auto add = [&](const sdk::SockAddr *source) {
    for (const DeviceFacts &facts : all) {
      if (!facts.port_active) continue;
      for (sdk::SockAddr address : facts.addresses) {
        if (family != AF_UNSPEC && address.family() != family) continue;
        if (source != nullptr) {
          if (source->family() != address.family()) continue;
          if (!source->is_any() && !same_ip(*source, address)) continue;
          address.set_port(source->port());
        }
        paths.push_back(path_of(facts, address, {}));
      }
    }
  };
  if (sources.empty()) add(nullptr);
  for (const sdk::SockAddr &source : sources) add(&source);
  return paths;
}

Result<std::vector<DevicePath>> device_paths(const sdk::GetinfoQuery &query,
                                             const std::vector<DeviceFacts> &all,
                                             Devices &devices) {
  const uint32_t format =
      query.hints != nullptr ? query.hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  if (format != FI_FORMAT_UNSPEC && !sdk::is_socket_format(format))
    return fail(FI_ENODATA, "verbs: addresses are of sockets (FI_SOCKADDR and its like)");
  if (all.empty())
    return fail(FI_ENODATA,
                "verbs: no RDMA device: load the driver of a card, or make one in software: "
                "rdma link add rxe0 type rxe netdev eth0");
  WEFT_TRY(const Asked asked, asked_addresses(query, format));
  if (asked.dests.empty()) {
    auto paths = source_paths(all, asked.sources, sdk::family_of(format));
    if (!paths.empty()) return paths;
    return fail(FI_ENODATA, "verbs: no device with an active port has %s: `rdma link` shows them",
                asked.sources.empty() ? "an address of the wanted family"
                                      : asked.sources.front().ip().c_str());
  }
  std::vector<DevicePath> paths;
  Error why{FI_ENODATA, "verbs: no device leads to the peer"};
  for (const sdk::SockAddr &dest : asked.dests) {
    sdk::SockAddr source;
    for (const sdk::SockAddr &named : asked.sources)
      if (named.family() == dest.family() && !named.is_any()) source = named;
    auto route = find_route(source, dest, kResolveMs);
    if (!route) {
      why = {FI_ENODATA, route.error().text};
      continue;
    }
    const std::optional<Device> device = devices.find(route->verbs);
    if (!device) continue;
    for (const DeviceFacts &facts : all)
      if (facts.name == device->facts.name) paths.push_back(path_of(facts, route->source, dest));
  }
  if (paths.empty()) return tl::unexpected(std::move(why));
  return paths;
}

}  // namespace weft::verbs
