// SPDX-License-Identifier: BSD-2-Clause
// PeerWatch: whom to ask whether it is still there, and when.
//
// A NIC tells that a peer has taken a message. Whether the peer will ever read the rest of a long
// one, meet a short one with its receive, or say that it has room again, nobody tells: a peer that
// ends then takes the end of the operation with it. So whoever waits for a peer asks its NIC, by a
// put of no bytes. The NIC of a process that lives answers, though the process computes or is
// stopped; one that does not answer yet is waited for.
//
// Example (statements):
//    PeerWatch watch;
//    uint64_t now = 0;
//    const std::vector<Peer> awaited{{.nid = 1, .pid = 7, .vni = 10}};
//    watch.look(now, awaited);  // nobody is asked at once
//    now = watch.next();
//    for (const Peer &peer : watch.look(now, awaited)) {
//      const bool is_gone = watch.on_answer(peer, true, now);  // false: it is there
//      if (is_gone) break;
//    }
//
// A peer is gone when two answers, one after the other, say so: what it has sent before its end
// comes on another way, and may be read later than the first of them.
//
// It has no NIC and no clock: the time is an argument, in ns. Not for what becomes of the
// operations (transmit_gone.cc), nor for members of groups, which ask each other
// (collective/group.h).
#ifndef WEFT_PLUGINS_CXI_PEER_WATCH_H
#define WEFT_PLUGINS_CXI_PEER_WATCH_H

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "plugins/cxi/ports.h"

namespace weft::cxi {

class PeerWatch {
 public:
  // Between two questions to a peer: at first, and when it has answered several times.
  static constexpr uint64_t kFirstNs = 100'000'000, kLastNs = 1'000'000'000;
  static constexpr size_t kMostAsked = 256;  // peers that have not answered yet

  // `awaited`: the peers that something waits for now; one may be there several times. Whom to ask.
  std::vector<Peer> look(uint64_t now, const std::vector<Peer> &awaited);
  // The question has an answer. True: the peer is gone.
  bool on_answer(const Peer &peer, bool is_there, uint64_t now);
  // The question could not be asked.
  void put_off(const Peer &peer, uint64_t now);
  // Of the next look(); 0: when something new waits, or an answer comes.
  uint64_t next() const { return next_; }

 private:
  struct Watched {
    Peer peer;
    uint64_t ask_at = 0, pause = kFirstNs;
    bool is_awaited = false, is_asked = false;
    bool is_missing = false;  // by the last answer
  };

  void ask_in(Watched &one, uint64_t pause, uint64_t now);
  void note(uint64_t at);

  std::unordered_map<uint64_t, Watched> peers_;
  size_t asked_ = 0;
  uint64_t next_ = 0;
};

}  // namespace weft::cxi

#endif
