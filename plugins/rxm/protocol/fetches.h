// SPDX-License-Identifier: BSD-2-Clause
// Fetches: the receiver's side of large messages. Their bytes are read from the sender's memory, or
// the sender is told where to write them (Settings::rendezvous_write).
//
// Example:
//    // The message has got its receive. True: all of it is here.
//    inline bool begin(Fetches &fetches, RxMessage &m, sdk::Receive &receive) {
//      m.receive = &receive;
//      return fetches.read(m).step == Fetches::Step::kAll;
//    }
//
// It owns those that wait for room at the carrier, and the registrations of messages. Not for
// messages that are saved, nor for what the sender is told: inbox.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_FETCHES_H
#define WEFT_PLUGINS_RXM_PROTOCOL_FETCHES_H

#include <weft/sdk/memory/pool.h>

#include <vector>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/protocol/settings.h"

namespace weft::rxm {

class Fetches {
 public:
  enum class Step : uint8_t {
    kWaits,     // for the carrier
    kAll,       // everything has come, or RxMessage::failed is set
    kLost,      // the bytes cannot be had: only the end of the connection tells the sender
    kOver,      // the connection had ended, and the last read has come back
    kPeekOver,  // the same, and the message has no receive yet
  };
  struct Outcome {
    Step step;
    int err = 0;  // of kLost
  };
  // Memory that the sender may write to.
  struct Target {
    RmaVector vectors[kMaxVectors];
    size_t count = 0;
  };

  Fetches(Carrier &carrier, const Settings &settings) : carrier_(carrier), settings_(settings) {}
  Fetches(const Fetches &) = delete;
  Fetches &operator=(const Fetches &) = delete;

  // ---- a message that has its receive ----
  // Whether the sender writes it.
  bool is_written(const RxMessage &m) const { return settings_.rendezvous_write && wanted(m) != 0; }
  // Names the memory of the receive. If that fails, the sender is told of memory for nothing, and
  // only this receive fails; an error that is returned cannot be told.
  int expose(RxMessage &m, Target &target);
  // Reads it, or goes on with that.
  Outcome read(RxMessage &m);
  // A read has come back.
  Outcome on_read(RxMessage &m, int err);

  // ---- the first bytes of one that has none ----
  // They go to `to`, by read(). False: there is no memory.
  bool begin_peek(RxMessage &m, void *to, size_t n);
  // The message is as it was.
  void end_peek(RxMessage &m);

  // ---- reads that the carrier had no room for ----
  bool has_waiting() const { return !waiting_.empty(); }
  // Calls `go_on` for each of them, once. Those of a connection that ends meanwhile go.
  template <class F>
  void resume(F go_on) {
    for (size_t turns = waiting_.size(); turns != 0 && !waiting_.empty(); --turns) {
      RxMessage *const m = waiting_.front();
      waiting_.erase(waiting_.begin());
      m->waits = false;
      go_on(*m);
    }
  }
  void stop_waiting(RxMessage &m);
  void conceal(RxMessage &m) {
    while (m.exposed != 0) carrier_.conceal(*m.registrations[--m.exposed]);
  }

 private:
  // Bytes, of those that the receive has room for.
  static uint64_t wanted(const RxMessage &m) {
    return std::min<uint64_t>(m.message.length, m.receive->length);
  }
  ssize_t read_vector(RxMessage &m, const RmaVector &from);

  Carrier &carrier_;
  const Settings &settings_;
  std::vector<RxMessage *> waiting_;
  sdk::Pool<sdk::Receive> firsts_{SIZE_MAX, 1};  // RxMessage::peeks
};

}  // namespace weft::rxm

#endif
