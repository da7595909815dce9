// SPDX-License-Identifier: BSD-2-Clause
// FI_BUFFERED_RECV and FI_VARIABLE_MSG (fi_msg.3, fi_getinfo.3), which the API had until 2.0: their
// bits, and how fi_getinfo offers them.
//
// Example:
//    // The last thing that a provider with RdmEndpoint does to an offer.
//    void finish(fi_info &info, const GetinfoQuery &query) { offer_buffered(info, query); }
//
// 2.0 took the names away, and gave the bit of FI_VARIABLE_MSG to FI_EXACT_DIRECTED_RECV. So the
// version of the caller's API says what a bit means. Not for what an endpoint does: rdm_endpoint.h.
#ifndef WEFT_SDK_TRANSFERS_BUFFERED_H
#define WEFT_SDK_TRANSFERS_BUFFERED_H

#include <rdma/fabric.h>
#include <weft/sdk/unit/info_list.h>
#include <weft/sdk/unit/provider.h>

#include <algorithm>

namespace weft::sdk {

inline constexpr uint64_t kBufferedRecv = UINT64_C(1) << 51;  // of fi_info.mode and rx_attr.mode
inline constexpr uint64_t kVariableMsg = UINT64_C(1) << 48;   // of fi_info.caps and rx_attr.caps

// Whether an endpoint of `info` works so.
inline bool is_buffered(const fi_info &info, uint32_t api_version) {
  if (FI_VERSION_GE(api_version, FI_VERSION(2, 0))) return false;
  const uint64_t rx_mode = info.rx_attr != nullptr ? info.rx_attr->mode : 0;
  return ((info.mode | rx_mode) & kBufferedRecv) != 0 || (info.caps & kVariableMsg) != 0;
}

// Offers what the hints ask for. What such an endpoint does not have goes; if the hints ask for
// that too, only the capability counts, because a provider may clear modes. The mode costs the
// application a call per message, so it is not for one that sets all bits to hear which are needed:
// none is.
inline void offer_buffered(fi_info &info, const GetinfoQuery &query) {
  constexpr uint64_t kWithout = FI_MULTI_RECV | FI_TRIGGER | FI_PEER | FI_NAMED_RX_CTX;
  const fi_info *const hints = query.hints;
  if (hints == nullptr || FI_VERSION_GE(query.api_version, FI_VERSION(2, 0))) return;
  // Not for endpoints of several contexts, or with shared ones.
  if (hints->ep_attr != nullptr &&
      std::max(hints->ep_attr->tx_ctx_cnt, hints->ep_attr->rx_ctx_cnt) > 1)
    return;
  const fi_rx_attr rx = rx_hints(hints);
  const uint64_t caps = hints->caps | rx.caps;
  const uint64_t mode = hints->mode == UINT64_MAX ? 0 : rx.mode != 0 ? rx.mode : hints->mode;
  const bool variable = (caps & kVariableMsg) != 0 && (caps & (FI_MSG | FI_TAGGED)) != 0;
  const bool buffered =
      (mode & hints->mode & kBufferedRecv) != 0 && ((caps | rx.op_flags) & kWithout) == 0;
  if (!variable && !buffered) return;
  for (uint64_t *some : {&info.caps, &info.tx_attr->caps, &info.rx_attr->caps,
                         &info.domain_attr->caps, &info.rx_attr->op_flags})
    *some &= ~kWithout;
  info.domain_attr->max_ep_srx_ctx = info.domain_attr->max_ep_stx_ctx = 0;
  info.domain_attr->max_ep_tx_ctx = info.domain_attr->max_ep_rx_ctx = 1;
  if (variable)
    for (uint64_t *some : {&info.caps, &info.rx_attr->caps}) *some |= kVariableMsg;
  if (buffered)
    for (uint64_t *some : {&info.mode, &info.rx_attr->mode}) *some |= kBufferedRecv;
}

}  // namespace weft::sdk

#endif
