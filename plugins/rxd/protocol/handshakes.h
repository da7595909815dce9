// SPDX-License-Identifier: BSD-2-Clause
// Handshakes: what an endpoint says in handshakes, to all its peers: who it is, and the packets
// (docs/rxd-protocol.md, sections 3 and 10). It has the endpoint's secrets, and keeps nothing of
// those that it answers but how many they are.
//
// Example:
//    // An RTS of anybody at `path`, who names itself `name` there.
//    inline void answer(Handshakes &handshakes, Path &path, wire::Name name, uint64_t index) {
//      if (handshakes.may_answer()) handshakes.send_challenge(path, index, name);
//    }
//    // Its connect. 0: it has not had that challenge.
//    inline uint64_t asked_at(const Handshakes &handshakes, const wire::Connect &connect) {
//      return handshakes.token_made_at(connect);
//    }
//
// What a peer's packets lead to is Core's (handshake.cc); when ours are repeated is Handshake's.
// Not for packets in stock's format, but for the RTS.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_HANDSHAKES_H
#define WEFT_PLUGINS_RXD_PROTOCOL_HANDSHAKES_H

#include <cstdint>
#include <span>

#include "plugins/rxd/protocol/answer_limit.h"
#include "plugins/rxd/protocol/counters.h"
#include "plugins/rxd/protocol/peer.h"
#include "plugins/rxd/protocol/settings.h"
#include "plugins/rxd/wire/integrity.h"

namespace weft::rxd {

// wire::Part::flags: a context of a scalable endpoint, whose first context has a port that is so
// much lower.
inline constexpr uint32_t kPartPlace = 0x1f00, kPartPlaceShift = 8;
inline constexpr uint32_t kPartVerify = 2;  // wire::Part::flags: asks whether the pair is known

class Handshakes {
 public:
  // They outlive it.
  Handshakes(Carrier &carrier, Counters &counters, const Settings &settings);
  Handshakes(const Handshakes &) = delete;
  Handshakes &operator=(const Handshakes &) = delete;

  // The address by which peers know this endpoint.
  void set_own_address(const sdk::Address &address) { own_ = address; }
  const sdk::Address &own_address() const { return own_; }
  bool has_key() const { return !settings_.auth_key.empty(); }
  // Our number for a peer as packets have it, which hides it from outsiders; and back.
  uint32_t veiled(uint32_t number) const { return number ^ veil_; }
  uint32_t random();
  // Of our next connection with the peer.
  void new_cookie(Peer &peer);
  // What the peer is told of our end; `limit`: packets that we accept at the beginning. Constant
  // for the life of a connection: a repeated accept is identical.
  wire::Part part_of(const Peer &peer, uint32_t limit) const;

  // ---- answers to strangers ----
  bool may_answer();
  void on_proven() { answers_.on_proven(); }  // one that was answered has proven its address
  // When the connect's token was made for its sender's name; 0: it is not valid.
  uint64_t token_made_at(const wire::Connect &connect) const;
  // Whether checksum and MAC of a handshake packet are right.
  bool is_valid(const wire::Packet &packet) const;

  // ---- packets; one that the carrier does not take counts as lost ----
  void send_rts(Peer &peer);
  void send_connect(Peer &peer, wire::Part ours);
  // `index`: of the packet that is answered.
  void send_accept(Peer &peer, uint64_t index, const wire::Part &ours, const wire::Part &theirs);
  void send_challenge(Path &path, uint64_t index, std::span<const uint8_t> name);
  // `packet`: that is answered.
  void send_reset(Path &path, const wire::Part &theirs, std::span<const uint8_t> packet);

 private:
  uint16_t flags() const {
    return uint16_t(wire::kFlagChecksum | (has_key() ? wire::kFlagMac : 0));
  }
  void send(Path &path, std::span<uint8_t> bytes, size_t size, bool authentic,
            std::span<const uint8_t> behind = {});

  Carrier &carrier_;
  Counters &counters_;
  const Settings &settings_;
  sdk::Address own_;
  AnswerLimit answers_;
  uint64_t instance_ = 0;
  uint32_t veil_ = 0;
  wire::TokenMaker::Secret secret_{};
  wire::Key key_{};
};

}  // namespace weft::rxd

#endif
