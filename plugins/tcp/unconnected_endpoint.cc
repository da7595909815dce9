// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/unconnected_endpoint.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/alias.h>
#include <weft/sdk/levels.h>
#include <weft/sdk/log.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {
namespace {

// How long a look for new connections may wait where somebody spins on other sockets.
constexpr uint64_t kLookPauseNs = 20'000;

bool wants_sources(const fi_info &info) {
  return info.caps & (FI_SOURCE | FI_SOURCE_ERR | FI_DIRECTED_RECV);
}

}  // namespace

// ---- life ----

UnconnectedEndpoint::UnconnectedEndpoint(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      RdmEndpoint(domain.shared(), *this, info,
                  {.tx_size = domain.fabric().settings().tx_size,
                   .rx_size = domain.fabric().settings().rx_size,
                   .inject_size = kInjectSize,
                   .max_inject_size = kMaxInjectSize,
                   .max_msg_size = kMaxMessageSize}),
      tcp_domain_(domain),
      engine_(domain.engine()),
      addr_format_(info.addr_format),
      process_(uint32_t(getpid())),
      acceptor_(domain.instance(), domain.engine(), domain.fabric().settings(),
                domain.fabric().stats(), *this, kLookPauseNs),
      tx_ops_(limits().tx_size),
      control_ops_(SIZE_MAX, 8),
      names_sources_(wants_sources(info)),
      announces_((sdk::order_of(info) & (FI_ORDER_RAS | FI_ORDER_WAS)) == 0) {
  set_tables(*this);
  receiver().min_multi_recv() = kRdmMinMultiRecv;
}

Result<UnconnectedEndpoint *> UnconnectedEndpoint::open(Domain &domain, const fi_info &info,
                                                        void *context) {
  for (size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                      info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > kMaxQueueSize)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: at most %zu", size, kMaxQueueSize);
  sdk::SockAddr local =
      sdk::SockAddr::any(sdk::family_of(info.addr_format) == AF_INET6 ? AF_INET6 : AF_INET);
  if (info.src_addr != nullptr) {
    WEFT_TRY(local, sdk::read_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  std::unique_ptr<UnconnectedEndpoint, void (*)(UnconnectedEndpoint *)> ep(
      new UnconnectedEndpoint(domain, info, context), [](UnconnectedEndpoint *e) { delete e; });
  ep->local_ = local;
  WEFT_TRY(ep->keys_, Keys::of(info, &domain.keys(), domain.fabric().settings(),
                               domain.fabric().api_version()));
  ep->acceptor_.set_keys(ep->keys_);
  WEFT_CHECK(ep->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  sdk::Guard guard(domain.engine().lock());
  domain.unconnected().push_back(ep.get());
  return ep.release();
}

const Settings &UnconnectedEndpoint::settings() const {
  return tcp_domain_.fabric().settings();
}

Stats &UnconnectedEndpoint::stats() {
  return tcp_domain_.fabric().stats();
}

RdmHello UnconnectedEndpoint::hello(uint16_t port) const {
  return {.features = kSaysWhenFull, .port = port, .process = process_};
}

int UnconnectedEndpoint::setname(void *addr, size_t len) {
  auto address = sdk::read_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(engine_.lock());
  if (enabled()) return -FI_EOPBADSTATE;
  if (acceptor_.bound()) {
    if (auto bound = acceptor_.bind(*address); !bound) {
      WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_setname: %s", bound.error().text.c_str());
      return -bound.error().code;
    }
  }
  local_ = *address;
  return 0;
}

// The port is settled by whoever asks first: this, or fi_enable.
int UnconnectedEndpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(engine_.lock());
  if (!acceptor_.bound()) {
    if (auto bound = acceptor_.bind(local_); !bound) {
      WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_getname: %s", bound.error().text.c_str());
      return -bound.error().code;
    }
  }
  return sdk::write_address(acceptor_.name(), addr_format_, addr, len);
}

Result<void> UnconnectedEndpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings());
  if (!acceptor_.bound()) WEFT_CHECK(acceptor_.bind(local_));
  WEFT_CHECK(acceptor_.listen(settings().backlog));
  max_unnamed_ = std::clamp<size_t>(descriptor_limit() / 2, 1, settings().max_unnamed_peers);
  av()->add_user(*this, true);
  set_enabled();
  return {};
}

int UnconnectedEndpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<UnconnectedEndpoint>::open(*this, arg);
  if (command != FI_ENABLE) return control_flags(command, arg);
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

// What was injected is the endpoint's to deliver: sockets and peers that are about to take it get a
// moment.
void UnconnectedEndpoint::linger() {
  const uint64_t end = sdk::now_ns() + uint64_t(settings().close_linger_ms) * 1'000'000u;
  std::vector<pollfd> waiting;
  for (;;) {
    engine_.progress();
    waiting.clear();
    bool will_connect = false;
    for (PeerStream *stream : streams_)
      if (stream->drains()) waiting.push_back({stream->socket(), POLLOUT, 0});
    for (auto &[address, peer] : peers_) {
      if (peer->pending.empty() || peer->attempt == nullptr) continue;
      will_connect = true;
      if (peer->attempt->connecting())
        waiting.push_back({peer->attempt->socket(), peer->attempt->awaited(), 0});
    }
    const uint64_t now = sdk::now_ns();
    if ((waiting.empty() && !will_connect) || now >= end) return;
    // The engine does the work; this only waits until there may be some. A peer that is asked again
    // later, or has to connect to us instead, is no descriptor of these, hence the bound.
    ::poll(waiting.data(), nfds_t(waiting.size()),
           int(std::min<uint64_t>((end - now) / 1'000'000u + 1, 10)));
  }
}

int UnconnectedEndpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  retire();
  {
    sdk::Guard guard(engine_.lock());
    if (enabled()) linger();
    // What is outstanding is dropped: its completions could name an endpoint that is gone
    // (fi_endpoint.3, fi_close).
    const bool was_enabled = enabled();
    detach();
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
  domain_.children.fetch_sub(1);
  delete this;
  return 0;
}

// ---- peers ----

Peer *UnconnectedEndpoint::find_or_add(const sdk::SockAddr &address, uint32_t index) {
  auto &place = peers_[address];
  if (place == nullptr) {
    uint32_t source = index;
    if (source == sdk::Av::kNone)
      source = sdk::Matcher::kFirstUnnamed + (next_unnamed_++ & 0x3fffffff);
    place = std::make_unique<Peer>(*this, address, source);
  }
  return place.get();
}

Peer *UnconnectedEndpoint::peer_at(uint32_t index) {
  if (Peer *peer = table_.at(index)) return peer;
  const auto address = av()->address(index);
  if (!address) return nullptr;
  Peer *peer = find_or_add(*address, index);
  table_.set(index, peer);
  peer->indices.push_back(index);
  if (!peer->is_named()) {
    const uint32_t before = peer->source;
    set_source(*peer, index);
    receiver().rename_source(before, index);
  }
  return peer;
}

void UnconnectedEndpoint::set_source(Peer &peer, uint32_t source) {
  const bool was_named = peer.is_named();
  peer.source = source;
  if (peer.is_named() == was_named) return;
  if (was_named) {
    unnamed_streams_ += peer.streams;
    unnamed_bytes_ += peer.arrived_bytes;
  } else {
    unnamed_streams_ -= peer.streams;
    unnamed_bytes_ -= peer.arrived_bytes;
  }
}

// Somebody who comes unasked. Null: there is no room for it now. Of a peer that has gone only its
// messages are left: when it comes back it needs a place as others do.
Peer *UnconnectedEndpoint::incoming_peer(const sdk::SockAddr &address) {
  const bool full = unnamed_streams_ >= max_unnamed_;
  const auto known = peers_.find(address);
  if (known != peers_.end()) {
    Peer &peer = *known->second;
    if (!full || peer.is_named() || peer.streams != 0) return &peer;
  }
  const uint32_t index = names_sources_ || full ? av()->find(address) : sdk::Av::kNone;
  if (index != sdk::Av::kNone) return peer_at(index);
  if (full) {
    make_room_for_a_stranger();
    return nullptr;
  }
  return find_or_add(address, sdk::Av::kNone);
}

// Who was refused asks again.
void UnconnectedEndpoint::make_room_for_a_stranger() {
  stats().add(Stat::kPeersRefused);
  if (!std::exchange(refusal_told_, true))
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "%zu peers that are not in the address vector are connected, and more come: those "
              "idle for longest are closed (max_unnamed_peers, and half of `ulimit -n`)",
              unnamed_streams_);
  if (PeerStream *idle = longest_idle(/*unnamed_only=*/true)) close_idle(*idle);
}

void UnconnectedEndpoint::on_av_inserted(uint32_t index, const sdk::SockAddr &address) {
  if (peers_.empty() || !peers_.contains(address)) return;
  try {
    peer_at(index);
  } catch (const std::bad_alloc &) {
    // It keeps the number that it has until somebody sends to it.
  }
}

void UnconnectedEndpoint::on_av_removed(uint32_t index) {
  Peer *peer = table_.at(index);
  if (peer == nullptr) return;
  table_.set(index, nullptr);
  std::erase(peer->indices, index);
  if (peer->source != index) return;
  set_source(*peer, peer->indices.empty()
                        ? sdk::Matcher::kFirstUnnamed + (next_unnamed_++ & 0x3fffffff)
                        : *std::ranges::min_element(peer->indices));
  receiver().rename_source(index, peer->source);
}

void UnconnectedEndpoint::check(Peer &peer) {
  if (!peer.is_idle()) return;
  idle_.push_back(&peer);
  engine_.mark_dirty(*this);
}

// Nobody is inside of any of these now.
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

PeerStream *UnconnectedEndpoint::make_stream(Peer &peer, int fd, const Terms &terms) {
  std::unique_ptr<PeerStream> stream;
  try {
    // All that burying it will need, so that it cannot fail.
    const auto have_room = [](auto &list, size_t n) {
      if (list.capacity() < n) list.reserve(2 * n);
    };
    const size_t n = streams_.size() + 1;
    have_room(streams_, n);
    have_room(stalled_, n);
    have_room(buried_, buried_.size() + n);
    stream = std::make_unique<PeerStream>(*this, peer, fd, terms);
  } catch (const std::bad_alloc &) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "no memory for a connection to %s",
              peer.address.to_string().c_str());
    return nullptr;
  }
  stream->place = streams_.size();
  streams_.push_back(stream.get());
  ++peer.streams;
  if (!peer.is_named()) ++unnamed_streams_;
  if (settings().max_connections != 0 && streams_.size() > settings().max_connections) {
    if (PeerStream *idle = longest_idle(/*unnamed_only=*/false)) close_idle(*idle);
  }
  return stream.release();
}

void UnconnectedEndpoint::bury(PeerStream &stream) {
  streams_[stream.place] = streams_.back();
  streams_[stream.place]->place = stream.place;
  streams_.pop_back();
  std::erase(stalled_, &stream);
  --stream.peer().streams;
  shares_ -= stream.has_share();
  if (!stream.peer().is_named()) --unnamed_streams_;
  buried_.emplace_back(&stream);
  engine_.mark_dirty(*this);
}

// The one that was not used for longest, of those that nothing is happening on, but for the newest.
PeerStream *UnconnectedEndpoint::longest_idle(bool unnamed_only) const {
  PeerStream *oldest = nullptr;
  for (PeerStream *stream : streams_) {
    if (stream->peer().stream != stream) continue;
    if (unnamed_only ? stream->peer().is_named() : stream == streams_.back()) continue;
    if (oldest != nullptr && stream->last_used() >= oldest->last_used()) continue;
    if (stream->is_idle()) oldest = stream;
  }
  return oldest;
}

// Somebody whom nobody named keeps no place by not ending, too.
void UnconnectedEndpoint::close_idle(PeerStream &stream) {
  Peer &peer = stream.peer();
  peer.stream = nullptr;
  peer.probe.reset();
  peer.leaving = &stream;
  peer.link.on_lost();
  stream.say_goodbye(/*hurry=*/!peer.is_named());
}

void UnconnectedEndpoint::drop_region(const sdk::Mr &mr) {
  for (size_t i = streams_.size(); i-- > 0;) {
    streams_[i]->drop_region(mr);
    i = std::min(i, streams_.size());
  }
}

// ---- sending ----

RdmOperation *UnconnectedEndpoint::take_operation() {
  if (tx_cq_full()) return nullptr;
  RdmOperation *op = tx_ops_.take();
  if (op == nullptr) {
    // Staged injects hold their items; whoever only injects never makes progress.
    for (PeerStream *stream : std::vector(streams_)) stream->flush();
    op = tx_ops_.take();
    if (op == nullptr) return nullptr;
  }
  op->stage = RdmOperation::kWhole;
  op->rendezvous = false;
  op->number = 0;
  op->pin_count = 0;
  op->result_count = 0;
  return op;
}

ssize_t UnconnectedEndpoint::start(const sdk::SendRequest &r) {
  const uint32_t index = av()->peer_of(r.dest);
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  Peer *peer = peer_at(index);
  RdmOperation *op = take_operation();
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
  op->flags = FI_SEND | (r.tagged ? FI_TAGGED : FI_MSG);
  op->tagged = r.tagged;
  op->tag = r.tag;
  op->data = r.data;
  op->wire_flags = header.flags;
  op->length = r.length;
  op->context = r.context;
  op->report = r.report;
  op->fence = r.flags & FI_FENCE;
  op->more = r.flags & FI_MORE;
  op->set_header(header, peer->stream != nullptr ? peer->stream->order() : ByteOrder::kNative);
  if (!op->place(r.iov, r.count, r.length, r.flags & FI_INJECT)) {
    tx_ops_.give(op);
    return -FI_ENOMEM;
  }
  peer->launch(*op);
  return 0;
}

ssize_t UnconnectedEndpoint::start(const sdk::RmaRequest &r) {
  const uint32_t index = av()->peer_of(r.dest);
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  Peer *peer = peer_at(index);
  RdmOperation *op = take_operation();
  if (op == nullptr) return -FI_EAGAIN;
  op->tagged = false;
  op->tag = 0;
  op->more = r.flags & FI_MORE;
  if (!op->prepare(r, peer->stream != nullptr ? peer->stream->order() : ByteOrder::kNative)) {
    tx_ops_.give(op);
    return -FI_ENOMEM;
  }
  peer->launch(*op);
  return 0;
}

void UnconnectedEndpoint::finish(RdmOperation &op, int error) {
  op.drop_copy();
  if (error == 0) {
    succeed_tx(op.context, op.flags, op.length, op.report);
  } else {
    finish_tx({.context = op.context,
               .flags = op.flags,
               .length = op.length,
               .tag = op.tag,
               .report = op.report,
               .err = error});
  }
  tx_ops_.give(&op);
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
  // A peer that nobody named may be there only for this.
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
  // Somebody's message may have room now. Not at once: our caller is in the middle of something.
  if (!stalled_.empty()) engine_.mark_dirty(*this);
  if (peer.saved == 0) check(peer);
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
      for (size_t i = 0; i < receive.count && left != 0; ++i) {
        const size_t n = size_t(std::min<uint64_t>(left, receive.iov[i].iov_len));
        if (n != 0) std::memcpy(receive.iov[i].iov_base, from, n);
        from += n;
        left -= n;
      }
      receiver().complete(receive, saved.message, size_t(placed), 0);
    }
  }
  release(&saved);
}

void UnconnectedEndpoint::discard(sdk::Unexpected &message) {
  auto &saved = static_cast<Saved &>(message);
  if (saved.stage == Saved::kFetching) {
    saved.dropped = true;
    return;
  }
  // There is no way to say no: what was announced is fetched and dropped.
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
  // Those that find no place this time either come back to the list.
  std::vector<PeerStream *> waiting;
  waiting.swap(stalled_);
  for (PeerStream *stream : waiting) stream->resume();
}

// ---- connections that others ask for ----

void UnconnectedEndpoint::on_request(int fd, const ConnectReader &request) {
  const auto reject = [&](bool answer) {
    if (answer) {
      std::array<uint8_t, kMaxConnectSize> message;
      const size_t n = encode_connect(ConnectType::kReject, request.private_bytes(), message);
      // A requester that is gone needs no answer.
      [[maybe_unused]] const ssize_t sent =
          ::send(fd, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT);
      ::shutdown(fd, SHUT_WR);
    }
    ::close(fd);
  };
  const auto hello = parse_hello(request.private_bytes());
  auto remote = socket_peer(fd);
  if (!hello || !remote) {
    stats().add(Stat::kConnectionsRefusedVersion);
    if (!hello)
      WEFT_INFO(instance(), FI_LOG_EP_CTRL, "a connection is refused: %s", text(hello.error()));
    return reject(false);
  }
  remote->set_port(hello->port);
  // The name by which the peer knows us, if we listen everywhere.
  sdk::SockAddr own = acceptor_.name();
  if (own.is_any()) {
    own = socket_name(fd).value_or(own);
    own.set_port(acceptor_.name().port());
  }
  Peer *peer = incoming_peer(*remote);
  if (peer == nullptr) return reject(true);
  if (peer->leaving != nullptr) {
    // What it sent on the old stream comes first; it asks again.
    peer->leaving->read_out();
    if (peer->leaving != nullptr) return reject(true);
  }
  if (peer->attempt != nullptr) {
    // Who accepted that, and died, had the address before this one.
    peer->attempt->look();
    peer = incoming_peer(*remote);
    if (peer == nullptr) return reject(true);
  }
  PeerLink::Decision decision = peer->link.on_request(*remote <=> own, hello->process);
  if (decision.challenge && peer->stream != nullptr) {
    if (peer->stream->is_over()) {
      decision = peer->link.on_request(*remote <=> own, hello->process);
    } else {
      peer->challenge(!(hello->features & kCannotBeCalled));
    }
  }
  if (!decision.accept) {
    reject(true);
    return check(*peer);
  }
  if (!decision.second) peer->yield();
  RdmHello answer = this->hello(hello->port);
  answer.version = answer_to(hello->version);
  answer.features = hello->features & kSaysWhenFull ? kSaysWhenFullToo : 0;
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n = encode_connect(ConnectType::kAccept, encode_hello(answer), message);
  if (::send(fd, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(n)) {
    // The requester is gone.
    ::close(fd);
    if (decision.second) return check(*peer);
    peer->link.on_lost();
    return peer->reconnect();
  }
  stats().add(Stat::kConnectionsAccepted);
  peer->open_stream(fd, terms_of(request.header().order, answer.version, answer.features),
                    decision.second);
}

}  // namespace weft::tcp
