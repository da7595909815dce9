// SPDX-License-Identifier: BSD-2-Clause
// An endpoint's op tables and the beginning of its data path. Requests become work requests in
// message_queues.cc, which work_queues.cc posts.
#include "plugins/verbs/endpoint.h"

#include <weft/sdk/unit/log.h>

#include "plugins/verbs/fabric.h"
#include "plugins/verbs/shared_receive.h"

namespace weft::verbs {

// ---- tables ----

Endpoint::Endpoint(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      OwnLock(domain.locked()),
      ConnectedCore(domain.shared(), domain.fabric().connections(), domain.fabric().engine(),
                    base(), with_message_caps(info, domain), message_limits(domain), &tx_, &rx_,
                    &own_lock),
      MessageQueues(own_lock, limits().tx_size, limits().rx_size, tx_, rx_),
      domain_(domain),
      tx_(info),
      rx_(info) {
  if (caps() & FI_HMEM) expect_device_memory();
  limit_reads(domain.device().facts.max_read_sges);
  if (domain.device().facts.transport == Transport::kIwarp) expect_iwarp();
  set_tables(*this);
}

int Endpoint::atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return query_atomic(caps(), sdk::AtomicKind::kWrite, sdk::raw(datatype), sdk::raw(op), count);
}
int Endpoint::fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return query_atomic(caps(), sdk::AtomicKind::kFetch, sdk::raw(datatype), sdk::raw(op), count);
}
int Endpoint::compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return query_atomic(caps(), sdk::AtomicKind::kCompare, sdk::raw(datatype), sdk::raw(op), count);
}

// ---- transfers ----

ssize_t Endpoint::start(const sdk::RecvRequest &r) {
  if (shared_ != nullptr) return -FI_EOPNOTSUPP;  // receives are posted to the shared context
  if (state_ == State::kDisconnected) return -FI_ESHUTDOWN;
  return receive(r);
}

ssize_t Endpoint::rx_size_left() {
  sdk::Guard guard(own_lock);
  return enabled() ? ssize_t(receives_left()) : -FI_EOPBADSTATE;
}

ssize_t Endpoint::tx_size_left() {
  sdk::Guard guard(own_lock);
  return enabled() ? ssize_t(sends_left()) : -FI_EOPBADSTATE;
}

}  // namespace weft::verbs
