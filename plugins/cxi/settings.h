// SPDX-License-Identifier: BSD-2-Clause
// The values of the provider's parameters. Their names and help are in provider.h.
//
// Example (statements):
//    const Settings settings;  // the defaults
//    const uint64_t longest_eager = settings.max_eager();
//
// Not for what a NIC has: nic/device.h.
#ifndef WEFT_PLUGINS_CXI_SETTINGS_H
#define WEFT_PLUGINS_CXI_SETTINGS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/sdk/memory/hmem.h>

#include "plugins/cxi/fabric_manager.h"
#include "plugins/cxi/soft/devices.h"

namespace weft::cxi {

enum class MatchMode : uint8_t { kHardware, kSoftware, kHybrid };

struct Settings {
  std::vector<std::string> device_names;  // the only ones to use; none: all
  std::string libcxi;                     // HPE's library; empty: none
  bool names_libcxi = false;              // somebody says which
  // Who is offered NICs in software. kNamers: who names the provider (WEFT_GETINFO_NAMED).
  enum class SoftFor : uint8_t { kNobody, kNamers, kAll } soft_for = SoftFor::kNamers;
  SoftOptions soft;
  std::vector<std::string> soft_devices;  // soft/devices.h; none: the usual two
  size_t tx_size = 1024, rx_size = 1024, cq_size = 131072;

  // Messages up to max_eager() go at once. Of a longer one `eager_size` bytes go with its header.
  size_t rdzv_threshold = 16384, rdzv_get_min = 2049, rdzv_eager_size = 2048;
  bool alt_read = false;
  bool disable_non_inject_msg_idc = false;
  size_t max_eager() const { return rdzv_threshold + rdzv_get_min; }

  MatchMode match_mode = MatchMode::kHardware;
  // Of MatchMode::kHybrid: software matches before it must.
  struct Preemptive {
    bool low_on_message = false, low_on_receive = false;  // of list entries
    bool receives = false, messages = false;              // more than rx_attr.size
  } preemptive;
  size_t oflow_buf_size = 12u << 20, oflow_buf_min_posted = 3, oflow_buf_max_cached = 9;
  size_t req_buf_size = 12u << 20, req_buf_min_posted = 6, req_buf_max_cached = 0;
  bool msg_lossless = false;
  uint64_t fc_retry_ns = 1'000'000;
  uint64_t rnr_max_timeout_ns = 500'000'000;
  unsigned cq_fill_percent = 50;
  size_t eq_ack_batch = 32;  // events between two acknowledgements
  size_t sw_rx_tx_init_max = 1024;

  bool optimized_mrs = true, mr_match_events = false, prov_key_cache = true;
  bool odp = false, force_odp = false;
  enum class Compat : uint8_t { kNever, kAsked, kAlways } compat = Compat::kAsked;
  size_t universe_size = 256, ctrl_rx_eq_max_size = 64u << 20;
  // Places for events of regions and control messages. What is sent needs half of the least.
  size_t control_events() const {
    const size_t wanted = std::max<size_t>(universe_size * 4, 8192);
    return std::max<size_t>(2048, std::min(wanted, ctrl_rx_eq_max_size / 64));
  }

  uint64_t coll_timeout_ns = 32'000'000;
  uint64_t coll_limit_ns = 0;  // 0: none
  ManagerOptions manager;

  sdk::HmemOptions hmem;
  bool disable_host_register = false;

  uint16_t default_vni = 10;
  std::vector<Telemetry> telemetry;  // to log
  bool enable_trig_op_limit = false;
};

}  // namespace weft::cxi

#endif
