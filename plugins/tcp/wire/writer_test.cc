// SPDX-License-Identifier: BSD-2-Clause
#include "writer.h"

#include "test_frames.h"

namespace weft::tcp {
namespace {

using namespace testing;

constexpr ByteOrder kNative = ByteOrder::kNative;

struct Item : SendItem {
  int number = 0;
};

void set_message(SendItem &item, uint64_t payload) {
  FrameHeader header;
  header.payload_size = payload;
  item.set_header(header, kNative);
}

void set_ack(SendItem &item) {
  FrameHeader header;
  header.op_data = kOpDataAck;
  item.set_header(header, kNative);
}

Bytes joined(std::span<const iovec> vectors) {
  Bytes bytes;
  for (const iovec &iov : vectors) {
    const auto *at = static_cast<const uint8_t *>(iov.iov_base);
    bytes.insert(bytes.end(), at, at + iov.iov_len);
  }
  return bytes;
}

// The bytes of one sendmsg() with up to `vectors` vectors.
Bytes gathered(Writer &writer, size_t vectors = 64) {
  std::vector<iovec> iov(vectors);
  const size_t n = writer.gather(iov);
  EXPECT_LE(n, vectors);
  return joined({iov.data(), n});
}

std::vector<int> sent(Writer &writer, size_t n) {
  std::vector<int> done;
  writer.on_sent(n, [&](SendItem &item) { done.push_back(static_cast<Item &>(item).number); });
  return done;
}

using Numbers = std::vector<int>;

TEST(Writer, EmptyGathersNothing) {
  Writer writer;
  EXPECT_TRUE(writer.empty());
  EXPECT_TRUE(gathered(writer).empty());
  EXPECT_EQ(sent(writer, 0), Numbers{});
}

TEST(Writer, ManyItemsInOneCall) {
  Writer writer;
  Item items[3];
  const Bytes payload = hex("61 62 63 64");
  for (int i = 0; i < 3; ++i) {
    items[i].number = i;
    set_message(items[i], 4);
    items[i].add(payload.data(), 4);
    writer.push(items[i]);
  }
  EXPECT_EQ(gathered(writer), hex("03 00 00 00 00 00 10 00 14 00 00 00 00 00 00 00 61 62 63 64"
                                  "03 00 00 00 00 00 10 01 14 00 00 00 00 00 00 00 61 62 63 64"
                                  "03 00 00 00 00 00 10 02 14 00 00 00 00 00 00 00 61 62 63 64"));
  EXPECT_EQ(sent(writer, 60), (Numbers{0, 1, 2}));
  EXPECT_TRUE(writer.empty());
}

TEST(Writer, CopyAndReferenceGiveTheSameBytes) {
  const Bytes payload(128, 0x5a);
  Item by_reference, by_copy;
  FrameHeader header;
  header.op = Op::kWrite;
  header.flags = kFlagRemoteData;
  header.rma_count = 1;
  header.rma[0] = {1, 128, 3};
  header.payload_size = 128;
  by_reference.set_header(header, kNative);
  by_reference.add(payload.data(), 64);
  by_reference.add(payload.data() + 64, 0);
  by_reference.add(payload.data() + 64, 64);
  EXPECT_EQ(by_reference.room(), 0u);
  by_copy.set_header(header, kNative);
  EXPECT_EQ(by_copy.room(), 184u - 48);
  by_copy.copy(payload.data(), 100);
  by_copy.copy(payload.data() + 100, 28);
  by_copy.copy(nullptr, 0);
  EXPECT_EQ(by_reference.size(), 48u + 128);
  EXPECT_EQ(by_copy.size(), 48u + 128);
  Writer a, b;
  a.push(by_reference);
  b.push(by_copy);
  EXPECT_EQ(gathered(a), gathered(b));
  iovec iov[8];
  EXPECT_EQ(a.gather(iov), 3u);
  EXPECT_EQ(b.gather(iov), 1u);
}

TEST(Writer, BiggestItem) {
  const Bytes payload(40, 7);
  Item item;
  FrameHeader header;
  header.op = Op::kWrite;
  header.flags = kFlagRemoteData;
  header.rma_count = 4;
  for (auto &vector : header.rma) vector = {1, 10, 2};
  header.payload_size = 40;
  item.set_header(header, kNative);
  for (size_t i = 0; i < 4; ++i) item.add(payload.data() + 10 * i, 10);
  EXPECT_EQ(item.size(), 160u);
  Writer writer;
  writer.push(item);
  const Bytes bytes = gathered(writer);
  ASSERT_EQ(bytes.size(), 160u);
  const auto parsed = parse_header(bytes, kNative, EndpointKind::kMsg);
  ASSERT_TRUE(parsed);
  expect_same(*parsed, header);
  EXPECT_EQ(Bytes(bytes.begin() + 120, bytes.end()), payload);
}

// The socket may stop anywhere: the rest comes next, and an item is done with its last byte, not
// earlier.
TEST(Writer, StoppedAtEveryByteWithEveryNumberOfVectors) {
  const Bytes payload = hex("00 01 02 03 04 05 06 07 08 09 0a 0b");
  for (size_t vectors = 1; vectors <= 12; ++vectors) {
    Bytes whole;
    for (size_t step = 1; step <= 120; ++step) {
      Writer writer;
      Item items[4];
      for (int i = 0; i < 4; ++i) {
        items[i].number = i;
        set_message(items[i], 12);
        if (i == 1) {
          items[i].copy(payload.data(), 12);
        } else {
          items[i].add(payload.data(), 5);
          items[i].add(payload.data() + 5, 3);
          items[i].add(payload.data() + 8, 4);
        }
        writer.push(items[i]);
      }
      Bytes stream;
      size_t finished = 0;
      while (!writer.empty()) {
        const Bytes bytes = gathered(writer, vectors);
        ASSERT_FALSE(bytes.empty());
        const size_t n = std::min(step, bytes.size());
        stream.insert(stream.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
        for (int number : sent(writer, n)) ASSERT_EQ(number, static_cast<int>(finished++));
        ASSERT_EQ(finished, stream.size() / 28);
        ASSERT_EQ(writer.inside_frame(), stream.size() % 28 != 0);
      }
      if (whole.empty()) whole = stream;
      ASSERT_EQ(stream, whole);
      ASSERT_EQ(stream.size(), 4 * 28u);
      for (size_t i = 0; i < 4; ++i) ASSERT_EQ(stream[28 * i + 7], i);
    }
  }
}

TEST(Writer, ControlOvertakesItemsThatHaveNotBegun) {
  Writer writer;
  Item first, second, ack, response;
  first.number = 1;
  second.number = 2;
  ack.number = 10;
  response.number = 11;
  const Bytes payload(8, 1);
  for (Item *item : {&first, &second}) {
    set_message(*item, 8);
    item->add(payload.data(), 8);
    writer.push(*item);
  }
  gathered(writer);
  EXPECT_EQ(sent(writer, 0), Numbers{});  // the socket is full
  set_ack(ack);
  writer.push_control(ack);  // ahead of both
  const Bytes bytes = gathered(writer);
  ASSERT_EQ(bytes.size(), 64u);
  EXPECT_EQ(bytes[4], kOpDataAck);
  EXPECT_EQ(bytes[7], 0);
  EXPECT_EQ(bytes[16 + 7], 1);
  EXPECT_EQ(sent(writer, 17), Numbers{10});  // and one byte of `first`
  EXPECT_TRUE(writer.inside_frame());

  set_message(response, 0);
  writer.push_control(response);  // not inside `first`
  const Bytes rest = gathered(writer);
  ASSERT_EQ(rest.size(), 23u + 16 + 24);
  EXPECT_EQ(rest[23 + 7], 2);
  EXPECT_EQ(rest[23 + 16 + 7], 3);
  EXPECT_EQ(sent(writer, rest.size()), (Numbers{1, 11, 2}));
  EXPECT_TRUE(writer.empty());
}

TEST(Writer, IdsWrapRound) {
  Writer writer;
  Item item;
  for (int i = 0; i < 600; ++i) {
    set_ack(item);
    writer.push_control(item);
    const Bytes bytes = gathered(writer);
    ASSERT_EQ(bytes[7], static_cast<uint8_t>(i));
    ASSERT_EQ(sent(writer, 16).size(), 1u);
  }
}

TEST(Writer, CallbackMayPush) {
  Writer writer;
  Item items[2];
  for (Item &item : items) {
    set_ack(item);
    writer.push(item);
  }
  int calls = 0;
  gathered(writer);
  writer.on_sent(32, [&](SendItem &item) {
    if (++calls <= 2) {
      set_ack(item);
      writer.push_control(item);
    }
  });
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(writer.empty());
  EXPECT_EQ(gathered(writer).size(), 32u);
  EXPECT_EQ(sent(writer, 32).size(), 2u);
  EXPECT_TRUE(writer.empty());
}

TEST(Writer, CallbackMayEndTheWriter) {
  auto writer = std::make_unique<Writer>();
  Item items[2];
  for (Item &item : items) {
    set_ack(item);
    writer->push(item);
  }
  gathered(*writer);
  int calls = 0;
  writer->on_sent(32, [&](SendItem &) {
    ++calls;
    writer.reset();
  });
  EXPECT_EQ(calls, 2);
}

TEST(Writer, DrainHandsEverythingBackInOrder) {
  Writer writer;
  Item items[4];
  for (int i = 0; i < 4; ++i) {
    items[i].number = i;
    set_ack(items[i]);
  }
  writer.push(items[0]);
  gathered(writer);
  sent(writer, 3);
  writer.push(items[1]);
  writer.push_control(items[2]);
  writer.push(items[3]);
  Numbers numbers;
  writer.drain([&](SendItem &item) { numbers.push_back(static_cast<Item &>(item).number); });
  EXPECT_EQ(numbers, (Numbers{0, 2, 1, 3}));
  EXPECT_TRUE(writer.empty());
  EXPECT_FALSE(writer.inside_frame());
  writer.push(items[0]);
  EXPECT_EQ(gathered(writer).size(), 16u);
}

// The documented memory: a reader and a writer per endpoint, an item per operation in flight.
TEST(Memory, Budget) {
  EXPECT_LE(sizeof(Reader<CollectingSink>), 240u);
  EXPECT_LE(sizeof(Writer), 56u);
  EXPECT_LE(sizeof(SendItem), 200u);
}

}  // namespace
}  // namespace weft::tcp
