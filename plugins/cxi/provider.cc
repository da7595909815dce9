// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/provider.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "plugins/cxi/all_devices.h"
#include "plugins/cxi/fabric.h"
#include "plugins/cxi/info.h"

namespace weft::cxi {
namespace {

Result<Settings> settings_of(const weft_instance *instance) {
  const sdk::Params<CxiProvider> params(instance);
  Settings s;
  s.device_names = params.list("device_name");
  s.libcxi = std::string(params.string("libcxi"));
  s.names_libcxi = s.libcxi != "libcxi.so.1";
  s.is_soft = params.flag("soft");
  s.soft_devices = params.list("soft_devices");
  s.soft.has_thread = params.flag("soft_thread");
  s.soft.limits.list_entries = uint32_t(params.integer("soft_list_entries"));
  s.soft.limits.triggered = uint32_t(params.integer("soft_triggered"));
  s.soft.pcie_fadd = int(params.integer("soft_pcie_fadd"));
  s.tx_size = size_t(params.integer("default_tx_size"));
  s.rx_size = size_t(params.integer("default_rx_size"));
  s.cq_size = size_t(params.integer("default_cq_size"));
  s.rdzv_threshold = params.size("rdzv_threshold");
  s.rdzv_get_min = params.size("rdzv_get_min");
  s.rdzv_eager_size = params.size("rdzv_eager_size");
  s.disable_non_inject_msg_idc = params.flag("disable_non_inject_msg_idc");
  s.oflow_buf_size = params.size("oflow_buf_size");
  s.oflow_buf_min_posted = size_t(params.integer("oflow_buf_min_posted"));
  s.oflow_buf_max_cached = size_t(params.integer("oflow_buf_max_cached"));
  if (s.oflow_buf_max_cached == 0) s.oflow_buf_max_cached = 3 * s.oflow_buf_min_posted;
  s.req_buf_size = params.size("req_buf_size");
  s.req_buf_min_posted = size_t(params.integer("req_buf_min_posted"));
  s.req_buf_max_cached = size_t(params.integer("req_buf_max_cached"));
  s.fc_retry_ns = uint64_t(params.integer("fc_retry_usec_delay")) * 1000;
  s.rnr_max_timeout_ns = uint64_t(params.integer("rnr_max_timeout_us")) * 1000;
  s.cq_fill_percent = unsigned(params.integer("cq_fill_percent"));
  s.eq_ack_batch = size_t(params.integer("eq_ack_batch_size"));
  s.sw_rx_tx_init_max = size_t(params.integer("sw_rx_tx_init_max"));
  s.optimized_mrs = params.flag("optimized_mrs");
  s.ctrl_rx_eq_max_size = params.size("ctrl_rx_eq_max_size");
  s.default_vni = Vni(params.integer("default_vni"));

  const std::string_view proto = params.string("rdzv_proto");
  if (proto != "default" && proto != "alt_read")
    return fail(FI_EINVAL, "cxi rdzv_proto is \"%.*s\" (%s): default or alt_read",
                int(proto.size()), proto.data(), params.origin("rdzv_proto"));
  s.alt_read = proto == "alt_read";
  const std::string_view mode = params.string("rx_match_mode");
  if (mode == "software") {
    s.match_mode = MatchMode::kSoftware;
  } else if (mode == "hybrid") {
    s.match_mode = MatchMode::kHybrid;
  } else if (mode != "hardware") {
    return fail(FI_EINVAL, "cxi rx_match_mode is \"%.*s\" (%s): hardware, software or hybrid",
                int(mode.size()), mode.data(), params.origin("rx_match_mode"));
  }
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

}  // namespace

Result<std::unique_ptr<CxiProvider>> CxiProvider::create(const weft_instance *instance) {
  WEFT_TRY(Settings settings, settings_of(instance));
  WEFT_TRY(std::shared_ptr<AllDevices> devices, AllDevices::make(settings));
  return std::make_unique<CxiProvider>(instance, std::move(settings), std::move(devices));
}

std::vector<DeviceFacts> CxiProvider::usable() const {
  std::vector<DeviceFacts> all = devices_->list();
  std::erase_if(all, [&](const DeviceFacts &facts) {
    if (facts.is_software && !settings_.is_soft) return true;
    const auto &names = settings_.device_names;
    return !names.empty() && std::ranges::find(names, facts.name) == names.end();
  });
  return all;
}

Result<sdk::InfoList> CxiProvider::getinfo(const sdk::GetinfoQuery &query) {
  const std::vector<DeviceFacts> devices = usable();
  if (devices.empty())
    return fail(
        FI_ENODATA,
        settings_.is_soft
            ? "cxi: no NIC is left by FI_CXI_DEVICE_NAME"
            : "cxi: there is no Slingshot card, and NICs in software are off (FI_CXI_SOFT)");
  WEFT_TRY(const AskedPlaces asked, asked_places(query, devices));
  sdk::InfoList list(instance_->core);
  for (const DeviceFacts &facts : devices) {
    if (!asked.device.empty() && facts.name != asked.device) continue;
    WEFT_CHECK(add_infos(list, facts, asked, query, settings_));
  }
  return list;
}

Result<fid_fabric *> CxiProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, devices_, attr, context);
}

Result<void> CxiProvider::explain(const sdk::LineSink &line) {
  for (const DeviceFacts &facts : usable())
    line("%s: NIC 0x%x, %s", facts.name.c_str(), facts.nid,
         facts.is_software ? "in software: for development, not for speed" : "Cassini");
  for (const std::string &note : devices_->notes()) line("%s", note.c_str());
  if (usable().empty()) line("no NIC: see FI_CXI_LIBCXI, FI_CXI_SOFT and FI_CXI_DEVICE_NAME");
  return {};
}

}  // namespace weft::cxi
