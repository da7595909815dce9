// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/peer_watch.h"

#include <algorithm>

namespace weft::cxi {

std::vector<Peer> PeerWatch::look(uint64_t now, const std::vector<Peer> &awaited) {
  for (auto &[key, one] : peers_) one.is_awaited = false;
  for (const Peer &peer : awaited) {
    const auto [at, is_new] = peers_.try_emplace(peer.key());
    at->second.is_awaited = true;
    if (!is_new) continue;
    at->second.peer = peer;
    at->second.ask_at = now + kFirstNs;
  }
  // An answer that is under way finds its peer.
  std::erase_if(peers_,
                [](const auto &one) { return !one.second.is_awaited && !one.second.is_asked; });
  std::vector<Peer> asked;
  next_ = 0;
  for (auto &[key, one] : peers_) {
    if (one.is_asked || !one.is_awaited) continue;
    if (one.ask_at <= now && asked_ == kMostAsked) one.ask_at = now + kFirstNs;
    if (one.ask_at > now) {
      note(one.ask_at);
      continue;
    }
    one.is_asked = true;
    ++asked_;
    asked.push_back(one.peer);
  }
  return asked;
}

bool PeerWatch::on_answer(const Peer &peer, bool is_there, uint64_t now) {
  const auto found = peers_.find(peer.key());
  if (found == peers_.end() || !found->second.is_asked) return false;
  Watched &one = found->second;
  const bool was_missing = one.is_missing;
  one.is_missing = !is_there;
  if (one.is_missing && was_missing) {
    --asked_;
    peers_.erase(found);
    return true;
  }
  ask_in(one, is_there ? std::min(2 * one.pause, kLastNs) : kFirstNs, now);
  return false;
}

void PeerWatch::put_off(const Peer &peer, uint64_t now) {
  const auto found = peers_.find(peer.key());
  if (found != peers_.end() && found->second.is_asked) ask_in(found->second, kFirstNs, now);
}

void PeerWatch::ask_in(Watched &one, uint64_t pause, uint64_t now) {
  one.is_asked = false;
  --asked_;
  one.pause = pause;
  one.ask_at = now + pause;
  note(one.ask_at);
}

void PeerWatch::note(uint64_t at) {
  if (next_ == 0 || at < next_) next_ = at;
}

}  // namespace weft::cxi
