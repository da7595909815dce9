// SPDX-License-Identifier: BSD-2-Clause
// Where a peer is, by its address: in this process, on this host, or on another one.
//
// Example:
//    #include <netinet/in.h>
//    const char *place_of(const sockaddr_in &peer, const std::vector<std::string> &own_addresses) {
//      return peer_name(peer_class(&peer, sizeof peer, own_addresses));  // "host"
//    }
//
// Other addresses than IP give kAny. Not for routing decisions.
#ifndef WEFT_PLUGINS_HOOK_PROFILE_PEER_H
#define WEFT_PLUGINS_HOOK_PROFILE_PEER_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::profile {

enum PeerClass : uint8_t { kAny = 0, kProcess = 1, kHost = 2, kRemote = 3 };
inline constexpr size_t kPeerClasses = 4;

const char *peer_name(PeerClass where);

// `address` is a sockaddr of `length` bytes, as are the addresses of this process's endpoints.
PeerClass peer_class(const void *address, size_t length, const std::vector<std::string> &own);

}  // namespace weft::profile

#endif
