// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/transfers/order.h"

#include <gtest/gtest.h>

namespace weft::sdk {
namespace {

using enum OrderKind;

constexpr OrderRules kNothing{};

TEST(OrderRules, AreThoseOfTheManPage) {
  const OrderRules raw = order_rules(FI_ORDER_RAW);
  EXPECT_EQ(raw[size_t(kRead)], kinds(kWrite, kAtomic));
  EXPECT_EQ(raw[size_t(kAtomic)], kinds(kWrite, kAtomic));
  EXPECT_EQ(raw[size_t(kWrite)], 0);
  EXPECT_EQ(raw[size_t(kSend)], 0);
  const OrderRules rma = order_rules(FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW);
  EXPECT_EQ(rma[size_t(kRead)], kinds(kWrite));
  EXPECT_EQ(rma[size_t(kWrite)], kinds(kWrite));
  EXPECT_EQ(rma[size_t(kAtomic)], 0);
  const OrderRules behind = order_rules(FI_ORDER_RAS | FI_ORDER_SAW);
  EXPECT_EQ(behind[size_t(kRead)], kinds(kSend));
  EXPECT_EQ(behind[size_t(kSend)], kinds(kWrite, kAtomic));
}

TEST(OrderKeeper, AsksForAFenceOnlyWhereOneIsNeeded) {
  OrderKeeper keeper(FI_ORDER_RAW | FI_ORDER_SAS, {kinds(kSend), 0, 0, 0});
  EXPECT_TRUE(keeper.needed());
  EXPECT_FALSE(keeper.awaits_messages());
  for (const uint32_t peer : {0u, 7u}) {
    keeper.make_room(peer);
    EXPECT_FALSE(keeper.must_wait(peer, kRead)) << "the first";
    keeper.started(peer, kRead, false);
    EXPECT_FALSE(keeper.must_wait(peer, kRead));
    keeper.started(peer, kWrite, false);
    EXPECT_FALSE(keeper.must_wait(peer, kWrite));
    EXPECT_FALSE(keeper.must_wait(peer, kSend));
    EXPECT_TRUE(keeper.must_wait(peer, kRead));
    keeper.started(peer, kRead, true);
    EXPECT_FALSE(keeper.must_wait(peer, kRead)) << "the fence was behind all of them";
  }
  EXPECT_FALSE(keeper.must_wait(100, kRead)) << "a peer without operations";
}

TEST(OrderKeeper, IsNotNeededWithoutAnOrderToKeep) {
  OrderKeeper none(FI_ORDER_NONE, kNothing), native(FI_ORDER_SAS, {kinds(kSend), 0, 0, 0});
  EXPECT_FALSE(none.needed());
  EXPECT_FALSE(native.needed());
  native.make_room(1'000'000);
  native.started(1'000'000, kSend, false);
  EXPECT_FALSE(native.must_wait(1'000'000, kSend));
  EXPECT_TRUE(OrderKeeper(FI_ORDER_WAS, kNothing).awaits_messages());
}

}  // namespace
}  // namespace weft::sdk
