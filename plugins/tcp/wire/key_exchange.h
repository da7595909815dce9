// SPDX-License-Identifier: BSD-2-Clause
// KeyExchange: two endpoints prove to each other that they have the same authorization key, before
// the connection message. The key itself is not sent, and a recorded exchange cannot be replayed.
//
//   active side                                passive side
//   "weft-key", nonce A            24 bytes →
//                                  ←           nonce B, code(key, "passive", A, B, P)  32 bytes
//   code(key, "active", A, B, P)   16 bytes →
//
// P is the address at which the active side has called, and where the passive side was called. So
// who holds the key proves it for one address: a process that has another's address gains nothing
// when it passes the bytes on to a third one that has the key, be it the caller itself.
//
// Example:
//    #include <sys/socket.h>
//    // Either side, over a blocking socket. True: the peer has the key, and the connection message
//    // follows.
//    inline bool prove(int fd, KeyExchange &exchange) {
//      for (;;) {
//        const std::span<const uint8_t> out = exchange.output();
//        if (send(fd, out.data(), out.size(), 0) != ssize_t(out.size())) return false;
//        exchange.sent();
//        if (exchange.done()) return true;
//        if (exchange.rejected()) return false;  // KeyExchange::text() says why
//        const std::span<uint8_t> space = exchange.space();
//        const ssize_t n = recv(fd, space.data(), space.size(), 0);
//        if (n <= 0) return false;
//        exchange.on_read(size_t(n));
//      }
//    }
//
// It does not protect the stream behind it: an attacker between the two can still change that.
#ifndef WEFT_PLUGINS_TCP_WIRE_KEY_EXCHANGE_H
#define WEFT_PLUGINS_TCP_WIRE_KEY_EXCHANGE_H

#include <weft/sdk/addresses/auth.h>

#include <optional>

#include "connect_message.h"

namespace weft::tcp {

class KeyExchange {
 public:
  enum class Refusal : uint8_t {
    kNoKey,     // the peer sent something else
    kOtherKey,  // its code is wrong
  };
  static const char *text(Refusal refusal) noexcept;

  KeyExchange(ConnectRole role, const sdk::AuthKey &key, const sdk::Mac &mac,
              const sdk::Place &place);

  // The place for the next bytes; empty when done or rejected.
  std::span<uint8_t> space() { return {in_.data() + have_, need_ - have_}; }
  void on_read(size_t n);
  // The bytes to send now.
  std::span<const uint8_t> output() const { return {out_.data(), out_size_}; }
  void sent() { out_size_ = 0; }
  bool done() const { return done_; }  // the peer has the key
  std::optional<Refusal> rejected() const { return refusal_; }

 private:
  static constexpr size_t kMagicSize = 8, kNonceSize = 16;
  using Nonce = std::array<uint8_t, kNonceSize>;

  void await(size_t bytes);
  void refuse(Refusal refusal);
  sdk::Mac::Code code(const char *who) const;
  bool peer_shows(const char *who, const uint8_t *at) const;

  const ConnectRole role_;
  const sdk::AuthKey key_;
  const sdk::Mac &mac_;
  const sdk::Place place_;
  Nonce active_{}, passive_{};
  bool greeted_ = false;  // passive: the nonces are exchanged
  bool done_ = false;
  std::optional<Refusal> refusal_;
  std::array<uint8_t, kNonceSize + sdk::Mac::kSize> in_, out_;
  size_t have_ = 0, need_ = 0, out_size_ = 0;
};

}  // namespace weft::tcp

#endif
