// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/paths.h"

#include <endian.h>
#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace weft::verbs {
namespace {

constexpr int kResolveMs = 2000;
constexpr std::string_view kIbPrefix = "fi_sockaddr_ib://";

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
        paths.push_back({facts, address, {}});
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
      if (facts.name == device->facts.name) paths.push_back({facts, route->source, dest});
  }
  if (paths.empty()) return tl::unexpected(std::move(why));
  return paths;
}

// ---- native InfiniBand ----

namespace {

struct AskedIb {
  bool wanted = true;
  sdk::Address source, dest;
};

bool is_ib_format(uint32_t format) {
  return format == FI_SOCKADDR_IB || format == FI_ADDR_STR || format == FI_FORMAT_UNSPEC;
}

// Other addresses mean that the caller wants none of these.
Result<AskedIb> asked_ib(const sdk::GetinfoQuery &query) {
  AskedIb asked;
  const fi_info *const hints = query.hints;
  const uint32_t format = hints != nullptr ? hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  asked.wanted = is_ib_format(format);
  if (!asked.wanted) return asked;
  const auto take = [&](uint32_t given, const void *bytes, size_t size,
                        sdk::Address &out) -> Result<void> {
    WEFT_TRY(const sdk::Address address, sdk::read_address(given, bytes, size));
    asked.wanted = asked.wanted && address.format() == FI_SOCKADDR_IB;
    out = address;
    return {};
  };
  if (query.node != nullptr && std::string_view(query.node).starts_with(kIbPrefix)) {
    WEFT_CHECK(take(FI_ADDR_STR, query.node, std::strlen(query.node) + 1,
                    query.flags & FI_SOURCE ? asked.source : asked.dest));
  } else if (query.node != nullptr || query.service != nullptr) {
    asked.wanted = false;  // of IP
  }
  if (hints == nullptr || !asked.wanted) return asked;
  if (format == FI_FORMAT_UNSPEC && (hints->src_addr != nullptr || hints->dest_addr != nullptr)) {
    asked.wanted = false;
    return asked;
  }
  if (hints->src_addr != nullptr && asked.source.size() == 0)
    WEFT_CHECK(take(format, hints->src_addr, hints->src_addrlen, asked.source));
  if (hints->dest_addr != nullptr && asked.dest.size() == 0)
    WEFT_CHECK(take(format, hints->dest_addr, hints->dest_addrlen, asked.dest));
  return asked;
}

bool same_host(const sdk::Address &a, const sdk::Address &b) {
  return std::ranges::equal(a.host(), b.host());
}

}  // namespace

sdk::Address infiniband_address(const DeviceFacts &facts, uint16_t port) {
  constexpr uint16_t kDefaultPartition = 0xffff;
  sockaddr_ib address{};
  address.sib_family = AF_IB;
  address.sib_pkey = htobe16(kDefaultPartition);
  const uint64_t halves[2] = {htobe64(facts.gid_prefix), htobe64(facts.gid_interface)};
  static_assert(sizeof halves == sizeof address.sib_addr);
  std::memcpy(&address.sib_addr, halves, sizeof halves);
  address.sib_sid = htobe64(RDMA_IB_IP_PS_TCP | port);
  address.sib_sid_mask = ~__be64{0};
  return sdk::Address::of(FI_SOCKADDR_IB, &address, sizeof address);
}

Result<std::vector<DevicePath>> infiniband_paths(const sdk::GetinfoQuery &query,
                                                 const std::vector<DeviceFacts> &all,
                                                 Devices &devices) {
  WEFT_TRY(const AskedIb asked, asked_ib(query));
  std::vector<DevicePath> paths;
  if (!asked.wanted) return paths;
  std::optional<Device> way;
  if (asked.dest.size() != 0) {
    WEFT_TRY(const Route route, find_route(asked.source, asked.dest, kResolveMs));
    way = devices.find(route.verbs);
  }
  for (const DeviceFacts &facts : all) {
    if (facts.transport != Transport::kInfiniBand || !facts.port_active) continue;
    if (asked.dest.size() != 0 && (!way || way->facts.name != facts.name)) continue;
    const sdk::Address own = infiniband_address(facts, asked.source.port());
    if (!asked.source.is_any() && !same_host(asked.source, own)) continue;
    paths.push_back({facts, asked.source.is_any() ? own : asked.source, asked.dest});
  }
  if (paths.empty() && query.hints != nullptr && query.hints->addr_format == FI_SOCKADDR_IB)
    return fail(FI_ENODATA,
                "verbs: FI_SOCKADDR_IB: no device with an active port%s whose link layer is "
                "InfiniBand: `rdma link` shows them",
                asked.source.is_any() ? "" : " and this GID");
  return paths;
}

}  // namespace weft::verbs
