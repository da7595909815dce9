// SPDX-License-Identifier: BSD-2-Clause
// The settings of the udp provider, and its counters.
//
// Example:
//    inline void count(Stats &stats, size_t placed, size_t length) {
//      if (placed < length) stats.add(Stat::kTruncated);
//    }
//    inline bool cuts(const weft_instance *instance) { return Settings::from(instance).offload; }
//
// Not for the wishes of an application: those are in its fi_info.
#ifndef WEFT_PLUGINS_UDP_SETTINGS_H
#define WEFT_PLUGINS_UDP_SETTINGS_H

#include <weft/plugin.h>

#include <array>
#include <atomic>
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

  static Settings from(const weft_instance *instance);
};

// Counted per fabric; read through WEFT_COUNTERS_OPS (weft/plugin.h).
enum class Stat {
  kTruncated,       // longer than the receive posted for them
  kDropped,         // arrived, but there was no memory to hold them
  kSocketErrors,    // that belong to no operation
  kSegmentedSends,  // messages to the kernel that held several datagrams
  kCoalesced,       // messages from the kernel that held several datagrams
  kSendsPutOff,     // the socket had no room
  kCount,
};

class Stats {
 public:
  void add(Stat stat) { values_[size_t(stat)].fetch_add(1, std::memory_order_relaxed); }
  uint64_t value(Stat stat) const { return values_[size_t(stat)].load(std::memory_order_relaxed); }
  size_t read(weft_counter *out, size_t count) const;

 private:
  std::array<std::atomic<uint64_t>, size_t(Stat::kCount)> values_{};
};

}  // namespace weft::udp

#endif
