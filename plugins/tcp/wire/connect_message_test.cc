// SPDX-License-Identifier: BSD-2-Clause
#include "connect_message.h"

#include <set>
#include <string>

#include "test_frames.h"

namespace weft::tcp {
namespace {

using namespace testing;

Bytes encode(ConnectType type, const Bytes &private_data, ByteOrder order = ByteOrder::kNative) {
  std::array<uint8_t, kMaxConnectSize> out;
  const size_t n = encode_connect(type, private_data, out, order);
  return {out.begin(), out.begin() + static_cast<ptrdiff_t>(n)};
}

Bytes pattern(size_t size) {
  Bytes bytes(size);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  return bytes;
}

TEST(ConnectMessage, StockPeers) {
  const auto check = [](const char *capture, ConnectRole role, ConnectType type,
                        const Bytes &expected) {
    const Bytes bytes = hex(capture);
    ConnectReader reader(role);
    EXPECT_EQ(reader.on_bytes(bytes), bytes.size());
    ASSERT_TRUE(reader.done());
    EXPECT_EQ(reader.header().type, type);
    EXPECT_EQ(reader.header().order, ByteOrder::kNative);
    EXPECT_EQ(Bytes(reader.private_bytes().begin(), reader.private_bytes().end()), expected);
    EXPECT_EQ(encode(type, expected), bytes);
  };
  check(captures::kConnectRequest, ConnectRole::kPassive, ConnectType::kRequest, {});
  check(captures::kConnectAccept, ConnectRole::kActive, ConnectType::kAccept, {});
  check(captures::kRdmRequest, ConnectRole::kPassive, ConnectType::kRequest,
        hex("01 00 ac f7 00 00 43 de"));
  check(captures::kRdmAccept, ConnectRole::kActive, ConnectType::kAccept,
        hex("81 00 ac f7 00 00 43 dc"));
  check(captures::kRdmReject, ConnectRole::kActive, ConnectType::kReject,
        hex("01 00 88 bd 00 00 21 aa"));
}

TEST(ConnectMessage, CutAnywhereAndNothingBeyondIsTaken) {
  for (size_t size : {0, 1, 8, 255, 256}) {
    const Bytes message = encode(ConnectType::kAccept, pattern(size));
    ASSERT_EQ(message.size(), 32 + size);
    Bytes stream = message;
    stream.insert(stream.end(), 20, 0xee);  // a data frame follows at once
    for (size_t cut = 0; cut <= message.size(); ++cut) {
      ConnectReader reader(ConnectRole::kActive);
      ASSERT_EQ(reader.on_bytes({stream.data(), cut}), cut);
      ASSERT_EQ(reader.done(), cut == message.size());
      ASSERT_EQ(reader.on_bytes(std::span(stream).subspan(cut)), message.size() - cut);
      ASSERT_TRUE(reader.done());
      EXPECT_TRUE(reader.space().empty());
      const auto bytes = reader.private_bytes();
      EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), pattern(size));
    }
  }
}

TEST(ConnectMessage, SpaceIsExactlyWhatIsNeeded) {
  const Bytes message = encode(ConnectType::kRequest, pattern(100));
  ConnectReader reader(ConnectRole::kPassive);
  for (size_t i = 0; i < message.size(); ++i) {
    ASSERT_FALSE(reader.done());
    ASSERT_EQ(reader.space().size(), (i < 32 ? 32 : message.size()) - i);
    reader.space()[0] = message[i];
    reader.on_read(1);
  }
  EXPECT_TRUE(reader.done());
  EXPECT_TRUE(reader.space().empty());
  EXPECT_EQ(reader.on_bytes(message), 0u);
  EXPECT_EQ(reader.private_bytes().size(), 100u);
}

TEST(ConnectMessage, TheProbeFieldTellsTheByteOrder) {
  Bytes bytes = encode(ConnectType::kRequest, {}, ByteOrder::kNetwork);
  auto header = parse_connect_header(bytes, ConnectRole::kPassive);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->order, ByteOrder::kNetwork);
  bytes[24] = 1;  // neither order's 1
  header = parse_connect_header(bytes, ConnectRole::kPassive);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->order, ByteOrder::kNetwork);
  header = parse_connect_header(encode(ConnectType::kReject, {}), ConnectRole::kActive);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->order, ByteOrder::kNative);
}

TEST(ConnectMessage, EveryVersionAndType) {
  for (int value = 0; value < 256; ++value) {
    Bytes bytes = encode(ConnectType::kRequest, {});
    bytes[0] = static_cast<uint8_t>(value);
    auto header = parse_connect_header(bytes, ConnectRole::kPassive);
    EXPECT_EQ(header.has_value(), value == 3);
    if (!header) {
      EXPECT_EQ(header.error(), ConnectRefusal::kVersion);
    }

    bytes = encode(ConnectType::kRequest, {});
    bytes[1] = static_cast<uint8_t>(value);
    header = parse_connect_header(bytes, ConnectRole::kPassive);
    EXPECT_EQ(header.has_value(), value == 0);
    if (!header) {
      EXPECT_EQ(header.error(), ConnectRefusal::kType);
    }
    header = parse_connect_header(bytes, ConnectRole::kActive);
    EXPECT_EQ(header.has_value(), value == 1 || value == 6);
    if (!header) {
      EXPECT_EQ(header.error(), ConnectRefusal::kType);
    }
  }
}

TEST(ConnectMessage, PrivateSizeIsBigEndianAndLimited) {
  for (uint32_t size = 0; size <= 0xffff; ++size) {
    Bytes bytes = encode(ConnectType::kRequest, {});
    bytes[2] = static_cast<uint8_t>(size >> 8);
    bytes[3] = static_cast<uint8_t>(size);
    const auto header = parse_connect_header(bytes, ConnectRole::kPassive);
    ASSERT_EQ(header.has_value(), size <= 256) << size;
    if (header) {
      ASSERT_EQ(header->private_size, size);
    } else {
      ASSERT_EQ(header.error(), ConnectRefusal::kPrivateSize);
    }
  }
}

TEST(ConnectMessage, ShortIsTruncated) {
  const Bytes bytes = encode(ConnectType::kRequest, {});
  for (size_t n = 0; n < 32; ++n) {
    const auto header = parse_connect_header({bytes.data(), n}, ConnectRole::kPassive);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error(), ConnectRefusal::kTruncated);
  }
}

TEST(ConnectMessage, RefusesBeforeThePrivateData) {
  Bytes bytes = encode(ConnectType::kRequest, pattern(50));
  bytes[0] = 'G';  // an HTTP request
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    ConnectReader reader(ConnectRole::kPassive);
    const size_t first = reader.on_bytes({bytes.data(), cut});
    EXPECT_EQ(first, std::min<size_t>(cut, 32));
    EXPECT_EQ(first + reader.on_bytes(std::span(bytes).subspan(cut)), 32u);
    EXPECT_EQ(reader.rejected(), ConnectRefusal::kVersion);
    EXPECT_FALSE(reader.done());
    EXPECT_TRUE(reader.space().empty());
  }
}

TEST(ConnectMessage, TooMuchPrivateDataIsNotEncoded) {
  std::array<uint8_t, kMaxConnectSize> out;
  EXPECT_EQ(encode_connect(ConnectType::kRequest, pattern(256), out), kMaxConnectSize);
  EXPECT_EQ(encode_connect(ConnectType::kRequest, pattern(257), out), 0u);
}

TEST(ConnectMessage, EveryRefusalSaysWhy) {
  std::set<std::string> texts;
  for (int i = 0; i <= static_cast<int>(ConnectRefusal::kPrivateSize); ++i) {
    texts.insert(text(static_cast<ConnectRefusal>(i)));
  }
  EXPECT_EQ(texts.size(), 4u);
  EXPECT_EQ(texts.count("unknown reason"), 0u);
}

}  // namespace
}  // namespace weft::tcp
