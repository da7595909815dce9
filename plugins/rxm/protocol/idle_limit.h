// SPDX-License-Identifier: BSD-2-Clause
// IdleLimit: how many connections there are, when each was used last, and which idle one is asked
// to part when there are more than Settings::max_connections.
//
// Example:
//    #include "plugins/rxm/protocol/answers.h"
//    // Until `most` are left, or no other may be asked.
//    inline void limit(IdleLimit &limit, Answers &answers, size_t most) {
//      while (Connection *const idlest = limit.idlest(most)) {
//        if (!answers.ask_to_part(*idlest)) return;
//        limit.asked(*idlest);
//      }
//    }
//
// It owns what a connection has in Connection::idleness. Stock peers cannot be asked, so their
// connections stay. Not for strangers that do nothing: stranger_limit.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_IDLE_LIMIT_H
#define WEFT_PLUGINS_RXM_PROTOCOL_IDLE_LIMIT_H

#include <cstddef>
#include <cstdint>

#include "plugins/rxm/protocol/peers.h"

namespace weft::rxm {

class IdleLimit {
 public:
  explicit IdleLimit(const Peers &peers) : peers_(peers) {}
  IdleLimit(const IdleLimit &) = delete;
  IdleLimit &operator=(const IdleLimit &) = delete;

  size_t connected() const { return connected_; }

  // A message has come, or leaves.
  void touch(Connection &c) { c.idleness.last_use_ = ++uses_; }
  void connect(const Connection &c);     // it is connected from now on
  void disconnect(const Connection &c);  // it is connected no more

  // The connection that was idle for longest. Null: there are at most `most` that stay, or no other
  // may be asked.
  Connection *idlest(size_t most) const;
  // The peer has been asked to part.
  void asked(Connection &c);
  // The peer has asked, and we agree.
  void agree(Connection &c);
  // The peer does not agree.
  void stay(Connection &c);

 private:
  const Peers &peers_;
  size_t connected_ = 0;
  size_t leaving_ = 0;  // of them: asked or agreed to part
  uint64_t uses_ = 0;
};

}  // namespace weft::rxm

#endif
