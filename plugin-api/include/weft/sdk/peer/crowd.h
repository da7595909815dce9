// SPDX-License-Identifier: BSD-2-Clause
// Crowd: which stranger gives its place to the next one. Strangers are peers that are not in the
// address vector, and connections whose peer is not known yet. Their number has a limit, and one
// that does nothing useful must not keep others out.
//
// Example:
//    struct Stranger {
//      Address from;
//      uint64_t useful_at;  // when it last said something complete, or came
//    };
//    // Who leaves: of the host that has the most strangers here, who was useless for the longest
//    // time. Null: all have been useful since `now - patience`.
//    inline Stranger *first_to_leave(std::vector<Stranger> &strangers, uint64_t now,
//                                    uint64_t patience) {
//      Crowd crowd;
//      for (const Stranger &stranger : strangers) crowd.add(stranger.from);
//      Stranger *first = nullptr;
//      for (Stranger &stranger : strangers) {
//        if (now - stranger.useful_at < patience) continue;
//        if (crowd.goes_before(stranger.from, stranger.useful_at)) first = &stranger;
//      }
//      return first;
//    }
//
// One host cannot take the places of others: whoever it sends goes first. Not for peers of the
// address vector: they never wait for strangers.
#ifndef WEFT_SDK_PEER_CROWD_H
#define WEFT_SDK_PEER_CROWD_H

#include <weft/sdk/addresses/address.h>

#include <cstdint>
#include <vector>

namespace weft::sdk {

class Crowd {
 public:
  // All strangers, first.
  void add(const Address &from);
  // Whether this one goes before all that were offered so far. `useful_at` in any unit.
  bool goes_before(const Address &from, uint64_t useful_at);

 private:
  // An IPv4 address, or the network of an IPv6 address, which a host may have whole (RFC 4291,
  // section 2.5.4). Without memory for a new one, it counts as one that has few.
  struct Host {
    uint64_t name;
    uint32_t strangers;
  };
  static uint64_t name_of(const Address &from);
  Host *find(uint64_t name);

  std::vector<Host> hosts_;  // sorted by name
  uint32_t most_ = 0;        // of the one that goes first
  uint64_t earliest_ = 0;
  bool offered_ = false;
};

}  // namespace weft::sdk

#endif
