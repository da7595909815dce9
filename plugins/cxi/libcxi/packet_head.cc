// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/packet_head.h"

#include <boost/endian/conversion.hpp>
#include <cstring>

#include "plugins/cxi/libcxi/words.h"

namespace weft::cxi {
namespace {

using boost::endian::load_big_u16;
using boost::endian::load_big_u32;
using boost::endian::load_big_u64;
using boost::endian::store_big_u16;
using boost::endian::store_big_u32;
using boost::endian::store_big_u64;

// In front is what the fabric reads; the VNI and both addresses are in it.
constexpr size_t kVni = 4, kSource = 12, kPortal = 20;
// From there on, of both forms: the operation, and which form it is.
constexpr uint8_t kIsRequest = 0x80, kForm = 0x70, kShortForm = 0x10;

// ---- from kPortal on, of the short form ----
constexpr size_t kShortData = 2, kShortLength = 14, kShortInitiator = 16, kShortMatch = 20;
// ---- and of the other one ----
constexpr size_t kOffset = 2, kOffsetBytes = 7, kRendezvousHigh4 = 14, kRendezvousLow4 = 15,
                 kLength = 16, kInitiator = 20, kMatch = 24, kData = 32;

}  // namespace

uint32_t packet_head_size(const uint8_t *packet) {
  return (packet[kPortal] & kForm) == kShortForm ? kShortPacketHead : kPacketHead;
}

RequestHeader read_packet_head(const uint8_t *packet) {
  RequestHeader header{};
  const uint8_t *const at = packet + kPortal;
  header.vni = load_big_u16(packet + kVni);
  if (packet_head_size(packet) == kShortPacketHead) {
    header.header_data = load_big_u64(at + kShortData);
    header.length = load_big_u16(at + kShortLength) & 0xfffu;
    header.initiator = load_big_u32(at + kShortInitiator);
    header.match_bits = load_big_u64(at + kShortMatch);
  } else {
    header.remote_offset = load_big_u64(at + kOffset) >> 8;
    header.rendezvous = (at[0] & 15) == uint8_t(DmaOp::kRendezvousPut);
    header.rendezvous_id = uint8_t((at[kRendezvousHigh4] & 15) << 4 | (at[kRendezvousLow4] >> 4));
    header.length = load_big_u32(at + kLength);
    header.initiator = load_big_u32(at + kInitiator);
    header.match_bits = load_big_u64(at + kMatch);
    header.header_data = load_big_u64(at + kData);
  }
  header.source = header.initiator & kMaxNid;
  return header;
}

uint32_t write_packet_head(const RequestHeader &header, bool is_short, uint8_t *packet) {
  const uint32_t bytes = is_short ? kShortPacketHead : kPacketHead;
  std::memset(packet, 0, bytes);
  uint8_t *const at = packet + kPortal;
  store_big_u16(packet + kVni, header.vni);
  store_big_u32(packet + kSource, header.source << 12);
  if (is_short) {
    at[0] = kIsRequest | kShortForm | uint8_t(DmaOp::kSmallMessage);
    store_big_u64(at + kShortData, header.header_data);
    store_big_u16(at + kShortLength, uint16_t(header.length & 0xfff));
    store_big_u32(at + kShortInitiator, header.initiator);
    store_big_u64(at + kShortMatch, header.match_bits);
    return bytes;
  }
  at[0] = kIsRequest | uint8_t(header.rendezvous != 0 ? DmaOp::kRendezvousPut : DmaOp::kPut);
  store_big_u64(at + kOffset, header.remote_offset << 8);  // 7 bytes, and one of the next field
  at[kOffset + kOffsetBytes] = 0;
  at[kRendezvousHigh4] = header.rendezvous_id >> 4;
  at[kRendezvousLow4] = uint8_t(header.rendezvous_id << 4);
  store_big_u32(at + kLength, header.length);
  store_big_u32(at + kInitiator, header.initiator);
  store_big_u64(at + kMatch, header.match_bits);
  store_big_u64(at + kData, header.header_data);
  return bytes;
}

}  // namespace weft::cxi
