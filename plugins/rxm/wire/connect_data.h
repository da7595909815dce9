// SPDX-License-Identifier: BSD-2-Clause
// The private data that two rxm endpoints exchange while they connect: in the carrier's request,
// accept and reject.
//
// Example:
//    // The private data for fi_accept or fi_reject, for that of a request.
//    inline std::vector<uint8_t> answer_to(std::span<const uint8_t> request, AcceptData ours) {
//      const auto theirs = parse_connect(request);
//      if (!theirs) {  // text_of(theirs.error()) says why
//        const RejectBytes no = encode(RejectReason::kRefused);
//        return {no.begin(), no.end()};
//      }
//      // Here: the peer listens at theirs->port, and wants theirs->index in packets to it.
//      const AcceptBytes yes = encode(ours);
//      return {yes.begin(), yes.end()};
//    }
//
// Stock peers send and report the count of receives, but do not use it. weft marks itself in that
// field (docs/rxm-extensions.md). `level` is 0 for peers without the mark.
//
// Not for deciding which request counts when both connect at once: that is in protocol/.
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
inline constexpr size_t kStockRejectSize = 2, kRejectSize = 3;
using ConnectBytes = std::array<uint8_t, kConnectSize>;
using AcceptBytes = std::array<uint8_t, kAcceptSize>;
using RejectBytes = std::array<uint8_t, kRejectSize>;

// A peer of level 1 or above accepts segmented messages that are probed and claimed, and packets of
// type kPart; one of level 2 says its place; one of level 3 takes bare messages (bare.h); one of
// level 4 tells of messages whose header asks for it (Tell in packet.h).
inline constexpr uint8_t kLevel = 4;
inline constexpr uint8_t kLevelOfTelling = 4;
inline constexpr uint8_t kLevelOfBare = 3;
inline constexpr uint8_t kLevelOfPlaces = 2;
inline constexpr uint8_t kMaxLevel = 15;
// The largest count that fits beside the mark.
inline constexpr uint32_t kMaxMarkedCount = 0x7ff;
// Places of contexts of scalable endpoints (weft/sdk/objects/scalable.h) are below.
inline constexpr uint8_t kPlaces = 32;

enum class FlowControl : uint8_t { kAsReceiver = 0, kOn = 1, kOff = 2 };

struct ConnectData {
  uint16_t port = 0;  // where the requester listens, host order
  FlowControl flow_control = FlowControl::kOff;
  uint32_t eager_limit = 0;
  uint32_t receive_count = 0;
  uint8_t level = 0;  // 0: not weft
  uint8_t place = 0;  // of the requester: a context whose endpoint has a port that is so much lower
  uint32_t process = 0;
  uint32_t index = 0;  // names the sender's connection in packets to it
  bool operator==(const ConnectData &) const = default;
};

struct AcceptData {
  uint32_t process = 0;
  uint32_t index = 0;
  uint32_t receive_count = 0;
  uint8_t level = 0;
  uint8_t last_place = 0;  // of the scalable endpoint whose first context this is
  FlowControl flow_control = FlowControl::kOff;
  bool operator==(const AcceptData &) const = default;
};

enum class RejectReason : uint8_t {
  kUnspecified = 0,
  kRefused = 1,  // the settings do not match, or no resources
  kAlready = 2,  // the two have, or will have, another connection
};

enum class ConnectReject : uint8_t {
  kLength,       // not the length of version 1
  kVersion,      // of the connect data, the control header or the operation header
  kByteOrder,    // not ours
  kFlowControl,  // unknown value
};
const char *text_of(ConnectReject reject);

ConnectBytes encode(const ConnectData &data);
AcceptBytes encode(const AcceptData &data);
// Only weft peers of kLevelOfPlaces get the last place, behind the first kStockRejectSize bytes.
RejectBytes encode(RejectReason reason, uint8_t last_place = 0);

tl::expected<ConnectData, ConnectReject> parse_connect(std::span<const uint8_t> bytes);
tl::expected<AcceptData, ConnectReject> parse_accept(std::span<const uint8_t> bytes);
// Anything unknown is kUnspecified: a rejection without a reason is still a rejection.
RejectReason parse_reject(std::span<const uint8_t> bytes);
uint8_t parse_last_place(std::span<const uint8_t> reject);

}  // namespace weft::rxm

#endif
