// SPDX-License-Identifier: BSD-2-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/match/match.h"
#include "core/match/test_offer.h"

namespace weft {
namespace {

using namespace match_test;
using ::testing::HasSubstr;

struct MrCase {
  const char *what;
  uint32_t version;
  int offered;
  uint64_t offered_caps;  // 0: as the usual offer
  uint64_t caps;          // of the hints
  uint64_t mode;          // of the hints
  int wanted;
  int returned;  // -1: rejected
};

class MrMode : public ::testing::TestWithParam<MrCase> {};

constexpr int kBits = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

TEST_P(MrMode, IsNegotiated) {
  const MrCase &c = GetParam();
  const InfoPtr wanted = empty(), offered = offer();
  offered->mode = 0;
  offered->domain_attr->mr_mode = c.offered;
  if (c.offered_caps != 0) offered->caps = c.offered_caps;
  wanted->caps = c.caps;
  wanted->mode = c.mode;
  wanted->domain_attr->mr_mode = c.wanted;
  const Match match = ask(wanted, offered, c.version);
  ASSERT_EQ(match.accepted, c.returned >= 0) << c.what << ": " << match.reason();
  if (!match.accepted) return;
  ASSERT_TRUE(narrow_info(c.version, 0, wanted.get(), *offered));
  EXPECT_EQ(offered->domain_attr->mr_mode, c.returned) << c.what;
}

INSTANTIATE_TEST_SUITE_P(
    All, MrMode,
    ::testing::Values(
        MrCase{"bits that are needed stay, others go", kNow, kBits, 0, 0, 0,
               kBits | FI_MR_LOCAL | FI_MR_RAW, kBits},
        MrCase{"a bit is missing", kNow, kBits | FI_MR_LOCAL, 0, 0, 0, kBits, -1},
        MrCase{"nothing needed", kNow, 0, 0, 0, 0, kBits, 0},
        MrCase{"0 means scalable", kNow, 0, 0, 0, 0, 0, 0},
        MrCase{"0 means scalable, which is not offered", kNow, kBits, 0, 0, 0, 0, -1},
        MrCase{"no peer reaches memory", kNow, kBits, 0, FI_MSG, 0, 0, 0},
        MrCase{"no peer reaches memory, the NIC does", kNow, kBits | FI_MR_LOCAL, 0, FI_MSG, 0,
               FI_MR_LOCAL | FI_MR_ALLOCATED, FI_MR_LOCAL | FI_MR_ALLOCATED},
        MrCase{"initiator only", kNow, kBits, 0, FI_RMA | FI_WRITE, 0, 0, 0},
        MrCase{"target", kNow, kBits, 0, FI_RMA | FI_REMOTE_WRITE, 0, 0, -1},
        MrCase{"events not asked for", kNow, FI_MR_RMA_EVENT, 0, FI_RMA, 0, 0, 0},
        MrCase{"events asked for", kNow, FI_MR_RMA_EVENT, 0, FI_RMA | FI_RMA_EVENT, 0, 0, -1},
        MrCase{"no device memory", kNow, FI_MR_HMEM, 0, FI_MSG, 0, 0, 0},
        MrCase{"device memory", kNow, FI_MR_HMEM, FI_MSG | FI_HMEM, FI_MSG | FI_HMEM, 0, 0, -1},
        MrCase{"no collectives", kNow, FI_MR_COLLECTIVE, 0, FI_MSG, 0, 0, 0},
        MrCase{"basic where its bits are needed", kNow, kBits, 0, 0, 0, FI_MR_BASIC, FI_MR_BASIC},
        MrCase{"basic where it can be done", kNow, FI_MR_BASIC | FI_MR_SCALABLE, 0, 0, 0,
               FI_MR_BASIC, FI_MR_BASIC},
        MrCase{"basic where keys are chosen freely", kNow, 0, 0, 0, 0, FI_MR_BASIC, -1},
        MrCase{"basic does not cover more bits", kNow, kBits | FI_MR_ENDPOINT, 0, 0, 0, FI_MR_BASIC,
               -1},
        MrCase{"basic with local buffers", kNow, kBits | FI_MR_LOCAL, 0, 0, FI_LOCAL_MR,
               FI_MR_BASIC, FI_MR_BASIC},
        MrCase{"basic, local buffers not agreed to", kNow, kBits | FI_MR_LOCAL, 0, 0, 0,
               FI_MR_BASIC, -1},
        MrCase{"scalable", kNow, 0, 0, 0, 0, FI_MR_SCALABLE, FI_MR_SCALABLE},
        MrCase{"scalable is not offered", kNow, kBits, 0, 0, 0, FI_MR_SCALABLE, -1},
        MrCase{"an offer of basic alone needs its bits", kNow, FI_MR_BASIC, 0, 0, 0, 0, -1},
        MrCase{"an offer of basic alone, to bits", kNow, FI_MR_BASIC, 0, 0, 0, kBits, kBits},
        MrCase{"old forms stand alone", kNow, 0, 0, 0, 0, FI_MR_BASIC | FI_MR_LOCAL, -1},
        MrCase{"both old forms", kNow, 0, 0, 0, 0, FI_MR_BASIC | FI_MR_SCALABLE, -1},
        MrCase{"old: either", kOld, 0, 0, 0, 0, FI_MR_UNSPEC, FI_MR_SCALABLE},
        MrCase{"old: either, basic is what it knows", kOld, FI_MR_BASIC | FI_MR_SCALABLE, 0, 0, 0,
               FI_MR_UNSPEC, FI_MR_BASIC},
        MrCase{"old: either, bits become basic", kOld, kBits, 0, 0, 0, FI_MR_UNSPEC, FI_MR_BASIC},
        MrCase{"old: bits are unknown", kOld, kBits, 0, 0, 0, kBits, -1},
        MrCase{"old: basic", kOld, kBits, 0, 0, 0, FI_MR_BASIC, FI_MR_BASIC},
        MrCase{"old: scalable is not offered", kOld, kBits, 0, 0, 0, FI_MR_SCALABLE, -1},
        MrCase{"old: needs more than the old forms say", kOld, FI_MR_ENDPOINT, 0, 0, 0,
               FI_MR_UNSPEC, -1},
        MrCase{"old: local buffers", kOld, kBits | FI_MR_LOCAL, 0, 0, FI_LOCAL_MR, FI_MR_UNSPEC,
               FI_MR_BASIC},
        MrCase{"old: local buffers not agreed to", kOld, kBits | FI_MR_LOCAL, 0, 0, 0, FI_MR_UNSPEC,
               -1}),
    [](const auto &info) { return "n" + std::to_string(info.index); });

TEST(MrModeText, NamesTheMissingBit) {
  const InfoPtr wanted = hints();
  wanted->domain_attr->mr_mode = kBits;
  EXPECT_EQ(ask(wanted, offer()).reason(),
            "hints.domain_attr.mr_mode lacks FI_MR_LOCAL, which is required here");
}

TEST(MrModeText, WithoutHintsTheRequirementsAreReturned) {
  const InfoPtr offered = offer();
  ASSERT_TRUE(narrow_info(kNow, 0, nullptr, *offered));
  EXPECT_EQ(offered->domain_attr->mr_mode, kBits | FI_MR_LOCAL);
  const InfoPtr old = offer();
  ASSERT_TRUE(match_info(kOld, 0, nullptr, *old).accepted);
  ASSERT_TRUE(narrow_info(kOld, 0, nullptr, *old));
  EXPECT_EQ(old->domain_attr->mr_mode, FI_MR_BASIC);
  EXPECT_EQ(old->mode, FI_CONTEXT | FI_LOCAL_MR);
  old->domain_attr->mr_mode = FI_MR_RAW;
  EXPECT_THAT(match_info(kOld, 0, nullptr, *old).reason(), HasSubstr("FI_MR_RAW required here"));
}

}  // namespace
}  // namespace weft
