// SPDX-License-Identifier: BSD-2-Clause
#include "frame.h"

namespace weft::tcp {

namespace {

constexpr uint8_t bit(EndpointKind kind) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(kind));
}

constexpr uint8_t kRdm1Only = bit(EndpointKind::kRdm1);
constexpr uint8_t kRdm = kRdm1Only | bit(EndpointKind::kRdm0);
constexpr uint8_t kAll = kRdm | bit(EndpointKind::kMsg) | bit(EndpointKind::kMsgTagged);

// What an op may carry. The header's extension has the fields in the order of the columns.
struct OpRule {
  uint8_t kinds;
  uint16_t flags;
  uint8_t words;  // 8-byte words behind the data: tag, rendezvous length
  bool vectors;   // remote vectors last
  bool payload;
  bool context;  // op_data is a rendezvous context, else 0
};

constexpr std::array<OpRule, 8> kRules = {{
    {kAll, kFlagRemoteData | kFlagDelivery, 0, false, true, false},               // kMessage
    {kRdm, kFlagRemoteData | kFlagDelivery, 1, false, true, false},               // kTagged
    {kAll, 0, 0, true, false, false},                                             // kReadRequest
    {kAll, 0, 0, false, true, false},                                             // kReadResponse
    {kAll, kFlagRemoteData | kFlagDelivery | kFlagCommit, 0, true, true, false},  // kWrite
    {kRdm1Only, kFlagRemoteData | kFlagDelivery | kFlagMatch | kFlagUntagged, 2, false, false,
     true},                                                              // kReadyToSend
    {kRdm1Only, 0, 0, false, false, true},                               // kClearToSend
    {kRdm1Only, kFlagRemoteData | kFlagDelivery, 0, false, true, true},  // kRendezvousData
}};

// Rendezvous data repeats the flags of its ready-to-send, which carried the remote CQ data.
constexpr bool data_in_extension(Op op, uint16_t flags) {
  return op != Op::kRendezvousData && (flags & kFlagRemoteData) != 0;
}

// Of ops whose op_data is no rendezvous context.
constexpr bool is_known(Op op, uint8_t op_data) {
  if (op == Op::kReadResponse) return op_data == 0 || op_data == kOpDataRefused;
  return op_data == 0 ||
         (op == Op::kMessage && op_data >= kOpDataAck && op_data <= kOpDataWriteRefused);
}

}  // namespace

const char *text(Reject reject) noexcept {
  switch (reject) {
    case Reject::kTruncated:
      return "the frame header ends early: read as many bytes as its header size says";
    case Reject::kHeaderSize:
      return "the header size is not within 16..120: the peer does not speak the tcp provider's "
             "protocol, or lost a frame boundary";
    case Reject::kHeaderMismatch:
      return "the header size is not what op, flags and vector count ask for: the peer is broken "
             "or lost a frame boundary";
    case Reject::kOp:
      return "unknown op: the peer speaks a newer protocol or lost a frame boundary";
    case Reject::kOpNotAllowed:
      return "an op that this type of endpoint does not have: connect endpoints of one type and "
             "protocol version";
    case Reject::kFlags:
      return "a flag that the op does not have: the peer speaks a newer protocol or lost a frame "
             "boundary";
    case Reject::kOpData:
      return "op data that the op does not have: the peer speaks a newer protocol or lost a frame "
             "boundary";
    case Reject::kRmaCount:
      return "the number of remote vectors is not within 1..4: the peer exceeds rma_iov_limit";
    case Reject::kRmaOverflow:
      return "the lengths of the remote vectors exceed 64 bits: the peer asked for nonsense";
    case Reject::kFrameSize:
      return "the frame is smaller than its header: the peer is broken or lost a frame boundary";
    case Reject::kPayloadMismatch:
      return "the payload of a write is not the sum of its remote vectors: the peer is broken";
    case Reject::kUnexpectedPayload:
      return "payload behind an op that has none: the peer is broken or lost a frame boundary";
    case Reject::kRefused:
      return "the endpoint refused the frame";
    case Reject::kTarget:
      return "the target of a payload has not the payload's size: an error in this provider, "
             "please report it";
  }
  return "unknown reason";
}

namespace detail {

std::optional<Reject> parse_any_header(std::span<const uint8_t> bytes, ByteOrder order,
                                       EndpointKind kind, FrameHeader &header) noexcept {
  if (bytes.size() < kMinHeaderSize) return Reject::kTruncated;
  const size_t header_size = bytes[kHeaderSizeAt];
  if (header_size < kMinHeaderSize || header_size > kMaxHeaderSize) return Reject::kHeaderSize;
  if (bytes.size() < header_size) return Reject::kTruncated;

  if (bytes[kOpAt] >= kRules.size()) return Reject::kOp;
  const OpRule &rule = kRules[bytes[kOpAt]];
  if ((rule.kinds & bit(kind)) == 0) return Reject::kOpNotAllowed;

  const bool swap = swaps(order);
  header.op = static_cast<Op>(bytes[kOpAt]);
  header.op_data = bytes[kOpDataAt];
  header.header_size = static_cast<uint8_t>(header_size);
  header.size = load<uint64_t>(bytes.data() + kSizeAt, swap);
  header.flags = load<uint16_t>(bytes.data() + kFlagsAt, swap);
  // A response repeats the flags of its request.
  if (header.op == Op::kReadResponse) header.flags = 0;

  const bool tagged_message = header.op == Op::kMessage && kind == EndpointKind::kMsgTagged &&
                              (header.flags & kFlagTagged) != 0;
  uint16_t known_flags = rule.flags;
  if (tagged_message) known_flags |= kFlagTagged;
  if (header.is_answer()) known_flags = 0;
  if ((header.flags & ~known_flags) != 0) return Reject::kFlags;

  if (rule.context) {
    const bool names_none = header.op_data == kAnnounceAll || header.op_data == kAnnounceNoMore;
    if (names_none && header.op != Op::kClearToSend) return Reject::kOpData;
  } else if (!is_known(header.op, header.op_data)) {
    return Reject::kOpData;
  }

  if (rule.vectors) {
    header.rma_count = bytes[kRmaCountAt];
    if (header.rma_count == 0 || header.rma_count > kMaxRmaVectors) return Reject::kRmaCount;
  }
  const size_t words = rule.words + (tagged_message ? 1u : 0u) +
                       (data_in_extension(header.op, header.flags) ? 1u : 0u);
  if (header_size != kMinHeaderSize + words * 8 + header.rma_count * kRmaVectorSize) {
    return Reject::kHeaderMismatch;
  }
  if (header.size < header_size) return Reject::kFrameSize;
  header.payload_size = header.size - header_size;
  if (header.payload_size != 0 && (!rule.payload || header.is_answer() || header.is_refusal()))
    return Reject::kUnexpectedPayload;

  const uint8_t *at = bytes.data() + kMinHeaderSize;
  const auto word = [&at, swap] {
    const auto value = load<uint64_t>(at, swap);
    at += sizeof value;
    return value;
  };
  if (data_in_extension(header.op, header.flags)) header.data = word();
  if (rule.words > 0 || tagged_message) header.tag = word();
  if (rule.words > 1) header.rendezvous_length = word();
  uint64_t total = kMinHeaderSize;  // the frame size of the read response must fit, too
  for (size_t i = 0; i < header.rma_count; ++i) {
    header.rma[i].address = word();
    header.rma[i].length = word();
    header.rma[i].key = word();
    if (__builtin_add_overflow(total, header.rma[i].length, &total)) return Reject::kRmaOverflow;
  }
  if (header.op == Op::kWrite && total - kMinHeaderSize != header.payload_size) {
    return Reject::kPayloadMismatch;
  }
  return std::nullopt;
}

size_t encode_extension(const FrameHeader &header, bool swap, uint8_t *out) noexcept {
  const OpRule &rule = kRules[static_cast<size_t>(header.op)];
  uint8_t *at = out + kMinHeaderSize;
  const auto word = [&at, swap](uint64_t value) {
    store(at, value, swap);
    at += sizeof value;
  };
  if (data_in_extension(header.op, header.flags)) word(header.data);
  if (rule.words > 0 || (header.op == Op::kMessage && (header.flags & kFlagTagged) != 0))
    word(header.tag);
  if (rule.words > 1) word(header.rendezvous_length);
  if (rule.vectors) {
    for (size_t i = 0; i < header.rma_count; ++i) {
      word(header.rma[i].address);
      word(header.rma[i].length);
      word(header.rma[i].key);
    }
  }
  return static_cast<size_t>(at - out);
}

}  // namespace detail

}  // namespace weft::tcp
