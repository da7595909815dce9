// SPDX-License-Identifier: BSD-2-Clause
// MessageQueues: work queues that carry messages, remote memory access and atomics to one peer.
// The data paths of connected endpoints of every protocol share it.
//
// Example:
//    // The call of an application, with the endpoint's lock held.
//    inline ssize_t start(MessageQueues &queues, bool connected, const sdk::SendRequest &request) {
//      return connected ? queues.transmit(request) : -FI_ENOTCONN;
//    }
//
// Not for datagrams: their work requests name a peer each.
#ifndef WEFT_PLUGINS_VERBS_MESSAGE_QUEUES_H
#define WEFT_PLUGINS_VERBS_MESSAGE_QUEUES_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/endpoint.h>
#include <weft/sdk/transfer.h>

#include "plugins/verbs/work_queues.h"

namespace weft::verbs {

class Domain;

class MessageQueues : public WorkQueues {
 public:
  // The lock is held.
  ssize_t transmit(const sdk::SendRequest &request);
  ssize_t transmit(const sdk::RmaRequest &request);
  ssize_t transmit(const sdk::AtomicRequest &request);

 protected:
  using WorkQueues::WorkQueues;
  ~MessageQueues() = default;
};

// Flags of the transfers.
inline constexpr uint64_t kMessageFlags = FI_COMPLETION | FI_INJECT | FI_MORE | FI_FENCE |
                                          FI_REMOTE_CQ_DATA | FI_INJECT_COMPLETE |
                                          FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;

// The limits of endpoints of a domain.
sdk::EndpointLimits message_limits(const Domain &domain);
// None asked for: all.
fi_info with_message_caps(fi_info info, const Domain &domain);
// fi_atomicvalid and its like, of an endpoint with these capabilities.
int query_atomic(uint64_t caps, sdk::AtomicKind kind, int datatype, int op, size_t *count);

}  // namespace weft::verbs

#endif
