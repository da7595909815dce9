// SPDX-License-Identifier: BSD-2-Clause
// The data frames of the tcp provider: a typed header, and the two functions that turn it into
// bytes and back.
//
// Example:
//    // The header of a message of 100 bytes that the peer acknowledges. Returns its length.
//    inline size_t encode_message(uint8_t (&out)[kMaxHeaderSize]) {
//      FrameHeader header;
//      header.op = Op::kMessage;
//      header.flags = kFlagDelivery;
//      header.payload_size = 100;
//      return encode_header(header, ByteOrder::kNative, /*id=*/0, out);
//    }
//    // Why the connection must end; null: the header is valid.
//    inline const char *check(std::span<const uint8_t> bytes) {
//      const auto header = parse_header(bytes, ByteOrder::kNative, EndpointKind::kMsg);
//      return header ? nullptr : text(header.error());
//    }
//
// parse_header() is total: for any bytes it returns a header with valid fields only, or a reason.
// It accepts all that stock peers send: it does not check the version byte, the id byte and stale
// rma counts. It knows no connection. Others check whether a key is valid or a rendezvous context
// exists.
// Not for payloads (reader.h), nor for the message in front of all frames (connect_message.h).
#ifndef WEFT_PLUGINS_TCP_WIRE_FRAME_H
#define WEFT_PLUGINS_TCP_WIRE_FRAME_H

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <tl/expected.hpp>

namespace weft::tcp {

inline constexpr uint8_t kFrameVersion = 3;
inline constexpr size_t kMinHeaderSize = 16;
inline constexpr size_t kMaxRmaVectors = 4;
inline constexpr size_t kRmaVectorSize = 24;
inline constexpr size_t kMaxHeaderSize = kMinHeaderSize + 8 + kMaxRmaVectors * kRmaVectorSize;
static_assert(kMaxHeaderSize == 120);

inline constexpr uint16_t kFlagRemoteData = 0x0001;  // 8 bytes of remote CQ data in the header
inline constexpr uint16_t kFlagDelivery = 0x0004;    // acknowledge when the payload is in place
inline constexpr uint16_t kFlagCommit = 0x0008;      // acknowledge when it is persistent
// Of kReadyToSend between weft endpoints (kAnnouncesAny): the message stays with the sender until
// it has a receive; it has no tag.
inline constexpr uint16_t kFlagMatch = 0x0010, kFlagUntagged = 0x0020;
inline constexpr uint16_t kFlagTagged = 0x0080;  // EndpointKind::kMsgTagged only: op 0 has a tag

// Values of op_data that make a message an answer. kOpDataAck: the oldest frame that waits for an
// acknowledgement has taken effect. The others are said by weft endpoints only (kRefuses), of
// accesses to memory that the target does not permit: that frame was refused; or a write was that
// waits for nothing. A read response with kOpDataRefused and no payload refuses the oldest read.
inline constexpr uint8_t kOpDataAck = 2, kOpDataRefused = 3, kOpDataWriteRefused = 4;
inline constexpr uint8_t kMaxRendezvous = 254;  // contexts of ops 5 to 7 are 1..254
// Contexts of kClearToSend that name no message, between weft endpoints (kSaysWhenFull).
// kAnnounceAll: announce long messages, as at the beginning. kAnnounceNoMore: there is room for
// them.
inline constexpr uint8_t kAnnounceAll = 255, kAnnounceNoMore = 0;

enum class Op : uint8_t {
  kMessage = 0,  // and the acknowledgement
  kTagged = 1,   // RDM
  kReadRequest = 2,
  kReadResponse = 3,
  kWrite = 4,
  kReadyToSend = 5,  // RDM protocol 1, as the two below
  kClearToSend = 6,
  kRendezvousData = 7,
};

// The operations that the peer may send on this connection.
enum class EndpointKind : uint8_t {
  kMsg,        // ops 0, 2, 3, 4
  kMsgTagged,  // the same, and kFlagTagged: below ofi_rxm, from libfabric up to 1.19 with dynamic
               // receive buffers
  kRdm0,       // ops 0 to 4
  kRdm1,       // ops 0 to 7
};

// Order of the multi-byte fields of data frames. Payloads are never swapped.
enum class ByteOrder : uint8_t {
  kNative,   // the peer has our order
  kNetwork,  // the peer has the other one: both send big endian
};

enum class Reject : uint8_t {
  kTruncated,       // parse_header() was given fewer bytes than the header has; never from a stream
  kHeaderSize,      // below 16 or above 120
  kHeaderMismatch,  // the header size does not fit op, flags and rma count
  kOp,              // unknown
  kOpNotAllowed,    // known, but not on this kind of endpoint
  kFlags,           // a flag that this op does not have
  kOpData,          // neither 0 nor a value that the op defines
  kRmaCount,        // not 1..4
  kRmaOverflow,     // the lengths of the vectors exceed 64 bits
  kFrameSize,       // the frame is smaller than its header
  kPayloadMismatch,    // a write whose payload is not the sum of its vectors
  kUnexpectedPayload,  // the op has no payload
  kRefused,            // Reader: the sink refused the frame
  kTarget,             // Reader: the sink's target is not the size of the payload
};

// Cause and remedy in words, static storage.
const char *text(Reject reject) noexcept;

struct RmaVector {
  uint64_t address;
  uint64_t length;
  uint64_t key;
  bool operator==(const RmaVector &) const = default;
};

// In host order. Fields that the op does not carry are 0.
struct FrameHeader {
  Op op = Op::kMessage;
  uint8_t op_data = 0;      // kOpDataAck, or the rendezvous context
  uint8_t rma_count = 0;    // valid entries of rma; 0 except for kReadRequest and kWrite
  uint8_t header_size = 0;  // set by parse_header(); encode_header() computes it
  uint16_t flags = 0;       // 0 for read responses, whose flags mean nothing
  uint64_t size = 0;        // header and payload; computed as header_size
  uint64_t payload_size = 0;
  uint64_t data = 0;               // if has_data()
  uint64_t tag = 0;                // kTagged, kReadyToSend, kMessage with kFlagTagged
  uint64_t rendezvous_length = 0;  // kReadyToSend: length of the message to come
  // The first rma_count entries are set. The others are not: to clear them costs more than to parse
  // a message.
  std::array<RmaVector, kMaxRmaVectors> rma;

  // Not defaulted: then FrameHeader() would clear rma.
  FrameHeader() {}  // NOLINT(modernize-use-equals-default)

  bool is_ack() const { return op == Op::kMessage && op_data == kOpDataAck; }
  bool is_answer() const { return op == Op::kMessage && op_data != 0; }
  bool is_refusal() const {
    return op_data > kOpDataAck && (is_answer() || op == Op::kReadResponse);
  }
  bool has_data() const { return (flags & kFlagRemoteData) != 0; }
  bool wants_ack() const { return (flags & (kFlagDelivery | kFlagCommit)) != 0; }
  uint64_t rma_length() const {  // sum over the vectors; parse_header() has checked that it fits
    uint64_t sum = 0;
    for (size_t i = 0; i < rma_count; ++i) sum += rma[i].length;
    return sum;
  }
  std::span<const RmaVector> vectors() const { return {rma.data(), rma_count}; }
};

// The size of the header at the front of `bytes`: 16..120, or 0 if there are fewer than 16 bytes.
inline tl::expected<size_t, Reject> parse_prefix(std::span<const uint8_t> bytes) noexcept;

// `bytes` begins with a whole header of the size that parse_prefix() returned; the rest is ignored.
inline tl::expected<FrameHeader, Reject> parse_header(std::span<const uint8_t> bytes,
                                                      ByteOrder order, EndpointKind kind) noexcept;

// Writes the header to `out` and returns its length, at most kMaxHeaderSize. The caller sets op,
// flags, op_data, payload_size and the fields that they need; rma_count is at most 4.
inline size_t encode_header(const FrameHeader &header, ByteOrder order, uint8_t id,
                            uint8_t *out) noexcept;

// ---- implementation of the inline functions ----

namespace detail {

// Offsets of the fixed part.
inline constexpr size_t kOpAt = 1, kFlagsAt = 2, kOpDataAt = 4, kRmaCountAt = 5, kHeaderSizeAt = 6,
                        kIdAt = 7, kSizeAt = 8;

inline uint16_t swap_if(uint16_t value, bool swap) {
  return swap ? __builtin_bswap16(value) : value;
}
inline uint64_t swap_if(uint64_t value, bool swap) {
  return swap ? __builtin_bswap64(value) : value;
}

inline bool swaps(ByteOrder order) {
  return order == ByteOrder::kNetwork && std::endian::native == std::endian::little;
}

template <class T>
inline T load(const uint8_t *at, bool swap) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return swap_if(value, swap);
}

template <class T>
inline void store(uint8_t *at, T value, bool swap) {
  value = swap_if(value, swap);
  std::memcpy(at, &value, sizeof value);
}

// The first 8 bytes as one word: a mask without the ignored bytes, and the masked value of a plain
// message without flags.
inline constexpr auto kPlainMask =
    std::bit_cast<uint64_t>(std::array<uint8_t, 8>{0, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0});
inline constexpr auto kPlain =
    std::bit_cast<uint64_t>(std::array<uint8_t, 8>{0, 0, 0, 0, 0, 0, kMinHeaderSize, 0});

// For all headers except the plain one. Fills `header`, or returns a reason.
std::optional<Reject> parse_any_header(std::span<const uint8_t> bytes, ByteOrder order,
                                       EndpointKind kind, FrameHeader &header) noexcept;
size_t encode_extension(const FrameHeader &header, bool swap, uint8_t *out) noexcept;

}  // namespace detail

inline tl::expected<size_t, Reject> parse_prefix(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() < kMinHeaderSize) return 0;
  const size_t size = bytes[detail::kHeaderSizeAt];
  if (size < kMinHeaderSize || size > kMaxHeaderSize) return tl::unexpected(Reject::kHeaderSize);
  return size;
}

inline tl::expected<FrameHeader, Reject> parse_header(std::span<const uint8_t> bytes,
                                                      ByteOrder order, EndpointKind kind) noexcept {
  tl::expected<FrameHeader, Reject> result(tl::in_place);
  if (bytes.size() >= kMinHeaderSize &&
      (detail::load<uint64_t>(bytes.data(), false) & detail::kPlainMask) == detail::kPlain) {
    const auto size = detail::load<uint64_t>(bytes.data() + detail::kSizeAt, detail::swaps(order));
    result->header_size = kMinHeaderSize;
    result->size = size;
    result->payload_size = size - kMinHeaderSize;
    if (size < kMinHeaderSize) [[unlikely]] {
      result = tl::unexpected(Reject::kFrameSize);
    }
  } else if (const auto reject = detail::parse_any_header(bytes, order, kind, *result)) {
    result = tl::unexpected(*reject);
  }
  return result;
}

inline size_t encode_header(const FrameHeader &header, ByteOrder order, uint8_t id,
                            uint8_t *out) noexcept {
  const bool swap = detail::swaps(order);
  size_t n = kMinHeaderSize;
  if (header.op != Op::kMessage || header.flags != 0)
    n = detail::encode_extension(header, swap, out);
  out[0] = kFrameVersion;
  out[detail::kOpAt] = static_cast<uint8_t>(header.op);
  detail::store(out + detail::kFlagsAt, header.flags, swap);
  out[detail::kOpDataAt] = header.op_data;
  out[detail::kRmaCountAt] = header.rma_count;
  out[detail::kHeaderSizeAt] = static_cast<uint8_t>(n);
  out[detail::kIdAt] = id;
  detail::store(out + detail::kSizeAt, uint64_t{n} + header.payload_size, swap);
  return n;
}

}  // namespace weft::tcp

#endif  // WEFT_PLUGINS_TCP_WIRE_FRAME_H
