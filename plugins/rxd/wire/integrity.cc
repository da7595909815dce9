// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/wire/integrity.h"

#include <isa-l/crc.h>
#include <sodium.h>

#include <algorithm>
#include <climits>

namespace weft::rxd::wire {
namespace {

// ISA-L's function has neither the initial nor the final complement of CRC32C.
uint32_t raw_crc(std::span<const uint8_t> bytes, uint32_t crc) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<size_t>(bytes.size(), INT_MAX));
    // The prototype lacks a const; the function only reads.
    crc = crc32_iscsi(const_cast<unsigned char *>(part.data()), static_cast<int>(part.size()), crc);
    bytes = bytes.subspan(part.size());
  }
  return crc;
}

std::span<const uint8_t> span_of(const iovec &piece) {
  return {static_cast<const uint8_t *>(piece.iov_base), piece.iov_len};
}

void store(uint8_t *to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(value >> (8 * i));
}

void update(crypto_generichash_state &state, std::span<const uint8_t> bytes) {
  if (!bytes.empty()) crypto_generichash_update(&state, bytes.data(), bytes.size());
}

// BLAKE2b takes keys of up to 64 bytes; longer ones are hashed to that first.
crypto_generichash_state begin_key(std::string_view auth_key) {
  uint8_t digest[crypto_generichash_KEYBYTES_MAX];
  const auto *key = reinterpret_cast<const uint8_t *>(auth_key.data());
  size_t size = auth_key.size();
  if (size > sizeof digest) {
    crypto_generichash(digest, sizeof digest, key, size, nullptr, 0);
    key = digest;
    size = sizeof digest;
  }
  crypto_generichash_state state;
  crypto_generichash_init(&state, key, size, Key().size());
  sodium_memzero(digest, sizeof digest);
  return state;
}

Key end_key(crypto_generichash_state &state) {
  Key key;
  crypto_generichash_final(&state, key.data(), key.size());
  sodium_memzero(&state, sizeof state);
  return key;
}

void update_text(crypto_generichash_state &state, std::string_view text) {
  update(state, {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
}

crypto_generichash_state begin_mac(const Key &key) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), kMacSize);
  return state;
}

void end_mac(crypto_generichash_state &state, uint32_t upper, uint8_t *out) {
  uint8_t tail[4];
  store(tail, upper, sizeof tail);
  update(state, tail);
  crypto_generichash_final(&state, out, kMacSize);
}

// The fields of a part that never change in the life of a connection.
constexpr size_t kIdentitySize = 16;
using Identity = std::array<uint8_t, kIdentitySize>;

Identity identity_of(const Part &part) {
  Identity out;
  store(out.data(), part.instance, 8);
  store(out.data() + 8, part.connection, 4);
  store(out.data() + 12, part.cookie, 4);
  return out;
}

}  // namespace

uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t crc) noexcept {
  return ~raw_crc(bytes, ~crc);
}

uint32_t crc32c(std::span<const iovec> pieces) noexcept {
  uint32_t crc = ~uint32_t{0};
  for (const iovec &piece : pieces) crc = raw_crc(span_of(piece), crc);
  return ~crc;
}

bool checksum_fits(const Packet &packet) noexcept {
  if (!packet.header.has(kFlagChecksum)) return packet.header.checksum == 0;
  static constexpr uint8_t kZeros[4] = {};
  uint32_t crc = raw_crc(packet.covered.first(kChecksumAt), ~uint32_t{0});
  crc = raw_crc(kZeros, crc);
  return ~raw_crc(packet.covered.subspan(kHeaderSize), crc) == packet.header.checksum;
}

Key handshake_key(std::string_view auth_key) noexcept {
  auto state = begin_key(auth_key);
  update_text(state, "weft rxd handshake 1");
  return end_key(state);
}

Key connection_key(std::string_view auth_key, const Part &ours, const Part &theirs) noexcept {
  auto state = begin_key(auth_key);
  update_text(state, "weft rxd connection 1");
  Identity first = identity_of(ours), second = identity_of(theirs);
  // Both sides must find the same order. An endpoint that talks to itself has one instance on both
  // sides; then all fields are compared.
  const bool swap =
      ours.instance != theirs.instance ? ours.instance > theirs.instance : first > second;
  if (swap) std::swap(first, second);
  update(state, first);
  update(state, second);
  return end_key(state);
}

void mac(const Key &key, std::span<const iovec> pieces, uint32_t upper,
         std::span<uint8_t, kMacSize> out) noexcept {
  auto state = begin_mac(key);
  for (const iovec &piece : pieces) update(state, span_of(piece));
  end_mac(state, upper, out.data());
}

bool mac_fits(const Key &key, const Packet &packet, uint32_t upper,
              std::span<const uint8_t> behind) noexcept {
  if (packet.mac.size() != kMacSize) return false;
  auto state = begin_mac(key);
  update(state, packet.covered);
  update(state, behind);
  uint8_t right[kMacSize];
  end_mac(state, upper, right);
  return sodium_memcmp(right, packet.mac.data(), kMacSize) == 0;
}

uint64_t TokenMaker::seal(uint64_t time, std::span<const uint8_t> address) const noexcept {
  static_assert(crypto_shorthash_KEYBYTES == std::tuple_size_v<Secret>);
  static_assert(crypto_shorthash_BYTES == 8);
  uint8_t bytes[8 + kNameSize] = {};
  store(bytes, time, 8);
  const size_t n = std::min(address.size(), kNameSize);
  std::copy_n(address.begin(), n, bytes + 8);
  uint8_t out[8];
  crypto_shorthash(out, bytes, 8 + n, secret_.data());
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof out; ++i) value |= uint64_t{out[i]} << (8 * i);
  return value;
}

std::array<uint8_t, kTokenSize> TokenMaker::make(uint64_t now_ns,
                                                 std::span<const uint8_t> address) const noexcept {
  std::array<uint8_t, kTokenSize> token;
  store(token.data(), now_ns, 8);
  store(token.data() + 8, seal(now_ns, address), 8);
  return token;
}

uint64_t TokenMaker::made_at(Token token, uint64_t now_ns, uint64_t lifetime_ns,
                             std::span<const uint8_t> address) const noexcept {
  uint64_t time = 0;
  for (size_t i = 0; i < 8; ++i) time |= uint64_t{token[i]} << (8 * i);
  if (time == 0 || time > now_ns || now_ns - time > lifetime_ns) return 0;
  uint8_t right[8];
  store(right, seal(time, address), sizeof right);
  return sodium_memcmp(right, token.data() + 8, sizeof right) == 0 ? time : 0;
}

}  // namespace weft::rxd::wire
