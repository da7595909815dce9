// SPDX-License-Identifier: BSD-2-Clause
#include "connect_message.h"

#include <algorithm>
#include <cstring>

namespace weft::tcp {

namespace {

constexpr size_t kTypeAt = 1, kPrivateSizeAt = 2, kMarkAt = 16, kFeaturesAt = 20, kLastPlaceAt = 21,
                 kProbeAt = 24;
// Says that a byte of features follows, and one with the last place.
constexpr std::array<uint8_t, kFeaturesAt - kMarkAt> kMark = {'w', 'e', 'f', 't'};

}  // namespace

const char *text(ConnectRefusal refusal) noexcept {
  switch (refusal) {
    case ConnectRefusal::kTruncated:
      return "the connection message ends early: it has 32 bytes before the private data";
    case ConnectRefusal::kVersion:
      return "the connection message does not begin with version 3: the peer is no tcp provider of "
             "libfabric";
    case ConnectRefusal::kType:
      return "the connection message is of a type that is not expected here: the peer is broken, "
             "or connects where it should answer";
    case ConnectRefusal::kPrivateSize:
      return "more than 256 bytes of private data: give fi_connect, fi_accept or fi_reject at most "
             "256 at the peer";
  }
  return "unknown reason";
}

tl::expected<ConnectHeader, ConnectRefusal> parse_connect_header(std::span<const uint8_t> bytes,
                                                                 ConnectRole role) noexcept {
  if (bytes.size() < kConnectHeaderSize) return tl::unexpected(ConnectRefusal::kTruncated);
  if (bytes[0] != kConnectVersion) return tl::unexpected(ConnectRefusal::kVersion);
  ConnectHeader header;
  header.type = static_cast<ConnectType>(bytes[kTypeAt]);
  const bool expected = role == ConnectRole::kPassive ? header.type == ConnectType::kRequest
                                                      : header.type == ConnectType::kAccept ||
                                                            header.type == ConnectType::kReject;
  if (!expected) return tl::unexpected(ConnectRefusal::kType);
  header.private_size =
      static_cast<uint16_t>(bytes[kPrivateSizeAt] << 8 | bytes[kPrivateSizeAt + 1]);
  if (header.private_size > kMaxPrivateSize) return tl::unexpected(ConnectRefusal::kPrivateSize);
  // A reject has no byte order probe, and no frames follow it.
  if (header.type != ConnectType::kReject &&
      detail::load<uint64_t>(bytes.data() + kProbeAt, false) != 1) {
    header.order = ByteOrder::kNetwork;
  }
  if (std::equal(kMark.begin(), kMark.end(), bytes.begin() + kMarkAt)) {
    header.features = bytes[kFeaturesAt];
    header.last_place = bytes[kLastPlaceAt];
  }
  return header;
}

size_t encode_connect(ConnectType type, std::span<const uint8_t> private_data,
                      std::span<uint8_t, kMaxConnectSize> out, ByteOrder order, uint8_t features,
                      uint8_t last_place) noexcept {
  if (private_data.size() > kMaxPrivateSize) return 0;
  std::fill_n(out.begin(), kConnectHeaderSize, uint8_t{0});
  out[0] = kConnectVersion;
  out[kTypeAt] = static_cast<uint8_t>(type);
  out[kPrivateSizeAt] = static_cast<uint8_t>(private_data.size() >> 8);
  out[kPrivateSizeAt + 1] = static_cast<uint8_t>(private_data.size());
  if (type != ConnectType::kReject) {
    detail::store(out.data() + kProbeAt, uint64_t{1}, order == ByteOrder::kNetwork);
  }
  if (features != 0 || last_place != 0) {
    std::copy(kMark.begin(), kMark.end(), out.begin() + kMarkAt);
    out[kFeaturesAt] = features;
    out[kLastPlaceAt] = last_place;
  }
  std::copy(private_data.begin(), private_data.end(), out.begin() + kConnectHeaderSize);
  return kConnectHeaderSize + private_data.size();
}

void ConnectReader::on_read(size_t n) {
  have_ += std::min(n, need_ - have_);
  if (have_ < need_ || header_) return;
  const auto parsed = parse_connect_header({bytes_.data(), have_}, role_);
  if (!parsed) {
    refusal_ = parsed.error();
    return;
  }
  header_ = *parsed;
  need_ += parsed->private_size;
}

size_t ConnectReader::on_bytes(std::span<const uint8_t> bytes) {
  size_t used = 0;
  while (used < bytes.size() && !space().empty()) {
    const auto to = space();
    const size_t n = std::min(to.size(), bytes.size() - used);
    std::memcpy(to.data(), bytes.data() + used, n);
    used += n;
    on_read(n);
  }
  return used;
}

}  // namespace weft::tcp
