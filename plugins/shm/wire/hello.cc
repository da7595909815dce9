// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/wire/hello.h"

#include <cstring>

namespace weft::shm {
namespace {

constexpr uint32_t kVersion = 1;

struct Begin {
  char magic[8];
  uint32_t version;
  uint32_t has_barriers;
  Probe probe;
};
struct WholeHello {
  Begin begin;
  Geometry geometry;
  char name[sdk::Address::kMaxSize];  // zero behind its end
};
static_assert(sizeof(WholeHello) <= kMostPacket);

constexpr char kHelloMagic[9] = "weftshmh", kAnswerMagic[9] = "weftshma";

template <class Whole>
tl::expected<Whole, BadPacket> read(std::span<const uint8_t> packet, const char *magic) {
  Whole whole;
  if (packet.size() < sizeof(Begin)) return tl::unexpected(BadPacket::kSize);
  Begin begin;
  std::memcpy(&begin, packet.data(), sizeof begin);
  if (std::memcmp(begin.magic, magic, sizeof begin.magic) != 0)
    return tl::unexpected(BadPacket::kMagic);
  if (begin.version != kVersion) return tl::unexpected(BadPacket::kVersion);
  if (packet.size() != sizeof whole) return tl::unexpected(BadPacket::kSize);
  std::memcpy(&whole, packet.data(), sizeof whole);
  return whole;
}

template <class Whole>
std::vector<uint8_t> bytes_of(const Whole &whole) {
  std::vector<uint8_t> bytes(sizeof whole);
  std::memcpy(bytes.data(), &whole, sizeof whole);
  return bytes;
}

Begin begin_of(const char *magic, const Probe &probe, bool has_barriers) {
  Begin begin{.magic = {}, .version = kVersion, .has_barriers = has_barriers, .probe = probe};
  std::memcpy(begin.magic, magic, sizeof begin.magic);
  return begin;
}

}  // namespace

const char *text_of(BadPacket why) {
  switch (why) {
    case BadPacket::kSize:
      return "a packet of a wrong size";
    case BadPacket::kMagic:
      return "it does not speak this protocol";
    case BadPacket::kVersion:
      return "it speaks another version of the protocol: use the same release on both sides";
    case BadPacket::kGeometry:
      return "rings of impossible sizes";
    case BadPacket::kName:
      return "it has no name that an endpoint can have";
  }
  return "a packet that is none";
}

tl::expected<Hello, BadPacket> parse_hello(std::span<const uint8_t> packet) {
  const auto whole = read<WholeHello>(packet, kHelloMagic);
  if (!whole) return tl::unexpected(whole.error());
  if (!whole->geometry.valid()) return tl::unexpected(BadPacket::kGeometry);
  const auto name = sdk::read_address(sdk::kHostName, whole->name, sizeof whole->name);
  if (!name || !name->names_peer()) return tl::unexpected(BadPacket::kName);
  return Hello{.name = *name,
               .geometry = whole->geometry,
               .probe = whole->begin.probe,
               .has_barriers = whole->begin.has_barriers != 0};
}

tl::expected<Answer, BadPacket> parse_answer(std::span<const uint8_t> packet) {
  const auto begin = read<Begin>(packet, kAnswerMagic);
  if (!begin) return tl::unexpected(begin.error());
  return Answer{.probe = begin->probe, .has_barriers = begin->has_barriers != 0};
}

std::vector<uint8_t> encode_hello(const Hello &hello) {
  WholeHello whole{.begin = begin_of(kHelloMagic, hello.probe, hello.has_barriers),
                   .geometry = hello.geometry,
                   .name = {}};
  std::memcpy(whole.name, hello.name.data(), std::min(hello.name.size(), sizeof whole.name));
  return bytes_of(whole);
}

std::vector<uint8_t> encode_answer(const Answer &answer) {
  return bytes_of(begin_of(kAnswerMagic, answer.probe, answer.has_barriers));
}

}  // namespace weft::shm
