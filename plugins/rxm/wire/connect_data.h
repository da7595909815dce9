// SPDX-License-Identifier: BSD-2-Clause
// What two rxm endpoints tell each other while they connect: the private data of the carrier's
// request, accept and reject.
//
//   ConnectBytes bytes = encode(ConnectData{.port = 7471, .eager_limit = 16384, ...});
//   auto theirs = parse_connect(private_data);     // unexpected: why this request is refused
//   if (theirs) { ... theirs->port, theirs->process, theirs->index ... }
//
// The count of receives, which stock peers show but do not use, also says that a peer is weft
// (docs/rxm-extensions.md): `level` is 0 of all others.
//
// Not for deciding who wins when both connect at once: that is the protocol's (protocol/).
#ifndef WEFT_PLUGINS_RXM_WIRE_CONNECT_DATA_H
#define WEFT_PLUGINS_RXM_WIRE_CONNECT_DATA_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>

namespace weft::rxm {

inline constexpr size_t kConnectSize = 24;
inline constexpr size_t kAcceptSize = 16;
inline constexpr size_t kRejectSize = 2;
using ConnectBytes = std::array<uint8_t, kConnectSize>;
using AcceptBytes = std::array<uint8_t, kAcceptSize>;
using RejectBytes = std::array<uint8_t, kRejectSize>;

// What a peer of this level or above takes: segments of messages that were probed and claimed, and
// packets of the type kPart.
inline constexpr uint8_t kLevel = 1;
inline constexpr uint8_t kMaxLevel = 15;
// The count of one that says its level goes no further.
inline constexpr uint32_t kMaxMarkedCount = 0xffff;

enum class FlowControl : uint8_t { kAsReceiver = 0, kOn = 1, kOff = 2 };

struct ConnectData {
  uint16_t port = 0;  // where the requester listens, host order
  FlowControl flow_control = FlowControl::kOff;
  uint32_t eager_limit = 0;
  uint32_t receive_count = 0;
  uint8_t level = 0;  // 0: not weft
  uint32_t process = 0;
  uint32_t index = 0;  // by which the sender of this wants to be addressed on this connection
  bool operator==(const ConnectData &) const = default;
};

struct AcceptData {
  uint32_t process = 0;
  uint32_t index = 0;
  uint32_t receive_count = 0;
  uint8_t level = 0;
  FlowControl flow_control = FlowControl::kOff;
  bool operator==(const AcceptData &) const = default;
};

enum class RejectReason : uint8_t {
  kUnspecified = 0,
  kRefused = 1,  // the two do not fit together, or no resources
  kAlready = 2,  // there is, or will be, another connection between the two
};

enum class ConnectReject : uint8_t {
  kLength,       // not as long as version 1 is
  kVersion,      // of the connect data, the control or the operation header
  kByteOrder,    //
  kFlowControl,  //
};
const char *text_of(ConnectReject reject);

ConnectBytes encode(const ConnectData &data);
AcceptBytes encode(const AcceptData &data);
RejectBytes encode(RejectReason reason);

tl::expected<ConnectData, ConnectReject> parse_connect(std::span<const uint8_t> bytes);
tl::expected<AcceptData, ConnectReject> parse_accept(std::span<const uint8_t> bytes);
// Everything that is not understood is kUnspecified: a rejection needs no reason to be one.
RejectReason parse_reject(std::span<const uint8_t> bytes);

}  // namespace weft::rxm

#endif
