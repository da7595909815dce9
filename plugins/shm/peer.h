// SPDX-License-Identifier: BSD-2-Clause
// Peer: an endpoint with which this one talks, known by its name. Watched: what has a socket.
//
// Example:
//    inline bool is_named(const Peer &peer) { return peer.source < sdk::Matcher::kFirstUnnamed; }
//
// Not for what is under way with it: link.h.
#ifndef WEFT_PLUGINS_SHM_PEER_H
#define WEFT_PLUGINS_SHM_PEER_H

#include <weft/sdk/addresses/address.h>
#include <weft/sdk/transfers/match.h>

#include <cstdint>
#include <vector>

namespace weft::shm {

class Link;

// Tells what an event of a socket is for.
struct Watched {
  enum class What : uint8_t { kLink, kStranger };
  explicit Watched(What which) : what(which) {}
  const What what;
};

struct Peer {
  explicit Peer(const sdk::Address &at) : name(at) {}
  bool is_named() const { return source < sdk::Matcher::kFirstUnnamed; }

  const sdk::Address name;
  uint32_t source = sdk::Matcher::kUnknownSource;  // its index, or the number of a stranger
  std::vector<uint32_t> indices;                   // in the address vector
  Link *link = nullptr;                            // on which operations go out
  size_t links = 0, saved = 0;                     // that there are, and messages
};

}  // namespace weft::shm

#endif
