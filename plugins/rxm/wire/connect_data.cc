// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/wire/connect_data.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::rxm {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kControlHeader = 4;
// This version differs from the one in the header of packets (packet.h).
constexpr uint8_t kOperationHeader = 3;
constexpr uint8_t kByteOrder = std::endian::native == std::endian::little ? 2 : 1;

struct WireConnect {
  uint8_t version, byte_order, control, operation;
  uint16_t port;
  uint8_t flow_control, lane;
  uint32_t eager_limit, receive_count;
  uint64_t id;
};
static_assert(sizeof(WireConnect) == kConnectSize);

struct WireAccept {
  uint64_t id;
  uint32_t receive_count;
  uint8_t flow_control, zero[3];
};
static_assert(sizeof(WireAccept) == kAcceptSize);

// The mark of weft in a count of receives: the upper 12 bits, with the level below them. No stock
// peer posts so many receives.
constexpr uint32_t kMark = 0x5ef;

// Below the level is the place, 0 for endpoints that are no contexts. At level 1 there is none, and
// the count has its bits.
constexpr unsigned kPlaceShift = 11;
constexpr uint32_t most_marked(uint8_t level) {
  return level < kLevelOfPlaces ? 0xffff : kMaxMarkedCount;
}

constexpr uint32_t mark(uint32_t count, uint8_t level, uint8_t place) {
  if (level == 0) return count;
  if (level < kLevelOfPlaces) place = 0;
  return kMark << 20 | uint32_t(std::min(level, kMaxLevel)) << 16 |
         uint32_t(place % kPlaces) << kPlaceShift | std::min(count, most_marked(level));
}

struct Marked {
  uint32_t count;
  uint8_t level, place;
};

constexpr Marked unmark(uint32_t field) {
  const auto level = uint8_t(field >> 16 & kMaxLevel);
  if (field >> 20 != kMark || level == 0) return {field, 0, 0};
  const bool has_place = level >= kLevelOfPlaces;
  return {field & most_marked(level), level,
          has_place ? uint8_t(field >> kPlaceShift & (kPlaces - 1)) : uint8_t(0)};
}

constexpr uint64_t join(uint32_t process, uint32_t index) {
  return uint64_t(process) << 32 | index;
}

}  // namespace

const char *text_of(ConnectReject reject) {
  switch (reject) {
    case ConnectReject::kLength:
      return "its private data is not as long as rxm's: does the peer run another provider?";
    case ConnectReject::kVersion:
      return "it speaks another version of rxm";
    case ConnectReject::kByteOrder:
      return "it has the other byte order, which the protocol does not bridge";
    case ConnectReject::kFlowControl:
      return "its flow control value is unknown";
  }
  return "unknown";
}

ConnectBytes encode(const ConnectData &data) {
  const WireConnect wire{.version = kVersion,
                         .byte_order = kByteOrder,
                         .control = kControlHeader,
                         .operation = kOperationHeader,
                         .port = data.port,
                         .flow_control = uint8_t(data.flow_control),
                         .lane = 0,
                         .eager_limit = data.eager_limit,
                         .receive_count = mark(data.receive_count, data.level, data.place),
                         .id = join(data.process, data.index)};
  return std::bit_cast<ConnectBytes>(wire);
}

AcceptBytes encode(const AcceptData &data) {
  const WireAccept wire{.id = join(data.process, data.index),
                        .receive_count = mark(data.receive_count, data.level, data.last_place),
                        .flow_control = uint8_t(data.flow_control),
                        .zero = {}};
  return std::bit_cast<AcceptBytes>(wire);
}

RejectBytes encode(RejectReason reason, uint8_t last_place) {
  return {kVersion, uint8_t(reason), last_place};
}

tl::expected<ConnectData, ConnectReject> parse_connect(std::span<const uint8_t> bytes) {
  if (bytes.size() < kConnectSize) return tl::unexpected(ConnectReject::kLength);
  WireConnect wire;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.version != kVersion) return tl::unexpected(ConnectReject::kVersion);
  if (wire.byte_order != kByteOrder) return tl::unexpected(ConnectReject::kByteOrder);
  if (wire.control != kControlHeader || wire.operation != kOperationHeader)
    return tl::unexpected(ConnectReject::kVersion);
  if (wire.flow_control > uint8_t(FlowControl::kOff))
    return tl::unexpected(ConnectReject::kFlowControl);
  const Marked receives = unmark(wire.receive_count);
  return ConnectData{.port = wire.port,
                     .flow_control = static_cast<FlowControl>(wire.flow_control),
                     .eager_limit = wire.eager_limit,
                     .receive_count = receives.count,
                     .level = receives.level,
                     .place = receives.place,
                     .process = uint32_t(wire.id >> 32),
                     .index = uint32_t(wire.id)};
}

tl::expected<AcceptData, ConnectReject> parse_accept(std::span<const uint8_t> bytes) {
  if (bytes.size() < kAcceptSize) return tl::unexpected(ConnectReject::kLength);
  WireAccept wire;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.flow_control > uint8_t(FlowControl::kOff))
    return tl::unexpected(ConnectReject::kFlowControl);
  const Marked receives = unmark(wire.receive_count);
  return AcceptData{.process = uint32_t(wire.id >> 32),
                    .index = uint32_t(wire.id),
                    .receive_count = receives.count,
                    .level = receives.level,
                    .last_place = receives.place,
                    .flow_control = static_cast<FlowControl>(wire.flow_control)};
}

RejectReason parse_reject(std::span<const uint8_t> bytes) {
  if (bytes.size() < kStockRejectSize || bytes[0] != kVersion ||
      bytes[1] > uint8_t(RejectReason::kAlready))
    return RejectReason::kUnspecified;
  return static_cast<RejectReason>(bytes[1]);
}

uint8_t parse_last_place(std::span<const uint8_t> reject) {
  return reject.size() == kRejectSize && reject[0] == kVersion ? reject[2] : uint8_t{0};
}

}  // namespace weft::rxm
