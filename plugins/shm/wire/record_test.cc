// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/wire/record.h"

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>

#include "plugins/shm/wire/hello.h"

namespace weft::shm {
namespace {

constexpr Geometry kGeometry{.lines = 64, .bytes = 1 << 16};

auto parsed(const Content &content, Type type, uint8_t flags, uint64_t tag = 5) {
  return parse(content.head(type, flags, tag), {content.bytes(), content.size()}, kGeometry);
}
Reject why(const Content &content, Type type, uint8_t flags) {
  const auto record = parsed(content, type, flags);
  EXPECT_FALSE(record);
  return record ? Reject::kType : record.error();
}

TEST(ShmRecord, AMessageInItsContent) {
  Content content;
  content.put(uint64_t(77));
  std::memcpy(content.room(3), "abc", 3);
  const auto r = parsed(content, Type::kMessage, kTagged | kHasData, 5);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->tag, 5u);
  EXPECT_EQ(r->data, 77u);
  EXPECT_EQ(r->length, 3u);
  EXPECT_EQ(r->bytes(), 0u);
  EXPECT_EQ(std::memcmp(r->inline_payload, "abc", 3), 0);
}

TEST(ShmRecord, AMessageAmongTheBytes) {
  Content content;
  content.put(uint64_t(9));
  content.put(uint32_t(kGeometry.most_payload()));
  const auto r = parsed(content, Type::kMessage, kInBytes | kAckPlaced);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->id, 9u);
  EXPECT_EQ(r->bytes(), kGeometry.most_payload());
  Content longer;
  longer.put(uint32_t(kGeometry.most_payload() + 1));
  EXPECT_EQ(why(longer, Type::kMessage, kInBytes), Reject::kLength);
}

TEST(ShmRecord, AMessageInItsSender) {
  Content content;
  content.put(uint64_t(9));
  const iovec iov[2] = {{reinterpret_cast<void *>(uintptr_t(16)), 100}, {nullptr, 5}};
  content.put(iov, 2);
  const auto r = parsed(content, Type::kMessage, kElsewhere);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->length, 105u);
  EXPECT_EQ(r->vectors[0].address, 16u);
  EXPECT_EQ(why(content, Type::kMessage, kElsewhere | kInBytes), Reject::kFlags);
}

TEST(ShmRecord, VectorsThatAreNone) {
  for (const uint8_t count : {uint8_t(5), uint8_t(255)}) {
    Content content;
    content.put(uint64_t(9));
    content.put(count);
    EXPECT_EQ(why(content, Type::kMessage, kElsewhere), Reject::kVectors);
  }
  for (const uint64_t length : {UINT64_MAX, UINT64_C(1) << 63}) {
    Content content;
    content.put(uint64_t(9));
    content.put(uint8_t(2));
    for (int i = 0; i < 2; ++i) content.put(FarVector{.address = 0, .length = length});
    EXPECT_EQ(why(content, Type::kMessage, kElsewhere), Reject::kVectors);
  }
}

TEST(ShmRecord, ContentOfAnotherSize) {
  Content empty, more;
  more.put(uint64_t(0));
  more.put(uint64_t(0));
  more.put(uint64_t(0));
  for (const Type type : {Type::kDone, Type::kPull, Type::kData}) {
    EXPECT_EQ(why(empty, type, kInBytes), Reject::kSize);
    EXPECT_EQ(why(more, type, kInBytes), Reject::kSize);
  }
  EXPECT_EQ(why(empty, Type::kMessage, kHasData), Reject::kSize);
  EXPECT_EQ(why(empty, Type(0), 0), Reject::kType);
  EXPECT_EQ(why(empty, Type(200), 0), Reject::kType);
}

TEST(ShmRecord, AWriteIsAsLongAsItsRegions) {
  const Region regions[2] = {{.address = 1, .length = 2, .key = 3}, {.address = 4, .length = 1}};
  Content content;
  content.put(regions, 2);
  std::memcpy(content.room(3), "abc", 3);
  const auto r = parsed(content, Type::kWrite, 0);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->region_count, 2u);
  EXPECT_EQ(r->regions[0].key, 3u);
  *content.room(1) = 0;
  EXPECT_EQ(why(content, Type::kWrite, 0), Reject::kLength);
}

TEST(ShmRecord, AReadOfMuchNeedsVectors) {
  const Region region{.address = 0, .length = kGeometry.most_payload() + 1, .key = 0};
  Content content;
  content.put(&region, 1);
  content.put(static_cast<const iovec *>(nullptr), 0);
  EXPECT_EQ(why(content, Type::kRead, 0), Reject::kLength);
}

Content atomic(uint8_t kind, uint8_t op, uint8_t datatype, uint32_t operands, uint64_t target) {
  Content content;
  content.put(kind);
  content.put(op);
  content.put(datatype);
  content.put(operands);
  const Region region{.address = 0, .length = target, .key = 0};
  content.put(&region, 1);
  return content;
}

TEST(ShmRecord, AtomicOperations) {
  EXPECT_TRUE(parsed(atomic(0, FI_SUM, FI_UINT64, 16, 16), Type::kAtomic, kInBytes));
  EXPECT_TRUE(parsed(atomic(1, FI_ATOMIC_READ, FI_UINT64, 0, 16), Type::kAtomic, kInBytes));
  EXPECT_TRUE(parsed(atomic(2, FI_CSWAP, FI_UINT64, 32, 16), Type::kAtomic, kInBytes));
  EXPECT_EQ(why(atomic(3, FI_SUM, FI_UINT64, 16, 16), Type::kAtomic, kInBytes), Reject::kAtomic);
  EXPECT_EQ(why(atomic(0, 200, FI_UINT64, 16, 16), Type::kAtomic, kInBytes), Reject::kAtomic);
  EXPECT_EQ(why(atomic(0, FI_SUM, 200, 16, 16), Type::kAtomic, kInBytes), Reject::kAtomic);
  EXPECT_EQ(why(atomic(0, FI_SUM, FI_UINT64, 8, 16), Type::kAtomic, kInBytes), Reject::kLength);
  EXPECT_EQ(why(atomic(0, FI_SUM, FI_UINT64, 12, 12), Type::kAtomic, kInBytes), Reject::kRegions);
  EXPECT_EQ(why(atomic(0, FI_SUM, FI_UINT64, 8192, 8192), Type::kAtomic, kInBytes),
            Reject::kRegions);
  EXPECT_EQ(why(atomic(2, FI_CSWAP, FI_UINT64, 8192, 4096), Type::kAtomic, kInBytes),
            Reject::kLength);
  EXPECT_EQ(why(atomic(0, FI_SUM, FI_UINT64, 16, 16), Type::kAtomic, 0), Reject::kFlags);
}

TEST(ShmRecord, PartsOfRegions) {
  const Region regions[3] = {{.address = 10, .length = 4, .key = 1},
                             {.address = 20, .length = 0, .key = 2},
                             {.address = 30, .length = 6, .key = 3}};
  Region out[kMostVectors];
  ASSERT_EQ(slice_regions(regions, 3, 2, 5, out), 2u);
  EXPECT_EQ(out[0].address, 12u);
  EXPECT_EQ(out[0].length, 2u);
  EXPECT_EQ(out[1].address, 30u);
  EXPECT_EQ(out[1].length, 3u);
  EXPECT_EQ(out[1].key, 3u);
  EXPECT_EQ(slice_regions(regions, 3, 10, 1, out), 0u);
}

// ---- handshakes ----

sdk::Address named(const char *name) {
  return sdk::read_address(FI_ADDR_STR, name).value();
}

TEST(ShmHello, ComesBackAsItWas) {
  const Hello hello{.name = named("fi_shm://17:0:3"),
                    .geometry = kGeometry,
                    .probe = {.address = 99, .value = 100}};
  const auto again = parse_hello(encode_hello(hello));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->name, hello.name);
  EXPECT_EQ(again->geometry, hello.geometry);
  EXPECT_EQ(again->probe.value, 100u);
  const auto answer = parse_answer(encode_answer({.probe = {.address = 1, .value = 2}}));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->probe.address, 1u);
}

TEST(ShmHello, AnyOtherPacketIsRefusedWithItsReason) {
  const Hello hello{.name = named("fi_shm://a"), .geometry = kGeometry, .probe = {}};
  const std::vector<uint8_t> good = encode_hello(hello);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parse_hello({good.data(), size})) << size;
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_EQ(parse_hello(longer).error(), BadPacket::kSize);
  const auto changed = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> bad = good;
    bad[at] = value;
    const auto read = parse_hello(bad);
    EXPECT_FALSE(read) << at;
    return read ? BadPacket::kSize : read.error();
  };
  EXPECT_EQ(changed(0, 'x'), BadPacket::kMagic);
  EXPECT_EQ(changed(8, 9), BadPacket::kVersion);
  EXPECT_EQ(changed(32, 3), BadPacket::kGeometry);
  EXPECT_EQ(changed(40, 0), BadPacket::kName);
  EXPECT_EQ(changed(40, 7), BadPacket::kName);
  EXPECT_EQ(parse_answer(good).error(), BadPacket::kMagic);
}

}  // namespace
}  // namespace weft::shm
