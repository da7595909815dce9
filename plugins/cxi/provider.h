// SPDX-License-Identifier: BSD-2-Clause
// The provider cxi: which NICs there are, and its parameters (weft-cxi.7).
//
// Example:
//    #include <weft/sdk/unit.h>
//    constexpr sdk::PluginInfo plugin{.name = "cxi", .vendor = "v", .version = "1",
//                                     .license = "l"};
//    static_assert(sdk::Provider<CxiProvider>);
//
// Not for what a NIC does.
#ifndef WEFT_PLUGINS_CXI_PROVIDER_H
#define WEFT_PLUGINS_CXI_PROVIDER_H

#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/unit/params.h>
#include <weft/sdk/unit/provider.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cxi/all_devices.h"
#include "plugins/cxi/auth_key.h"
#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/settings.h"

namespace weft::cxi {

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::list_param("device_name", nullptr, "the only NICs to use: cxi0,cxi1; empty: all"),
    sdk::string_param("libcxi", "libcxi.so.1",
                      "HPE's library, through which Slingshot cards are reached; empty: none"),
    sdk::bool_param("soft", nullptr,
                    "NICs in software where there is no Slingshot card: yes: for all programs; no: "
                    "for none; unless it is set, for those that are told to use cxi by name "
                    "(FI_PROVIDER, prov_name, a stack)"),
    sdk::list_param("soft_devices", nullptr,
                    "the NICs in software as NAME=ADDRESS, with an IPv4 address, an interface or a "
                    "network of this host (cxi0=hsn*); empty: cxi0=127.0.0.1,cxi1=127.0.0.2, which "
                    "other hosts do not reach"),
    sdk::int_param(
        "soft_list_entries", "16384",
        "list entries of each NIC in software: receives, messages without one, and regions "
        "of all processes together; as whoever comes first says",
        8, 1 << 20),
    sdk::int_param("soft_triggered", "512", "triggered commands of each NIC in software", 0,
                   1 << 20),
    sdk::int_param("soft_pcie_fadd", "-1",
                   "which atomic operation gives way to a PCIe fetch-and-add, as the driver's "
                   "amo_remap_to_pcie_fadd says; 10: none; -1: there is no fetch-and-add",
                   -1, 10),
    sdk::bool_param("soft_thread", "1",
                    "a thread serves the NICs in software while nobody reads a completion queue"),
    sdk::int_param("soft_port", "24711",
                   "the port where NICs in software of other hosts ask, if an address in "
                   "soft_devices is not in 127.0.0.0/8; all hosts must agree",
                   1, 65535),
    sdk::int_param("soft_timeout_ms", "5000",
                   "milliseconds after which a host that does not answer counts as gone", 100,
                   3'600'000),
    sdk::int_param("default_tx_size", "1024",
                   "operations of a transmit queue, unless hints say more", 16, 16384),
    sdk::int_param("default_rx_size", "1024", "receives of an endpoint, unless hints say more", 16,
                   15360),
    sdk::int_param("default_cq_size", "131072", "entries of a completion queue without a size", 1,
                   1 << 24),
    sdk::size_param("rdzv_threshold", "16384",
                    "bytes up to which, and rdzv_get_min more, a message goes at once; of a longer "
                    "one the receiver reads the rest",
                    192, 1 << 30),
    sdk::size_param("rdzv_get_min", "2049", "bytes that are worth a read of their own", 0, 1 << 30),
    sdk::size_param("rdzv_eager_size", "2048", "bytes of a long message that go with its header", 0,
                    1 << 30),
    sdk::string_param(
        "rdzv_proto", "default",
        "how the rest of a long message is read: default (by the NIC), or alt_read (by "
        "software)"),
    sdk::bool_param("disable_non_inject_msg_idc", "0",
                    "take the bytes of short messages from memory, and not into the command"),
    sdk::size_param("oflow_buf_size", "12M", "bytes of a buffer for messages without a receive",
                    4096, int64_t{1} << 32),
    sdk::int_param("oflow_buf_min_posted", "3", "how many of those the NIC has", 1, 1024),
    sdk::int_param("oflow_buf_max_cached", "0",
                   "how many unused ones are kept; 0: all; unless it is set, three times "
                   "oflow_buf_min_posted",
                   0, 8192),
    sdk::string_param("rx_match_mode", "hardware",
                      "who matches messages with receives: hardware, software, or hybrid: the NIC, "
                      "while its resources last"),
    sdk::size_param("req_buf_size", "12M", "bytes of a buffer for messages that software matches",
                    4096, int64_t{1} << 32),
    sdk::int_param("req_buf_min_posted", "6", "how many of those the NIC has", 1, 1024),
    sdk::int_param("req_buf_max_cached", "0", "how many unused ones are kept; 0: all", 0, 8192),
    sdk::bool_param("msg_lossless", "0",
                    "messages wait in the NIC until it has a place for them, without flow control"),
    sdk::int_param("fc_retry_usec_delay", "1000",
                   "microseconds before a message of flow control, or a receive, is tried again", 0,
                   60'000'000),
    sdk::int_param(
        "rnr_max_timeout_us", "500000",
        "FI_PROTO_CXI_RNR: microseconds in which a message that finds no receive is sent "
        "again; 0: it fails at once",
        0, 3'600'000'000),
    sdk::int_param("cq_fill_percent", "50", "how full the NIC's event queues may get, in percent",
                   1, 100),
    sdk::int_param("eq_ack_batch_size", "32", "events that are read between two acknowledgements",
                   1, 65536),
    sdk::int_param("sw_rx_tx_init_max", "1024",
                   "reads that receivers start in software, at most, at a time", 64, 16384),
    sdk::bool_param("optimized_mrs", "1",
                    "regions with keys 0 to 99 are reached by short packets; all processes must "
                    "agree"),
    sdk::size_param("ctrl_rx_eq_max_size", "64M", "bytes of an event queue for control messages",
                    4096, int64_t{1} << 32),
    sdk::int_param("coll_timeout_usec", "32000",
                   "microseconds without news after which a member of a group asks whether those "
                   "that it waits for are still there",
                   1, 20'000'000),
    sdk::int_param("coll_limit_usec", "0",
                   "microseconds after which a collective operation, or joining, fails though all "
                   "members are there; 0: never",
                   0, 3'600'000'000),
    sdk::string_param(
        "coll_fabric_mgr_url", nullptr,
        "the URL of the fabric manager's REST API, which gives each group a multicast "
        "address; without it groups have none"),
    sdk::string_param("coll_job_id", nullptr, "what the fabric manager knows this job by"),
    sdk::string_param("coll_job_step_id", "0", "what it knows this step of the job by"),
    sdk::string_param("coll_mcast_token", nullptr,
                      "what the job shows the fabric manager, as a bearer token"),
    sdk::bool_param("coll_use_dma_put", "0",
                    "packets of groups are taken from memory, and not from the command"),
    sdk::bool_param(
        "mr_match_events", "0",
        "closing a region waits for what peers have begun, of which the NIC tells its owner"),
    sdk::bool_param("prov_key_cache", "1",
                    "keys of the provider need no list entry, and come back with their memory"),
    sdk::bool_param("odp", "0", "offer regions of memory that is not allocated yet"),
    sdk::bool_param("force_odp", "0", "offer them alone, whatever mr_mode asks for"),
    sdk::int_param("default_vni", "10",
                   "the virtual network (VNI) for who has no key, where the service allows it", 1,
                   65535),
    sdk::bool_param("enable_trig_op_limit", "0",
                    "FI_QUEUE_WORK fails (-FI_ENOSPC) where the processes of a service have queued "
                    "as many commands as get_dwq_depth says"),
    sdk::bool_param("hybrid_preemptive", "0",
                    "hybrid: software matches when list entries run short as messages come"),
    sdk::bool_param("hybrid_recv_preemptive", "0",
                    "hybrid: software matches when list entries run short as receives are posted"),
    sdk::bool_param("hybrid_posted_recv_preemptive", "0",
                    "hybrid: software matches when more receives are posted than rx_attr.size"),
    sdk::bool_param("hybrid_unexpected_msg_preemptive", "0",
                    "hybrid: software matches when more messages wait than rx_attr.size"),
    sdk::list_param("telemetry", nullptr,
                    "counters of the NIC whose growth is logged when a domain is closed"),
    sdk::int_param("telemetry_rgid", "-1",
                   "the resource group that telemetry is of; -1: all. A NIC in software has one",
                   INT32_MIN, INT32_MAX),
    sdk::yield_after_param("32"),  // 30 us over the NIC in software
    sdk::string_param("libcuda", "libcuda.so.1",
                      "the driver's library for memory of CUDA devices (FI_HMEM); empty: none"),
    sdk::size_param("safe_devmem_copy_threshold", "4096",
                    "bytes up to which the processor copies to and from device memory that its "
                    "loads and stores reach; the device copies the rest",
                    0, 1 << 30),
    sdk::bool_param("disable_host_register", "0",
                    "do not register buffers for unexpected messages with the device"),
    // What has no meaning without the hardware, but is checked.
    sdk::bool_param("ats", "0", "the hardware translates addresses by PCIe ATS"),
    sdk::string_param("ats_mlock_mode", "all", "what ATS locks into memory: off or all"),
    sdk::string_param("llring_mode", "idle",
                      "when the hardware is told of commands the quick way: idle, always, never"),
    sdk::string_param("cq_policy", "low_empty",
                      "how often the hardware writes back how far it has got: always, high_empty, "
                      "low_empty, low"),
    sdk::bool_param("disable_eq_hugetlb", "0", "no huge pages for event queues"),
    sdk::bool_param("disable_cq_hugetlb", "0", "the older name of disable_eq_hugetlb"),
    sdk::bool_param("disable_hmem_dev_register", "0", "do not map memory of a GPU"),
    sdk::bool_param("force_ze_hmem_support", "0", "use ZE memory whatever its scaling is"),
    sdk::bool_param("disable_dmabuf_cuda", "0", "no DMA-buf for CUDA memory"),
    sdk::bool_param("disable_dmabuf_rocr", "0", "no DMA-buf for ROCR memory"),
    sdk::int_param("compat", "1",
                   "values of FI_ADDR_CXI and FI_PROTO_CXI from before they were libfabric's "
                   "(FI_ADDR_OPX, FI_PROTO_OPX): 0: never; 1: for who asks for them; 2: no others",
                   0, 2),
    // Older names.
    sdk::int_param("oflow_buf_count", "-1", "the older name of oflow_buf_min_posted", -1, 1024),
    sdk::int_param("req_buf_max_count", "-1", "the older name of req_buf_max_cached", -1, 8192),
};
}  // namespace parameters

class CxiProvider {
 public:
  static constexpr sdk::UnitInfo info{
      .name = "cxi",
      .summary =
          "HPE Slingshot: messages, remote memory access and atomics; also on a NIC in software",
      .version = FI_VERSION(1, 0),
      .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
      .rank = 50,
      .maturity = WEFT_MATURITY_EXPERIMENTAL,
      .security = WEFT_SECURITY_TRUSTED_PEERS,
      .params = parameters::kAll,
  };

  static Result<std::unique_ptr<CxiProvider>> create(const weft_instance *instance);

  Result<sdk::InfoList> getinfo(const sdk::GetinfoQuery &query);
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
  Result<void> explain(const sdk::LineSink &line);

  CxiProvider(const weft_instance *instance, Settings settings, std::shared_ptr<AllDevices> devices)
      : instance_(instance),
        settings_(std::move(settings)),
        devices_(std::move(devices)),
        hmem_(std::make_shared<sdk::HmemSource>(settings_.hmem)) {}

 private:
  static Result<Settings> settings_of(const weft_instance *instance);  // settings.cc
  std::vector<DeviceFacts> usable(bool is_named) const;
  Error nothing_for(bool is_named) const;  // why there is no NIC
  Result<void> check_key(const std::string &nic, const std::optional<AuthKey> &key) const;

  const weft_instance *instance_;
  const Settings settings_;
  const std::shared_ptr<AllDevices> devices_;
  const std::shared_ptr<sdk::HmemSource> hmem_;
};

}  // namespace weft::cxi

#endif
