// SPDX-License-Identifier: BSD-2-Clause
// Packets and frames from bytes: parse() and FrameReader. The Writer is in packet_writer.cc.
#include "plugins/rxd/wire/packet.h"

#include <cstring>

#include "plugins/rxd/wire/packet_fields.h"

namespace weft::rxd::wire {
namespace {

template <class T>
T load(const uint8_t *at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return little(value);
}

Part part_at(const uint8_t *at) {
  Part part;
  part.instance = load<uint64_t>(at);
  part.connection = load<uint32_t>(at + 8);
  part.cookie = load<uint32_t>(at + 12);
  part.datagram = load<uint32_t>(at + 16);
  part.flags = load<uint32_t>(at + 20);
  part.limit = load<uint32_t>(at + 24);
  part.messages = load<uint32_t>(at + 28);
  part.credit = load<uint32_t>(at + 32);
  return part;
}

constexpr uint16_t kAnywhere = kFlagChecksum | kFlagMac;

uint16_t allowed_flags(PacketKind kind) {
  switch (kind) {
    case PacketKind::kData:
      return kAllFlags;
    case PacketKind::kAcknowledge:
    case PacketKind::kClose:
      return kAnywhere | kFlagAcknowledgement;
    default:
      return kAnywhere;
  }
}

bool is_kind(uint8_t byte) {
  return byte >= uint8_t(PacketKind::kChallenge) && byte <= uint8_t(PacketKind::kClosed);
}

Reject fill_header(std::span<const uint8_t> bytes, Header &header) {
  if (bytes.empty()) return Reject::kShort;
  if (bytes[0] != kMagic) return Reject::kMagic;
  if (bytes.size() < kHeaderSize) return Reject::kShort;
  if (bytes[1] != kGuard) return Reject::kMagic;
  if (!is_kind(bytes[3])) return Reject::kKind;
  header.kind = static_cast<PacketKind>(bytes[3]);
  header.flags = bytes[2];
  header.to = load<uint32_t>(bytes.data() + 4);
  header.cookie = load<uint32_t>(bytes.data() + 8);
  header.sequence = load<uint32_t>(bytes.data() + 12);
  header.time = load<uint32_t>(bytes.data() + kTimeAt);
  header.checksum = load<uint32_t>(bytes.data() + kChecksumAt);
  if ((header.flags & ~allowed_flags(header.kind)) != 0) return Reject::kFlags;
  if ((header.kind == PacketKind::kAcknowledge || header.kind == PacketKind::kClose) &&
      !header.has(kFlagAcknowledgement)) {
    return Reject::kFlags;
  }
  if (header.kind != PacketKind::kData && header.sequence != 0) return Reject::kSequence;
  return Reject::kNone;
}

Reject fill_acknowledgement(std::span<const uint8_t> bytes, Acknowledgement &ack) {
  if (bytes.size() < kAcknowledgementSize) return Reject::kShort;
  const uint8_t *at = bytes.data();
  ack.next = load<uint32_t>(at);
  ack.echo = load<uint32_t>(at + 4);
  ack.limit = load<uint32_t>(at + 8);
  ack.messages = load<uint32_t>(at + 12);
  ack.credit = load<uint32_t>(at + 16);
  ack.words = load<uint16_t>(at + 20);
  if (ack.words > kMaxWords) return Reject::kAcknowledgement;
  ack.unread = load<uint16_t>(at + 22);
  if (bytes.size() < ack.size()) return Reject::kShort;
  for (size_t i = 0; i < ack.words; ++i) ack.bitmap[i] = load<uint64_t>(at + 24 + 8 * i);
  return Reject::kNone;
}

Reject exactly(std::span<const uint8_t> rest, size_t size) {
  return rest.size() < size ? Reject::kShort : rest.size() > size ? Reject::kLength : Reject::kNone;
}

Reject fill(std::span<const uint8_t> bytes, Packet &packet) {
  if (const Reject r = fill_header(bytes, packet.header); r != Reject::kNone) return r;
  const Header &header = packet.header;
  packet.covered = bytes;
  if (header.has(kFlagMac)) {
    if (bytes.size() < kHeaderSize + kMacSize) return Reject::kShort;
    packet.mac = bytes.last(kMacSize);
    packet.covered = bytes.first(bytes.size() - kMacSize);
  }
  auto rest = packet.covered.subspan(kHeaderSize);
  if (header.has(kFlagAcknowledgement)) {
    const Reject r = fill_acknowledgement(rest, packet.acknowledgement);
    if (r != Reject::kNone) return r;
    rest = rest.subspan(packet.acknowledgement.size());
  }
  const uint8_t *at = rest.data();
  switch (header.kind) {
    case PacketKind::kData:
      packet.content = Data{rest};
      return rest.empty() ? Reject::kEmpty : Reject::kNone;
    case PacketKind::kAcknowledge:
      packet.content = Acknowledge{};
      return exactly(rest, 0);
    case PacketKind::kChallenge:
      if (const Reject r = exactly(rest, 8 + kTokenSize); r != Reject::kNone) return r;
      packet.content = Challenge{load<uint64_t>(at), rest.subspan<8, kTokenSize>()};
      return Reject::kNone;
    case PacketKind::kConnect: {
      if (const Reject r = exactly(rest, kConnectSize - kHeaderSize); r != Reject::kNone) return r;
      constexpr size_t kNameAt = 8 + kTokenSize;
      packet.content =
          Connect{load<uint64_t>(at), rest.subspan<8, kTokenSize>(),
                  rest.subspan<kNameAt, kNameSize>(), part_at(at + kNameAt + kNameSize)};
      return Reject::kNone;
    }
    case PacketKind::kAccept:
      if (const Reject r = exactly(rest, 8 + kPartSize); r != Reject::kNone) return r;
      packet.content = Accept{load<uint64_t>(at), part_at(at + 8)};
      return Reject::kNone;
    case PacketKind::kProbe:
      if (rest.size() < 4) return Reject::kShort;
      packet.content = Probe{load<uint32_t>(at), static_cast<uint32_t>(packet.covered.size())};
      return Reject::kNone;
    case PacketKind::kProbed:
      if (const Reject r = exactly(rest, 8); r != Reject::kNone) return r;
      packet.content = Probed{load<uint32_t>(at), load<uint32_t>(at + 4)};
      return Reject::kNone;
    case PacketKind::kReset: {
      if (const Reject r = exactly(rest, kHeaderSize); r != Reject::kNone) return r;
      Reset reset;
      if (const Reject r = fill_header(rest, reset.echo); r != Reject::kNone) return r;
      packet.content = reset;
      return Reject::kNone;
    }
    case PacketKind::kClose:
      packet.content = Close{};
      return exactly(rest, 0);
    case PacketKind::kClosed:
      packet.content = Closed{};
      return exactly(rest, 0);
  }
  return Reject::kKind;
}

}  // namespace

const char *text_of(Reject reject) {
  switch (reject) {
    case Reject::kNone:
      return "nothing is wrong";
    case Reject::kShort:
      return "the packet is shorter than its header says";
    case Reject::kMagic:
      return "the packet is of another protocol";
    case Reject::kKind:
      return "the packet is of an unknown kind: the peer is newer than this";
    case Reject::kFlags:
      return "the packet has flags that its kind does not know";
    case Reject::kSequence:
      return "the packet has a sequence number, and its kind has none";
    case Reject::kLength:
      return "the packet is longer than its kind allows";
    case Reject::kAcknowledgement:
      return "the bitmap of an acknowledgement is longer than a window";
    case Reject::kEmpty:
      return "the data packet has no frame";
    case Reject::kFrame:
      return "the packet has a frame of an unknown type";
    case Reject::kFrameFlags:
      return "a frame has flags that its type does not know";
    case Reject::kOrder:
      return "an operation starts in a packet that is not ordered";
    case Reject::kTotal:
      return "the length of an operation is less than its payload, or more than 2^63-1";
    case Reject::kVectors:
      return "an access has more than four vectors";
    case Reject::kOperands:
      return "an atomic has more than 1024 bytes of operands, or is of an unknown kind";
  }
  return "unknown reason";
}

tl::expected<Header, Reject> parse_header(std::span<const uint8_t> bytes) noexcept {
  tl::expected<Header, Reject> result(tl::in_place);
  const Reject reject = fill_header(bytes, *result);
  if (reject != Reject::kNone) result = tl::unexpected(reject);
  return result;
}

tl::expected<Packet, Reject> parse(std::span<const uint8_t> bytes) {
  tl::expected<Packet, Reject> result(tl::in_place);
  const Reject reject = fill(bytes, *result);
  if (reject != Reject::kNone) result = tl::unexpected(reject);
  return result;
}

RmaVector VectorView::operator[](size_t i) const {
  const uint8_t *at = at_ + i * kVectorSize;
  return {load<uint64_t>(at), load<uint64_t>(at + 8), load<uint64_t>(at + 16)};
}

size_t VectorView::copy(std::span<RmaVector, kVectorLimit> out) const {
  for (size_t i = 0; i < count_; ++i) out[i] = (*this)[i];
  return count_;
}

FrameReader::FrameReader(const Packet &packet) : ordered_(packet.header.has(kFlagOrdered)) {
  if (const Data *data = std::get_if<Data>(&packet.content)) rest_ = data->frames;
}

bool FrameReader::next() {
  if (rest_.empty() || reject_ != Reject::kNone) return false;
  reject_ = take();
  return reject_ == Reject::kNone;
}

namespace {

constexpr uint8_t kMessageFlags = kTagged | kRemoteData | kWantsDone | kAnnounced;

// The kind of the frame at `at`, `have` bytes before the end of the packet, at least 1.
Reject read_kind(const uint8_t *at, size_t have, bool ordered, FrameKind &kind) {
  if (at[0] < uint8_t(FrameKind::kMessage) || at[0] > uint8_t(FrameKind::kPing)) {
    return Reject::kFrame;
  }
  kind = static_cast<FrameKind>(at[0]);
  if (starts(kind) && !ordered) return Reject::kOrder;
  return have < (kind == FrameKind::kPing ? kPingFrameSize : size_t{8}) ? Reject::kShort
                                                                        : Reject::kNone;
}

// The fields of a message frame at `at`, `have` bytes before the end of the packet, with `n` bytes
// of payload. `size`: of the frame without its payload.
Reject read_message(const uint8_t *at, size_t have, size_t n, MessageFrame &frame, size_t &size) {
  const uint8_t flags = at[1];
  frame.tagged = (flags & kTagged) != 0;
  frame.has_data = (flags & kRemoteData) != 0;
  frame.wants_done = (flags & kWantsDone) != 0;
  frame.announced = (flags & kAnnounced) != 0;
  size = message_size(frame);
  if (have < size) return Reject::kShort;
  const uint8_t *field = at + 8;
  if (frame.tagged) {
    frame.tag = load<uint64_t>(field);
    field += 8;
  }
  if (frame.has_data) {
    frame.data = load<uint64_t>(field);
    field += 8;
  }
  frame.total = frame.announced ? load<uint64_t>(field) : n;
  return frame.total < n || frame.total > kMessageLimit ? Reject::kTotal : Reject::kNone;
}

// The same of a data frame.
Reject read_data(const uint8_t *at, size_t have, size_t n, DataFrame &frame) {
  if (have < kDataFrameSize) return Reject::kShort;
  frame.answers = (at[1] & kAnswers) != 0;
  frame.offset = load<uint64_t>(at + 8);
  return frame.offset > kMessageLimit - n ? Reject::kTotal : Reject::kNone;
}

// The same of a write frame.
Reject read_write(const uint8_t *at, size_t have, size_t n, WriteFrame &frame, size_t &size) {
  frame.has_data = load<uint32_t>(at + 8) != 0;
  frame.total = load<uint64_t>(at + 16);
  size = write_size(frame.has_data, at[1]);
  if (have < size) return Reject::kShort;
  if (frame.has_data) frame.data = load<uint64_t>(at + 24);
  return frame.total < n || frame.total > kMessageLimit ? Reject::kTotal : Reject::kNone;
}

}  // namespace

Reject FrameReader::take() {
  const uint8_t *at = rest_.data();
  const size_t have = rest_.size();
  if (const Reject r = read_kind(at, have, ordered_, kind_); r != Reject::kNone) return r;
  size_t size = 0;  // of the frame without its payload
  size_t n = load<uint16_t>(at + 2);
  id_ = kind_ == FrameKind::kPing ? 0 : load<uint32_t>(at + 4);
  vectors_ = {};
  switch (kind_) {
    case FrameKind::kMessage: {
      if ((at[1] & ~kMessageFlags) != 0) return Reject::kFrameFlags;
      auto &frame = frame_.emplace<MessageFrame>();
      frame.id = id_;
      if (const Reject r = read_message(at, have, n, frame, size); r != Reject::kNone) return r;
      break;
    }
    case FrameKind::kData: {
      if ((at[1] & ~kAnswers) != 0) return Reject::kFrameFlags;
      size = kDataFrameSize;
      auto &frame = frame_.emplace<DataFrame>();
      frame.id = id_;
      if (const Reject r = read_data(at, have, n, frame); r != Reject::kNone) return r;
      break;
    }
    case FrameKind::kPull:
      n = 0;
      size = kPullFrameSize;
      if (have < size) return Reject::kShort;
      frame_ = PullFrame{id_, load<uint64_t>(at + 8)};
      break;
    case FrameKind::kDone:
      frame_ = DoneFrame{static_cast<uint16_t>(n), id_};
      n = 0;
      size = kDoneFrameSize;
      break;
    case FrameKind::kRead:
      n = 0;
      frame_ = std::monostate{};
      if (at[1] > kVectorLimit) return Reject::kVectors;
      size = read_size(at[1]);
      if (have < size) return Reject::kShort;
      vectors_ = {at + 8, at[1]};
      break;
    case FrameKind::kWrite: {
      if (at[1] > kVectorLimit) return Reject::kVectors;
      if (have < write_size(false, 0)) return Reject::kShort;
      if ((load<uint32_t>(at + 8) & ~kWriteData) != 0) return Reject::kFrameFlags;
      auto &frame = frame_.emplace<WriteFrame>();
      frame.id = id_;
      if (const Reject r = read_write(at, have, n, frame, size); r != Reject::kNone) return r;
      vectors_ = {at + write_size(frame.has_data, 0), at[1]};
      break;
    }
    case FrameKind::kAtomic:
      if (at[1] > kVectorLimit) return Reject::kVectors;
      size = atomic_size(at[1]);
      if (have < size) return Reject::kShort;
      if (n > kOperandLimit || at[8] >= kAtomicKinds) return Reject::kOperands;
      frame_ = AtomicFrame{at[8], at[9], at[10], id_};
      vectors_ = {at + atomic_size(0), at[1]};
      break;
    case FrameKind::kResult:
      size = kResultFrameSize;
      if (have < size) return Reject::kShort;
      if (n > kOperandLimit) return Reject::kOperands;
      frame_ = ResultFrame{load<uint16_t>(at + 8), id_};
      break;
    case FrameKind::kPing:
      frame_ = std::monostate{};
      n = 0;
      size = kPingFrameSize;
      break;
  }
  if (have - size < n) return Reject::kShort;
  payload_ = rest_.subspan(size, n);
  rest_ = rest_.subspan(size + n);
  return Reject::kNone;
}

}  // namespace weft::rxd::wire
