// SPDX-License-Identifier: BSD-2-Clause
// The settings of the udp provider.
//
// Example:
//    inline bool cuts(const weft_instance *instance) { return Settings::from(instance).offload; }
//
// Not for the wishes of an application: those are in its fi_info.
#ifndef WEFT_PLUGINS_UDP_SETTINGS_H
#define WEFT_PLUGINS_UDP_SETTINGS_H

#include <weft/plugin.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::udp {

struct Settings {
  std::vector<std::string> interfaces;  // patterns; empty: all
  size_t tx_size = 0, rx_size = 0;
  int recvbuf_size = 0, sendbuf_size = 0;  // bytes of SO_RCVBUF, SO_SNDBUF; 0: the kernel's
  int multicast_hops = 1;
  bool offload = true;  // segmentation by the kernel, both ways
  std::string libcuda;

  static Settings from(const weft_instance *instance);
};

}  // namespace weft::udp

#endif
