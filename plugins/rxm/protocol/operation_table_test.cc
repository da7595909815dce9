// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/operation_table.h"

#include <gtest/gtest.h>

namespace weft::rxm {
namespace {

TEST(OperationTable, AnIdLeadsToItsOperationAlone) {
  OperationTable operations(2);
  EXPECT_EQ(operations.find(0), nullptr) << "there is none yet";
  TxOp *const one = operations.take(), *const two = operations.take();
  ASSERT_NE(one, nullptr);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(operations.take(), nullptr);
  const uint64_t id = OperationTable::id_of(*one);
  EXPECT_EQ(operations.find(id), one);
  EXPECT_EQ(operations.find(OperationTable::id_of(*two)), two);
  EXPECT_EQ(operations.find(id + 100), nullptr);
  EXPECT_EQ(operations.find(id ^ UINT64_C(1) << 40), nullptr) << "of another use of the place";
  operations.give(*one);
  ASSERT_EQ(operations.take(), one);
  EXPECT_EQ(operations.find(id), nullptr) << "an answer that comes too late";
  EXPECT_EQ(operations.in_use(), 2u);
  EXPECT_EQ(operations.all().size(), 2u);
}

TEST(OperationTable, ATakenOperationHasNothingOfItsLastUse) {
  OperationTable operations(1);
  TxOp *op = operations.take();
  ASSERT_NE(op, nullptr);
  op->fence = op->sent = op->answer = op->writing = op->inject = op->counted = true;
  op->report = false;
  op->until = Tell::kMatched;
  op->err = op->tokens = 1;
  op->offset = op->flags = 1;
  op->vector_count = op->result_count = op->exposed = op->enlisted = 1;
  op->bounce = std::make_unique<uint8_t[]>(1);
  operations.give(*op);
  EXPECT_EQ(op->bounce, nullptr) << "memory is given back at once";
  op = operations.take();
  EXPECT_FALSE(op->fence || op->sent || op->answer || op->writing || op->inject || op->counted);
  EXPECT_TRUE(op->report);
  EXPECT_EQ(op->until, Tell::kNothing);
  EXPECT_EQ(op->err, 0);
  EXPECT_EQ(op->tokens, 0u);
  EXPECT_EQ(op->offset + op->flags, 0u);
  EXPECT_EQ(op->vector_count + op->result_count + op->exposed + op->enlisted, 0);
}

TEST(OpQueue, KeepsTheOrderOfTheCalls) {
  TxOp one, two, three;
  OpQueue queue;
  EXPECT_TRUE(queue.empty());
  for (TxOp *op : {&one, &two}) queue.push(*op);
  EXPECT_EQ(&queue.pop(), &one);
  EXPECT_FALSE(one.queued);
  EXPECT_TRUE(two.queued);
  queue.push(three);
  OpQueue taken = std::exchange(queue, {});
  EXPECT_TRUE(queue.empty());
  queue.push(one);
  EXPECT_EQ(&taken.pop(), &two);
  EXPECT_EQ(&taken.pop(), &three);
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(queue.first(), &one);
}

}  // namespace
}  // namespace weft::rxm
