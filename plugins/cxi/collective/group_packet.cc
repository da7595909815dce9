// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/collective/group_packet.h"

#include "plugins/cxi/collective/repsum.h"

namespace weft::cxi {
namespace {

constexpr uint8_t kVersion = 1;

class PacketWriter {
 public:
  explicit PacketWriter(uint8_t *at) : at_(at) {}
  template <class T>
  PacketWriter &put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) *at_++ = uint8_t(uint64_t(value) >> 8 * i);
    return *this;
  }

 private:
  uint8_t *at_;
};

class PacketReader {
 public:
  explicit PacketReader(const uint8_t *at) : at_(at) {}
  template <class T>
  T get() {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{*at_++} << 8 * i;
    return T(value);
  }

 private:
  const uint8_t *at_;
};

}  // namespace

GroupPacket::Bytes GroupPacket::bytes() const {
  Bytes bytes{};
  PacketWriter writer(bytes.data());
  writer.put(kVersion).put(uint8_t(type)).put(uint8_t(partial.opcode)).put(partial.bytes);
  writer.put(uint8_t(partial.failure)).put(partial.top).put(partial.specials).put(uint8_t{0});
  writer.put(from_rank).put(to_rank).put(from).put(to).put(membership).put(sequence);
  for (const Partial::Word &word : partial.words) writer.put(word.bits);
  return bytes;
}

std::optional<GroupPacket> GroupPacket::parse(std::span<const uint8_t> bytes) {
  if (bytes.size() != kSize) return std::nullopt;
  PacketReader reader(bytes.data());
  GroupPacket packet;
  if (reader.get<uint8_t>() != kVersion) return std::nullopt;
  packet.type = GroupPacketType(reader.get<uint8_t>());
  packet.partial.opcode = Opcode(reader.get<uint8_t>());
  packet.partial.bytes = reader.get<uint8_t>();
  packet.partial.failure = Failure(reader.get<uint8_t>());
  packet.partial.top = reader.get<uint8_t>();
  packet.partial.specials = reader.get<uint8_t>();
  reader.get<uint8_t>();
  packet.from_rank = reader.get<uint32_t>();
  packet.to_rank = reader.get<uint32_t>();
  packet.from = reader.get<uint64_t>();
  packet.to = reader.get<uint64_t>();
  packet.membership = reader.get<uint64_t>();
  packet.sequence = reader.get<uint64_t>();
  for (Partial::Word &word : packet.partial.words) word.bits = reader.get<uint64_t>();
  if (packet.type < GroupPacketType::kJoin || packet.type > GroupPacketType::kProbe ||
      !is_known(packet.partial.opcode) || packet.partial.bytes > kMaxOperand ||
      packet.partial.failure > Failure::kLast || packet.partial.top > Repsum::kMaxTop)
    return std::nullopt;
  return packet;
}

}  // namespace weft::cxi
