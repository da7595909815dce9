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

#include <arpa/inet.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/transfers/transfer.h>

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

// Inline, since each message passes here. What the opcode does not use of the work request is left
// as it is.
[[gnu::always_inline]] inline ssize_t MessageQueues::transmit(const sdk::SendRequest &r) {
  ibv_send_wr work;
  ibv_sge pieces[sdk::kIovLimit];
  work.opcode = IBV_WR_SEND;
  if (r.flags & FI_REMOTE_CQ_DATA) {
    work.opcode = IBV_WR_SEND_WITH_IMM;
    work.imm_data = htonl(uint32_t(r.data));
  }
  const ssize_t rc = place(work, pieces, r.iov, r.desc, r.count, r.length, true);
  if (rc != 0) return rc;
  return submit(work, {r.context, FI_SEND | FI_MSG, r.length, r.report}, r.flags);
}

}  // namespace weft::verbs

#endif
