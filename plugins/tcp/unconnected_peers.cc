// SPDX-License-Identifier: BSD-2-Clause
// The peers of an unconnected endpoint: their names and limits, their streams, and the connections
// that they ask for.
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/memory/room.h>
#include <weft/sdk/peer/crowd.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "plugins/tcp/fabric.h"
#include "plugins/tcp/socket.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {
namespace {

constexpr uint64_t kStuckNs = 1'000'000'000;

}  // namespace

Peer *UnconnectedEndpoint::find_or_add(const sdk::SockAddr &address, uint32_t index) {
  auto &place = peers_[address];
  if (place == nullptr) {
    uint32_t source = sdk::Av::entry_of(index);
    if (index == sdk::Av::kNone)
      source = sdk::Matcher::kFirstUnnamed + (next_unnamed_++ & 0x3fffffff);
    place = std::make_unique<Peer>(*this, address, source);
  }
  return place.get();
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

// The peer for an incoming request. Null: there is no room now. A known peer without a stream, of
// which only messages are left, needs a place like a new one. `believed`: it is the context that it
// says it is, or says nothing of the kind.
Peer *UnconnectedEndpoint::incoming_peer(const sdk::SockAddr &address, unsigned place,
                                         bool believed) {
  const bool full = unnamed_streams_ >= max_unnamed_;
  const auto known = peers_.find(address);
  if (known != peers_.end()) {
    Peer &peer = *known->second;
    if (!full || peer.is_named() || peer.streams != 0) return &peer;
  }
  const uint32_t index =
      believed && (names_sources_ || full) ? av()->find_context(address, place) : sdk::Av::kNone;
  if (index != sdk::Av::kNone) return peer_at(index);
  if (full) {
    make_room_for_a_stranger();
    return nullptr;
  }
  return find_or_add(address, sdk::Av::kNone);
}

// An idle stranger makes room. Where none is idle, one does that has said nothing whole for a
// while: it could keep its place by a message that it never ends. The refused peer will ask again.
void UnconnectedEndpoint::make_room_for_a_stranger() {
  counters().peers_refused.add();
  if (!std::exchange(refusal_told_, true))
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "%zu peers that are not in the address vector are connected, and more come: those "
              "idle for longest are closed (max_unnamed_peers, and half of `ulimit -n`)",
              unnamed_streams_);
  look_at_streams();
  if (PeerStream *idle = first_stranger([](const PeerStream &s) { return s.is_idle(); })) {
    close_idle(*idle);
  } else if (PeerStream *stuck = first_stranger([](const PeerStream &s) { return s.is_stuck(); })) {
    stuck->end(FI_ETIMEDOUT);
  }
}

void UnconnectedEndpoint::look_at_streams() {
  const uint64_t now = sdk::now_ns();
  if (now - looked_at_ < kStuckNs) return;
  looked_at_ = now;
  for (PeerStream *stream : streams_) stream->look_at_input();
}

template <class F>
PeerStream *UnconnectedEndpoint::first_stranger(F may_go) const {
  sdk::Crowd crowd;
  for (const PeerStream *stream : streams_)
    if (!stream->peer().is_named()) crowd.add(stream->peer().address);
  PeerStream *first = nullptr;
  for (PeerStream *stream : streams_) {
    const Peer &peer = stream->peer();
    if (peer.is_named() || peer.stream != stream || !may_go(*stream)) continue;
    if (crowd.goes_before(peer.address, stream->last_used())) first = stream;
  }
  return first;
}

void UnconnectedEndpoint::on_av_inserted(uint32_t index, const sdk::Address &address) {
  if (peers_.empty()) return;
  try {
    const sdk::SockAddr at = sdk::SockAddr::of(address);
    if (peers_.contains(at)) peer_at(index);
    if (has_places_) judge_claims(at);
  } catch (const std::bad_alloc &) {
    // It stays unnamed until the application sends to it.
  }
}

void UnconnectedEndpoint::on_av_removed(uint32_t index) {
  Peer *peer = table_.at(index);
  if (peer == nullptr) return;
  table_.set(index, nullptr);
  std::erase(peer->indices, index);
  const uint32_t entry = sdk::Av::entry_of(index);
  owners_.forget(entry);
  if (peer->source != entry) return;
  set_source(*peer, peer->indices.empty()
                        ? sdk::Matcher::kFirstUnnamed + (next_unnamed_++ & 0x3fffffff)
                        : sdk::Av::entry_of(*std::ranges::min_element(peer->indices)));
  receiver().rename_source(entry, peer->source);
}

PeerStream *UnconnectedEndpoint::make_stream(Peer &peer, int fd, const Terms &terms) {
  std::unique_ptr<PeerStream> stream;
  try {
    // Memory that bury() will need, so that it cannot fail.
    const size_t n = streams_.size() + 1;
    sdk::have_room(streams_, n);
    sdk::have_room(stalled_, n);
    sdk::have_room(buried_, buried_.size() + n);
    stream = std::make_unique<PeerStream>(*this, peer, fd, terms);
  } catch (const std::bad_alloc &) {
    WEFT_WARN_SPARSE(instance(), FI_LOG_EP_CTRL, "no memory for a connection to %s",
                     peer.address.to_string().c_str());
    return nullptr;
  }
  stream->place = streams_.size();
  streams_.push_back(stream.get());
  ++peer.streams;
  if (!peer.is_named()) ++unnamed_streams_;
  if (settings().max_connections != 0 && streams_.size() > settings().max_connections) {
    if (PeerStream *idle = longest_idle()) close_idle(*idle);
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

// The idle stream that was unused for longest, without the newest one.
PeerStream *UnconnectedEndpoint::longest_idle() const {
  PeerStream *oldest = nullptr;
  for (PeerStream *stream : streams_) {
    if (stream->peer().stream != stream || stream == streams_.back()) continue;
    if (oldest != nullptr && stream->last_used() >= oldest->last_used()) continue;
    if (stream->is_idle()) oldest = stream;
  }
  return oldest;
}

// An unnamed peer could keep its place by not closing its side. So it gets a time limit.
void UnconnectedEndpoint::close_idle(PeerStream &stream) {
  Peer &peer = stream.peer();
  peer.stream = nullptr;
  peer.probe.reset();
  peer.link.on_probe_ended();
  peer.leaving = &stream;
  peer.link.on_lost(sdk::now_ns(), /*wanted=*/false, 0);
  stream.say_goodbye(/*hurry=*/!peer.is_named());
}

void UnconnectedEndpoint::drop_region(const sdk::Mr &mr) {
  for (size_t i = streams_.size(); i-- > 0;) {
    streams_[i]->drop_region(mr);
    i = std::min(i, streams_.size());
  }
}

// ---- contexts of scalable endpoints ----

// What a peer says of its place counts where it would get a name by it.
sdk::PlaceOwners::Claim UnconnectedEndpoint::judge(const sdk::SockAddr &remote, unsigned place) {
  using Claim = sdk::PlaceOwners::Claim;
  if (place == 0) return Claim::kTrue;
  if (!names_sources_ && unnamed_streams_ < max_unnamed_) return Claim::kFalse;
  return owners_.judge(remote, place, sdk::now_ns());
}

// The endpoint at `first` is in the address vector now, and peers may have said that they are its
// contexts.
void UnconnectedEndpoint::judge_claims(const sdk::SockAddr &first) {
  sdk::SockAddr at = first;
  for (unsigned place = 1; place < sdk::Av::kContexts; ++place) {
    if (first.port() + place > UINT16_MAX) return;
    at.set_port(uint16_t(first.port() + place));
    const auto known = peers_.find(at);
    if (known == peers_.end() || known->second->place != place) continue;
    if (owners_.judge(at, place, sdk::now_ns()) == sdk::PlaceOwners::Claim::kTrue)
      peer_at(av()->find_context(at, place));
  }
}

bool UnconnectedEndpoint::is_connected(uint32_t entry) {
  const Peer *known = table_.at(entry);
  return known != nullptr && known->stream != nullptr;
}

void UnconnectedEndpoint::ask_for_places(uint32_t entry, const sdk::Address &) {
  if (Peer *owner = peer_at(entry)) owner->ask();
}

void UnconnectedEndpoint::name_context(const sdk::Address &address, unsigned place,
                                       uint32_t index) {
  const auto known = peers_.find(sdk::SockAddr::of(address));
  if (known != peers_.end() && known->second->place == place) peer_at(index);
}

void UnconnectedEndpoint::drop_context(const sdk::Address &address, unsigned place) {
  const auto known = peers_.find(sdk::SockAddr::of(address));
  if (known == peers_.end() || known->second->place != place) return;
  if (PeerStream *stream = known->second->stream) stream->end(FI_ECONNRESET);
}

void UnconnectedEndpoint::on_answer_of(const Peer &peer, uint8_t last_place) {
  owners_.told(peer.source, peer.address, last_place, sdk::now_ns());
}

// ---- requests of peers ----

// `reason`: the private data of the request, if the requester may ask again.
void UnconnectedEndpoint::reject(int fd, std::span<const uint8_t> reason) {
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n =
      encode_connect(ConnectType::kReject, reason, message, ByteOrder::kNative, 0, last_place());
  // An answer to a requester that is gone may be lost.
  [[maybe_unused]] const ssize_t sent = ::send(fd, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(fd, SHUT_WR);
  ::close(fd);
}

void UnconnectedEndpoint::on_request(int fd, const ConnectReader &request) {
  const auto hello = parse_hello(request.private_bytes());
  auto remote = socket_peer(fd);
  if (!hello || !remote) {
    counters().refused_version.add();
    if (!hello)
      WEFT_INFO_SPARSE(instance(), FI_LOG_EP_CTRL, "a connection is refused: %s",
                       text(hello.error()));
    ::close(fd);
    return;
  }
  if (only_transmits()) return reject(fd, {});
  if (!enabled()) return reject(fd, request.private_bytes());
  remote->set_port(hello->port);
  const auto claim = judge(*remote, hello->place());
  const bool believed = claim == sdk::PlaceOwner::Claim::kTrue;
  const bool undecided =
      claim == sdk::PlaceOwner::Claim::kAsk || claim == sdk::PlaceOwner::Claim::kWait;
  Peer *peer = undecided ? nullptr : requester(*remote, hello->place(), believed);
  if (peer == nullptr) return reject(fd, request.private_bytes());
  peer->place = hello->place();
  has_places_ |= peer->place != 0;
  const sdk::PeerLink::Decision decision = decide(*peer, *remote <=> address_at(fd), *hello);
  if (!decision.accept) {
    reject(fd, request.private_bytes());
    if (decision.claim) peer->challenge(decision.next, !(hello->features & kCannotBeCalled));
    return check(*peer);
  }
  if (!decision.second) peer->yield(decision.to_probe);
  accept(fd, request, *hello, *peer, decision.second);
}

// The peer that asks for a connection. Null: it must ask again.
Peer *UnconnectedEndpoint::requester(const sdk::SockAddr &remote, unsigned place, bool believed) {
  Peer *peer = incoming_peer(remote, place, believed);
  if (peer == nullptr) return nullptr;
  if (peer->leaving != nullptr) {
    // Its messages on the old stream come first.
    peer->leaving->read_out();
    if (peer->leaving != nullptr) return nullptr;
  }
  if (peer->attempt == nullptr) return peer;
  // A process that accepted our attempt, and died, had the address before this requester.
  peer->attempt->look();
  return incoming_peer(remote, place, believed);
}

// The address by which the peer at the other end knows us.
sdk::SockAddr UnconnectedEndpoint::address_at(int fd) const {
  sdk::SockAddr own = acceptor_.name();
  if (!own.is_any()) return own;
  own = socket_name(fd).value_or(own);
  own.set_port(acceptor_.name().port());
  return own;
}

// `order`: the peer's address compared with ours.
sdk::PeerLink::Decision UnconnectedEndpoint::decide(Peer &peer, std::strong_ordering order,
                                                    const RdmHello &hello) {
  if (peer.link.is_up() && peer.stream != nullptr) {
    if (peer.link.process() != hello.process) {
      peer.stream->is_over();  // if it is, there is no link
    } else if (!peer.stream->reads()) {
      // Messages wait here for room, and the end of the stream may be behind them.
      peer.stream->ask_whether_alive();
      return {};
    }
  }
  return peer.link.on_request(order, hello.process, sdk::now_ns());
}

void UnconnectedEndpoint::accept(int fd, const ConnectReader &request, const RdmHello &hello,
                                 Peer &peer, bool second) {
  RdmHello answer = this->hello(hello.port);
  answer.version = answer_to(hello.version);
  answer.features = features_of_answer(hello.features);
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n = encode_connect(ConnectType::kAccept, encode_hello(answer), message,
                                  ByteOrder::kNative, 0, last_place());
  if (::send(fd, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(n)) {
    // The requester is gone.
    ::close(fd);
    return second ? check(peer) : peer.lost();
  }
  counters().connections_accepted.add();
  peer.open_stream(fd, terms_of(request.header().order, answer.version, answer.features), second);
  if (!second && peer.stream != nullptr && peer.place == 0 && peer.is_named())
    owners_.begun(peer.source, peer.address, sdk::now_ns());
}

}  // namespace weft::tcp
