// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/stack_units.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

UnitInfo unit_of(const char *name, uint32_t kind, const char *ofi_name = "", int32_t rank = 0) {
  UnitInfo info;
  info.name = name;
  info.ofi_name = ofi_name;
  info.kind = kind;
  info.rank = rank;
  return info;
}

TEST(StackUnits, NamesAndRank) {
  const UnitInfo tcp = unit_of("tcp", WEFT_KIND_PROVIDER, "", 500),
                 shm = unit_of("shm", WEFT_KIND_PROVIDER, "", 700),
                 rxm = unit_of("rxm", WEFT_KIND_LAYER, "ofi_rxm", 900),
                 link = unit_of("link", WEFT_KIND_LAYER);
  EXPECT_EQ(stack_name({&tcp}), "tcp");
  EXPECT_EQ(stack_name({&tcp, &rxm}), "tcp;ofi_rxm");
  EXPECT_EQ(stack_own_name({&tcp, &rxm}), "tcp;rxm");
  const StackUnits tree = {&shm, &tcp, &rxm, {&link, 2}};
  EXPECT_EQ(stack_name(tree), "(shm+tcp;ofi_rxm);link");
  EXPECT_EQ(stack_own_name(tree), "(shm+tcp;rxm);link");
  EXPECT_FALSE(is_chain(tree));
  EXPECT_TRUE(is_chain({&tcp, &rxm, &link}));
  EXPECT_EQ(rank_of({&tcp, &rxm}), 500) << "that of the provider";
  EXPECT_EQ(rank_of({&tcp, &shm, {&link, 2}}), 700) << "that of the better provider";
}

TEST(StackUnits, OfNoStackHaveANameTooForMessages) {
  const UnitInfo tcp = unit_of("tcp", WEFT_KIND_PROVIDER), udp = unit_of("udp", WEFT_KIND_PROVIDER),
                 rxm = unit_of("rxm", WEFT_KIND_LAYER, "ofi_rxm");
  EXPECT_EQ(stack_name({}), "");
  EXPECT_EQ(stack_name({&rxm}), "ofi_rxm");
  EXPECT_EQ(stack_name({&tcp, &udp}), "tcp;udp");
  EXPECT_EQ(stack_name({&tcp, {&rxm, 5}}), "tcp;ofi_rxm");
  EXPECT_EQ(rank_of({}), 0);
  EXPECT_EQ(rank_of({&rxm}), 0);
}

}  // namespace
}  // namespace weft
