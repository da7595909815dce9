// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/shared_receive.h>

#include <algorithm>

#include "exported.h"
#include "imported_receives.h"
#include "lent_receives.h"
#include "peer.h"

namespace weft::sdk {

SharedReceiveContext::SharedReceiveContext(DomainContext &domain, uint64_t caps, uint64_t op_flags,
                                           size_t size, void *context)
    : Object(domain.instance, FI_CLASS_SRX_CTX, context),
      domain_(domain),
      caps_(caps),
      rx_flags_(op_flags),
      receiver_({.size = size, .descriptors = domain.keeps_descriptors}) {
  fill_tables(*this);
}

SharedReceiveContext::~SharedReceiveContext() = default;

Result<SharedReceiveContext *> SharedReceiveContext::open(DomainContext &domain,
                                                          const fi_rx_attr *attr,
                                                          const SharedReceiveOffer &offer,
                                                          void *context) {
  const size_t size = attr != nullptr && attr->size != 0 ? attr->size : offer.size;
  if (size > offer.max_size)
    return fail(FI_EINVAL, "fi_srx_context: rx_attr.size %zu: at most %zu", size, offer.max_size);
  const uint64_t caps = attr != nullptr && attr->caps != 0 ? attr->caps : offer.caps;
  // Of regions, and of buffers: those of fi_getinfo's rx_attr have them.
  const uint64_t known =
      offer.caps | FI_RMA_PMEM | (domain.devices != nullptr ? uint64_t(FI_HMEM) : 0);
  if ((caps & ~known) != 0)
    return fail(FI_EINVAL,
                "fi_srx_context: rx_attr.caps %#llx: of these this provider does not have %#llx",
                (unsigned long long)caps, (unsigned long long)(caps & ~known));
  uint64_t op_flags = attr != nullptr ? attr->op_flags : 0;
  fid_peer_srx *owner = nullptr;
  if (op_flags & FI_PEER) {
    WEFT_TRY(owner, peer_srx(context));
    context = owner;
    op_flags &= ~uint64_t(FI_PEER);
  }
  if ((op_flags & ~kRecvFlags) != 0)
    return fail(FI_EBADFLAGS, "fi_srx_context: rx_attr.op_flags %#llx are not those of receives",
                (unsigned long long)op_flags);
  auto made = std::unique_ptr<SharedReceiveContext, void (*)(SharedReceiveContext *)>(
      new SharedReceiveContext(domain, caps, op_flags, size, context),
      [](SharedReceiveContext *srx) { delete srx; });
  made->receiver_.min_multi_recv() = offer.min_multi_recv;
  Guard guard(domain.engine->lock());
  domain.shared_receives.reserve(domain.shared_receives.size() + 1);
  if (owner != nullptr) {
    made->import_ = std::make_unique<ImportedReceives>(*domain.engine, owner, made->receiver_);
    made->receiver_.import(made->import_.get());
  }
  if (auto published = made->publish(domain.fid); !published) {
    made->import_.reset();  // with the lock
    return tl::unexpected(published.error());
  }
  domain.shared_receives.push_back(made.get());
  domain.children.fetch_add(1);
  return made.release();
}

SharedReceiveContext *SharedReceiveContext::find(DomainContext &domain, const struct fid *fid) {
  for (SharedReceiveContext *srx : domain.shared_receives)
    if (srx->base() == fid) return srx;
  return nullptr;
}

ssize_t SharedReceiveContext::start(const RecvRequest &request) {
  if (import_ != nullptr) return -FI_ENOSYS;
  if (lent_ != nullptr && request.flags & FI_MULTI_RECV && !receiver_.can_tell())
    return -FI_EOPNOTSUPP;
  const ssize_t rc = receiver_.post(request);
  if (lent_ != nullptr && lent_->has_calls()) {  // nothing of this call is left to do with the lock
    lock().unlock();
    lent_->make();
    lock().lock();
  }
  if (rc == 0) receiver_.tell_users();
  return rc;
}

PeerCalls &SharedReceiveContext::peer_calls() {
  const Guard guard(lock());
  if (lent_ == nullptr) lent_ = std::make_unique<PeerCalls>(lock());
  return *lent_;
}

ssize_t SharedReceiveContext::cancel(void *context) {
  if (import_ != nullptr) return -FI_ENOSYS;
  Guard guard(lock());
  return receiver_.cancel(context);
}

int SharedReceiveContext::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  Guard guard(lock());
  switch (name) {
    case FI_OPT_MIN_MULTI_RECV:
      return get_option(receiver_.min_multi_recv(), value, length);
    case FI_OPT_RX_SIZE:
      return get_option(receiver_.size(), value, length);
    default:
      return -FI_ENOPROTOOPT;
  }
}

int SharedReceiveContext::setopt(int level, int name, const void *value, size_t length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  Guard guard(lock());
  return set_option(receiver_.min_multi_recv(), value, length);
}

ssize_t SharedReceiveContext::rx_size_left() {
  Guard guard(lock());
  return ssize_t(receiver_.left());
}

int SharedReceiveContext::control(int command, void *arg) {
  if (command == FI_ENABLE) return 0;
  if (command == FI_EXPORT_FID) return import_ == nullptr ? export_fid(*this, arg) : -FI_ENOSYS;
  Guard guard(lock());
  return control_op_flags(command, arg, 0, nullptr, &rx_flags_);
}

int SharedReceiveContext::close() {
  {
    Guard guard(lock());
    if (users.load() != 0) return -FI_EBUSY;
    receiver_.leave();
    receiver_.import(nullptr);
    import_.reset();
    std::erase(domain_.shared_receives, this);
  }
  retire();
  domain_.children.fetch_sub(1);
  delete this;
  return 0;
}

int open_shared_receive(DomainContext &domain, const fi_rx_attr *attr,
                        const SharedReceiveOffer &offer, fid_ep **context_ep, void *context) {
  if (context_ep == nullptr) return -FI_EINVAL;
  return finish(domain.instance, FI_LOG_EP_CTRL,
                SharedReceiveContext::open(domain, attr, offer, context), context_ep);
}

}  // namespace weft::sdk
