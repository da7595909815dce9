// SPDX-License-Identifier: BSD-2-Clause
// mark_canceled: fi_cancel (fi_endpoint.3) of an operation that has begun, where nothing can be
// taken back. The operation ends as it would have, and if that is an error, FI_ECANCELED is
// reported in its place: it is the only error that programs take for the end of what they have
// canceled.
//
// Example:
//    struct Send {
//      void *context = nullptr;  // null while the object is in the pool
//      uint64_t flags = 0;       // of the completion
//      bool is_canceled = false;
//    };
//    ssize_t cancel(Pool<Send> &sends, void *context) {
//      return mark_canceled(sends, context, &Send::flags) ? 0 : -FI_ENOENT;
//    }
//
// It looks at all operations, so it is not for what is canceled often: receives have matcher.h.
#ifndef WEFT_SDK_TRANSFERS_CANCEL_H
#define WEFT_SDK_TRANSFERS_CANCEL_H

#include <rdma/fi_errno.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/contexts.h>

#include <cstdint>

namespace weft::sdk {

// Deferred work (kDeferred in the flags) has a cancel of its own. False: no operation has the
// context.
template <class Op, class Flags>
bool mark_canceled(Pool<Op> &operations, const void *context, Flags flags) {
  Op *const op = operations.find([=](const Op &one) {
    return one.context == context && !one.is_canceled && (one.*flags & kDeferred) == 0;
  });
  if (op == nullptr) return false;
  op->is_canceled = true;
  return true;
}

}  // namespace weft::sdk

#endif
