// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/amo.h"

#include <gtest/gtest.h>

#include <cstring>

#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

struct Target {
  Target() {
    portal.append(List::kPriority, b.entry_for(region(1, 0), words));
    b.next();
  }
  Transfer amo(AmoOp op, uint64_t value, AmoType type = AmoType::kUint64) {
    operand = value;
    Transfer amo = a.put_to(b.at(20), std::string());
    amo.op = Op::kAtomic;
    amo.amo_op = op;
    amo.amo_type = type;
    amo.inline_bytes = &operand;
    amo.length = uint32_t(amo_size(type));
    return amo;
  }

  Host host;
  Process a{host, 1}, b{host, 2};
  Portal &portal = b.open_portal(20, {});
  alignas(16) std::array<uint64_t, 4> words{};
  uint64_t operand = 0;  // of the last one
};

TEST(Amo, ChangesTheTargetAndFetchesWhatWasThere) {
  Target t;
  t.words[1] = 40;
  Transfer add = t.amo(AmoOp::kSum, 2);
  add.remote_offset = 8;
  EXPECT_EQ(t.a.result_of(add), Rc::kOk);
  EXPECT_EQ(t.words[1], 42u);
  EXPECT_EQ(t.b.next().value().type, EventType::kAtomic);
  uint64_t old = 0;
  add.op = Op::kFetchAtomic;
  add.result_memory = t.a.everything;
  add.result = reinterpret_cast<uintptr_t>(&old);
  t.a.send(add);
  EXPECT_EQ(t.a.ack().value().type, EventType::kReply);
  EXPECT_EQ(old, 42u);
  EXPECT_EQ(t.words[1], 44u);
  EXPECT_EQ(t.b.next().value().type, EventType::kFetchAtomic);
}

TEST(Amo, TheOperandMayBeInMemory) {
  Target t;
  const uint64_t operand = 5;
  Transfer add = t.amo(AmoOp::kSum, operand);
  add.inline_bytes = nullptr;
  add.memory = t.a.everything;
  add.local = reinterpret_cast<uintptr_t>(&operand);
  EXPECT_EQ(t.a.result_of(add), Rc::kOk);
  EXPECT_EQ(t.words[0], 5u);
  add.memory = {};
  EXPECT_EQ(t.a.result_of(add), Rc::kNoTranslation);
  add.length = 7;
  EXPECT_EQ(t.a.result_of(add), Rc::kAmoLength);
}

// The operand is compared with the target's value.
TEST(Amo, ComparesTheOperandWithTheTarget) {
  const struct {
    Cswap how;
    bool less, equal, more;  // of the operand
  } rows[] = {{Cswap::kEq, false, true, false}, {Cswap::kNe, true, false, true},
              {Cswap::kLe, true, true, false},  {Cswap::kLt, true, false, false},
              {Cswap::kGe, false, true, true},  {Cswap::kGt, false, false, true}};
  Target t;
  for (const auto &row : rows) {
    for (const auto &[compare, swaps] :
         {std::pair(9u, row.less), std::pair(10u, row.equal), std::pair(11u, row.more)}) {
      t.words[0] = 10;
      Transfer amo = t.amo(AmoOp::kCswap, 77);
      amo.cswap = row.how;
      amo.operand2[0] = compare;
      EXPECT_EQ(t.a.result_of(amo), Rc::kOk);
      EXPECT_EQ(t.words[0], swaps ? 77u : 10u) << int(row.how) << " " << compare;
    }
  }
}

TEST(Amo, TheMaskChoosesTheBitsThatAreSwapped) {
  Target t;
  t.words[0] = 0xffff;
  Transfer amo = t.amo(AmoOp::kAxor, 0x1234);
  amo.operand2[0] = 0x00ff;
  EXPECT_EQ(t.a.result_of(amo), Rc::kOk);
  EXPECT_EQ(t.words[0], 0xff34u);
}

TEST(Amo, WhatDoesNotGoTogetherIsRefused) {
  Target t;
  EXPECT_EQ(t.a.result_of(t.amo(AmoOp::kBor, 1, AmoType::kFloat)), Rc::kAmoInvalOp);
  EXPECT_EQ(t.a.result_of(t.amo(AmoOp::kMin, 1, AmoType::kDoubleComplex)), Rc::kAmoInvalOp);
  EXPECT_EQ(t.a.result_of(t.amo(AmoOp{3}, 1)), Rc::kAmoInvalOp);
  EXPECT_EQ(t.a.result_of(t.amo(AmoOp{200}, 1)), Rc::kAmoInvalOp);
  EXPECT_EQ(t.a.result_of(t.amo(AmoOp::kSum, 1, AmoType{99})), Rc::kAmoInvalOp);
  Transfer amo = t.amo(AmoOp::kCswap, 1);
  amo.cswap = Cswap{6};
  EXPECT_EQ(t.a.result_of(amo), Rc::kAmoInvalOp);
  amo = t.amo(AmoOp::kSum, 1);
  amo.remote_offset = 4;
  EXPECT_EQ(t.a.result_of(amo), Rc::kAmoAlign);
  amo.remote_offset = 32;
  EXPECT_EQ(t.a.result_of(amo), Rc::kAddrOutOfRange);
  EXPECT_EQ(t.words, (std::array<uint64_t, 4>{}));
}

TEST(Amo, TheHostAddsOnlyWholeWords) {
  Target t;
  Transfer amo = t.amo(AmoOp::kSum, 1, AmoType::kUint32);
  amo.pcie = true;
  EXPECT_EQ(t.a.result_of(amo), Rc::kOk);
  EXPECT_EQ(t.words[0], 1u);
  amo.amo_op = AmoOp::kBor;
  EXPECT_EQ(t.a.result_of(amo), Rc::kAmoInvalOp);
  amo = t.amo(AmoOp::kSum, 1, AmoType::kUint16);
  amo.pcie = true;
  EXPECT_EQ(t.a.result_of(amo), Rc::kAmoInvalOp);
}

TEST(Amo, EachTypeHasItsSize) {
  const std::pair<AmoType, size_t> sizes[] = {
      {AmoType::kInt8, 1},    {AmoType::kUint8, 1},        {AmoType::kInt16, 2},
      {AmoType::kUint16, 2},  {AmoType::kInt32, 4},        {AmoType::kUint32, 4},
      {AmoType::kInt64, 8},   {AmoType::kUint64, 8},       {AmoType::kFloat, 4},
      {AmoType::kDouble, 8},  {AmoType::kFloatComplex, 8}, {AmoType::kDoubleComplex, 16},
      {AmoType::kUint128, 16}};
  for (const auto &[type, size] : sizes) EXPECT_EQ(amo_size(type), size) << int(type);
  EXPECT_EQ(amo_size(AmoType{13}), 0u);
}

}  // namespace
}  // namespace weft::cxi
