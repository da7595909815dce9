// SPDX-License-Identifier: BSD-2-Clause
// Atomics: what is in the packets of atomics, at both ends: the operands that the application
// gives, what a peer's do to our memory, and the result that comes back.
//
// Example:
//    #include "plugins/rxm/protocol/answers.h"
//    // A peer's atomic is executed, and answered.
//    inline int on_atomic(Atomics &atomics, Answers &answers, Connection &c, const Packet &p) {
//      Control *const control = answers.make(c, PacketType::kAtomicResponse, p.message);
//      if (control == nullptr) return Answers::kTooMuch;
//      atomics.execute(p, *control);
//      return answers.queue(c, *control);
//    }
//
// Not for when packets leave: outbox.h, answers.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_ATOMICS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_ATOMICS_H

#include <weft/sdk/transfers/transfer.h>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/protocol/settings.h"
#include "plugins/rxm/protocol/upper.h"

namespace weft::rxm {

class Atomics {
 public:
  static constexpr int kWrongLength = -1;  // the peer has sent a result of another length

  Atomics(Carrier &carrier, Upper &upper, const Settings &settings)
      : carrier_(carrier), upper_(upper), settings_(settings) {}
  Atomics(const Atomics &) = delete;
  Atomics &operator=(const Atomics &) = delete;

  // The packet of an atomic of the application, whose elements have `element` bytes. False: a
  // device has failed, from which operands come.
  bool prepare(TxOp &op, const sdk::AtomicRequest &request, size_t element) const;
  // Puts the result in its place. 0 or FI_E..., with which the operation ends; or kWrongLength.
  int take_result(const TxOp &op, const Packet &p) const;
  // Executes a peer's, completely or not at all, and writes the answer.
  void execute(const Packet &p, Control &control);

 private:
  // The local memory of each vector of a packet.
  struct Memory {
    RmaVector where[kMaxVectors];  // lengths in bytes
    iovec iov[kMaxVectors][kMaxVectors];
    size_t counts[kMaxVectors] = {};
  };
  int32_t resolve(const Packet &p, sdk::AtomicKind kind, Memory &memory);
  int32_t apply(const Packet &p, sdk::AtomicKind kind, const Memory &memory,
                std::vector<uint8_t> &results);

  Carrier &carrier_;
  Upper &upper_;
  const Settings &settings_;
};

}  // namespace weft::rxm

#endif
