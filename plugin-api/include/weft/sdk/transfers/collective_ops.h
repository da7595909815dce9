// SPDX-License-Identifier: BSD-2-Clause
// CollectiveOps: the calls of fi_collective.3 by which an application joins a group and starts an
// operation, turned into one request.
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    class Endpoint : public EndpointCore,
//                     public CollectiveOps<Endpoint, FI_BARRIER_SET | FI_ALLREDUCE_SET> {
//     public:
//      ssize_t start(const CollectiveRequest &request);  // it takes the lock
//      // With the lock held: why groups cannot be joined now; and joining one.
//      weft::Result<void> may_join() const;
//      weft::Result<fid_mc *> join_collective(const fi_collective_addr &address, void *context);
//      Engine &engine();
//    };
//
// It checks pointers, counts and the collective. The endpoint checks flags, types, its state and
// everything about the group. From the first join on, readers of the endpoint's event queue move
// its engine (`feeds_eq`). Descriptors are not passed on. Not for what a group does.
#ifndef WEFT_SDK_TRANSFERS_COLLECTIVE_OPS_H
#define WEFT_SDK_TRANSFERS_COLLECTIVE_OPS_H

#include <rdma/fi_collective.h>
#include <weft/result.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/unit/log.h>

#include <atomic>

namespace weft::sdk {

// FI_..._SET of a collective.
constexpr uint64_t collective_set(int coll) {
  switch (coll) {
    case FI_BARRIER:
      return FI_BARRIER_SET;
    case FI_BROADCAST:
      return FI_BROADCAST_SET;
    case FI_ALLTOALL:
      return FI_ALLTOALL_SET;
    case FI_ALLREDUCE:
      return FI_ALLREDUCE_SET;
    case FI_ALLGATHER:
      return FI_ALLGATHER_SET;
    case FI_REDUCE_SCATTER:
      return FI_REDUCE_SCATTER_SET;
    case FI_REDUCE:
      return FI_REDUCE_SET;
    case FI_SCATTER:
      return FI_SCATTER_SET;
    case FI_GATHER:
      return FI_GATHER_SET;
    default:
      return 0;
  }
}

// `count`: what one member gives or gets, as fi_collective.3 has it. A broadcast has its buffer as
// its operand and as its result. `report`: a completion is wanted.
struct CollectiveRequest {
  bool report = true;
  fi_addr_t group = FI_ADDR_NOTAVAIL;
  fi_collective_op coll = FI_BARRIER;
  const void *operand = nullptr;
  size_t count = 0;
  void *result = nullptr;
  fi_addr_t root = FI_ADDR_NOTAVAIL;
  int datatype = FI_VOID, op = FI_NOOP;
  uint64_t flags = 0;
  void *context = nullptr;
};

// `Sets`: FI_..._SET of the operations that the endpoint's table has.
template <class E, uint64_t Sets>
class CollectiveOps {
 public:
  // ---- fi_ops_collective ----
  ssize_t barrier(fi_addr_t group, void *context) {
    return start({.group = group,
                  .coll = FI_BARRIER,
                  .flags = self().tx_flags() & FI_COMPLETION,
                  .context = context});
  }
  ssize_t barrier2(fi_addr_t group, uint64_t flags, void *context) {
    return start({.group = group, .coll = FI_BARRIER, .flags = flags, .context = context});
  }
  ssize_t broadcast(void *buf, size_t count, void *, fi_addr_t group, fi_addr_t root,
                    enum fi_datatype datatype, uint64_t flags, void *context) {
    return move(FI_BROADCAST, buf, count, buf, group, root, datatype, flags, context);
  }
  ssize_t alltoall(const void *buf, size_t count, void *, void *result, void *, fi_addr_t group,
                   enum fi_datatype datatype, uint64_t flags,
                   void *context) requires((Sets & FI_ALLTOALL_SET) != 0) {
    return move(FI_ALLTOALL, buf, count, result, group, FI_ADDR_NOTAVAIL, datatype, flags, context);
  }
  ssize_t allgather(const void *buf, size_t count, void *, void *result, void *, fi_addr_t group,
                    enum fi_datatype datatype, uint64_t flags,
                    void *context) requires((Sets & FI_ALLGATHER_SET) != 0) {
    return move(FI_ALLGATHER, buf, count, result, group, FI_ADDR_NOTAVAIL, datatype, flags,
                context);
  }
  ssize_t scatter(const void *buf, size_t count, void *, void *result, void *, fi_addr_t group,
                  fi_addr_t root, enum fi_datatype datatype, uint64_t flags,
                  void *context) requires((Sets & FI_SCATTER_SET) != 0) {
    return move(FI_SCATTER, buf, count, result, group, root, datatype, flags, context);
  }
  ssize_t gather(const void *buf, size_t count, void *, void *result, void *, fi_addr_t group,
                 fi_addr_t root, enum fi_datatype datatype, uint64_t flags,
                 void *context) requires((Sets & FI_GATHER_SET) != 0) {
    return move(FI_GATHER, buf, count, result, group, root, datatype, flags, context);
  }
  ssize_t allreduce(const void *buf, size_t count, void *, void *result, void *, fi_addr_t group,
                    enum fi_datatype datatype, enum fi_op op, uint64_t flags, void *context) {
    return reduction(FI_ALLREDUCE, buf, count, result, group, FI_ADDR_NOTAVAIL, datatype, op, flags,
                     context);
  }
  ssize_t reduce_scatter(const void *buf, size_t count, void *, void *result, void *,
                         fi_addr_t group, enum fi_datatype datatype, enum fi_op op, uint64_t flags,
                         void *context) requires((Sets & FI_REDUCE_SCATTER_SET) != 0) {
    return reduction(FI_REDUCE_SCATTER, buf, count, result, group, FI_ADDR_NOTAVAIL, datatype, op,
                     flags, context);
  }
  ssize_t reduce(const void *buf, size_t count, void *, void *result, void *, fi_addr_t group,
                 fi_addr_t root, enum fi_datatype datatype, enum fi_op op, uint64_t flags,
                 void *context) {
    return reduction(FI_REDUCE, buf, count, result, group, root, datatype, op, flags, context);
  }
  // Operands and results of one vector each. `count` is that of the operand for all but a scatter.
  ssize_t collective_msg(const struct fi_msg_collective *msg, struct fi_ioc *resultv, void **,
                         size_t result_count, uint64_t flags) {
    if (msg == nullptr || msg->iov_count > 1 || result_count > 1) return -FI_EINVAL;
    if ((msg->iov_count != 0 && msg->msg_iov == nullptr) ||
        (result_count != 0 && resultv == nullptr))
      return -FI_EINVAL;
    const fi_ioc operand = msg->iov_count != 0 ? *msg->msg_iov : fi_ioc{};
    const fi_ioc result = result_count != 0 ? *resultv : fi_ioc{};
    const int coll = raw(msg->coll);
    if ((Sets & collective_set(coll)) == 0) return -FI_EOPNOTSUPP;
    const bool by_result = coll == FI_SCATTER || coll == FI_REDUCE_SCATTER;
    return start({.group = msg->coll_addr,
                  .coll = msg->coll,
                  .operand = operand.addr,
                  .count = by_result ? result.count : operand.count,
                  .result = coll == FI_BROADCAST ? operand.addr : result.addr,
                  .root = msg->root_addr,
                  .datatype = raw(msg->datatype),
                  .op = raw(msg->op),
                  .flags = flags,
                  .context = msg->context});
  }

  // ---- fi_ops_cm: fi_join_collective ----
  int join(const void *addr, uint64_t flags, struct fid_mc **mc, void *context) {
    if (addr == nullptr || mc == nullptr) return -FI_EINVAL;
    if (!(flags & FI_COLLECTIVE)) return -FI_ENOSYS;  // multicast of messages
    if (flags & ~uint64_t(FI_COLLECTIVE)) return -FI_EBADFLAGS;
    const auto joined = join_group(*static_cast<const fi_collective_addr *>(addr), context);
    if (joined) {
      *mc = *joined;
      return 0;
    }
    WEFT_WARN(self().instance(), FI_LOG_EP_CTRL, "fi_join_collective: %s",
              joined.error().text.c_str());
    return -joined.error().code;
  }

 protected:
  ~CollectiveOps() = default;
  // Whether the endpoint's engine is a source of its event queue; close() removes it.
  bool feeds_eq() const { return feeds_eq_.load(); }

 private:
  E &self() { return static_cast<E &>(*this); }
  ssize_t start(CollectiveRequest request) {
    request.report = self().reports(request.flags);
    return self().start(request);
  }
  ssize_t move(fi_collective_op coll, const void *buf, size_t count, void *result, fi_addr_t group,
               fi_addr_t root, enum fi_datatype datatype, uint64_t flags, void *context) {
    return reduction(coll, buf, count, result, group, root, datatype, FI_NOOP, flags, context);
  }
  ssize_t reduction(fi_collective_op coll, const void *buf, size_t count, void *result,
                    fi_addr_t group, fi_addr_t root, enum fi_datatype datatype, enum fi_op op,
                    uint64_t flags, void *context) {
    return start({.group = group,
                  .coll = coll,
                  .operand = buf,
                  .count = count,
                  .result = result,
                  .root = root,
                  .datatype = raw(datatype),
                  .op = raw(op),
                  .flags = flags,
                  .context = context});
  }
  Result<fid_mc *> join_group(const fi_collective_addr &address, void *context) {
    Eq *queue = nullptr;
    {
      const Guard guard(self().lock());
      if (!self().enabled()) return fail(FI_EOPBADSTATE, "the endpoint is not enabled");
      WEFT_CHECK(self().may_join());
      if (self().eq() == nullptr)
        return fail(FI_ENOEQ,
                    "no event queue is bound to the endpoint, and FI_JOIN_COMPLETE is reported "
                    "there (fi_collective.3): fi_ep_bind one");
      if (!feeds_eq_.exchange(true)) queue = self().eq();
    }
    // From now on readers of the queue move the endpoint on. Its lock comes before the endpoint's.
    if (queue != nullptr) queue->add_source(self().engine(), true);
    const Guard guard(self().lock());
    return self().join_collective(address, context);
  }

  std::atomic<bool> feeds_eq_{false};
};

}  // namespace weft::sdk

#endif
