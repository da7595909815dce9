// SPDX-License-Identifier: BSD-2-Clause
#include "tools/fi_info/json.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <type_traits>

#include "tools/names.h"

namespace weft::info {
namespace {

std::string hex_text(uint64_t value) {
  return absl::StrCat("0x", absl::Hex(value));
}

// A list of names, with a hexadecimal number for each bit that the library cannot name.
template <typename T>
Json bits(T bits, fi_type type) {
  using Unsigned = std::make_unsigned_t<T>;
  Json out = Json::array();
  for (unsigned bit = 0; bit < sizeof(T) * 8; ++bit) {
    const Unsigned value = static_cast<Unsigned>(Unsigned{1} << bit);
    if ((static_cast<Unsigned>(bits) & value) == 0) {
      continue;
    }
    const std::string name = tools::name_of(static_cast<T>(value), type);
    out.push_back(name.starts_with("FI_") ? name : hex_text(value));
  }
  return out;
}

Json completion_order(uint64_t order) {
  // No fi_type names these, and FI_ORDER_STRICT shares its bits with the message orders.
  Json out = Json::array();
  if ((order & FI_ORDER_STRICT) == FI_ORDER_STRICT) {
    out.push_back("FI_ORDER_STRICT");
    order &= ~uint64_t{FI_ORDER_STRICT};
  }
  if ((order & FI_ORDER_DATA) != 0) {
    out.push_back("FI_ORDER_DATA");
    order &= ~uint64_t{FI_ORDER_DATA};
  }
  if (order != 0) {
    out.push_back(hex_text(order));
  }
  return out;
}

const char *resource_management_name(fi_resource_mgmt value) {
  switch (value) {
    case FI_RM_UNSPEC:
      return "FI_RM_UNSPEC";
    case FI_RM_DISABLED:
      return "FI_RM_DISABLED";
    case FI_RM_ENABLED:
      return "FI_RM_ENABLED";
  }
  return "unknown";
}

// The library knows how to print an address of each format: its text of the whole fi_info has the
// address in a line of its own.
Json address_json(const std::string &info_text, const char *key, const void *address,
                  size_t length) {
  if (address == nullptr) {
    return nullptr;
  }
  const std::string label = absl::StrCat(key, ": ");
  const size_t at = info_text.find(label);
  if (at != std::string::npos) {
    const size_t begin = at + label.size();
    return info_text.substr(begin, info_text.find('\n', begin) - begin);
  }
  return absl::StrCat(
      "0x", absl::BytesToHexString(absl::string_view(static_cast<const char *>(address), length)));
}

Json tx_attr_json(const fi_tx_attr &attr) {
  return {{"caps", bits(attr.caps, FI_TYPE_CAPS)},
          {"mode", bits(attr.mode, FI_TYPE_MODE)},
          {"op_flags", bits(attr.op_flags, FI_TYPE_OP_FLAGS)},
          {"msg_order", bits(attr.msg_order, FI_TYPE_MSG_ORDER)},
          {"comp_order", completion_order(attr.comp_order)},
          {"inject_size", attr.inject_size},
          {"size", attr.size},
          {"iov_limit", attr.iov_limit},
          {"rma_iov_limit", attr.rma_iov_limit},
          {"tclass", hex_text(attr.tclass)}};
}

Json rx_attr_json(const fi_rx_attr &attr) {
  return {{"caps", bits(attr.caps, FI_TYPE_CAPS)},
          {"mode", bits(attr.mode, FI_TYPE_MODE)},
          {"op_flags", bits(attr.op_flags, FI_TYPE_OP_FLAGS)},
          {"msg_order", bits(attr.msg_order, FI_TYPE_MSG_ORDER)},
          {"comp_order", completion_order(attr.comp_order)},
          {"total_buffered_recv", attr.total_buffered_recv},
          {"size", attr.size},
          {"iov_limit", attr.iov_limit}};
}

Json ep_attr_json(const fi_ep_attr &attr) {
  return {{"type", tools::name_of(attr.type, FI_TYPE_EP_TYPE)},
          {"protocol", tools::name_of(attr.protocol, FI_TYPE_PROTOCOL)},
          {"protocol_version", attr.protocol_version},
          {"max_msg_size", attr.max_msg_size},
          {"msg_prefix_size", attr.msg_prefix_size},
          {"max_order_raw_size", attr.max_order_raw_size},
          {"max_order_war_size", attr.max_order_war_size},
          {"max_order_waw_size", attr.max_order_waw_size},
          {"mem_tag_format", hex_text(attr.mem_tag_format)},
          {"tx_ctx_cnt", attr.tx_ctx_cnt},
          {"rx_ctx_cnt", attr.rx_ctx_cnt},
          {"auth_key_size", attr.auth_key_size}};
}

Json domain_attr_json(const fi_domain_attr &attr) {
  return {{"name", text_or_null(attr.name)},
          {"threading", tools::name_of(attr.threading, FI_TYPE_THREADING)},
          {"control_progress", tools::name_of(attr.control_progress, FI_TYPE_PROGRESS)},
          {"data_progress", tools::name_of(attr.data_progress, FI_TYPE_PROGRESS)},
          {"resource_mgmt", resource_management_name(attr.resource_mgmt)},
          {"av_type", tools::name_of(attr.av_type, FI_TYPE_AV_TYPE)},
          {"mr_mode", bits(attr.mr_mode, FI_TYPE_MR_MODE)},
          {"mr_key_size", attr.mr_key_size},
          {"cq_data_size", attr.cq_data_size},
          {"cq_cnt", attr.cq_cnt},
          {"ep_cnt", attr.ep_cnt},
          {"tx_ctx_cnt", attr.tx_ctx_cnt},
          {"rx_ctx_cnt", attr.rx_ctx_cnt},
          {"max_ep_tx_ctx", attr.max_ep_tx_ctx},
          {"max_ep_rx_ctx", attr.max_ep_rx_ctx},
          {"max_ep_stx_ctx", attr.max_ep_stx_ctx},
          {"max_ep_srx_ctx", attr.max_ep_srx_ctx},
          {"cntr_cnt", attr.cntr_cnt},
          {"mr_iov_limit", attr.mr_iov_limit},
          {"caps", bits(attr.caps, FI_TYPE_CAPS)},
          {"mode", bits(attr.mode, FI_TYPE_MODE)},
          {"auth_key_size", attr.auth_key_size},
          {"max_err_data", attr.max_err_data},
          {"mr_cnt", attr.mr_cnt},
          {"tclass", hex_text(attr.tclass)},
          {"max_ep_auth_key", attr.max_ep_auth_key},
          {"max_group_id", attr.max_group_id},
          {"max_cntr_value", attr.max_cntr_value},
          {"max_err_cntr_value", attr.max_err_cntr_value}};
}

Json fabric_attr_json(const fi_fabric_attr &attr) {
  return {{"name", text_or_null(attr.name)},
          {"prov_name", text_or_null(attr.prov_name)},
          {"prov_version", tools::version_text(attr.prov_version)},
          {"api_version", tools::version_text(attr.api_version)}};
}

const char *link_state_name(fi_link_state state) {
  switch (state) {
    case FI_LINK_UNKNOWN:
      return "FI_LINK_UNKNOWN";
    case FI_LINK_DOWN:
      return "FI_LINK_DOWN";
    case FI_LINK_UP:
      return "FI_LINK_UP";
  }
  return "unknown";
}

Json nic_json(const fid_nic &nic) {
  Json out = Json::object();
  if (const fi_device_attr *device = nic.device_attr) {
    out["device_attr"] = {{"name", text_or_null(device->name)},
                          {"device_id", text_or_null(device->device_id)},
                          {"device_version", text_or_null(device->device_version)},
                          {"vendor_id", text_or_null(device->vendor_id)},
                          {"driver", text_or_null(device->driver)},
                          {"firmware", text_or_null(device->firmware)}};
  }
  if (const fi_bus_attr *bus = nic.bus_attr) {
    if (bus->bus_type == FI_BUS_PCI) {
      const fi_pci_attr &pci = bus->attr.pci;
      out["bus_attr"] = {{"bus_type", "FI_BUS_PCI"},
                         {"pci",
                          {{"domain_id", pci.domain_id},
                           {"bus_id", pci.bus_id},
                           {"device_id", pci.device_id},
                           {"function_id", pci.function_id}}}};
    } else {
      out["bus_attr"] = {{"bus_type", "FI_BUS_UNKNOWN"}};
    }
  }
  if (const fi_link_attr *link = nic.link_attr) {
    out["link_attr"] = {{"address", text_or_null(link->address)},
                        {"mtu", link->mtu},
                        {"speed", link->speed},
                        {"state", link_state_name(link->state)},
                        {"network_type", text_or_null(link->network_type)}};
  }
  return out;
}

}  // namespace

Json text_or_null(const char *text) {
  return text != nullptr ? Json(text) : Json(nullptr);
}

Json info_json(const fi_info &info, const std::string &text) {
  Json out = {{"caps", bits(info.caps, FI_TYPE_CAPS)},
              {"mode", bits(info.mode, FI_TYPE_MODE)},
              {"addr_format", tools::name_of(info.addr_format, FI_TYPE_ADDR_FORMAT)},
              {"src_addrlen", info.src_addrlen},
              {"dest_addrlen", info.dest_addrlen},
              {"src_addr", address_json(text, "src_addr", info.src_addr, info.src_addrlen)},
              {"dest_addr", address_json(text, "dest_addr", info.dest_addr, info.dest_addrlen)}};
  out["tx_attr"] = info.tx_attr != nullptr ? tx_attr_json(*info.tx_attr) : Json(nullptr);
  out["rx_attr"] = info.rx_attr != nullptr ? rx_attr_json(*info.rx_attr) : Json(nullptr);
  out["ep_attr"] = info.ep_attr != nullptr ? ep_attr_json(*info.ep_attr) : Json(nullptr);
  out["domain_attr"] =
      info.domain_attr != nullptr ? domain_attr_json(*info.domain_attr) : Json(nullptr);
  out["fabric_attr"] =
      info.fabric_attr != nullptr ? fabric_attr_json(*info.fabric_attr) : Json(nullptr);
  out["nic"] = info.nic != nullptr ? nic_json(*info.nic) : Json(nullptr);
  return out;
}

void print_json(const Json &json) {
  // Names come from devices and from the environment: bytes that are not UTF-8 are replaced,
  // and the output is ASCII, so that no character controls a terminal.
  absl::PrintF("%s\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

}  // namespace weft::info
