// SPDX-License-Identifier: BSD-2-Clause
// The form of packets and replies between processes: a head of kHeadSize bytes, and the bytes of the
// operation behind it.
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
// address of 20 and 9 bits, as many bytes as the operation has. It cannot know whether a token or a
// VNI is right. Numbers are little endian. Not for how a stream is read or written.
#ifndef WEFT_PLUGINS_CXI_SOFT_FRAME_H
#define WEFT_PLUGINS_CXI_SOFT_FRAME_H

#include <cstddef>
#include <cstdint>
#include <span>

#include <tl/expected.hpp>

#include "plugins/cxi/soft/packet.h"

namespace weft::cxi {

inline constexpr size_t kHeadSize = 128;

// Why bytes are no frame.
enum class Refusal : uint8_t {
  kVersion,    // the peer speaks another version of this
  kKind,       // neither a packet nor a reply
  kOperation,  // there is no such operation, atomic or type
  kAddress,    // a NIC, a PID or a list that cannot be
  kLength,     // more bytes than the operation has
  kAnswer,     // to what was not asked
};
const char *text_of(Refusal refusal);

struct Frame {
  enum class Kind : uint8_t { kPacket = 1, kReply = 2 };
  Kind kind = Kind::kPacket;
  Packet packet;
  Reply reply;
  uint32_t bytes = 0;  // behind the head
};

void write_head(const Packet &packet, std::span<uint8_t, kHeadSize> head);
// `brings`: the reply of a get, whose bytes follow.
void write_head(const Reply &reply, bool brings, std::span<uint8_t, kHeadSize> head);
tl::expected<Frame, Refusal> parse_head(std::span<const uint8_t, kHeadSize> head);

}  // namespace weft::cxi

#endif
