// SPDX-License-Identifier: BSD-2-Clause
// The packets that weft endpoints exchange (docs/rxd-protocol.md, sections 2 to 4). parse() turns a
// datagram into a typed Packet or a Reject, a FrameReader returns its frames one by one, and a
// Writer writes packets and frames into the caller's buffer.
//
// Example:
//    // Adds up the payload of the messages in a datagram.
//    inline Reject count(std::span<const uint8_t> datagram, size_t &bytes) {
//      const auto packet = parse(datagram);
//      if (!packet) return packet.error();
//      FrameReader frames(*packet);
//      while (frames.next())
//        if (frames.kind() == FrameKind::kMessage) bytes += frames.payload().size();
//      return frames.reject();
//    }
//    // A datagram with one message. The parts are what both sides said in the handshake. Returns
//    // the size of the datagram; 0: `out` is too small.
//    inline size_t write(std::span<uint8_t> out, const Part &ours, const Part &theirs,
//                        uint32_t number, uint32_t id, std::span<const uint8_t> payload) {
//      Writer w(out);
//      const bool fits = w.header({.kind = PacketKind::kData,
//                                  .flags = kFlagOrdered,
//                                  .to = theirs.connection,
//                                  .cookie = ours.cookie + theirs.cookie,
//                                  .sequence = number}) &&
//                        w.message({.id = id}, payload.size()) && w.payload(payload);
//      return fits ? w.size() : 0;
//    }
//
// parse() and FrameReader are total: they read no byte beyond the span, and their results need no
// further check. Not for checks that depend on a connection: a known pair, the checksum
// (integrity.h), a number in the window, an id in use.
#ifndef WEFT_PLUGINS_RXD_WIRE_PACKET_H
#define WEFT_PLUGINS_RXD_WIRE_PACKET_H

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tl/expected.hpp>
#include <variant>

#include "plugins/rxd/protocol/carrier.h"

namespace weft::rxd::wire {

inline constexpr uint8_t kMagic = 0xF7;
// A stock process may own the address of a former weft peer. It takes the packet for an RTS of
// another version, and drops it. For other types stock does not check the version.
inline constexpr uint8_t kGuard = 9;
inline constexpr size_t kHeaderSize = 24;
inline constexpr size_t kChecksumAt = 20;  // in the header
inline constexpr size_t kTimeAt = 16;
inline constexpr size_t kMacSize = 16;
inline constexpr size_t kTokenSize = 16;
inline constexpr size_t kNameSize = 64;  // an address as in stock's RTS
inline constexpr size_t kPartSize = 40;
inline constexpr size_t kAcknowledgementSize = 24;  // and 8 per word of the bitmap
inline constexpr size_t kMaxWords = 16;
inline constexpr uint64_t kUnreadUnit = 16'000;  // ns
inline constexpr size_t kChallengeSize = kHeaderSize + 8 + kTokenSize;
inline constexpr size_t kConnectSize = kHeaderSize + 8 + kTokenSize + kNameSize + kPartSize;
inline constexpr size_t kAcceptSize = kHeaderSize + 8 + kPartSize;
// Bytes before the frames of a data packet, at most.
inline constexpr size_t kMaxHead = kHeaderSize + kAcknowledgementSize + 8 * kMaxWords;
inline constexpr size_t kVectorLimit = 4;
inline constexpr size_t kOperandLimit = 1024;         // bytes
inline constexpr uint64_t kMessageLimit = INT64_MAX;  // bytes

enum class PacketKind : uint8_t {
  kChallenge = 1,
  kConnect = 2,
  kAccept = 3,
  kData = 4,
  kAcknowledge = 5,
  kProbe = 6,
  kProbed = 7,
  kReset = 8,
  kClose = 9,
  kClosed = 10,
};

inline constexpr uint16_t kFlagAcknowledgement = 1;  // always in kAcknowledge and kClose
inline constexpr uint16_t kFlagChecksum = 2;
inline constexpr uint16_t kFlagMac = 4;
inline constexpr uint16_t kFlagOrdered = 8;  // kData only: it starts an operation
inline constexpr uint16_t kFlagAsk = 16;     // to be acknowledged at once
inline constexpr uint16_t kAllFlags = 31;

// Why bytes are not a packet, or not a frame.
enum class Reject : uint8_t {
  kNone,
  kShort,            // ends before its kind, flags or lengths say
  kMagic,            // of another protocol
  kKind,             // unknown kind of packet
  kFlags,            // unknown flags, or flags that this kind does not have
  kSequence,         // a sequence number in a packet whose kind has none
  kLength,           // bytes after the end; a probe that is shorter than its size field
  kAcknowledgement,  // a bitmap of more than 1024 bits
  kEmpty,            // a data packet without a frame
  kFrame,            // unknown type of frame
  kFrameFlags,       // unknown flags, or flags that this frame does not have
  kOrder,            // starts an operation in a packet that is not ordered
  kTotal,            // a total that is less than the payload, or too large
  kVectors,          // more than 4
  kOperands,         // more than 1024 bytes, or an unknown kind of atomic
};
const char *text_of(Reject reject);

struct Header {
  PacketKind kind = PacketKind::kData;
  uint16_t flags = 0;
  uint32_t to = 0;
  uint32_t cookie = 0;
  uint32_t sequence = 0;
  uint32_t time = 0;
  uint32_t checksum = 0;
  bool has(uint16_t flag) const { return (flags & flag) != 0; }
};

struct Acknowledgement {
  uint32_t next = 0;           // the lowest number not received
  uint32_t echo = 0;           // microseconds; 0: none
  uint32_t limit = 0;          // numbers below it are accepted
  uint32_t messages = 0;       // messages that may have been started in all
  uint32_t credit = 0;         // KiB of unasked payload that may have been sent in all
  uint32_t words = 0;          // of the bitmap
  uint32_t unread = 0;         // the packet of `echo` may have waited so long; in kUnreadUnit
  uint64_t bitmap[kMaxWords];  // bit i: next + 1 + i was received; the first `words` are defined
  Acknowledgement() {}         // NOLINT(modernize-use-equals-default): leaves the bitmap alone
  size_t size() const { return kAcknowledgementSize + 8 * size_t{words}; }
};

// One side's part of a handshake.
struct Part {
  uint64_t instance = 0;    // random number of the endpoint
  uint32_t connection = 0;  // the other side puts it into `to`
  uint32_t cookie = 0;      // and this into `cookie`
  uint32_t datagram = 0;    // bytes of the largest datagram that it takes
  uint32_t flags = 0;       // kPart...; unknown ones are ignored
  uint32_t limit = 0;       // as in Acknowledgement
  uint32_t messages = 0;
  uint32_t credit = 0;
  friend bool operator==(const Part &, const Part &) = default;
};
inline constexpr uint32_t kPartChecksum = 1;  // wants checksums

using Token = std::span<const uint8_t, kTokenSize>;
using Name = std::span<const uint8_t, kNameSize>;

// What follows the header. Spans point into the datagram.
struct Challenge {
  uint64_t index = 0;  // of the RTS
  Token token;
};
struct Connect {
  uint64_t index = 0;
  Token token;
  Name name;  // not checked
  Part part;
};
struct Accept {
  uint64_t index = 0;
  Part part;
};
struct Data {
  std::span<const uint8_t> frames;  // not empty; for FrameReader
};
struct Acknowledge {};  // Packet::acknowledgement is the content
struct Probe {
  uint32_t number = 0;
  uint32_t size = 0;  // of the datagram, without MAC
};
struct Probed {
  uint32_t number = 0;
  uint32_t size = 0;
};
struct Reset {
  Header echo;  // of the packet that belongs to no connection
};
struct Close {};
struct Closed {};

struct Packet {
  Header header;
  // Defined if the header has kFlagAcknowledgement.
  Acknowledgement acknowledgement;
  std::variant<Acknowledge, Data, Challenge, Connect, Accept, Probe, Probed, Reset, Close, Closed>
      content;
  std::span<const uint8_t> covered;  // the datagram without its MAC, for the checksum
  std::span<const uint8_t> mac;      // empty without kFlagMac
};

// The header alone: enough to find the connection before the rest is parsed.
tl::expected<Header, Reject> parse_header(std::span<const uint8_t> bytes) noexcept;
tl::expected<Packet, Reject> parse(std::span<const uint8_t> bytes);

// ---- frames ----

enum class FrameKind : uint8_t {
  kMessage = 1,
  kData = 2,
  kPull = 3,
  kDone = 4,
  kRead = 5,
  kWrite = 6,
  kAtomic = 7,
  kResult = 8,
  kPing = 9,
};
// Whether a frame starts an operation: then its packet must be ordered.
constexpr bool starts(FrameKind kind) {
  return kind == FrameKind::kMessage || kind == FrameKind::kRead || kind == FrameKind::kWrite ||
         kind == FrameKind::kAtomic;
}

struct MessageFrame {
  bool tagged = false;
  bool has_data = false;
  bool wants_done = false;
  bool announced = false;  // the message is longer than the payload: `total` bytes
  uint32_t id = 0;
  uint64_t tag = 0;
  uint64_t data = 0;
  uint64_t total = 0;  // bytes of the message; FrameReader sets it for all messages
};
struct DataFrame {
  bool answers = false;  // data of the receiver's read; else of the sender's message or write
  uint32_t id = 0;
  uint64_t offset = 0;  // offset + payload is at most kMessageLimit
};
struct PullFrame {
  uint32_t id = 0;
  uint64_t limit = 0;  // bytes
};
struct DoneFrame {
  uint16_t status = 0;  // FI_E...
  uint32_t id = 0;
};
// Vectors in a datagram, at any alignment.
class VectorView {
 public:
  VectorView() = default;
  VectorView(const uint8_t *at, size_t count) : at_(at), count_(count) {}
  size_t size() const { return count_; }
  RmaVector operator[](size_t i) const;
  // Copies all of them, and returns how many.
  size_t copy(std::span<RmaVector, kVectorLimit> out) const;

 private:
  const uint8_t *at_ = nullptr;
  size_t count_ = 0;
};
struct ReadFrame {
  uint32_t id = 0;
};
struct WriteFrame {
  bool has_data = false;
  uint32_t id = 0;
  uint64_t total = 0;  // bytes; the payload is the beginning of them
  uint64_t data = 0;
};
struct AtomicFrame {
  uint8_t kind = 0;  // 0 write, 1 fetch, 2 compare: as sdk::AtomicKind
  uint8_t datatype = 0;
  uint8_t operation = 0;
  uint32_t id = 0;  // the vectors' lengths are counts of the datatype
};
struct ResultFrame {
  uint16_t status = 0;
  uint32_t id = 0;
};

// Walks the frames of a data packet. After next() returned true, kind() tells which accessor may be
// called. After false, reject() tells whether there was an error.
class FrameReader {
 public:
  explicit FrameReader(const Packet &packet);
  FrameReader(std::span<const uint8_t> frames, bool ordered) : rest_(frames), ordered_(ordered) {}

  bool next();
  Reject reject() const { return reject_; }

  FrameKind kind() const { return kind_; }
  uint32_t id() const { return id_; }  // of all frames but ping
  std::span<const uint8_t> payload() const { return payload_; }
  VectorView vectors() const { return vectors_; }  // read, write, atomic
  const MessageFrame &message() const { return *std::get_if<MessageFrame>(&frame_); }
  const DataFrame &data() const { return *std::get_if<DataFrame>(&frame_); }
  const PullFrame &pull() const { return *std::get_if<PullFrame>(&frame_); }
  const DoneFrame &done() const { return *std::get_if<DoneFrame>(&frame_); }
  const WriteFrame &write() const { return *std::get_if<WriteFrame>(&frame_); }
  const AtomicFrame &atomic() const { return *std::get_if<AtomicFrame>(&frame_); }
  const ResultFrame &result() const { return *std::get_if<ResultFrame>(&frame_); }

 private:
  Reject take();

  std::span<const uint8_t> rest_;
  std::span<const uint8_t> payload_;
  VectorView vectors_;
  std::variant<std::monostate, MessageFrame, DataFrame, PullFrame, DoneFrame, WriteFrame,
               AtomicFrame, ResultFrame>
      frame_;
  uint32_t id_ = 0;
  FrameKind kind_ = FrameKind::kPing;
  Reject reject_ = Reject::kNone;
  bool ordered_;
};

// ---- writing ----

constexpr size_t message_size(const MessageFrame &frame) {
  return 8 + 8 * (size_t{frame.tagged} + size_t{frame.has_data} + size_t{frame.announced});
}
inline constexpr size_t kDataFrameSize = 16;
inline constexpr size_t kPullFrameSize = 16;
inline constexpr size_t kDoneFrameSize = 8;
constexpr size_t read_size(size_t vectors) {
  return 8 + 24 * vectors;
}
constexpr size_t write_size(bool has_data, size_t vectors) {
  return 24 + 8 * size_t{has_data} + 24 * vectors;
}
constexpr size_t atomic_size(size_t vectors) {
  return 16 + 24 * vectors;
}
inline constexpr size_t kResultFrameSize = 16;
inline constexpr size_t kPingFrameSize = 4;

// Appends fields of packets and frames to a buffer. Each call writes everything, or nothing and
// returns false: no room. The caller appends a payload of `n` bytes after its frame, by payload()
// or as another piece of the datagram; `n` is at most 65535.
class Writer {
 public:
  explicit Writer(std::span<uint8_t> buffer) : buffer_(buffer) {}

  size_t size() const { return used_; }
  size_t room() const { return buffer_.size() - used_; }
  uint8_t *at() { return buffer_.data() + used_; }
  std::span<const uint8_t> written() const { return buffer_.first(used_); }
  void clear() { used_ = 0; }

  bool header(const Header &header) noexcept;
  bool acknowledgement(const Acknowledgement &ack) noexcept;
  // Whole packets without checksum and MAC. They set the kind; the caller fills the other fields of
  // the header.
  bool challenge(Header header, uint64_t index, Token token) noexcept;
  bool connect(Header header, uint64_t index, Token token, Name name, const Part &part) noexcept;
  bool accept(Header header, uint64_t index, const Part &part) noexcept;
  bool probe(Header header, uint32_t number, size_t size) noexcept;  // zeros up to `size`
  bool probed(Header header, uint32_t number, uint32_t size) noexcept;
  // `stray`: the packet that belongs to no connection, at least 24 bytes.
  bool reset(Header header, std::span<const uint8_t> stray) noexcept;

  bool message(const MessageFrame &frame, size_t n) noexcept;
  bool data(const DataFrame &frame, size_t n) noexcept;
  bool pull(const PullFrame &frame) noexcept;
  bool done(const DoneFrame &frame) noexcept;
  bool read(uint32_t id, std::span<const RmaVector> vectors) noexcept;
  bool write(const WriteFrame &frame, std::span<const RmaVector> vectors, size_t n) noexcept;
  bool atomic(const AtomicFrame &frame, std::span<const RmaVector> vectors, size_t n) noexcept;
  bool result(const ResultFrame &frame, size_t n) noexcept;
  bool ping() noexcept;
  bool payload(std::span<const uint8_t> bytes) noexcept;

 private:
  uint8_t *take(size_t n) noexcept;  // null: no room
  std::span<uint8_t> buffer_;
  size_t used_ = 0;
};

// Replaces the time in a header, for a retransmission.
void set_time(uint8_t *header, uint32_t time) noexcept;
void set_checksum(uint8_t *header, uint32_t checksum) noexcept;

// The number nearest to `near` whose lower half is `low`; never negative.
constexpr uint64_t extend(uint32_t low, uint64_t near) {
  const uint64_t number = near + uint64_t(int64_t{int32_t(low - uint32_t(near))});
  return int64_t(number) < 0 ? number + (uint64_t{1} << 32) : number;
}

}  // namespace weft::rxd::wire

#endif
