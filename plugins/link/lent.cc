// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/lent.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include <new>
#include <string>
#include <utility>

#include "plugins/link/domain.h"

namespace weft::link {
namespace {

template <class Fid>
void close_all(Fid *const (&objects)[kBranches]) {
  for (Fid *const object : objects)
    if (object != nullptr) fi_close(reinterpret_cast<struct fid *>(object));
}

}  // namespace

// ---- completion queues ----

fi_ops_cq_owner LentQueue::kOps = {
    .size = sizeof(fi_ops_cq_owner), .write = &LentQueue::write, .writeerr = &LentQueue::writeerr};

LentQueue::LentQueue(Domain &domain, sdk::Cq &queue) : domain_(domain), queue_(queue) {
  for (size_t i = 0; i < kBranches; ++i) {
    owners_[i].peer.fid.fclass = FI_CLASS_PEER_CQ;
    owners_[i].peer.owner_ops = &kOps;
    owners_[i].queue = this;
    owners_[i].branch = i;
  }
}

// The queue beneath keeps one entry at most that the application's has no room for, and its
// provider reads no more messages then.
Result<std::shared_ptr<LentQueue>> LentQueue::open(Domain &domain, sdk::Cq &queue) {
  auto made = std::make_shared<LentQueue>(domain, queue);
  for (size_t i = 0; i < domain.branches(); ++i) {
    fi_cq_attr attr{.size = 1, .flags = FI_PEER, .format = FI_CQ_FORMAT_TAGGED};
    fi_peer_cq_context context{.size = sizeof context, .cq = &made->owners_[i].peer};
    const int rc = fi_cq_open(domain.branch(i).domain(), &attr, &made->beneath_[i], &context);
    if (rc != 0)
      return fail(-rc, "link: a provider beneath takes no completion queue of an owner (FI_PEER)");
  }
  return made;
}

LentQueue::~LentQueue() {
  close_all(beneath_);
}

void LentQueue::tell_again() {
  for (fid_cq *const cq : beneath_)
    if (cq != nullptr) fi_cq_read(cq, nullptr, 0);
}

bool LentQueue::is_watched(size_t branch) const {
  return branch == kNetwork && domain_.watch().any();
}

template <class Push>
ssize_t LentQueue::report(size_t branch, Push push) {
  const sdk::Guard guard(queue_.engine().lock());
  if (queue_.holds_back()) {
    domain_.note_held_back();
    return -FI_EAGAIN;
  }
  domain_.branch(branch).note_event();
  push();
  return 0;
}

ssize_t LentQueue::write(fid_peer_cq *peer, void *context, uint64_t flags, size_t len, void *buf,
                         uint64_t data, uint64_t tag, fi_addr_t source) {
  Owner &owner = of(peer);
  LentQueue &queue = *owner.queue;
  return queue.report(owner.branch, [&] {
    const bool is_watched = queue.is_watched(owner.branch);
    if (is_watched && !queue.domain_.watch().end(context, 0)) return;
    queue.queue_.push({context, flags, len, buf, data, tag, source});
  });
}

ssize_t LentQueue::writeerr(fid_peer_cq *peer, const fi_cq_err_entry *entry) {
  if (entry == nullptr) return -FI_EINVAL;
  Owner &owner = of(peer);
  try {
    const auto *const data = static_cast<const char *>(entry->err_data);
    sdk::CompletionError error{
        .context = entry->op_context,
        .flags = entry->flags,
        .len = entry->len,
        .buf = entry->buf,
        .data = entry->data,
        .tag = entry->tag,
        .olen = entry->olen,
        .err = entry->err,
        .prov_errno = entry->prov_errno,
        .err_data = data != nullptr ? std::string(data, entry->err_data_size) : std::string(),
        .src_addr = entry->src_addr};
    return owner.queue->report(owner.branch, [&] {
      if (owner.queue->is_watched(owner.branch) &&
          !owner.queue->domain_.watch().end(error.context, error.err))
        return;
      owner.queue->queue_.push_error(std::move(error));
    });
  } catch (const std::bad_alloc &) {
    return -FI_ENOMEM;
  }
}

// ---- counters ----

Result<std::shared_ptr<LentCounter>> LentCounter::open(Domain &domain, sdk::Cntr &counter) {
  auto made = std::make_shared<LentCounter>();
  for (size_t i = 0; i < domain.branches(); ++i) {
    int rc = fi_export_fid(counter.base(), 0, &made->lent_[i], nullptr);
    if (rc != 0) return fail(-rc, "link: a counter of bytes counts nothing here");
    fi_cntr_attr attr{.events = FI_CNTR_EVENTS_COMP, .flags = FI_PEER};
    fi_peer_cntr_context context{.size = sizeof context,
                                 .cntr = reinterpret_cast<fid_peer_cntr *>(made->lent_[i])};
    rc = fi_cntr_open(domain.branch(i).domain(), &attr, &made->beneath_[i], &context);
    if (rc != 0)
      return fail(-rc, "link: a provider beneath takes no counter of an owner (FI_PEER)");
  }
  return made;
}

LentCounter::~LentCounter() {
  close_all(beneath_);
  close_all(lent_);
}

// ---- receives ----

Result<std::shared_ptr<LentReceives>> LentReceives::open(Domain &domain,
                                                         sdk::SharedReceiveContext &receives) {
  auto made = std::make_shared<LentReceives>();
  for (size_t i = 0; i < domain.branches(); ++i) {
    int rc = fi_export_fid(receives.base(), 0, &made->lent_[i], nullptr);
    if (rc != 0) return fail(-rc, "link: these receives cannot be lent");
    fi_rx_attr attr = *domain.branch(i).info().rx_attr;
    attr.op_flags = FI_PEER;
    fi_peer_srx_context context{.size = sizeof context,
                                .srx = reinterpret_cast<fid_peer_srx *>(made->lent_[i])};
    rc = fi_srx_context(domain.branch(i).domain(), &attr, &made->beneath_[i], &context);
    if (rc != 0)
      return fail(-rc, "link: a provider beneath takes no receives of an owner (FI_PEER)");
  }
  return made;
}

LentReceives::~LentReceives() {
  close_all(beneath_);
  close_all(lent_);
}

// ---- shared transmit contexts ----

Result<std::shared_ptr<LentTransmit>> LentTransmit::open(Domain &domain,
                                                         sdk::SharedTransmit &transmit) {
  auto made = std::make_shared<LentTransmit>();
  fi_tx_attr attr{};
  size_t length = sizeof attr.size;
  fi_getopt(transmit.base(), FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &attr.size, &length);
  for (size_t i = 0; i < domain.branches(); ++i) {
    const int rc = fi_stx_context(domain.branch(i).domain(), &attr, &made->beneath_[i], nullptr);
    if (rc != 0) return fail(-rc, "link: a provider beneath has no shared transmit context for it");
  }
  return made;
}

LentTransmit::~LentTransmit() {
  close_all(beneath_);
}

}  // namespace weft::link
