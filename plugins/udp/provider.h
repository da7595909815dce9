// SPDX-License-Identifier: BSD-2-Clause
// The udp provider: its parameters, and what fi_getinfo says that it offers on this host.
//
// max_msg_size is 1472, as in other libfabrics, or less if the interface's MTU is smaller. Hints
// that ask for more get the interface's MTU less the headers, up to the limit of IP.
#ifndef WEFT_PLUGINS_UDP_PROVIDER_H
#define WEFT_PLUGINS_UDP_PROVIDER_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/ip/paths.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/params.h>

#include <cstddef>
#include <memory>

#include "plugins/udp/settings.h"

namespace weft::udp {

inline constexpr size_t kUsualSize = 1472;
// Bytes of payload in one datagram. `mtu` 0: unknown.
size_t largest_datagram(int family, unsigned mtu);

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::list_param("interfaces", nullptr,
                    "interfaces to use, best first: names (hsn*), networks (10.1.0.0/16), !docker* "
                    "to leave out; default: all that are up, routable ones first"),
    sdk::string_param("iface", nullptr, "one interface to use, by name; `interfaces` says more"),
    sdk::int_param("tx_size", "1024", "default of tx_attr.size: sends in flight per endpoint", 1,
                   1048576),
    sdk::int_param("rx_size", "1024", "default of rx_attr.size: receives expected per endpoint", 1,
                   1048576),
    sdk::size_param("recvbuf_size", "4M",
                    "bytes of datagrams that a socket keeps until they are received (SO_RCVBUF), "
                    "as far as net.core.rmem_max permits; 0: the kernel's default",
                    0, 1 << 30),
    // Answers to forged addresses of the own subnet stay in this buffer for seconds, until the
    // kernel's ARP requests time out. Datagrams to other peers must fit beside them.
    sdk::size_param("sendbuf_size", "4M",
                    "bytes of datagrams on their way out (SO_SNDBUF), as far as net.core.wmem_max "
                    "permits; 0: the kernel's default",
                    0, 1 << 30),
    sdk::int_param("multicast_hops", "1", "routers that datagrams to a group may pass", 0, 255),
    sdk::bool_param("offload", "1",
                    "let the kernel cut and join runs of equal datagrams (UDP_SEGMENT, UDP_GRO)"),
    sdk::yield_after_param(),
    sdk::string_param("libcuda", "libcuda.so.1",
                      "the driver's library for memory of CUDA devices (FI_HMEM); empty: none"),
};
}  // namespace parameters

class UdpProvider {
 public:
  static constexpr sdk::UnitInfo info{
      .name = "udp",
      .summary = "unreliable datagrams over UDP sockets",
      .version = FI_VERSION(1, 0),
      .offers_ep = WEFT_EP_BIT(FI_EP_DGRAM),
      .rank = 200,
      .maturity = WEFT_MATURITY_STABLE,
      .security = WEFT_SECURITY_ROBUST,
      .params = parameters::kAll,
  };

  static Result<std::unique_ptr<UdpProvider>> create(const weft_instance *instance);

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

 private:
  explicit UdpProvider(const weft_instance *instance)
      : instance_(instance),
        settings_(Settings::from(instance)),
        hmem_(std::make_shared<sdk::HmemSource>(sdk::HmemOptions{.cuda = settings_.libcuda})) {}

  Result<void> add_info(sdk::InfoList &list, const sdk::IpPath &path,
                        const sdk::GetinfoQuery &query) const;
  Result<void> add_socket(sdk::InfoList &list, const sdk::IpPath &path,
                          const sdk::GetinfoQuery &query) const;

  const weft_instance *instance_;
  const Settings settings_;
  const std::shared_ptr<sdk::HmemSource> hmem_;
};

}  // namespace weft::udp

#endif
