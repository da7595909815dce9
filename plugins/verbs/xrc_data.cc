// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/xrc_data.h"

#include <algorithm>
#include <cstring>

namespace weft::verbs {
namespace {

constexpr uint8_t kXrcVersion = 2;
constexpr uint32_t kMostNumber = 0xffffff;  // of queue pairs and shared receive queues

void put32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = uint8_t(value >> (24 - 8 * i));
}

uint32_t get32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | uint8_t(bytes[at + i]);
  return value;
}

}  // namespace

XrcMessage::XrcMessage(const XrcData &data, std::string_view parameter) {
  bytes_[0] = kXrcVersion;
  bytes_[1] = data.reciprocal ? 1 : 0;
  bytes_[2] = uint8_t(data.port >> 8);
  bytes_[3] = uint8_t(data.port);
  put32(bytes_.data() + 4, data.target);
  put32(bytes_.data() + 8, data.srq);
  put32(bytes_.data() + 12, data.tag);
  const size_t n = std::min(parameter.size(), kXrcParameterSize);
  bytes_[kXrcHeaderSize] = uint8_t(n);
  if (n != 0) std::memcpy(bytes_.data() + kXrcHeaderSize + 1, parameter.data(), n);
  size_ = kXrcHeaderSize + 1 + n;
}

std::optional<XrcReceived> parse_xrc(std::string_view delivered) {
  if (delivered.size() <= kXrcHeaderSize) return {};
  const auto byte = [&](size_t at) { return uint8_t(delivered[at]); };
  if (byte(0) != kXrcVersion || byte(1) > 1) return {};
  XrcReceived result{.data = {.reciprocal = byte(1) == 1,
                              .port = uint16_t(byte(2) << 8 | byte(3)),
                              .target = get32(delivered, 4),
                              .srq = get32(delivered, 8),
                              .tag = get32(delivered, 12)},
                     .parameter = {}};
  if (result.data.target > kMostNumber || result.data.srq > kMostNumber) return {};
  const size_t n = byte(kXrcHeaderSize);
  if (n > kXrcParameterSize || n > delivered.size() - kXrcHeaderSize - 1) return {};
  result.parameter = delivered.substr(kXrcHeaderSize + 1, n);
  return result;
}

}  // namespace weft::verbs
