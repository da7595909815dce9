// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/shared_receive.h"

#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "plugins/verbs/domain.h"

namespace weft::verbs {

SharedReceive::SharedReceive(Domain &domain, ibv_srq *srq, size_t size, uint64_t op_flags,
                             void *context)
    : Object(domain.instance(), FI_CLASS_SRX_CTX, context),
      domain_(domain),
      is_xrc_(srq == nullptr),
      needs_piece_(domain.device().facts.transport == Transport::kIwarp),
      srq_(srq),
      op_flags_(op_flags),
      lock_(domain.locked()),
      ops_(size) {
  sdk::fill_tables(*this);
}

Result<SharedReceive *> SharedReceive::open(Domain &domain, const fi_rx_attr *attr, void *context) {
  const DeviceFacts &facts = domain.device().facts;
  const Sizes &sizes = domain.settings().sizes;
  const size_t size = attr != nullptr && attr->size != 0
                          ? attr->size
                          : std::min(sizes.rx, facts.max_shared_entries);
  if (facts.max_shared_queues == 0)
    return fail(FI_EOPNOTSUPP, "fi_srx_context: %s has no shared receive queues",
                facts.name.c_str());
  if (size > facts.max_shared_entries)
    return fail(FI_EINVAL, "fi_srx_context: rx_attr.size %zu: %s takes at most %zu", size,
                facts.name.c_str(), facts.max_shared_entries);
  if (attr != nullptr && attr->caps & ~message_caps(facts))
    return fail(FI_EINVAL,
                "fi_srx_context: rx_attr.caps %#llx asks for more than this provider has",
                (unsigned long long)attr->caps);
  if (attr != nullptr && attr->op_flags & FI_PEER)
    return fail(FI_EINVAL,
                "fi_srx_context: FI_PEER: a device takes no receives of other providers");
  ibv_srq_init_attr init{};
  init.attr.max_wr = uint32_t(size);
  init.attr.max_sge = uint32_t(std::min({sizes.rx_iov, facts.max_shared_sges, sdk::kIovLimit}));
  ibv_srq *const srq = domain.xrc() == nullptr ? ibv_create_srq(domain.pd(), &init) : nullptr;
  if (srq == nullptr && domain.xrc() == nullptr)
    return fail(errno, "fi_srx_context: ibv_create_srq of %zu entries on %s: %s", size,
                facts.name.c_str(), strerror(errno));
  auto *const shared = new (std::nothrow)
      SharedReceive(domain, srq, size, attr != nullptr ? attr->op_flags : 0, context);
  if (shared == nullptr) {
    if (srq != nullptr) ibv_destroy_srq(srq);
    return fail(FI_ENOMEM, "no memory for a shared receive context");
  }
  if (auto published = shared->publish(domain.base()); !published) {
    if (srq != nullptr) ibv_destroy_srq(srq);
    delete shared;
    return tl::unexpected(published.error());
  }
  domain.shared().children.fetch_add(1);
  return shared;
}

[[gnu::always_inline]] inline ssize_t SharedReceive::start(const sdk::RecvRequest &r) {
  if (r.flags & ~uint64_t(FI_COMPLETION | FI_MORE)) return -FI_EBADFLAGS;
  if (r.count > sdk::kIovLimit || (r.count != 0 && r.iov == nullptr)) return -FI_EINVAL;
  RecvOp *const op = ops_.take();
  if (op == nullptr) return -FI_EAGAIN;
  op->shared = this;
  op->context = r.context;
  op->flags = r.flags;
  ssize_t rc = fill_pieces(r.iov, r.desc, r.count, op->pieces, op->count);
  if (rc == 0) rc = srq_ != nullptr ? post(*op) : post_early(*op);
  if (rc != 0) ops_.give(op);
  return rc;
}

// The queue is not there yet.
ssize_t SharedReceive::post_early(RecvOp &op) {
  op.next = nullptr;
  (last_early_ != nullptr ? last_early_->next : early_) = &op;
  last_early_ = &op;
  return 0;
}

ssize_t SharedReceive::post(RecvOp &op) {
  ibv_recv_wr wr = receive_work(op, needs_piece_);
  ibv_recv_wr *bad;
  const int error = ibv_post_srq_recv(srq_, &wr, &bad);
  return error == 0 ? 0 : post_error(error);
}

SharedReceive *SharedReceive::find(struct fid *fid, Domain &domain) {
  if (!is_mine(fid, FI_CLASS_SRX_CTX, domain.instance())) return nullptr;
  SharedReceive *const shared = from(fid);
  return &shared->domain_ == &domain ? shared : nullptr;
}

ssize_t SharedReceive::rx_size_left() {
  sdk::Guard guard(lock_);
  return ssize_t(ops_.limit() - ops_.in_use());
}

int SharedReceive::close() {
  if (users.load() != 0) return -FI_EBUSY;
  if (srq_ != nullptr) {
    if (const int error = ibv_destroy_srq(srq_); error != 0) return -error;
  }
  retire();
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

int SharedReceive::control(int command, void *) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

}  // namespace weft::verbs
