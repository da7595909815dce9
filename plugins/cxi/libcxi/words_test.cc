// SPDX-License-Identifier: BSD-2-Clause
// The tables of words: golden bytes that were worked out by hand, round trips, and that no field of
// a word covers another.
#include "plugins/cxi/libcxi/words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace weft::cxi {
namespace {

using Bytes = std::vector<uint8_t>;

struct Word {
  const char *name;
  size_t bytes;
  std::span<const Field> fields;
};
template <class W>
constexpr Word word(const char *name) {
  return {name, W::kBytes, W::kAll};
}
const Word kWords[] = {word<CommandHead>("CommandHead"),
                       word<InlineState>("InlineState"),
                       word<InlinePut>("InlinePut"),
                       word<InlineMessage>("InlineMessage"),
                       word<InlineAmo>("InlineAmo"),
                       word<SmallAmo>("SmallAmo"),
                       word<FullDma>("FullDma"),
                       word<DmaAmo>("DmaAmo"),
                       word<CounterCommand>("CounterCommand"),
                       word<QueueCommand>("QueueCommand"),
                       word<TargetCommand>("TargetCommand"),
                       word<StateCommand>("StateCommand"),
                       word<QueueStatus>("QueueStatus"),
                       word<CounterWord>("CounterWord"),
                       word<EventStatus>("EventStatus"),
                       word<EventReader>("EventReader"),
                       word<EventHead>("EventHead"),
                       word<InitiatorEvent>("InitiatorEvent"),
                       word<LongInitiatorEvent>("LongInitiatorEvent"),
                       word<TriggerEvent>("TriggerEvent"),
                       word<FailureEvent>("FailureEvent"),
                       word<TargetEvent>("TargetEvent"),
                       word<ShortTargetEvent>("ShortTargetEvent")};

TEST(Words, FieldsAreInTheirWordAndApart) {
  for (const Word &one : kWords) {
    SCOPED_TRACE(one.name);
    std::vector<bool> used(one.bytes * 8);
    for (const Field &field : one.fields) {
      ASSERT_TRUE(field.is_sound()) << field.bit;
      ASSERT_LE(field.end(), used.size()) << field.bit;
      for (unsigned bit = field.bit; bit != field.end(); ++bit) {
        EXPECT_FALSE(used[bit]) << bit;
        used[bit] = true;
      }
    }
  }
}

TEST(Words, EachFieldComesBackAndLeavesTheOthers) {
  for (const Word &one : kWords) {
    SCOPED_TRACE(one.name);
    for (const uint8_t background : {0x00, 0xff, 0xa5}) {
      for (const Field &field : one.fields) {
        const Bytes before(one.bytes, background);
        for (const uint64_t value : {uint64_t{0}, uint64_t{1}, field.max(), field.max() / 3}) {
          Bytes word = before;
          put(word.data(), field, value & field.max());
          EXPECT_EQ(get(word.data(), field), value & field.max()) << field.bit;
          put(word.data(), field, get(before.data(), field));
          EXPECT_EQ(word, before) << field.bit;
        }
      }
    }
  }
}

TEST(Words, AllFieldsAtTheirMost) {
  for (const Word &one : kWords) {
    SCOPED_TRACE(one.name);
    Bytes word(one.bytes);
    size_t bits = 0;
    for (const Field &field : one.fields) {
      put(word.data(), field, field.max());
      bits += field.width;
    }
    size_t set = 0;
    for (const uint8_t byte : word) set += size_t(std::popcount(byte));
    EXPECT_EQ(set, bits);
    for (const Field &field : one.fields) EXPECT_EQ(get(word.data(), field), field.max());
  }
}

TEST(Words, AValueThatIsTooWideLeavesTheNeighboursAlone) {
  uint8_t word[8] = {};
  put(word, Field{4, 3}, 0xff);
  EXPECT_EQ(word[0], 0x70);
}

// A put of 0x1234 bytes from 0x7f0000001000 in LAC 3 to the portal 0xe5 of PID 0x155 on NIC
// 0xabcde.
TEST(Words, GoldenDma) {
  Bytes word(FullDma::kBytes);
  put(word.data(), FullDma::kind, uint64_t(CommandKind::kDma));
  put(word.data(), FullDma::size, uint64_t(CommandSize::k64));
  put(word.data(), FullDma::op, uint64_t(DmaOp::kRendezvousPut));
  put(word.data(), FullDma::index_low, low_index(0xe5));
  put(word.data(), FullDma::lac, 3);
  put(word.data(), FullDma::send_disable, 1);
  put(word.data(), FullDma::ct_ack, 1);
  put(word.data(), FullDma::flush, 1);
  put(word.data(), FullDma::address, fabric_address(0xabcde, 0x155, 0xe5));
  put(word.data(), FullDma::remote_offset, 0x11223344556677);
  put(word.data(), FullDma::local, 0x7f0000001000);
  put(word.data(), FullDma::length, 0x1234);
  put(word.data(), FullDma::ct, 0x2aa);
  put(word.data(), FullDma::eq, 0x555);
  put(word.data(), FullDma::eager_length, 0x80001);
  put(word.data(), FullDma::rendezvous_id, 0x9c);
  put(word.data(), FullDma::initiator, 0xdeadbeef);
  put(word.data(), FullDma::match_bits, 0x0123456789abcdef);
  put(word.data(), FullDma::header_data, 0xfedcba9876543210);
  put(word.data(), FullDma::user_ptr, 0x1122334455667788);
  const Bytes golden = {0x35, 0x05, 0x8b, 0x10, 0x55, 0xef, 0xcd, 0xab,   // the head, the address
                        0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00,   // the remote offset
                        0x00, 0x10, 0x00, 0x00, 0x00, 0x7f, 0x00, 0x00,   // the local address
                        0x34, 0x12, 0x00, 0x00, 0xaa, 0x02, 0x55, 0x05,   // length, counter, queue
                        0x01, 0x00, 0x08, 0x9c, 0xef, 0xbe, 0xad, 0xde,   // rendezvous, initiator
                        0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01,   // match bits
                        0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,   // header data
                        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};  // user pointer
  EXPECT_EQ(word, golden);
}

TEST(Words, GoldenState) {
  Bytes word(InlineState::kBytes);
  put(word.data(), InlineState::kind, uint64_t(CommandKind::kInline));
  put(word.data(), InlineState::op, uint64_t(DmaOp::kState));
  put(word.data(), InlineState::bytes, 32);
  put(word.data(), InlineState::write_lac, 5);
  put(word.data(), InlineState::send_disable, 1);
  put(word.data(), InlineState::restricted, 1);
  put(word.data(), InlineState::initiator, 0x01020304);
  put(word.data(), InlineState::index_low, 0x1f);
  put(word.data(), InlineState::user_ptr, 0x1817161514131211);
  put(word.data(), InlineState::ct, 0x7ff);
  put(word.data(), InlineState::eq, 0x401);
  const Bytes golden = {0xa0, 0x20, 0x0d, 0x04, 0x04, 0x03, 0x02, 0x01,   //
                        0x1f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,   //
                        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,   //
                        0x00, 0x00, 0x00, 0x00, 0xff, 0x07, 0x01, 0x04};  //
  EXPECT_EQ(word, golden);
}

TEST(Words, GoldenEntry) {
  Bytes word(TargetCommand::kBytes);
  put(word.data(), TargetCommand::kind, uint64_t(CommandKind::kQueue));
  put(word.data(), TargetCommand::size, uint64_t(CommandSize::k64));
  put(word.data(), TargetCommand::op, uint64_t(TargetOp::kAppend));
  put(word.data(), TargetCommand::list, 1);
  put(word.data(), TargetCommand::portal, 0x321);
  put(word.data(), TargetCommand::link_disable, 1);
  put(word.data(), TargetCommand::use_once, 1);
  put(word.data(), TargetCommand::manage_local, 1);
  put(word.data(), TargetCommand::op_put, 1);
  put(word.data(), TargetCommand::ct, 0x456);
  put(word.data(), TargetCommand::buffer_id, 0x789a);
  put(word.data(), TargetCommand::lac, 7);
  put(word.data(), TargetCommand::restart, 1);
  put(word.data(), TargetCommand::start, 0x01ffffffffffffff);
  put(word.data(), TargetCommand::length, 0x00ffffffffffffff);
  put(word.data(), TargetCommand::min_free, 0x123456);
  put(word.data(), TargetCommand::match_id, 0xfffffffe);
  put(word.data(), TargetCommand::match_bits, 1);
  put(word.data(), TargetCommand::ignore_bits, 0x8000000000000000);
  const Bytes golden = {0x87, 0x01, 0x21, 0x03, 0x40, 0x54, 0x56, 0x04,   //
                        0x9a, 0x78, 0x07, 0x01, 0x00, 0x00, 0x00, 0x00,   //
                        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,   //
                        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00,   //
                        0x56, 0x34, 0x12, 0x00, 0xfe, 0xff, 0xff, 0xff,   //
                        0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,   //
                        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80,   //
                        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};  //
  EXPECT_EQ(word, golden);
}

TEST(Words, GoldenCounter) {
  Bytes word(CounterCommand::kBytes);
  put(word.data(), CounterCommand::kind, uint64_t(CommandKind::kCounter));
  put(word.data(), CounterCommand::size, uint64_t(CommandSize::k128));
  put(word.data(), CounterCommand::op, uint64_t(CounterOp::kTriggerDma));
  put(word.data(), CounterCommand::ct, 1);
  put(word.data(), CounterCommand::trigger_ct, 0x102);
  put(word.data(), CounterCommand::eq, 3);
  put(word.data(), CounterCommand::success, 0x060504030201);
  put(word.data(), CounterCommand::failure, 0x7f);
  put(word.data(), CounterCommand::sets_failure, 1);
  put(word.data(), CounterCommand::threshold, 0x0000ffffffff);
  const Bytes golden = {0x5a, 0x00, 0x01, 0x00, 0x02, 0x01, 0x03, 0x00,   //
                        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x7f, 0x80,   //
                        0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00};  //
  EXPECT_EQ(word, golden);
}

TEST(Words, GoldenEvents) {
  Bytes word(TargetEvent::kBytes);
  put(word.data(), TargetEvent::header_data, 0x0807060504030201);
  put(word.data(), TargetEvent::initiator, 0x44332211);
  put(word.data(), TargetEvent::portal, 0x7ff);
  put(word.data(), TargetEvent::size, uint64_t(EventSize::k64));
  put(word.data(), TargetEvent::type, 15);
  put(word.data(), TargetEvent::list, 2);
  put(word.data(), TargetEvent::rendezvous, 1);
  put(word.data(), TargetEvent::auto_unlinked, 1);
  put(word.data(), TargetEvent::match_bits, 0x1122334455667788);
  put(word.data(), TargetEvent::buffer_id, 0x0a0b);
  put(word.data(), TargetEvent::vni, 0x0c0d);
  put(word.data(), TargetEvent::mlength, 5);
  put(word.data(), TargetEvent::rlength, 6);
  put(word.data(), TargetEvent::remote_offset, 7);
  put(word.data(), TargetEvent::start, 8);
  put(word.data(), TargetEvent::entries_used, 9);
  put(word.data(), TargetEvent::entries_max, 10);
  put(word.data(), TargetEvent::rendezvous_id, 0xee);
  put(word.data(), TargetEvent::rc, 1);
  const Bytes golden = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,   //
                        0x11, 0x22, 0x33, 0x44, 0xff, 0x07, 0x3f, 0x16,   //
                        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,   //
                        0x0b, 0x0a, 0x0d, 0x0c, 0x00, 0x00, 0x00, 0x00,   //
                        0x05, 0x00, 0x00, 0x00, 0x06, 0x00, 0x00, 0x00,   //
                        0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,   //
                        0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,   //
                        0x09, 0x00, 0x0a, 0x00, 0x00, 0x00, 0xee, 0x01};  //
  EXPECT_EQ(word, golden);
  EXPECT_EQ(word.back() & EventHead::kRcMask, 1);

  Bytes ack(InitiatorEvent::kBytes);
  put(ack.data(), InitiatorEvent::user_ptr, 0x1122334455667788);
  put(ack.data(), InitiatorEvent::mlength, 0x01020304);
  put(ack.data(), InitiatorEvent::list, 3);
  put(ack.data(), InitiatorEvent::rendezvous, 1);
  put(ack.data(), InitiatorEvent::size, uint64_t(EventSize::k16));
  put(ack.data(), InitiatorEvent::type, 9);
  put(ack.data(), InitiatorEvent::rc, 36);
  EXPECT_EQ(ack, (Bytes{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  //
                        0x04, 0x03, 0x02, 0x01, 0x13, 0x00, 0x25, 0x24}));
}

TEST(Words, AddressesOfTheFabric) {
  EXPECT_EQ(fabric_address(1, 2, 0), 0x1002u);
  EXPECT_EQ(fabric_address(0xfffff, 511, 255), 0xffffffffu);
  EXPECT_EQ(low_index(255), 31);
  for (unsigned index = 0; index != 256; ++index) {
    const FabricPlace place =
        place_of(fabric_address(0x12345, 0xaa, uint8_t(index)), low_index(uint8_t(index)));
    EXPECT_EQ(place.nid, 0x12345u);
    EXPECT_EQ(place.pid, 0xaa);
    EXPECT_EQ(place.index, index);
  }
}

}  // namespace
}  // namespace weft::cxi
