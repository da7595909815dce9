// SPDX-License-Identifier: BSD-2-Clause
// An accepted offer becomes what fi_getinfo() returns.
#include <cstdlib>
#include <cstring>

#include "core/match/parts.h"

namespace weft {

using namespace matching;

namespace {

template <class Value>
void take_if_set(Value &returned, Value wanted) {
  if (wanted != Value{}) returned = wanted;
}

// Limits that an offer may leave out (0). What is asked for was not refused, so it is there.
void take_if_unstated(fi_domain_attr &returned, const fi_domain_attr &wanted) {
  const auto take = [](auto &mine, auto asked) {
    if (mine == 0) mine = asked;
  };
  take(returned.cq_cnt, wanted.cq_cnt);
  take(returned.ep_cnt, wanted.ep_cnt);
  take(returned.tx_ctx_cnt, wanted.tx_ctx_cnt);
  take(returned.rx_ctx_cnt, wanted.rx_ctx_cnt);
  take(returned.mr_cnt, wanted.mr_cnt);
  if (returned.cntr_cnt == 0) return;  // some providers have no counters
  take(returned.max_cntr_value, wanted.max_cntr_value);
  take(returned.max_err_cntr_value, wanted.max_err_cntr_value);
}

bool take_key(uint8_t *&key, size_t &size, const uint8_t *wanted, size_t wanted_size) {
  if (wanted == nullptr || wanted_size == 0 || wanted_size == FI_AV_AUTH_KEY) return true;
  auto *copy = static_cast<uint8_t *>(std::malloc(wanted_size));
  if (copy == nullptr) return false;
  std::memcpy(copy, wanted, wanted_size);
  std::free(key);
  key = copy;
  size = wanted_size;
  return true;
}

}  // namespace

bool narrow_info(uint32_t version, uint64_t flags, const fi_info *hints, fi_info &offer) {
  (void)flags;
  const uint64_t caps = returned_caps(hints, offer);
  offer.domain_attr->caps = returned_domain_caps(hints, offer);
  const fi_tx_attr tx_offer = *offer.tx_attr;
  const fi_rx_attr rx_offer = *offer.rx_attr;
  offer.caps = caps;
  // A provider may restrict transmit and receive further. If it left them 0, `caps` counts.
  offer.tx_attr->caps = tx_part(caps) & (tx_offer.caps != 0 ? tx_offer.caps : ~0ULL);
  offer.rx_attr->caps = rx_part(caps) & (rx_offer.caps != 0 ? rx_offer.caps : ~0ULL);
  // An offer lists the flags that can be defaults. Only those that the hints ask for become
  // defaults.
  offer.tx_attr->op_flags = 0;
  offer.rx_attr->op_flags = 0;
  narrow_mr_mode(version, hints, offer, caps);
  if ((offer.mode & FI_MSG_PREFIX) == 0) offer.ep_attr->msg_prefix_size = 0;
  offer.fabric_attr->api_version = version;
  if (FI_VERSION_LT(version, kMrBits)) {
    offer.ep_attr->auth_key_size = 0;
    offer.domain_attr->auth_key_size = 0;
  }
  const size_t ep_key_limit = offer.ep_attr->auth_key_size;
  const size_t domain_key_limit = offer.domain_attr->auth_key_size;
  // A length without a key is only a limit, but fi_endpoint() would take it for the length of a
  // key.
  if (offer.ep_attr->auth_key == nullptr) offer.ep_attr->auth_key_size = 0;
  if (offer.domain_attr->auth_key == nullptr && domain_key_limit != FI_AV_AUTH_KEY)
    offer.domain_attr->auth_key_size = 0;
  if (hints == nullptr) return true;

  if (hints->handle != nullptr &&
      (hints->handle->fclass == FI_CLASS_PEP || offer.handle == nullptr))
    offer.handle = hints->handle;

  if (hints->tx_attr != nullptr) {
    const fi_tx_attr &want = *hints->tx_attr;
    if (want.caps != 0)
      offer.tx_attr->caps =
          tx_part(with_modifiers(want.caps, offer.caps)) | (offer.tx_attr->caps & kFreeSecondary);
    offer.tx_attr->op_flags = want.op_flags;
    take_if_set(offer.tx_attr->msg_order, want.msg_order);
    take_if_set(offer.tx_attr->inject_size, want.inject_size);
    take_if_set(offer.tx_attr->size, want.size);
  }
  if (hints->rx_attr != nullptr) {
    const fi_rx_attr &want = *hints->rx_attr;
    if (want.caps != 0)
      offer.rx_attr->caps =
          rx_part(with_modifiers(want.caps, offer.caps)) | (offer.rx_attr->caps & kFreeSecondary);
    offer.rx_attr->op_flags = want.op_flags;
    take_if_set(offer.rx_attr->msg_order, want.msg_order);
    take_if_set(offer.rx_attr->size, want.size);
  }
  if (hints->ep_attr != nullptr) {
    const fi_ep_attr &want = *hints->ep_attr;
    take_if_set(offer.ep_attr->tx_ctx_cnt, want.tx_ctx_cnt);
    take_if_set(offer.ep_attr->rx_ctx_cnt, want.rx_ctx_cnt);
    if (want.mem_tag_format != 0 && offer.ep_attr->mem_tag_format == FI_TAG_BITS)
      offer.ep_attr->mem_tag_format = want.mem_tag_format;
    if (want.auth_key_size == FI_AV_AUTH_KEY && FI_VERSION_GE(version, kMrBits)) {
      offer.ep_attr->auth_key_size = FI_AV_AUTH_KEY;
    } else if (ep_key_limit != 0 && !take_key(offer.ep_attr->auth_key, offer.ep_attr->auth_key_size,
                                              want.auth_key, want.auth_key_size)) {
      return false;
    }
  }
  if (hints->domain_attr != nullptr) {
    const fi_domain_attr &want = *hints->domain_attr;
    take_if_set(offer.domain_attr->threading, want.threading);
    take_if_set(offer.domain_attr->control_progress, want.control_progress);
    take_if_set(offer.domain_attr->data_progress, want.data_progress);
    take_if_set(offer.domain_attr->av_type, want.av_type);
    take_if_unstated(*offer.domain_attr, want);
    if (want.domain != nullptr) offer.domain_attr->domain = want.domain;
    if (want.auth_key_size == FI_AV_AUTH_KEY && FI_VERSION_GE(version, kMrBits)) {
      offer.domain_attr->auth_key_size = FI_AV_AUTH_KEY;
    } else if (domain_key_limit != 0 &&
               !take_key(offer.domain_attr->auth_key, offer.domain_attr->auth_key_size,
                         want.auth_key, want.auth_key_size)) {
      return false;
    }
  }
  if (hints->fabric_attr != nullptr && hints->fabric_attr->fabric != nullptr)
    offer.fabric_attr->fabric = hints->fabric_attr->fabric;
  return true;
}

}  // namespace weft
