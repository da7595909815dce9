// SPDX-License-Identifier: BSD-2-Clause
// fi_collective.3 of an endpoint and of a domain: from an application's arguments to operands.
#include <rdma/fi_cxi_ext.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/cxi/collectives.h"
#include "plugins/cxi/domain.h"
#include "plugins/cxi/endpoint.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kCallFlags = FI_COMPLETION | FI_MORE | FI_CXI_PRE_REDUCED;

// What is in struct cxip_coll_accumulator. One that is all zero is empty.
struct Accumulator {
  static constexpr uint32_t kMagic = 0x63784163;
  uint32_t magic = 0;
  Partial partial;

  static Accumulator read(const void *from) {
    Accumulator own;
    std::memcpy(static_cast<void *>(&own), from, sizeof own);
    return own;
  }
  bool is_valid() const {
    return magic == kMagic && is_known(partial.opcode) && partial.bytes <= kMaxOperand &&
           partial.failure <= Failure::kCanceled;
  }
};
static_assert(sizeof(Accumulator) <= sizeof(cxip_coll_accumulator));

// The operand of a reduction. -FI_E...: there is none.
int reduction_operand(const sdk::CollectiveRequest &call, Partial &operand) {
  if (call.operand == nullptr) return -FI_EINVAL;
  if (call.flags & FI_CXI_PRE_REDUCED) {
    const Accumulator own = Accumulator::read(call.operand);
    if (!own.is_valid()) return -FI_EINVAL;
    operand = own.partial;
    return 0;
  }
  const auto opcode = reduction_of(call.op, call.datatype);
  if (!opcode) return -FI_EOPNOTSUPP;
  if (call.count == 0) return -FI_EINVAL;
  if (call.count > max_elements(*opcode, call.datatype)) return -FI_EMSGSIZE;
  operand = Partial::of(*opcode, call.operand, call.count * element_size(*opcode, call.datatype));
  return 0;
}

// fi_broadcast is a reduction by FI_BOR, to which all but the root give zeros.
int broadcast_operand(const sdk::CollectiveRequest &call, bool is_root, Partial &operand) {
  const size_t size = sdk::datatype_size(call.datatype);
  if (size == 0) return -FI_EOPNOTSUPP;
  if (call.operand == nullptr || call.count == 0) return -FI_EINVAL;
  if (call.count > kMaxOperand / size) return -FI_EMSGSIZE;
  const uint8_t zeros[kMaxOperand] = {};
  operand = Partial::of(Opcode::kOr, is_root ? call.operand : zeros, call.count * size);
  return 0;
}

// FI_MORE: the operand goes into the accumulator that `result` is, and nowhere else.
int accumulate(const sdk::CollectiveRequest &call, const Partial &operand) {
  if (call.result == nullptr) return -FI_EINVAL;
  Accumulator own = Accumulator::read(call.result);
  if (!own.is_valid()) {
    own = {.magic = Accumulator::kMagic, .partial = operand};
  } else if (own.partial.opcode != operand.opcode || own.partial.bytes != operand.bytes) {
    return -FI_EINVAL;
  } else {
    own.partial.add(operand);
  }
  std::memcpy(call.result, &own, sizeof own);
  return 0;
}

}  // namespace

ssize_t Collectives::start(const sdk::CollectiveRequest &call) {
  const bool reduces = call.coll == FI_REDUCE || call.coll == FI_ALLREDUCE;
  if (call.flags & ~kCallFlags || (!reduces && call.flags & (FI_MORE | FI_CXI_PRE_REDUCED)))
    return -FI_EBADFLAGS;
  Partial operand;
  if (reduces) {
    if (const int rc = reduction_operand(call, operand); rc != 0) return rc;
    if (call.flags & FI_MORE) return accumulate(call, operand);
  }
  CollectiveGroup *const group = find(call.group);
  if (group == nullptr) return -FI_EINVAL;
  const Group &own = *protocol_->find(group->id);
  void *result = call.result;
  if (call.coll == FI_REDUCE || call.coll == FI_BROADCAST) {
    const auto root = group->rank_of(call.root);
    if (!root) return -FI_EINVAL;
    const bool is_root = *root == own.place().rank;
    if (call.coll == FI_BROADCAST) {
      if (const int rc = broadcast_operand(call, is_root, operand); rc != 0) return rc;
      if (is_root) result = nullptr;
    } else if (!is_root) {
      result = nullptr;
    } else if (result == nullptr) {
      return -FI_EINVAL;
    }
  } else if (call.coll == FI_ALLREDUCE && result == nullptr) {
    return -FI_EINVAL;
  }
  if (tx_.is_full()) return -FI_EAGAIN;
  const auto free =
      std::ranges::find(group->operations, false, &CollectiveGroup::Operation::active);
  if (free == std::end(group->operations)) return -FI_EAGAIN;
  *free = {.active = true,
           .report = call.report,
           .context = call.context,
           .result = result,
           .opcode = operand.opcode,
           .bytes = operand.bytes};
  const auto token = uint64_t(free - group->operations);
  const int rc = protocol_->find(group->id)->start(sdk::now_ns(), operand, token);
  if (rc != 0) *free = {};
  look();
  return rc;
}

// ---- for CollectiveOps of an endpoint ----

ssize_t CxiEndpoint::start(const sdk::CollectiveRequest &request) {
  const sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  if (!collectives_.is_open()) return -FI_EOPNOTSUPP;
  if (ports_.devices == nullptr || request.operand == nullptr || request.flags & FI_CXI_PRE_REDUCED)
    return collectives_.start(request);
  // An operand in memory of a device is copied; how much of it counts is seen there.
  const sdk::HmemPlace place = ports_.devices->find(request.operand, 1, nullptr);
  if (!place) return collectives_.start(request);
  uint8_t operand[kMaxOperand] = {};
  if (!sdk::hmem_copy(operand, nullptr, request.operand, &place,
                      std::min(place.bytes, sizeof operand)))
    return -FI_EFAULT;
  sdk::CollectiveRequest here = request;
  here.operand = operand;
  return collectives_.start(here);
}

Result<void> CxiEndpoint::may_join() const {
  if (!collectives_.is_open())
    return fail(FI_EOPNOTSUPP, "the endpoint was opened without FI_COLLECTIVE");
  return {};
}

Result<fid_mc *> CxiEndpoint::join_collective(const fi_collective_addr &address, void *context) {
  return collectives_.join(*av(), address, context);
}

void CxiEndpoint::push() {
  domain_.device().push();
}

// ---- fi_query_collective ----

int query_collective(fi_collective_op coll, fi_collective_attr *attr, uint64_t flags) {
  if (attr == nullptr) return -FI_EINVAL;
  if (flags & FI_SCATTER) return -FI_EOPNOTSUPP;
  if (flags != 0) return -FI_EBADFLAGS;
  const int op = sdk::raw(attr->op), datatype = sdk::raw(attr->datatype);
  size_t size = 0, count = 0;
  switch (sdk::raw(coll)) {
    case FI_BARRIER:
      if (op != FI_NOOP || datatype != FI_VOID) return -FI_EOPNOTSUPP;
      break;
    case FI_BROADCAST:
      size = sdk::datatype_size(datatype);
      if (size == 0 || size > kMaxOperand) return -FI_EOPNOTSUPP;
      count = kMaxOperand / size;
      break;
    case FI_REDUCE:
    case FI_ALLREDUCE: {
      const auto opcode = reduction_of(op, datatype);
      if (!opcode) return -FI_EOPNOTSUPP;
      size = element_size(*opcode, datatype);
      count = max_elements(*opcode, datatype);
      break;
    }
    default:
      return -FI_EOPNOTSUPP;
  }
  attr->datatype_attr.count = count;
  attr->datatype_attr.size = size;
  attr->max_members = kMaxMembers;
  attr->mode = 0;
  return 0;
}

}  // namespace weft::cxi
