// SPDX-License-Identifier: BSD-2-Clause
// Sources: who sent a message, as completions and directed receives name it.
//
// Example:
//    // What the receiver calls the sender of a message.
//    inline uint32_t name_of(Sources &sources, const Event &event) {
//      return sources.number_of(event.initiator);
//    }
//
// A sender that is not in the address vector has a number of its own until it is inserted. All
// calls are with the engine's lock held. Not for where to send: peers are found by index.
#ifndef WEFT_PLUGINS_CXI_SOURCES_H
#define WEFT_PLUGINS_CXI_SOURCES_H

#include <weft/sdk/av.h>
#include <weft/sdk/match.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>

#include "plugins/cxi/ports.h"

namespace weft::cxi {

// FI_ADDR_CXI of a peer. The VNI is that of the endpoints, and not part of it.
inline sdk::Address address_of(const Peer &peer) {
  const uint32_t words[2] = {uint32_t{peer.nid} << kPidBits | peer.pid, 0};
  return sdk::Address::of(FI_ADDR_CXI, words, sizeof words);
}
inline Peer peer_of(const sdk::Address &address) {
  uint32_t word;
  std::memcpy(&word, address.data(), sizeof word);
  return {.nid = word >> kPidBits & kMaxNid, .pid = Pid(word & kAnyPid)};
}

class Sources {
 public:
  // `wanted`: somebody asks. Else all senders are unknown, which costs nothing.
  explicit Sources(bool wanted) : wanted_(wanted) {}
  void set_av(sdk::Av *av) { av_ = av; }

  uint32_t number_of(uint32_t initiator) {
    if (!wanted_) return sdk::Matcher::kUnknownSource;
    if (initiator == last_initiator_) return last_;
    last_ = find(initiator);
    last_initiator_ = initiator;
    return last_;
  }
  // The address of a sender that has no index: its FI_ADDR_CXI as bytes.
  std::string address_of_stranger(uint32_t number) const {
    for (const auto &[initiator, one] : strangers_) {
      if (one != number) continue;
      const sdk::Address address = address_of(Peer::of(initiator));
      return std::string(static_cast<const char *>(address.data()), address.size());
    }
    return {};
  }
  // The number that the messages of this peer have had so far, if there are any.
  std::optional<uint32_t> on_inserted(const sdk::Address &address) {
    forget_last();
    if (address.size() == 0) return std::nullopt;
    const auto found = strangers_.extract(peer_of(address).initiator());
    return found.empty() ? std::nullopt : std::optional(found.mapped());
  }
  // Its messages are those of a stranger from now on, whose number this is.
  uint32_t on_removed(const sdk::Address &address) {
    forget_last();
    return stranger(peer_of(address).initiator());
  }
  bool wanted() const { return wanted_; }

 private:
  void forget_last() { last_initiator_ = kMatchAny; }

  uint32_t find(uint32_t initiator) {
    const uint32_t index = av_->find(address_of(Peer::of(initiator)));
    return index != sdk::Av::kNone ? index : stranger(initiator);
  }
  uint32_t stranger(uint32_t initiator) {
    const auto [at, is_new] = strangers_.try_emplace(initiator, next_);
    if (is_new && ++next_ >= sdk::Matcher::kUnknownSource) next_ = sdk::Matcher::kFirstUnnamed;
    return at->second;
  }

  const bool wanted_;
  sdk::Av *av_ = nullptr;
  uint32_t last_initiator_ = kMatchAny, last_ = sdk::Matcher::kUnknownSource;
  uint32_t next_ = sdk::Matcher::kFirstUnnamed;
  std::unordered_map<uint32_t, uint32_t> strangers_;
};

}  // namespace weft::cxi

#endif
