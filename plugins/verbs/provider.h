// SPDX-License-Identifier: BSD-2-Clause
// The verbs provider: its parameters, and what fi_getinfo says that it offers on this host.
//
// Example:
//    // What the core does for fi_getinfo and fi_fabric of an application.
//    inline Result<fid_fabric *> open_first(VerbsProvider &provider,
//                                           const sdk::GetinfoQuery &query) {
//      WEFT_TRY(const sdk::InfoList offers, provider.getinfo(query));
//      if (offers.front() == nullptr) return fail(FI_ENODATA, "verbs: nothing to offer");
//      return provider.fabric(*offers.front()->fabric_attr, nullptr);
//    }
//
// Without a device the core does not open this file, and so no library of rdma-core. Not for the
// values of the parameters: settings.h.
#ifndef WEFT_PLUGINS_VERBS_PROVIDER_H
#define WEFT_PLUGINS_VERBS_PROVIDER_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/params.h>

#include <memory>
#include <vector>

#include "plugins/verbs/settings.h"

namespace weft::verbs {

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::string_param("device_name", nullptr, "the only RDMA device to use; default: all"),
    sdk::string_param(
        "iface", nullptr,
        "the network interface whose addresses are used, by its name or the beginning "
        "of it; default: all"),
    sdk::int_param("tx_size", "384", "default of tx_attr.size: operations in flight per endpoint",
                   1, 65536),
    sdk::int_param("rx_size", "384", "default of rx_attr.size: receives posted per endpoint", 1,
                   65536),
    sdk::int_param("tx_iov_limit", "4", "vectors of a transmit, at most 4 and what the device has",
                   1, 65536),
    sdk::int_param("rx_iov_limit", "4", "vectors of a receive, at most 4 and what the device has",
                   1, 65536),
    sdk::size_param("inline_size", "256",
                    "bytes that the device gets with a request, and so inject_size; halved until "
                    "the device takes it",
                    0, 4096),
    sdk::int_param("min_rnr_timer", "12",
                   "how long a peer waits after it found no receive here: the code of "
                   "ibv_modify_qp(3); 12 is 0.64 ms",
                   0, 31),
    sdk::int_param("connect_timeout_ms", "30000",
                   "milliseconds from fi_connect to the peer's answer; 0: no limit", 0, 86400000),
    sdk::int_param("resolve_timeout_ms", "2000",
                   "milliseconds to find the address of a peer, and again to find its route", 1,
                   600000),
    sdk::yield_after_param(),
    sdk::int_param("close_linger_ms", "1000",
                   "milliseconds that fi_close and fi_shutdown wait for the peer's device to take "
                   "what was injected, and for their own to give up receives",
                   0, 60000),
    sdk::bool_param("mr_cache", "0",
                    "keep registrations of memory after their use; the manual page says what that "
                    "cannot know, and what peers could reach"),
    sdk::int_param("mr_cache_max_count", "1024", "registrations that the cache keeps, at most", 1,
                   65536),
    sdk::size_param("mr_cache_max_size", "0",
                    "bytes that the cache keeps registered, at most; 0: no limit", 0, INT64_MAX),
    sdk::int_param("gid_idx", "0",
                   "which entry of the port's table of GIDs datagram endpoints are known by; -1: "
                   "one that routers pass on, of IPv4 if there is one",
                   -1, 255),
    sdk::bool_param("prefer_xrc", "0",
                    "offer endpoints of XRC, before those of RC, to applications that name no "
                    "protocol"),
    sdk::int_param("backlog", "1024",
                   "connection requests that wait for an answer; more are rejected", 1, 65535),
};
inline constexpr const char *kDevices[] = {"path:/dev/infiniband/uverbs*"};
inline constexpr const char *kDeviceRemedy =
    "load the driver of the RDMA device and ib_uverbs (in a container: pass /dev/infiniband on); "
    "without one, as root: `modprobe -a rdma_rxe rdma_ucm` and `rdma link add rxe0 type rxe netdev "
    "eth0` make a device of software (soft-RoCE) on the interface eth0";
}  // namespace parameters

class VerbsProvider {
 public:
  static constexpr sdk::UnitInfo info{
      .name = "verbs",
      .summary = "messages and remote memory access over RDMA devices (InfiniBand, RoCE, iWARP)",
      .version = FI_VERSION(1, 0),
      .offers_ep = WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_DGRAM),
      .rank = 500,
      .maturity = WEFT_MATURITY_EXPERIMENTAL,
      .security = WEFT_SECURITY_TRUSTED_PEERS,
      .devices = parameters::kDevices,
      .device_remedy = parameters::kDeviceRemedy,
      .params = parameters::kAll,
  };

  static Result<std::unique_ptr<VerbsProvider>> create(const weft_instance *instance);

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

  // With the values given.
  VerbsProvider(const weft_instance *instance, const Settings &settings);

 private:
  std::vector<DeviceFacts> usable() const;
  std::vector<bool> protocols(const sdk::GetinfoQuery &query) const;
  Result<void> add_message_infos(sdk::InfoList &list, const sdk::GetinfoQuery &query);
  bool may_use(const sdk::SockAddr &address) const;

  const weft_instance *instance_;
  const Settings settings_;
  const std::shared_ptr<Devices> devices_;
};

}  // namespace weft::verbs

#endif
