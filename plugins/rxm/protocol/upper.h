// SPDX-License-Identifier: BSD-2-Clause
// Upper: what the protocol tells the endpoint above it, and asks it.
//
// Example:
//    // Of an endpoint without an address vector.
//    class Nameless : public Upper {
//     public:
//      explicit Nameless(sdk::Receiver &receiver) : receiver_(receiver) {}
//      void on_done(TxOp &op, int) override { ended_ = op.context; }
//      sdk::Receiver &receiver() override { return receiver_; }
//      uint32_t index_of(const sdk::Address &) override { return kNoIndex; }
//      void warn(const char *) override {}
//      void on_remote_atomic(uint64_t, std::span<const RmaVector>) override {}
//
//     private:
//      sdk::Receiver &receiver_;
//      void *ended_ = nullptr;
//    };
//
// Not for moving bytes: carrier.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_UPPER_H
#define WEFT_PLUGINS_RXM_PROTOCOL_UPPER_H

#include <weft/sdk/addresses/address.h>
#include <weft/sdk/transfers/receiver.h>

#include <cstdint>
#include <span>

#include "plugins/rxm/protocol/operations.h"

namespace weft::rxm {

class Upper {
 public:
  // The operation has ended with 0 or FI_E.... The protocol takes it back when this returns.
  virtual void on_done(TxOp &op, int err) = 0;
  virtual sdk::Receiver &receiver() = 0;
  // The lowest index of `address` in the address vector; kNoIndex: none.
  virtual uint32_t index_of(const sdk::Address &address) = 0;
  // The same of a peer that says that it is a context of a scalable endpoint.
  virtual uint32_t index_of_context(const sdk::Address &address, unsigned place) {
    (void)address, (void)place;
    return UINT32_MAX;
  }
  // Logs a warning for the operator.
  virtual void warn(const char *text) = 0;
  // The same of what a peer has caused. It may do so as often as it likes: not each is shown.
  virtual void warn_of_peer(const char *text) { warn(text); }
  // A peer's atomic accessed this memory; lengths in bytes. For the counters of the endpoint and
  // of regions.
  virtual void on_remote_atomic(uint64_t access, std::span<const RmaVector> where) = 0;
  // The operation waits for a connection, or for room at the carrier.
  virtual void on_wait(const TxOp &) {}
  // FI_RMA_PMEM: before the peer is told that its atomic has been executed. False: the medium has
  // failed.
  virtual bool persist(std::span<const RmaVector>) { return true; }

 protected:
  ~Upper() = default;
};

}  // namespace weft::rxm

#endif
