// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/atomics.h"

#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>

#include <cstring>

#include "plugins/rxm/protocol/operation_table.h"
#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

struct AtomicsTest : ::testing::Test {
  // Of the application: adds `operand` to memory[0] at the peer.
  TxOp &prepare(sdk::AtomicKind kind, uint64_t operand) {
    TxOp &op = *table.take();
    const fi_ioc in{&operand, 1};
    fi_ioc out{&result, 1};
    const fi_rma_ioc target{reinterpret_cast<uint64_t>(memory), 1, NotingCarrier::kKey};
    EXPECT_TRUE(atomics.prepare(op,
                                {.kind = kind,
                                 .datatype = FI_UINT64,
                                 .op = FI_SUM,
                                 .operands = &in,
                                 .operand_count = 1,
                                 .results = &out,
                                 .result_count = 1,
                                 .rma = &target,
                                 .rma_count = 1,
                                 .elements = 1},
                                sizeof operand));
    return op;
  }
  // What the peer makes of the packet.
  Packet parsed(const TxOp &op) {
    bytes.assign(reinterpret_cast<const uint8_t *>(&op.header),
                 reinterpret_cast<const uint8_t *>(&op.header) + kHeaderSize + op.header.size);
    const Parsed p = parse(bytes);
    EXPECT_EQ(p.reject, Reject::kNone) << text_of(p.reject);
    return p.packet;
  }
  Packet answer(const Packet &request) {
    Control control;
    control.header = header_of(PacketType::kAtomicResponse, 0);
    control.header.message = request.message;
    control.length = kHeaderSize;
    atomics.execute(request, control);
    const auto *at = reinterpret_cast<const uint8_t *>(&control.header);
    answered.assign(at, at + control.length);
    answered.insert(answered.end(), control.more.begin(), control.more.end());
    const Parsed p = parse(answered);
    EXPECT_EQ(p.reject, Reject::kNone) << text_of(p.reject);
    EXPECT_EQ(p.packet.message, request.message);
    return p.packet;
  }
  uint64_t memory[2] = {40, 1}, result = 0;
  std::vector<uint8_t> bytes, answered;
  PartsWorld world;
  OperationTable table{8};
  Atomics atomics{world.carrier, world.upper, world.settings};
};

TEST_F(AtomicsTest, AreExecutedAndAnswered) {
  for (const auto kind : {sdk::AtomicKind::kWrite, sdk::AtomicKind::kFetch}) {
    memory[0] = 40;
    const TxOp &op = prepare(kind, 2);
    const Packet response = answer(parsed(op));
    EXPECT_EQ(memory[0], 42u);
    EXPECT_EQ(response.status, 0);
    EXPECT_EQ(response.payload.size(), kind == sdk::AtomicKind::kFetch ? 8u : 0u);
    EXPECT_EQ(atomics.take_result(op, response), 0);
    EXPECT_EQ(result, kind == sdk::AtomicKind::kFetch ? 40u : 0u);
  }
  EXPECT_EQ(world.upper.atomics, 2u);
}

TEST_F(AtomicsTest, MemoryThatIsNotThePeersStaysAsItIs) {
  const TxOp &op = prepare(sdk::AtomicKind::kFetch, 2);
  Packet p = parsed(op);
  p.count = 2;  // the second one is of another key
  p.vectors[1] = {reinterpret_cast<uint64_t>(memory + 1), 1, NotingCarrier::kKey + 1};
  const Packet response = answer(p);
  EXPECT_EQ(response.status, -FI_EACCES);
  EXPECT_EQ(memory[0], 40u) << "all or nothing";
  EXPECT_EQ(world.upper.atomics, 0u);
  EXPECT_EQ(atomics.take_result(op, response), FI_EACCES);
}

TEST_F(AtomicsTest, WhatIsNotExecuted) {
  const TxOp &op = prepare(sdk::AtomicKind::kFetch, 2);
  Packet p = parsed(op);
  p.operation = FI_CSWAP;  // needs something to compare with
  EXPECT_EQ(answer(p).status, -FI_EOPNOTSUPP);
  world.settings.eager_limit = kAtomicStatusSize + 7;
  EXPECT_EQ(answer(parsed(op)).status, -FI_EMSGSIZE) << "the result needs a packet";
  EXPECT_EQ(memory[0], 40u);
}

TEST_F(AtomicsTest, AMediumThatFailsIsTold) {
  world.upper.persists = false;
  const Packet response = answer(parsed(prepare(sdk::AtomicKind::kFetch, 2)));
  EXPECT_EQ(response.status, -FI_EIO);
  EXPECT_TRUE(response.payload.empty());
}

TEST_F(AtomicsTest, AResultOfAnotherLength) {
  const TxOp &fetch = prepare(sdk::AtomicKind::kFetch, 2),
             &add = prepare(sdk::AtomicKind::kWrite, 2);
  uint8_t some[16] = {};
  Packet p{};
  p.type = PacketType::kAtomicResponse;
  for (const size_t n : {size_t{0}, size_t{7}, size_t{16}}) {
    p.payload = {some, n};
    EXPECT_EQ(atomics.take_result(fetch, p), Atomics::kWrongLength) << n;
    EXPECT_EQ(atomics.take_result(add, p), n == 0 ? 0 : Atomics::kWrongLength) << n;
  }
  for (const int32_t status : {5, INT32_MIN}) {  // not of OFI
    p.status = status;
    EXPECT_EQ(atomics.take_result(fetch, p), FI_EIO);
  }
}

// Operands that do not fit into the operation have memory of their own.
TEST_F(AtomicsTest, LongOperands) {
  uint64_t many[40], target[40] = {};
  for (size_t i = 0; i < 40; ++i) many[i] = i;
  TxOp &op = *table.take();
  const fi_ioc in{many, 40};
  const fi_rma_ioc to{reinterpret_cast<uint64_t>(target), 40, NotingCarrier::kKey};
  EXPECT_TRUE(atomics.prepare(op,
                              {.kind = sdk::AtomicKind::kWrite,
                               .datatype = FI_UINT64,
                               .op = FI_SUM,
                               .operands = &in,
                               .operand_count = 1,
                               .rma = &to,
                               .rma_count = 1,
                               .elements = 40},
                              sizeof many[0]));
  ASSERT_NE(op.bounce, nullptr);
  EXPECT_EQ(op.header.size, kAtomicVectorsSize + sizeof many);
  EXPECT_EQ(std::memcmp(op.bounce.get(), many, sizeof many), 0);
}

}  // namespace
}  // namespace weft::rxm
