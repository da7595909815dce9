// SPDX-License-Identifier: BSD-2-Clause
// Core: the protocol of one rxd endpoint, without a socket, a clock or a thread. It knows the
// peers, finds out what they speak at the first packet, and gives each a conversation.
//
//   TxOp *op = core.take();                       // null: tx_size are in flight
//   ... fill it in ...
//   int rc = core.start(*op, av_index, &address); // owner.on_done(*op, err) follows a 0
//   core.on_datagram(bytes, buffer);              // messages end in the owner's sdk::Receiver
//
// A peer is an object only from its first use on; one that was only inserted costs nothing here.
// Everything is called with one lock held. Not for completion queues, address vectors, or how bytes
// travel.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CORE_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CORE_H

#include <weft/sdk/pool.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "plugins/rxd/protocol/conversation.h"

namespace weft::rxd {

inline constexpr uint32_t kNoIndex = UINT32_MAX;

enum class Checksum : uint8_t { kAuto, kOn, kOff };

struct Settings {
  size_t tx_size = 1024;                  // operations in flight
  size_t first_datagram = 1472;           // bytes, to stock peers and at first
  Checksum checksum = Checksum::kAuto;
  uint64_t unexpected_limit = 64 << 20;   // bytes of messages that nobody wants yet
  uint64_t peer_timeout_ns = 10'000'000'000;
  size_t max_stock_peers = 1024;          // that have not proven their address
  bool stock_peers = true;                // answer them, and try them
  std::string auth_key;
};

// What the protocol tells the endpoint.
class Owner {
 public:
  // The operation has ended; it goes back to the core when this returns.
  virtual void on_done(TxOp &op, int err) = 0;
  virtual sdk::Receiver &receiver() = 0;
  // The lowest index of an address in the vector; kNoIndex: none.
  virtual uint32_t index_of(const sdk::SockAddr &address) = 0;
  // A peer wrote here, or read (counters; `has_data`: a completion). `source` as in sdk::Message.
  virtual void on_remote_write(uint32_t source, uint64_t length, bool has_data, uint64_t data) = 0;
  virtual void on_remote_read(uint64_t length) = 0;
  virtual void on_remote_atomic(uint64_t access, uint64_t length) = 0;
  // Something that an operator should hear of, once per event.
  virtual void warn(const char *text) = 0;

 protected:
  ~Owner() = default;
};

// Counted for tests, and for who asks why it is slow.
struct Statistics {
  uint64_t packets_sent = 0, packets_received = 0;
  uint64_t repeated = 0;      // packets sent again
  uint64_t duplicates = 0;    // packets that had come already
  uint64_t timeouts = 0;
  uint64_t rejected = 0;      // that do not parse, or whose checksum or MAC is wrong
  uint64_t strangers = 0;     // of no connection
};

class Core {
 public:
  Core(Carrier &carrier, Owner &owner, const Settings &settings);
  ~Core();
  Core(const Core &) = delete;
  Core &operator=(const Core &) = delete;

  // The address that peers know this endpoint by; before the first operation.
  void set_own_address(const sdk::SockAddr &address);

  // ---- operations ----
  TxOp *take();
  void give(TxOp &op);  // one that was not started
  // Copies what op.iov has into the operation: the caller's memory is his again.
  void own_data(TxOp &op);
  // Starts the operation toward `index`, whose address is `address`. 0, or -FI_E...: nothing
  // happened and the operation is still the caller's.
  int start(TxOp &op, uint32_t index, const sdk::SockAddr *address);
  bool knows(uint32_t index) const;  // whether start() can do without the address
  void forget(uint32_t index);                                   // removed from the address vector
  void introduce(uint32_t index, const sdk::SockAddr &address);  // inserted

  // ---- from the receiver's sink ----
  void deliver(Incoming &message, sdk::Receive &receive);
  void discard(Incoming &message);
  // The raw address of an unnamed source (FI_SOURCE_ERR).
  const sdk::SockAddr *address_of(uint32_t source) const;

  // ---- from the carrier ----
  // True: the buffer is kept.
  bool on_datagram(std::span<const uint8_t> bytes, Buffer &buffer);
  void on_idle();      // nothing more to read, until later
  void poll();         // each progress: what waited for room or for its pace
  void on_deadline();  // the one of Carrier::set_deadline has passed

  // ---- the end ----
  void part();          // says good-bye to all peers once what was sent has arrived
  bool parted() const;  // that is done, or there is nothing to say
  // Everything is over: operations fail with `err`, nothing more is sent.
  void shut_down(int err);

  size_t in_flight() const { return ops_.in_use(); }
  size_t peers() const;  // objects
  const Statistics &statistics() const { return statistics_; }
  const Settings &settings() const { return settings_; }

 private:
  Carrier &carrier_;
  Owner &owner_;
  const Settings settings_;
  Statistics statistics_;
  sdk::Pool<TxOp> ops_;
};

}  // namespace weft::rxd

#endif
