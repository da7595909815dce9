// SPDX-License-Identifier: BSD-2-Clause
// Sources: who sent a message, as completions and directed receives name it.
//
// Example:
//    // What the receiver calls the sender of a message.
//    inline uint32_t name_of(Sources &sources, const Event &event) {
//      return sources.number_of(sources.sender_of(event.initiator, event.vni));
//    }
//
// In symmetric address vectors (FI_SYMMETRIC) a sender names itself by its index there, and nobody
// has to look for it. A sender that is not in the address vector has a number of its own until it
// is inserted. All calls are with the engine's lock held. Not for where to send: peers are found by
// index.
#ifndef WEFT_PLUGINS_CXI_SOURCES_H
#define WEFT_PLUGINS_CXI_SOURCES_H

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/transfers/match.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>

#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/ports.h"

namespace weft::cxi {

// FI_ADDR_CXI of a peer. The VNI counts where address vectors have keys (FI_AV_AUTH_KEY). `host`:
// the mark of the host of a NIC in software (DeviceFacts::host), which hardware has not.
inline sdk::Address address_of(const Peer &peer, uint16_t host = 0) {
  alignas(4) unsigned char bytes[8] = {};
  const uint32_t word = uint32_t{peer.nid} << kPidBits | peer.pid;
  std::memcpy(bytes, &word, sizeof word);
  std::memcpy(bytes + sizeof word, &peer.vni, sizeof peer.vni);
  std::memcpy(bytes + sizeof word + sizeof peer.vni, &host, sizeof host);
  return sdk::Address::of(FI_ADDR_CXI, bytes, sizeof bytes);
}
inline uint16_t host_of(const sdk::Address &address) {
  uint16_t host;
  std::memcpy(&host, static_cast<const unsigned char *>(address.data()) + 6, sizeof host);
  return host;
}
inline Peer peer_of(const sdk::Address &address) {
  const auto *const bytes = static_cast<const unsigned char *>(address.data());
  uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  Peer peer{.nid = word >> kPidBits & kMaxNid, .pid = Pid(word & kAnyPid)};
  std::memcpy(&peer.vni, bytes + sizeof word, sizeof peer.vni);
  return peer;
}

// Who sent something: where it is, and its index in the address vector, if it said that itself.
struct Sender {
  Peer peer;
  uint32_t rank = sdk::Av::kNone;
};

class Sources {
 public:
  // `wanted`: somebody asks. Else all senders are unknown, which costs nothing. `own`: our NIC.
  Sources(bool wanted, const DeviceFacts &own)
      : wanted_(wanted), host_(own.host), only_nid_(own.network_address != 0 ? own.nid : 0) {}
  void set_av(sdk::Av *av) { av_ = av; }

  // A rank that the address vector does not have is that of a sender nowhere.
  Sender sender_of(uint32_t initiator, Vni vni) const {
    if (!is_logical(initiator)) return {.peer = Peer::of(initiator, vni)};
    const uint32_t rank = rank_of(initiator);
    const Pid pid = Pid(initiator >> kMatchEpBits);
    const auto address = by_rank() ? av_->address(rank) : std::nullopt;
    const Peer peer = address ? peer_of(*address).in(vni) : Peer::nowhere(pid, vni);
    if (peer.pid != pid) return {.peer = Peer::nowhere(pid, vni)};
    return {.peer = peer, .rank = address ? rank : sdk::Av::kNone};
  }
  uint32_t number_of(const Sender &sender) {
    if (!wanted_ || sender.peer.is_nowhere()) return sdk::Matcher::kUnknownSource;
    if (is_at(sender.rank, sender.peer)) return sender.rank;
    const Peer &peer = sender.peer;
    if (is_last_known_ && peer == last_peer_) return last_;
    last_ = find(as_in_vector(peer));
    last_peer_ = peer;
    is_last_known_ = true;
    return last_;
  }
  // A sender that has no index.
  std::optional<Peer> stranger_of(uint32_t number) const {
    for (const auto &[key, one] : strangers_)
      if (one.number == number) return one.peer;
    return std::nullopt;
  }
  // Its FI_ADDR_CXI as bytes.
  std::string address_of_stranger(uint32_t number) const {
    const auto peer = stranger_of(number);
    if (!peer) return {};
    // Whether a NIC in a network is of this host, its address does not say.
    const bool is_here = only_nid_ == 0 || peer->nid == only_nid_;
    const sdk::Address address = address_of(*peer, is_here ? host_ : uint16_t{0});
    return std::string(static_cast<const char *>(address.data()), address.size());
  }
  // The number that the messages of this peer have had so far, if there are any.
  std::optional<uint32_t> on_inserted(const sdk::Address &address) {
    is_last_known_ = false;
    if (address.size() == 0) return std::nullopt;
    const auto found = strangers_.extract(as_in_vector(peer_of(address)).key());
    return found.empty() ? std::nullopt : std::optional(found.mapped().number);
  }
  // Its messages are those of a stranger from now on, whose number this is.
  uint32_t on_removed(const sdk::Address &address) {
    is_last_known_ = false;
    return stranger(as_in_vector(peer_of(address)));
  }
  bool wanted() const { return wanted_; }
  // FI_SYMMETRIC, in a table and without keys.
  bool by_rank() const { return av_->is_symmetric() && !av_->is_map() && !av_->has_keys(); }

  // The lowest rank of a peer from `rank` on; kNone: it has none, or ranks are not used.
  uint32_t rank_of_peer(const Peer &peer, uint32_t rank) const {
    for (; by_rank() && rank < av_->capacity() && rank <= kMaxRank; ++rank)
      if (is_at(rank, peer)) return rank;
    return sdk::Av::kNone;
  }

 private:
  struct Stranger {
    Peer peer;
    uint32_t number = 0;
  };

  // It may have been removed since it was named.
  bool is_at(uint32_t rank, const Peer &peer) const {
    if (rank == sdk::Av::kNone) return false;
    const auto address = av_->address(rank);
    return address && peer_of(*address) == peer.in(0);
  }
  // Without keys, no address has a VNI.
  Peer as_in_vector(const Peer &peer) const { return av_->has_keys() ? peer : peer.in(0); }
  uint32_t find(const Peer &peer) {
    const uint32_t index = av_->find(address_of(peer));
    return index != sdk::Av::kNone ? index : stranger(peer);
  }
  uint32_t stranger(const Peer &peer) {
    const auto [at, is_new] = strangers_.try_emplace(peer.key(), Stranger{peer, next_});
    if (is_new && ++next_ >= sdk::Matcher::kUnknownSource) next_ = sdk::Matcher::kFirstUnnamed;
    return at->second.number;
  }

  const bool wanted_;
  const uint16_t host_;
  const Nid only_nid_;  // the only one that is known to be of this host; 0: all are
  sdk::Av *av_ = nullptr;
  Peer last_peer_;
  bool is_last_known_ = false;
  uint32_t last_ = sdk::Matcher::kUnknownSource;
  uint32_t next_ = sdk::Matcher::kFirstUnnamed;
  std::unordered_map<uint64_t, Stranger> strangers_;
};

}  // namespace weft::cxi

#endif
