// SPDX-License-Identifier: BSD-2-Clause
// The frozen layout of weft/plugin.h: the checks are made by the compiler, here as C++20 and in
// plugin_layout_c.c as C11.
#include "tests/abi/plugin_layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/paths.h"

extern "C" const size_t plugin_sizes_c[];
extern "C" const size_t plugin_sizes_c_count;

namespace {

TEST(PluginLayout, CAndCppAgree) {
  const std::vector<size_t> cpp = {
      sizeof(weft_error),         sizeof(weft_param),      sizeof(weft_value),
      sizeof(weft_core_services), sizeof(weft_offer),      sizeof(weft_instance),
      sizeof(weft_provider_ops),  sizeof(weft_provider),   sizeof(weft_provider_unit),
      sizeof(weft_layer_unit),    sizeof(weft_fid_header), sizeof(weft_op_tables),
      sizeof(weft_hook_link),     sizeof(weft_hook_unit),  sizeof(weft_unit),
      sizeof(weft_plugin_desc),   sizeof(weft_counter),    sizeof(weft_counters_ops)};
  EXPECT_EQ(std::vector<size_t>(plugin_sizes_c, plugin_sizes_c + plugin_sizes_c_count), cpp);
}

TEST(PluginLayout, NamesThatPluginsAreFoundBy) {
  EXPECT_STREQ(WEFT_QUERY_SYMBOL, "weft_plugin_query");
  EXPECT_STREQ(WEFT_COUNTERS_OPS, "weft_counters_1");
  EXPECT_STREQ(WEFT_HOOK_COUNTERS_OPS, "weft_counters_1:");
}

std::string read(const std::string &path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

std::vector<std::smatch> matches(const std::string &text, const char *pattern) {
  const std::regex regex(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()};
}

// That the frozen lines leave nothing out: every struct of plugin.h is there, and its members cover
// all of its bytes.
TEST(PluginLayout, NothingIsLeftOut) {
  const std::string header = read(weft::test::source("plugin-api/include/weft/plugin.h")),
                    frozen = read(weft::test::source("tests/abi/plugin_layout.h"));
  std::set<std::string> declared, known;
  for (const auto &m : matches(header, R"(struct (weft_\w+) \{)")) declared.insert(m[1]);
  std::map<std::string, size_t> sizes, ends;
  for (const auto &m : matches(frozen, R"(FROZEN_SIZE\((weft_\w+), (\d+)\))")) {
    known.insert(m[1]);
    sizes[m[1]] = std::stoul(m[2]);
  }
  EXPECT_EQ(declared, known);
  EXPECT_EQ(known.size(), plugin_sizes_c_count);
  for (const auto &m : matches(frozen, R"(FROZEN_MEMBER\((weft_\w+), (\w+), (\d+), (\d+),)")) {
    size_t &end = ends[m[1]];
    EXPECT_EQ(std::stoul(m[3]), end) << m[1] << "." << m[2] << " is not next to its neighbour";
    end = std::stoul(m[3]) + std::stoul(m[4]);
  }
  EXPECT_EQ(ends, sizes);
}

}  // namespace
