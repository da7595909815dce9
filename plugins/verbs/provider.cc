// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/provider.h"

#include <weft/sdk/ip/interfaces.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "plugins/verbs/datagram_info.h"
#include "plugins/verbs/domain.h"
#include "plugins/verbs/fabric.h"
#include "plugins/verbs/passive_endpoint.h"
#include "plugins/verbs/paths.h"

namespace weft::verbs {
namespace {

constexpr uint64_t kLinkLocal = UINT64_C(0xfe80) << 48;

Settings settings_of(const weft_instance *instance) {
  const sdk::Params<VerbsProvider> params(instance);
  Settings s;
  s.device_name = params.string("device_name");
  s.iface = params.string("iface");
  s.sizes.tx = size_t(params.integer("tx_size"));
  s.sizes.rx = size_t(params.integer("rx_size"));
  s.sizes.tx_iov = size_t(params.integer("tx_iov_limit"));
  s.sizes.rx_iov = size_t(params.integer("rx_iov_limit"));
  s.sizes.inline_size = params.size("inline_size");
  s.min_rnr_timer = uint8_t(params.integer("min_rnr_timer"));
  s.connect_timeout_ms = uint64_t(params.integer("connect_timeout_ms"));
  s.resolve_timeout_ms = int(params.integer("resolve_timeout_ms"));
  s.close_linger_ms = int(params.integer("close_linger_ms"));
  const int64_t gid_index = params.integer("gid_idx");
  s.gid_index = gid_index < 0 ? std::nullopt : std::optional(uint8_t(gid_index));
  s.caches_regions = params.flag("mr_cache");
  s.cache_limits.count = size_t(params.integer("mr_cache_max_count"));
  if (const size_t most = params.size("mr_cache_max_size"); most != 0) s.cache_limits.bytes = most;
  s.prefer_xrc = params.flag("prefer_xrc");
  s.backlog = int(params.integer("backlog"));
  return s;
}

}  // namespace

VerbsProvider::VerbsProvider(const weft_instance *instance, const Settings &settings)
    : instance_(instance),
      settings_(settings),
      devices_(std::make_shared<Devices>(settings.sizes)) {}

Result<std::unique_ptr<VerbsProvider>> VerbsProvider::create(const weft_instance *instance) {
  return std::make_unique<VerbsProvider>(instance, settings_of(instance));
}

std::vector<DeviceFacts> VerbsProvider::usable() const {
  std::vector<DeviceFacts> all = devices_->facts();
  if (!settings_.device_name.empty())
    std::erase_if(all, [&](const DeviceFacts &f) { return f.name != settings_.device_name; });
  for (DeviceFacts &facts : all)
    std::erase_if(facts.addresses, [&](const sdk::SockAddr &a) { return !may_use(a); });
  return all;
}

bool VerbsProvider::may_use(const sdk::SockAddr &address) const {
  if (settings_.iface.empty()) return true;
  const auto interfaces = sdk::list_interfaces();
  return interfaces && std::ranges::any_of(*interfaces, [&](const sdk::Interface &interface) {
           return interface.name.starts_with(settings_.iface) &&
                  interface.address.ip() == address.ip();
         });
}

// Whether entries are those of XRC: a hint or a parameter must ask for them.
std::vector<bool> VerbsProvider::protocols(const sdk::GetinfoQuery &query) const {
  const fi_info *const hints = query.hints;
  const uint32_t asked = hints != nullptr && hints->ep_attr != nullptr ? hints->ep_attr->protocol
                                                                       : uint32_t(FI_PROTO_UNSPEC);
  if (asked == FI_PROTO_RDMA_CM_IB_XRC) return {true};
  if (asked == FI_PROTO_UNSPEC && settings_.prefer_xrc) return {true, false};
  return {false};
}

Result<void> VerbsProvider::add_message_infos(sdk::InfoList &list, const sdk::GetinfoQuery &query) {
  auto found = device_paths(query, usable(), *devices_);
  if (found)
    std::erase_if(*found, [&](const DevicePath &path) {
      const auto source = sdk::SockAddr::from(path.source);
      return source && !may_use(*source);
    });
  if (found && found->empty())
    found = fail(FI_ENODATA, "verbs: no interface that begins with %s leads there (verbs iface)",
                 settings_.iface.c_str());
  // Addresses of InfiniBand belong to no interface.
  if (settings_.iface.empty()) {
    WEFT_TRY(std::vector<DevicePath> native, infiniband_paths(query, usable(), *devices_));
    if (!found && !native.empty()) found.emplace();
    if (found) std::ranges::move(native, std::back_inserter(*found));
  }
  if (!found) return tl::unexpected(found.error());
  for (const bool xrc : protocols(query))
    for (const DevicePath &path : *found) {
      // Lookups are between addresses of IP.
      if (xrc && (!path.facts.has_xrc || path.source.format() == FI_SOCKADDR_IB)) continue;
      WEFT_TRY(fi_info *const entry, list.add());
      WEFT_CHECK((xrc ? fill_xrc_info : fill_message_info)(*entry, path, query, settings_.sizes));
    }
  return {};
}

Result<sdk::InfoList> VerbsProvider::getinfo(const sdk::GetinfoQuery &query) {
  WEFT_CHECK(devices_->refresh());
  for (const std::string &reason : devices_->left_out())
    WEFT_INFO(instance_, FI_LOG_FABRIC, "left out: %s", reason.c_str());
  sdk::InfoList list(instance_->core);
  const auto messages = add_message_infos(list, query);
  const auto datagrams = add_datagram_infos(list, query, usable(), settings_.sizes);
  if (!messages && !datagrams) return tl::unexpected(messages.error());
  return list;
}

Result<fid_fabric *> VerbsProvider::fabric(const fi_fabric_attr &attr, void *context) {
  WEFT_CHECK(devices_->refresh());
  return Fabric::open(instance_, settings_, attr, context, devices_);
}

Result<void> VerbsProvider::explain(const sdk::LineSink &line) {
  WEFT_CHECK(devices_->refresh());
  for (const DeviceFacts &facts : devices_->facts()) {
    line("%s: port %d is %s, %zu addresses%s", facts.name.c_str(), int(facts.port),
         facts.port_active ? "active" : "down: see `rdma link`", facts.addresses.size(),
         settings_.device_name.empty() || facts.name == settings_.device_name
             ? ""
             : "; left out by device_name");
    if (facts.has_datagrams && facts.transport == Transport::kRoce && settings_.gid_index == 0 &&
        facts.gid_prefix == kLinkLocal)
      line(
          "%s: its first GID is link-local, so datagram endpoints (and rxd over them) reach the "
          "same network only: verbs gid_idx -1 takes one that routers pass on",
          facts.name.c_str());
    for (const sdk::SockAddr &address : facts.addresses)
      line("%s: %s", facts.name.c_str(), address.ip().c_str());
  }
  for (const std::string &reason : devices_->left_out()) line("%s", reason.c_str());
  if (devices_->facts().empty())
    line(
        "no RDMA device: load the driver of a card, or make one in software: rdma link add rxe0 "
        "type rxe netdev eth0");
  return {};
}

}  // namespace weft::verbs
