// SPDX-License-Identifier: BSD-2-Clause
// What endpoints of type FI_EP_RDM say to each other in the private data of the connection message:
// who they are, and which protocol they speak.
//
//   RdmHello hello{.version = kRdmVersion, .port = listening_port, .process = getpid()};
//   auto bytes = encode_hello(hello);                               // goes into the request
//
//   auto peer = parse_hello(reader.private_bytes());
//   if (!peer) refuse(text(peer.error()));
//   hello.version = answer_to(peer->version);                       // goes into the accept
//   EndpointKind kind = kind_of_answer(answer.version);             // what both speak from now on
//
// A peer is named by the address that its stream comes from and the port in here, on which it
// listens. Who wins when both connect is decided in peer_link.h.
#ifndef WEFT_PLUGINS_TCP_WIRE_RDM_MESSAGE_H
#define WEFT_PLUGINS_TCP_WIRE_RDM_MESSAGE_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>

#include "frame.h"

namespace weft::tcp {

inline constexpr size_t kHelloSize = 8;
inline constexpr uint8_t kRdmVersion = 1;         // the highest that we speak
inline constexpr uint8_t kAnsweredBit = 0x80;     // in an accept: "the version was looked at"
inline constexpr uint8_t kCannotBeCalled = 0x01;  // feature: "do not connect to me"
// Feature of weft, in a request and in the answer to it: "I say when I have room for long messages
// (kAnnounceNoMore) and when not (kAnnounceAll), and listen to that". Two bits, because there are
// peers that echo what they do not know.
inline constexpr uint8_t kSaysWhenFull = 0x80, kSaysWhenFullToo = 0x40;

struct RdmHello {
  uint8_t version = 0;   // request: the highest of the sender; accept: see answer_to()
  uint8_t features = 0;  // kCannotBeCalled: of peers since libfabric 2.2; kSaysWhenFull
  uint16_t port = 0;     // on which the requester listens; an accept repeats it
  uint32_t process = 0;  // of the sender of this message
  bool operator==(const RdmHello &) const = default;
};

enum class HelloRefusal : uint8_t {
  kSize,  // not 8 bytes
  kPort,  // 0: nobody can listen there
};
const char *text(HelloRefusal refusal) noexcept;

// Total: any bytes give a hello or the reason why not.
tl::expected<RdmHello, HelloRefusal> parse_hello(std::span<const uint8_t> bytes) noexcept;
std::array<uint8_t, kHelloSize> encode_hello(const RdmHello &hello) noexcept;

// The version byte of the accept for a request with this version byte. Requesters of the first
// protocol do not know the bit, and get their 0 back.
uint8_t answer_to(uint8_t requested) noexcept;
// What an answer means, to both sides. A responder of the first protocol echoes the request's byte:
// without the bit it agrees to nothing.
EndpointKind kind_of_answer(uint8_t answered) noexcept;

// What is spoken on a stream.
struct Terms {
  ByteOrder order = ByteOrder::kNative;
  EndpointKind kind = EndpointKind::kRdm0;
  bool says_when_full = false;  // both sides do
};
// By the version and the features of the answer.
Terms terms_of(ByteOrder order, uint8_t answered, uint8_t features) noexcept;

}  // namespace weft::tcp

#endif  // WEFT_PLUGINS_TCP_WIRE_RDM_MESSAGE_H
