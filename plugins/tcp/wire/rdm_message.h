// SPDX-License-Identifier: BSD-2-Clause
// The private data that FI_EP_RDM endpoints put into the connection message: their identity, and
// the protocol that they speak.
//
// Example:
//    // The private data of a request.
//    inline auto request(uint16_t listens_at, uint32_t process) {
//      return encode_hello({.version = kRdmVersion, .port = listens_at, .process = process});
//    }
//    // The private data of the accept, before encode_hello(). Both sides conclude the kind of the
//    // stream from it: kind_of_answer(hello->version).
//    inline tl::expected<RdmHello, HelloRefusal> accept(std::span<const uint8_t> request,
//                                                       uint32_t process) {
//      auto hello = parse_hello(request);
//      if (!hello) return hello;  // text(hello.error()) says why
//      const uint8_t version = answer_to(hello->version);
//      return RdmHello{.version = version, .port = hello->port, .process = process};
//    }
//
// A peer is identified by the source address of its stream and the port in its hello, on which it
// listens. Not for crossing requests: weft/sdk/peer/link.h.
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
// Feature of weft, in a request (kSaysWhenFull) and in the answer (kSaysWhenFullToo): this side
// says when it has room for long messages (kAnnounceNoMore) and when not (kAnnounceAll), and obeys
// the other side. Two bits, because some peers echo bits that they do not know.
inline constexpr uint8_t kSaysWhenFull = 0x80, kSaysWhenFullToo = 0x40;
// The same for announcements with kFlagMatch and kFlagUntagged.
inline constexpr uint8_t kAnnouncesAny = 0x20, kAnnouncesAnyToo = 0x10;
// The same for answers that refuse an access to memory (kOpDataRefused).
inline constexpr uint8_t kRefuses = 0x08, kRefusesToo = 0x04;

// RdmHello::process of an endpoint of weft: the process, in bits that no process id of Linux
// exceeds, and above it the place of a context of a scalable endpoint, whose first context has a
// port that is so much lower. To peers that do not know of places each context is an endpoint of
// its own.
inline constexpr unsigned kPlaceShift = 27;
constexpr uint32_t process_at(uint32_t process, unsigned place) {
  return process | uint32_t(place) << kPlaceShift;
}

struct RdmHello {
  uint8_t version = 0;   // request: the sender's highest; accept: see answer_to()
  uint8_t features = 0;  // kCannotBeCalled: of peers since libfabric 2.2; kSaysWhenFull
  uint16_t port = 0;     // on which the requester listens; an accept repeats it
  uint32_t process = 0;  // of the sender of this message
  unsigned place() const { return process >> kPlaceShift; }
  bool operator==(const RdmHello &) const = default;
};

enum class HelloRefusal : uint8_t {
  kSize,  // not 8 bytes
  kPort,  // 0: no port to listen on
};
const char *text(HelloRefusal refusal) noexcept;

// Total: any bytes give a hello or a refusal.
tl::expected<RdmHello, HelloRefusal> parse_hello(std::span<const uint8_t> bytes) noexcept;
std::array<uint8_t, kHelloSize> encode_hello(const RdmHello &hello) noexcept;

// The version byte of the accept for a request with this version byte. Requesters of protocol 0 do
// not know kAnsweredBit, and get their 0 back.
uint8_t answer_to(uint8_t requested) noexcept;
// The protocol that both sides conclude from an answer. A responder of protocol 0 echoes the
// request's byte: without kAnsweredBit it agrees to nothing.
EndpointKind kind_of_answer(uint8_t answered) noexcept;

// The protocol of a stream.
struct Terms {
  ByteOrder order = ByteOrder::kNative;
  EndpointKind kind = EndpointKind::kRdm0;
  bool says_when_full = false;  // agreed: see kSaysWhenFull
  bool announces_any = false;   // the same: see kAnnouncesAny
  bool refuses = false;         // the same: see kRefuses
};
// The features of the answer to a request with these.
uint8_t features_of_answer(uint8_t requested) noexcept;
// From the version and the features of the answer.
Terms terms_of(ByteOrder order, uint8_t answered, uint8_t features) noexcept;

}  // namespace weft::tcp

#endif  // WEFT_PLUGINS_TCP_WIRE_RDM_MESSAGE_H
