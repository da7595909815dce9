// SPDX-License-Identifier: BSD-2-Clause
// The thief and the relay among the parties of the stateful fuzz target, deaths and restarts of the
// friends, and how all of it ends.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/info.h"
#include "plugins/tcp/fuzz/sockets.h"
#include "plugins/tcp/fuzz/world.h"

namespace weft::tcp::fuzz {

void World::let_act() {
  const uint8_t how = in_.u8();
  friendship_.may_meet = true;
  thief_ = std::make_unique<Thief>(friendship_);
  const uint8_t hosts[] = {kOwnHost, kFriendHost, kRelayHost, kRelayHost};
  relay_ = std::make_unique<Relay>(friendship_, hosts[how & 3]);
  at_ = us_.name(&us_.endpoints[0]->ep->fid);
  friend_at_ = them_.name(&them_.endpoints[0]->ep->fid);
  const sockaddr_in at = relay_->address();
  for (Node *node : {&us_, &them_})
    FUZZ_CHECK(fi_av_insert(node->av, &at, 1, &relay_addrs_[node == &them_], 0, nullptr) == 1);
  if (how & 4) relay_->listen();
  if (how & 8) return them_.endpoints[0]->close();  // it has not started yet
  // The friends are connected before anybody acts.
  say(*us_.endpoints[0]);
  say(*them_.endpoints[0]);
  for (int i = 0; i < 50 && !done(); ++i) attend();
  FUZZ_CHECK(done(), "friends are not connected though nobody keeps them from it");
}

void World::say(Endpoint &from) {
  const uint8_t bytes[] = {0, 9, 0};  // untagged, nine bytes
  Input what(bytes, sizeof bytes);
  from.send(what, true, from.other_addr);
}

void World::act(uint8_t command) {
  return command & 0x20 ? relay() : thieve();
}

void World::thieve() {
  const uint8_t what = in_.u8();
  // It takes the friend for our endpoint, or the reverse.
  const Node &victim = what & 0x80 ? them_ : us_;
  switch (what % 8) {
    case 0:
      if (them_.endpoints[0]->ep == nullptr) thief_->listen(friend_at_);
      return;
    case 1:
      return thief_->accept(in_);
    case 2:
    case 3:
      // Where it listens itself, it would only talk to itself.
      if (&victim == &them_ && thief_->listens()) return;
      return thief_->claim(in_, address(victim), address(&victim == &us_ ? them_ : us_));
    case 4:
    case 5:
      return thief_->speak(in_);
    case 6:
      return thief_->hang_up(in_);
    default:
      return kill_or_start_friend();
  }
}

void World::relay() {
  const uint8_t what = in_.u8();
  switch (what % 8) {
    case 0:
      return relay_->listen();
    case 1:
      return relay_->accept(address(what & 0x80 ? them_ : us_));
    case 2:
      return relay_->hang_up(in_);
    case 3:
    case 4:
      if (Endpoint *e = some(what >> 7); e != nullptr)
        e->send(in_, false, relay_addrs_[e->number], kRelayed | relayed_++ << 1 | e->number);
      return;
    default:
      return relay_->pass(in_);
  }
}

// Checks what the actors have got.
void World::look() {
  if (thief_ == nullptr) return;
  thief_->look();
  relay_->look();
  for (const sockaddr_in &victim : {at_, friend_at_})
    FUZZ_CHECK(thief_->unnamed(victim) <= settings_.max_unnamed_peers,
               "a stranger has more connections than its share");
}

void World::kill_or_start_friend() {
  Endpoint &e = *them_.endpoints[0];
  if (e.ep != nullptr) return e.close();
  start(them_, friend_at_);
}

// The application starts again, at the same address if it has one.
void World::reopen(Node &node) {
  if (node.endpoints.empty()) return;
  Endpoint &e = *node.endpoints[in_.u8() % node.endpoints.size()];
  if (e.ep == nullptr) return;
  if (node.connected) return e.close();
  const sockaddr_in at = node.name(&e.ep->fid);
  e.close();
  start(node, at);
}

// False: another process has the address.
bool World::start(Node &node, const sockaddr_in &at) {
  if (&node == &them_ && thief_ != nullptr && thief_->listens()) return false;
  Endpoint &e = *node.endpoints.back();
  set_process(int(1000 * (&node == &us_ ? 1 : 2)) + in_.u8() % 2);
  fi_info *info = dup_info(node.info);
  std::memcpy(info->src_addr, &at, sizeof at);
  const Endpoint *const before = &e;
  const fi_addr_t other = e.other_addr;
  Endpoint *friend_of = e.other;
  const bool strict = e.strict;
  must(fi_close(&e.cq->fid));
  std::unique_ptr<Endpoint> gone = std::move(node.endpoints.back());
  node.endpoints.pop_back();
  Endpoint &again = node.make(info);
  free_info(info);
  again.strict = strict || !friendship_.may_meet;
  again.number = &node == &us_ ? 0 : 1;
  again.other_addr = other;
  again.other = friend_of;
  again.friendship = &friendship_;
  again.target = (&node == &us_ ? them_ : us_).region.get();
  friend_of->other = &again;
  for (Message &m : friendship_.messages)
    if (m.to == before) m.to = &again;
  return true;
}

// Both applications do what is to be done. False: nothing has come.
bool World::attend() {
  bool any = false;
  for (Node *node : {&us_, &them_}) {
    read_events(*node);
    for (const auto &e : node->endpoints) {
      if (e->ep == nullptr) continue;
      e->take_claims();
      e->settle_all_told();
      e->post_any();
      any |= e->drain(16);
    }
  }
  pass_time(10'000'000);
  return any;
}

// All operations between friends have ended, and their messages have arrived.
bool World::done() const {
  for (const Node *node : {&us_, &them_})
    for (const auto &e : node->endpoints)
      if (e->ep != nullptr && e->outstanding_with_friend() != 0) return false;
  return std::ranges::all_of(friendship_.messages, [this](const Message &m) {
    return m.arrived || !friendship_.promises(m);
  });
}

void World::tell_what_is_left() const {
  for (size_t i = 0; i < friendship_.messages.size(); ++i) {
    const Message &m = friendship_.messages[i];
    if (!m.arrived || !m.ended)
      std::fprintf(stderr, "message %zu %s, %zu bytes%s, tag %d:%s%s%s\n", i,
                   m.from == us_.endpoints[0].get() ? "to the friend" : "from the friend", m.length,
                   m.tagged ? ", tagged" : "", int(m.tag), m.ended ? "" : " not ended",
                   m.arrived ? "" : " not arrived", friendship_.promises(m) ? "" : ", excused");
  }
}

// Strangers close; all operations between friends end.
void World::settle() {
  for (const auto &s : strangers_) s->hang_up();
  dismiss();
  for (Node *node : {&us_, &them_})
    for (const auto &e : node->endpoints)
      if (e->ep != nullptr) e->cancel_all();
  // Earlier messages of strangers may come first, one per round.
  for (int idle = 0; idle < 300 && !done(); ++idle)
    if (attend()) idle = 0;
  if (!settings_.max_connections && !done()) {
    tell_what_is_left();
    std::fprintf(stderr, "an operation between friends never ends\n");
    std::abort();
  }
  if (thief_ != nullptr) reunite();
}

void World::dismiss() {
  if (thief_ == nullptr) return;
  for (const auto &s : strangers_) s->stop_listening();
  thief_->leave();
  relay_->leave();
  if (them_.endpoints[0]->ep == nullptr) start(them_, friend_at_);
}

// When all others have left, the friends find each other, whatever has happened.
void World::reunite() {
  for (int idle = 0; idle < 30; ++idle)
    if (attend()) idle = 0;
  friendship_.apart = false;
  // Nobody recorded what arrived until now, so earlier messages stay excused.
  if (std::exchange(friendship_.excused, false)) ++friendship_.life;
  friendship_.old_stolen = friendship_.stolen;
  say(*us_.endpoints[0]);
  say(*them_.endpoints[0]);
  for (int idle = 0; idle < 300 && !done(); ++idle)
    if (attend()) idle = 0;
  if (!done()) {
    tell_what_is_left();
    std::fprintf(stderr, "friends do not find each other\n");
    std::abort();
  }
}

}  // namespace weft::tcp::fuzz
