// SPDX-License-Identifier: BSD-2-Clause
// For tests of packet.h: packets as hex, and writers with memory.
//
// Example (statements):
//    Page page;
//    page.writer.header(kHeader);
//    page.writer.ping();
//    bool as_documented = page.written() == hex(kHeaderText) + hex("09000000");
//    as_documented = as_documented && reject_of(page.written()) == Reject::kNone;
//
// Not for the packets of stock peers (stock_test.cc).
#ifndef WEFT_PLUGINS_RXD_WIRE_TEST_PACKET_H
#define WEFT_PLUGINS_RXD_WIRE_TEST_PACKET_H

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "plugins/rxd/wire/packet.h"

namespace weft::rxd::wire {

using Bytes = std::vector<uint8_t>;

// `n` bytes: from, from + 1, ...
inline Bytes counting(size_t n, uint8_t from) {
  Bytes out(n);
  std::iota(out.begin(), out.end(), from);
  return out;
}

// "f7 04 0100 ..." as bytes.
inline Bytes hex(const std::string &text) {
  Bytes out;
  std::string digits;
  for (const char c : text) {
    if (c != ' ') digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return out;
}

inline Bytes operator+(Bytes a, const Bytes &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A writer with its own memory.
struct Page {
  std::array<uint8_t, 4096> bytes{};
  Writer writer{bytes};
  Bytes written() const { return {writer.written().begin(), writer.written().end()}; }
};

// A header, and the same as bytes in hex.
inline const Header kHeader{.kind = PacketKind::kData,
                            .flags = kFlagOrdered,
                            .to = 0x04030201,
                            .cookie = 0x08070605,
                            .sequence = 0x0C0B0A09,
                            .time = 0x100F0E0D,
                            .checksum = 0x14131211};
inline const std::string kHeaderText = "f709 0804 01020304 05060708 090a0b0c 0d0e0f10 11121314";

// Why the bytes are no packet, and why they are no frames.
inline Reject reject_of(const Bytes &bytes) {
  const auto packet = parse(bytes);
  return packet ? Reject::kNone : packet.error();
}
inline Reject frames_reject(const Bytes &frames, bool ordered = true) {
  FrameReader reader(frames, ordered);
  while (reader.next()) {
  }
  return reader.reject();
}

}  // namespace weft::rxd::wire

#endif
