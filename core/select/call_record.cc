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
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/render.h"
#include "core/base/tostr.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

// A record lists at most this many answers. The program gets all of them.
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

// An address without a format, in hints, is taken for one of IP if it could be one.
bool may_be_of_ip(uint32_t format) {
  return format == FI_FORMAT_UNSPEC || format == FI_SOCKADDR || format == FI_SOCKADDR_IP ||
         format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
}

std::string address_text(uint32_t format, const void *addr, size_t length) {
  sa_family_t family = AF_UNSPEC;
  char text[INET6_ADDRSTRLEN] = "";
  if (format == FI_ADDR_STR) {
    const char *begin = static_cast<const char *>(addr);
    return std::string(begin, strnlen(begin, length));
  }
  if (may_be_of_ip(format) && length >= sizeof family) std::memcpy(&family, addr, sizeof family);
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

// Collects the members that are set, one struct after the other.
class Hints {
 public:
  using List = std::vector<std::pair<std::string, std::string>>;
  struct Number {
    const char *name;
    uint64_t value;
  };

  // The struct of the members that follow: "tx_attr."
  void of(const char *prefix) { prefix_ = prefix; }
  void text(const char *name, std::string value) {
    list_.emplace_back(prefix_ + name, std::move(value));
  }
  void numbers(std::initializer_list<Number> members) {
    for (const auto &[name, value] : members)
      if (value != 0) text(name, value == SIZE_MAX ? "the largest" : std::to_string(value));
  }
  void bits(const char *name, uint64_t value) {
    if (value != 0) text(name, hex(value));
  }
  void string(const char *name, const char *value) {
    if (value != nullptr) text(name, "\"" + std::string(value) + "\"");
  }
  template <class Value>
  void named(const char *name, Value value, fi_type type) {
    if (value != Value{}) text(name, text_as(value, type));
  }
  void address(const char *name, const void *addr, uint32_t format, size_t length) {
    if (addr != nullptr) text(name, address_text(format, addr, length));
  }
  void present(const char *name, const void *what) {
    if (what != nullptr) text(name, "set");
  }
  List take() { return std::move(list_); }

 private:
  std::string prefix_;
  List list_;
};

// A member of `attr` with its name.
#define MEMBER(member) #member, attr.member

// The members that fi_tx_attr and fi_rx_attr share.
template <class Attr>
void add_common(Hints &set, const Attr &attr) {
  set.named(MEMBER(caps), FI_TYPE_CAPS);
  set.named(MEMBER(mode), FI_TYPE_MODE);
  set.named(MEMBER(op_flags), FI_TYPE_OP_FLAGS);
  set.named(MEMBER(msg_order), FI_TYPE_MSG_ORDER);
  set.named(MEMBER(comp_order), FI_TYPE_MSG_ORDER);
}

void add_tx(Hints &set, const fi_tx_attr &attr) {
  set.of("tx_attr.");
  add_common(set, attr);
  set.numbers(
      {{MEMBER(inject_size)}, {MEMBER(size)}, {MEMBER(iov_limit)}, {MEMBER(rma_iov_limit)}});
  set.bits(MEMBER(tclass));
}

void add_rx(Hints &set, const fi_rx_attr &attr) {
  set.of("rx_attr.");
  add_common(set, attr);
  set.numbers({{MEMBER(total_buffered_recv)}, {MEMBER(size)}, {MEMBER(iov_limit)}});
}

void add_ep(Hints &set, const fi_ep_attr &attr) {
  set.of("ep_attr.");
  set.named(MEMBER(type), FI_TYPE_EP_TYPE);
  set.named(MEMBER(protocol), FI_TYPE_PROTOCOL);
  set.numbers({{MEMBER(protocol_version)},
               {MEMBER(max_msg_size)},
               {MEMBER(msg_prefix_size)},
               {MEMBER(max_order_raw_size)},
               {MEMBER(max_order_war_size)},
               {MEMBER(max_order_waw_size)}});
  set.bits(MEMBER(mem_tag_format));
  set.numbers({{MEMBER(tx_ctx_cnt)}, {MEMBER(rx_ctx_cnt)}, {MEMBER(auth_key_size)}});
}

void add_domain(Hints &set, const fi_domain_attr &attr) {
  set.of("domain_attr.");
  set.present(MEMBER(domain));
  set.string(MEMBER(name));
  set.named(MEMBER(threading), FI_TYPE_THREADING);
  set.named(MEMBER(control_progress), FI_TYPE_PROGRESS);
  set.named(MEMBER(data_progress), FI_TYPE_PROGRESS);
  if (attr.resource_mgmt != FI_RM_UNSPEC)
    set.text("resource_mgmt",
             attr.resource_mgmt == FI_RM_ENABLED ? "FI_RM_ENABLED" : "FI_RM_DISABLED");
  set.named(MEMBER(av_type), FI_TYPE_AV_TYPE);
  set.named(MEMBER(mr_mode), FI_TYPE_MR_MODE);
  set.numbers({{MEMBER(mr_key_size)},
               {MEMBER(cq_data_size)},
               {MEMBER(cq_cnt)},
               {MEMBER(ep_cnt)},
               {MEMBER(tx_ctx_cnt)},
               {MEMBER(rx_ctx_cnt)},
               {MEMBER(max_ep_tx_ctx)},
               {MEMBER(max_ep_rx_ctx)},
               {MEMBER(max_ep_stx_ctx)},
               {MEMBER(max_ep_srx_ctx)},
               {MEMBER(cntr_cnt)},
               {MEMBER(mr_iov_limit)}});
  set.named(MEMBER(caps), FI_TYPE_CAPS);
  set.named(MEMBER(mode), FI_TYPE_MODE);
  set.numbers({{MEMBER(auth_key_size)}, {MEMBER(max_err_data)}, {MEMBER(mr_cnt)}});
  set.bits(MEMBER(tclass));
  set.numbers({{MEMBER(max_ep_auth_key)},
               {MEMBER(max_group_id)},
               {MEMBER(max_cntr_value)},
               {MEMBER(max_err_cntr_value)}});
}

void add_fabric(Hints &set, const fi_fabric_attr &attr) {
  set.of("fabric_attr.");
  set.present(MEMBER(fabric));
  set.string(MEMBER(name));
  set.string(MEMBER(prov_name));
  if (attr.prov_version != 0) set.text("prov_version", version_text(attr.prov_version));
}

void add_info(Hints &set, const fi_info &attr) {
  set.of("");
  set.named(MEMBER(caps), FI_TYPE_CAPS);
  set.named(MEMBER(mode), FI_TYPE_MODE);
  set.named(MEMBER(addr_format), FI_TYPE_ADDR_FORMAT);
  set.address(MEMBER(src_addr), attr.addr_format, attr.src_addrlen);
  set.address(MEMBER(dest_addr), attr.addr_format, attr.dest_addrlen);
  set.present(MEMBER(handle));
}

#undef MEMBER

ordered_json or_null(const char *text) {
  return text != nullptr ? ordered_json(text) : ordered_json(nullptr);
}

ordered_json answer_json(const fi_info &info, const TreeOf &tree_of) {
  ordered_json json;
  if (info.fabric_attr != nullptr) json["provider"] = or_null(info.fabric_attr->prov_name);
  if (tree_of)
    if (std::string tree = tree_of(info); !tree.empty()) json["stack"] = std::move(tree);
  if (info.ep_attr != nullptr) json["endpoint"] = text_as(info.ep_attr->type, FI_TYPE_EP_TYPE);
  if (info.domain_attr != nullptr) json["domain"] = or_null(info.domain_attr->name);
  if (info.fabric_attr != nullptr) json["fabric"] = or_null(info.fabric_attr->name);
  if (info.src_addr != nullptr)
    json["source"] = address_text(info.addr_format, info.src_addr, info.src_addrlen);
  return json;
}

ordered_json names_json(const StackNames &stack) {
  ordered_json json = ordered_json::array();
  for (const ElementName &element : stack) {
    json.push_back(element.name);
    if (element.branches.empty()) continue;
    ordered_json branches = ordered_json::array();
    for (const StackNames &branch : element.branches) branches.push_back(names_json(branch));
    json.push_back(std::move(branches));
  }
  return json;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> set_hints(const fi_info &hints) {
  Hints set;
  add_info(set, hints);
  if (hints.tx_attr != nullptr) add_tx(set, *hints.tx_attr);
  if (hints.rx_attr != nullptr) add_rx(set, *hints.rx_attr);
  if (hints.ep_attr != nullptr) add_ep(set, *hints.ep_attr);
  if (hints.domain_attr != nullptr) add_domain(set, *hints.domain_attr);
  if (hints.fabric_attr != nullptr) add_fabric(set, *hints.fabric_attr);
  set.of("");
  set.present("nic", hints.nic);
  return set.take();
}

std::string getinfo_record(const Question &question, int result, const fi_info *answers,
                           const std::vector<Decision> &misses, const TreeOf &tree_of) {
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
    if (++count <= kMostAnswers) json["answers"].push_back(answer_json(*info, tree_of));
  }
  json["answer_count"] = count;
  json["misses"] = ordered_json::array();
  for (const Decision &miss : misses) json["misses"].push_back(miss_json(miss));
  return dump(json);
}

std::string text_of(const StackNames &stack) {
  std::string text;
  for (const ElementName &element : stack) {
    text += (text.empty() ? "" : " > ") + element.name;
    if (element.branches.empty()) continue;
    std::string branches;
    for (const StackNames &branch : element.branches)
      branches += (branches.empty() ? "" : " | ") + text_of(branch);
    text += " > (" + branches + ")";
  }
  return text;
}

std::string fabric_record(std::string_view provider, std::string_view fabric,
                          const StackNames &stack, int result, const std::string &reason) {
  return dump({{"call", "fabric"},
               {"thread", static_cast<int64_t>(gettid())},
               {"provider", std::string(provider)},
               {"fabric", std::string(fabric)},
               {"stack", names_json(stack)},
               {"result", result},
               {"error", result != 0 ? ordered_json(reason) : ordered_json(nullptr)}});
}

}  // namespace weft
