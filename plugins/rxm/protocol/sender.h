// SPDX-License-Identifier: BSD-2-Clause
// Sender: gives packets to the carrier, as far as the peer's credits go, and knows which
// connections wait for room there.
//
// Example:
//    // What a connection has to say, and again when there is room.
//    inline void say(Sender &sender, Connection &c, const iovec &packet) {
//      if (sender.send(c, &packet, 1, FI_INJECT, nullptr) == -FI_EAGAIN) sender.block(c);
//    }
//    inline void poll(Sender &sender, const iovec &packet) {
//      sender.resume([&](Connection &c) {
//        return sender.send(c, &packet, 1, FI_INJECT, nullptr) != -FI_EAGAIN;
//      });
//    }
//
// It owns what a connection has in Connection::sending. Not for what is in a packet.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_SENDER_H
#define WEFT_PLUGINS_RXM_PROTOCOL_SENDER_H

#include <rdma/fi_errno.h>

#include <algorithm>
#include <vector>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/settings.h"

namespace weft::rxm {

class Sender {
 public:
  Sender(Carrier &carrier, const Settings &settings) : carrier_(carrier), settings_(settings) {}
  Sender(const Sender &) = delete;
  Sender &operator=(const Sender &) = delete;

  // ---- packets ----
  // 0, -FI_EAGAIN (no credit, or the carrier has no room), or another error of the carrier. `data`,
  // `flags`, `token`: as in Carrier::send().
  ssize_t send(Connection &c, const iovec *iov, size_t count, uint64_t flags, Token *token,
               void *const *desc = nullptr, uint32_t data = 0) {
    Credits &credits = c.sending.credits_;
    if (!credits.has_room()) return -FI_EAGAIN;
    const ssize_t rc = carrier_.send(*c.link(), iov, desc, count, data, flags, token);
    if (rc == 0) credits.spend();
    return rc;
  }

  // ---- credits ----
  void use_credits(Connection &c, bool both) { c.sending.credits_.use(both); }
  // The peer has told of `count` receives.
  void grant(Connection &c, uint64_t count) {
    c.sending.credits_.grant(count);
    if (c.state() == State::kConnected) block(c);
  }
  // For what the carrier sends without a packet, and the peer needs a receive for.
  void spend(Connection &c) { c.sending.credits_.spend(); }
  // The carrier posted as many receives of this connection.
  void repost(Connection &c, uint32_t count) { c.sending.credits_.repost(count); }
  // Tells the peer of them, when they are enough to tell. False: the carrier has no room.
  bool tell_credits(Connection &c);

  // ---- passes: what is told during one may wait for the reply (weft/sdk/progress/replies.h) ----
  void begin_pass() { ++passes_; }
  // A message of the application goes to this peer.
  void replies(Connection &c) { c.sending.replies_.sent(passes_); }
  // The peer is told something. True: it may leave with what follows.
  bool tells(Connection &c) {
    c.sending.replies_.told(passes_);
    return c.sending.replies_.expected();
  }

  // ---- connections that wait ----
  bool has_blocked() const { return !blocked_.empty(); }
  void block(Connection &c) {
    if (c.sending.blocked_) return;
    c.sending.blocked_ = true;
    blocked_.push_back(&c);
  }
  void forget(Connection &c) {  // it is about to be deleted
    if (c.sending.blocked_) std::erase(blocked_, &c);
  }
  // Calls `flush` for each that is connected. False: it waits on.
  template <class F>
  void resume(F flush) {
    resuming_.swap(blocked_);
    for (Connection *c : resuming_) c->sending.blocked_ = false;
    for (size_t i = 0; i < resuming_.size(); ++i) {
      Connection &c = *resuming_[i];
      if (c.state() == State::kConnected && !flush(c)) block(c);
    }
    resuming_.clear();
  }

 private:
  Carrier &carrier_;
  const Settings &settings_;
  std::vector<Connection *> blocked_, resuming_;
  uint64_t passes_ = 0;
};

}  // namespace weft::rxm

#endif
