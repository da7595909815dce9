// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/call_record.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/base/info.h"

namespace weft {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST(CallRecord, LeavesOutHintsThatAreNotSet) {
  const InfoPtr hints(alloc_info());
  EXPECT_EQ(set_hints(*hints), Pairs{});
  EXPECT_EQ(set_hints(fi_info{}), Pairs{}) << "no part at all";
}

TEST(CallRecord, ListsHintsInTheOrderOfTheStructs) {
  const InfoPtr hints(alloc_info());
  hints->caps = FI_MSG | FI_TAGGED;
  hints->ep_attr->type = FI_EP_RDM;
  hints->ep_attr->max_msg_size = SIZE_MAX;
  hints->tx_attr->size = 4096;
  hints->domain_attr->mr_mode = FI_MR_LOCAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->name = strdup("eth0");
  hints->fabric_attr->prov_name = strdup("tcp");
  hints->fabric_attr->prov_version = FI_VERSION(1, 2);
  EXPECT_EQ(set_hints(*hints), (Pairs{{"caps", "FI_MSG, FI_TAGGED"},
                                      {"tx_attr.size", "4096"},
                                      {"ep_attr.type", "FI_EP_RDM"},
                                      {"ep_attr.max_msg_size", "the largest"},
                                      {"domain_attr.name", "\"eth0\""},
                                      {"domain_attr.resource_mgmt", "FI_RM_ENABLED"},
                                      {"domain_attr.mr_mode", "FI_MR_LOCAL"},
                                      {"fabric_attr.prov_name", "\"tcp\""},
                                      {"fabric_attr.prov_version", "1.2"}}));
}

TEST(CallRecord, IsJsonForAnyArguments) {
  const InfoPtr hints(alloc_info());
  hints->fabric_attr->prov_name = strdup("\xff\xfe\"\n");
  const std::string line = getinfo_record(
      {FI_VERSION(1, 17), "\xff", nullptr, FI_SOURCE, hints.get()}, -FI_ENODATA, nullptr, {});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["version"], "1.17");
  EXPECT_EQ(json["flags"][0], "FI_SOURCE");
  EXPECT_TRUE(json["service"].is_null());
  EXPECT_EQ(json["answer_count"], 0);
  EXPECT_FALSE(json["error"].is_null());
}

TEST(CallRecord, AnAddressIsShownByItsFormat) {
  const InfoPtr info(alloc_info());
  const auto shown = [&](uint32_t format, const void *address, size_t length) {
    info->addr_format = format;
    std::free(info->src_addr);
    info->src_addr = std::malloc(length);
    std::memcpy(info->src_addr, address, length);
    info->src_addrlen = length;
    const auto json = nlohmann::json::parse(getinfo_record({}, 0, info.get(), {}));
    return json["answers"][0]["source"].get<std::string>();
  };
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(7);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(shown(FI_SOCKADDR_IN, &in, sizeof in), "127.0.0.1:7");
  EXPECT_EQ(shown(FI_FORMAT_UNSPEC, &in, sizeof in), "127.0.0.1:7");
  EXPECT_EQ(shown(FI_ADDR_PSMX, &in, sizeof in), "16 bytes") << "it only looks like one";
  const char text[] = "fi_shm://a";
  EXPECT_EQ(shown(FI_ADDR_STR, text, sizeof text), "fi_shm://a");
  EXPECT_EQ(shown(FI_ADDR_STR, text, 6), "fi_shm") << "without an end";
}

TEST(CallRecord, CountsAllAnswersAndListsSome) {
  InfoPtr first;
  for (int i = 0; i < 100; ++i) {
    InfoPtr one(alloc_info());
    one->fabric_attr->prov_name = strdup("tcp");
    one->next = first.release();
    first = std::move(one);
  }
  const auto json = nlohmann::json::parse(getinfo_record({}, 0, first.get(), {}));
  EXPECT_EQ(json["answer_count"], 100);
  EXPECT_EQ(json["answers"].size(), 64u);
  EXPECT_TRUE(json["error"].is_null());
}

}  // namespace
}  // namespace weft
