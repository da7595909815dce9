// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/seal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace weft::rxd {
namespace {

const wire::Part kOurs{.instance = 1, .connection = 10, .cookie = 100, .datagram = 1472};
const wire::Part kTheirs{.instance = 2, .connection = 20, .cookie = 200, .datagram = 1472};

// A sealed packet with one ping, as one datagram.
std::vector<uint8_t> sealed(const Seal &seal, uint64_t number) {
  std::vector<uint8_t> bytes(wire::kHeaderSize + wire::kPingFrameSize + wire::kMacSize);
  wire::Writer w(bytes);
  wire::Header h = seal.header(wire::PacketKind::kData, 0, 5'000'000);
  h.sequence = uint32_t(number);
  w.header(h);
  w.ping();
  // In two pieces, as it is sent with a payload.
  const iovec pieces[] = {{bytes.data(), wire::kHeaderSize},
                          {bytes.data() + wire::kHeaderSize, wire::kPingFrameSize}};
  bytes.resize(w.size() + seal.close(pieces, number, bytes.data() + w.size()));
  return bytes;
}

bool opens(const Seal &seal, std::span<const uint8_t> bytes, uint64_t number) {
  const auto packet = wire::parse(bytes);
  return packet && seal.fits(*packet, number);
}

TEST(Seal, ThePeersSealFitsAndNoOther) {
  constexpr uint64_t kNumber = (uint64_t{7} << 32) + 3;
  for (const bool checksum : {false, true})
    for (const std::string &key : {std::string(), std::string("a key of both")}) {
      wire::Part theirs = kTheirs;  // one side that wants checksums is enough
      if (checksum) theirs.flags = wire::kPartChecksum;
      const Seal seal(kOurs, theirs, key), peers(theirs, kOurs, key);
      EXPECT_EQ(seal.cookie(), 300U);
      EXPECT_EQ(seal.cookie(), peers.cookie());
      const auto bytes = sealed(peers, kNumber);
      EXPECT_EQ(bytes.size(),
                wire::kHeaderSize + wire::kPingFrameSize + (key.empty() ? 0 : wire::kMacSize));
      const wire::Header h = wire::parse_header(bytes).value();
      EXPECT_EQ(h.to, kOurs.connection);
      EXPECT_EQ(h.cookie, 300U);
      EXPECT_EQ(h.time, 5000U);
      EXPECT_EQ(h.has(wire::kFlagChecksum), checksum);
      EXPECT_EQ(h.has(wire::kFlagMac), !key.empty());
      EXPECT_TRUE(opens(seal, bytes, kNumber));
      // Each bit of it counts, as far as it is protected; else the header alone is looked at.
      for (size_t bit = 0; bit < 8 * bytes.size() && (checksum || !key.empty()); ++bit) {
        auto changed = bytes;
        changed[bit / 8] ^= uint8_t(1U << bit % 8);
        EXPECT_FALSE(opens(seal, changed, kNumber)) << bit;
      }
      // A packet of 2^32 numbers ago.
      EXPECT_EQ(opens(seal, bytes, 3), key.empty());
      // A peer with other habits.
      EXPECT_EQ(opens(seal, sealed(Seal(kTheirs, kOurs, key), kNumber), kNumber), !checksum);
      EXPECT_FALSE(opens(seal, sealed(Seal(theirs, kOurs, key + "!"), kNumber), kNumber));
      wire::Part other = theirs;
      other.cookie = 201;
      EXPECT_EQ(opens(seal, sealed(Seal(other, kOurs, key), kNumber), kNumber), key.empty());
    }
}

}  // namespace
}  // namespace weft::rxd
