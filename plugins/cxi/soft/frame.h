// SPDX-License-Identifier: BSD-2-Clause
// The form of packets and replies between processes: a head of kHeadSize bytes, and the bytes of
// the operation behind it. Between hosts there is a hello of kHelloSize bytes before, each way.
//
// Example:
//    // The head of what a peer sends; its bytes follow in the stream.
//    inline std::optional<Packet> packet_of(std::span<const uint8_t, kHeadSize> head) {
//      const auto frame = parse_head(head);
//      if (!frame || frame->kind != Frame::Kind::kPacket) return std::nullopt;
//      return frame->packet;
//    }
//
// parse_head() takes any bytes, and what it returns is in range: an operation that exists, an
// address of 20 and 9 bits, a sender of the NIC that it comes from, as many bytes as the operation
// has. It cannot know whether a token or a
// VNI is right. Numbers are little endian. Each version has the first ten bytes of a hello at the
// same place, so that it can say that it does not know another one. Not for how a stream is read or
// written.
#ifndef WEFT_PLUGINS_CXI_SOFT_FRAME_H
#define WEFT_PLUGINS_CXI_SOFT_FRAME_H

#include <cstddef>
#include <cstdint>
#include <span>

#include <tl/expected.hpp>

#include "plugins/cxi/soft/packet.h"

namespace weft::cxi {

inline constexpr size_t kHeadSize = 128, kHelloSize = 32;

// Why bytes are no frame.
enum class Refusal : uint8_t {
  kVersion,    // the peer speaks another version of this
  kKind,       // neither a packet nor a reply
  kOperation,  // there is no such operation, atomic or type
  kAddress,    // a NIC, a PID or a list that cannot be
  kLength,     // more bytes than the operation has
  kAnswer,     // to what was not asked
  kStranger,   // not from a NIC in software
};
const char *text_of(Refusal refusal);

struct Frame {
  enum class Kind : uint8_t { kPacket = 1, kReply = 2 };
  Kind kind = Kind::kPacket;
  Packet packet;
  Reply reply;
  uint32_t bytes = 0;  // behind the head
};

// The first that two processes of different hosts say.
struct Hello {
  enum class Kind : uint8_t {
    kCall = 1,       // for the process that has `to` and `vni`
    kWelcome = 2,    // that is us; we are known by our own port
    kElsewhere = 3,  // that is who listens at `port`
    kRefused = 4,    // there is none: `rc`
  };
  Kind kind = Kind::kCall;
  Rc rc = Rc::kOk;
  Vni vni = 0;
  Address to;  // without an index
  uint16_t port = 0;
  uint64_t key = 0;  // of kCall and kWelcome: what the speaker tells this host alone; 0: nothing
};

void write_hello(const Hello &hello, std::span<uint8_t, kHelloSize> bytes);
tl::expected<Hello, Refusal> parse_hello(std::span<const uint8_t, kHelloSize> bytes);

void write_head(const Packet &packet, std::span<uint8_t, kHeadSize> head);
// `brings`: the reply of a get, whose bytes follow.
void write_head(const Reply &reply, bool brings, std::span<uint8_t, kHeadSize> head);
tl::expected<Frame, Refusal> parse_head(std::span<const uint8_t, kHeadSize> head);

}  // namespace weft::cxi

#endif
