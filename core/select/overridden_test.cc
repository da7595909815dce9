// SPDX-License-Identifier: BSD-2-Clause
// What has no effect in a merged policy, and files that stand in for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/select/test_policy.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST_F(PolicyTest, AnEnableOfWhatAFinalKeyDisablesIsTold) {
  const std::string first =
      site("version: 1\nproviders: {disable: [udp]}\nfinal: [providers.disable]\n");
  const std::string later = site("version: 1\nproviders: {enable: [tcp, udp]}\n", "20-more.yaml");
  const Policy policy = load();
  EXPECT_EQ(texts(policy), later + ":2:27: udp stays disabled: " + first +
                               ":2:23 disables it, and providers.disable is final in " + first +
                               ":3:9\n");
  EXPECT_FALSE(judge_unit(policy, unit("udp")).accepted);
}

// Each source says something that another one overrules.
TEST_F(PolicyTest, WhatHasNoEffectIsKept) {
  vendor(
      "version: 1\nproviders: {disable: [udp], enable: [tcp]}\nuse: [a]\n"
      "stacks: {a: [{provider: tcp}]}\nparams: {tcp: {iface: a, connect_timeout_ms: 1}}\n");
  site(
      "version: 1\nproviders:\n  enable: [tcp, udp]\n  rank: [{match: {provider: tcp}, rank: 1}]\n"
      "use: [b]\nstacks: {a: [{provider: udp}], b: [{provider: tcp}]}\n"
      "params: {tcp: {iface: b}}\nplugins: {probe_budget_ms: 7}\n"
      "final: [stacks.b, params.tcp.connect_timeout_ms, plugins]\n");
  user(
      "version: 1\nproviders: {rank: [{match: {provider: tcp}, rank: 2, enable: true}]}\n"
      "stacks: {b: [{provider: udp}]}\nparams: {tcp: {connect_timeout_ms: 3}}\n"
      "plugins: {path: [/mine]}\nfinal: [use]\n");
  const Policy policy = load({{"FI_TCP_IFACE", "c"},
                              {"FI_TCP_CONNECT_TIMEOUT_MS", "4"},
                              {"FI_PROVIDER_PATH", "/more"},
                              {"FI_CONTROL", "deny"}});
  const std::string at_vendor = "~/usr/share/weft/00-vendor.yaml:",
                    at_site = "~/etc/weft/10-site.yaml:", at_user = "~/home/weft.yaml:";
  EXPECT_THAT(
      overridden(policy, {unit("tcp"), unit("udp")}),
      UnorderedElementsAre(
          "providers.enable [\"tcp\"] " + at_vendor + "2:38: replaced at " + at_site + "3:12",
          "providers.disable \"udp\" " + at_vendor + "2:23: lifted by " + at_site + "3:17",
          "stacks.a [{\"provider\":\"tcp\"}] " + at_vendor + "4:10: replaced at " + at_site +
              "6:10",
          "use [\"a\"] " + at_vendor + "3:7: replaced at " + at_site + "5:7",
          "params.tcp.iface \"a\" " + at_vendor + "5:16: replaced at " + at_site + "7:16",
          "plugins.probe_budget_ms 2000 built-in: replaced at " + at_site + "8:11",
          "stacks.b [{\"provider\":\"udp\"}] " + at_user +
              "3:10: ignored, since the key is final in " + at_site + "9:9",
          "params.tcp.connect_timeout_ms \"3\" " + at_user +
              "4:16: ignored, since the key is final in " + at_site + "9:19",
          "plugins.path \"/mine\" " + at_user + "5:18: ignored, since the key is final in " +
              at_site + "9:50",
          "final \"use\" " + at_user +
              "6:9: ignored, since the key counts only in files of the system",
          "providers.rank {\"match\":{\"provider\":\"tcp\"},\"rank\":1} " + at_site +
              "4:10: the later rule at " + at_user + "2:20 has the same match",
          "params.tcp.iface \"b\" " + at_site + "7:16: replaced at environment FI_TCP_IFACE",
          "params.tcp.connect_timeout_ms \"4\" environment FI_TCP_CONNECT_TIMEOUT_MS: ignored, "
          "since the key is final in " +
              at_site + "9:19",
          "plugins.path \"/more\" environment FI_PROVIDER_PATH: ignored, since the key is final "
          "in " +
              at_site + "9:50",
          "control \"allow\" built-in: replaced at environment FI_CONTROL"));
}

TEST_F(PolicyTest, AUnitIsOneByBothOfItsNames) {
  const std::vector<UnitInfo> units = {unit("tcp"), unit("rxm", WEFT_KIND_LAYER, "ofi_rxm"),
                                       unit("rxd", WEFT_KIND_LAYER, "ofi_rxd")};
  const auto joined = [&](const std::string &first, const std::string &second) {
    site("version: 1\n" + first);
    site("version: 1\n" + second, "20-more.yaml");
    Policy policy = load();
    join_names(policy, units);
    return policy;
  };
  const std::string names[] = {"rxm", "ofi_rxm"};
  for (const std::string &weak : names) {
    for (const std::string &strong : names) {
      const std::string disable = "providers: {disable: [" + weak + ", rxd]}\n",
                        enable = "providers: {enable: [tcp, " + strong + "]}\n",
                        rule = "providers: {rank: [{match: {provider: \"",
                        end = "\"}, rank: 1}]}\n";
      Policy policy = joined(disable, enable);
      EXPECT_TRUE(judge_unit(policy, units[1]).accepted) << weak << " " << strong;
      EXPECT_FALSE(judge_unit(policy, units[2]).accepted);
      EXPECT_THAT(overridden(policy, units),
                  ElementsAre("providers.disable \"" + weak +
                              "\" ~/etc/weft/10-site.yaml:2:23: lifted by "
                              "~/etc/weft/20-more.yaml:2:27"));
      EXPECT_FALSE(judge_unit(joined(enable, disable), units[1]).accepted) << "the later counts";

      policy = joined(disable + "final: [providers.disable]\n", enable);
      EXPECT_FALSE(judge_unit(policy, units[1]).accepted);
      EXPECT_THAT(texts(policy), HasSubstr(strong + " stays disabled: "));

      const std::string final = site("version: 1\nfinal: [providers.disable]\n", "30-final.yaml");
      for (const std::string &after : {std::string(), "providers: {enable: [" + strong + "]}\n"}) {
        user("version: 1\n" + after);
        policy = joined(disable, enable);
        EXPECT_TRUE(judge_unit(policy, units[1]).accepted)
            << weak << " " << strong << ": final only after it was lifted";
        EXPECT_EQ(texts(policy), "");
      }
      user("version: 1\n");
      std::filesystem::remove(final);

      for (const std::string before : {"", "tcp;"}) {
        const std::string capitals = in_capitals(before + strong);
        policy = joined(rule + before + weak + end, rule + capitals + end);
        ASSERT_EQ(policy.overridden.size(), 1u) << before << weak << " " << strong;
        EXPECT_EQ(policy.overridden[0].how, Override::kShadowed);
      }

      if (weak == strong) continue;  // the reader refuses the file
      policy =
          joined("providers: {disable: [" + weak + "], enable: [" + strong + "]}\n", "use: []\n");
      const std::vector<Diagnostic> found = check_names(policy, units);
      ASSERT_EQ(found.size(), 1u);
      EXPECT_TRUE(found[0].error);
      EXPECT_THAT(found[0].text, HasSubstr("which is the same unit, is enabled at "));
    }
  }
}

TEST_F(PolicyTest, WhatFiProviderLiftsIsOverridden) {
  site("version: 1\nproviders: {disable: [udp, tcp]}\n");
  EXPECT_THAT(overridden(load({{"FI_PROVIDER", "tcp"}}), {unit("tcp"), unit("udp")}),
              ElementsAre("providers.disable \"tcp\" ~/etc/weft/10-site.yaml:2:28: lifted by "
                          "environment FI_PROVIDER"));
}

TEST_F(PolicyTest, WhatADeclarationRefusesOrAFinalAliasForbidsIsOverridden) {
  site(
      "version: 1\nparams: {rxm: {connect_timeout_ms: 7, iface: a}}\n"
      "final: [params.rxm.iface]\n");
  user(
      "version: 1\nparams: {ofi_rxm: {iface: b}}\n"
      "stacks: {mine: [{layer: ofi_rxm, params: {iface: c}}, {provider: tcp}]}\n");
  const UnitInfo rxm = unit("rxm", WEFT_KIND_LAYER, "ofi_rxm");
  const Policy policy = load({{"FI_RXM_CONNECT_TIMEOUT_MS", "x"},
                              {"FI_RXD_CONNECT_TIMEOUT_MS", "y"},
                              {"FI_OFI_RXD_CONNECT_TIMEOUT_MS", "5"},
                              {"FI_TCP_CONNECT_TIMEOUT_MS", "0"},
                              {"FI_OFI_RXM_IFACE", "d"}});
  const std::string final = ": ignored, since the key is final in ~/etc/weft/10-site.yaml:3:9";
  EXPECT_THAT(
      overridden(policy, {unit("tcp"), rxm, unit("rxd", WEFT_KIND_LAYER, "ofi_rxd")}),
      UnorderedElementsAre(
          "params.rxm.connect_timeout_ms \"x\" environment FI_RXM_CONNECT_TIMEOUT_MS: no value of "
          "this parameter: the value of ~/etc/weft/10-site.yaml:2:16 counts",
          "params.rxd.connect_timeout_ms \"y\" environment FI_RXD_CONNECT_TIMEOUT_MS: no value of "
          "this parameter: the value of environment FI_OFI_RXD_CONNECT_TIMEOUT_MS counts",
          "params.tcp.connect_timeout_ms \"0\" environment FI_TCP_CONNECT_TIMEOUT_MS: no value of "
          "this parameter: the default counts",
          "params.rxm.iface \"b\" ~/home/weft.yaml:2:20" + final,
          "params.rxm.iface \"d\" environment FI_OFI_RXM_IFACE" + final,
          "stacks.mine[].params.iface \"c\" ~/home/weft.yaml:3:43" + final));
}

TEST_F(PolicyTest, ARuleIsShadowedOnlyByTheSameMatchAndAllThatItSays) {
  site(
      "version: 1\nproviders:\n  rank:\n"
      "  - {match: {provider: tcp}, rank: 1, enable: true}\n"  // 4: rank alone comes again
      "  - {match: {provider: tcp, netdev: lo}, rank: 2}\n"    // 5: matches less
      "  - {match: {provider: udp}, enable: false}\n"          // 6: shadowed
      "  - {match: {provider: tcp}, rank: 3}\n"                // 7: shadowed
      "  - {match: {provider: udp}, enable: true}\n"
      "  - {match: {provider: tcp}, rank: 4}\n");
  std::vector<uint32_t> lines;
  for (const Overridden &one : load().overridden)
    if (one.how == Override::kShadowed) lines.push_back(one.values.ranks[0].origin.where.line);
  EXPECT_THAT(lines, UnorderedElementsAre(6, 7));
}

// A file that is not installed counts in the place of the one that it stands in for.
TEST_F(PolicyTest, AFileStandsInForAnother) {
  site("version: 1\nplugins: {probe_budget_ms: 10}\n");
  const std::string last = site("version: 1\nplugins: {unprobed: deny}\n", "30-last.yaml");
  const std::string trial =
      folder_.write("trial", "version: 1\nplugins: {probe_budget_ms: 20, unprobed: allow}\n");
  for (const char *name : {"etc/weft/10-site.yaml", "etc/weft/20-new.yaml"}) {
    stand_ins_ = {{folder_.at(name), trial}};
    const Policy policy = load();
    EXPECT_EQ(texts(policy), "");
    EXPECT_EQ(policy.probe_budget_ms->value, 20) << name;
    EXPECT_EQ(policy.probe_budget_ms->origin.where, Rule::file(trial, 2, 11));
    EXPECT_FALSE(policy.unprobed_allow->value) << "a later file still counts";
    const auto file = std::ranges::find(policy.files, trial, &PolicyFile::path);
    ASSERT_NE(file, policy.files.end());
    EXPECT_EQ(file->as, folder_.at(name));
    EXPECT_TRUE(file->system);
    EXPECT_EQ(policy.files.back().path, last);
  }
  stand_ins_ = {{folder_.at("home/weft.yaml"), trial}};  // stronger than the site's, but a user's
  EXPECT_TRUE(load().unprobed_allow->value);
  EXPECT_FALSE(load().files.back().system);
  stand_ins_ = {{folder_.at("usr/share/weft/new.yaml"), folder_.at("nothing")}};
  EXPECT_THAT(texts(load()), HasSubstr(folder_.at("nothing") + ": No such file"));
}

TEST_F(PolicyTest, PlacesWhereAFileIsRead) {
  const auto read = [&](const std::string &path) {
    return is_read(sources({{"FI_CONFIG", "/a/file"}}), path);
  };
  EXPECT_TRUE(read(folder_.at("etc/weft/x.yaml")));
  EXPECT_TRUE(read(folder_.at("usr/share/weft/x.yaml")));
  EXPECT_TRUE(read(folder_.at("home/weft.yaml")));
  EXPECT_TRUE(read("/a/file"));
  for (const char *path : {"etc/weft/x.yml", "etc/weft/.x.yaml", "etc/weft/.yaml",
                           "etc/weft/more/x.yaml", "etc/x.yaml", "home/other.yaml"})
    EXPECT_FALSE(read(folder_.at(path))) << path;
  EXPECT_FALSE(read("x.yaml"));
  EXPECT_FALSE(read(""));
  secure_ = true;
  EXPECT_FALSE(read(folder_.at("home/weft.yaml")));
  EXPECT_FALSE(read("/a/file"));
}

TEST_F(PolicyTest, FinalKeysAreNamesThatThereAre) {
  site(
      "version: 1\nstacks: {rdm: [{provider: tcp}]}\n"
      "final: [stacks.rdm, stacks.rmd, params.tcp, params.tcp.iface, params.tcp.ifcae, "
      "params.tpc.iface, providers.disable, params]\n");
  std::vector<std::string> found;
  for (const Diagnostic &one : check_names(load(), {unit("tcp")}))
    found.push_back((one.error ? "error: " : "warning: ") + one.text);
  EXPECT_THAT(
      found,
      ElementsAre("warning: final: stacks names \"rmd\", and there is no such stack: did you mean "
                  "\"rdm\"?",
                  "error: final: params.tcp names \"ifcae\", and there is no such parameter: did "
                  "you mean \"iface\"?",
                  "warning: final: params names \"tpc\", and there is no such unit: did you mean "
                  "\"tcp\"?"));
}

}  // namespace
}  // namespace weft
