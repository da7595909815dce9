// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/settings.h"

#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "plugins/cxi/provider.h"

namespace weft::cxi {
namespace {

using Params = sdk::Params<CxiProvider>;

constexpr size_t kMaxUniverse = size_t{1} << 32;

// A parameter that has an older name, too.
int64_t or_older(int64_t value, bool is_default, int64_t older) {
  return is_default && older >= 0 ? older : value;
}

// What only the hardware would follow.
Result<void> check_hardware(const Params &params) {
  WEFT_CHECK(params.word("ats_mlock_mode", {"off", "all"}));
  WEFT_CHECK(params.word("llring_mode", {"idle", "always", "never"}));
  WEFT_CHECK(params.word("cq_policy", {"always", "high_empty", "low_empty", "low"}));
  return {};
}

// FI_UNIVERSE_SIZE: how many processes there are. Launchers set it for whatever libfabric there is.
size_t universe_size(const weft_instance *instance, size_t usual) {
  constexpr const char *kName = "FI_UNIVERSE_SIZE";
  const char *const text = secure_getenv(kName);
  if (text == nullptr || *text == '\0') return usual;
  const std::string_view all(text);
  size_t value = 0;
  const auto [end, error] = std::from_chars(all.begin(), all.end(), value);
  if (error == std::errc() && end == all.end() && value != 0 && value <= kMaxUniverse) return value;
  WEFT_WARN(instance, FI_LOG_FABRIC, "%s is \"%s\", and not 1 to %zu: it counts as %zu", kName,
            text, kMaxUniverse, usual);
  return usual;
}

Result<std::vector<Telemetry>> telemetry_named(const weft_instance *instance,
                                               const std::vector<std::string> &names) {
  std::vector<Telemetry> all;
  for (const std::string &name : names) {
    if (name == "ALL-in-binary")
      return fail(FI_EINVAL, "cxi telemetry: ALL-in-binary is no counter: name them one by one");
    if (const auto which = telemetry_of(std::string_view(name)))
      all.push_back(*which);
    else
      WEFT_WARN(instance, FI_LOG_FABRIC, "telemetry: %s is not counted here", name.c_str());
  }
  return all;
}

}  // namespace

Result<Settings> CxiProvider::settings_of(const weft_instance *instance) {
  const Params params(instance);
  Settings s;
  s.device_names = params.list("device_name");
  s.libcxi = std::string(params.string("libcxi"));
  s.names_libcxi = s.libcxi != "libcxi.so.1";
  if (!params.is_default("soft"))
    s.soft_for = params.flag("soft") ? Settings::SoftFor::kAll : Settings::SoftFor::kNobody;
  s.soft_devices = params.list("soft_devices");
  s.soft.has_thread = params.flag("soft_thread");
  s.soft.limits.list_entries = uint32_t(params.integer("soft_list_entries"));
  s.soft.limits.triggered = uint32_t(params.integer("soft_triggered"));
  s.soft.pcie_fadd = int(params.integer("soft_pcie_fadd"));
  s.soft.hosts.port = uint16_t(params.integer("soft_port"));
  s.soft.hosts.timeout_ms = unsigned(params.integer("soft_timeout_ms"));
  s.soft.hosts.say = [instance](const std::string &text) {
    WEFT_WARN_SPARSE(instance, FI_LOG_EP_CTRL, "a NIC of another host: %s", text.c_str());
  };
  s.tx_size = size_t(params.integer("default_tx_size"));
  s.rx_size = size_t(params.integer("default_rx_size"));
  s.cq_size = size_t(params.integer("default_cq_size"));
  s.rdzv_threshold = params.size("rdzv_threshold");
  s.rdzv_get_min = params.size("rdzv_get_min");
  s.rdzv_eager_size = params.size("rdzv_eager_size");
  s.disable_non_inject_msg_idc = params.flag("disable_non_inject_msg_idc");
  s.oflow_buf_size = params.size("oflow_buf_size");
  s.oflow_buf_min_posted = size_t(or_older(params.integer("oflow_buf_min_posted"),
                                           params.is_default("oflow_buf_min_posted"),
                                           params.integer("oflow_buf_count")));
  s.oflow_buf_max_cached = size_t(params.integer("oflow_buf_max_cached"));
  if (params.is_default("oflow_buf_max_cached"))
    s.oflow_buf_max_cached = 3 * s.oflow_buf_min_posted;
  s.req_buf_size = params.size("req_buf_size");
  s.req_buf_min_posted = size_t(params.integer("req_buf_min_posted"));
  s.req_buf_max_cached =
      size_t(or_older(params.integer("req_buf_max_cached"), params.is_default("req_buf_max_cached"),
                      params.integer("req_buf_max_count")));
  s.msg_lossless = params.flag("msg_lossless");
  s.fc_retry_ns = uint64_t(params.integer("fc_retry_usec_delay")) * 1000;
  s.rnr_max_timeout_ns = uint64_t(params.integer("rnr_max_timeout_us")) * 1000;
  s.cq_fill_percent = unsigned(params.integer("cq_fill_percent"));
  s.eq_ack_batch = size_t(params.integer("eq_ack_batch_size"));
  s.sw_rx_tx_init_max = size_t(params.integer("sw_rx_tx_init_max"));
  s.optimized_mrs = params.flag("optimized_mrs");
  s.mr_match_events = params.flag("mr_match_events");
  s.prov_key_cache = params.flag("prov_key_cache");
  s.odp = params.flag("odp");
  s.compat = Settings::Compat(params.integer("compat"));
  s.force_odp = params.flag("force_odp");
  s.ctrl_rx_eq_max_size = params.size("ctrl_rx_eq_max_size");
  s.universe_size = universe_size(instance, s.universe_size);
  s.coll_timeout_ns = uint64_t(params.integer("coll_timeout_usec")) * 1000;
  s.coll_limit_ns = uint64_t(params.integer("coll_limit_usec")) * 1000;
  s.manager = {.url = std::string(params.string("coll_fabric_mgr_url")),
               .token = std::string(params.string("coll_mcast_token")),
               .job = std::string(params.string("coll_job_id")),
               .step = std::string(params.string("coll_job_step_id"))};
  WEFT_CHECK(check_manager(s.manager, std::string(params.origin("coll_fabric_mgr_url"))));
  s.hmem = {.cuda = std::string(params.string("libcuda")),
            .direct = params.size("safe_devmem_copy_threshold")};
  s.disable_host_register = params.flag("disable_host_register");
  s.default_vni = Vni(params.integer("default_vni"));
  s.enable_trig_op_limit = params.flag("enable_trig_op_limit");

  WEFT_TRY(const size_t proto, params.word("rdzv_proto", {"default", "alt_read"}));
  s.alt_read = proto == 1;
  WEFT_TRY(const size_t mode, params.word("rx_match_mode", {"hardware", "software", "hybrid"}));
  s.match_mode = MatchMode(mode);
  s.preemptive = {.low_on_message = params.flag("hybrid_preemptive"),
                  .low_on_receive = params.flag("hybrid_recv_preemptive"),
                  .receives = params.flag("hybrid_posted_recv_preemptive"),
                  .messages = params.flag("hybrid_unexpected_msg_preemptive")};
  WEFT_CHECK(check_hardware(params));
  WEFT_TRY(s.telemetry, telemetry_named(instance, params.list("telemetry")));
  if (s.max_eager() > s.oflow_buf_size)
    return fail(FI_EINVAL,
                "cxi rdzv_threshold (%zu) and rdzv_get_min (%zu) are more than oflow_buf_size "
                "(%zu): a message must fit into a buffer",
                s.rdzv_threshold, s.rdzv_get_min, s.oflow_buf_size);
  if (s.max_eager() + kMaxRequestHead > s.req_buf_size)
    return fail(FI_EINVAL,
                "cxi rdzv_threshold (%zu) and rdzv_get_min (%zu) are more than req_buf_size (%zu)",
                s.rdzv_threshold, s.rdzv_get_min, s.req_buf_size);
  s.rdzv_eager_size = std::min(s.rdzv_eager_size, s.max_eager());
  return s;
}

}  // namespace weft::cxi
