// SPDX-License-Identifier: BSD-2-Clause
#include "imported_receives.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <weft/sdk/addresses/av.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace weft::sdk {

ImportedReceives::ImportedReceives(Engine &engine, fid_peer_srx *owner, Receiver &context)
    : engine_(engine), owner_(owner), context_(context) {
  ops_.size = sizeof(fi_ops_srx_peer);
  ops_.start_msg = ops_.start_tag = &start;
  ops_.discard_msg = ops_.discard_tag = &discard;
  ops_.self = this;
  // An owner may have given a table to fill in (fi_peer.3). The entries lead here by ours.
  if (owner_->peer_ops != nullptr && owner_->peer_ops->size >= ops_.size)
    *owner_->peer_ops = static_cast<const fi_ops_srx_peer &>(ops_);
  owner_->peer_ops = &ops_;
  engine_.add_poller(*this);
}

// No endpoint uses it any more, so there is no message either. The owner is in the call that closes
// the context, so it starts nothing now.
ImportedReceives::~ImportedReceives() {
  engine_.remove_poller(*this);
  drop_fresh();
  give_back_late([](const Late &) { return true; });
  for (fi_peer_rx_entry *entry : abandoned_) owner_->owner_ops->free_entry(entry);
  owner_->peer_ops = nullptr;
  if (const int event = event_.load(); event >= 0) ::close(event);
}

// ---- calls of the owner ----

ImportedReceives &ImportedReceives::of(const fi_peer_rx_entry &entry) {
  return *static_cast<const Ops *>(entry.srx->peer_ops)->self;
}

int ImportedReceives::start(fi_peer_rx_entry *entry) {
  return of(*entry).note({entry, true});
}

int ImportedReceives::discard(fi_peer_rx_entry *entry) {
  return of(*entry).note({entry, false});
}

int ImportedReceives::note(Call call) {
  std::lock_guard guard(mutex_);
  try {
    calls_.push_back(call);
  } catch (const std::bad_alloc &) {
    return -FI_ENOMEM;
  }
  called_.store(true, std::memory_order_release);
  if (const int event = event_.load(); event >= 0) eventfd_write(event, 1);
  return 0;
}

fi_addr_t ImportedReceives::address_of(fi_peer_rx_entry *entry) {
  const auto *message = static_cast<const Unexpected *>(entry->peer_context);
  return message != nullptr ? message->receiver_->address_for(message->source) : FI_ADDR_UNSPEC;
}

void ImportedReceives::on_new_names() {
  if (owner_->owner_ops->foreach_unspec_addr != nullptr)
    owner_->owner_ops->foreach_unspec_addr(owner_, &address_of);
}

// ---- messages ----

// 0: a receive is in the entry; -FI_ENOENT: there is none, and the entry is for queue().
int ImportedReceives::ask(const Receiver &receiver, const Message &m, fi_peer_rx_entry *&entry) {
  fi_peer_match_attr attr{.addr = receiver.address_for(m.source),
                          .msg_size = size_t(m.length),
                          .tag = m.tagged ? m.tag : 0};
  const fi_ops_srx_owner &ops = *owner_->owner_ops;
  const int rc = (m.tagged ? ops.get_tag : ops.get_msg)(owner_, &attr, &entry);
  return entry == nullptr && (rc == 0 || rc == -FI_ENOENT) ? -FI_ENOMEM : rc;
}

void ImportedReceives::drop_fresh() {
  if (fi_peer_rx_entry *const entry = std::exchange(fresh_.entry, nullptr))
    owner_->owner_ops->free_entry(entry);
}

Receive *ImportedReceives::match(Receiver &receiver, const Message &message) {
  drop_fresh();
  if (!waiting_.empty()) return nullptr;  // those are first
  ImportedReceive *const receive = receives_.take();
  if (receive == nullptr) return nullptr;
  fi_peer_rx_entry *entry = nullptr;
  const int rc = ask(receiver, message, entry);
  if (rc == 0) {
    fill(*receive, *entry, receiver);
    return receive;
  }
  receives_.give(receive);
  if (rc == -FI_ENOENT) fresh_ = {entry, &receiver, message};
  return nullptr;
}

void ImportedReceives::save(Receiver &receiver, Unexpected &message) {
  message.holder_ = nullptr;
  const Message &m = message.message, &f = fresh_.message;
  const bool same = fresh_.receiver == &receiver && f.tagged == m.tagged && f.source == m.source &&
                    f.tag == m.tag && f.length == m.length;
  if (!same) drop_fresh();
  if (!waiting_.empty() || !queue(receiver, message)) waiting_.push_back(&message);
}

// Hands the message to the owner. False: it does not take it now.
bool ImportedReceives::queue(Receiver &receiver, Unexpected &message) {
  const Message &m = message.message;
  fi_peer_rx_entry *entry = std::exchange(fresh_.entry, nullptr);
  int rc = entry != nullptr ? -FI_ENOENT : ask(receiver, m, entry);
  if (rc != 0 && rc != -FI_ENOENT) return false;
  entry->peer_context = &message;
  if (rc == 0) {  // a receive was posted since match()
    message.holder_ = entry;
    return note({entry, true}) == 0 || (message.holder_ = nullptr, false);
  }
  entry->srx = owner_;
  entry->addr = receiver.address_for(m.source);
  entry->msg_size = size_t(m.length);
  entry->tag = m.tagged ? m.tag : 0;
  entry->flags = FI_RECV | (m.tagged ? FI_TAGGED : FI_MSG);
  entry->cq_data = m.data;
  if (m.has_data) entry->flags |= FI_REMOTE_CQ_DATA;
  message.holder_ = entry;
  const fi_ops_srx_owner &ops = *owner_->owner_ops;
  rc = (m.tagged ? ops.queue_tag : ops.queue_msg)(entry);
  if (rc == 0) return true;
  message.holder_ = nullptr;
  ops.free_entry(entry);
  return false;
}

void ImportedReceives::forget(Unexpected &message) {
  auto *const entry = static_cast<fi_peer_rx_entry *>(std::exchange(message.holder_, nullptr));
  if (entry == nullptr) {
    std::erase(waiting_, &message);
  } else {
    entry->peer_context = nullptr;
    abandoned_.push_back(entry);
  }
}

void ImportedReceives::fill(ImportedReceive &r, fi_peer_rx_entry &entry, Receiver &receiver) {
  r.entry = &entry;
  r.context = entry.context;
  r.flags = entry.flags;
  r.buffer = nullptr;
  r.taker_ = &receiver;
  // An owner that gives more vectors than the provider takes gets its message truncated. So it is
  // without memory.
  const bool keeps = receiver.settings_.descriptors;
  if (keeps && r.desc_ == nullptr) r.desc_.reset(new (std::nothrow) void *[kIovLimit]);
  const bool fits = entry.count <= kIovLimit && (!keeps || r.desc_ != nullptr);
  r.count = fits ? uint32_t(entry.count) : 0;
  r.length = 0;
  for (size_t i = 0; i < r.count; ++i) {
    r.iov[i] = entry.iov[i];
    r.length += entry.iov[i].iov_len;
  }
  if (!keeps) return;
  for (size_t i = 0; i < r.count; ++i) r.desc_[i] = entry.desc != nullptr ? entry.desc[i] : nullptr;
}

void ImportedReceives::give_back(ImportedReceive &receive, const Cq *queue) {
  fi_peer_rx_entry *entry = std::exchange(receive.entry, nullptr);
  if (queue != nullptr && queue->has_untold()) [[unlikely]] {
    try {
      late_.push_back({entry, queue});
      entry = nullptr;
    } catch (const std::bad_alloc &) {
      // Early is better than never.
    }
  }
  if (entry != nullptr) owner_->owner_ops->free_entry(entry);
  receives_.give(&receive);
}

template <class May>
void ImportedReceives::give_back_late(May may) {
  std::erase_if(late_, [&](const Late &one) {
    if (!may(one)) return false;
    owner_->owner_ops->free_entry(one.entry);
    return true;
  });
}

void ImportedReceives::leave(const Cq *queue) {
  give_back_late([&](const Late &one) { return one.queue == queue; });
}

// ---- progress ----

// A receive that got a message which is not there any more.
void ImportedReceives::fail(fi_peer_rx_entry &entry) {
  Receiver &teller = context_.speaker();
  const uint64_t kind = entry.flags & (FI_TAGGED | FI_MSG);
  teller.RxContext::fail(entry.context, FI_RECV | kind, FI_ECANCELED);
  owner_->owner_ops->free_entry(&entry);
}

// `receive` is for a message that starts.
void ImportedReceives::serve(const Call &call, ImportedReceive *receive) {
  fi_peer_rx_entry &entry = *call.entry;
  auto *const message = static_cast<Unexpected *>(entry.peer_context);
  if (message == nullptr) {
    std::erase(abandoned_, &entry);
    if (call.starts) return fail(entry);
    return owner_->owner_ops->free_entry(&entry);
  }
  Receiver &receiver = *message->receiver_;
  message->holder_ = nullptr;
  context_.matcher(message->message.tagged).remove(*message);
  if (receive != nullptr) {
    fill(*receive, entry, receiver);
    receiver.sink_->deliver(*message, *receive);
  } else {
    receiver.sink_->discard(*message);
    owner_->owner_ops->free_entry(&entry);
  }
}

void ImportedReceives::on_poll() {
  drop_fresh();
  if (!late_.empty()) [[unlikely]]
    give_back_late([](const Late &one) { return !one.queue->has_untold(); });
  if (called_.load(std::memory_order_relaxed) &&
      called_.exchange(false, std::memory_order_acquire)) {
    eventfd_t count;
    if (const int event = event_.load(); event >= 0) eventfd_read(event, &count);
    std::lock_guard guard(mutex_);
    serving_.insert(serving_.end(), calls_.begin(), calls_.end());
    calls_.clear();
  }
  while (!serving_.empty()) {
    const Call call = serving_.front();
    ImportedReceive *receive = nullptr;
    if (call.starts && call.entry->peer_context != nullptr) {
      receive = receives_.take();
      if (receive == nullptr) break;  // no memory: later
    }
    serving_.pop_front();
    serve(call, receive);
  }
  while (!waiting_.empty()) {
    Unexpected &first = *waiting_.front();
    if (!queue(*first.receiver_, first)) break;
    waiting_.pop_front();
  }
  // The owner does not say when it gets receives: messages that could not be saved ask again.
  context_.tell_users();
}

int ImportedReceives::wait_fds(std::vector<int> &fds) {
  if (event_.load() < 0) {
    const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event < 0) return -errno;
    event_.store(event);
  }
  fds.push_back(event_.load());
  return 0;
}

bool ImportedReceives::may_wait() {
  return !called_.load(std::memory_order_acquire) && serving_.empty();
}

}  // namespace weft::sdk
