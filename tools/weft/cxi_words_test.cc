// SPDX-License-Identifier: BSD-2-Clause
#include <gmock/gmock.h>

#include "tools/weft/cxi.h"

namespace weft::cli {
namespace {

using ::testing::HasSubstr;

TEST(CxiWords, AServiceWithoutPartsIsForAll) {
  const weft_cxi_service service{};
  EXPECT_EQ(members_text(service), "everybody");
  EXPECT_EQ(vnis_text(service), "all");
  EXPECT_EQ(classes_text(service), "all");
}

TEST(CxiWords, PartsAreReadAndWritten) {
  weft_cxi_service service{};
  EXPECT_TRUE(add_vnis(service, "10,100-200"));
  EXPECT_TRUE(add_vnis(service, "65535"));
  EXPECT_EQ(vnis_text(service), "10,100-200,65535");
  EXPECT_TRUE(add_class(service, "best_effort"));
  EXPECT_TRUE(add_class(service, "bulk_data"));
  EXPECT_EQ(classes_text(service), "bulk_data,best_effort");
  EXPECT_TRUE(add_member(service, "root", false));
  EXPECT_TRUE(add_member(service, "12", true));
  EXPECT_EQ(members_text(service), "user 0, group 12");
}

TEST(CxiWords, WhatCannotBeReadIsRefused) {
  for (const char *const wrong :
       {"", "0", "65536", "1-", "-1", "5-4", "1-2-3", "x", "1,,2", " 1x"}) {
    weft_cxi_service service{};
    const auto read = add_vnis(service, wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_THAT(read.error().text, HasSubstr("1 to 65535"));
  }
  weft_cxi_service service{};
  EXPECT_THAT(add_vnis(service, "1,2,3,4,5").error().text, HasSubstr("ranges"));
  EXPECT_THAT(add_class(service, "bulk_dta").error().text, HasSubstr("did you mean 'bulk_data'"));
  EXPECT_THAT(add_class(service, "q").error().text, HasSubstr("known: dedicated_access"));
  EXPECT_THAT(add_member(service, "no such user!", false).error().text, HasSubstr("no user"));
  EXPECT_THAT(add_member(service, "-1", true).error().text, HasSubstr("no group"));
  EXPECT_TRUE(add_member(service, "1", false));
  EXPECT_TRUE(add_member(service, "2", false));
  EXPECT_THAT(add_member(service, "3", false).error().text, HasSubstr("more than 2"));
}

}  // namespace
}  // namespace weft::cli
