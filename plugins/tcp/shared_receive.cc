// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/shared_receive.h"

#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>

#include <new>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"

namespace weft::tcp {

SharedReceiveContext::SharedReceiveContext(Domain &domain, uint64_t op_flags, size_t size,
                                           void *context)
    : Object(domain.instance(), FI_CLASS_SRX_CTX, context),
      domain_(domain),
      queue_(size),
      op_flags_(op_flags),
      min_multi_recv_(kMinMultiRecv) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<SharedReceiveContext>());
  c()->ops = const_cast<fi_ops_ep *>(sdk::ep_ops<SharedReceiveContext>());
  c()->cm = const_cast<fi_ops_cm *>(sdk::cm_ops<SharedReceiveContext>());
  c()->msg = const_cast<fi_ops_msg *>(sdk::msg_ops<SharedReceiveContext>());
  c()->rma = const_cast<fi_ops_rma *>(sdk::rma_ops<SharedReceiveContext>());
  c()->tagged = const_cast<fi_ops_tagged *>(sdk::tagged_ops<SharedReceiveContext>());
  c()->atomic = const_cast<fi_ops_atomic *>(sdk::atomic_ops<SharedReceiveContext>());
  c()->collective = const_cast<fi_ops_collective *>(sdk::collective_ops<SharedReceiveContext>());
}

Result<SharedReceiveContext *> SharedReceiveContext::open(Domain &domain, const fi_rx_attr *attr,
                                                          void *context) {
  size_t size =
      attr != nullptr && attr->size != 0 ? attr->size : domain.fabric().settings().rx_size;
  const uint64_t op_flags = attr != nullptr ? attr->op_flags : 0;
  if (op_flags & FI_PEER)
    return fail(FI_EINVAL,
                "shared receive context: FI_PEER is for unconnected endpoints (FI_EP_RDM) only");
  if (attr != nullptr &&
      attr->caps & ~(kReceiveCaps | (domain.hmem() != nullptr ? uint64_t(FI_HMEM) : 0)))
    return fail(FI_EINVAL,
                "shared receive context: rx_attr.caps %#llx asks for more than this provider has",
                (unsigned long long)attr->caps);
  if (size > kMaxQueueSize)
    return fail(FI_EINVAL, "shared receive context: rx_attr.size %zu: at most %zu", size,
                kMaxQueueSize);
  auto *srx = new (std::nothrow) SharedReceiveContext(domain, op_flags, size, context);
  if (srx == nullptr) return fail(FI_ENOMEM, "no memory for a shared receive context");
  if (auto published = srx->publish(domain.base()); !published) {
    delete srx;
    return tl::unexpected(published.error());
  }
  domain.shared().children.fetch_add(1);
  sdk::Guard guard(domain.engine().lock());
  domain.shared_receives().push_back(srx);
  return srx;
}

ssize_t SharedReceiveContext::recv(void *buf, size_t len, void *, fi_addr_t, void *context) {
  const iovec iov{buf, len};
  sdk::Guard guard(domain_.engine().lock());
  return queue_.post(&iov, 1, context, op_flags_);
}

ssize_t SharedReceiveContext::recvv(const struct iovec *iov, void **, size_t count, fi_addr_t,
                                    void *context) {
  sdk::Guard guard(domain_.engine().lock());
  return queue_.post(iov, count, context, op_flags_);
}

ssize_t SharedReceiveContext::recvmsg(const struct fi_msg *msg, uint64_t flags) {
  if (msg == nullptr) return -FI_EINVAL;
  if (flags & ~sdk::kRecvFlags) return -FI_EBADFLAGS;
  sdk::Guard guard(domain_.engine().lock());
  return queue_.post(msg->msg_iov, msg->iov_count, msg->context, flags);
}

ssize_t SharedReceiveContext::cancel(void *context) {
  sdk::Guard guard(domain_.engine().lock());
  sdk::PostedRecv *r = queue_.remove(context);
  if (r == nullptr) return -FI_ENOENT;
  // A receive reports to the completion queue of the endpoint that takes it. This one was not
  // taken, so the first bound endpoint reports it.
  for (Endpoint *endpoint : domain_.endpoints()) {
    if (endpoint->shared_receive() != this) continue;
    endpoint->cancel(*r);
    return 0;
  }
  queue_.release(r);  // no endpoint is bound
  return 0;
}

int SharedReceiveContext::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  sdk::Guard guard(domain_.engine().lock());
  return sdk::get_option(min_multi_recv_, value, length);
}

int SharedReceiveContext::setopt(int level, int name, const void *value, size_t length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  sdk::Guard guard(domain_.engine().lock());
  return sdk::set_option(min_multi_recv_, value, length);
}

ssize_t SharedReceiveContext::rx_size_left() {
  sdk::Guard guard(domain_.engine().lock());
  return ssize_t(queue_.left());
}

int SharedReceiveContext::close() {
  {
    sdk::Guard guard(domain_.engine().lock());
    if (users.load() != 0) return -FI_EBUSY;
    std::erase(domain_.shared_receives(), this);
  }
  retire();
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

int SharedReceiveContext::control(int command, void *) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

}  // namespace weft::tcp
