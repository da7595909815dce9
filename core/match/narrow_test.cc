// SPDX-License-Identifier: BSD-2-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "core/match/match.h"
#include "core/match/test_offer.h"

namespace weft {
namespace {

using namespace match_test;

InfoPtr narrowed(const InfoPtr &wanted, uint32_t version = kNow) {
  InfoPtr offered = offer();
  EXPECT_EQ(match_info(version, 0, wanted.get(), *offered).reason(), "");
  EXPECT_TRUE(narrow_info(version, 0, wanted.get(), *offered));
  return offered;
}

TEST(Narrow, WithoutHintsCapsAreAllThatIsOffered) {
  const InfoPtr info = narrowed(hints());
  EXPECT_EQ(info->caps, offer()->caps);
  EXPECT_EQ(info->tx_attr->caps,
            FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE | FI_FENCE);
  EXPECT_EQ(info->rx_attr->caps, FI_MSG | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ |
                                     FI_REMOTE_WRITE | FI_MULTI_RECV | FI_SOURCE | FI_RMA_EVENT);
}

struct CapsCase {
  uint64_t wanted, tx_wanted, rx_wanted, caps, tx, rx;
};
class NarrowCaps : public ::testing::TestWithParam<CapsCase> {};

TEST_P(NarrowCaps, AreTheWantedAndTheFreeOnes) {
  const CapsCase &c = GetParam();
  const InfoPtr wanted = hints();
  wanted->caps = c.wanted;
  wanted->tx_attr->caps = c.tx_wanted;
  wanted->rx_attr->caps = c.rx_wanted;
  const InfoPtr info = narrowed(wanted);
  EXPECT_EQ(info->caps, c.caps | FI_LOCAL_COMM | FI_REMOTE_COMM);
  EXPECT_EQ(info->tx_attr->caps, c.tx);
  EXPECT_EQ(info->rx_attr->caps, c.rx);
}

INSTANTIATE_TEST_SUITE_P(
    All, NarrowCaps,
    ::testing::Values(
        CapsCase{FI_MSG, 0, 0, FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV, FI_MSG | FI_SEND,
                 FI_MSG | FI_RECV | FI_MULTI_RECV},
        CapsCase{FI_MSG | FI_SEND, 0, 0, FI_MSG | FI_SEND | FI_MULTI_RECV, FI_MSG | FI_SEND,
                 FI_MULTI_RECV},
        CapsCase{FI_RMA, 0, 0, FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
                 FI_RMA | FI_READ | FI_WRITE, FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE},
        CapsCase{FI_MSG | FI_RMA | FI_WRITE, 0, 0,
                 FI_MSG | FI_RMA | FI_WRITE | FI_SEND | FI_RECV | FI_MULTI_RECV,
                 FI_MSG | FI_RMA | FI_SEND | FI_WRITE, FI_MSG | FI_RECV | FI_MULTI_RECV},
        CapsCase{FI_MSG | FI_SOURCE, 0, 0, FI_MSG | FI_SOURCE | FI_SEND | FI_RECV | FI_MULTI_RECV,
                 FI_MSG | FI_SEND, FI_MSG | FI_RECV | FI_MULTI_RECV | FI_SOURCE},
        CapsCase{FI_MSG | FI_RMA, FI_MSG, FI_MSG | FI_RECV,
                 FI_MSG | FI_RMA | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE |
                     FI_MULTI_RECV,
                 0, FI_MSG | FI_RECV | FI_MULTI_RECV},
        CapsCase{FI_MSG | FI_SEND | FI_RECV, FI_MSG | FI_SEND, 0,
                 FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV, FI_MSG | FI_SEND,
                 FI_MSG | FI_RECV | FI_MULTI_RECV}),
    [](const auto &info) { return "n" + std::to_string(info.index); });

TEST(Narrow, CapsOfADomainIncludeThoseOfItsEndpoints) {
  const auto domain_caps = [](uint64_t caps, uint64_t domain) {
    const InfoPtr wanted = hints();
    wanted->caps = caps;
    wanted->domain_attr->caps = domain;
    const InfoPtr offered = offer();
    offered->caps |= FI_AV_USER_ID;
    offered->domain_attr->caps |= FI_AV_USER_ID;
    EXPECT_EQ(match_info(kNow, 0, wanted.get(), *offered).reason(), "");
    EXPECT_TRUE(narrow_info(kNow, 0, wanted.get(), *offered));
    return offered->domain_attr->caps;
  };
  constexpr uint64_t kFree = FI_LOCAL_COMM | FI_REMOTE_COMM;
  EXPECT_EQ(domain_caps(0, 0), kFree | FI_AV_USER_ID) << "nothing is asked: all that is offered";
  EXPECT_EQ(domain_caps(FI_MSG, 0), kFree);
  EXPECT_EQ(domain_caps(FI_MSG, FI_AV_USER_ID), kFree | FI_AV_USER_ID);
  EXPECT_EQ(domain_caps(FI_MSG | FI_AV_USER_ID, 0), kFree | FI_AV_USER_ID);
  EXPECT_EQ(domain_caps(0, FI_LOCAL_COMM), kFree);
}

TEST(Narrow, DefaultsAndHints) {
  const InfoPtr plain = narrowed(hints());
  EXPECT_EQ(plain->mode, FI_CONTEXT);
  EXPECT_EQ(plain->tx_attr->op_flags, 0u) << "possible defaults are not defaults";
  EXPECT_EQ(plain->tx_attr->size, 1024u);
  EXPECT_EQ(plain->tx_attr->inject_size, 128u);
  EXPECT_EQ(plain->tx_attr->comp_order, FI_ORDER_STRICT);
  EXPECT_EQ(plain->ep_attr->msg_prefix_size, 0u) << "only with FI_MSG_PREFIX";
  EXPECT_EQ(plain->ep_attr->auth_key_size, 0u);
  EXPECT_EQ(plain->domain_attr->auth_key_size, 0u);
  EXPECT_EQ(plain->domain_attr->threading, FI_THREAD_COMPLETION);
  EXPECT_EQ(plain->domain_attr->data_progress, FI_PROGRESS_MANUAL);
  EXPECT_EQ(plain->domain_attr->control_progress, FI_PROGRESS_AUTO);
  EXPECT_EQ(plain->fabric_attr->api_version, kNow);

  const InfoPtr wanted = hints();
  wanted->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  wanted->tx_attr->size = 64;
  wanted->tx_attr->inject_size = 16;
  wanted->tx_attr->msg_order = FI_ORDER_SAS;
  wanted->rx_attr->op_flags = FI_MULTI_RECV;
  wanted->rx_attr->size = 32;
  wanted->ep_attr->tx_ctx_cnt = 2;
  wanted->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  wanted->domain_attr->threading = FI_THREAD_DOMAIN;
  wanted->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  const InfoPtr info = narrowed(wanted);
  EXPECT_EQ(info->tx_attr->op_flags, FI_DELIVERY_COMPLETE);
  EXPECT_EQ(info->tx_attr->size, 64u);
  EXPECT_EQ(info->tx_attr->inject_size, 16u);
  EXPECT_EQ(info->tx_attr->msg_order, FI_ORDER_SAS);
  EXPECT_EQ(info->rx_attr->op_flags, FI_MULTI_RECV);
  EXPECT_EQ(info->rx_attr->size, 32u);
  EXPECT_EQ(info->ep_attr->tx_ctx_cnt, 2u);
  EXPECT_EQ(info->ep_attr->rx_ctx_cnt, FI_SHARED_CONTEXT);
  EXPECT_EQ(info->domain_attr->threading, FI_THREAD_DOMAIN);
  EXPECT_EQ(info->domain_attr->control_progress, FI_PROGRESS_MANUAL);
}

TEST(Narrow, KeysAreCopiedSinceApi15) {
  const InfoPtr wanted = hints();
  wanted->ep_attr->auth_key_size = wanted->domain_attr->auth_key_size = 3;
  for (uint8_t **key : {&wanted->ep_attr->auth_key, &wanted->domain_attr->auth_key}) {
    *key = static_cast<uint8_t *>(std::malloc(3));
    std::memcpy(*key, "abc", 3);
  }
  const InfoPtr info = narrowed(wanted);
  ASSERT_EQ(info->ep_attr->auth_key_size, 3u);
  EXPECT_EQ(std::memcmp(info->ep_attr->auth_key, "abc", 3), 0);
  EXPECT_NE(info->ep_attr->auth_key, wanted->ep_attr->auth_key);
  ASSERT_EQ(info->domain_attr->auth_key_size, 3u);

  wanted->ep_attr->auth_key_size = wanted->domain_attr->auth_key_size = FI_AV_AUTH_KEY;
  const InfoPtr of_vectors = narrowed(wanted);
  EXPECT_EQ(of_vectors->ep_attr->auth_key_size, FI_AV_AUTH_KEY);
  EXPECT_EQ(of_vectors->domain_attr->auth_key_size, FI_AV_AUTH_KEY);
  EXPECT_EQ(of_vectors->ep_attr->auth_key, nullptr);

  wanted->domain_attr->mr_mode = FI_MR_UNSPEC;
  wanted->mode |= FI_LOCAL_MR;
  wanted->ep_attr->auth_key_size = 900;  // meant nothing then
  const InfoPtr old = narrowed(wanted, kOld);
  EXPECT_EQ(old->ep_attr->auth_key_size, 0u);
  EXPECT_EQ(old->ep_attr->auth_key, nullptr);
}

// An offer may leave out its limits. What was asked for was not refused, so the answer has it.
TEST(Narrow, LimitsThatTheOfferLeavesOutAreThoseOfTheHints) {
  const InfoPtr wanted = hints();
  fi_domain_attr &want = *wanted->domain_attr;
  want.cq_cnt = want.ep_cnt = want.mr_cnt = 7;
  want.max_cntr_value = want.max_err_cntr_value = 9;
  const InfoPtr info = offer();
  fi_domain_attr &have = *info->domain_attr;
  have.cq_cnt = have.ep_cnt = have.mr_cnt = 0;
  have.max_cntr_value = have.max_err_cntr_value = 0;
  have.cntr_cnt = 1;
  ASSERT_TRUE(narrow_info(kNow, 0, wanted.get(), *info));
  for (const size_t limit : {have.cq_cnt, have.ep_cnt, have.mr_cnt}) EXPECT_EQ(limit, 7u);
  EXPECT_EQ(have.max_cntr_value, 9u);
  EXPECT_EQ(have.max_err_cntr_value, 9u);
}

TEST(Narrow, KeepsThePassiveEndpoint) {
  struct fid pep {};
  pep.fclass = FI_CLASS_PEP;
  const InfoPtr wanted = hints();
  wanted->handle = &pep;
  EXPECT_EQ(narrowed(wanted)->handle, &pep);
}

}  // namespace
}  // namespace weft
