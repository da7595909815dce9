// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/device_memory.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace weft::conformance {
namespace {

constexpr size_t kMostVectors = 16;
constexpr size_t kMany = 4096;
constexpr size_t kMostBytes = size_t(1) << 30;  // no test has a buffer as large

// A posted receive whose first vector is `room`, in place of the test's `first`.
struct Receive {
  std::vector<uint8_t> room;
  iovec first;
  void *context;
};

struct Domain;

// A copy of an object's table with other functions in it, and the one that it replaces. The table
// comes first, so that it leads to its owner.
template <class Table>
struct Replaced {
  Table table{};
  Table *was = nullptr;
  void *owner = nullptr;
  void put(Table *&at, void *state) {
    owner = state;
    if (at == nullptr) return;
    was = at;
    std::memcpy(static_cast<void *>(&table), at, std::min(sizeof table, at->size));
    at = &table;
  }
  void take(Table *&at) const {
    if (was != nullptr) at = was;
  }
};

struct Endpoint {
  Replaced<fi_ops> fid;
  Replaced<fi_ops_ep> ep;
  Replaced<fi_ops_msg> msg;
  Replaced<fi_ops_rma> rma;
  Domain *domain;
};
struct Queue {
  Replaced<fi_ops> fid;
  Replaced<fi_ops_cq> cq;
  Domain *domain;
  size_t entry_size;
  bool has_length;
};
struct Domain {
  Replaced<fi_ops> fid;
  Replaced<fi_ops_domain> ops;
  fid_domain *object;
  bool is_local;  // FI_MR_LOCAL
  size_t prefix;  // FI_MSG_PREFIX
  uint64_t next_key = 1;

  std::mutex lock;  // of what follows
  size_t open = 0;  // endpoints
  std::vector<fid_mr *> regions;
  std::map<void *, std::unique_ptr<Receive>> receives;      // by the context that the provider has
  std::vector<std::unique_ptr<std::vector<uint8_t>>> sent;  // what a device may still read

  fid_mr *register_for(const iovec &v, uint64_t access);
  void close_regions(size_t count);
};

// The state of an object is found by its table.
template <class State>
State &state_of(const fid &object) {
  return *static_cast<State *>(reinterpret_cast<const Replaced<fi_ops> *>(object.ops)->owner);
}
Endpoint &of(fid_ep *ep) {
  return state_of<Endpoint>(ep->fid);
}

// Null where it cannot be registered: then the call itself has to say what is wrong.
fid_mr *Domain::register_for(const iovec &v, uint64_t access) {
  if (!is_local || v.iov_len == 0 || v.iov_len > kMostBytes || v.iov_base == nullptr)
    return nullptr;
  const std::lock_guard<std::mutex> guard(lock);
  fid_mr *region = nullptr;
  const auto try_it = [&] {
    return fi_mr_reg(object, v.iov_base, v.iov_len, access, 0, next_key++, 0, &region, nullptr);
  };
  if (try_it() == 0) return region;
  // A device has only so many regions. Of thousands, those of the oldest operations are done with.
  if (regions.size() < kMany) return nullptr;
  close_regions(regions.size() / 2);
  return try_it() == 0 ? region : nullptr;
}

// The oldest ones. The lock is held.
void Domain::close_regions(size_t count) {
  for (size_t i = 0; i < count; ++i) fi_close(&regions[i]->fid);
  regions.erase(regions.begin(), regions.begin() + ptrdiff_t(count));
}

// The vectors of a call as the provider shall see them.
class Vectors {
 public:
  Vectors(Endpoint &endpoint, const iovec *iov, void *const *desc, size_t count, uint64_t access,
          bool is_message = true)
      : domain_(*endpoint.domain), given_iov_(iov), given_desc_(desc), count_(count) {
    if (count > kMostVectors || (iov == nullptr && count != 0)) return;
    if (count != 0 && iov[0].iov_base == nullptr && iov[0].iov_len != 0) return;  // a wrong call
    as_given_ = false;
    std::copy_n(iov, count, iov_);
    if (is_message && domain_.prefix != 0) add_prefix(access);
    for (size_t i = 0; i < count_; ++i) {
      // A prefix is not memory of the test's.
      const bool given = desc != nullptr && desc[i] != nullptr && !(i == 0 && prefixed_);
      if (given) {
        desc_[i] = desc[i];
      } else if (fid_mr *const region = domain_.register_for(iov_[i], access)) {
        regions_.push_back(region);
        desc_[i] = fi_mr_desc(region);
      }
    }
  }
  Vectors(Endpoint &endpoint, const void *buffer, size_t length, void *desc, uint64_t access,
          bool is_message = true)
      : Vectors(endpoint, std::vector<iovec>{{const_cast<void *>(buffer), length}}.data(), &desc, 1,
                access, is_message) {
    only_ = {const_cast<void *>(buffer), length};
  }

  const iovec *iov() const { return as_given_ ? given_iov_ : iov_; }
  void **desc() { return as_given_ ? const_cast<void **>(given_desc_) : desc_; }
  size_t count() const { return count_; }
  // Of a call with one buffer.
  void *buffer() const { return first().iov_base; }
  size_t length() const { return first().iov_len; }
  void *the_desc() const { return desc_[0]; }

  // Of a receive: what the provider has as its context, while it has the receive.
  void *expect(void *context) {
    if (!prefixed_) return context;
    auto receive = std::make_unique<Receive>(Receive{std::move(*room_), first_, context});
    void *const key = receive.get();
    const std::lock_guard<std::mutex> guard(domain_.lock);
    domain_.receives[key] = std::move(receive);
    return key;
  }
  // What the provider said to a receive.
  ssize_t posted(ssize_t rc, void *context) {
    const std::lock_guard<std::mutex> guard(domain_.lock);
    keep_regions(rc);
    if (rc != 0 && prefixed_) domain_.receives.erase(context);
    return rc;
  }
  // What the provider said to another operation.
  ssize_t sent(ssize_t rc) {
    const std::lock_guard<std::mutex> guard(domain_.lock);
    keep_regions(rc);
    if (rc == 0 && prefixed_) domain_.sent.push_back(std::move(room_));
    return rc;
  }

 private:
  // Until the domain closes, unless the provider did not take the operation: tests try again and
  // again, and a device has only so many regions.
  void keep_regions(ssize_t rc) {
    for (fid_mr *const region : regions_) {
      if (rc == 0) {
        domain_.regions.push_back(region);
      } else {
        fi_close(&region->fid);
      }
    }
    regions_.clear();
  }
  void add_prefix(uint64_t access) {
    if (count_ == 0) iov_[count_++] = {};
    first_ = iov_[0];
    if (first_.iov_len > kMostBytes) return;
    room_ = std::make_unique<std::vector<uint8_t>>(domain_.prefix + first_.iov_len);
    if (access & (FI_SEND | FI_WRITE) && is_readable())
      std::copy_n(static_cast<const uint8_t *>(first_.iov_base), first_.iov_len,
                  room_->begin() + ptrdiff_t(domain_.prefix));
    iov_[0] = {room_->data(), room_->size()};
    prefixed_ = true;
  }
  // Tests of limits say that a byte is longer than it is.
  bool is_readable() const { return first_.iov_base != nullptr && first_.iov_len <= 1 << 16; }

  const iovec &first() const { return as_given_ ? only_ : iov_[0]; }

  Domain &domain_;
  iovec only_ = {};
  const iovec *given_iov_;
  void *const *given_desc_;
  size_t count_;
  bool as_given_ = true, prefixed_ = false;
  iovec iov_[kMostVectors + 1] = {};
  void *desc_[kMostVectors + 1] = {};
  iovec first_ = {};
  std::unique_ptr<std::vector<uint8_t>> room_;
  std::vector<fid_mr *> regions_;  // of the buffers without a descriptor
};

// ---- messages ----

ssize_t recv(fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, void *context) {
  Vectors v(of(ep), buf, len, desc, FI_RECV);
  context = v.expect(context);
  return v.posted(of(ep).msg.was->recv(ep, v.buffer(), v.length(), v.the_desc(), from, context),
                  context);
}

ssize_t recvv(fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t from,
              void *context) {
  Vectors v(of(ep), iov, desc, count, FI_RECV);
  context = v.expect(context);
  return v.posted(of(ep).msg.was->recvv(ep, v.iov(), v.desc(), v.count(), from, context), context);
}

ssize_t recvmsg(fid_ep *ep, const fi_msg *given, uint64_t flags) {
  if (given == nullptr) return of(ep).msg.was->recvmsg(ep, given, flags);
  Vectors v(of(ep), given->msg_iov, given->desc, given->iov_count, FI_RECV);
  fi_msg message = *given;
  message.msg_iov = v.iov();
  message.desc = v.desc();
  message.iov_count = v.count();
  message.context = v.expect(given->context);
  return v.posted(of(ep).msg.was->recvmsg(ep, &message, flags), message.context);
}

ssize_t send(fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context) {
  Vectors v(of(ep), buf, len, desc, FI_SEND);
  return v.sent(of(ep).msg.was->send(ep, v.buffer(), v.length(), v.the_desc(), to, context));
}

ssize_t sendv(fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t to,
              void *context) {
  Vectors v(of(ep), iov, desc, count, FI_SEND);
  return v.sent(of(ep).msg.was->sendv(ep, v.iov(), v.desc(), v.count(), to, context));
}

ssize_t sendmsg(fid_ep *ep, const fi_msg *given, uint64_t flags) {
  if (given == nullptr) return of(ep).msg.was->sendmsg(ep, given, flags);
  Vectors v(of(ep), given->msg_iov, given->desc, given->iov_count, FI_SEND);
  fi_msg message = *given;
  message.msg_iov = v.iov();
  message.desc = v.desc();
  message.iov_count = v.count();
  return v.sent(of(ep).msg.was->sendmsg(ep, &message, flags));
}

ssize_t senddata(fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
                 void *context) {
  Vectors v(of(ep), buf, len, desc, FI_SEND);
  return v.sent(
      of(ep).msg.was->senddata(ep, v.buffer(), v.length(), v.the_desc(), data, to, context));
}

// Injected memory needs no descriptor.
ssize_t inject(fid_ep *ep, const void *buf, size_t len, fi_addr_t to) {
  if (of(ep).domain->prefix == 0) return of(ep).msg.was->inject(ep, buf, len, to);
  Vectors v(of(ep), buf, len, nullptr, FI_SEND);
  return v.sent(of(ep).msg.was->inject(ep, v.buffer(), v.length(), to));
}

ssize_t injectdata(fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to) {
  if (of(ep).domain->prefix == 0) return of(ep).msg.was->injectdata(ep, buf, len, data, to);
  Vectors v(of(ep), buf, len, nullptr, FI_SEND);
  return v.sent(of(ep).msg.was->injectdata(ep, v.buffer(), v.length(), data, to));
}

// By the context that the test gave.
ssize_t cancel(fid *object, void *context) {
  Endpoint &endpoint = state_of<Endpoint>(*object);
  {
    const std::lock_guard<std::mutex> guard(endpoint.domain->lock);
    for (const auto &[key, receive] : endpoint.domain->receives) {
      if (receive->context != context) continue;
      context = key;
      break;
    }
  }
  return endpoint.ep.was->cancel(object, context);
}

// ---- remote memory ----

ssize_t read(fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr,
             uint64_t key, void *context) {
  Vectors v(of(ep), buf, len, desc, FI_READ, false);
  return v.sent(of(ep).rma.was->read(ep, buf, len, v.the_desc(), from, addr, key, context));
}

ssize_t readv(fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t from,
              uint64_t addr, uint64_t key, void *context) {
  Vectors v(of(ep), iov, desc, count, FI_READ, false);
  return v.sent(of(ep).rma.was->readv(ep, iov, v.desc(), count, from, addr, key, context));
}

ssize_t write(fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr,
              uint64_t key, void *context) {
  Vectors v(of(ep), buf, len, desc, FI_WRITE, false);
  return v.sent(of(ep).rma.was->write(ep, buf, len, v.the_desc(), to, addr, key, context));
}

ssize_t writev(fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr,
               uint64_t key, void *context) {
  Vectors v(of(ep), iov, desc, count, FI_WRITE, false);
  return v.sent(of(ep).rma.was->writev(ep, iov, v.desc(), count, to, addr, key, context));
}

ssize_t writedata(fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
                  uint64_t addr, uint64_t key, void *context) {
  Vectors v(of(ep), buf, len, desc, FI_WRITE, false);
  return v.sent(
      of(ep).rma.was->writedata(ep, buf, len, v.the_desc(), data, to, addr, key, context));
}

ssize_t rma_message(fid_ep *ep, const fi_msg_rma *given, uint64_t flags, uint64_t access) {
  const auto call = access == FI_READ ? of(ep).rma.was->readmsg : of(ep).rma.was->writemsg;
  if (given == nullptr) return call(ep, given, flags);
  Vectors v(of(ep), given->msg_iov, given->desc, given->iov_count, access, false);
  fi_msg_rma message = *given;
  message.desc = v.desc();
  return v.sent(call(ep, &message, flags));
}
ssize_t readmsg(fid_ep *ep, const fi_msg_rma *message, uint64_t flags) {
  return rma_message(ep, message, flags, FI_READ);
}
ssize_t writemsg(fid_ep *ep, const fi_msg_rma *message, uint64_t flags) {
  return rma_message(ep, message, flags, FI_WRITE);
}

// ---- completions ----

// The receive that a completion is of, which thereby ends. Null: of none with a prefix.
std::unique_ptr<Receive> ended(Domain &domain, void *context) {
  const std::lock_guard<std::mutex> guard(domain.lock);
  const auto found = domain.receives.find(context);
  if (found == domain.receives.end()) return {};
  std::unique_ptr<Receive> receive = std::move(found->second);
  domain.receives.erase(found);
  return receive;
}

// Gives the test the bytes that are its own. All formats begin as that of tagged messages.
template <class Entry>
void finish(Domain &domain, const Receive &receive, Entry &entry, bool has_length) {
  entry.op_context = receive.context;
  const size_t room = receive.room.size() - domain.prefix;
  size_t length = room;
  if (has_length) {
    entry.len -= std::min(entry.len, domain.prefix);
    length = std::min(room, entry.len);
  }
  if (length != 0)
    std::copy_n(receive.room.begin() + ptrdiff_t(domain.prefix), length,
                static_cast<uint8_t *>(receive.first.iov_base));
}

ssize_t without_prefixes(fid_cq *cq, void *buffer, ssize_t count) {
  const Queue &queue = state_of<Queue>(cq->fid);
  for (ssize_t i = 0; i < count; ++i) {
    auto &entry = *reinterpret_cast<fi_cq_tagged_entry *>(static_cast<char *>(buffer) +
                                                          size_t(i) * queue.entry_size);
    if (const auto receive = ended(*queue.domain, entry.op_context))
      finish(*queue.domain, *receive, entry, queue.has_length);
  }
  return count;
}

ssize_t cq_read(fid_cq *cq, void *buf, size_t count) {
  return without_prefixes(cq, buf, state_of<Queue>(cq->fid).cq.was->read(cq, buf, count));
}
ssize_t cq_readfrom(fid_cq *cq, void *buf, size_t count, fi_addr_t *from) {
  return without_prefixes(cq, buf, state_of<Queue>(cq->fid).cq.was->readfrom(cq, buf, count, from));
}
ssize_t cq_sread(fid_cq *cq, void *buf, size_t count, const void *cond, int timeout) {
  return without_prefixes(cq, buf,
                          state_of<Queue>(cq->fid).cq.was->sread(cq, buf, count, cond, timeout));
}
ssize_t cq_sreadfrom(fid_cq *cq, void *buf, size_t count, fi_addr_t *from, const void *cond,
                     int timeout) {
  return without_prefixes(
      cq, buf, state_of<Queue>(cq->fid).cq.was->sreadfrom(cq, buf, count, from, cond, timeout));
}
ssize_t cq_readerr(fid_cq *cq, fi_cq_err_entry *entry, uint64_t flags) {
  const Queue &queue = state_of<Queue>(cq->fid);
  const ssize_t rc = queue.cq.was->readerr(cq, entry, flags);
  if (rc != 1) return rc;
  if (const auto receive = ended(*queue.domain, entry->op_context))
    finish(*queue.domain, *receive, *entry, true);
  return rc;
}

// ---- objects ----

int open_endpoint(fid_domain *object, fid_ep *ep);

int close_endpoint(fid *object) {
  Endpoint &endpoint = state_of<Endpoint>(*object);
  auto *const ep = container_of(object, fid_ep, fid);
  Domain &domain = *endpoint.domain;
  endpoint.ep.take(ep->ops);
  endpoint.msg.take(ep->msg);
  endpoint.rma.take(ep->rma);
  endpoint.fid.take(object->ops);
  const int rc = object->ops->close(object);
  if (rc != 0) {
    object->ops = &endpoint.fid.table;
    if (endpoint.ep.was != nullptr) ep->ops = &endpoint.ep.table;
    if (endpoint.msg.was != nullptr) ep->msg = &endpoint.msg.table;
    if (endpoint.rma.was != nullptr) ep->rma = &endpoint.rma.table;
    return rc;
  }
  delete &endpoint;
  const std::lock_guard<std::mutex> guard(domain.lock);
  --domain.open;
  return 0;
}

int control_endpoint(fid *object, int command, void *arg) {
  Endpoint &endpoint = state_of<Endpoint>(*object);
  const int rc = endpoint.fid.was->control(object, command, arg);
  if (rc != 0 || command != FI_ALIAS) return rc;
  fid *const alias = *static_cast<struct fi_alias *>(arg)->fid;
  return open_endpoint(endpoint.domain->object, container_of(alias, fid_ep, fid));
}

int open_endpoint(fid_domain *object, fid_ep *ep) {
  auto *const endpoint = new Endpoint{};
  endpoint->domain = &state_of<Domain>(object->fid);
  endpoint->fid.put(ep->fid.ops, endpoint);
  endpoint->fid.table.close = close_endpoint;
  endpoint->fid.table.control = control_endpoint;
  endpoint->ep.put(ep->ops, endpoint);
  endpoint->ep.table.cancel = cancel;
  endpoint->msg.put(ep->msg, endpoint);
  endpoint->msg.table = {
      sizeof(fi_ops_msg), recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata};
  endpoint->rma.put(ep->rma, endpoint);
  fi_ops_rma &rma = endpoint->rma.table;
  rma.read = read;
  rma.readv = readv;
  rma.readmsg = readmsg;
  rma.write = write;
  rma.writev = writev;
  rma.writemsg = writemsg;
  rma.writedata = writedata;
  const std::lock_guard<std::mutex> guard(endpoint->domain->lock);
  ++endpoint->domain->open;
  return 0;
}

int endpoint(fid_domain *domain, fi_info *info, fid_ep **ep, void *context) {
  const int rc = state_of<Domain>(domain->fid).ops.was->endpoint(domain, info, ep, context);
  return rc != 0 ? rc : open_endpoint(domain, *ep);
}

int srx_context(fid_domain *domain, fi_rx_attr *attr, fid_ep **ep, void *context) {
  const int rc = state_of<Domain>(domain->fid).ops.was->srx_ctx(domain, attr, ep, context);
  return rc != 0 ? rc : open_endpoint(domain, *ep);
}

int close_queue(fid *object) {
  Queue &queue = state_of<Queue>(*object);
  auto *const cq = container_of(object, fid_cq, fid);
  queue.cq.take(cq->ops);
  queue.fid.take(object->ops);
  const int rc = object->ops->close(object);
  if (rc == 0) {
    delete &queue;
  } else {
    object->ops = &queue.fid.table;
    cq->ops = &queue.cq.table;
  }
  return rc;
}

int cq_open(fid_domain *domain, fi_cq_attr *attr, fid_cq **cq, void *context) {
  Domain &state = state_of<Domain>(domain->fid);
  const int rc = state.ops.was->cq_open(domain, attr, cq, context);
  if (rc != 0 || state.prefix == 0) return rc;
  auto *const queue = new Queue{};
  queue->domain = &state;
  queue->has_length = attr->format != FI_CQ_FORMAT_CONTEXT && attr->format != FI_CQ_FORMAT_UNSPEC;
  queue->entry_size = attr->format == FI_CQ_FORMAT_MSG      ? sizeof(fi_cq_msg_entry)
                      : attr->format == FI_CQ_FORMAT_DATA   ? sizeof(fi_cq_data_entry)
                      : attr->format == FI_CQ_FORMAT_TAGGED ? sizeof(fi_cq_tagged_entry)
                                                            : sizeof(fi_cq_entry);
  queue->fid.put((*cq)->fid.ops, queue);
  queue->fid.table.close = close_queue;
  queue->cq.put((*cq)->ops, queue);
  fi_ops_cq &ops = queue->cq.table;
  ops.read = cq_read;
  ops.readfrom = cq_readfrom;
  ops.readerr = cq_readerr;
  ops.sread = cq_sread;
  ops.sreadfrom = cq_sreadfrom;
  return 0;
}

int close_domain(fid *object) {
  Domain &domain = state_of<Domain>(*object);
  auto *const fid = container_of(object, fid_domain, fid);
  {
    const std::lock_guard<std::mutex> guard(domain.lock);
    // An endpoint may still be using them.
    if (domain.open == 0) domain.close_regions(domain.regions.size());
  }
  domain.ops.take(fid->ops);
  domain.fid.take(object->ops);
  const int rc = object->ops->close(object);
  if (rc == 0) {
    delete &domain;
  } else {
    object->ops = &domain.fid.table;
    fid->ops = &domain.ops.table;
  }
  return rc;
}

}  // namespace

void serve_device_memory(fid_domain *object, const fi_info &info) {
  // FI_LOCAL_MR: as old versions of the API said it.
  const bool is_local = info.domain_attr->mr_mode & FI_MR_LOCAL || info.mode & FI_LOCAL_MR;
  const size_t prefix = info.mode & FI_MSG_PREFIX ? info.ep_attr->msg_prefix_size : 0;
  if (!is_local && prefix == 0) return;
  auto *const domain = new Domain{};
  domain->object = object;
  domain->is_local = is_local;
  domain->prefix = prefix;
  domain->fid.put(object->fid.ops, domain);
  domain->fid.table.close = close_domain;
  domain->ops.put(object->ops, domain);
  domain->ops.table.endpoint = endpoint;
  domain->ops.table.srx_ctx = srx_context;
  domain->ops.table.cq_open = cq_open;
}

}  // namespace weft::conformance
