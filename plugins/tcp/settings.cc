// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/settings.h"

#include "plugins/tcp/provider.h"

namespace weft::tcp {

Settings Settings::from(const weft_instance *instance) {
  const sdk::Params<TcpProvider> params(instance);
  Settings s;
  s.interfaces = params.list("interfaces");
  if (const auto one = params.string("iface"); !one.empty() && s.interfaces.empty())
    s.interfaces = {std::string(one)};
  s.auth_key_file = params.string("auth_key_file");
  s.connect_timeout_ns = uint64_t(params.integer("connect_timeout_ms")) * 1'000'000u;
  s.handshake_timeout_ns = uint64_t(params.integer("handshake_timeout_ms")) * 1'000'000u;
  s.close_linger_ms = int(params.integer("close_linger_ms"));
  s.backlog = int(params.integer("backlog"));
  s.max_handshakes = size_t(params.integer("max_handshakes"));
  s.tx_size = size_t(params.integer("tx_size"));
  s.rx_size = size_t(params.integer("rx_size"));
  s.nodelay = params.flag("nodelay");
  s.send_buffer = int(params.size("send_buffer"));
  s.recv_buffer = int(params.size("recv_buffer"));
  s.local_congestion = params.string("local_congestion");
  if (s.local_congestion == "system") s.local_congestion.clear();
  s.max_saved_size = uint64_t(params.size("max_saved_size"));
  s.max_saved_per_peer = uint64_t(params.size("max_saved_per_peer"));
  s.max_saved = uint64_t(params.size("max_saved"));
  s.max_connections = size_t(params.integer("max_connections"));
  s.max_unnamed_peers = size_t(params.integer("max_unnamed_peers"));
  s.libcuda = params.string("libcuda");
  s.port_low = uint16_t(params.integer("port_low_range"));
  s.port_high = uint16_t(params.integer("port_high_range"));
  if (s.port_high < s.port_low) s.port_high = s.port_low;
  return s;
}

}  // namespace weft::tcp
