// SPDX-License-Identifier: BSD-2-Clause
// Compares the attributes one by one.
#include <algorithm>
#include <bit>

#include "core/base/render.h"
#include "core/match/parts.h"

namespace weft {

using namespace matching;

namespace {

struct OrderAlias {
  uint64_t both, rma, atomic;
};
constexpr OrderAlias kOrderAliases[] = {
    {FI_ORDER_RAR, FI_ORDER_RMA_RAR, FI_ORDER_ATOMIC_RAR},
    {FI_ORDER_RAW, FI_ORDER_RMA_RAW, FI_ORDER_ATOMIC_RAW},
    {FI_ORDER_WAR, FI_ORDER_RMA_WAR, FI_ORDER_ATOMIC_WAR},
    {FI_ORDER_WAW, FI_ORDER_RMA_WAW, FI_ORDER_ATOMIC_WAW},
};

// An order of all reads and writes includes the orders of RMA and of atomics. The reverse is not
// true: each kind may be in order by itself, but not with the other.
uint64_t with_aliases(uint64_t order) {
  for (const OrderAlias &alias : kOrderAliases) {
    if ((order & alias.both) != 0) order |= alias.rma | alias.atomic;
  }
  return order;
}

// The place of a value in a list that goes from hard to easy for a provider; 0: not in the list.
template <class T, size_t N>
size_t place(const T (&list)[N], T value) {
  return size_t(std::find(list, list + N, value) - list + 1) % (N + 1);
}

// How much the application serialises its calls.
size_t serialisation(fi_threading threading) {
  static constexpr fi_threading kHardToEasy[] = {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_ENDPOINT,
                                                 FI_THREAD_COMPLETION, FI_THREAD_DOMAIN};
  return place(kHardToEasy, threading);
}

// How much progress the application makes itself.
size_t self_driven(fi_progress progress) {
  static constexpr fi_progress kHardToEasy[] = {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL,
                                                FI_PROGRESS_CONTROL_UNIFIED};
  return place(kHardToEasy, progress);
}

// Whether tags in the offered format can hold the fields of the wanted one. Several neighbouring
// fields can be used as one: their masks are set together.
bool tag_format_fits(uint64_t wanted, uint64_t offered) {
  if (wanted == offered || wanted == FI_TAG_BITS || offered == FI_TAG_BITS) return true;
  // A named format may use any bit, so it fits only where all bits are free.
  if (wanted < FI_TAG_MAX_FORMAT && (wanted == FI_TAG_MPI || wanted == FI_TAG_CCL)) {
    return std::bit_width(offered) == 64;
  }
  if (offered == FI_TAG_MPI || offered == FI_TAG_CCL) return false;
  const auto fields = [](uint64_t format) {
    std::vector<int> sizes;
    int bit = std::bit_width(format) - 1;
    while (bit >= 0) {
      const uint64_t value = (format >> bit) & 1;
      int size = 0;
      while (bit >= 0 && ((format >> bit) & 1) == value) --bit, ++size;
      sizes.push_back(size);
    }
    return sizes;
  };
  const std::vector<int> available = fields(offered);
  size_t next = 0;
  for (const int size : fields(wanted)) {
    int room = 0;
    while (room < size && next < available.size()) room += available[next++];
    if (room < size) return false;
  }
  return true;
}

void check_contexts(Check &check, Attribute field, size_t wanted, size_t offered,
                    size_t per_endpoint, size_t sharing) {
  if (wanted == FI_SHARED_CONTEXT) {
    if (sharing == 0 && offered != FI_SHARED_CONTEXT)
      check.says(field, ": FI_SHARED_CONTEXT wanted, shared contexts are not offered");
    return;
  }
  check.at_most(field, wanted, std::max(offered == FI_SHARED_CONTEXT ? 0 : offered, per_endpoint));
}

void check_ep(Check &check, uint32_t version, const fi_info &hints, const fi_info &offer) {
  if (hints.ep_attr == nullptr) return;
  const fi_ep_attr &want = *hints.ep_attr;
  const fi_ep_attr &have = *offer.ep_attr;
  const int wanted = ep_type_of(want), offered = ep_type_of(have);
  if (wanted != FI_EP_UNSPEC && wanted != offered)
    check.differs("ep_attr.type", wanted, offered, FI_TYPE_EP_TYPE);
  if (want.protocol != FI_PROTO_UNSPEC && want.protocol != have.protocol)
    check.differs("ep_attr.protocol", want.protocol, have.protocol, FI_TYPE_PROTOCOL);
  check.at_most("ep_attr.protocol_version", want.protocol_version, have.protocol_version);
  check.at_most("ep_attr.max_msg_size", want.max_msg_size, have.max_msg_size);
  // The application says how much room it can put in front of buffers.
  if (want.msg_prefix_size != 0 && have.msg_prefix_size > want.msg_prefix_size)
    check.reject({"ep_attr.msg_prefix_size", Misfit::kNoRoom, std::to_string(want.msg_prefix_size),
                  std::to_string(have.msg_prefix_size)});
  check.at_most("ep_attr.max_order_raw_size", want.max_order_raw_size, have.max_order_raw_size);
  check.at_most("ep_attr.max_order_war_size", want.max_order_war_size, have.max_order_war_size);
  check.at_most("ep_attr.max_order_waw_size", want.max_order_waw_size, have.max_order_waw_size);
  if ((offer.caps & FI_TAGGED) != 0 && !tag_format_fits(want.mem_tag_format, have.mem_tag_format))
    check.differs("ep_attr.mem_tag_format", Check::hex(want.mem_tag_format),
                  Check::hex(have.mem_tag_format));
  check_contexts(check, "ep_attr.tx_ctx_cnt", want.tx_ctx_cnt, have.tx_ctx_cnt,
                 offer.domain_attr->max_ep_tx_ctx, offer.domain_attr->max_ep_stx_ctx);
  check_contexts(check, "ep_attr.rx_ctx_cnt", want.rx_ctx_cnt, have.rx_ctx_cnt,
                 offer.domain_attr->max_ep_rx_ctx, offer.domain_attr->max_ep_srx_ctx);
  if (FI_VERSION_GE(version, kMrBits)) {
    if (want.auth_key_size == FI_AV_AUTH_KEY) {
      if (offer.domain_attr->max_ep_auth_key == 0)
        check.absent("ep_attr.auth_key_size", "FI_AV_AUTH_KEY");
    } else {
      check.at_most("ep_attr.auth_key_size", want.auth_key_size, have.auth_key_size);
      if (want.auth_key_size != 0 && want.auth_key == nullptr)
        check.says("ep_attr.auth_key", " is NULL although auth_key_size is set");
    }
  }
}

// A traffic class only affects scheduling. A provider without classes fits, and returns that it has
// none. A provider with classes must have the wanted one.
void check_tclass(Check &check, Attribute field, uint32_t wanted, uint32_t offered) {
  if (wanted == FI_TC_UNSPEC || offered == FI_TC_UNSPEC || wanted == offered ||
      wanted == FI_TC_BEST_EFFORT)
    return;
  check.differs(field, Check::hex(wanted), Check::hex(offered));
}

void check_tx(Check &check, const fi_info &hints, const fi_info &offer, uint64_t mode_ready) {
  if (hints.tx_attr == nullptr) {
    check.requires_bits("mode", mode_ready, offer.tx_attr->mode, FI_TYPE_MODE);
    return;
  }
  const fi_tx_attr &want = *hints.tx_attr;
  const fi_tx_attr &have = *offer.tx_attr;
  // Only transmit bits are checked here. match_info() checks the others against `caps`.
  check.subset("tx_attr.caps", want.caps & kTxCaps, have.caps != 0 ? have.caps : offer.caps,
               FI_TYPE_CAPS);
  if (want.mode == 0) {
    check.requires_bits("mode", mode_ready, have.mode, FI_TYPE_MODE);
  } else {
    check.requires_bits("tx_attr.mode", want.mode, have.mode, FI_TYPE_MODE);
  }
  check.subset("tx_attr.op_flags", want.op_flags, have.op_flags, FI_TYPE_OP_FLAGS);
  check.subset("tx_attr.msg_order", want.msg_order, with_aliases(have.msg_order),
               FI_TYPE_MSG_ORDER);
  check.subset("tx_attr.comp_order", want.comp_order, have.comp_order, FI_TYPE_MSG_ORDER);
  check.at_most("tx_attr.inject_size", want.inject_size, have.inject_size);
  check.at_most("tx_attr.size", want.size, have.size);
  check.at_most("tx_attr.iov_limit", want.iov_limit, have.iov_limit);
  check.at_most("tx_attr.rma_iov_limit", want.rma_iov_limit, have.rma_iov_limit);
  check_tclass(check, "tx_attr.tclass", want.tclass, have.tclass);
}

void check_rx(Check &check, const fi_info &hints, const fi_info &offer, uint64_t mode_ready) {
  if (hints.rx_attr == nullptr) {
    check.requires_bits("mode", mode_ready, offer.rx_attr->mode, FI_TYPE_MODE);
    return;
  }
  const fi_rx_attr &want = *hints.rx_attr;
  const fi_rx_attr &have = *offer.rx_attr;
  check.subset("rx_attr.caps", want.caps & kRxCaps, have.caps != 0 ? have.caps : offer.caps,
               FI_TYPE_CAPS);
  if (want.mode == 0) {
    check.requires_bits("mode", mode_ready, have.mode, FI_TYPE_MODE);
  } else {
    check.requires_bits("rx_attr.mode", want.mode, have.mode, FI_TYPE_MODE);
  }
  check.subset("rx_attr.op_flags", want.op_flags, have.op_flags, FI_TYPE_OP_FLAGS);
  check.subset("rx_attr.msg_order", want.msg_order, with_aliases(have.msg_order),
               FI_TYPE_MSG_ORDER);
  check.subset("rx_attr.comp_order", want.comp_order, have.comp_order, FI_TYPE_MSG_ORDER);
  // total_buffered_recv is a request that providers may ignore.
  check.at_most("rx_attr.size", want.size, have.size);
  check.at_most("rx_attr.iov_limit", want.iov_limit, have.iov_limit);
}

void check_domain(Check &check, uint32_t version, const fi_info &hints, const fi_info &offer) {
  const fi_domain_attr &have = *offer.domain_attr;
  check.requires_bits("mode", hints.mode | (hints.domain_attr ? hints.domain_attr->mode : 0),
                      have.mode, FI_TYPE_MODE);
  if (hints.domain_attr == nullptr) return;
  const fi_domain_attr &want = *hints.domain_attr;
  if (want.domain != nullptr && have.domain != nullptr && want.domain != have.domain)
    check.says("domain_attr.domain", ": another open domain is offered");
  check.name("domain_attr.name", want.name, have.name);
  if (want.threading != FI_THREAD_UNSPEC &&
      serialisation(have.threading) > serialisation(want.threading))
    check.differs("domain_attr.threading", want.threading, have.threading, FI_TYPE_THREADING);
  if (want.control_progress != FI_PROGRESS_UNSPEC &&
      self_driven(have.control_progress) > self_driven(want.control_progress))
    check.differs("domain_attr.control_progress", want.control_progress, have.control_progress,
                  FI_TYPE_PROGRESS);
  if (want.data_progress != FI_PROGRESS_UNSPEC &&
      self_driven(have.data_progress) > self_driven(want.data_progress))
    check.differs("domain_attr.data_progress", want.data_progress, have.data_progress,
                  FI_TYPE_PROGRESS);
  if (want.resource_mgmt == FI_RM_ENABLED && have.resource_mgmt != FI_RM_ENABLED)
    check.absent("domain_attr.resource_mgmt", "FI_RM_ENABLED");
  if (want.av_type != FI_AV_UNSPEC && have.av_type != FI_AV_UNSPEC && want.av_type != have.av_type)
    check.differs("domain_attr.av_type", want.av_type, have.av_type, FI_TYPE_AV_TYPE);
  // mr_key_size is the size that the application has room for: more than needed is fine.
  check.at_most("domain_attr.cq_data_size", want.cq_data_size, have.cq_data_size);
  check.at_most_if_stated("domain_attr.cq_cnt", want.cq_cnt, have.cq_cnt);
  check.at_most_if_stated("domain_attr.ep_cnt", want.ep_cnt, have.ep_cnt);
  check.at_most_if_stated("domain_attr.tx_ctx_cnt", want.tx_ctx_cnt, have.tx_ctx_cnt);
  check.at_most_if_stated("domain_attr.rx_ctx_cnt", want.rx_ctx_cnt, have.rx_ctx_cnt);
  check.at_most("domain_attr.max_ep_tx_ctx", want.max_ep_tx_ctx, have.max_ep_tx_ctx);
  check.at_most("domain_attr.max_ep_rx_ctx", want.max_ep_rx_ctx, have.max_ep_rx_ctx);
  check.at_most("domain_attr.max_ep_stx_ctx", want.max_ep_stx_ctx, have.max_ep_stx_ctx);
  check.at_most("domain_attr.max_ep_srx_ctx", want.max_ep_srx_ctx, have.max_ep_srx_ctx);
  check.at_most_if_stated("domain_attr.cntr_cnt", want.cntr_cnt, have.cntr_cnt);
  check.at_most("domain_attr.mr_iov_limit", want.mr_iov_limit, have.mr_iov_limit);
  check.subset("domain_attr.caps", want.caps, have.caps, FI_TYPE_CAPS);
  if (FI_VERSION_GE(version, kMrBits)) {
    if (want.auth_key_size == FI_AV_AUTH_KEY) {
      if (have.auth_key_size != FI_AV_AUTH_KEY && have.max_ep_auth_key == 0)
        check.absent("domain_attr.auth_key_size", "FI_AV_AUTH_KEY");
    } else {
      check.at_most("domain_attr.auth_key_size", want.auth_key_size,
                    have.auth_key_size == FI_AV_AUTH_KEY ? 0 : have.auth_key_size);
      if (want.auth_key_size != 0 && want.auth_key == nullptr)
        check.says("domain_attr.auth_key", " is NULL although auth_key_size is set");
    }
  }
  check.at_most("domain_attr.max_err_data", want.max_err_data, have.max_err_data);
  check.at_most_if_stated("domain_attr.mr_cnt", want.mr_cnt, have.mr_cnt);
  check_tclass(check, "domain_attr.tclass", want.tclass, have.tclass);
  check.at_most("domain_attr.max_ep_auth_key", want.max_ep_auth_key, have.max_ep_auth_key);
  check.at_most("domain_attr.max_group_id", want.max_group_id, have.max_group_id);
  check.at_most_if_stated("domain_attr.max_cntr_value", want.max_cntr_value, have.max_cntr_value);
  check.at_most_if_stated("domain_attr.max_err_cntr_value", want.max_err_cntr_value,
                          have.max_err_cntr_value);
}

std::string version_text(uint32_t version) {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

void check_fabric(Check &check, const fi_info &hints, const fi_info &offer) {
  if (hints.fabric_attr == nullptr) return;
  const fi_fabric_attr &want = *hints.fabric_attr;
  const fi_fabric_attr &have = *offer.fabric_attr;
  if (want.fabric != nullptr && have.fabric != nullptr && want.fabric != have.fabric)
    check.says("fabric_attr.fabric", ": another open fabric is offered");
  check.name("fabric_attr.name", want.name, have.name);
  if (want.prov_name != nullptr && have.prov_name != nullptr &&
      !prov_name_admits(want.prov_name, have.prov_name))
    check.name("fabric_attr.prov_name", want.prov_name, have.prov_name);
  if (want.prov_version > have.prov_version)
    check.differs("fabric_attr.prov_version", version_text(want.prov_version),
                  version_text(have.prov_version));
}

// A device in the hints restricts the answer to that device, by the texts that identify it.
void check_nic(Check &check, const fi_info &hints, const fi_info &offer) {
  if (hints.nic == nullptr) return;
  if (hints.nic->device_attr != nullptr) {
    const fi_device_attr *have = offer.nic != nullptr ? offer.nic->device_attr : nullptr;
    const fi_device_attr &want = *hints.nic->device_attr;
    const fi_device_attr none{};
    if (have == nullptr) have = &none;
    check.name("nic.device_attr.name", want.name, have->name);
    check.name("nic.device_attr.device_id", want.device_id, have->device_id);
    check.name("nic.device_attr.device_version", want.device_version, have->device_version);
    check.name("nic.device_attr.vendor_id", want.vendor_id, have->vendor_id);
    check.name("nic.device_attr.driver", want.driver, have->driver);
    check.name("nic.device_attr.firmware", want.firmware, have->firmware);
  }
  if (hints.nic->bus_attr != nullptr && hints.nic->bus_attr->bus_type == FI_BUS_PCI) {
    const fi_bus_attr *have = offer.nic != nullptr ? offer.nic->bus_attr : nullptr;
    const fi_pci_attr &want = hints.nic->bus_attr->attr.pci;
    if (have == nullptr || have->bus_type != FI_BUS_PCI ||
        have->attr.pci.domain_id != want.domain_id || have->attr.pci.bus_id != want.bus_id ||
        have->attr.pci.device_id != want.device_id ||
        have->attr.pci.function_id != want.function_id)
      check.says("nic.bus_attr", ": another device is offered");
  }
  if (hints.nic->link_attr != nullptr) {
    const fi_link_attr *have = offer.nic != nullptr ? offer.nic->link_attr : nullptr;
    const fi_link_attr &want = *hints.nic->link_attr;
    const fi_link_attr none{};
    if (have == nullptr) have = &none;
    check.name("nic.link_attr.address", want.address, have->address);
    check.name("nic.link_attr.network_type", want.network_type, have->network_type);
    check.at_most("nic.link_attr.mtu", want.mtu, have->mtu);
    check.at_most("nic.link_attr.speed", want.speed, have->speed);
    if (want.state == FI_LINK_UP && have->state != FI_LINK_UP)
      check.absent("nic.link_attr.state", "FI_LINK_UP");
  }
}

const char *missing_part(const fi_info &offer) {
  if (offer.tx_attr == nullptr) return "tx_attr";
  if (offer.rx_attr == nullptr) return "rx_attr";
  if (offer.ep_attr == nullptr) return "ep_attr";
  if (offer.domain_attr == nullptr) return "domain_attr";
  if (offer.fabric_attr == nullptr) return "fabric_attr";
  return nullptr;
}

}  // namespace

Match match_info(uint32_t version, uint64_t flags, const fi_info *hints, const fi_info &offer) {
  Check check;
  if (const char *part = missing_part(offer); part != nullptr) {
    check.says({}, std::string("the provider's offer has no ") + part +
                       " (a fault of the plugin: report it to its vendor)");
  } else if (hints == nullptr) {
    check_mr_mode(check, version, nullptr, offer);
  } else {
    check.subset("caps", wanted_caps(hints), offer.caps, FI_TYPE_CAPS);
    const bool old_mode = FI_VERSION_LT(version, kMrBits);
    // Since API 1.5 mr_mode has FI_MR_LOCAL in place of this bit.
    const uint64_t mode_ready = hints->mode | (old_mode ? 0 : FI_LOCAL_MR);
    check.requires_bits("mode", mode_ready, offer.mode, FI_TYPE_MODE);
    check_addresses(check, flags, *hints, offer);
    check_ep(check, version, *hints, offer);
    check_tx(check, *hints, offer, mode_ready | offer.mode);
    check_rx(check, *hints, offer, mode_ready | offer.mode);
    check_mr_mode(check, version, hints, offer);
    check_domain(check, version, *hints, offer);
    check_fabric(check, *hints, offer);
    check_nic(check, *hints, offer);
  }
  Match match;
  match.refusals = check.take();
  match.accepted = match.refusals.empty();
  return match;
}

uint32_t Match::distance() const {
  uint32_t sum = 0;
  for (const Refusal &one : refusals) sum += one.distance;
  return sum;
}

std::string Match::reason(std::string_view whose) const {
  return text_of(refusals, whose);
}

}  // namespace weft
