// SPDX-License-Identifier: BSD-2-Clause
// Which capability bits mean what.
#include "core/match/parts.h"

namespace weft::matching {

// A capability without its modifiers means all of them.
uint64_t with_modifiers(uint64_t caps, uint64_t offered) {
  if ((caps & (FI_MSG | FI_TAGGED | FI_MULTICAST)) != 0 && (caps & kMessageModifiers) == 0)
    caps |= offered & kMessageModifiers;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kMemoryModifiers) == 0)
    caps |= offered & kMemoryModifiers;
  return caps;
}

uint64_t tx_part(uint64_t caps) {
  uint64_t part = caps & kTxCaps;
  if ((part & FI_SEND) == 0) part &= ~(FI_MSG | FI_TAGGED | FI_MULTICAST);
  if ((part & (FI_READ | FI_WRITE)) == 0) part &= ~(FI_RMA | FI_ATOMIC);
  return part;
}

uint64_t rx_part(uint64_t caps) {
  uint64_t part = caps & kRxCaps;
  if ((part & FI_RECV) == 0) part &= ~(FI_MSG | FI_TAGGED);
  if ((part & (FI_REMOTE_READ | FI_REMOTE_WRITE)) == 0) part &= ~(FI_RMA | FI_ATOMIC);
  return part;
}

// All that the application asked for; 0: it did not say.
uint64_t wanted_caps(const fi_info *hints) {
  if (hints == nullptr || hints->caps == 0) return 0;
  uint64_t caps = hints->caps;
  if (hints->tx_attr != nullptr) caps |= hints->tx_attr->caps;
  if (hints->rx_attr != nullptr) caps |= hints->rx_attr->caps;
  return caps;
}

uint64_t returned_caps(const fi_info *hints, const fi_info &offer) {
  const uint64_t wanted = wanted_caps(hints);
  if (wanted == 0) return offer.caps;
  uint64_t free_caps = kFreeSecondary;
  if ((wanted & (FI_MSG | FI_TAGGED)) == 0) free_caps &= ~FI_MULTI_RECV;
  if ((wanted & (FI_RMA | FI_ATOMIC)) == 0) free_caps &= ~FI_RMA_PMEM;
  return with_modifiers(wanted, offer.caps) | (offer.caps & free_caps);
}

// The same for the domain. A capability that is asked of endpoints is also asked of the domain.
uint64_t returned_domain_caps(const fi_info *hints, const fi_info &offer) {
  const uint64_t offered = offer.domain_attr->caps;
  const uint64_t own =
      hints != nullptr && hints->domain_attr != nullptr ? hints->domain_attr->caps : 0;
  const uint64_t wanted = wanted_caps(hints) | own;
  return wanted == 0 ? offered : offered & (wanted | kFreeSecondary);
}

// Whether peers reach memory of an endpoint with these capabilities.
bool is_target(uint64_t caps) {
  return (caps & (FI_RMA | FI_ATOMIC)) != 0 &&
         ((caps & kMemoryModifiers) == 0 || (caps & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0);
}

}  // namespace weft::matching

namespace weft {

uint64_t unasked_caps(const fi_info *hints) {
  const uint64_t wanted = matching::wanted_caps(hints);
  return wanted != 0 ? matching::kFreeSecondary & ~wanted : 0;
}

}  // namespace weft
