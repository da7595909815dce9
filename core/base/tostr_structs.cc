// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/tostr.h"
#include "core/base/tostr_names.h"
#include "core/base/tostr_parts.h"

// A struct is "name:" and a line per member, four blanks deeper.
namespace weft::tostr {
namespace {

void add_device_attr(Text &text, const fi_device_attr &attr, int indent) {
  const Lines lines{text, indent};
  lines.title("fi_device_attr");
  lines.string("name", attr.name);
  lines.string("device_id", attr.device_id);
  lines.string("device_version", attr.device_version);
  lines.string("vendor_id", attr.vendor_id);
  lines.string("driver", attr.driver);
  lines.string("firmware", attr.firmware);
}

void add_bus_attr(Text &text, const fi_bus_attr &attr, int indent) {
  const Lines lines{text, indent};
  lines.title("fi_bus_attr");
  lines.value("bus_type", kBusTypes, static_cast<uint32_t>(attr.bus_type));
  if (attr.bus_type != FI_BUS_PCI) return;
  const Lines pci{text, indent + 1};
  pci.title("fi_pci_attr");
  pci.number("domain_id", attr.attr.pci.domain_id);
  pci.number("bus_id", attr.attr.pci.bus_id);
  pci.number("device_id", attr.attr.pci.device_id);
  pci.number("function_id", attr.attr.pci.function_id);
}

void add_link_attr(Text &text, const fi_link_attr &attr, int indent) {
  const Lines lines{text, indent};
  lines.title("fi_link_attr");
  lines.string("address", attr.address);
  lines.number("mtu", attr.mtu);
  lines.number("speed", attr.speed);
  lines.value("state", kLinkStates, static_cast<uint32_t>(attr.state));
  lines.string("network_type", attr.network_type);
}

}  // namespace

void add_comp_order(Text &text, uint64_t order) {
  if (order == FI_ORDER_NONE) {
    text.add("FI_ORDER_NONE");
  } else {
    add_bits(text, kOrders, order);
  }
}

void add_mr_mode(Text &text, int mode) {
  // Before API 1.5 this was an enumeration. Nothing else uses the bits of its values.
  if (mode == FI_MR_BASIC) return text.add("FI_MR_BASIC");
  if (mode == FI_MR_SCALABLE) return text.add("FI_MR_SCALABLE");
  add_bits(text, kMrModes, static_cast<uint32_t>(mode));
}

void add_tx_attr(Text &text, const fi_tx_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_tx_attr: (null)\n", 4 * indent, "");
  lines.title("fi_tx_attr");
  lines.bits("caps", kCaps, attr->caps);
  lines.bits("mode", kModes, attr->mode);
  lines.bits("op_flags", kOpFlags, attr->op_flags);
  lines.bits("msg_order", kOrders, attr->msg_order);
  lines.key("comp_order");
  text.add("[ ");
  add_comp_order(text, attr->comp_order);
  text.add(" ]\n");
  lines.number("inject_size", attr->inject_size);
  lines.number("size", attr->size);
  lines.number("iov_limit", attr->iov_limit);
  lines.number("rma_iov_limit", attr->rma_iov_limit);
  lines.hex("tclass", attr->tclass);
}

void add_rx_attr(Text &text, const fi_rx_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_rx_attr: (null)\n", 4 * indent, "");
  lines.title("fi_rx_attr");
  lines.bits("caps", kCaps, attr->caps);
  lines.bits("mode", kModes, attr->mode);
  lines.bits("op_flags", kOpFlags, attr->op_flags);
  lines.bits("msg_order", kOrders, attr->msg_order);
  lines.key("comp_order");
  text.add("[ ");
  add_comp_order(text, attr->comp_order);
  text.add(" ]\n");
  lines.number("total_buffered_recv", attr->total_buffered_recv);
  lines.number("size", attr->size);
  lines.number("iov_limit", attr->iov_limit);
}

// Authorization keys are secrets: only their size is shown.
void add_ep_attr(Text &text, const fi_ep_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_ep_attr: (null)\n", 4 * indent, "");
  lines.title("fi_ep_attr");
  lines.value("type", kEpTypes, load<uint32_t>(&attr->type));
  lines.key("protocol");
  add_open_value(text, kProtocols, attr->protocol);
  lines.end();
  lines.number("protocol_version", attr->protocol_version);
  lines.number("max_msg_size", attr->max_msg_size);
  lines.number("msg_prefix_size", attr->msg_prefix_size);
  lines.number("max_order_raw_size", attr->max_order_raw_size);
  lines.number("max_order_war_size", attr->max_order_war_size);
  lines.number("max_order_waw_size", attr->max_order_waw_size);
  lines.key("mem_tag_format");
  text.add("0x%016" PRIx64 "\n", attr->mem_tag_format);
  lines.number("tx_ctx_cnt", attr->tx_ctx_cnt);
  lines.number("rx_ctx_cnt", attr->rx_ctx_cnt);
  lines.number("auth_key_size", attr->auth_key_size);
}

void add_domain_attr(Text &text, const fi_domain_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_domain_attr: (null)\n", 4 * indent, "");
  lines.title("fi_domain_attr");
  lines.hex("domain", reinterpret_cast<uintptr_t>(attr->domain));
  lines.string("name", attr->name);
  lines.value("threading", kThreading, static_cast<uint32_t>(attr->threading));
  lines.value("control_progress", kProgress, static_cast<uint32_t>(attr->control_progress));
  lines.value("data_progress", kProgress, static_cast<uint32_t>(attr->data_progress));
  lines.value("resource_mgmt", kResourceMgmt, static_cast<uint32_t>(attr->resource_mgmt));
  lines.value("av_type", kAvTypes, static_cast<uint32_t>(attr->av_type));
  lines.key("mr_mode");
  text.add("[ ");
  add_mr_mode(text, attr->mr_mode);
  text.add(" ]\n");
  lines.number("mr_key_size", attr->mr_key_size);
  lines.number("cq_data_size", attr->cq_data_size);
  lines.number("cq_cnt", attr->cq_cnt);
  lines.number("ep_cnt", attr->ep_cnt);
  lines.number("tx_ctx_cnt", attr->tx_ctx_cnt);
  lines.number("rx_ctx_cnt", attr->rx_ctx_cnt);
  lines.number("max_ep_tx_ctx", attr->max_ep_tx_ctx);
  lines.number("max_ep_rx_ctx", attr->max_ep_rx_ctx);
  lines.number("max_ep_stx_ctx", attr->max_ep_stx_ctx);
  lines.number("max_ep_srx_ctx", attr->max_ep_srx_ctx);
  lines.number("cntr_cnt", attr->cntr_cnt);
  lines.number("mr_iov_limit", attr->mr_iov_limit);
  lines.bits("caps", kCaps, attr->caps);
  lines.bits("mode", kModes, attr->mode);
  lines.number("auth_key_size", attr->auth_key_size);
  lines.number("max_err_data", attr->max_err_data);
  lines.number("mr_cnt", attr->mr_cnt);
  lines.hex("tclass", attr->tclass);
  lines.number("max_ep_auth_key", attr->max_ep_auth_key);
  lines.number("max_group_id", attr->max_group_id);
  lines.number("max_cntr_value", attr->max_cntr_value);
  lines.number("max_err_cntr_value", attr->max_err_cntr_value);
}

void add_fabric_attr(Text &text, const fi_fabric_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_fabric_attr: (null)\n", 4 * indent, "");
  lines.title("fi_fabric_attr");
  lines.string("name", attr->name);
  lines.string("prov_name", attr->prov_name);
  lines.version("prov_version", attr->prov_version);
  lines.version("api_version", attr->api_version);
}

void add_nic(Text &text, const fid_nic *nic, int indent) {
  if (nic == nullptr) return text.add("%*snic: (nil)\n", 4 * indent, "");
  text.add("%*snic:\n", 4 * indent, "");
  if (nic->device_attr != nullptr) add_device_attr(text, *nic->device_attr, indent + 1);
  if (nic->bus_attr != nullptr) add_bus_attr(text, *nic->bus_attr, indent + 1);
  if (nic->link_attr != nullptr) add_link_attr(text, *nic->link_attr, indent + 1);
}

void add_info(Text &text, const fi_info &info, int indent) {
  const Lines lines{text, indent};
  lines.title("fi_info");
  lines.bits("caps", kCaps, info.caps);
  lines.bits("mode", kModes, info.mode);
  lines.key("addr_format");
  add_open_value(text, kAddrFormats, info.addr_format);
  lines.end();
  lines.number("src_addrlen", info.src_addrlen);
  lines.number("dest_addrlen", info.dest_addrlen);
  lines.key("src_addr");
  add_address(text, info.addr_format, info.src_addr, info.src_addrlen);
  lines.end();
  lines.key("dest_addr");
  add_address(text, info.addr_format, info.dest_addr, info.dest_addrlen);
  lines.end();
  lines.pointer("handle", info.handle);
  add_tx_attr(text, info.tx_attr, indent + 1);
  add_rx_attr(text, info.rx_attr, indent + 1);
  add_ep_attr(text, info.ep_attr, indent + 1);
  add_domain_attr(text, info.domain_attr, indent + 1);
  add_fabric_attr(text, info.fabric_attr, indent + 1);
  add_nic(text, info.nic, indent + 1);
}

void add_av_attr(Text &text, const fi_av_attr &attr) {
  const Lines lines{text, 0};
  lines.title("fi_av_attr");
  lines.value("type", kAvTypes, static_cast<uint32_t>(attr.type));
  lines.signed_number("rx_ctx_bits", attr.rx_ctx_bits);
  lines.number("count", attr.count);
  lines.number("ep_per_node", attr.ep_per_node);
  lines.string("name", attr.name);
  lines.pointer("map_addr", attr.map_addr);
  lines.bits("flags", kAvFlags, attr.flags);
}

void add_cq_attr(Text &text, const fi_cq_attr &attr) {
  const Lines lines{text, 0};
  lines.title("fi_cq_attr");
  lines.number("size", attr.size);
  lines.bits("flags", kOpFlags, attr.flags);
  lines.value("format", kCqFormats, static_cast<uint32_t>(attr.format));
  lines.value("wait_obj", kWaitObjs, static_cast<uint32_t>(attr.wait_obj));
  lines.signed_number("signaling_vector", attr.signaling_vector);
  lines.value("wait_cond", kCqWaitConds, static_cast<uint32_t>(attr.wait_cond));
  lines.pointer("wait_set", attr.wait_set);
}

void add_cntr_attr(Text &text, const fi_cntr_attr &attr) {
  const Lines lines{text, 0};
  lines.title("fi_cntr_attr");
  lines.value("events", kCntrEvents, static_cast<uint32_t>(attr.events));
  lines.value("wait_obj", kWaitObjs, static_cast<uint32_t>(attr.wait_obj));
  lines.pointer("wait_set", attr.wait_set);
  lines.bits("flags", kOpFlags, attr.flags);
}

// A flag outside the struct says whether it is mr_iov or dmabuf, so the pointer is not followed.
void add_mr_attr(Text &text, const fi_mr_attr &attr) {
  const Lines lines{text, 0};
  lines.title("fi_mr_attr");
  lines.pointer("mr_iov", attr.mr_iov);
  lines.number("iov_count", attr.iov_count);
  lines.bits("access", kCaps, attr.access);
  lines.number("offset", attr.offset);
  lines.hex("requested_key", attr.requested_key);
  lines.pointer("context", attr.context);
  lines.number("auth_key_size", attr.auth_key_size);
  lines.value("iface", kHmemIfaces, static_cast<uint32_t>(attr.iface));
  lines.hex("device", attr.device.reserved);
  lines.pointer("hmem_data", attr.hmem_data);
  lines.number("page_size", attr.page_size);
  lines.pointer("base_mr", attr.base_mr);
  lines.number("sub_mr_cnt", attr.sub_mr_cnt);
}

void add_cq_err_entry(Text &text, const fi_cq_err_entry &entry) {
  const Lines lines{text, 0};
  lines.title("fi_cq_err_entry");
  lines.pointer("op_context", entry.op_context);
  lines.bits("flags", kCqEventFlags, entry.flags);
  lines.number("len", entry.len);
  lines.pointer("buf", entry.buf);
  lines.number("data", entry.data);
  lines.hex("tag", entry.tag);
  lines.number("olen", entry.olen);
  lines.key("err");
  text.add("%d (%s)\n", entry.err, error_text(entry.err));
  lines.signed_number("prov_errno", entry.prov_errno);
  lines.pointer("err_data", entry.err_data);
  lines.number("err_data_size", entry.err_data_size);
  lines.hex("src_addr", entry.src_addr);
}

}  // namespace weft::tostr
