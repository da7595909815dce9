// SPDX-License-Identifier: BSD-2-Clause
// Packets and frames to bytes.
#include <cstring>

#include "plugins/rxd/wire/packet.h"
#include "plugins/rxd/wire/packet_fields.h"

namespace weft::rxd::wire {
namespace {

// Writes fields one after the other.
class Fields {
 public:
  explicit Fields(uint8_t *at) : at_(at) {}
  template <class T>
  Fields &put(T value) {
    value = little(value);
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }
  Fields &u8(uint8_t value) { return put(value); }
  Fields &u16(size_t value) { return put(static_cast<uint16_t>(value)); }
  Fields &u32(uint32_t value) { return put(value); }
  Fields &u64(uint64_t value) { return put(value); }
  Fields &bytes(std::span<const uint8_t> from) {
    if (!from.empty()) std::memcpy(at_, from.data(), from.size());
    at_ += from.size();
    return *this;
  }
  Fields &vectors(std::span<const RmaVector> from) {
    for (const RmaVector &v : from) u64(v.address).u64(v.length).u64(v.key);
    return *this;
  }
  Fields &part(const Part &part) {
    return u64(part.instance)
        .u32(part.connection)
        .u32(part.cookie)
        .u32(part.datagram)
        .u32(part.flags)
        .u32(part.limit)
        .u32(part.messages)
        .u32(part.credit)
        .u32(0);
  }
  Fields &header(const Header &header) {
    return u8(kMagic)
        .u8(kGuard)
        .u8(static_cast<uint8_t>(header.flags))
        .u8(static_cast<uint8_t>(header.kind))
        .u32(header.to)
        .u32(header.cookie)
        .u32(header.sequence)
        .u32(header.time)
        .u32(header.checksum);
  }

 private:
  uint8_t *at_;
};

}  // namespace

uint8_t *Writer::take(size_t n) noexcept {
  if (room() < n) return nullptr;
  uint8_t *at = buffer_.data() + used_;
  used_ += n;
  return at;
}

bool Writer::header(const Header &header) noexcept {
  uint8_t *to = take(kHeaderSize);
  if (to == nullptr) return false;
  Fields(to).header(header);
  return true;
}

bool Writer::acknowledgement(const Acknowledgement &ack) noexcept {
  uint8_t *to = take(ack.size());
  if (to == nullptr) return false;
  Fields fields(to);
  fields.u32(ack.next).u32(ack.echo).u32(ack.limit).u32(ack.messages).u32(ack.credit);
  fields.u16(ack.words).u16(ack.unread);
  for (size_t i = 0; i < ack.words; ++i) fields.u64(ack.bitmap[i]);
  return true;
}

bool Writer::challenge(Header header, uint64_t index, Token token) noexcept {
  uint8_t *to = take(kChallengeSize);
  if (to == nullptr) return false;
  header.kind = PacketKind::kChallenge;
  Fields(to).header(header).u64(index).bytes(token);
  return true;
}

bool Writer::connect(Header header, uint64_t index, Token token, Name name,
                     const Part &part) noexcept {
  uint8_t *to = take(kConnectSize);
  if (to == nullptr) return false;
  header.kind = PacketKind::kConnect;
  Fields(to).header(header).u64(index).bytes(token).bytes(name).part(part);
  return true;
}

bool Writer::accept(Header header, uint64_t index, const Part &part) noexcept {
  uint8_t *to = take(kAcceptSize);
  if (to == nullptr) return false;
  header.kind = PacketKind::kAccept;
  Fields(to).header(header).u64(index).part(part);
  return true;
}

bool Writer::probe(Header header, uint32_t number, size_t size) noexcept {
  if (size < kHeaderSize + 4) return false;
  uint8_t *to = take(size);
  if (to == nullptr) return false;
  header.kind = PacketKind::kProbe;
  Fields(to).header(header).u32(number);
  std::memset(to + kHeaderSize + 4, 0, size - kHeaderSize - 4);
  return true;
}

bool Writer::probed(Header header, uint32_t number, uint32_t size) noexcept {
  uint8_t *to = take(kHeaderSize + 8);
  if (to == nullptr) return false;
  header.kind = PacketKind::kProbed;
  Fields(to).header(header).u32(number).u32(size);
  return true;
}

bool Writer::reset(Header header, std::span<const uint8_t> stray) noexcept {
  if (stray.size() < kHeaderSize) return false;
  uint8_t *to = take(2 * kHeaderSize);
  if (to == nullptr) return false;
  header.kind = PacketKind::kReset;
  Fields(to).header(header).bytes(stray.first(kHeaderSize));
  return true;
}

bool Writer::message(const MessageFrame &frame, size_t n) noexcept {
  uint8_t *to = take(message_size(frame));
  if (to == nullptr) return false;
  const auto flags = static_cast<uint8_t>(
      (frame.tagged ? kTagged : 0) | (frame.has_data ? kRemoteData : 0) |
      (frame.wants_done ? kWantsDone : 0) | (frame.announced ? kAnnounced : 0));
  Fields fields(to);
  fields.u8(uint8_t(FrameKind::kMessage)).u8(flags).u16(n).u32(frame.id);
  if (frame.tagged) fields.u64(frame.tag);
  if (frame.has_data) fields.u64(frame.data);
  if (frame.announced) fields.u64(frame.total);
  return true;
}

bool Writer::data(const DataFrame &frame, size_t n) noexcept {
  uint8_t *to = take(kDataFrameSize);
  if (to == nullptr) return false;
  Fields(to)
      .u8(uint8_t(FrameKind::kData))
      .u8(frame.answers ? kAnswers : 0)
      .u16(n)
      .u32(frame.id)
      .u64(frame.offset);
  return true;
}

bool Writer::pull(const PullFrame &frame) noexcept {
  uint8_t *to = take(kPullFrameSize);
  if (to == nullptr) return false;
  Fields(to).u8(uint8_t(FrameKind::kPull)).u8(0).u16(0).u32(frame.id).u64(frame.limit);
  return true;
}

bool Writer::done(const DoneFrame &frame) noexcept {
  uint8_t *to = take(kDoneFrameSize);
  if (to == nullptr) return false;
  Fields(to).u8(uint8_t(FrameKind::kDone)).u8(0).u16(frame.status).u32(frame.id);
  return true;
}

bool Writer::read(uint32_t id, std::span<const RmaVector> vectors) noexcept {
  if (vectors.size() > kVectorLimit) return false;
  uint8_t *to = take(read_size(vectors.size()));
  if (to == nullptr) return false;
  Fields(to)
      .u8(uint8_t(FrameKind::kRead))
      .u8(static_cast<uint8_t>(vectors.size()))
      .u16(0)
      .u32(id)
      .vectors(vectors);
  return true;
}

bool Writer::write(const WriteFrame &frame, std::span<const RmaVector> vectors, size_t n) noexcept {
  if (vectors.size() > kVectorLimit) return false;
  uint8_t *to = take(write_size(frame.has_data, vectors.size()));
  if (to == nullptr) return false;
  Fields fields(to);
  fields.u8(uint8_t(FrameKind::kWrite)).u8(static_cast<uint8_t>(vectors.size())).u16(n);
  fields.u32(frame.id).u32(frame.has_data ? kWriteData : 0).u32(0).u64(frame.total);
  if (frame.has_data) fields.u64(frame.data);
  fields.vectors(vectors);
  return true;
}

bool Writer::atomic(const AtomicFrame &frame, std::span<const RmaVector> vectors,
                    size_t n) noexcept {
  if (vectors.size() > kVectorLimit) return false;
  uint8_t *to = take(atomic_size(vectors.size()));
  if (to == nullptr) return false;
  Fields fields(to);
  fields.u8(uint8_t(FrameKind::kAtomic)).u8(static_cast<uint8_t>(vectors.size())).u16(n);
  fields.u32(frame.id).u8(frame.kind).u8(frame.datatype).u8(frame.operation).u8(0).u32(0);
  fields.vectors(vectors);
  return true;
}

bool Writer::result(const ResultFrame &frame, size_t n) noexcept {
  uint8_t *to = take(kResultFrameSize);
  if (to == nullptr) return false;
  Fields fields(to);
  fields.u8(uint8_t(FrameKind::kResult)).u8(0).u16(n).u32(frame.id);
  fields.u16(frame.status).u16(0).u32(0);
  return true;
}

bool Writer::ping() noexcept {
  uint8_t *to = take(kPingFrameSize);
  if (to == nullptr) return false;
  Fields(to).u8(uint8_t(FrameKind::kPing)).u8(0).u16(0);
  return true;
}

bool Writer::payload(std::span<const uint8_t> bytes) noexcept {
  uint8_t *to = take(bytes.size());
  if (to == nullptr) return false;
  Fields(to).bytes(bytes);
  return true;
}

void set_time(uint8_t *header, uint32_t time) noexcept {
  Fields(header + kTimeAt).u32(time);
}

void set_checksum(uint8_t *header, uint32_t checksum) noexcept {
  Fields(header + kChecksumAt).u32(checksum);
}

}  // namespace weft::rxd::wire
