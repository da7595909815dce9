// SPDX-License-Identifier: BSD-2-Clause
// What endpoints and shared receive contexts do: each call is checked, remembered until it has
// completed, and passed on without what picky alone looks at.
#include <algorithm>
#include <cstring>

#include "tests/picky/picky.h"

namespace weft::picky {
namespace {

constexpr uint64_t kAccess[] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};  // by Kind
constexpr size_t kMostVectors = 16;

fi_context2 pattern_of(uint64_t id) {
  fi_context2 pattern;
  for (size_t i = 0; i < std::size(pattern.internal); ++i)
    pattern.internal[i] = reinterpret_cast<void *>(uintptr_t(id * 0x9e3779b97f4a7c15u + i));
  return pattern;
}

void fill_prefix(uint8_t *at, size_t size, uint64_t id) {
  for (size_t i = 0; i < size; ++i) at[i] = uint8_t(id * 31 + i);
}
bool has_prefix(const uint8_t *at, size_t size, uint64_t id) {
  for (size_t i = 0; i < size; ++i)
    if (at[i] != uint8_t(id * 31 + i)) return false;
  return true;
}

// The region that the descriptor names, if it is live.
const Region *find(const Domain &domain, const void *desc) {
  const auto bits = reinterpret_cast<uintptr_t>(desc);
  if ((bits & 0xf) != 0xd) return nullptr;
  const auto it = domain.regions.find(bits >> 4);
  return it != domain.regions.end() ? it->second : nullptr;
}

bool contains(const Region &region, const iovec &v) {
  const auto at = reinterpret_cast<uintptr_t>(v.iov_base);
  return std::any_of(region.memory.begin(), region.memory.end(), [&](const iovec &m) {
    const auto base = reinterpret_cast<uintptr_t>(m.iov_base);
    return at >= base && at - base <= m.iov_len && v.iov_len <= m.iov_len - (at - base);
  });
}

// One call from its check to the provider beneath.
class Passage {
 public:
  Passage(fid_ep *ep, Kind kind, const iovec *iov, void *const *desc, size_t count, void *context,
          uint64_t flags)
      : guard_(World::all().lock), endpoint(of(ep)) {
    World &world = World::all();
    ++world.calls;
    if (count > kMostVectors || (count != 0 && iov == nullptr)) {
      rc_ = -FI_EINVAL;
      return;
    }
    auto op = std::make_unique<Op>();
    op->id = ++world.last_id;
    op->kind = kind;
    op->endpoint = &endpoint;
    op->queue = kind == Kind::kRecv ? endpoint.receives : endpoint.transmits;
    rc_ = check_memory(*op, iov, desc, count, flags);
    if (rc_ == 0 && kind <= Kind::kRecv) rc_ = take_prefix(*op, iov, count, flags);
    if (rc_ != 0) return;
    const bool selective = kind == Kind::kRecv ? endpoint.selective_receives : endpoint.selective;
    if (selective && (flags & FI_COMPLETION) == 0) return;  // its context is ignored
    rc_ = take_context(*op, context);
    if (rc_ != 0) return;
    if (count > 1) {
      op->iov = iov;
      op->iov_was.assign(iov, iov + count);
      if (desc != nullptr) {
        op->desc = desc;
        op->desc_was.assign(desc, desc + count);
      }
    }
    id_ = op->id;
    const fi_context2 pattern = pattern_of(id_);
    std::memcpy(op->context, &pattern, sizeof pattern);
    passed_ = op.get();
    endpoint.domain->numbers[passed_] = id_;
    endpoint.domain->contexts[context] = id_;
    endpoint.domain->calls[id_] = std::move(op);
  }
  // Passes the call on, if it is right.
  template <class Call>
  ssize_t pass(Call call) {
    if (rc_ != 0) return rc_;
    const ssize_t rc = call();
    if (rc != 0 && passed_ != nullptr) remove(*endpoint.domain, id_);
    return rc;
  }
  void *context() const { return passed_; }
  const iovec *iov() const { return iov_; }
  size_t count() const { return count_; }

 private:
  std::lock_guard<std::mutex> guard_;

 public:
  Endpoint &endpoint;

 private:
  int check_memory(Op &op, const iovec *iov, void *const *desc, size_t count, uint64_t flags) {
    count_ = count;
    std::copy_n(iov, count, iov_);
    const Domain &domain = *endpoint.domain;
    if (flags & FI_INJECT) {
      size_t length = 0;
      for (size_t i = 0; i < count; ++i) length += iov[i].iov_len;
      const size_t most = World::all().inject_size + endpoint.prefix;
      return length <= most ? 0
                            : violation(domain, "%zu bytes injected: at most %zu", length, most);
    }
    for (size_t i = 0; i < count; ++i) {
      if (iov[i].iov_len == 0) continue;
      const Region *region = desc != nullptr ? find(domain, desc[i]) : nullptr;
      if (region == nullptr)
        return violation(domain, "vector %zu of %zu: its descriptor names no live region", i,
                         count);
      if (!contains(*region, iov[i]))
        return violation(domain, "vector %zu of %zu lies outside of its region", i, count);
      if ((region->access & kAccess[size_t(op.kind)]) == 0)
        return violation(domain, "vector %zu of %zu: its region is not registered for this", i,
                         count);
      op.regions.push_back(region->id);
      ++World::all().described;
    }
    return 0;
  }
  int take_prefix(Op &op, const iovec *iov, size_t count, uint64_t flags) {
    const size_t size = endpoint.prefix;
    if (size == 0) return 0;
    if (count == 0 || iov[0].iov_len < size)
      return violation(*endpoint.domain, "a message without room for a prefix of %zu bytes", size);
    op.prefix = static_cast<uint8_t *>(iov[0].iov_base);
    op.prefix_size = size;
    if ((flags & FI_INJECT) == 0) fill_prefix(op.prefix, size, op.id);
    iov_[0] = {op.prefix + size, iov[0].iov_len - size};
    return 0;
  }
  int take_context(Op &op, void *context) {
    if (context == nullptr) return violation(*endpoint.domain, "a call without a fi_context2");
    op.context = static_cast<fi_context2 *>(context);
    const auto it = endpoint.domain->contexts.find(context);
    if (it == endpoint.domain->contexts.end()) return 0;
    return violation(*endpoint.domain, "a context that call %llu is using",
                     (unsigned long long)it->second);
  }

  int rc_ = 0;
  uint64_t id_ = 0;
  Op *passed_ = nullptr;
  iovec iov_[kMostVectors];
  size_t count_ = 0;
};

// ---- messages ----

ssize_t receive(fid_ep *ep, const fi_msg &msg, uint64_t flags) {
  Passage p(ep, Kind::kRecv, msg.msg_iov, msg.desc, msg.iov_count, msg.context, flags);
  return p.pass([&] {
    fi_msg below = msg;
    below.msg_iov = p.iov();
    below.iov_count = p.count();
    below.desc = nullptr;
    below.context = p.context();
    return p.endpoint.msg.below->recvmsg(ep, &below, flags);
  });
}
ssize_t transmit(fid_ep *ep, const fi_msg &msg, uint64_t flags) {
  Passage p(ep, Kind::kSend, msg.msg_iov, msg.desc, msg.iov_count, msg.context, flags);
  return p.pass([&] {
    fi_msg below = msg;
    below.msg_iov = p.iov();
    below.iov_count = p.count();
    below.desc = nullptr;
    below.context = p.context();
    return p.endpoint.msg.below->sendmsg(ep, &below, flags);
  });
}

uint64_t tx_flags(fid_ep *ep) {
  std::lock_guard guard(World::all().lock);
  return of(ep).tx_flags;
}
uint64_t rx_flags(fid_ep *ep) {
  std::lock_guard guard(World::all().lock);
  return of(ep).rx_flags;
}
size_t prefix_of(fid_ep *ep) {
  std::lock_guard guard(World::all().lock);
  return of(ep).prefix;
}

ssize_t recvmsg(fid_ep *ep, const fi_msg *msg, uint64_t flags) {
  return receive(ep, *msg, flags);
}
ssize_t recvv(fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t from,
              void *context) {
  const fi_msg msg{
      .msg_iov = iov, .desc = desc, .iov_count = count, .addr = from, .context = context};
  return receive(ep, msg, rx_flags(ep));
}
ssize_t recv(fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, void *context) {
  const iovec iov{buf, len};
  return recvv(ep, &iov, &desc, 1, from, context);
}
ssize_t sendmsg(fid_ep *ep, const fi_msg *msg, uint64_t flags) {
  return transmit(ep, *msg, flags);
}
ssize_t sendv(fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t to,
              void *context) {
  const fi_msg msg{
      .msg_iov = iov, .desc = desc, .iov_count = count, .addr = to, .context = context};
  return transmit(ep, msg, tx_flags(ep));
}
ssize_t send(fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context) {
  const iovec iov{const_cast<void *>(buf), len};
  return sendv(ep, &iov, &desc, 1, to, context);
}
ssize_t senddata(fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
                 void *context) {
  const iovec iov{const_cast<void *>(buf), len};
  const fi_msg msg{
      .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = to, .context = context, .data = data};
  return transmit(ep, msg, tx_flags(ep) | FI_REMOTE_CQ_DATA);
}
// Injected data has no descriptor, no context and no completion.
ssize_t inject(fid_ep *ep, const void *buf, size_t len, fi_addr_t to) {
  const size_t prefix = prefix_of(ep);
  std::lock_guard guard(World::all().lock);
  if (len < prefix) return violation(*of(ep).domain, "an injected message without a prefix");
  return of(ep).msg.below->inject(ep, static_cast<const char *>(buf) + prefix, len - prefix, to);
}
ssize_t injectdata(fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to) {
  const size_t prefix = prefix_of(ep);
  std::lock_guard guard(World::all().lock);
  if (len < prefix) return violation(*of(ep).domain, "an injected message without a prefix");
  return of(ep).msg.below->injectdata(ep, static_cast<const char *>(buf) + prefix, len - prefix,
                                      data, to);
}

// ---- remote access ----

ssize_t access(fid_ep *ep, bool write, const fi_msg_rma &msg, uint64_t flags) {
  Passage p(ep, write ? Kind::kWrite : Kind::kRead, msg.msg_iov, msg.desc, msg.iov_count,
            msg.context, flags);
  return p.pass([&] {
    fi_msg_rma below = msg;
    below.msg_iov = p.iov();
    below.desc = nullptr;
    below.context = p.context();
    const fi_ops_rma &ops = *p.endpoint.rma.below;
    return write ? ops.writemsg(ep, &below, flags) : ops.readmsg(ep, &below, flags);
  });
}
ssize_t access_range(fid_ep *ep, bool write, const iovec *iov, void **desc, size_t count,
                     fi_addr_t peer, uint64_t addr, uint64_t key, void *context, uint64_t data,
                     uint64_t flags) {
  fi_rma_iov rma{addr, 0, key};
  for (size_t i = 0; i < count; ++i) rma.len += iov[i].iov_len;
  const fi_msg_rma msg{.msg_iov = iov,
                       .desc = desc,
                       .iov_count = count,
                       .addr = peer,
                       .rma_iov = &rma,
                       .rma_iov_count = 1,
                       .context = context,
                       .data = data};
  return access(ep, write, msg, flags | tx_flags(ep));
}

ssize_t readmsg(fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
  return access(ep, false, *msg, flags);
}
ssize_t writemsg(fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
  return access(ep, true, *msg, flags);
}
ssize_t readv(fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t peer,
              uint64_t addr, uint64_t key, void *context) {
  return access_range(ep, false, iov, desc, count, peer, addr, key, context, 0, 0);
}
ssize_t writev(fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t peer,
               uint64_t addr, uint64_t key, void *context) {
  return access_range(ep, true, iov, desc, count, peer, addr, key, context, 0, 0);
}
ssize_t read(fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t peer, uint64_t addr,
             uint64_t key, void *context) {
  const iovec iov{buf, len};
  return access_range(ep, false, &iov, &desc, 1, peer, addr, key, context, 0, 0);
}
ssize_t write(fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t peer, uint64_t addr,
              uint64_t key, void *context) {
  const iovec iov{const_cast<void *>(buf), len};
  return access_range(ep, true, &iov, &desc, 1, peer, addr, key, context, 0, 0);
}
ssize_t writedata(fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                  fi_addr_t peer, uint64_t addr, uint64_t key, void *context) {
  const iovec iov{const_cast<void *>(buf), len};
  return access_range(ep, true, &iov, &desc, 1, peer, addr, key, context, data, FI_REMOTE_CQ_DATA);
}

// ---- the life of endpoints ----

int bind(struct fid *fid, struct fid *to, uint64_t flags) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Endpoint &endpoint = world.endpoints.at(fid);
  if (const int rc = endpoint.ops.below->bind(fid, to, flags); rc != 0) return rc;
  if (const auto queue = world.queues.find(to); queue != world.queues.end()) {
    if (flags & FI_TRANSMIT) {
      endpoint.transmits = &queue->second;
      endpoint.selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    }
    if (flags & FI_RECV) {
      endpoint.receives = &queue->second;
      endpoint.selective_receives = (flags & FI_SELECTIVE_COMPLETION) != 0;
    }
  }
  if (const auto other = world.endpoints.find(to); other != world.endpoints.end())
    endpoint.shared = &other->second;
  return 0;
}

int close(struct fid *fid) {
  World &world = World::all();
  std::lock_guard guard(world.lock);
  Endpoint &endpoint = world.endpoints.at(fid);
  auto *const ep = reinterpret_cast<fid_ep *>(fid);
  fid->ops = endpoint.ops.below;
  ep->msg = endpoint.msg.below;
  if (endpoint.rma.below != nullptr) ep->rma = endpoint.rma.below;
  if (const int rc = fi_close(fid); rc != 0) {
    endpoint.ops.put(fid->ops);
    endpoint.msg.put(ep->msg);
    if (endpoint.rma.below != nullptr) endpoint.rma.put(ep->rma);
    return rc;
  }
  for (const auto &[id, op] : endpoint.domain->calls) {
    if (op->endpoint != &endpoint) continue;
    op->endpoint = nullptr;
    give_back(*endpoint.domain, *op);
  }
  world.endpoints.erase(fid);
  return 0;
}

}  // namespace

Endpoint &of(fid_ep *ep) {
  return World::all().endpoints.at(&ep->fid);
}

void adopt(fid_ep *ep, Domain &domain) {
  Endpoint &endpoint = World::all().endpoints[&ep->fid];
  endpoint.domain = &domain;
  endpoint.fid = ep;
  endpoint.ops.take(ep->fid.ops);
  endpoint.ops.ours.close = close;
  endpoint.ops.ours.bind = bind;
  endpoint.ops.put(ep->fid.ops);
  endpoint.msg.take(ep->msg);
  endpoint.msg.ours = {.size = sizeof(fi_ops_msg),
                       .recv = recv,
                       .recvv = recvv,
                       .recvmsg = recvmsg,
                       .send = send,
                       .sendv = sendv,
                       .sendmsg = sendmsg,
                       .inject = inject,
                       .senddata = senddata,
                       .injectdata = injectdata};
  endpoint.msg.put(ep->msg);
  if (ep->rma == nullptr) return;
  endpoint.rma.take(ep->rma);
  fi_ops_rma &rma = endpoint.rma.ours;
  rma.read = read;
  rma.readv = readv;
  rma.readmsg = readmsg;
  rma.write = write;
  rma.writev = writev;
  rma.writemsg = writemsg;
  rma.writedata = writedata;
  endpoint.rma.put(ep->rma);
}

void give_back(Domain &domain, const Op &op) {
  const auto it = domain.contexts.find(op.context);
  if (it != domain.contexts.end() && it->second == op.id) domain.contexts.erase(it);
}

std::unique_ptr<Op> remove(Domain &domain, uint64_t id) {
  std::unique_ptr<Op> op = std::move(domain.calls.at(id));
  domain.calls.erase(id);
  domain.numbers.erase(op.get());
  give_back(domain, *op);
  return op;
}

const char *check_end(const Domain &domain, const Op &op) {
  const fi_context2 pattern = pattern_of(op.id);
  if (std::memcmp(op.context, &pattern, sizeof pattern) != 0)
    return "a context was written to before its call completed";
  for (size_t i = 0; i < op.iov_was.size(); ++i)
    if (op.iov[i].iov_base != op.iov_was[i].iov_base || op.iov[i].iov_len != op.iov_was[i].iov_len)
      return "an array of vectors was changed before its call completed";
  for (size_t i = 0; i < op.desc_was.size(); ++i)
    if (op.desc[i] != op.desc_was[i])
      return "an array of descriptors was changed before its call completed";
  for (const uint64_t id : op.regions)
    if (!domain.regions.contains(id)) return "a region is gone before its call completed";
  if (op.prefix != nullptr && !has_prefix(op.prefix, op.prefix_size, op.id))
    return "a prefix was written to before its call completed";
  return nullptr;
}

bool may_take(const Op &op, const Queue &queue) {
  if (op.kind != Kind::kRecv || op.endpoint == nullptr || op.used_by_data) return false;
  if (op.queue == &queue) return true;
  for (const auto &[fid, endpoint] : World::all().endpoints)
    if (endpoint.shared == op.endpoint && endpoint.receives == &queue) return true;
  return false;
}

}  // namespace weft::picky
