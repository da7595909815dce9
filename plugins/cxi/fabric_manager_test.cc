// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/fabric_manager.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace weft::cxi {
namespace {

TEST(FabricManager, ATokenGoesToGoodPlacesOnly) {
  for (const char *const url : {"", "https://fabric.example/api", "http://127.0.0.1:80/x",
                                "http://localhost", "http://localhost/", "http://[::1]:8080/a@b"})
    EXPECT_TRUE(check_manager({.url = url}, "test")) << url;
  for (const char *const url :
       {"http://fabric.example/", "fabric.example", "ftp://localhost/", "http://127.0.0.1.example/",
        "http://localhost:80@fabric.example/", "file:///etc/passwd", "http://127.0.0.10/"}) {
    const auto checked = check_manager({.url = url}, "FI_CXI_COLL_FABRIC_MGR_URL");
    ASSERT_FALSE(checked) << url;
    EXPECT_EQ(checked.error().code, FI_EINVAL);
    EXPECT_NE(checked.error().text.find(url), std::string::npos);
    EXPECT_NE(checked.error().text.find("FI_CXI_COLL_FABRIC_MGR_URL"), std::string::npos);
  }
}

TEST(FabricManager, ARequestHasTheMembers) {
  const auto said =
      nlohmann::json::parse(FabricManager::request({.job = "j\"1", .step = "2"}, {0x12345, 7}, 10));
  EXPECT_EQ(said["macs"], (nlohmann::json{"02:00:00:01:23:45", "02:00:00:00:00:07"}));
  EXPECT_EQ(said["vni"], 10);
  EXPECT_EQ(said["jobID"], "j\"1");
  EXPECT_EQ(said["jobStepID"], "2");
  EXPECT_TRUE(said["timeout"].is_number());
}

TEST(FabricManager, AnswersAreRead) {
  const auto good = FabricManager::parse(3, R"({"mcastID": 8191, "hwRoot": "1:02:3f", "x": []})");
  EXPECT_EQ(good.group, 3u);
  EXPECT_EQ(good.failure, Failure::kNone);
  EXPECT_EQ(good.address, 8191u);
  EXPECT_EQ(good.root, 0x1023fu);
  for (const auto &[text, failure] : std::initializer_list<std::pair<const char *, Failure>>{
           {"", Failure::kManagerRefused},
           {"{", Failure::kManagerRefused},
           {"[1]", Failure::kManagerRefused},
           {R"({"hwRoot": "0:00:01"})", Failure::kAddressInvalid},
           {R"({"mcastID": -1, "hwRoot": "0:00:01"})", Failure::kAddressInvalid},
           {R"({"mcastID": 65536, "hwRoot": "0:00:01"})", Failure::kAddressInvalid},
           {R"({"mcastID": 18446744073709551616, "hwRoot": "0:00:01"})", Failure::kAddressInvalid},
           {R"({"mcastID": "7", "hwRoot": "0:00:01"})", Failure::kAddressInvalid},
           {R"({"mcastID": 7})", Failure::kTreeRootInvalid},
           {R"({"mcastID": 7, "hwRoot": 5})", Failure::kTreeRootInvalid},
           {R"({"mcastID": 7, "hwRoot": "0:00:01x"})", Failure::kTreeRootInvalid},
           {R"({"mcastID": 7, "hwRoot": "00:00:01"})", Failure::kTreeRootInvalid},
           {R"({"mcastID": 7, "hwRoot": "0:-1:01"})", Failure::kTreeRootInvalid},
           {R"({"mcastID": 7, "hwRoot": "0: 1:01"})", Failure::kTreeRootInvalid},
           {R"({"mcastID": 7, "hwRoot": ""})", Failure::kTreeRootInvalid}}) {
    const auto answer = FabricManager::parse(1, text);
    EXPECT_EQ(answer.failure, failure) << text;
    EXPECT_FALSE(answer.why.empty());
  }
}

}  // namespace
}  // namespace weft::cxi
