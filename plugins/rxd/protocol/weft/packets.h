// SPDX-License-Identifier: BSD-2-Clause
// What the parts of a conversation between weft peers keep: packets that were sent, answers that
// are owed, writes of which more will come, packets that came too early; and the pools of all that.
//
// Example:
//    // A packet that carries nothing yet. Null: there is no memory.
//    inline OutPacket *begin(Pools &pools) {
//      OutPacket *p = pools.packets.take();
//      if (p != nullptr) p->clear();
//      return p;
//    }
//
// Not for operations and messages (operation.h), which both dialects have.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_PACKETS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_PACKETS_H

#include <weft/sdk/memory/pool.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/rxd/protocol/channel.h"
#include "plugins/rxd/protocol/operation.h"
#include "plugins/rxd/wire/packet.h"

namespace weft::rxd {

inline constexpr size_t kMaxPayload = 65535;  // of a frame, bytes
inline constexpr size_t kWorthwhile = 256;    // bytes: less room than this is not filled with data

// Bytes of the vectors together; UINT64_MAX: more than that.
inline uint64_t total_of(const RmaVector *vectors, size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i)
    if (__builtin_add_overflow(total, vectors[i].length, &total)) return UINT64_MAX;
  return total;
}

// An answer that we owe the peer, until it is in a packet; for data that the peer reads, until they
// have arrived.
struct Answer {
  enum class Kind : uint8_t { kDone, kResult, kRead };
  Answer *next = nullptr;
  Kind kind = Kind::kDone;
  bool failed = false;  // kRead: the memory region was closed
  bool counts = false;  // as an access of the peer that was not answered
  uint8_t count = 0;    // vectors
  uint16_t status = 0;
  uint32_t id = 0;
  uint32_t packets = 0;  // packets with data of it that are not acknowledged
  uint64_t length = 0;   // bytes
  uint64_t sent = 0;
  struct Bytes {
    uint8_t bytes[kMaxAtomicSize];
  };
  Bytes *result = nullptr;
  Ahead *ahead = nullptr;  // kRead: copies of what is sent next, of memory of devices
  RmaVector vectors[kMaxVectors];
};

// A write of the peer of which more data will come.
struct Remote {
  Remote *next = nullptr;
  uint32_t id = 0;
  uint8_t count = 0;
  bool has_data = false;
  uint64_t data = 0;
  uint64_t length = 0, arrived = 0;
  Landing *landing = nullptr;  // copies of what has come, to memory of devices
  RmaVector vectors[kMaxVectors];
};

// A datagram that cannot be processed yet.
struct Kept {
  Kept *next = nullptr;
  uint64_t number = 0;
  std::span<const uint8_t> bytes;
  Buffer *buffer = nullptr;
  bool answered = false;  // the answers in it were processed; the rest waits
};

// A packet that was sent and not acknowledged, or waits to be sent.
struct OutPacket {
  static constexpr size_t kHead = wire::kHeaderSize + wire::kAcknowledgementSize;
  static constexpr size_t kFrames = 1472 - kHead;  // bytes
  TxOp *began = nullptr;                           // operations that begin here, by TxOp::beside
  TxOp *source = nullptr;                          // the operation whose payload follows the frames
  Answer *answer = nullptr;                        // or the answer whose payload follows
  uint64_t offset = 0;                             // of the payload
  uint32_t length = 0;
  uint16_t used = 0;  // bytes of frames
  uint16_t last = 0;  // where the frame of the payload begins
  bool ordered = false;
  bool asks = false;  // an operation ends when the packet is acknowledged
  uint8_t mac[wire::kMacSize];
  // Header, acknowledgement, frames; without an acknowledgement the header takes its place.
  uint8_t bytes[kHead + kFrames];
  OutPacket() {}  // NOLINT(modernize-use-equals-default): leaves `bytes` alone
  void clear() {
    began = source = nullptr;
    answer = nullptr;
    length = 0;
    ordered = asks = false;
  }
};

// Memory that all conversations of a core share.
struct Pools {
  // Packets that are not kept: acknowledgements, probes. They must stay until a flush.
  static constexpr size_t kScratch = 64;
  struct Scratch {
    uint8_t bytes[wire::kMaxHead + 8 + wire::kMacSize];
  };
  SentPool sent{SIZE_MAX, 1};
  sdk::Pool<OutPacket> packets{SIZE_MAX, 4};
  sdk::Pool<Answer> answers{SIZE_MAX, 8};
  sdk::Pool<Answer::Bytes> results{SIZE_MAX, 2};
  sdk::Pool<Remote> remotes{SIZE_MAX, 4};
  sdk::Pool<Kept> kept{SIZE_MAX, 16};
  std::array<Scratch, kScratch> scratch;
  size_t next_scratch = 0;
  std::vector<uint8_t> zeros;  // of probes
  uint32_t pulling = 0;        // conversations in which long messages are arriving
};

}  // namespace weft::rxd

#endif
