// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/receives.h"

#include <rdma/fi_tagged.h>
#include <weft/sdk/transfers/deferred.h>

#include <algorithm>
#include <utility>

#include "plugins/coll/names.h"

namespace weft::coll {
namespace {

constexpr uint64_t kLooks = FI_PEEK | FI_CLAIM | FI_DISCARD;

bool takes_claimed(uint64_t flags) {
  return (flags & (FI_PEEK | FI_CLAIM)) == FI_CLAIM;
}

}  // namespace

// What was claimed is known to the endpoint beneath by the context of that call. Null: there is no
// memory, or nothing was claimed.
Message *Receives::place_of(const sdk::RecvRequest &request) {
  Message *place = nullptr;
  if (takes_claimed(request.flags))
    pool_.visit([&](Message &message) {
      if (message.busy && message.has_claimed && message.context == request.context)
        place = &message;
    });
  else if (place = pool_.take(); place != nullptr)
    place->begin(request);
  if (place != nullptr) std::copy_n(request.iov, request.count, place->iov);
  return place;
}

// Whatever bits a receive ignores, it takes no message of a group.
ssize_t Receives::post(fid_ep *beneath, Names &names, uint64_t caps,
                       const sdk::RecvRequest &request) {
  if (request.flags & ~(FI_COMPLETION | FI_MORE | FI_MULTI_RECV | kLooks | sdk::kDeferred))
    return -FI_EBADFLAGS;
  const uint64_t multi = request.flags & FI_MULTI_RECV;
  if (multi != 0 && !(caps & FI_MULTI_RECV)) return -FI_EBADFLAGS;
  if (request.count > vectors_ || (request.count != 0 && request.iov == nullptr)) return -FI_EINVAL;
  if (request.tagged && is_ours(request.tag & ~request.ignore)) return -FI_EINVAL;
  fi_addr_t source = FI_ADDR_UNSPEC;
  if ((caps & FI_DIRECTED_RECV) && request.src != FI_ADDR_UNSPEC) {
    source = names.find(request.src);
    if (source == FI_ADDR_NOTAVAIL) return -FI_EINVAL;
  }
  Message *const message = place_of(request);
  if (message == nullptr) return takes_claimed(request.flags) ? -FI_EINVAL : -FI_ENOMEM;
  const uint64_t looks = request.flags & kLooks;
  const bool had_claimed = std::exchange(message->has_claimed, false);
  message->home = this;
  message->looks = looks;
  message->flags = sdk::completion_flags(request);
  message->report = (request.flags & FI_COMPLETION) != 0;
  void *none[sdk::kIovLimit] = {};  // the provider beneath wants no descriptors
  const fi_msg_tagged msg{.msg_iov = message->iov,
                          .desc = none,
                          .iov_count = request.count,
                          .addr = source,
                          .tag = request.tag & ~kOurTags,
                          .ignore = request.ignore & ~kOurTags,
                          .context = static_cast<Posted *>(message)};
  const fi_msg plain = untagged(msg);
  message->is_multi = multi != 0;
  multi_ += message->is_multi;
  const uint64_t flags = FI_COMPLETION | looks | multi;
  const ssize_t rc =
      request.tagged ? fi_trecvmsg(beneath, &msg, flags) : fi_recvmsg(beneath, &plain, flags);
  if (rc != 0 && had_claimed)
    message->has_claimed = true;
  else if (rc != 0)
    end(*message);
  return rc;
}

ssize_t Receives::cancel(fid_ep *beneath, const void *context) {
  if (context == nullptr) return -FI_ENOENT;
  ssize_t rc = -FI_ENOENT;
  pool_.visit([&](Message &message) {
    if (rc != -FI_ENOENT || !message.busy) return;
    const void *const given =
        message.flags & sdk::kDeferred
            ? static_cast<const sdk::Deferred *>(message.context)->origin().context
            : message.context;
    if (given == context) rc = fi_cancel(&beneath->fid, static_cast<Posted *>(&message));
  });
  return rc;
}

void Receives::end(Message &message) {
  multi_ -= message.is_multi;
  message.busy = false;
  pool_.give(&message);
}

}  // namespace weft::coll
