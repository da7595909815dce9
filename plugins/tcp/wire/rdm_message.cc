// SPDX-License-Identifier: BSD-2-Clause
#include "rdm_message.h"

#include <algorithm>

namespace weft::tcp {

const char *text(HelloRefusal refusal) noexcept {
  switch (refusal) {
    case HelloRefusal::kSize:
      return "the private data is not the 8 bytes of an FI_EP_RDM endpoint: the peer is no such "
             "endpoint";
    case HelloRefusal::kPort:
      return "the requester names port 0 as its own: the peer is broken";
  }
  return "unknown reason";
}

tl::expected<RdmHello, HelloRefusal> parse_hello(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() != kHelloSize) return tl::unexpected(HelloRefusal::kSize);
  RdmHello hello;
  hello.version = bytes[0];
  hello.features = bytes[1];
  hello.port = static_cast<uint16_t>(bytes[2] << 8 | bytes[3]);
  for (size_t i = 4; i < kHelloSize; ++i) hello.process = hello.process << 8 | bytes[i];
  if (hello.port == 0) return tl::unexpected(HelloRefusal::kPort);
  return hello;
}

std::array<uint8_t, kHelloSize> encode_hello(const RdmHello &hello) noexcept {
  return {hello.version,
          hello.features,
          static_cast<uint8_t>(hello.port >> 8),
          static_cast<uint8_t>(hello.port),
          static_cast<uint8_t>(hello.process >> 24),
          static_cast<uint8_t>(hello.process >> 16),
          static_cast<uint8_t>(hello.process >> 8),
          static_cast<uint8_t>(hello.process)};
}

uint8_t answer_to(uint8_t requested) noexcept {
  if (requested == 0) return 0;
  return std::min<uint8_t>(requested, kRdmVersion) | kAnsweredBit;
}

EndpointKind kind_of_answer(uint8_t answered) noexcept {
  return answered == (kRdmVersion | kAnsweredBit) ? EndpointKind::kRdm1 : EndpointKind::kRdm0;
}

uint8_t features_of_answer(uint8_t requested) noexcept {
  return uint8_t((requested & kSaysWhenFull ? kSaysWhenFullToo : 0) |
                 (requested & kAnnouncesAny ? kAnnouncesAnyToo : 0) |
                 (requested & kRefuses ? kRefusesToo : 0));
}

Terms terms_of(ByteOrder order, uint8_t answered, uint8_t features) noexcept {
  const EndpointKind kind = kind_of_answer(answered);
  const auto agreed = [&](uint8_t asked, uint8_t answer) {
    return kind == EndpointKind::kRdm1 && (features & (asked | answer)) == answer;
  };
  return {order, kind, agreed(kSaysWhenFull, kSaysWhenFullToo),
          agreed(kAnnouncesAny, kAnnouncesAnyToo), agreed(kRefuses, kRefusesToo)};
}

}  // namespace weft::tcp
