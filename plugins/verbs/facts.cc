// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/facts.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/progress/progress.h>
#include <weft/sdk/unit/info_list.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace weft::verbs {
namespace {

constexpr int kMrMode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr uint64_t kMemoryCaps =
    FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

template <class T>
T *zeroed() {
  return static_cast<T *>(std::calloc(1, sizeof(T)));
}

std::string hex(uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIx64, number);
  return text;
}

Result<void> fill_device(fi_device_attr &device, const DeviceFacts &facts) {
  WEFT_CHECK(sdk::set_string(device.name, facts.name));
  WEFT_CHECK(sdk::set_string(device.device_id, hex(facts.part)));
  WEFT_CHECK(sdk::set_string(device.device_version, std::to_string(facts.hardware_version)));
  WEFT_CHECK(sdk::set_string(device.vendor_id, hex(facts.vendor)));
  WEFT_CHECK(sdk::set_string(device.driver, facts.driver));
  return sdk::set_string(device.firmware, facts.firmware);
}

Result<void> fill_link(fi_link_attr &link, const DeviceFacts &facts) {
  char gid[64];
  std::snprintf(gid, sizeof gid, "%016" PRIx64 ":%016" PRIx64, facts.gid_prefix,
                facts.gid_interface);
  WEFT_CHECK(sdk::set_string(link.address, gid));
  link.mtu = facts.mtu;
  link.speed = facts.speed;
  link.state = facts.port_active ? FI_LINK_UP : FI_LINK_DOWN;
  return sdk::set_string(link.network_type,
                         facts.transport == Transport::kInfiniBand ? "InfiniBand" : "Ethernet");
}

// fi_nic.3. The core frees it with the info, also after an error.
Result<void> fill_nic(fi_info &info, const DeviceFacts &facts) {
  info.nic = zeroed<fid_nic>();
  if (info.nic == nullptr) return fail(FI_ENOMEM, "no memory for a fid_nic");
  info.nic->fid.fclass = FI_CLASS_NIC;
  info.nic->device_attr = zeroed<fi_device_attr>();
  info.nic->bus_attr = zeroed<fi_bus_attr>();
  info.nic->link_attr = zeroed<fi_link_attr>();
  if (info.nic->device_attr == nullptr || info.nic->bus_attr == nullptr ||
      info.nic->link_attr == nullptr)
    return fail(FI_ENOMEM, "no memory for a fid_nic");
  info.nic->bus_attr->bus_type = facts.pci ? FI_BUS_PCI : FI_BUS_UNKNOWN;
  if (facts.pci) info.nic->bus_attr->attr.pci = *facts.pci;
  WEFT_CHECK(fill_device(*info.nic->device_attr, facts));
  return fill_link(*info.nic->link_attr, facts);
}

void fill_domain(fi_domain_attr &domain, const DeviceFacts &facts, const sdk::GetinfoQuery &query) {
  const fi_domain_attr none{};
  const fi_domain_attr &wanted = query.hints != nullptr && query.hints->domain_attr != nullptr
                                     ? *query.hints->domain_attr
                                     : none;
  domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  domain.threading = FI_THREAD_SAFE;
  domain.control_progress = sdk::offered_progress(wanted.control_progress);
  domain.data_progress = FI_PROGRESS_AUTO;  // the device's
  // RoCE and InfiniBand repeat a message that finds no receive. iWARP ends the connection.
  domain.resource_mgmt = facts.transport == Transport::kIwarp ? FI_RM_DISABLED : FI_RM_ENABLED;
  domain.av_type = FI_AV_UNSPEC;
  domain.mr_mode = kMrMode;
  domain.mr_key_size = sizeof(uint32_t);
  domain.mr_iov_limit = 1;
  domain.mr_cnt = facts.max_regions;
  // The immediate. iWARP has none.
  domain.cq_data_size = facts.transport == Transport::kIwarp ? 0 : sizeof(uint32_t);
  domain.cq_cnt = facts.max_cqs;
  domain.ep_cnt = facts.max_queue_pairs;
  domain.tx_ctx_cnt = facts.max_queue_pairs;
  domain.rx_ctx_cnt = facts.max_queue_pairs;
  domain.max_ep_tx_ctx = 1;
  domain.max_ep_rx_ctx = 1;
  domain.max_ep_srx_ctx = facts.max_shared_queues;
  domain.cntr_cnt = 0;  // fi_verbs.7: counters are not supported
}

Result<void> set_addresses(fi_info &info, const DevicePath &path, const fi_info *hints) {
  const uint32_t format = hints != nullptr ? hints->addr_format : uint32_t(FI_FORMAT_UNSPEC);
  info.addr_format =
      format == FI_FORMAT_UNSPEC || format == FI_SOCKADDR_IP ? path.source.format() : format;
  WEFT_CHECK(set_info_address(info.src_addr, info.src_addrlen, info.addr_format, path.source));
  if (path.dest.size() == 0) return {};
  return set_info_address(info.dest_addr, info.dest_addrlen, info.addr_format, path.dest);
}

// FI_HMEM only for whoever asks. A write with data takes a receive at its target. The application
// must be ready for that, or it gets no remote memory access.
uint64_t offered_caps(const DeviceFacts &facts, const fi_info *hints) {
  uint64_t caps = message_caps(facts);
  if (hints != nullptr && hints->caps & FI_HMEM && facts.has_dmabuf) caps |= FI_HMEM;
  if (hints == nullptr || hints->mode & FI_RX_CQ_DATA || hints->caps & kMemoryCaps) return caps;
  return caps & ~kMemoryCaps;
}

}  // namespace

uint64_t message_caps(const DeviceFacts &facts) {
  uint64_t caps =
      FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if (facts.has_atomics) caps |= FI_ATOMIC;
  return caps;
}

bool has_atomic(sdk::AtomicKind kind, int datatype, int op) {
  if (datatype != FI_INT64 && datatype != FI_UINT64) return false;
  switch (kind) {
    case sdk::AtomicKind::kWrite:
      return op == FI_ATOMIC_WRITE;
    case sdk::AtomicKind::kFetch:
      return op == FI_ATOMIC_READ || op == FI_SUM;
    case sdk::AtomicKind::kCompare:
      return op == FI_CSWAP;
  }
  return false;
}

Result<void> fill_common(fi_info &info, const DeviceFacts &facts, const sdk::GetinfoQuery &query) {
  WEFT_CHECK(sdk::set_string(info.domain_attr->name, facts.name));
  WEFT_CHECK(sdk::set_string(info.fabric_attr->name, fabric_name(facts)));
  info.fabric_attr->prov_version = FI_VERSION(1, 0);
  info.fabric_attr->api_version = query.api_version;
  fill_domain(*info.domain_attr, facts, query);
  return fill_nic(info, facts);
}

Result<void> fill_message_info(fi_info &info, const DevicePath &path,
                               const sdk::GetinfoQuery &query, const Sizes &sizes) {
  const DeviceFacts &facts = path.facts;
  constexpr uint64_t kReceiving = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
  constexpr uint64_t kSending = FI_SEND | FI_READ | FI_WRITE;
  const uint64_t caps = offered_caps(facts, query.hints);
  info.caps = caps | FI_LOCAL_COMM | FI_REMOTE_COMM;
  if (caps & FI_RMA && facts.transport != Transport::kIwarp) info.mode |= FI_RX_CQ_DATA;
  WEFT_CHECK(set_addresses(info, path, query.hints));
  WEFT_CHECK(fill_common(info, facts, query));
  if (caps & FI_HMEM) info.domain_attr->mr_mode |= FI_MR_HMEM;

  const uint64_t order = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAW | FI_ORDER_WAS |
                         FI_ORDER_SAW | FI_ORDER_SAS;
  fi_tx_attr &tx = *info.tx_attr;
  tx.caps = caps & ~kReceiving;
  tx.op_flags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;
  // The peer's device acknowledges what it has placed. On iWARP TCP acknowledges, before that.
  if (facts.transport != Transport::kIwarp) tx.op_flags |= FI_DELIVERY_COMPLETE;
  tx.msg_order = order;
  tx.comp_order = FI_ORDER_STRICT;
  tx.inject_size = facts.max_inline;
  tx.size = sdk::offered_size(std::min(sizes.tx, facts.max_queue_entries),
                              sdk::tx_hints(query.hints).size, facts.max_queue_entries);
  tx.iov_limit = std::min({sizes.tx_iov, facts.max_sges, sdk::kIovLimit});
  tx.rma_iov_limit = caps & FI_RMA ? 1 : 0;

  fi_rx_attr &rx = *info.rx_attr;
  rx.caps = caps & ~kSending;
  rx.mode = info.mode & FI_RX_CQ_DATA;
  rx.op_flags = FI_COMPLETION;
  rx.msg_order = order;
  rx.comp_order = FI_ORDER_STRICT | FI_ORDER_DATA;
  rx.size = sdk::offered_size(std::min(sizes.rx, facts.max_queue_entries),
                              sdk::rx_hints(query.hints).size, facts.max_queue_entries);
  rx.iov_limit = std::min({sizes.rx_iov, facts.max_sges, sdk::kIovLimit});

  fi_ep_attr &ep = *info.ep_attr;
  ep.type = FI_EP_MSG;
  ep.protocol = facts.transport == Transport::kIwarp ? FI_PROTO_IWARP : FI_PROTO_RDMA_CM_IB_RC;
  ep.protocol_version = 1;
  ep.max_msg_size = facts.max_message_size;
  ep.max_order_raw_size = facts.max_message_size;
  ep.max_order_waw_size = facts.max_message_size;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;
  return {};
}

Result<void> fill_xrc_info(fi_info &info, const DevicePath &path, const sdk::GetinfoQuery &query,
                           const Sizes &sizes) {
  WEFT_CHECK(fill_message_info(info, path, query, sizes));
  info.ep_attr->protocol = FI_PROTO_RDMA_CM_IB_XRC;
  info.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  return {};
}

std::string fabric_name(const DeviceFacts &facts) {
  if (facts.transport == Transport::kIwarp) return "Ethernet-iWARP";
  char name[64];
  std::snprintf(name, sizeof name, "IB-0x%016" PRIx64, facts.gid_prefix);
  return name;
}

uint64_t link_speed(uint8_t active_width, uint8_t active_speed) {
  uint64_t lanes = 0;
  switch (active_width) {
    case 1:
      lanes = 1;
      break;
    case 2:
      lanes = 4;
      break;
    case 4:
      lanes = 8;
      break;
    case 8:
      lanes = 12;
      break;
    case 16:
      lanes = 2;
      break;
    default:
      return 0;
  }
  uint64_t megabits = 0;  // of a lane
  switch (active_speed) {
    case 1:
      megabits = 2'500;
      break;
    case 2:
      megabits = 5'000;
      break;
    case 4:
    case 8:
      megabits = 10'000;
      break;
    case 16:
      megabits = 14'000;
      break;
    case 32:
      megabits = 25'000;
      break;
    case 64:
      megabits = 50'000;
      break;
    case 128:
      megabits = 100'000;
      break;
    default:
      return 0;
  }
  return lanes * megabits * 1'000'000;
}

std::optional<fi_pci_attr> parse_pci(const std::string &text) {
  unsigned domain, bus, device, function;
  int used = 0;
  if (std::sscanf(text.c_str(), "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) !=
          4 ||
      size_t(used) != text.size())
    return {};
  return fi_pci_attr{uint16_t(domain), uint8_t(bus), uint8_t(device), uint8_t(function)};
}

}  // namespace weft::verbs
