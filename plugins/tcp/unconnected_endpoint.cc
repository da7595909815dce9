// SPDX-License-Identifier: BSD-2-Clause
// The life of an unconnected endpoint, its transfers, and the messages that it saves. Peers and the
// connections with them are in unconnected_peers.cc.
#include "plugins/tcp/unconnected_endpoint.h"

#include <poll.h>
#include <unistd.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/transfers/cancel.h>
#include <weft/sdk/transfers/levels.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {
namespace {

// How long new connections may wait while the application spins on other sockets.
constexpr uint64_t kLookPauseNs = 20'000;

bool wants_sources(const fi_info &info) {
  return info.caps & (FI_SOURCE | FI_SOURCE_ERR | FI_DIRECTED_RECV);
}

}  // namespace

// ---- life ----

UnconnectedEndpoint::UnconnectedEndpoint(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), sdk::endpoint_class(domain.shared()), context),
      RdmEndpoint(domain.shared(), *this, info,
                  {.tx_size = domain.fabric().settings().tx_size,
                   .rx_size = domain.fabric().settings().rx_size,
                   .inject_size = kInjectSize,
                   .max_inject_size = kMaxInjectSize,
                   .max_msg_size = kMaxMessageSize,
                   .early_receives = true,
                   .may_buffer = true}),
      ExitDuty(domain.engine(), domain.fabric().settings().close_linger_ns()),
      tcp_domain_(domain),
      engine_(domain.engine()),
      addr_format_(info.addr_format),
      process_(process_at(uint32_t(getpid()), context_place())),
      acceptor_(domain.instance(), domain.engine(), domain.fabric().settings(),
                domain.fabric().counters(), *this, kLookPauseNs),
      tx_ops_(limits().tx_size),
      control_ops_(SIZE_MAX, 8),
      names_sources_(wants_sources(info)),
      announces_((sdk::order_of(info) & (FI_ORDER_RAS | FI_ORDER_WAS)) == 0),
      keeper_(sdk::order_of(info), kNativeOrder) {
  set_tables(*this);
  receiver().min_multi_recv() = kRdmMinMultiRecv;
  name_endpoint(c());
  count_in_flight([](sdk::EndpointCore &core) {
    return static_cast<UnconnectedEndpoint &>(core).tx_ops_.in_use();
  });
}

Result<UnconnectedEndpoint *> UnconnectedEndpoint::open(Domain &domain, const fi_info &info,
                                                        void *context) {
  for (size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                      info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > kMaxQueueSize)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: at most %zu", size, kMaxQueueSize);
  sdk::SockAddr local = domain.source();
  if (info.src_addr != nullptr) {
    WEFT_TRY(local, sdk::read_sock_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  std::unique_ptr<UnconnectedEndpoint, void (*)(UnconnectedEndpoint *)> ep(
      new UnconnectedEndpoint(domain, info, context), [](UnconnectedEndpoint *e) { delete e; });
  ep->local_ = local;
  WEFT_TRY(ep->keys_, Keys::of(info, &domain.keys(), domain.fabric().settings(),
                               domain.fabric().api_version()));
  ep->acceptor_.set_keys(ep->keys_);
  WEFT_TRY(const uint8_t dscp,
           sdk::endpoint_dscp(info, domain.fabric().api_version(), domain.dscp()));
  ep->acceptor_.set_dscp(dscp);
  WEFT_CHECK(ep->publish(sdk::endpoint_parent(domain.shared())));
  domain.shared().children.fetch_add(1);
  sdk::Guard guard(domain.engine().lock());
  domain.unconnected().push_back(ep.get());
  return ep.release();
}

const Settings &UnconnectedEndpoint::settings() const {
  return tcp_domain_.fabric().settings();
}

Counters &UnconnectedEndpoint::counters() {
  return tcp_domain_.fabric().counters();
}

RdmHello UnconnectedEndpoint::hello(uint16_t port) const {
  return {.features = kSaysWhenFull | kAnnouncesAny | kRefuses, .port = port, .process = process_};
}

int UnconnectedEndpoint::setname(void *addr, size_t len) {
  auto address = sdk::read_sock_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(engine_.lock());
  if (enabled()) return -FI_EOPBADSTATE;
  if (lane() != nullptr) {
    acceptor_.close();  // it had a port that was taken with others, which are not free
  } else if (auto bound = acceptor_.bind(*address); !bound) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_setname: %s", bound.error().text.c_str());
    return -bound.error().code;
  }
  local_ = *address;
  return 0;
}

// The first of fi_setname, this call and fi_enable binds the socket.
int UnconnectedEndpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(engine_.lock());
  if (auto bound = bind_name(); !bound) {
    if (lane() == nullptr)
      WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_getname: %s", bound.error().text.c_str());
    return -bound.error().code;
  }
  return sdk::write_address(acceptor_.name(), addr_format_, addr, len);
}

// The ports of the contexts of a scalable endpoint are reserved before each of them is enabled. The
// first one answers for all from then on.
Result<void> UnconnectedEndpoint::bind_name() {
  if (acceptor_.bound()) return {};
  WEFT_CHECK(acceptor_.bind(local_));
  if (lane() == nullptr) return {};
  auto reserved = context_place() == 0 ? acceptor_.listen(settings().backlog) : acceptor_.reserve();
  if (!reserved) acceptor_.close();
  return reserved;
}

Result<void> UnconnectedEndpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings());
  WEFT_CHECK(bind_name());
  WEFT_CHECK(acceptor_.listen(settings().backlog));
  max_unnamed_ = std::clamp<size_t>(descriptor_limit() / 2, 1, settings().max_unnamed_peers);
  av()->add_user(*this, true);
  set_enabled();
  return {};
}

int UnconnectedEndpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<UnconnectedEndpoint>::open(*this, arg);
  if (command == sdk::kQueueDeferred) return queue_deferred(arg);
  if (command != FI_ENABLE) return control_flags(command, arg, kSendFlags);
  sdk::Guard guard(engine_.lock());
  auto done = enable();
  if (done) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
  return -done.error().code;
}

ssize_t UnconnectedEndpoint::tx_size_left() {
  sdk::Guard guard(engine_.lock());
  return enabled() ? ssize_t(tx_ops_.limit() - tx_ops_.in_use()) : -FI_EOPBADSTATE;
}

// Injected data must still be delivered: waits, at most close_linger_ms, for sockets that are full,
// for peers that are being connected, and for peers that have been told of injected messages, and
// have to ask for them. A peer that has been told of another message may ask for it, too, or has
// just done so. And what the kernel holds for a peer that does not read is lost if that peer sends
// something when the socket is closed. The endpoints of a domain share the time for such peers.
void UnconnectedEndpoint::linger() {
  const uint64_t begin = sdk::now_ns();
  const uint64_t most = settings().close_linger_ns();
  sdk::LingerBudget &budget = tcp_domain_.linger_budget();
  const uint64_t end = begin + most, end_of_others = budget.until(begin, most);
  std::vector<pollfd> waiting;
  for (;;) {
    engine_.progress();
    waiting.clear();
    bool must_wait = false, may_wait = false, unsent = false;
    for (PeerStream *stream : streams_) {
      const bool drains = stream->drains(), injected = stream->has_injected();
      const bool waits = injected || stream->has_announced();
      unsent |= stream->has_unsent();
      may_wait |= waits || unsent;
      must_wait |= drains || injected;
      const int events = (drains ? POLLOUT : 0) | (waits && stream->reads() ? POLLIN : 0);
      if (events != 0) waiting.push_back({stream->socket(), short(events), 0});
    }
    for (auto &[address, peer] : peers_) {
      if (peer->pending.empty() || peer->attempt == nullptr) continue;
      must_wait = true;
      if (peer->attempt->connecting())
        waiting.push_back({peer->attempt->socket(), peer->attempt->awaited(), 0});
    }
    if (!must_wait && !may_wait) return;
    const uint64_t now = sdk::now_ns(), until = must_wait ? end : end_of_others;
    if (now >= until) {
      if (may_wait) budget.spend(now - begin);
      return;
    }
    // The engine does the work; poll() only waits until there may be some. A retry, or a peer that
    // connects to us instead, is none of these descriptors, hence the 10 ms; nor is what the kernel
    // sends.
    ::poll(waiting.data(), nfds_t(waiting.size()),
           int(std::min<uint64_t>((until - now) / 1'000'000u + 1, unsent ? 1 : 10)));
  }
}

// The same by exit(), for what the application is not told of: it has closed nothing.
bool UnconnectedEndpoint::owes(bool exits) {
  for (const PeerStream *stream : streams_) {
    if (stream->output_lost()) continue;
    if (stream->open() && stream->has_unasked()) return true;
    if (stream->has_injected() || (exits && stream->has_unsent())) return true;
  }
  for (const auto &[address, peer] : peers_)
    if (peer->attempt != nullptr && peer->has_unasked()) return true;
  return false;
}

int UnconnectedEndpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  retire();
  {
    sdk::Guard guard(engine_.lock());
    if (enabled()) linger();
    // Outstanding operations are dropped: their completions could name an endpoint that is gone
    // (fi_endpoint.3, fi_close).
    const bool was_enabled = enabled();
    detach();
    settle();
    acceptor_.close();
    while (!streams_.empty()) streams_.back()->end(FI_ECANCELED);
    for (auto &[address, peer] : peers_) {
      peer->attempt.reset();
      peer->probe.reset();
      peer->fail_pending(FI_ECANCELED);
    }
    receiver().visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &message) {
      receiver().forget(message);
      release(&static_cast<Saved &>(message));
    });
    receiver().fail_posted(FI_ECANCELED);
    engine_.remove(*this);
    RdmEndpoint::release(was_enabled ? this : nullptr);
    buried_.clear();
    peers_.clear();
    std::erase(tcp_domain_.unconnected(), this);
  }
  core_domain_.children.fetch_sub(1);
  delete this;
  return 0;
}

// ---- peers ----

Peer *UnconnectedEndpoint::peer_at(uint32_t index) {
  if (Peer *peer = table_.at(index)) return peer;
  const auto entry = av()->address(index);
  if (!entry) return nullptr;
  Peer *peer = find_or_add(sdk::SockAddr::of(*entry), index);
  table_.set(index, peer);
  peer->indices.push_back(index);
  if (!peer->is_named()) {
    const uint32_t before = peer->source, entry = sdk::Av::entry_of(index);
    set_source(*peer, entry);
    receiver().rename_source(before, entry);
  }
  return peer;
}

void UnconnectedEndpoint::check(Peer &peer) {
  if (!peer.is_idle()) return;
  idle_.push_back(&peer);
  engine_.mark_dirty(*this);
}

// Called when no stream or peer is on the stack.
void UnconnectedEndpoint::clean_up() {
  buried_.clear();
  while (!idle_.empty()) {
    Peer *peer = idle_.back();
    std::erase(idle_, peer);
    if (!peer->is_idle()) continue;
    for (uint32_t index : peer->indices) table_.set(index, nullptr);
    peers_.erase(peer->address);
  }
}

void UnconnectedEndpoint::on_flush() {
  clean_up();
  if (!stalled_.empty()) resume_stalled();
}

// ---- sending ----

// Queued injects hold operations, and an application that only injects makes no progress. Null:
// there is no room, and no peer of before is a peer any more.
RdmOperation *UnconnectedEndpoint::make_room(uint64_t flags) {
  for (PeerStream *stream : std::vector(streams_)) stream->flush();
  RdmOperation *const op = tx().is_full() ? nullptr : tx_ops_.take();
  // What a counter starts is in the midst of progress.
  if (op == nullptr && !(flags & sdk::kDeferred)) engine_.progress();
  return op;
}

RdmOperation *UnconnectedEndpoint::take_operation(uint64_t flags) {
  RdmOperation *op = tx().is_full() ? nullptr : tx_ops_.take();
  if (op == nullptr) [[unlikely]]
    op = make_room(flags);
  if (op == nullptr) return nullptr;
  op->stage = RdmOperation::kWhole;
  op->rendezvous = false;
  op->match = op->is_canceled = false;
  op->is_injected = (flags & FI_INJECT) != 0;
  op->number = 0;
  op->pin_count = 0;
  op->result_count = 0;
  return op;
}

ssize_t UnconnectedEndpoint::start(const sdk::SendRequest &r) {
  const uint32_t index = av()->peer_of(r.dest);
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  Peer *peer = peer_at(index);
  const bool matches = (r.flags & FI_MATCH_COMPLETE) != 0;
  if (matches && peer->stream != nullptr && peer->stream->has_many_matching()) return -FI_EAGAIN;
  keeper_.make_room(index);
  RdmOperation *op = take_operation(r.flags);
  if (op == nullptr) return -FI_EAGAIN;
  FrameHeader header;
  header.op = r.tagged ? Op::kTagged : Op::kMessage;
  header.tag = r.tag;
  header.payload_size = r.length;
  if (r.flags & FI_REMOTE_CQ_DATA) {
    header.flags |= kFlagRemoteData;
    header.data = r.data;
  }
  op->wait_ack = (r.flags & sdk::kRemoteLevels) != 0;
  if (op->wait_ack) header.flags |= kFlagDelivery;
  op->kind = Operation::kSend;
  op->flags = sdk::completion_flags(r);
  op->tagged = r.tagged;
  op->mark = r.tagged ? FI_TAGGED : FI_MSG;
  op->tag = r.tag;
  op->data = r.data;
  op->wire_flags = header.flags;
  op->length = r.length;
  op->context = r.context;
  op->report = r.report;
  op->fence = r.flags & FI_FENCE || keeper_.must_wait(index, sdk::OrderKind::kSend);
  op->more = r.flags & FI_MORE;
  op->set_header(header, peer->stream != nullptr ? peer->stream->order() : ByteOrder::kNative);
  op->match = matches;
  const bool inject = (r.flags & FI_INJECT) != 0;
  const sdk::Hmem *const hmem = tcp_domain_.hmem();
  if (const int rc = matches ? op->place_apart(r.iov, r.count, r.length, inject, hmem)
                             : op->place(r.iov, r.count, r.length, inject, hmem);
      rc != 0) {
    give(*op);
    return rc;
  }
  keeper_.started(index, sdk::OrderKind::kSend, op->fence);
  peer->launch(*op);
  return 0;
}

ssize_t UnconnectedEndpoint::start(const sdk::RmaRequest &r) {
  const uint32_t index = av()->peer_of(r.dest);
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  Peer *peer = peer_at(index);
  keeper_.make_room(index);
  RdmOperation *op = take_operation(r.flags);
  if (op == nullptr) return -FI_EAGAIN;
  op->tagged = false;
  op->mark = FI_RMA;
  op->tag = 0;
  op->more = r.flags & FI_MORE;
  const ByteOrder order = peer->stream != nullptr ? peer->stream->order() : ByteOrder::kNative;
  if (const int rc = op->prepare(r, order, tcp_domain_.hmem()); rc != 0) {
    give(*op);
    return rc;
  }
  const auto kind = r.write ? sdk::OrderKind::kWrite : sdk::OrderKind::kRead;
  op->fence |= keeper_.must_wait(index, kind);
  keeper_.started(index, kind, op->fence);
  peer->launch(*op);
  return 0;
}

void UnconnectedEndpoint::give(RdmOperation &op) {
  op.drop_copy();
  op.context = nullptr;  // fi_cancel does not find it any more
  tx_ops_.give(&op);
}

// What has begun is not taken back: it ends as it would have, and an error says that it was
// canceled.
ssize_t UnconnectedEndpoint::cancel(void *context) {
  const ssize_t rc = RdmEndpoint::cancel(context);
  if (rc != -FI_ENOENT || context == nullptr) return rc;
  const sdk::Guard guard(engine_.lock());
  return sdk::mark_canceled(tx_ops_, context, &RdmOperation::flags) ? 0 : rc;
}

void UnconnectedEndpoint::finish(RdmOperation &op, int error) {
  if (error == 0) {
    tx().succeed(op.context, op.flags, op.length, op.report);
  } else {
    tx().finish({.context = op.context,
                 .flags = op.flags,
                 .length = op.length,
                 .tag = op.tag,
                 .report = op.report,
                 .err = op.is_canceled ? FI_ECANCELED : error,
                 .prov_errno = error});
  }
  if (op.report) note_end();
  give(op);
}

// As Endpoint::lost().
void UnconnectedEndpoint::lost(uint64_t flags, int error) {
  tx().finish({.context = c()->fid.context, .flags = flags, .err = error});
}

// ---- receiving ----

bool UnconnectedEndpoint::may_save(const Peer &peer, uint64_t bytes, uint64_t extra) const {
  const Settings &s = settings();
  const uint64_t limit = s.max_saved_per_peer + extra;
  return peer.saved_bytes <= limit && bytes <= limit - peer.saved_bytes &&
         bytes <= s.max_saved + extra && has_room(peer, extra);
}

bool UnconnectedEndpoint::has_room(const Peer &peer, uint64_t extra) const {
  const uint64_t limit = settings().max_saved;
  return saved_bytes_ < limit + extra && (peer.is_named() || unnamed_bytes_ < limit / 2 + extra);
}

bool UnconnectedEndpoint::may_send_long(const Peer &peer, bool could, bool has_share) const {
  const Settings &s = settings();
  if (s.max_saved_per_peer / 4 < std::min(s.max_saved_size, kLongest)) return false;
  if (!has_share && shares_ >= s.max_saved / std::max<uint64_t>(s.max_saved_per_peer, 1))
    return false;
  const uint64_t parts = could ? 4 : 8;
  return peer.saved_bytes <= s.max_saved_per_peer / parts && saved_bytes_ <= s.max_saved / parts;
}

void UnconnectedEndpoint::count_claimed(Saved &saved, uint64_t bytes) {
  saved.claimed += bytes;
  saved.peer->saved_bytes += bytes;
}

void UnconnectedEndpoint::count_arrived(Saved &saved, uint64_t bytes) {
  saved.cost += bytes;
  saved_bytes_ += bytes;
  saved.peer->arrived_bytes += bytes;
  if (!saved.peer->is_named()) unnamed_bytes_ += bytes;
}

Saved *UnconnectedEndpoint::save(Peer &peer, uint64_t payload, bool urgent) {
  uint64_t cost;
  if (__builtin_add_overflow(sizeof(Saved), payload, &cost) ||
      !may_save(peer, cost, urgent ? kUrgentExtra : 0))
    return nullptr;
  void *memory = std::malloc(cost);
  if (memory == nullptr) return nullptr;
  auto *saved = new (memory) Saved;
  saved->peer = &peer;
  saved->bytes = reinterpret_cast<char *>(saved + 1);
  ++peer.saved;
  count_claimed(*saved, cost);
  // An unnamed peer may exist only for this message.
  count_arrived(*saved, sizeof(Saved) + (peer.is_named() ? 0 : sizeof(Peer)));
  return saved;
}

bool UnconnectedEndpoint::make_room(Saved &saved) {
  const uint64_t bytes = saved.message.length;
  if (!may_save(*saved.peer, bytes, 0)) return false;
  auto *memory = static_cast<char *>(std::malloc(bytes != 0 ? bytes : 1));
  if (memory == nullptr) return false;
  saved.bytes = memory;
  count_claimed(saved, bytes);
  return true;
}

void UnconnectedEndpoint::release(Saved *saved) {
  Peer &peer = *saved->peer;
  saved_bytes_ -= saved->cost;
  peer.arrived_bytes -= saved->cost;
  if (!peer.is_named()) unnamed_bytes_ -= saved->cost;
  peer.saved_bytes -= saved->claimed;
  --peer.saved;
  if (saved->bytes != reinterpret_cast<char *>(saved + 1)) std::free(saved->bytes);
  saved->~Saved();
  std::free(saved);
  if (peer.stream != nullptr && peer.stream->has_share()) peer.stream->say_whether_full();
  // A stalled message may have room now. Later, because our caller is not finished.
  if (!stalled_.empty()) engine_.mark_dirty(*this);
  if (peer.saved == 0) check(peer);
}

// False: it is memory of a device, which fails.
bool UnconnectedEndpoint::copy_in(void *to, const void *from, size_t length) const {
  sdk::HmemPlace place;
  if (tcp_domain_.hmem() != nullptr) place = tcp_domain_.hmem()->find(to, length);
  return sdk::hmem_copy(to, place.or_null(), from, nullptr, length);
}

void UnconnectedEndpoint::deliver(sdk::Unexpected &message, sdk::Receive &receive) {
  auto &saved = static_cast<Saved &>(message);
  switch (saved.stage) {
    case Saved::kFetching:
      saved.receive = &receive;
      return;
    case Saved::kAnnounced:
      saved.stream->ask_for(saved, &receive);
      break;
    case Saved::kHere: {
      if (saved.error != 0) {
        receiver().complete(receive, saved.message, 0, saved.error);
        break;
      }
      uint64_t left = std::min<uint64_t>(saved.message.length, receive.length);
      const uint64_t placed = left;
      const char *from = saved.bytes;
      int error = 0;
      for (size_t i = 0; i < receive.count && left != 0; ++i) {
        const size_t n = size_t(std::min<uint64_t>(left, receive.iov[i].iov_len));
        if (!copy_in(receive.iov[i].iov_base, from, n)) error = FI_EIO;
        from += n;
        left -= n;
      }
      receiver().complete(receive, saved.message, size_t(placed), error);
    }
  }
  release(&saved);
}

int UnconnectedEndpoint::read_first(sdk::Unexpected &message, void *to, size_t n) {
  auto &saved = static_cast<Saved &>(message);
  if (saved.error != 0) return -saved.error;
  if (saved.stage == Saved::kAnnounced) saved.stream->fetch_first(saved, n);
  if (saved.stage != Saved::kHere && !saved.is_begun) return -FI_EAGAIN;
  std::memcpy(to, saved.bytes, n);
  return 0;
}

void UnconnectedEndpoint::discard(sdk::Unexpected &message) {
  auto &saved = static_cast<Saved &>(message);
  if (saved.stage == Saved::kFetching) {
    saved.dropped = true;
    return;
  }
  // The protocol has no refusal: an announced message is fetched and dropped.
  if (saved.stage == Saved::kAnnounced) saved.stream->ask_for(saved, nullptr);
  release(&saved);
}

std::string UnconnectedEndpoint::source_address(const sdk::Message &message) {
  for (const auto &[address, peer] : peers_)
    if (peer->source == message.source)
      return {reinterpret_cast<const char *>(address.c()), address.size()};
  return {};
}

void UnconnectedEndpoint::resume_stalled() {
  // Streams that still have no room put themselves back into the list.
  std::vector<PeerStream *> waiting;
  waiting.swap(stalled_);
  for (PeerStream *stream : waiting) stream->resume();
}

}  // namespace weft::tcp
