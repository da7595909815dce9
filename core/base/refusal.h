// SPDX-License-Identifier: BSD-2-Clause
// One attribute of an fi_info that is not as the hints ask for it.
//
// Example (statements):
//    const weft::Refusal refusal{.attribute = "tx_attr.size",  // a misspelt one does not compile
//                                .how = weft::Misfit::kAbove,
//                                .wanted = "4096",
//                                .offered = "1024"};
//    const uint32_t distance = refusal.distance;  // 1: a limit
//
// This is data; core/base/render.h makes "hints.tx_attr.size 4096 is above 1024" of it. Not for
// refusals of units in their own words (core/select/unit_words.h).
#ifndef WEFT_CORE_BASE_REFUSAL_H
#define WEFT_CORE_BASE_REFUSAL_H

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// The attributes by how hard it is for an application to ask otherwise: most for another provider,
// 1 for a limit.
struct AttributeGroup {
  uint32_t distance;
  std::string_view names;  // with a blank between them
};
inline constexpr AttributeGroup kAttributes[] = {
    {64, "fabric_attr.prov_name"},
    {32, "fabric_attr fabric_attr.fabric fabric_attr.prov_version domain_attr.domain"},
    {16, "ep_attr.type ep_attr.protocol ep_attr.protocol_version"},
    {8,
     "caps tx_attr.caps rx_attr.caps domain_attr.caps domain_attr.name fabric_attr.name "
     "addr_format src_addr src_addrlen dest_addr dest_addrlen nic nic.bus_attr "
     "nic.device_attr.name nic.device_attr.device_id nic.device_attr.device_version "
     "nic.device_attr.vendor_id nic.device_attr.driver nic.device_attr.firmware "
     "nic.link_attr.address nic.link_attr.network_type nic.link_attr.mtu nic.link_attr.speed "
     "nic.link_attr.state"},
    {4, "mode tx_attr.mode rx_attr.mode domain_attr.mode domain_attr.mr_mode"},
    {2,
     "domain_attr.threading domain_attr.control_progress domain_attr.data_progress "
     "domain_attr.av_type tx_attr.msg_order tx_attr.comp_order rx_attr.msg_order "
     "rx_attr.comp_order tx_attr.op_flags rx_attr.op_flags ep_attr.mem_tag_format"},
    {1,
     "ep_attr.max_msg_size ep_attr.msg_prefix_size ep_attr.max_order_raw_size "
     "ep_attr.max_order_war_size ep_attr.max_order_waw_size ep_attr.tx_ctx_cnt "
     "ep_attr.rx_ctx_cnt ep_attr.auth_key ep_attr.auth_key_size tx_attr.inject_size "
     "tx_attr.size tx_attr.iov_limit tx_attr.rma_iov_limit tx_attr.tclass rx_attr.size "
     "rx_attr.iov_limit domain_attr.resource_mgmt domain_attr.cq_data_size domain_attr.cq_cnt "
     "domain_attr.ep_cnt domain_attr.tx_ctx_cnt domain_attr.rx_ctx_cnt "
     "domain_attr.max_ep_tx_ctx domain_attr.max_ep_rx_ctx domain_attr.max_ep_stx_ctx "
     "domain_attr.max_ep_srx_ctx domain_attr.cntr_cnt domain_attr.mr_iov_limit "
     "domain_attr.mr_cnt domain_attr.auth_key domain_attr.auth_key_size "
     "domain_attr.max_err_data domain_attr.tclass domain_attr.max_ep_auth_key "
     "domain_attr.max_group_id domain_attr.max_cntr_value domain_attr.max_err_cntr_value"}};

// The distance of the attribute with this name; 0: there is none.
constexpr uint32_t distance_of_attribute(std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return 0;
  for (const AttributeGroup &group : kAttributes) {
    std::string_view rest = group.names;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(' '), rest.size());
      if (rest.substr(0, end) == name) return group.distance;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return 0;
}

// A member of fi_info, by the name that the C API has for it.
class Attribute {
 public:
  constexpr Attribute() = default;       // no attribute
  consteval Attribute(const char *name)  // NOLINT(google-explicit-constructor)
      : name_(name), distance_(distance_of_attribute(name)) {
    if (distance_ == 0) throw "kAttributes has no such attribute";
  }

  constexpr std::string_view name() const { return name_; }
  constexpr uint32_t distance() const { return distance_; }
  constexpr bool operator==(const Attribute &) const = default;

 private:
  std::string_view name_;
  uint32_t distance_ = 0;
};

// The ways in which an offer differs from the hints.
enum class Misfit : uint8_t {
  kAbove,     // a number above the limit
  kOther,     // another value
  kLacking,   // bits that the offer does not have
  kRequired,  // bits of `offered` that the hints must have
  kNone,      // nothing of the kind is offered
  kNoRoom,    // less than is needed
  kWords,     // `words` say it
};

struct Refusal {
  // A fault of the plugin has no attribute. It is as far as another kind of endpoint.
  static constexpr uint32_t kFault = 16;

  Attribute attribute = {};
  Misfit how = Misfit::kWords;
  std::string wanted = {}, offered = {};  // in the words of fi_tostr; either may be empty
  std::string words = {};                 // they follow the name of the attribute
  uint32_t distance = attribute.distance() != 0 ? attribute.distance() : kFault;

  bool operator==(const Refusal &) const = default;
};

}  // namespace weft

#endif
