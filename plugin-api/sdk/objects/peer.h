// SPDX-License-Identifier: BSD-2-Clause
// What an owner lends (fi_peer.3), checked: the context of an open call with FI_PEER becomes the
// owner's object or the reason why not.
//
// Example:
//    Result<void> lend(fi_peer_cq_context *context) {
//      WEFT_TRY(fid_peer_cq *const owner, peer_cq(context));
//      owner->owner_ops->write(owner, nullptr, FI_SEND | FI_MSG, 0, nullptr, 0, 0, FI_ADDR_NOTAVAIL);
//      return {};
//    }
//
// Not for what an owner does.
#ifndef WEFT_SDK_OBJECTS_PEER_H
#define WEFT_SDK_OBJECTS_PEER_H

#include <rdma/providers/fi_peer.h>
#include <weft/result.h>
#include <weft/sdk/objects/cq.h>

namespace weft::sdk {

Result<fid_peer_cq *> peer_cq(void *context);          // a fi_peer_cq_context
Result<fid_peer_cntr *> peer_cntr(void *context);      // a fi_peer_cntr_context
Result<fid_eq *> peer_eq(void *context);               // a fi_peer_eq_context
Result<fid_peer_srx *> peer_srx(void *context);        // a fi_peer_srx_context
Result<fid_peer_av *> peer_av(void *context);          // a fi_peer_av_context
Result<fid_peer_av_set *> peer_av_set(void *context);  // a fi_peer_av_set_context

// What a peer reports by writeerr().
CompletionError error_of(const fi_cq_err_entry &entry);

}  // namespace weft::sdk

#endif
