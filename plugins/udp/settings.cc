// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/settings.h"

#include "plugins/udp/provider.h"

namespace weft::udp {

Settings Settings::from(const weft_instance *instance) {
  const sdk::Params<UdpProvider> params(instance);
  Settings s;
  s.interfaces = params.list("interfaces");
  if (const auto one = params.string("iface"); !one.empty() && s.interfaces.empty())
    s.interfaces = {std::string(one)};
  s.tx_size = size_t(params.integer("tx_size"));
  s.rx_size = size_t(params.integer("rx_size"));
  s.recvbuf_size = int(params.size("recvbuf_size"));
  s.sendbuf_size = int(params.size("sendbuf_size"));
  s.multicast_hops = int(params.integer("multicast_hops"));
  s.offload = params.flag("offload");
  s.libcuda = params.string("libcuda");
  return s;
}

}  // namespace weft::udp
