// SPDX-License-Identifier: BSD-2-Clause
#include "rdm_message.h"

#include "test_frames.h"

namespace weft::tcp {
namespace {

using namespace testing;

TEST(RdmMessage, StockPeers) {
  const struct {
    const char *bytes;
    RdmHello hello;
  } captured[] = {
      {"01 00 ac f7 00 00 43 de", {1, 0, 0xacf7, 0x43de}},
      {"81 00 ac f7 00 00 43 dc", {0x81, 0, 0xacf7, 0x43dc}},
      {"01 00 88 bd 00 00 21 aa", {1, 0, 0x88bd, 0x21aa}},
      {"81 00 91 a1 00 00 21 aa", {0x81, 0, 0x91a1, 0x21aa}},
  };
  for (const auto &c : captured) {
    const Bytes bytes = hex(c.bytes);
    const auto hello = parse_hello(bytes);
    ASSERT_TRUE(hello) << c.bytes;
    EXPECT_EQ(*hello, c.hello) << c.bytes;
    const auto again = encode_hello(*hello);
    EXPECT_EQ(Bytes(again.begin(), again.end()), bytes);
  }
}

TEST(RdmMessage, AnythingElseIsRefusedWithAReason) {
  for (size_t size = 0; size <= 256; ++size) {
    if (size == kHelloSize) continue;
    const auto hello = parse_hello(Bytes(size, 1));
    ASSERT_FALSE(hello) << size;
    EXPECT_EQ(hello.error(), HelloRefusal::kSize);
  }
  const auto hello = parse_hello(hex("01 00 00 00 00 00 43 de"));
  ASSERT_FALSE(hello);
  EXPECT_EQ(hello.error(), HelloRefusal::kPort);
  EXPECT_NE(std::string_view(text(HelloRefusal::kPort)), text(HelloRefusal::kSize));
}

TEST(RdmMessage, AContextSaysItsPlaceBesideItsProcess) {
  constexpr uint32_t kMaxProcess = 1 << 22;  // proc(5), pid_max
  for (unsigned place : {0u, 1u, 31u}) {
    const RdmHello hello{.features = 0xff, .port = 7, .process = process_at(kMaxProcess, place)};
    const auto heard = parse_hello(encode_hello(hello));
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->place(), place);
    EXPECT_EQ(heard->process, kMaxProcess | place << kPlaceShift);
  }
}

TEST(RdmMessage, Negotiation) {
  // As stock peers were observed to answer, and what they spoke then.
  EXPECT_EQ(answer_to(0), 0);
  EXPECT_EQ(answer_to(1), 0x81);
  EXPECT_EQ(kind_of_answer(0x81), EndpointKind::kRdm1);
  EXPECT_EQ(kind_of_answer(0x01), EndpointKind::kRdm0);  // an echo
  EXPECT_EQ(kind_of_answer(0x00), EndpointKind::kRdm0);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const uint8_t answer = answer_to(uint8_t(byte));
    EXPECT_EQ(answer, byte == 0 ? 0 : 0x81) << byte;
    // Both sides conclude the same.
    EXPECT_EQ(kind_of_answer(answer), byte == 0 ? EndpointKind::kRdm0 : EndpointKind::kRdm1);
    EXPECT_EQ(kind_of_answer(uint8_t(byte)) == EndpointKind::kRdm1, byte == 0x81) << byte;
  }
}

TEST(RdmMessage, FeaturesAreAgreedOneByOne) {
  for (unsigned asked = 0; asked < 256; ++asked) {
    const uint8_t answer = features_of_answer(uint8_t(asked));
    const Terms terms = terms_of(ByteOrder::kNative, 0x81, answer);
    EXPECT_EQ(terms.says_when_full, (asked & kSaysWhenFull) != 0) << asked;
    EXPECT_EQ(terms.announces_any, (asked & kAnnouncesAny) != 0) << asked;
    EXPECT_EQ(terms.refuses, (asked & kRefuses) != 0) << asked;
    // Who echoes what it does not know has agreed to nothing.
    const Terms echoed = terms_of(ByteOrder::kNative, 0x81, uint8_t(asked));
    EXPECT_FALSE(echoed.says_when_full && asked & kSaysWhenFull);
    EXPECT_FALSE(echoed.announces_any && asked & kAnnouncesAny);
    EXPECT_FALSE(echoed.refuses && asked & kRefuses);
    const Terms old = terms_of(ByteOrder::kNative, 0x01, answer);
    EXPECT_FALSE(old.says_when_full || old.announces_any) << "protocol 0 has no announcements";
    EXPECT_FALSE(old.refuses);
  }
}

}  // namespace
}  // namespace weft::tcp
