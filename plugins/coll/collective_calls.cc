// SPDX-License-Identifier: BSD-2-Clause
// fi_collective.3 of an endpoint and of a domain: from an application's arguments to calls.
#include <weft/sdk/atomic.h>
#include <weft/sdk/log.h>
#include <weft/sdk/reduce.h>

#include "plugins/coll/collectives.h"
#include "plugins/coll/domain.h"
#include "plugins/coll/endpoint.h"

namespace weft::coll {
namespace {

constexpr uint64_t kCollectiveFlags = FI_COMPLETION | FI_MORE | sdk::kLevelFlags;

bool does_reduce(fi_collective_op coll) {
  return coll == FI_REDUCE || coll == FI_ALLREDUCE || coll == FI_REDUCE_SCATTER;
}

}  // namespace

ssize_t Endpoint::start(const CollectiveCall &call, bool report) {
  if (call.flags & ~kCollectiveFlags) return -FI_EBADFLAGS;
  if (does_reduce(call.coll) && !sdk::reduce_valid(call.op, call.datatype)) return -FI_EOPNOTSUPP;
  const sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  if (!(caps() & FI_COLLECTIVE)) return -FI_EOPNOTSUPP;
  return collectives_.start(call, report);
}

ssize_t Endpoint::barrier(fi_addr_t group, void *context) {
  return start({.group = group, .coll = FI_BARRIER, .context = context}, reports(tx_flags()));
}

ssize_t Endpoint::barrier2(fi_addr_t group, uint64_t flags, void *context) {
  return start({.group = group, .coll = FI_BARRIER, .flags = flags, .context = context},
               reports(flags));
}

ssize_t Endpoint::broadcast(void *buf, size_t count, void *, fi_addr_t group, fi_addr_t root,
                            enum fi_datatype datatype, uint64_t flags, void *context) {
  return start({.group = group,
                .coll = FI_BROADCAST,
                .count = count,
                .result = buf,
                .root = root,
                .datatype = sdk::raw(datatype),
                .flags = flags,
                .context = context},
               reports(flags));
}

ssize_t Endpoint::exchange(fi_collective_op coll, const void *buf, size_t count, void *result,
                           fi_addr_t group, fi_addr_t root, enum fi_datatype datatype,
                           uint64_t flags, void *context) {
  return start({.group = group,
                .coll = coll,
                .operand = buf,
                .count = count,
                .result = result,
                .root = root,
                .datatype = sdk::raw(datatype),
                .flags = flags,
                .context = context},
               reports(flags));
}

ssize_t Endpoint::alltoall(const void *buf, size_t count, void *, void *result, void *,
                           fi_addr_t group, enum fi_datatype datatype, uint64_t flags,
                           void *context) {
  return exchange(FI_ALLTOALL, buf, count, result, group, FI_ADDR_NOTAVAIL, datatype, flags,
                  context);
}

ssize_t Endpoint::allgather(const void *buf, size_t count, void *, void *result, void *,
                            fi_addr_t group, enum fi_datatype datatype, uint64_t flags,
                            void *context) {
  return exchange(FI_ALLGATHER, buf, count, result, group, FI_ADDR_NOTAVAIL, datatype, flags,
                  context);
}

ssize_t Endpoint::scatter(const void *buf, size_t count, void *, void *result, void *,
                          fi_addr_t group, fi_addr_t root, enum fi_datatype datatype,
                          uint64_t flags, void *context) {
  return exchange(FI_SCATTER, buf, count, result, group, root, datatype, flags, context);
}

ssize_t Endpoint::gather(const void *buf, size_t count, void *, void *result, void *,
                         fi_addr_t group, fi_addr_t root, enum fi_datatype datatype, uint64_t flags,
                         void *context) {
  return exchange(FI_GATHER, buf, count, result, group, root, datatype, flags, context);
}

ssize_t Endpoint::allreduce(const void *buf, size_t count, void *, void *result, void *,
                            fi_addr_t group, enum fi_datatype datatype, enum fi_op op,
                            uint64_t flags, void *context) {
  return start({.group = group,
                .coll = FI_ALLREDUCE,
                .operand = buf,
                .count = count,
                .result = result,
                .datatype = sdk::raw(datatype),
                .op = sdk::raw(op),
                .flags = flags,
                .context = context},
               reports(flags));
}

ssize_t Endpoint::reduce_scatter(const void *buf, size_t count, void *, void *result, void *,
                                 fi_addr_t group, enum fi_datatype datatype, enum fi_op op,
                                 uint64_t flags, void *context) {
  return start({.group = group,
                .coll = FI_REDUCE_SCATTER,
                .operand = buf,
                .count = count,
                .result = result,
                .datatype = sdk::raw(datatype),
                .op = sdk::raw(op),
                .flags = flags,
                .context = context},
               reports(flags));
}

ssize_t Endpoint::reduce(const void *buf, size_t count, void *, void *result, void *,
                         fi_addr_t group, fi_addr_t root, enum fi_datatype datatype, enum fi_op op,
                         uint64_t flags, void *context) {
  return start({.group = group,
                .coll = FI_REDUCE,
                .operand = buf,
                .count = count,
                .result = result,
                .root = root,
                .datatype = sdk::raw(datatype),
                .op = sdk::raw(op),
                .flags = flags,
                .context = context},
               reports(flags));
}

// Operands and results of one vector each. `count` is that of the operand for all but a scatter.
ssize_t Endpoint::collective_msg(const struct fi_msg_collective *msg, struct fi_ioc *resultv,
                                 void **, size_t result_count, uint64_t flags) {
  if (msg == nullptr || msg->iov_count > 1 || result_count > 1) return -FI_EINVAL;
  if ((msg->iov_count != 0 && msg->msg_iov == nullptr) || (result_count != 0 && resultv == nullptr))
    return -FI_EINVAL;
  const fi_ioc operand = msg->iov_count != 0 ? *msg->msg_iov : fi_ioc{};
  const fi_ioc result = result_count != 0 ? *resultv : fi_ioc{};
  const int coll = sdk::raw(msg->coll);
  if (coll < FI_BARRIER || coll > FI_GATHER) return -FI_EOPNOTSUPP;
  const bool by_result = coll == FI_SCATTER || coll == FI_REDUCE_SCATTER;
  return start({.group = msg->coll_addr,
                .coll = msg->coll,
                .operand = operand.addr,
                .count = by_result ? result.count : operand.count,
                .result = coll == FI_BROADCAST ? operand.addr : result.addr,
                .root = msg->root_addr,
                .datatype = sdk::raw(msg->datatype),
                .op = sdk::raw(msg->op),
                .flags = flags,
                .context = msg->context},
               reports(flags));
}

// ---- fi_join_collective ----

int Endpoint::join(const void *addr, uint64_t flags, struct fid_mc **mc, void *context) {
  if (addr == nullptr || mc == nullptr) return -FI_EINVAL;
  if (!(flags & FI_COLLECTIVE)) return -FI_ENOSYS;  // multicast of messages
  if (flags & ~uint64_t(FI_COLLECTIVE)) return -FI_EBADFLAGS;
  const auto joined = join_group(*static_cast<const fi_collective_addr *>(addr), context);
  if (joined) {
    *mc = *joined;
    return 0;
  }
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_join_collective: %s", joined.error().text.c_str());
  return -joined.error().code;
}

Result<fid_mc *> Endpoint::join_group(const fi_collective_addr &address, void *context) {
  sdk::Eq *queue = nullptr;
  {
    const sdk::Guard guard(lock());
    if (!enabled()) return fail(FI_EOPBADSTATE, "the endpoint is not enabled");
    if (!(caps() & FI_COLLECTIVE))
      return fail(FI_EOPNOTSUPP, "the endpoint was opened without FI_COLLECTIVE");
    if (eq() == nullptr)
      return fail(FI_ENOEQ,
                  "no event queue is bound to the endpoint, and FI_JOIN_COMPLETE is reported there "
                  "(fi_collective.3): fi_ep_bind one");
    if (!feeds_eq_.exchange(true)) queue = eq();
  }
  // From now on readers of the queue move the endpoint on. The queue's lock comes before ours.
  if (queue != nullptr) queue->add_source(domain_.engine(), true);
  const sdk::Guard guard(lock());
  return collectives_.join(*av(), address, context);
}

// ---- fi_query_collective ----

int query_collective(enum fi_collective_op coll, struct fi_collective_attr *attr, uint64_t flags,
                     uint64_t longest) {
  if (attr == nullptr) return -FI_EINVAL;
  if (flags & ~uint64_t(FI_SCATTER)) return -FI_EBADFLAGS;
  int number = sdk::raw(coll);
  if (number < FI_BARRIER || number > FI_GATHER) return -FI_EOPNOTSUPP;
  if (flags & FI_SCATTER) number = FI_REDUCE_SCATTER;
  const auto wanted = static_cast<fi_collective_op>(number);
  const int op = sdk::raw(attr->op), datatype = sdk::raw(attr->datatype);
  size_t size = 0;
  if (wanted == FI_BARRIER) {
    if (op != FI_NOOP || datatype != FI_VOID) return -FI_EOPNOTSUPP;
  } else {
    size = sdk::datatype_size(datatype);
    const bool moves = op == FI_NOOP || op == FI_ATOMIC_READ || op == FI_ATOMIC_WRITE;
    if (size == 0 || (does_reduce(wanted) ? !sdk::reduce_valid(op, datatype) : !moves))
      return -FI_EOPNOTSUPP;
  }
  attr->datatype_attr.count = size != 0 ? size_t(longest / size) : 0;
  attr->datatype_attr.size = size;
  attr->max_members = Schedule::kMaxMembers;
  attr->mode = 0;
  return 0;
}

}  // namespace weft::coll
