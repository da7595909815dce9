// SPDX-License-Identifier: BSD-2-Clause
// For the tests of the front: a weft installation with toy units (testdata/toy_units.cc), a site's
// file, and what a front said.
//
// Example (statements):
//    class Site : public weft::FrontTest {
//      void TestBody() override {
//        site("version: 1\nproviders: {disable: [udp]}\n");
//        const weft::InfoPtr list = ask(front({{"FI_PROVIDER", "tcp"}}));
//      }
//    };
//
// Not for tests of one part of the front: those need no files.
#ifndef WEFT_CORE_SELECT_TEST_FRONT_H
#define WEFT_CORE_SELECT_TEST_FRONT_H

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/providers/fi_log.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/info.h"
#include "core/loader/test_folder.h"
#include "core/select/front.h"
#include "core/stack/toys.h"

namespace weft {

// A weft installation: lib/weft with the toys, an index, and the reader.
class FrontTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kVersion = FI_VERSION(2, 6);

  static void SetUpTestSuite() {
    installed_ = new TestFolder;
    install(*installed_);
  }
  static void TearDownTestSuite() {
    delete installed_;
    installed_ = nullptr;
  }
  static void install(const TestFolder &root);

  void SetUp() override {
    toys::current_table() = &objects_;
    log_level_ = FI_LOG_MAX;
    logged_.clear();
  }

  Front &front(std::map<std::string, std::string> environment = {},
               const TestFolder *root = installed_) {
    FrontOptions options;
    options.environment = std::move(environment);
    options.library_folder = root->at("lib");
    options.system_root = system_.path();
    options.secure = secure_;
    options.objects = &objects_;
    options.services = toys::services();
    options.services.log_enabled = [](const weft_instance *, int32_t level, int32_t) -> int32_t {
      return level <= log_level_ ? 1 : 0;
    };
    options.services.log = [](const weft_instance *, int32_t level, int32_t, const char *func,
                              int32_t, const char *text) {
      toys::logged().emplace_back(text);
      logged_.push_back((level == FI_LOG_WARN ? "warn " : "info ") + std::string(func) + ": " +
                        text);
    };
    if (recording_)
      options.record = [this](std::string_view line) {
        recorded_.push_back(nlohmann::json::parse(line));
      };
    options.notice = [this](std::string_view line) { notices_.emplace_back(line); };
    front_ = std::make_unique<Front>(std::move(options));
    return *front_;
  }
  void site(std::string_view text) { system_.write("etc/weft/10-site.yaml", text); }

  InfoPtr ask(Front &from, const fi_info *hints = nullptr, uint64_t flags = 0, int expected = 0) {
    fi_info *list = nullptr;
    EXPECT_EQ(from.getinfo(kVersion, nullptr, nullptr, flags, hints, &list), expected);
    EXPECT_EQ(list == nullptr, expected != 0);
    return InfoPtr(list);
  }
  // "tcp eth0", in order
  static std::vector<std::string> shown(const InfoPtr &list) {
    std::vector<std::string> out;
    for (const fi_info *info = list.get(); info != nullptr; info = info->next)
      out.push_back(std::string(info->fabric_attr->prov_name) + " " + info->domain_attr->name);
    return out;
  }
  static InfoPtr hints_for(fi_ep_type type, const char *prov_name = nullptr) {
    InfoPtr hints(alloc_info());
    hints->ep_attr->type = type;
    if (prov_name != nullptr) hints->fabric_attr->prov_name = strdup(prov_name);
    return hints;
  }
  static nlohmann::json why(Front &from, std::string_view name) {
    return nlohmann::json::parse(from.why_json(name).value());
  }
  // The reasons of what was rejected.
  static std::string reasons(Front &from, std::string_view name) {
    std::string all;
    for (const auto &one : why(from, name)) {
      if (!one["accepted"].get<bool>())
        all += one["candidate"].get<std::string>() + " " + one["stage"].get<std::string>() + ": " +
               one["reason"].get<std::string>() + " | " + one["remedy"].get<std::string>() + "\n";
    }
    return all;
  }

  static inline TestFolder *installed_ = nullptr;
  TestFolder system_;
  bool secure_ = false;
  ObjectTable objects_;
  std::vector<std::string> notices_;
  static inline int32_t log_level_ = FI_LOG_MAX;
  static inline std::vector<std::string> logged_;
  bool recording_ = false;
  std::vector<nlohmann::json> recorded_;
  std::unique_ptr<Front> front_;
};

}  // namespace weft

#endif
