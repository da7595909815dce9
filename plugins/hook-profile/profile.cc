// SPDX-License-Identifier: BSD-2-Clause
// profile: a hook that counts. For each endpoint, operation and class of peers: calls, bytes,
// refusals, errors, and histograms of sizes, of how long calls took and of how long operations were
// under way; for each completion queue: reads, how many were empty, completions, errors. What it
// counted stands in a segment that other processes read (format.h; `weft stats`, `weft top`, `weft
// exporter`), and the program itself can ask for it with fi_profile(3).
//
//   FI_HOOK=profile ./program &     weft top
#include <rdma/fi_profile.h>
#include <weft/sdk/atomic.h>
#include <weft/sdk/log.h>
#include <weft/sdk/unit.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "plugins/hook-profile/counting.h"

namespace weft::profile {
namespace {

using namespace weft::sdk;

// One for the plugin: the segment is the process's, whichever hooks write to it.
class Shared {
 public:
  std::shared_ptr<Segment> segment(const weft_instance *instance, size_t size) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Segment> segment = segment_.lock();
    // A child made by fork counts in a segment of its own.
    if (segment == nullptr || segment->pid() != getpid()) {
      std::string why;
      segment = Segment::open(size, why);
      segment_ = segment;
      if (!why.empty())
        WEFT_WARN(instance, FI_LOG_CORE, "what is counted is for fi_profile only: %s", why.c_str());
    }
    return segment;
  }

 private:
  std::mutex mutex_;
  std::weak_ptr<Segment> segment_;
};

struct State {
  virtual ~State() = default;
};

struct QueueState final : State {
  explicit QueueState(std::shared_ptr<Queue> queue) : queue(std::move(queue)) {}
  ~QueueState() override { queue->retire(); }
  const std::shared_ptr<Queue> queue;
};

struct AvState final : State {
  const std::shared_ptr<PeerTable> peers = std::make_shared<PeerTable>();
};

using OperationSums = std::array<Endpoint::Sums, kOperations>;
void add(OperationSums &to, const Endpoint &endpoint) {
  for (size_t i = 0; i < kOperations; ++i) {
    const Endpoint::Sums sums = endpoint.sums(static_cast<Operation>(i));
    to[i].calls += sums.calls;
    to[i].again += sums.again;
    to[i].errors += sums.errors;
    to[i].bytes += sums.bytes;
  }
}

class Profile;

struct DomainState final : State {
  DomainState(Profile &hook, const struct fid *fid);
  ~DomainState() override;
  Profile &hook;
  const struct fid *const fid;
  OperationSums closed;  // of endpoints that are closed; under the hook's mutex
};

class EndpointState final : public State, public Source {
 public:
  EndpointState(Profile &hook, fid_ep *ep, std::shared_ptr<Segment> segment, const Labels &labels,
                uint32_t sample);
  ~EndpointState() override;
  OperationRecord *operation(Operation operation, PeerClass peer) override;
  void unused(OperationRecord *record) override { segment_->retire(record); }
  PeerClass peer(fi_addr_t dest) override;
  void bound(const weft_hook_link &link, struct fid *fid, uint64_t flags);
  void stands_for(const EndpointState &original) {
    counting.share(original.counting);
    av_ = original.av_;
  }
  void learn_name();
  bool is(const struct fid *fid) const { return &ep_->fid == fid; }
  const struct fid *domain() const { return domain_; }
  Endpoint counting;

 private:
  Profile &hook_;
  fid_ep *const ep_;
  const struct fid *domain_ = nullptr;
  const std::shared_ptr<Segment> segment_;
  const Labels labels_;
  fid_av *av_ = nullptr;
};

Labels labels_of(const struct fid *fid) {
  const weft_fid_header *header = header_of(fid);
  Labels labels{};
  labels.object = header->id_core;
  std::snprintf(labels.element, sizeof labels.element, "%s", header->instance->unit->name);
  std::snprintf(labels.stack, sizeof labels.stack, "%s", header->instance->stack);
  return labels;
}

template <class Entry>
size_t bytes_in(const Entry *entries, size_t count, size_t unit) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Entry, iovec>) {
      sum += entries[i].iov_len;
    } else {
      sum += entries[i].count * unit;
    }
  }
  return sum;
}
size_t bytes_in(const iovec *entries, size_t count) {
  return bytes_in(entries, count, 1);
}
size_t size_of(const enum fi_datatype &datatype) {
  return datatype_size(raw(datatype));
}

class Profile {
 public:
  using Link = const weft_hook_link &;
  using ObjectState = State;
  static constexpr weft_param params[] = {
      int_param("sample", "128", "one call in so many is measured; 1: each", 1, 1 << 20),
      size_param("segment_size", "64M",
                 "the most that the counters of a process may take, in bytes", 256 << 10,
                 int64_t{1} << 32),
  };
  static constexpr UnitInfo info{.name = "profile",
                                 .summary = "counts operations, with histograms, for weft top",
                                 .version = FI_VERSION(1, 0),
                                 .maturity = WEFT_MATURITY_BETA,
                                 .security = WEFT_SECURITY_NO_NETWORK,
                                 .params = params};

  explicit Profile(const weft_instance *instance)
      : instance_(instance),
        shared_(static_cast<Shared *>(instance->plugin_state)),
        sample_(static_cast<uint32_t>(Params<Profile>(instance).integer("sample"))),
        segment_size_(Params<Profile>(instance).size("segment_size")) {}

  Result<std::unique_ptr<State>> attach(struct fid *fid) {
    switch (fid->fclass) {
      case FI_CLASS_DOMAIN:
        return std::make_unique<DomainState>(*this, fid);
      case FI_CLASS_AV:
        return std::make_unique<AvState>();
      case FI_CLASS_EP:
      case FI_CLASS_SEP:
      case FI_CLASS_TX_CTX:
      case FI_CLASS_RX_CTX:
      case FI_CLASS_SRX_CTX:
      case FI_CLASS_CQ:
        break;
      default:
        return nullptr;
    }
    std::shared_ptr<Segment> segment = shared_->segment(instance_, segment_size_);
    if (segment == nullptr) return fail(FI_ENOMEM, "no memory for counters");
    if (fid->fclass == FI_CLASS_CQ) {
      Labels labels = labels_of(fid);
      std::snprintf(labels.operation, sizeof labels.operation, "cq_read");
      return std::make_unique<QueueState>(std::make_shared<Queue>(std::move(segment), labels));
    }
    return std::make_unique<EndpointState>(*this, reinterpret_cast<fid_ep *>(fid),
                                           std::move(segment), labels_of(fid), sample_);
  }

  // ---- messages ----

  ssize_t recv(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
               void *context) {
    return post(link, kRecv, src, context, len, link.next.msg->recv, ep, buf, len, desc, src,
                context);
  }
  ssize_t recvv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                void *context) {
    return post(
        link, kRecv, src, context, [&] { return bytes_in(iov, count); }, link.next.msg->recvv, ep,
        iov, desc, count, src, context);
  }
  ssize_t recvmsg(Link link, fid_ep *ep, const fi_msg *msg, uint64_t flags) {
    return post_msg(link, kRecv, link.next.msg->recvmsg, ep, msg, flags);
  }
  ssize_t send(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
               void *context) {
    return post(link, kSend, dest, context, len, link.next.msg->send, ep, buf, len, desc, dest,
                context);
  }
  ssize_t sendv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                void *context) {
    return post(
        link, kSend, dest, context, [&] { return bytes_in(iov, count); }, link.next.msg->sendv, ep,
        iov, desc, count, dest, context);
  }
  ssize_t sendmsg(Link link, fid_ep *ep, const fi_msg *msg, uint64_t flags) {
    return post_msg(link, kSend, link.next.msg->sendmsg, ep, msg, flags);
  }
  ssize_t inject(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest) {
    return post(link, kInject, dest, nullptr, len, link.next.msg->inject, ep, buf, len, dest);
  }
  ssize_t senddata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                   fi_addr_t dest, void *context) {
    return post(link, kSend, dest, context, len, link.next.msg->senddata, ep, buf, len, desc, data,
                dest, context);
  }
  ssize_t injectdata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                     fi_addr_t dest) {
    return post(link, kInject, dest, nullptr, len, link.next.msg->injectdata, ep, buf, len, data,
                dest);
  }

  // ---- tagged messages ----

  ssize_t trecv(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
                uint64_t tag, uint64_t ignore, void *context) {
    return post(link, kTrecv, src, context, len, link.next.tagged->recv, ep, buf, len, desc, src,
                tag, ignore, context);
  }
  ssize_t trecvv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                 uint64_t tag, uint64_t ignore, void *context) {
    return post(
        link, kTrecv, src, context, [&] { return bytes_in(iov, count); }, link.next.tagged->recvv,
        ep, iov, desc, count, src, tag, ignore, context);
  }
  ssize_t trecvmsg(Link link, fid_ep *ep, const fi_msg_tagged *msg, uint64_t flags) {
    return post_msg(link, kTrecv, link.next.tagged->recvmsg, ep, msg, flags);
  }
  ssize_t tsend(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
                uint64_t tag, void *context) {
    return post(link, kTsend, dest, context, len, link.next.tagged->send, ep, buf, len, desc, dest,
                tag, context);
  }
  ssize_t tsendv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                 uint64_t tag, void *context) {
    return post(
        link, kTsend, dest, context, [&] { return bytes_in(iov, count); }, link.next.tagged->sendv,
        ep, iov, desc, count, dest, tag, context);
  }
  ssize_t tsendmsg(Link link, fid_ep *ep, const fi_msg_tagged *msg, uint64_t flags) {
    return post_msg(link, kTsend, link.next.tagged->sendmsg, ep, msg, flags);
  }
  ssize_t tinject(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest,
                  uint64_t tag) {
    return post(link, kTinject, dest, nullptr, len, link.next.tagged->inject, ep, buf, len, dest,
                tag);
  }
  ssize_t tsenddata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                    fi_addr_t dest, uint64_t tag, void *context) {
    return post(link, kTsend, dest, context, len, link.next.tagged->senddata, ep, buf, len, desc,
                data, dest, tag, context);
  }
  ssize_t tinjectdata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                      fi_addr_t dest, uint64_t tag) {
    return post(link, kTinject, dest, nullptr, len, link.next.tagged->injectdata, ep, buf, len,
                data, dest, tag);
  }

  // ---- RMA ----

  ssize_t read(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
               uint64_t addr, uint64_t key, void *context) {
    return post(link, kRead, src, context, len, link.next.rma->read, ep, buf, len, desc, src, addr,
                key, context);
  }
  ssize_t readv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                uint64_t addr, uint64_t key, void *context) {
    return post(
        link, kRead, src, context, [&] { return bytes_in(iov, count); }, link.next.rma->readv, ep,
        iov, desc, count, src, addr, key, context);
  }
  ssize_t readmsg(Link link, fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
    return post_msg(link, kRead, link.next.rma->readmsg, ep, msg, flags);
  }
  ssize_t write(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
                uint64_t addr, uint64_t key, void *context) {
    return post(link, kWrite, dest, context, len, link.next.rma->write, ep, buf, len, desc, dest,
                addr, key, context);
  }
  ssize_t writev(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                 uint64_t addr, uint64_t key, void *context) {
    return post(
        link, kWrite, dest, context, [&] { return bytes_in(iov, count); }, link.next.rma->writev,
        ep, iov, desc, count, dest, addr, key, context);
  }
  ssize_t writemsg(Link link, fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
    return post_msg(link, kWrite, link.next.rma->writemsg, ep, msg, flags);
  }
  ssize_t inject_write(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest,
                       uint64_t addr, uint64_t key) {
    return post(link, kInjectWrite, dest, nullptr, len, link.next.rma->inject, ep, buf, len, dest,
                addr, key);
  }
  ssize_t writedata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                    fi_addr_t dest, uint64_t addr, uint64_t key, void *context) {
    return post(link, kWrite, dest, context, len, link.next.rma->writedata, ep, buf, len, desc,
                data, dest, addr, key, context);
  }
  ssize_t inject_writedata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                           fi_addr_t dest, uint64_t addr, uint64_t key) {
    return post(link, kInjectWrite, dest, nullptr, len, link.next.rma->injectdata, ep, buf, len,
                data, dest, addr, key);
  }

  // ---- atomics ----

  ssize_t atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t dest,
                 uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                 void *context) {
    return post(
        link, kAtomic, dest, context, [&] { return count * size_of(datatype); },
        link.next.atomic->write, ep, buf, count, desc, dest, addr, key, datatype, op, context);
  }
  ssize_t atomicv(Link link, fid_ep *ep, const fi_ioc *iov, void **desc, size_t count,
                  fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                  enum fi_op op, void *context) {
    return post(
        link, kAtomic, dest, context, [&] { return bytes_in(iov, count, size_of(datatype)); },
        link.next.atomic->writev, ep, iov, desc, count, dest, addr, key, datatype, op, context);
  }
  ssize_t atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, uint64_t flags) {
    return post_msg(link, kAtomic, link.next.atomic->writemsg, ep, msg, flags);
  }
  ssize_t inject_atomic(Link link, fid_ep *ep, const void *buf, size_t count, fi_addr_t dest,
                        uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op) {
    return post(
        link, kInjectAtomic, dest, nullptr, [&] { return count * size_of(datatype); },
        link.next.atomic->inject, ep, buf, count, dest, addr, key, datatype, op);
  }
  ssize_t fetch_atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                       void *result, void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key,
                       enum fi_datatype datatype, enum fi_op op, void *context) {
    return post(
        link, kFetchAtomic, dest, context, [&] { return count * size_of(datatype); },
        link.next.atomic->readwrite, ep, buf, count, desc, result, result_desc, dest, addr, key,
        datatype, op, context);
  }
  ssize_t fetch_atomicv(Link link, fid_ep *ep, const fi_ioc *iov, void **desc, size_t count,
                        fi_ioc *resultv, void **result_desc, size_t result_count, fi_addr_t dest,
                        uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                        void *context) {
    return post(
        link, kFetchAtomic, dest, context,
        [&] { return bytes_in(resultv, result_count, size_of(datatype)); },
        link.next.atomic->readwritev, ep, iov, desc, count, resultv, result_desc, result_count,
        dest, addr, key, datatype, op, context);
  }
  ssize_t fetch_atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, fi_ioc *resultv,
                          void **result_desc, size_t result_count, uint64_t flags) {
    return post_msg(link, kFetchAtomic, link.next.atomic->readwritemsg, ep, msg, resultv,
                    result_desc, result_count, flags);
  }
  ssize_t compare_atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                         const void *compare, void *compare_desc, void *result, void *result_desc,
                         fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                         enum fi_op op, void *context) {
    return post(
        link, kCompareAtomic, dest, context, [&] { return count * size_of(datatype); },
        link.next.atomic->compwrite, ep, buf, count, desc, compare, compare_desc, result,
        result_desc, dest, addr, key, datatype, op, context);
  }
  ssize_t compare_atomicv(Link link, fid_ep *ep, const fi_ioc *iov, void **desc, size_t count,
                          const fi_ioc *comparev, void **compare_desc, size_t compare_count,
                          fi_ioc *resultv, void **result_desc, size_t result_count, fi_addr_t dest,
                          uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                          void *context) {
    return post(
        link, kCompareAtomic, dest, context,
        [&] { return bytes_in(resultv, result_count, size_of(datatype)); },
        link.next.atomic->compwritev, ep, iov, desc, count, comparev, compare_desc, compare_count,
        resultv, result_desc, result_count, dest, addr, key, datatype, op, context);
  }
  ssize_t compare_atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, const fi_ioc *comparev,
                            void **compare_desc, size_t compare_count, fi_ioc *resultv,
                            void **result_desc, size_t result_count, uint64_t flags) {
    return post_msg(link, kCompareAtomic, link.next.atomic->compwritemsg, ep, msg, comparev,
                    compare_desc, compare_count, resultv, result_desc, result_count, flags);
  }

  // ---- collectives: all members at once are the peer ----

  ssize_t barrier(Link link, fid_ep *ep, fi_addr_t coll, void *context) {
    return collective(link, 0, FI_UINT8, context, link.next.collective->barrier, ep, coll, context);
  }
  ssize_t barrier2(Link link, fid_ep *ep, fi_addr_t coll, uint64_t flags, void *context) {
    return collective(link, 0, FI_UINT8, context, link.next.collective->barrier2, ep, coll, flags,
                      context);
  }
  ssize_t broadcast(Link link, fid_ep *ep, void *buf, size_t count, void *desc, fi_addr_t coll,
                    fi_addr_t root, enum fi_datatype datatype, uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->broadcast, ep, buf,
                      count, desc, coll, root, datatype, flags, context);
  }
  ssize_t alltoall(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                   void *result_desc, fi_addr_t coll, enum fi_datatype datatype, uint64_t flags,
                   void *context) {
    return collective(link, count, datatype, context, link.next.collective->alltoall, ep, buf,
                      count, desc, result, result_desc, coll, datatype, flags, context);
  }
  ssize_t allreduce(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                    void *result_desc, fi_addr_t coll, enum fi_datatype datatype, enum fi_op op,
                    uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->allreduce, ep, buf,
                      count, desc, result, result_desc, coll, datatype, op, flags, context);
  }
  ssize_t allgather(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                    void *result_desc, fi_addr_t coll, enum fi_datatype datatype, uint64_t flags,
                    void *context) {
    return collective(link, count, datatype, context, link.next.collective->allgather, ep, buf,
                      count, desc, result, result_desc, coll, datatype, flags, context);
  }
  ssize_t reduce_scatter(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                         void *result, void *result_desc, fi_addr_t coll, enum fi_datatype datatype,
                         enum fi_op op, uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->reduce_scatter, ep, buf,
                      count, desc, result, result_desc, coll, datatype, op, flags, context);
  }
  ssize_t reduce(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                 void *result_desc, fi_addr_t coll, fi_addr_t root, enum fi_datatype datatype,
                 enum fi_op op, uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->reduce, ep, buf, count,
                      desc, result, result_desc, coll, root, datatype, op, flags, context);
  }
  ssize_t scatter(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                  void *result_desc, fi_addr_t coll, fi_addr_t root, enum fi_datatype datatype,
                  uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->scatter, ep, buf, count,
                      desc, result, result_desc, coll, root, datatype, flags, context);
  }
  ssize_t gather(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                 void *result_desc, fi_addr_t coll, fi_addr_t root, enum fi_datatype datatype,
                 uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->gather, ep, buf, count,
                      desc, result, result_desc, coll, root, datatype, flags, context);
  }

  // ---- completion queues ----

  ssize_t cq_read(Link link, fid_cq *cq, void *buf, size_t count) {
    const ssize_t rc = link.next.cq->read(cq, buf, count);
    queue_of(link).count(rc, buf);
    return rc;
  }
  ssize_t cq_readfrom(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src) {
    const ssize_t rc = link.next.cq->readfrom(cq, buf, count, src);
    queue_of(link).count(rc, buf);
    return rc;
  }
  ssize_t cq_sread(Link link, fid_cq *cq, void *buf, size_t count, const void *cond, int timeout) {
    const ssize_t rc = link.next.cq->sread(cq, buf, count, cond, timeout);
    queue_of(link).count(rc, buf);
    return rc;
  }
  ssize_t cq_sreadfrom(Link link, fid_cq *cq, void *buf, size_t count, fi_addr_t *src,
                       const void *cond, int timeout) {
    const ssize_t rc = link.next.cq->sreadfrom(cq, buf, count, src, cond, timeout);
    queue_of(link).count(rc, buf);
    return rc;
  }
  ssize_t cq_readerr(Link link, fid_cq *cq, fi_cq_err_entry *entry, uint64_t flags) {
    const ssize_t rc = link.next.cq->readerr(cq, entry, flags);
    if (rc > 0) queue_of(link).count_error(rc, entry->op_context);
    return rc;
  }

  // ---- what has to be known of the objects ----

  int cq_open(Link link, fid_domain *domain, fi_cq_attr *attr, fid_cq **cq, void *context) {
    const int rc = link.next.domain->cq_open(domain, attr, cq, context);
    if (rc == 0 && attr != nullptr) {
      if (auto *state = state_at<QueueState>(link, &(*cq)->fid))
        state->queue->set_format(attr->format);
    }
    return rc;
  }
  int bind(Link link, struct fid *fid, struct fid *other, uint64_t flags) {
    const int rc = link.next.fid->bind(fid, other, flags);
    if (rc == 0) {
      if (auto *endpoint = dynamic_cast<EndpointState *>(&object_state<Profile>(link)))
        endpoint->bound(link, other, flags);
    }
    return rc;
  }
  int control(Link link, struct fid *fid, int command, void *arg) {
    const int rc = link.next.fid->control(fid, command, arg);
    if (rc != 0 || (command != FI_ENABLE && command != FI_ALIAS)) return rc;
    auto *endpoint = dynamic_cast<EndpointState *>(&object_state<Profile>(link));
    if (endpoint == nullptr) return rc;
    if (command == FI_ENABLE) {
      endpoint->learn_name();
    } else if (auto *alias =
                   state_at<EndpointState>(link, *static_cast<struct fi_alias *>(arg)->fid)) {
      alias->stands_for(*endpoint);
    }
    return rc;
  }
  int av_remove(Link link, fid_av *av, fi_addr_t *addresses, size_t count, uint64_t flags) {
    const int rc = link.next.av->remove(av, addresses, count, flags);
    auto &state = static_cast<AvState &>(object_state<Profile>(link));
    // The numbers may be given to others, who may be elsewhere.
    for (size_t i = 0; i < count && addresses != nullptr; ++i) state.peers->forget(addresses[i]);
    return rc;
  }
  int ops_open(Link link, struct fid *fid, const char *name, uint64_t flags, void **ops,
               void *context);

  // ---- for the states ----

  template <class T>
  static T *state_at(Link mine, const struct fid *fid) {
    const weft_fid_header *header = header_of(fid);
    if (header->magic != WEFT_FID_MAGIC) return nullptr;
    weft_hook_link **links = __atomic_load_n(&header->links_core, __ATOMIC_ACQUIRE);
    if (links == nullptr) return nullptr;
    const weft_hook_link *link = __atomic_load_n(&links[mine.slot], __ATOMIC_ACQUIRE);
    if (link == nullptr) return nullptr;
    return dynamic_cast<T *>(static_cast<State *>(link->object_state));
  }
  void enter(EndpointState *endpoint) {
    std::lock_guard lock(mutex_);
    endpoints_[endpoint];
  }
  void leave(EndpointState *endpoint) {
    std::lock_guard lock(mutex_);
    const auto domain = domains_.find(endpoint->domain());
    if (domain != domains_.end()) add(domain->second->closed, endpoint->counting);
    endpoints_.erase(endpoint);
  }
  void enter(DomainState *domain) {
    std::lock_guard lock(mutex_);
    domains_[domain->fid] = domain;
  }
  void leave(DomainState *domain) {
    std::lock_guard lock(mutex_);
    domains_.erase(domain->fid);
  }
  void set_name(EndpointState *endpoint, std::string name) {
    std::lock_guard lock(mutex_);
    endpoints_[endpoint] = std::move(name);
  }
  std::vector<std::string> names() {
    std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto &[endpoint, name] : endpoints_) {
      if (!name.empty()) names.push_back(name);
    }
    return names;
  }
  // What was counted on an endpoint, or on all of a domain.
  OperationSums sums(const struct fid *fid) {
    std::lock_guard lock(mutex_);
    OperationSums sums{};
    const auto domain = domains_.find(fid);
    if (domain != domains_.end()) sums = domain->second->closed;
    for (const auto &[endpoint, name] : endpoints_) {
      if (endpoint->is(fid) || endpoint->domain() == fid) add(sums, endpoint->counting);
    }
    return sums;
  }

 private:
  static Endpoint &endpoint_of(Link link) {
    return static_cast<EndpointState &>(object_state<Profile>(link)).counting;
  }
  static Queue &queue_of(Link link) {
    return *static_cast<QueueState &>(object_state<Profile>(link)).queue;
  }

  template <class Bytes, class Function, class... Args>
  static ssize_t post(Link link, Operation operation, fi_addr_t peer, void *context, Bytes bytes,
                      Function next, Args... args) {
    return endpoint_of(link).count(
        operation, peer, context, [&] { return next(args...); },
        [&] {
          if constexpr (std::is_invocable_v<Bytes>) {
            return static_cast<uint64_t>(bytes());
          } else {
            return static_cast<uint64_t>(bytes);
          }
        });
  }
  template <class Function, class Message, class... Args>
  static ssize_t post_msg(Link link, Operation operation, Function next, fid_ep *ep,
                          const Message *msg, Args... args) {
    if (msg == nullptr) return next(ep, msg, args...);
    return post(
        link, operation, msg->addr, msg->context,
        [&] {
          if constexpr (std::is_same_v<Message, fi_msg_atomic>) {
            return bytes_in(msg->msg_iov, msg->iov_count, size_of(msg->datatype));
          } else {
            return bytes_in(msg->msg_iov, msg->iov_count);
          }
        },
        next, ep, msg, args...);
  }
  template <class Function, class... Args>
  static ssize_t collective(Link link, size_t count, enum fi_datatype datatype, void *context,
                            Function next, Args... args) {
    return post(
        link, kCollective, FI_ADDR_UNSPEC, context, [&] { return count * size_of(datatype); }, next,
        args...);
  }

  const weft_instance *instance_;
  Shared *const shared_;
  const uint32_t sample_;
  const size_t segment_size_;
  std::mutex mutex_;
  std::map<EndpointState *, std::string> endpoints_;  // and their addresses, where known
  std::map<const struct fid *, DomainState *> domains_;
};

// ---- states ----

DomainState::DomainState(Profile &hook, const struct fid *fid) : hook(hook), fid(fid) {
  hook.enter(this);
}
DomainState::~DomainState() {
  hook.leave(this);
}

EndpointState::EndpointState(Profile &hook, fid_ep *ep, std::shared_ptr<Segment> segment,
                             const Labels &labels, uint32_t sample)
    : counting(*this, sample), hook_(hook), ep_(ep), segment_(std::move(segment)), labels_(labels) {
  domain_ = header_of(&ep->fid)->parent_core;
  while (domain_ != nullptr && domain_->fclass != FI_CLASS_DOMAIN)
    domain_ = header_of(domain_)->parent_core;
  hook_.enter(this);
}
EndpointState::~EndpointState() {
  hook_.leave(this);
  counting.retire(*segment_);
}

OperationRecord *EndpointState::operation(Operation operation, PeerClass peer) {
  Labels labels = labels_;
  std::snprintf(labels.operation, sizeof labels.operation, "%s", kOperationNames[operation]);
  std::snprintf(labels.peer, sizeof labels.peer, "%s", peer_name(peer));
  return segment_->operation(labels);
}

PeerClass EndpointState::peer(fi_addr_t dest) {
  const weft_hook_link &link = hook_link<Profile>(&ep_->fid);
  alignas(16) char address[256];
  size_t length = sizeof address;
  if (counting.way() == Endpoint::kByAddress) {
    // A scalable endpoint's address names a context as well, of which an address vector says no
    // more.
    const auto *peers = Profile::state_at<AvState>(link, &av_->fid);
    if (peers == nullptr || dest == FI_ADDR_UNSPEC || dest == FI_ADDR_NOTAVAIL) return kAny;
    const weft_hook_link &av = hook_link<Profile>(&av_->fid);
    PeerClass where = kAny;
    if (av.next.av->lookup(av_, dest, address, &length) == 0)
      where = peer_class(address, std::min(length, sizeof address), hook_.names());
    peers->peers->keep(dest, where);
    return where;
  }
  if (link.next.cm == nullptr) {
    counting.set_peer(kAny);
    return kAny;
  }
  const int rc = link.next.cm->getpeer(ep_, address, &length);
  if (rc == 0) {
    learn_name();
    const PeerClass where = peer_class(address, std::min(length, sizeof address), hook_.names());
    counting.set_peer(where);
    return where;
  }
  if (rc != -FI_ENOTCONN) counting.set_peer(kAny);
  return kAny;
}

void EndpointState::bound(const weft_hook_link &link, struct fid *fid, uint64_t flags) {
  if (fid->fclass == FI_CLASS_CQ) {
    if (auto *state = Profile::state_at<QueueState>(link, fid)) {
      if ((flags & FI_TRANSMIT) != 0) counting.set_queue(false, state->queue);
      if ((flags & FI_RECV) != 0) counting.set_queue(true, state->queue);
    }
  } else if (fid->fclass == FI_CLASS_AV) {
    if (auto *state = Profile::state_at<AvState>(link, fid)) {
      av_ = reinterpret_cast<fid_av *>(fid);
      counting.set_peers(state->peers);
    }
  }
}

void EndpointState::learn_name() {
  const weft_hook_link &link = hook_link<Profile>(&ep_->fid);
  if (link.next.cm == nullptr) return;
  char name[256];
  size_t length = sizeof name;
  if (link.next.cm->getname(&ep_->fid, name, &length) == 0 && length <= sizeof name)
    hook_.set_name(this, std::string(name, length));
}

// ---- fi_profile(3) ----

// The variables: four for each operation. Bit 31 marks those that are not OFI's.
constexpr uint32_t kFirstVariable = 1u << 31;
struct Metric {
  const char *name, *help;
  uint64_t Endpoint::Sums::*member;
};
constexpr Metric kMetrics[] = {
    {"calls", "operations that were accepted", &Endpoint::Sums::calls},
    {"again", "calls that returned -FI_EAGAIN", &Endpoint::Sums::again},
    {"errors", "calls that failed otherwise", &Endpoint::Sums::errors},
    {"bytes", "sum of the sizes of what was accepted", &Endpoint::Sums::bytes},
};
constexpr size_t kVariables = kOperations * std::size(kMetrics);

const std::array<std::string, kVariables> &variable_names() {
  static const auto names = [] {
    std::array<std::string, kVariables> made;
    for (size_t i = 0; i < kVariables; ++i) {
      made[i] = std::string(kOperationNames[i / std::size(kMetrics)]) + "_" +
                kMetrics[i % std::size(kMetrics)].name;
    }
    return made;
  }();
  return names;
}

class ProfileFid final : public Object<ProfileFid, fid_profile> {
 public:
  ProfileFid(const weft_instance *instance, Profile &hook, const struct fid *of, void *context)
      : Object(instance, FI_CLASS_PROFILE, context), hook_(hook), of_(of) {
    static constexpr fi_profile_ops kOps{.size = sizeof kOps,
                                         .reset = &reset,
                                         .query_vars = &query_vars,
                                         .query_events = &query_events,
                                         .read_var = &read_var,
                                         .reg_callback = &reg_callback,
                                         .start_reads = &start_reads,
                                         .end_reads = &end_reads};
    base()->ops = c_table(fid_ops<ProfileFid>());
    c()->ops = c_table(&kOps);
  }
  int close() {
    delete this;
    return 0;
  }

 private:
  using Values = std::array<uint64_t, kVariables>;
  Values now() {
    const OperationSums sums = hook_.sums(of_);
    Values values;
    for (size_t i = 0; i < kVariables; ++i)
      values[i] = sums[i / std::size(kMetrics)].*kMetrics[i % std::size(kMetrics)].member;
    return values;
  }
  static void reset(fid_profile *fid, uint64_t) {
    ProfileFid &self = *from(fid);
    std::lock_guard lock(self.mutex_);
    self.start_ = self.now();
    if (self.moment_ != nullptr) *self.moment_ = self.start_;
  }
  static ssize_t query_vars(fid_profile *, fi_profile_desc *list, size_t *count) {
    if (count == nullptr) return -FI_EINVAL;
    const size_t room = std::exchange(*count, kVariables);
    if (list == nullptr) return 0;
    const size_t listed = std::min(room, kVariables);
    for (size_t i = 0; i < listed; ++i) {
      list[i] = {.id = kFirstVariable + static_cast<uint32_t>(i),
                 .datatype_sel = fi_primitive_type,
                 .datatype = {.primitive = FI_UINT64},
                 .size = sizeof(uint64_t),
                 .name = variable_names()[i].c_str(),
                 .desc = kMetrics[i % std::size(kMetrics)].help};
    }
    return static_cast<ssize_t>(listed);
  }
  static ssize_t query_events(fid_profile *, fi_profile_desc *, size_t *count) {
    if (count == nullptr) return -FI_EINVAL;
    *count = 0;  // who wants to see each operation traces
    return 0;
  }
  static ssize_t read_var(fid_profile *fid, uint32_t id, void *data, size_t *size) {
    if (data == nullptr || size == nullptr) return -FI_EINVAL;
    if (id < kFirstVariable || id - kFirstVariable >= kVariables) return -FI_EINVAL;
    if (std::exchange(*size, sizeof(uint64_t)) < sizeof(uint64_t)) return -FI_ETOOSMALL;
    ProfileFid &self = *from(fid);
    std::lock_guard lock(self.mutex_);
    const Values values = self.moment_ != nullptr ? *self.moment_ : self.now();
    const uint64_t value = values[id - kFirstVariable] - self.start_[id - kFirstVariable];
    std::memcpy(data, &value, sizeof value);
    return 0;
  }
  static int reg_callback(fid_profile *, uint32_t,
                          int (*)(fid_profile *, fi_profile_desc *, void *, size_t, void *),
                          void *) {
    return -FI_EINVAL;  // there is no such event
  }
  static void start_reads(fid_profile *fid, uint64_t) {
    ProfileFid &self = *from(fid);
    std::lock_guard lock(self.mutex_);
    self.moment_.reset(new (std::nothrow) Values(self.now()));
  }
  static void end_reads(fid_profile *fid, uint64_t) {
    ProfileFid &self = *from(fid);
    std::lock_guard lock(self.mutex_);
    self.moment_ = nullptr;
  }

  Profile &hook_;
  const struct fid *const of_;
  std::mutex mutex_;
  Values start_{};
  std::unique_ptr<Values> moment_;  // while reads belong together
};

int Profile::ops_open(Link link, struct fid *fid, const char *name, uint64_t flags, void **ops,
                      void *context) {
  State *state = &object_state<Profile>(link);
  const bool has_profile = dynamic_cast<EndpointState *>(state) != nullptr ||
                           dynamic_cast<DomainState *>(state) != nullptr;
  if (!has_profile || name == nullptr || std::strcmp(name, "fi_profile_ops") != 0)
    return link.next.fid->ops_open(fid, name, flags, ops, context);
  if (flags != 0) return -FI_EBADFLAGS;
  if (ops == nullptr) return -FI_EINVAL;
  *ops = (new ProfileFid(instance_, *this, fid, context))->c();
  return 0;
}

constexpr PluginInfo kPlugin{
    .name = "hook-profile",
    .vendor = "weft",
    .version = WEFT_VERSION,
    .license = "BSD-2-Clause",
    .init = [](const weft_offer &) -> Result<void *> { return new Shared; },
    .fini = [](void *state) { delete static_cast<Shared *>(state); }};

}  // namespace
}  // namespace weft::profile

WEFT_PLUGIN(weft::profile::kPlugin, weft::profile::Profile)
