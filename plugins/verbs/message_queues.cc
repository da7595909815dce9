// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/message_queues.h"

#include <arpa/inet.h>
#include <rdma/fi_atomic.h>

#include <algorithm>
#include <cstring>

#include "plugins/verbs/domain.h"

namespace weft::verbs {
namespace {

constexpr size_t kAtomicSize = sizeof(uint64_t);

uint64_t word_at(const fi_ioc *ioc) {
  uint64_t word;
  std::memcpy(&word, ioc[0].addr, sizeof word);
  return word;
}

}  // namespace

sdk::EndpointLimits message_limits(const Domain &domain) {
  const DeviceFacts &facts = domain.device().facts;
  return {.tx_size = std::min(domain.settings().sizes.tx, facts.max_queue_entries),
          .rx_size = std::min(domain.settings().sizes.rx, facts.max_queue_entries),
          .inject_size = facts.max_inline,
          .max_msg_size = facts.max_message_size,
          // Of all operands; those of compare operations are two.
          .atomic_size = facts.has_atomics ? 2 * kAtomicSize : 0};
}

fi_info with_message_caps(fi_info info, const Domain &domain) {
  if (info.caps == 0) info.caps = message_caps(domain.device().facts);
  return info;
}

int query_atomic(uint64_t caps, sdk::AtomicKind kind, int datatype, int op, size_t *count) {
  if (count == nullptr) return -FI_EINVAL;
  if (!(caps & FI_ATOMIC) || !has_atomic(kind, datatype, op)) return -FI_EOPNOTSUPP;
  *count = 1;
  return 0;
}

ssize_t MessageQueues::transmit(const sdk::RmaRequest &r) {
  if (r.rma_count != 1 || r.rma[0].key > UINT32_MAX) return -FI_EINVAL;
  if (!r.write && r.count > read_pieces()) return read_in_parts(r);
  const uint64_t kind = r.write ? FI_WRITE : FI_READ;
  ibv_send_wr work;
  ibv_sge pieces[sdk::kIovLimit];
  work.opcode = r.write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  if (r.flags & FI_REMOTE_CQ_DATA) {
    work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    work.imm_data = htonl(uint32_t(r.data));
  }
  work.wr.rdma.remote_addr = r.rma[0].addr;
  work.wr.rdma.rkey = uint32_t(r.rma[0].key);
  const ssize_t rc = place(work, pieces, r.iov, r.desc, r.count, r.length, r.write);
  if (rc != 0) return rc;
  return submit(work, {r.context, FI_RMA | kind, r.length, r.report}, r.flags);
}

ssize_t MessageQueues::transmit(const sdk::AtomicRequest &r) {
  if (!has_atomic(r.kind, r.datatype, r.op)) return -FI_EOPNOTSUPP;
  if (r.elements != 1) return -FI_EMSGSIZE;
  const fi_rma_ioc *target = r.rma;
  while (target->count == 0) ++target;  // one of them has the element
  if (target->key > UINT32_MAX) return -FI_EINVAL;
  const bool writes = r.kind == sdk::AtomicKind::kWrite;
  // The device gets these operands with the request.
  if (!writes && (in_device_memory(r.operand_desc, r.operand_count) ||
                  in_device_memory(r.compare_desc, r.compare_count)))
    return -FI_EOPNOTSUPP;
  const fi_ioc &buffer = writes ? r.operands[0] : r.results[0];
  void *const *const desc = writes ? r.operand_desc : r.result_desc;
  const iovec local{buffer.addr, kAtomicSize};
  ibv_send_wr work{};
  ibv_sge pieces[1];
  uint64_t flags = r.flags & ~FI_REMOTE_CQ_DATA;
  if (writes) {
    work.opcode = IBV_WR_RDMA_WRITE;
    if (r.flags & FI_REMOTE_CQ_DATA) {
      work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      work.imm_data = htonl(uint32_t(r.data));
    }
    flags |= FI_FENCE;  // behind the reads and atomics before it
  } else if (r.op == FI_ATOMIC_READ) {
    work.opcode = IBV_WR_RDMA_READ;
  } else {
    const bool compares = r.kind == sdk::AtomicKind::kCompare;
    work.opcode = compares ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
    work.wr.atomic.remote_addr = target->addr;
    work.wr.atomic.rkey = uint32_t(target->key);
    work.wr.atomic.compare_add = word_at(compares ? r.compares : r.operands);
    work.wr.atomic.swap = compares ? word_at(r.operands) : 0;
  }
  if (writes || r.op == FI_ATOMIC_READ) {
    work.wr.rdma.remote_addr = target->addr;
    work.wr.rdma.rkey = uint32_t(target->key);
  }
  const ssize_t rc = place(work, pieces, &local, desc, 1, kAtomicSize, writes);
  if (rc != 0) return rc;
  const uint64_t kind = FI_ATOMIC | (writes ? FI_WRITE : FI_READ);
  return submit(work, {r.context, kind, kAtomicSize, r.report}, flags);
}

}  // namespace weft::verbs
