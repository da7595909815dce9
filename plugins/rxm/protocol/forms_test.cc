// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/forms.h"

#include <gtest/gtest.h>

#include <cstring>

#include "plugins/rxm/protocol/operation_table.h"
#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

using Form = TxOp::Form;

struct FormsTest : ::testing::Test {
  // A message in the caller's memory.
  TxOp &message(uint64_t length) {
    op.length = length;
    op.iov[0] = {memory, size_t(length)};
    op.count = 1;
    return op;
  }
  uint8_t memory[4096] = {1, 2, 3};
  PartsWorld world;
  OperationTable table{1};
  TxOp &op{*table.take()};
  Forms forms{world.settings};
};

TEST_F(FormsTest, ALengthHasAForm) {
  const struct {
    uint64_t length;
    Form form;
    PacketType type;
  } rows[] = {
      {0, Form::kEager, PacketType::kEager},
      {512, Form::kEager, PacketType::kEager},
      {513, Form::kSegments, PacketType::kSegment},
      {2048, Form::kSegments, PacketType::kSegment},
      {2049, Form::kRendezvous, PacketType::kRendezvous},
  };
  for (const auto &row : rows) {
    forms.choose(message(row.length), true, true, Tell::kNothing);
    EXPECT_EQ(op.form, row.form) << row.length;
    if (row.form == Form::kEager) continue;  // its header is made when it leaves
    EXPECT_EQ(op.header.type, uint8_t(row.type)) << row.length;
    EXPECT_EQ(op.header.message, OperationTable::id_of(op));
    EXPECT_EQ(op.header.size, row.length);
  }
  world.settings.eager_limit = UINT16_MAX + 1;  // more than a segment says
  world.settings.sar_limit = UINT64_MAX;
  forms.choose(message(UINT16_MAX + 2), true, true, Tell::kNothing);
  EXPECT_EQ(op.form, Form::kRendezvous);
}

// What the peer does not complete, or does not tell of, goes in another form.
TEST_F(FormsTest, APeerGetsWhatItCanTellOf) {
  const struct {
    uint64_t length;
    Tell until;
    uint8_t level;
    Form form;
    Tell later;
  } rows[] = {
      {8, Tell::kNothing, 0, Form::kEager, Tell::kNothing},
      {8, Tell::kDelivered, kLevelOfTelling, Form::kEager, Tell::kDelivered},
      {8, Tell::kDelivered, kLevelOfTelling - 1, Form::kRendezvous, Tell::kDelivered},
      {8, Tell::kMatched, 0, Form::kRendezvous, Tell::kMatched},
      {0, Tell::kMatched, kLevelOfTelling - 1, Form::kRendezvous, Tell::kMatched},
      {0, Tell::kMatched, 0, Form::kEager, Tell::kNothing},
      {1024, Tell::kNothing, 1, Form::kSegments, Tell::kNothing},
      {1024, Tell::kNothing, 0, Form::kRendezvous, Tell::kNothing},
      {1024, Tell::kDelivered, 1, Form::kRendezvous, Tell::kDelivered},
  };
  for (const auto &row : rows) {
    Connection &c = world.connected(1);
    c.set_level(row.level);
    op.flags = 0;
    forms.choose(message(row.length), false, false, row.until);
    forms.suit(c, op);
    EXPECT_EQ(op.form, row.form) << row.length << ' ' << int(row.level);
    EXPECT_EQ(op.until, row.later);
    EXPECT_EQ(op.flags, row.until != row.later ? FI_DELIVERY_COMPLETE : 0) << "by the carrier";
  }
}

TEST_F(FormsTest, AHeaderSaysWhatTheSenderWaitsFor) {
  const struct {
    Tell until;
    uint64_t flag;
  } rows[] = {{Tell::kNothing, 0},
              {Tell::kDelivered, kFlagTellDelivered},
              {Tell::kMatched, kFlagTellMatched}};
  op.tag = 5;
  op.data = 6;
  for (const auto &row : rows) {
    forms.choose(message(8), true, true, row.until);
    Forms::make_header(op, PacketType::kEager);
    EXPECT_EQ(op.header.flags, row.flag | kFlagRemoteData);
    EXPECT_EQ(op.header.tag, 5u);
    EXPECT_EQ(op.header.data, 6u);
    forms.choose(message(8), false, false, row.until);
    Forms::make_header(op, PacketType::kRendezvous);
    EXPECT_EQ(op.header.flags, 0u) << "a rendezvous is answered anyway";
    EXPECT_EQ(op.header.tag, 0u);
  }
}

TEST_F(FormsTest, DataThatItOwnsOutliveTheCall) {
  for (const uint64_t length : {UINT64_C(3), UINT64_C(500), UINT64_C(3000)}) {
    forms.choose(message(length), false, false, Tell::kNothing);
    op.inject = true;
    EXPECT_TRUE(forms.own_data(op));
    EXPECT_FALSE(op.inject);
    EXPECT_TRUE(op.owns_data());
    EXPECT_NE(op.iov[0].iov_base, memory);
    EXPECT_EQ(std::memcmp(op.iov[0].iov_base, memory, length), 0);
    op.bounce.reset();
  }
}

// A rendezvous has its vectors where a short message has its data.
TEST_F(FormsTest, OwnDataSurviveTheChangeToARendezvous) {
  Connection &stock = world.connected(1);
  forms.choose(message(3), false, false, Tell::kMatched);
  EXPECT_TRUE(forms.own_data(op));
  EXPECT_EQ(op.iov[0].iov_base, op.bytes);
  forms.suit(stock, op);
  EXPECT_EQ(op.form, Form::kRendezvous);
  EXPECT_NE(op.iov[0].iov_base, op.bytes);
  EXPECT_EQ(std::memcmp(op.iov[0].iov_base, memory, 3), 0);
}

}  // namespace
}  // namespace weft::rxm
