// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/objects/shared_transmit.h>
#include <weft/sdk/transfers/deferred.h>

#include <utility>

namespace weft::sdk {

void TxContext::finish(Done done) {
  if (done.flags & kDeferred) return DeferredQueue::finish(cq, std::move(done));
  if (done.err == 0) return succeed(done.context, done.flags, done.length, done.report);
  if (Cntr *const cntr = counter_of(done.flags)) cntr->add_error();
  if (cq == nullptr) return;
  cq->push_error({.context = done.context,
                  .flags = done.flags,
                  .tag = done.tag,
                  .err = done.err,
                  .prov_errno = done.prov_errno != 0 ? done.prov_errno : done.err,
                  .err_data = std::move(done.err_data)});
}

bool TxContext::is_shared_full() const {
  return shared->is_full();
}

void TxContext::detach() {
  cq = nullptr;
  send = read = write = nullptr;
}

void RxContext::fail(void *context, uint64_t completion_flags, int err) {
  if (completion_flags & kDeferred)
    return DeferredQueue::finish(cq, {.context = context, .flags = completion_flags, .err = err});
  if (cntr != nullptr) cntr->add_error();
  if (cq != nullptr)
    cq->push_error({.context = context, .flags = completion_flags, .err = err, .prov_errno = err});
}

void RxContext::detach() {
  cq = nullptr;
  cntr = remote_read = remote_write = nullptr;
}

}  // namespace weft::sdk
