// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::HasSubstr;

Index sample() {
  Index index;
  index.manifests_mtime_ns = 1234567890123456789;
  PluginRecord &full = index.plugins.emplace_back();
  full.library = "/opt/weft/full.so";
  full.library_stamp = {4096, 77};
  full.manifest = "/opt/weft/plugins.d/full.yaml";
  full.manifest_stamp = {512, -5};
  full.verdict = Verdict::kOk;
  full.name = "full";
  full.vendor = "Tabs\tand\nlines \\ Inc.";
  full.version = "1.2";
  full.license = "MIT";
  full.abi_major = 1;
  full.min_core_minor = 3;
  for (const char *name : {"one", "two"}) {
    UnitInfo &unit = full.units.emplace_back();
    unit.name = name;
    unit.ofi_name = std::string("ofi_") + name;
    unit.kind = WEFT_KIND_LAYER;
    unit.maturity = WEFT_MATURITY_BETA;
    unit.security = WEFT_SECURITY_ROBUST;
    unit.rank = -7;
    unit.needs_ep = 2;
    unit.inner_min = 1;
    unit.inner_max = 4;
    unit.summary = "does it";
    unit.devices = {"pci:15b3:*", "path:/dev/x y"};
    unit.device_remedy = "load\tit";
    unit.params.push_back({.type = WEFT_TYPE_INT,
                           .name = "depth",
                           .default_value = "",
                           .help = "how deep",
                           .has_default = true,
                           .minimum = INT64_MIN,
                           .maximum = INT64_MAX});
  }
  PluginRecord &bad = index.plugins.emplace_back();
  bad.library = "/elsewhere/bad.so";
  bad.verdict = Verdict::kQuarantined;
  bad.rejection = {Stage::kInit, "it hung", "ask", true};
  return index;
}

TEST(Index, SurvivesARoundTrip) {
  const std::string text = write_index(sample(), "/opt/weft");
  EXPECT_THAT(text, HasSubstr("plugin\tfull.so\t4096\t77\tplugins.d/full.yaml\t512\t-5\n"));
  const Result<Index> index = parse_index(text, "/opt/weft");
  ASSERT_TRUE(index) << index.error().text;
  EXPECT_EQ(write_index(*index, "/opt/weft"), text);
  EXPECT_EQ(index->manifests_mtime_ns, 1234567890123456789);
  ASSERT_EQ(index->plugins.size(), 2u);
  const PluginRecord &full = index->plugins[0];
  EXPECT_EQ(full.library, "/opt/weft/full.so");
  EXPECT_EQ(full.vendor, "Tabs\tand\nlines \\ Inc.");
  ASSERT_EQ(full.units.size(), 2u);
  EXPECT_EQ(full.units[1].ofi_name, "ofi_two");
  EXPECT_EQ(full.units[1].manifest, "/opt/weft/plugins.d/full.yaml");
  EXPECT_EQ(full.units[1].device_remedy, "load\tit");
  EXPECT_EQ(full.units[1].params[0].minimum, INT64_MIN);
  EXPECT_EQ(index->plugins[1].library, "/elsewhere/bad.so");
  EXPECT_EQ(index->plugins[1].verdict, Verdict::kQuarantined);
  EXPECT_TRUE(index->plugins[1].rejection.misbehaved);
  EXPECT_EQ(index->plugins[1].rejection.cause, "it hung");
}

TEST(Index, MovesWithItsFolder) {
  const Result<Index> index = parse_index(write_index(sample(), "/opt/weft"), "/home/ann/weft");
  ASSERT_TRUE(index);
  EXPECT_EQ(index->plugins[0].library, "/home/ann/weft/full.so");
  EXPECT_EQ(index->plugins[0].manifest, "/home/ann/weft/plugins.d/full.yaml");
}

TEST(Index, CutShortAnywhereIsRefused) {
  const std::string text = write_index(sample(), "/opt/weft");
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(parse_index(text.substr(0, size), "/opt/weft")) << size;
  EXPECT_FALSE(parse_index(text + "plugin\tx\t0\t0\t\t0\t0\n", "/opt/weft"));
}

TEST(Index, OfAnotherAbiIsRefused) {
  std::string text = write_index(sample(), "");
  text.replace(text.find("1.0"), 3, "1.9");
  const Result<Index> index = parse_index(text, "");
  ASSERT_FALSE(index);
  EXPECT_THAT(index.error().text, HasSubstr("for ABI 1.9"));
}

TEST(Index, BadLinesAreRefusedWithTheirNumber) {
  const std::string head = "weft-index\t3\t1.0\t0\t1\n", plugin = "plugin\ta.so\t1\t2\t\t0\t0\n";
  const std::string about = "about\tn\tv\t1\tl\ts\t1\t0\t0\n";
  const std::string unit = "unit\t1\tu\tu\t0\t0\t0\t0\t2\t5\t1\t2\tsummary\n";
  ASSERT_TRUE(parse_index(head + plugin + about + unit + "end\n", "/x"));
  for (const std::string &bad : {
           std::string("plugin\t\t1\t2\t\t0\t0\n"),         // no library
           std::string("plugin\ta.so\t1\t2\t\t0\n"),        // a field short
           std::string("plugin\ta.so\t1\t2\t\t0\t0\t0\n"),  // a field long
           std::string("plugin\ta.so\t-1\t2\t\t0\t0\n"),    // a negative size
           std::string("plugin\ta.so\t1x\t2\t\t0\t0\n"),    // not quite a number
           std::string("plugin\ta.so\t99999999999999999999\t2\t\t0\t0\n"),
           std::string("plugin\ta\\x\t1\t2\t\t0\t0\n"),  // an unknown escape
           std::string("plugin\ta\0\t1\t2\t\t0\t0\n", 18),
           about,  // before any plugin
           std::string("verdict\tok\tinit\t\t\n"),
           std::string("nonsense\n"),
           std::string("\n"),
       }) {
    const Result<Index> index = parse_index(head + bad + "end\n", "/x");
    ASSERT_FALSE(index) << bad;
    EXPECT_THAT(index.error().text, HasSubstr("line 2")) << bad;
  }
  for (const std::string &bad : {
           unit,  // before about
           std::string("verdict\tmaybe\tinit\t\t\n"),
           std::string("verdict\tok\tnowhere\t\t\n"),
           std::string("about\tBad Name\tv\t1\tl\ts\t1\t0\t0\n"),
           std::string("about\tn\tv\t1\tl\ts\t70000\t0\t0\n"),
       })
    EXPECT_FALSE(parse_index(head + plugin + bad + "end\n", "/x")) << bad;
  for (const std::string &bad : {
           std::string("unit\t4\tu\tu\t0\t0\t0\t0\t2\t5\t1\t2\tsummary\n"),
           std::string("unit\t1\tU\tu\t0\t0\t0\t0\t2\t5\t1\t2\tsummary\n"),
           std::string("unit\t1\tu\tu\t0\t0\t0\t0\t2\t5\t0\t2\tsummary\n"),
           std::string("unit\t2\tu\tu\t0\t0\t3\t2\t2\t5\t1\t2\tsummary\n"),
           std::string("unit\t2\tu\tu\t0\t0\t1\t17\t2\t5\t1\t2\tsummary\n"),
           std::string("device\tpath:/x\n"),  // before any unit
           std::string("param\t2\tp\t0\t\t0\t0\thelp\n"),
           about,  // twice
       })
    EXPECT_FALSE(parse_index(head + plugin + about + bad + "end\n", "/x")) << bad;
  for (const std::string &bad : {
           std::string("param\t6\tp\t0\t\t0\t0\thelp\n"),
           std::string("param\t2\tp\t2\t\t0\t0\thelp\n"),
           std::string("param\t2\tp\t0\t\t1\t0\thelp\n"),
           std::string("param\t2\tp-q\t0\t\t0\t0\thelp\n"),
       })
    EXPECT_FALSE(parse_index(head + plugin + about + unit + bad + "end\n", "/x")) << bad;
}

TEST(Index, IsBounded) {
  const std::string head = "weft-index\t3\t1.0\t0\t1\n", plugin = "plugin\ta.so\t1\t2\t\t0\t0\n";
  std::string many = head + plugin + "about\tn\tv\t1\tl\ts\t1\t0\t0\n";
  for (int i = 0; i < WEFT_MAX_UNITS; ++i)
    many += "unit\t1\tu" + std::to_string(i) + "\tu\t0\t0\t0\t0\t2\t5\t1\t2\tsummary\n";
  EXPECT_TRUE(parse_index(many + "end\n", "/x"));
  EXPECT_FALSE(parse_index(many + "unit\t1\tu\tu\t0\t0\t0\t0\t2\t5\t1\t2\tsummary\nend\n", "/x"));
  EXPECT_FALSE(parse_index(std::string(kMaxIndexSize + 1, 'x'), "/x"));
  EXPECT_FALSE(parse_index("weft-index\t3\t1.0\t0\t5000\nend\n", "/x"));
}

TEST(Stages, AreFoundByTheirNames) {
  for (int i = 0; i <= static_cast<int>(Stage::kSelected); ++i) {
    Stage stage = Stage::kManifest;
    ASSERT_TRUE(stage_from_name(stage_name(static_cast<Stage>(i)), stage));
    EXPECT_EQ(static_cast<int>(stage), i);
  }
  Stage stage = Stage::kManifest;
  EXPECT_FALSE(stage_from_name("", stage));
}

}  // namespace
}  // namespace weft
