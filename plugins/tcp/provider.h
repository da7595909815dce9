// SPDX-License-Identifier: BSD-2-Clause
// The tcp provider: its parameters, and what fi_getinfo says that it offers on this host.
//
// Example:
//    // What the core does for fi_getinfo and fi_fabric of an application.
//    inline Result<fid_fabric *> open_first(TcpProvider &provider,
//                                           const sdk::GetinfoQuery &query) {
//      WEFT_TRY(const sdk::InfoList offers, provider.getinfo(query));
//      if (offers.front() == nullptr) return fail(FI_ENODATA, "tcp: nothing to offer");
//      return provider.fabric(*offers.front()->fabric_attr, nullptr);
//    }
//
// Not for the values of the parameters: settings.h.
#ifndef WEFT_PLUGINS_TCP_PROVIDER_H
#define WEFT_PLUGINS_TCP_PROVIDER_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/ip/paths.h>
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/params.h>

#include <memory>
#include <optional>
#include <vector>

#include <weft/sdk/memory/hmem.h>

#include "plugins/tcp/settings.h"

namespace weft::tcp {

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::list_param("interfaces", nullptr,
                    "interfaces to use, best first: names (hsn*), networks (10.1.0.0/16), !docker* "
                    "to leave out; default: all that are "
                    "up, routable ones first"),
    sdk::string_param("iface", nullptr, "one interface to use, by name; `interfaces` says more"),
    sdk::string_param("auth_key_file", nullptr,
                      "file with the auth_key of endpoints that are opened without one, readable "
                      "by its owner only; peers without the same key cannot connect"),
    sdk::int_param("connect_timeout_ms", "30000",
                   "milliseconds from fi_connect to the peer's answer; 0: no limit", 0, 86400000),
    sdk::int_param("handshake_timeout_ms", "5000",
                   "milliseconds for an incoming connection to complete its request", 1, 86400000),
    sdk::int_param("close_linger_ms", "1000",
                   "milliseconds that fi_close, and exit() without it, wait for injected data to "
                   "leave, and for peers to ask for messages that are announced to them",
                   0, 600000),
    sdk::int_param("backlog", "4096",
                   "connections that the kernel holds for a passive endpoint, at most "
                   "net.core.somaxconn; they "
                   "also wait there while half of `ulimit -n` requests have no answer yet",
                   1, 65535),
    sdk::int_param(
        "max_handshakes", "1024",
        "incoming connections with an incomplete request; beyond that one that has been silent for "
        "50 ms makes room, and others wait in the kernel (backlog)",
        1, 1000000),
    sdk::int_param("tx_size", "1024", "default of tx_attr.size: operations in flight per endpoint",
                   1, 1048576),
    sdk::int_param("rx_size", "8192", "default of rx_attr.size: receives expected per endpoint", 1,
                   1048576),
    sdk::bool_param("nodelay", "1", "send small messages at once (TCP_NODELAY)"),
    sdk::size_param("send_buffer", "0", "bytes of SO_SNDBUF; 0: the kernel adapts it", 0, 1 << 30),
    sdk::size_param("recv_buffer", "0", "bytes of SO_RCVBUF; 0: the kernel adapts it", 0, 1 << 30),
    sdk::string_param("local_congestion", "reno",
                      "congestion control between processes of one host, where pacing only costs "
                      "(bbr halves the bandwidth); system: the kernel's default"),
    sdk::size_param("max_saved_size", "8M",
                    "FI_EP_RDM: bytes of a tagged message that is sent before the receiver asks "
                    "for it; at most 8M, and 64K until the receiver has said that it has room",
                    0, INT64_MAX),
    sdk::size_param("max_saved_per_peer", "32M",
                    "FI_EP_RDM: bytes of one peer's messages that are saved until a receive is "
                    "posted; beyond that its connection is not read",
                    0, INT64_MAX),
    sdk::size_param("max_saved", "512M",
                    "the same for all peers of an endpoint; those that are not in its address "
                    "vector get half of it",
                    0, INT64_MAX),
    sdk::int_param("max_connections", "0",
                   "FI_EP_RDM: connections of an endpoint; beyond that the one unused for longest "
                   "is closed; 0: no limit",
                   0, 1000000),
    sdk::int_param("max_unnamed_peers", "32768",
                   "FI_EP_RDM: connections of an endpoint with peers that are not in its address "
                   "vector, at most half of `ulimit -n`; the one idle for longest makes room",
                   1, 1000000),
    sdk::yield_after_param(),
    sdk::string_param("libcuda", "libcuda.so.1",
                      "the driver's library for memory of CUDA devices (FI_HMEM); empty: none"),
    sdk::int_param("port_low_range", "0",
                   "first port for listeners whose address names none; 0: any", 0, 65535),
    sdk::int_param("port_high_range", "0", "last port of that range", 0, 65535),
};
}  // namespace parameters

class TcpProvider {
 public:
  static constexpr sdk::UnitInfo info{
      .name = "tcp",
      .summary = "messages, tagged messages and remote memory access over TCP sockets",
      .version = FI_VERSION(1, 0),
      .offers_ep = WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_RDM),
      .rank = 300,
      .maturity = WEFT_MATURITY_STABLE,
      .security = WEFT_SECURITY_ROBUST,
      .params = parameters::kAll,
  };

  static Result<std::unique_ptr<TcpProvider>> create(const weft_instance *instance);

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

 private:
  explicit TcpProvider(const weft_instance *instance)
      : instance_(instance),
        settings_(Settings::from(instance)),
        hmem_(std::make_shared<sdk::HmemSource>(sdk::HmemOptions{.cuda = settings_.libcuda})) {}

  Result<void> add_info(sdk::InfoList &list, const sdk::IpPath &path, enum fi_ep_type type,
                        const sdk::GetinfoQuery &query) const;
  Result<void> add_stream(sdk::InfoList &list, const sdk::IpPath &path,
                          const sdk::GetinfoQuery &query) const;

  const weft_instance *instance_;
  const Settings settings_;
  const std::shared_ptr<sdk::HmemSource> hmem_;
};

}  // namespace weft::tcp

#endif
