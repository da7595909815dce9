// SPDX-License-Identifier: BSD-2-Clause
// For the tests of the policy: files in a folder of their own, and what comes of them.
//
// Example (statements):
//    class Site : public weft::PolicyTest {
//      void TestBody() override {
//        site("version: 1\nproviders: {disable: [udp]}\n");
//        EXPECT_FALSE(judge_unit(load(), unit("udp")).accepted);
//      }
//    };
//
// Not for tests of what is chosen by a policy: test_front.h.
#ifndef WEFT_CORE_SELECT_TEST_POLICY_H
#define WEFT_CORE_SELECT_TEST_POLICY_H

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/render.h"
#include "core/loader/test_folder.h"
#include "core/select/policy.h"
#include "tests/paths.h"

namespace weft {

class PolicyTest : public ::testing::Test {
 protected:
  static UnitInfo unit(const char *name, uint32_t kind = WEFT_KIND_PROVIDER,
                       const char *ofi_name = "") {
    UnitInfo info;
    info.name = name;
    info.ofi_name = ofi_name;
    info.kind = kind;
    info.params = {{.type = WEFT_TYPE_INT,
                    .name = "connect_timeout_ms",
                    .default_value = "5000",
                    .help = "",
                    .has_default = true,
                    .minimum = 1,
                    .maximum = 100000},
                   {.type = WEFT_TYPE_STRING, .name = "iface", .default_value = "", .help = ""}};
    return info;
  }

  // Files are given from the weakest to the strongest.
  std::string vendor(std::string_view text) {
    return folder_.write("usr/share/weft/00-vendor.yaml", text);
  }
  std::string site(std::string_view text, const char *name = "10-site.yaml") {
    return folder_.write(std::string("etc/weft/") + name, text);
  }
  std::string user(std::string_view text) { return folder_.write("home/weft.yaml", text); }

  PolicySources sources(std::map<std::string, std::string> environment = {}) {
    PolicySources all;
    all.system_folders = {folder_.at("usr/share/weft"), folder_.at("etc/weft")};
    all.user_file = folder_.at("home/weft.yaml");
    all.environment = std::move(environment);
    all.reader_library = reader_;
    all.secure = secure_;
    all.stand_ins = stand_ins_;
    return all;
  }
  Policy load(std::map<std::string, std::string> environment = {}) {
    return load_policy(sources(std::move(environment)));
  }
  // "KEY VALUE ORIGIN: TEXT" of each value without effect, with "~" for the folder of the test.
  std::vector<std::string> overridden(const Policy &policy, const std::vector<UnitInfo> &units) {
    std::vector<std::string> out;
    const auto json = nlohmann::json::parse(policy_json(policy, units));
    for (const auto &one : json["overridden"]) {
      std::string text = one["key"].get<std::string>() + " " + one["value"].dump() + " " +
                         one["origin"].get<std::string>() + ": " + one["text"].get<std::string>();
      for (size_t at; (at = text.find(folder_.path())) != std::string::npos;)
        text.replace(at, folder_.path().size(), "~");
      out.push_back(std::move(text));
    }
    return out;
  }
  static std::string texts(const Policy &policy) {
    std::string all;
    for (const Diagnostic &one : policy.diagnostics)
      all += text_of(one.where) + ": " + one.text + "\n";
    return all;
  }

  TestFolder folder_;
  std::string reader_ = test::built("lib/weft/weft-config.so");
  bool secure_ = false;
  std::map<std::string, std::string> stand_ins_;
};

}  // namespace weft

#endif
