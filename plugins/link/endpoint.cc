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
  const bool may_be_here = listens_ && name.at[kLocal] != FI_ADDR_NOTAVAIL;
  if (may_be_here) {
    const int rc = local_ops_->reach(beneath_[kLocal], name.at[kLocal]);
    if (rc == -FI_EAGAIN) return rc;
    if (rc == 0) way = Way(kLocal, name.at[kLocal]);
  }
  if (!way.is_known()) {
    if (name.at[kNetwork] > Way::kMostName) return -name.error;
    way = Way(kNetwork, name.at[kNetwork], may_be_here && tx().cq != nullptr);
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

// ---- peers of this host that are reached by the network ----

ssize_t Endpoint::begin_watched(fi_addr_t dest, Way way, void *context, bool reports,
                                Watch::Entry *&entry) {
  const sdk::Guard guard(domain_.engine().lock());
  const uint32_t index = av()->index_of(dest);
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  if (ways_.of(index).word() != way.word()) return -FI_EAGAIN;  // it is being decided anew
  entry = domain_.watch().begin(*this, index, context, reports);
  if (entry == nullptr) return -FI_ENOMEM;
  try {
    watched_.begin(index);
  } catch (const std::bad_alloc &) {
    domain_.watch().give(*entry);
    return -FI_ENOMEM;
  }
  return 0;
}

void Endpoint::give_watched(Watch::Entry &entry, ssize_t rc) {
  const sdk::Guard guard(domain_.engine().lock());
  end_watched(entry.peer, Watch::is_gone(int(-rc)));
  domain_.watch().give(entry);
}

void Endpoint::end_watched(uint32_t peer, bool is_gone) {
  if (watched_.end(peer, is_gone)) ways_.set(peer, {});
}

ssize_t Endpoint::cancel_watched(void *context) {
  void *place = nullptr;
  {
    const sdk::Guard guard(domain_.engine().lock());
    place = domain_.watch().find(*this, context);
  }
  return place != nullptr ? fi_cancel(&beneath_[kNetwork]->fid, place) : -FI_ENOENT;
}

// ---- transfers ----

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  return launch(request, [this](fid_ep *ep, fi_addr_t name, const sdk::SendRequest &r) {
    const fi_msg_tagged msg{.msg_iov = r.iov,
                            .desc = const_cast<void **>(r.desc),
                            .iov_count = r.count,
                            .addr = name,
                            .tag = r.tag,
                            .context = r.context,
                            .data = r.data};
    const uint64_t flags = r.flags & kSendFlags;
    if (is_silent(r)) return inject_beneath(ep, msg, r.tagged, flags);
    if (r.tagged) return fi_tsendmsg(ep, &msg, flags);
    const fi_msg plain{.msg_iov = msg.msg_iov,
                       .desc = msg.desc,
                       .iov_count = msg.iov_count,
                       .addr = msg.addr,
                       .context = msg.context,
                       .data = msg.data};
    return fi_sendmsg(ep, &plain, flags);
  });
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
  return domain_.watch().any() ? cancel_watched(context) : -FI_ENOENT;
}

ssize_t Endpoint::tx_size_left() {
  ssize_t least = SSIZE_MAX;
  for (fid_ep *const ep : beneath_)
    if (ep != nullptr) least = std::min(least, ep->ops->tx_size_left(ep));
  return least;
}

}  // namespace weft::link
