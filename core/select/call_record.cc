// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/call_record.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/tostr.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

// A list is as long as that in the record; the program has all.
constexpr size_t kMostAnswers = 64;

template <class Value>
std::string text_as(Value value, fi_type type) {
  char text[1024];
  to_text(&value, type, text, sizeof text);
  return text;
}

std::string version_text(uint32_t version) {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

std::string address_text(const void *addr, size_t length) {
  sa_family_t family = AF_UNSPEC;
  char text[INET6_ADDRSTRLEN] = "";
  if (length >= sizeof family) std::memcpy(&family, addr, sizeof family);
  if (family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, addr, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
  }
  if (family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in6;
    std::memcpy(&in6, addr, sizeof in6);
    inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(in6.sin6_port));
  }
  return std::to_string(length) + " bytes";
}

class Hints {
 public:
  using List = std::vector<std::pair<std::string, std::string>>;

  void text(const char *name, std::string value) { list_.emplace_back(name, std::move(value)); }
  void number(const char *name, uint64_t value) {
    if (value != 0) text(name, value == SIZE_MAX ? "the largest" : std::to_string(value));
  }
  void string(const char *name, const char *value) {
    if (value != nullptr) text(name, "\"" + std::string(value) + "\"");
  }
  template <class Value>
  void named(const char *name, Value value, fi_type type) {
    if (value != Value{}) text(name, text_as(value, type));
  }
  void address(const char *name, const void *addr, size_t length) {
    if (addr != nullptr) text(name, address_text(addr, length));
  }
  void present(const char *name, const void *what) {
    if (what != nullptr) text(name, "set");
  }
  List take() { return std::move(list_); }

 private:
  List list_;
};

void add_tx(Hints &set, const fi_tx_attr &tx) {
  set.named("tx_attr.caps", tx.caps, FI_TYPE_CAPS);
  set.named("tx_attr.mode", tx.mode, FI_TYPE_MODE);
  set.named("tx_attr.op_flags", tx.op_flags, FI_TYPE_OP_FLAGS);
  set.named("tx_attr.msg_order", tx.msg_order, FI_TYPE_MSG_ORDER);
  set.named("tx_attr.comp_order", tx.comp_order, FI_TYPE_MSG_ORDER);
  set.number("tx_attr.inject_size", tx.inject_size);
  set.number("tx_attr.size", tx.size);
  set.number("tx_attr.iov_limit", tx.iov_limit);
  set.number("tx_attr.rma_iov_limit", tx.rma_iov_limit);
  if (tx.tclass != 0) set.text("tx_attr.tclass", hex(tx.tclass));
}

void add_rx(Hints &set, const fi_rx_attr &rx) {
  set.named("rx_attr.caps", rx.caps, FI_TYPE_CAPS);
  set.named("rx_attr.mode", rx.mode, FI_TYPE_MODE);
  set.named("rx_attr.op_flags", rx.op_flags, FI_TYPE_OP_FLAGS);
  set.named("rx_attr.msg_order", rx.msg_order, FI_TYPE_MSG_ORDER);
  set.named("rx_attr.comp_order", rx.comp_order, FI_TYPE_MSG_ORDER);
  set.number("rx_attr.total_buffered_recv", rx.total_buffered_recv);
  set.number("rx_attr.size", rx.size);
  set.number("rx_attr.iov_limit", rx.iov_limit);
}

void add_ep(Hints &set, const fi_ep_attr &ep) {
  set.named("ep_attr.type", ep.type, FI_TYPE_EP_TYPE);
  set.named("ep_attr.protocol", ep.protocol, FI_TYPE_PROTOCOL);
  set.number("ep_attr.protocol_version", ep.protocol_version);
  set.number("ep_attr.max_msg_size", ep.max_msg_size);
  set.number("ep_attr.msg_prefix_size", ep.msg_prefix_size);
  set.number("ep_attr.max_order_raw_size", ep.max_order_raw_size);
  set.number("ep_attr.max_order_war_size", ep.max_order_war_size);
  set.number("ep_attr.max_order_waw_size", ep.max_order_waw_size);
  if (ep.mem_tag_format != 0) set.text("ep_attr.mem_tag_format", hex(ep.mem_tag_format));
  set.number("ep_attr.tx_ctx_cnt", ep.tx_ctx_cnt);
  set.number("ep_attr.rx_ctx_cnt", ep.rx_ctx_cnt);
  set.number("ep_attr.auth_key_size", ep.auth_key_size);
}

void add_domain(Hints &set, const fi_domain_attr &domain) {
  set.present("domain_attr.domain", domain.domain);
  set.string("domain_attr.name", domain.name);
  set.named("domain_attr.threading", domain.threading, FI_TYPE_THREADING);
  set.named("domain_attr.control_progress", domain.control_progress, FI_TYPE_PROGRESS);
  set.named("domain_attr.data_progress", domain.data_progress, FI_TYPE_PROGRESS);
  if (domain.resource_mgmt != FI_RM_UNSPEC)
    set.text("domain_attr.resource_mgmt",
             domain.resource_mgmt == FI_RM_ENABLED ? "FI_RM_ENABLED" : "FI_RM_DISABLED");
  set.named("domain_attr.av_type", domain.av_type, FI_TYPE_AV_TYPE);
  set.named("domain_attr.mr_mode", domain.mr_mode, FI_TYPE_MR_MODE);
  set.number("domain_attr.mr_key_size", domain.mr_key_size);
  set.number("domain_attr.cq_data_size", domain.cq_data_size);
  set.number("domain_attr.cq_cnt", domain.cq_cnt);
  set.number("domain_attr.ep_cnt", domain.ep_cnt);
  set.number("domain_attr.tx_ctx_cnt", domain.tx_ctx_cnt);
  set.number("domain_attr.rx_ctx_cnt", domain.rx_ctx_cnt);
  set.number("domain_attr.max_ep_tx_ctx", domain.max_ep_tx_ctx);
  set.number("domain_attr.max_ep_rx_ctx", domain.max_ep_rx_ctx);
  set.number("domain_attr.max_ep_stx_ctx", domain.max_ep_stx_ctx);
  set.number("domain_attr.max_ep_srx_ctx", domain.max_ep_srx_ctx);
  set.number("domain_attr.cntr_cnt", domain.cntr_cnt);
  set.number("domain_attr.mr_iov_limit", domain.mr_iov_limit);
  set.named("domain_attr.caps", domain.caps, FI_TYPE_CAPS);
  set.named("domain_attr.mode", domain.mode, FI_TYPE_MODE);
  set.number("domain_attr.auth_key_size", domain.auth_key_size);
  set.number("domain_attr.max_err_data", domain.max_err_data);
  set.number("domain_attr.mr_cnt", domain.mr_cnt);
  if (domain.tclass != 0) set.text("domain_attr.tclass", hex(domain.tclass));
  set.number("domain_attr.max_ep_auth_key", domain.max_ep_auth_key);
  set.number("domain_attr.max_group_id", domain.max_group_id);
  set.number("domain_attr.max_cntr_value", domain.max_cntr_value);
  set.number("domain_attr.max_err_cntr_value", domain.max_err_cntr_value);
}

void add_fabric(Hints &set, const fi_fabric_attr &fabric) {
  set.present("fabric_attr.fabric", fabric.fabric);
  set.string("fabric_attr.name", fabric.name);
  set.string("fabric_attr.prov_name", fabric.prov_name);
  if (fabric.prov_version != 0)
    set.text("fabric_attr.prov_version", version_text(fabric.prov_version));
}

// Names and addresses are the program's: they need not be UTF-8.
std::string dump(const ordered_json &json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json or_null(const char *text) {
  return text != nullptr ? ordered_json(text) : ordered_json(nullptr);
}

ordered_json answer_json(const fi_info &info) {
  ordered_json json;
  if (info.fabric_attr != nullptr) json["provider"] = or_null(info.fabric_attr->prov_name);
  if (info.ep_attr != nullptr) json["endpoint"] = text_as(info.ep_attr->type, FI_TYPE_EP_TYPE);
  if (info.domain_attr != nullptr) json["domain"] = or_null(info.domain_attr->name);
  if (info.fabric_attr != nullptr) json["fabric"] = or_null(info.fabric_attr->name);
  if (info.src_addr != nullptr) json["source"] = address_text(info.src_addr, info.src_addrlen);
  return json;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> set_hints(const fi_info &hints) {
  Hints set;
  set.named("caps", hints.caps, FI_TYPE_CAPS);
  set.named("mode", hints.mode, FI_TYPE_MODE);
  set.named("addr_format", hints.addr_format, FI_TYPE_ADDR_FORMAT);
  set.address("src_addr", hints.src_addr, hints.src_addrlen);
  set.address("dest_addr", hints.dest_addr, hints.dest_addrlen);
  set.present("handle", hints.handle);
  if (hints.tx_attr != nullptr) add_tx(set, *hints.tx_attr);
  if (hints.rx_attr != nullptr) add_rx(set, *hints.rx_attr);
  if (hints.ep_attr != nullptr) add_ep(set, *hints.ep_attr);
  if (hints.domain_attr != nullptr) add_domain(set, *hints.domain_attr);
  if (hints.fabric_attr != nullptr) add_fabric(set, *hints.fabric_attr);
  set.present("nic", hints.nic);
  return set.take();
}

std::string getinfo_record(const Question &question, int result, const fi_info *answers,
                           const std::vector<Miss> &misses) {
  ordered_json json = {{"call", "getinfo"},
                       {"thread", static_cast<int64_t>(gettid())},
                       {"version", version_text(question.version)},
                       {"node", or_null(question.node)},
                       {"service", or_null(question.service)}};
  json["flags"] = ordered_json::array();
  for (const auto &[flag, name] : {std::pair(FI_SOURCE, "FI_SOURCE"),
                                   {FI_NUMERICHOST, "FI_NUMERICHOST"},
                                   {FI_PROV_ATTR_ONLY, "FI_PROV_ATTR_ONLY"},
                                   {FI_RESCAN, "FI_RESCAN"}}) {
    if ((question.flags & flag) != 0) json["flags"].push_back(name);
  }
  json["hints"] = ordered_json::object();
  if (question.hints != nullptr) {
    for (auto &[name, value] : set_hints(*question.hints)) json["hints"][name] = std::move(value);
  }
  json["result"] = result;
  json["error"] = result != 0 ? ordered_json(error_text(result)) : ordered_json(nullptr);
  size_t count = 0;
  json["answers"] = ordered_json::array();
  for (const fi_info *info = answers; info != nullptr; info = info->next) {
    if (++count <= kMostAnswers) json["answers"].push_back(answer_json(*info));
  }
  json["answer_count"] = count;
  json["misses"] = ordered_json::array();
  for (const Miss &miss : misses)
    json["misses"].push_back({{"candidate", miss.candidate},
                              {"stage", std::string(stage_name(miss.stage))},
                              {"reason", miss.reason},
                              {"remedy", miss.remedy}});
  return dump(json);
}

std::string fabric_record(std::string_view provider, std::string_view fabric,
                          const std::vector<std::string> &stack, int result,
                          const std::string &reason) {
  return dump({{"call", "fabric"},
               {"thread", static_cast<int64_t>(gettid())},
               {"provider", std::string(provider)},
               {"fabric", std::string(fabric)},
               {"stack", stack},
               {"result", result},
               {"error", result != 0 ? ordered_json(reason) : ordered_json(nullptr)}});
}

}  // namespace weft
