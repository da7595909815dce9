// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/endpoint.h"

#include <rdma/fi_tagged.h>

#include <algorithm>
#include <climits>
#include <new>

namespace weft::link {
namespace {

ssize_t inject_beneath(fid_ep *ep, const fi_msg_tagged &msg, bool tagged, uint64_t flags) {
  const auto [bytes, n] = *msg.msg_iov;
  if (flags & FI_REMOTE_CQ_DATA)
    return tagged ? fi_tinjectdata(ep, bytes, n, msg.data, msg.addr, msg.tag)
                  : fi_injectdata(ep, bytes, n, msg.data, msg.addr);
  return tagged ? fi_tinject(ep, bytes, n, msg.addr, msg.tag) : fi_inject(ep, bytes, n, msg.addr);
}

}  // namespace

// ---- which way ----

// 0, and `way` is the peer's; or -FI_E...
ssize_t Endpoint::decide(fi_addr_t dest, Way &way) {
  const uint64_t now = losses();
  uint32_t index;
  {
    const sdk::Guard guard(domain_.engine().lock());
    if (now != seen_losses_.load(std::memory_order_relaxed)) ways_.forget_local();
    seen_losses_.store(now, std::memory_order_relaxed);
    index = av()->index_of(dest);
  }
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  const Names::Name name = names_->of(index);
  way = {};
  if (listens_ && name.at[kLocal] != FI_ADDR_NOTAVAIL) {
    const int rc = local_ops_->reach(beneath_[kLocal], name.at[kLocal]);
    if (rc == -FI_EAGAIN) return rc;
    if (rc == 0) way = Way(kLocal, name.at[kLocal]);
  }
  if (!way.is_known()) {
    if (name.at[kNetwork] > Way::kMostName) return -FI_EINVAL;
    way = Way(kNetwork, name.at[kNetwork]);
  }
  const sdk::Guard guard(domain_.engine().lock());
  if (losses() != now) return -FI_EAGAIN;
  // Another thread may have decided meanwhile, and sent something.
  if (const Way there = ways_.of(index); there.is_known()) {
    way = there;
    return 0;
  }
  try {
    ways_.set(index, way);
  } catch (const std::bad_alloc &) {
    return -FI_ENOMEM;
  }
  (way.branch() == kLocal ? counts_.peers_local : counts_.peers_network).add();
  return 0;
}

// ---- transfers ----

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  Way way;
  if (const ssize_t rc = find_way(request.dest, way); rc != 0) return rc;
  fid_ep *const ep = beneath_[way.branch()];
  const fi_msg_tagged msg{.msg_iov = request.iov,
                          .desc = const_cast<void **>(request.desc),
                          .iov_count = request.count,
                          .addr = way.name(),
                          .tag = request.tag,
                          .context = request.context,
                          .data = request.data};
  const uint64_t flags = request.flags & kSendFlags;
  if (is_silent(request)) return counted(way, inject_beneath(ep, msg, request.tagged, flags));
  if (request.tagged) return counted(way, fi_tsendmsg(ep, &msg, flags));
  const fi_msg plain{.msg_iov = msg.msg_iov,
                     .desc = msg.desc,
                     .iov_count = msg.iov_count,
                     .addr = msg.addr,
                     .context = msg.context,
                     .data = msg.data};
  return counted(way, fi_sendmsg(ep, &plain, flags));
}

// The context's call lets go of the lock to tell the providers beneath of what they are to bring.
ssize_t Endpoint::start(const sdk::RecvRequest &request) {
  if (own_receives_ == nullptr)
    if (const ssize_t rc = open_receives_early(); rc != 0) return rc;
  const sdk::Guard guard(domain_.engine().lock());
  return own_receives_->start(request);
}

// ---- fi_ops_ep ----

ssize_t Endpoint::cancel(void *context) {
  if (own_receives_ != nullptr)
    if (const ssize_t rc = own_receives_->cancel(context); rc != -FI_ENOENT) return rc;
  if (context == nullptr) return -FI_ENOENT;
  for (fid_ep *const ep : beneath_)
    if (ep != nullptr && fi_cancel(&ep->fid, context) == 0) return 0;
  return -FI_ENOENT;
}

ssize_t Endpoint::tx_size_left() {
  ssize_t least = SSIZE_MAX;
  for (fid_ep *const ep : beneath_)
    if (ep != nullptr) least = std::min(least, ep->ops->tx_size_left(ep));
  return least;
}

}  // namespace weft::link
