// SPDX-License-Identifier: BSD-2-Clause
#include "lent_receives.h"

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/shared_receive.h>

#include <algorithm>
#include <new>
#include <utility>

namespace weft::sdk {

// ---- calls of peers ----

bool PeerCalls::add_entry() {
  try {
    calls_.reserve(entries_ + 1);
  } catch (const std::bad_alloc &) {
    return false;
  }
  ++entries_;
  return true;
}

void PeerCalls::remove_entry(const Entry *entry) {
  std::erase_if(calls_, [&](const Call &one) { return one.entry == entry; });
  --entries_;
}

void PeerCalls::call(const Call &one) {
  const fi_ops_srx_peer &peer = *one.entry->srx->peer_ops;
  const bool tagged = one.entry->message.tagged;
  const auto start = tagged ? peer.start_tag : peer.start_msg;
  const auto discard = tagged ? peer.discard_tag : peer.discard_msg;
  if (const auto made = one.starts ? start : discard; made != nullptr) (void)made(one.entry);
}

void PeerCalls::make() {
  for (;;) {
    Call first;
    {
      const Guard guard(lock_);
      if (calls_.empty()) return;
      first = calls_.front();
      calls_.erase(calls_.begin());
    }
    call(first);
  }
}

// ---- the object ----

LentReceives::LentReceives(SharedReceiveContext &context, void *app_context)
    : fid_peer_srx{},
      context_(context),
      calls_(context.peer_calls()),
      receiver_(*this, {.directed = true}) {
  static fi_ops_srx_owner ops{
      .size = sizeof ops,
      .get_msg = [](fid_peer_srx *srx, fi_peer_match_attr *attr,
                    fi_peer_rx_entry **entry) { return of(srx).get(false, attr, entry); },
      .get_tag = [](fid_peer_srx *srx, fi_peer_match_attr *attr,
                    fi_peer_rx_entry **entry) { return of(srx).get(true, attr, entry); },
      .queue_msg =
          [](fi_peer_rx_entry *entry) {
            return of(entry).queue(false, static_cast<Entry &>(*entry));
          },
      .queue_tag =
          [](fi_peer_rx_entry *entry) {
            return of(entry).queue(true, static_cast<Entry &>(*entry));
          },
      .foreach_unspec_addr =
          [](fid_peer_srx *srx, fi_addr_t (*address)(fi_peer_rx_entry *)) {
            of(srx).name_sources(address);
          },
      .free_entry = [](fi_peer_rx_entry *entry) { of(entry).free(static_cast<Entry &>(*entry)); }};
  ep_fid.fid.fclass = FI_CLASS_PEER_SRX;
  ep_fid.fid.context = app_context;
  ep_fid.fid.ops = const_cast<fi_ops *>(fid_ops<LentReceives>());
  owner_ops = &ops;
  peer_ops = &peer_ops_;
  const Guard guard(context.lock());
  receiver_.share(context.receiver());
  context.users.fetch_add(1);
}

LentReceives *LentReceives::from(struct fid *fid) {
  return static_cast<LentReceives *>(reinterpret_cast<fid_peer_srx *>(fid));
}

int LentReceives::close() {
  {
    const Guard guard(context_.lock());
    if (entries_ != 0) return -FI_EBUSY;
    receiver_.leave();
  }
  context_.users.fetch_sub(1);
  delete this;
  return 0;
}

// ---- what the peer calls ----

uint32_t LentReceives::source_of(fi_addr_t address) {
  if (address == FI_ADDR_UNSPEC) return Matcher::kUnknownSource;
  Av *const names = receiver_.speaker().av;
  if (names == nullptr) return Matcher::kUnknownSource;
  const uint32_t index = names->peer_of(address);
  return index == Av::kNone ? Matcher::kUnknownSource : Av::entry_of(index);
}

int LentReceives::get(bool tagged, const fi_peer_match_attr *attr, fi_peer_rx_entry **out) {
  if (attr == nullptr || out == nullptr) return -FI_EINVAL;
  *out = nullptr;
  const Guard guard(context_.lock());
  Entry *const entry = pool_.take();
  if (entry == nullptr) return -FI_ENOMEM;
  if (!calls_.add_entry()) {
    pool_.give(entry);
    return -FI_ENOMEM;
  }
  ++entries_;
  static_cast<fi_peer_rx_entry &>(*entry) = {};
  entry->srx = this;
  entry->addr = attr->addr;
  entry->msg_size = attr->msg_size;
  static_cast<fi_peer_rx_entry &>(*entry).tag = tagged ? attr->tag : 0;
  entry->flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
  *out = entry;
  entry->message = {.tagged = tagged,
                    .source = source_of(attr->addr),
                    .tag = tagged ? attr->tag : 0,
                    .length = attr->msg_size};
  Receive *const receive = receiver_.match(entry->message);
  if (receive == nullptr) return -FI_ENOENT;
  take(*entry, *receive);
  return 0;
}

// A receive that was posted since get() starts the message.
int LentReceives::queue(bool tagged, Entry &entry) {
  {
    const Guard guard(context_.lock());
    const fi_peer_rx_entry &told = entry;
    entry.message = {.tagged = tagged,
                     .has_data = (told.flags & FI_REMOTE_CQ_DATA) != 0,
                     .source = source_of(told.addr),
                     .tag = tagged ? told.tag : 0,
                     .data = told.cq_data,
                     .length = told.msg_size};
    Receive *const receive = receiver_.match(entry.message);
    if (receive == nullptr) {
      receiver_.save(entry);
      return 0;
    }
    deliver(entry, *receive);
  }
  calls_.make();
  return 0;
}

void LentReceives::free(Entry &entry) {
  const Guard guard(context_.lock());
  if (entry.receive != nullptr)
    give_back(entry);
  else
    receiver_.forget(entry);
  calls_.remove_entry(&entry);
  --entries_;
  pool_.give(&entry);
}

// Those whose sender has an address now, in the order in which they came.
void LentReceives::name_sources(fi_addr_t (*address)(fi_peer_rx_entry *)) {
  if (address == nullptr) return;
  {
    const Guard guard(context_.lock());
    std::vector<Entry *> named;
    receiver_.visit_unexpected(Matcher::kUnknownSource, [&](Unexpected &message) {
      auto &entry = static_cast<Entry &>(message);
      if (entry.addr == FI_ADDR_UNSPEC) entry.addr = address(&entry);
      entry.message.source = source_of(entry.addr);
      if (entry.message.source == Matcher::kUnknownSource) return;
      if (entry.queued)
        named.push_back(&entry);
      else
        static_cast<Unexpected &>(entry).source = entry.message.source;  // claimed
    });
    for (Entry *const entry : named) {
      receiver_.forget(*entry);
      if (Receive *const receive = receiver_.match(entry->message))
        deliver(*entry, *receive);
      else
        receiver_.save(*entry);
    }
  }
  calls_.make();
}

// ---- receives ----

void LentReceives::take(Entry &entry, Receive &receive) {
  entry.receive = &receive;
  entry.context = receive.context;
  entry.count = receive.count;
  entry.iov = receive.iov;
  entry.desc = const_cast<void **>(receive.desc());
  entry.flags |= receive.flags & FI_COMPLETION;
  const Receive *const buffer = receive.buffer;
  entry.says_end = buffer != nullptr && !buffer->open && buffer->users == 1;
  if (entry.says_end) entry.flags |= FI_MULTI_RECV;
}

// The peer has reported it.
void LentReceives::give_back(Entry &entry) {
  Receive &receive = *std::exchange(entry.receive, nullptr);
  Receive *const buffer = receive.buffer;
  const bool ends = buffer != nullptr && --buffer->users == 0 && !buffer->open;
  receive.taker_ = nullptr;
  Receiver::Queues &queues = *receiver_.queues_;
  (buffer != nullptr ? queues.parts : queues.receives).give(&receive);
  if (!ends) return;
  if (entry.says_end)
    queues.receives.give(buffer);
  else
    receiver_.end(*buffer);
}

void LentReceives::deliver(Unexpected &message, Receive &receive) {
  auto &entry = static_cast<Entry &>(message);
  take(entry, receive);
  calls_.add({&entry, true});
}

void LentReceives::discard(Unexpected &message) {
  calls_.add({static_cast<Entry *>(&message), false});
}

}  // namespace weft::sdk
