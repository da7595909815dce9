// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/settings.h"

#include <iterator>

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
  return s;
}

size_t Stats::read(weft_counter *out, size_t count) const {
  static constexpr const char *kNames[] = {
      "datagrams_truncated", "datagrams_dropped",  "socket_errors",
      "sends_segmented",     "receives_coalesced", "sends_put_off",
  };
  static_assert(std::size(kNames) == size_t(Stat::kCount));
  for (size_t i = 0; i < std::size(kNames) && i < count; ++i)
    out[i] = {kNames[i], values_[i].load(std::memory_order_relaxed)};
  return std::size(kNames);
}

}  // namespace weft::udp
