// SPDX-License-Identifier: BSD-2-Clause
// The private data of connection messages between XRC endpoints: 16 bytes of the provider's, the
// byte with the length, and the application's parameter, laid out as stock's verbs does.
//
// Example (statements):
//    const XrcMessage sent({.port = 7471, .srq = 3, .tag = 9}, "hello");
//    const std::string_view bytes(reinterpret_cast<const char *>(sent.bytes().data()),
//                                 sent.bytes().size());
//    const std::optional<XrcReceived> got = parse_xrc(bytes);  // got->parameter is "hello"
//
// Not for what the numbers are used for: xrc_endpoint.h.
#ifndef WEFT_PLUGINS_VERBS_XRC_DATA_H
#define WEFT_PLUGINS_VERBS_XRC_DATA_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "plugins/verbs/private_data.h"

namespace weft::verbs {

inline constexpr size_t kXrcHeaderSize = 16;
// FI_OPT_CM_DATA_SIZE of XRC endpoints.
inline constexpr size_t kXrcParameterSize = kPrivateDataSize - kXrcHeaderSize;

struct XrcData {
  bool reciprocal = false;  // of the accepting side's own connection
  uint16_t port = 0;        // where the sender takes reciprocal connections
  uint32_t target = 0;      // number of the queue pair that receives; 0: none yet
  uint32_t srq = 0;         // number of the sender's shared receive queue
  uint32_t tag = 0;         // of the requesting endpoint; answers repeat it

  bool operator==(const XrcData &) const = default;
};

class XrcMessage {
 public:
  // What does not fit is left out (fi_cm.3, NOTES).
  XrcMessage(const XrcData &data, std::string_view parameter);
  std::span<const uint8_t> bytes() const { return {bytes_.data(), size_}; }

 private:
  std::array<uint8_t, kPrivateDataSize + 1> bytes_{};
  size_t size_;
};

struct XrcReceived {
  XrcData data;
  std::string_view parameter;  // in the delivered bytes
};

// Nothing: a length, a version or a number that cannot be.
std::optional<XrcReceived> parse_xrc(std::string_view delivered);

}  // namespace weft::verbs

#endif
