// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "core/base/render.h"
#include "core/select/stock_variables.h"
#include "core/select/test_policy.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST_F(PolicyTest, NothingSaidNothingRead) {
  reader_ = "/nonexistent/reader.so";  // would be an error if it were needed
  const Policy policy = load();
  EXPECT_EQ(texts(policy), "");
  EXPECT_FALSE(policy.enable.has_value());
  EXPECT_TRUE(policy.unprobed_allow->value);
  EXPECT_EQ(policy.unprobed_allow->origin.where, Rule::built_in());
  EXPECT_TRUE(judge_unit(policy, unit("tcp")).accepted);
}

TEST_F(PolicyTest, WithoutItsReaderAFileIsTold) {
  reader_ = "/nonexistent/reader.so";
  const std::string path = site("version: 1\n");
  const Policy policy = load();
  EXPECT_THAT(texts(policy), HasSubstr(path + ": cannot be read, since the YAML reader"));
  ASSERT_EQ(policy.files.size(), 1u);
  EXPECT_FALSE(policy.files[0].used);
}

TEST_F(PolicyTest, ControlIsTheSitesToForbid) {
  EXPECT_TRUE(load().control_allow->value);
  EXPECT_FALSE(load({{"FI_CONTROL", "deny"}}).control_allow->value);
  EXPECT_THAT(texts(load({{"FI_CONTROL", "no"}})), HasSubstr("FI_CONTROL=no: write allow or deny"));
  const std::string path = site("version: 1\ncontrol: deny\nfinal: [control]\n");
  const Policy policy = load({{"FI_CONTROL", "allow"}});
  EXPECT_FALSE(policy.control_allow->value);
  EXPECT_TRUE(policy.control_allow->origin.final);
  EXPECT_THAT(texts(policy), HasSubstr("control is final in " + path));
}

TEST_F(PolicyTest, LocalIsForAllToChoose) {
  EXPECT_FALSE(load().local_shm->value);
  EXPECT_TRUE(load({{"FI_LINK", "shm"}}).local_shm->value);
  EXPECT_THAT(texts(load({{"FI_LINK", ""}})), HasSubstr("FI_LINK=: write shm or none"));
  site("version: 1\nlocal: shm\n");
  EXPECT_TRUE(load().local_shm->value);
  EXPECT_EQ(load().local_shm->origin.where.line, 2u);
  EXPECT_FALSE(load({{"FI_LINK", "none"}}).local_shm->value);
  const std::string path = site("version: 1\nlocal: shm\nfinal: [local]\n");
  const Policy policy = load({{"FI_LINK", "none"}});
  EXPECT_TRUE(policy.local_shm->value);
  EXPECT_THAT(texts(policy), HasSubstr("local is final in " + path));
  secure_ = true;
  EXPECT_TRUE(load().local_shm->value);
}

TEST_F(PolicyTest, TheStrongerSourceCounts) {
  vendor(
      "version: 1\nplugins: {probe_budget_ms: 1}\nparams: {tcp: {iface: a, connect_timeout_ms: "
      "1}}\n");
  const std::string first = site("version: 1\nplugins: {probe_budget_ms: 2}\n");
  const std::string second =
      site("version: 1\nplugins: {probe_budget_ms: 3, unprobed: deny}\n", "20-more.yaml");
  const std::string mine = user("version: 1\nparams: {tcp: {connect_timeout_ms: 2}}\n");
  const std::string extra =
      folder_.write("extra.yaml", "version: 1\nplugins: {probe_budget_ms: 4}\n");
  const Policy policy = load({{"FI_CONFIG", extra}, {"FI_TCP_IFACE", "b"}});
  EXPECT_EQ(texts(policy), "");
  EXPECT_EQ(policy.probe_budget_ms->value, 4);
  EXPECT_EQ(policy.probe_budget_ms->origin.where, Rule::file(extra, 2, 11));
  EXPECT_FALSE(policy.unprobed_allow->value);
  EXPECT_THAT(policy.unprobed_allow->origin.where.name, HasSubstr(second));
  EXPECT_EQ(policy.files.size(), 5u);
  const std::vector<Setting> settings = settings_of(policy, unit("tcp"));
  ASSERT_EQ(settings.size(), 3u);
  EXPECT_EQ(settings[0].value, "2");
  EXPECT_THAT(settings[0].where.name, HasSubstr(mine));
  EXPECT_EQ(settings[2].value, "b");
  EXPECT_EQ(settings[2].where, Rule::environment("FI_TCP_IFACE"));
}

TEST_F(PolicyTest, AFileWithAnErrorIsLeftOutAsAWhole) {
  const std::string path = site("version: 1\nproviders:\n  disable: [udp]\n  enabel: [tcp]\n");
  user("version: 1\nproviders: {disable: [shm]}\n");
  const Policy policy = load();
  EXPECT_THAT(texts(policy), HasSubstr(path + ":4:3: "));
  EXPECT_THAT(texts(policy), HasSubstr("'enable'"));
  EXPECT_THAT(texts(policy), HasSubstr("the file is left out"));
  EXPECT_TRUE(judge_unit(policy, unit("udp")).accepted);
  EXPECT_FALSE(judge_unit(policy, unit("shm")).accepted) << "other files go on";
}

TEST_F(PolicyTest, OnlyRegularFilesAreRead) {
  ::mkdir(folder_.at("etc").c_str(), 0755);
  ::mkdir(folder_.at("etc/weft").c_str(), 0755);
  ASSERT_EQ(::mkfifo(folder_.at("etc/weft/10-pipe.yaml").c_str(), 0644), 0);
  folder_.write("etc/weft/20-large.yaml", std::string((1 << 20) + 1, '#'));
  folder_.write("etc/weft/.hidden.yaml", "nonsense");
  folder_.write("etc/weft/notes.txt", "nonsense");
  const Policy policy = load();
  EXPECT_THAT(texts(policy), HasSubstr("10-pipe.yaml: it is no regular file"));
  EXPECT_THAT(texts(policy), HasSubstr("more than 1 MiB"));
  EXPECT_EQ(policy.diagnostics.size(), 2u);
}

TEST_F(PolicyTest, AMissingFiConfigIsTold) {
  EXPECT_THAT(texts(load({{"FI_CONFIG", "/nonexistent/x.yaml"}})),
              HasSubstr("environment FI_CONFIG: there is no file /nonexistent/x.yaml"));
}

TEST_F(PolicyTest, WithAtSecureOnlySystemFilesCount) {
  secure_ = true;
  site("version: 1\nproviders: {disable: [udp]}\n");
  user("version: 1\nproviders: {disable: [tcp]}\n");
  const std::string extra =
      folder_.write("extra.yaml", "version: 1\nproviders: {disable: [shm]}\n");
  const Policy policy =
      load({{"FI_CONFIG", extra}, {"FI_PROVIDER", "verbs"}, {"FI_TCP_IFACE", "x"}});
  EXPECT_FALSE(judge_unit(policy, unit("udp")).accepted);
  EXPECT_TRUE(judge_unit(policy, unit("tcp")).accepted);
  EXPECT_TRUE(judge_unit(policy, unit("shm")).accepted);
  EXPECT_FALSE(policy.filter.has_value());
  EXPECT_THAT(settings_of(policy, unit("tcp")), IsEmpty());
}

TEST_F(PolicyTest, DisableAddsUpAndAStrongerEnableLifts) {
  const std::string path = site("version: 1\nproviders: {disable: [udp, shm]}\n");
  user("version: 1\nproviders: {enable: [udp, tcp]}\n");
  const Policy policy = load();
  EXPECT_TRUE(judge_unit(policy, unit("udp")).accepted);
  EXPECT_TRUE(judge_unit(policy, unit("tcp")).accepted);
  const Judgement shm = judge_unit(policy, unit("shm"));
  EXPECT_FALSE(shm.accepted);
  EXPECT_EQ(shm.rule, Rule::file(path, 2, 28));
  EXPECT_THAT(shm.remedy.words, HasSubstr("FI_PROVIDER"));
  EXPECT_FALSE(judge_unit(policy, unit("verbs")).accepted) << "not in the list";
  EXPECT_TRUE(judge_unit(policy, unit("rxm", WEFT_KIND_LAYER)).accepted)
      << "the list is of providers";
}

TEST_F(PolicyTest, AnEmptyListEnablesNothing) {
  user("version: 1\nproviders: {enable: []}\n");
  EXPECT_FALSE(judge_unit(load(), unit("tcp")).accepted);
}

TEST_F(PolicyTest, FiProviderLiftsWhatIsNotFinal) {
  site("version: 1\nproviders: {disable: [udp], enable: [tcp]}\n");
  const Policy policy = load({{"FI_PROVIDER", "udp;ofi_rxd,verbs"}});
  EXPECT_TRUE(judge_unit(policy, unit("udp")).accepted);
  EXPECT_TRUE(judge_unit(policy, unit("verbs")).accepted);
  EXPECT_FALSE(judge_unit(policy, unit("shm")).accepted);
  EXPECT_FALSE(judge_unit(load({{"FI_PROVIDER", "^tcp"}}), unit("udp")).accepted)
      << "excluding others is no wish for this one";
}

TEST_F(PolicyTest, FinalKeysStand) {
  site(
      "version: 1\nproviders: {disable: [udp], enable: [tcp]}\nparams: {tcp: {iface: eth0}}\n"
      "plugins: {path: [/opt/site]}\n"
      "final: [providers, params.tcp.iface, plugins.path]\n");
  const std::string mine = user(
      "version: 1\nproviders: {enable: [udp], rank: [{match: {}, enable: false}]}\n"
      "params: {tcp: {iface: eth1, connect_timeout_ms: 7}}\n");
  const Policy policy =
      load({{"FI_PROVIDER", "udp"}, {"FI_PROVIDER_PATH", "/home/me"}, {"FI_TCP_IFACE", "eth2"}});
  EXPECT_THAT(texts(policy), HasSubstr(mine + ":2:22: providers.enable is final in"));
  EXPECT_THAT(texts(policy), HasSubstr("providers.rank is final"));
  EXPECT_THAT(texts(policy), HasSubstr("params.tcp.iface is final"));
  EXPECT_THAT(texts(policy), HasSubstr("environment FI_PROVIDER_PATH: plugins.path is final"));
  EXPECT_EQ(policy.diagnostics.size(), 4u) << texts(policy);
  const Judgement udp = judge_unit(policy, unit("udp"));
  EXPECT_FALSE(udp.accepted);
  EXPECT_THAT(udp.remedy.words, HasSubstr("final"));
  EXPECT_THAT(policy.ranks, IsEmpty());
  ASSERT_EQ(policy.plugin_path.size(), 1u);
  EXPECT_TRUE(policy.plugin_path[0].origin.final);
  std::vector<Diagnostic> more;
  const std::vector<Setting> settings = settings_of(policy, unit("tcp"), &more);
  ASSERT_EQ(settings.size(), 2u);
  EXPECT_EQ(settings[0].value, "7");
  EXPECT_EQ(settings[1].value, "eth0");
  ASSERT_EQ(more.size(), 1u);
  EXPECT_THAT(more[0].text, HasSubstr("the variable is ignored"));
}

TEST_F(PolicyTest, AUserCannotMakeAKeyFinal) {
  const std::string mine = user("version: 1\nproviders: {disable: [udp]}\nfinal: [providers]\n");
  const Policy policy = load({{"FI_PROVIDER", "udp"}});
  EXPECT_THAT(texts(policy), HasSubstr(mine + ":3:9: `final` counts only in files of the system"));
  EXPECT_TRUE(judge_unit(policy, unit("udp")).accepted);
}

TEST_F(PolicyTest, StacksByNameAndRulesInOrder) {
  site(
      "version: 1\nstacks:\n  rdm: [{provider: tcp}]\n  other: [{provider: udp}]\nuse: [other]\n"
      "providers: {rank: [{match: {provider: a}, rank: 1}]}\n");
  user(
      "version: 1\nstacks:\n  rdm:\n    - {hook: trace, on_unavailable: skip}\n"
      "    - {layer: rxm, params: {eager_size: 16K}}\n    - {provider: verbs}\nuse: [rdm]\n"
      "providers: {rank: [{match: {provider: b, subnet: 10.0.0.0/8, ep_type: msg}, enable: "
      "false}]}\n");
  const Policy policy = load();
  EXPECT_EQ(texts(policy), "");
  ASSERT_EQ(policy.stacks.size(), 5u);  // and the built-in ones
  const StackSpec &rdm = policy.stacks[4];
  ASSERT_EQ(rdm.elements.size(), 3u);
  EXPECT_TRUE(rdm.elements[0].skip_if_unavailable);
  EXPECT_EQ(rdm.elements[1].params[0].value, "16K");
  EXPECT_EQ(policy.use->value[0].value, "rdm");
  ASSERT_EQ(policy.ranks.size(), 2u);
  EXPECT_EQ(policy.ranks[0].rank, 1);
  EXPECT_EQ(policy.ranks[1].ep_type, "msg");
  EXPECT_EQ(policy.ranks[1].enable, false);
}

TEST_F(PolicyTest, AnEmptyUseTakesBackThatOfWeakerFiles) {
  const std::string theirs = site("version: 1\nstacks: {mine: [{provider: udp}]}\nuse: [mine]\n");
  EXPECT_EQ(load().use->origin.where, Rule::file(theirs, 3, 7));
  const std::string mine = user("version: 1\nuse: []\n");
  const Policy policy = load();
  EXPECT_EQ(texts(policy), "");
  ASSERT_TRUE(policy.use);
  EXPECT_TRUE(policy.use->value.empty());
  EXPECT_EQ(policy.use->origin.where, Rule::file(mine, 2, 1));
  EXPECT_THAT(policy_json(policy, {}), HasSubstr("\"use\""));
}

TEST_F(PolicyTest, AFinalUseStaysAgainstAnEmptyOne) {
  site("version: 1\nstacks: {mine: [{provider: udp}]}\nuse: [mine]\nfinal: [use]\n");
  const std::string mine = user("version: 1\nuse: []\n");
  const Policy policy = load();
  EXPECT_THAT(texts(policy), HasSubstr(mine + ":2:1: use is final in "));
  ASSERT_TRUE(policy.use);
  EXPECT_EQ(policy.use->value.size(), 1u);
}

TEST_F(PolicyTest, FilterJudgesStacks) {
  const UnitInfo tcp = unit("tcp"), udp = unit("udp"),
                 rxm = unit("rxm", WEFT_KIND_LAYER, "ofi_rxm");
  const auto allowed = [&](const char *text, StackUnits units) {
    return judge_filter(load({{"FI_PROVIDER", text}}), units).accepted;
  };
  EXPECT_TRUE(allowed("tcp", {&tcp}));
  EXPECT_TRUE(allowed("tcp", {&tcp, &rxm})) << "as in stock libfabric";
  EXPECT_TRUE(allowed("TCP", {&tcp}));
  EXPECT_FALSE(allowed("tcp", {&udp}));
  EXPECT_FALSE(allowed("tcp;ofi_rxm", {&tcp}));
  EXPECT_TRUE(allowed("tcp;ofi_rxm", {&tcp, &rxm}));
  EXPECT_TRUE(allowed("tcp;rxm", {&tcp, &rxm}));
  EXPECT_TRUE(allowed("ofi_rxm;tcp", {&tcp, &rxm}));
  EXPECT_TRUE(allowed("ofi_rxm", {&tcp, &rxm}));
  EXPECT_FALSE(allowed("^tcp", {&tcp, &rxm}));
  EXPECT_FALSE(allowed("^udp,tcp", {&tcp}));
  EXPECT_FALSE(allowed("^ofi_rxm", {&tcp, &rxm}));
  EXPECT_TRUE(allowed("^ofi_rxm", {&tcp}));
  EXPECT_TRUE(allowed("^", {&tcp}));
  EXPECT_TRUE(judge_filter(load(), {&tcp}).accepted);
}

TEST_F(PolicyTest, MistakesInTheEnvironmentRefuseOrAreIgnored) {
  const Policy filter = load({{"FI_PROVIDER", "tcp,^udp"}});
  EXPECT_EQ(
      filter.refusal.value().text,
      "FI_PROVIDER=tcp,^udp: column 5: '^' stands only at the very beginning, for the whole list");
  EXPECT_EQ(load({{"FI_HOOK", "a,b"}}).refusal->where, Rule::environment("FI_HOOK"));
  EXPECT_FALSE(load({{"FI_HOOK", ""}}).refusal);
  const Policy path = load({{"FI_PROVIDER_PATH", "/a::/b"}});
  EXPECT_FALSE(path.refusal);
  EXPECT_THAT(path.plugin_path, IsEmpty());
  EXPECT_THAT(texts(path), HasSubstr("column 4"));
}

TEST_F(PolicyTest, PluginPathsMostPreferredFirst) {
  site("version: 1\nplugins: {path: [/opt/site]}\n");
  user("version: 1\nplugins: {path: [/opt/user1, /opt/user2]}\n");
  const Policy policy = load({{"FI_PROVIDER_PATH", "/env/a:/env/b"}});
  std::vector<std::string> paths;
  for (const auto &one : policy.plugin_path) paths.push_back(one.value);
  EXPECT_THAT(paths, ElementsAre("/env/a", "/env/b", "/opt/user1", "/opt/user2", "/opt/site"));
}

TEST_F(PolicyTest, NamesAreCheckedAgainstWhatThereIs) {
  site(
      "version: 1\nproviders: {disable: [upd], enable: [tcp]}\nuse: [rmd]\n"
      "stacks: {rdm: [{layer: rxn}, {provider: tcp}]}\n"
      "params: {tcp: {conect_timeout_ms: 5, connect_timeout_ms: soon}, nosuch: {a: 1}}\n");
  const Policy policy = load({{"FI_TCP_CONNECT_TIMEOUT_SM", "1"},
                              {"FI_TCP_IFACE", "eth0"},
                              {"FI_OFI_RXM_CONNECT_TIMEOUT_MS", "x"},
                              {"FI_RXM_IFACE", "y"},
                              {"FI_UNIVERSE_SIZE", "4"},
                              {"FI_LOG_LEVEL", "warn"},
                              {"FI_SOCKETS_IFACE", "eth0"},
                              {"FI_PROVIDER", "tpc,tcp"}});
  const std::vector<UnitInfo> units = {unit("tcp"), unit("udp"),
                                       unit("rxm", WEFT_KIND_LAYER, "ofi_rxm")};
  std::vector<std::string> found;
  std::vector<Diagnostic> diagnostics = check_names(policy, units);
  for (const UnitInfo &one : units) (void)settings_of(policy, one, &diagnostics);
  for (const Diagnostic &one : diagnostics) found.push_back(one.text);
  EXPECT_THAT(
      found,
      UnorderedElementsAre(
          HasSubstr(
              "providers.disable names \"upd\", and there is no such unit: did you mean \"udp\"?"),
          HasSubstr("stack rdm names \"rxn\", and there is no such layer: did you mean \"rxm\"?"),
          HasSubstr("use names \"rmd\", and there is no such stack: did you mean \"rdm\"?"),
          HasSubstr("did you mean \"connect_timeout_ms\"?"),
          HasSubstr("params.tcp.connect_timeout_ms: \"soon\" is not an integer"),
          HasSubstr("params names \"nosuch\""),
          HasSubstr("FI_PROVIDER=tpc,tcp (column 1) names \"tpc\""),
          "FI_TCP_CONNECT_TIMEOUT_SM is no parameter of tcp: did you mean "
          "FI_TCP_CONNECT_TIMEOUT_MS?",
          HasSubstr("FI_OFI_RXM_CONNECT_TIMEOUT_MS: \"x\" is not an integer")));
}

TEST_F(PolicyTest, AWrongValueOfAVariableLeavesWhatHoldsWithoutIt) {
  const std::string path = site("version: 1\nparams: {tcp: {connect_timeout_ms: 7}}\n");
  const Policy policy = load({{"FI_TCP_CONNECT_TIMEOUT_MS", "-5"}, {"FI_TCP_IFACE", "b"}});
  UnitInfo tcp = unit("tcp");
  for (ParamInfo &param : tcp.params)
    if (param.name == "connect_timeout_ms") param.maximum = 10;
  std::vector<Diagnostic> diagnostics;
  std::vector<std::string> settings;
  for (const Setting &one : settings_of(policy, tcp, &diagnostics))
    settings.push_back(one.key + "=" + one.value);
  EXPECT_THAT(settings, ElementsAre("connect_timeout_ms=7", "iface=b"));
  ASSERT_EQ(diagnostics.size(), 1u);
  EXPECT_TRUE(diagnostics[0].error);
  EXPECT_EQ(diagnostics[0].text,
            "FI_TCP_CONNECT_TIMEOUT_MS: \"-5\" is out of range: 1 to 10; \"7\", from " + path +
                ":2:16, is used");
}

TEST_F(PolicyTest, AVariableThatIsNearToOneOfOursIsTold) {
  const Policy policy = load({{"FI_PROVIDERR", "tcp"},
                              {"FI_LOG_LEVLE", "warn"},
                              {"FI_HOKO", "trace"},
                              {"FI_PROVIDER_PATH", "/a"},
                              {"FI_UET_TX_SIZE", "1"},
                              {"FI_SHM_TX_SIZE", "1"},
                              {"FI_MR_CACHE_MONITOR", "disabled"},
                              {"FI_UNIVERSE_SIZE", "all"}});
  std::vector<std::string> found;
  for (const Diagnostic &one : check_names(policy, {unit("tcp")})) found.push_back(one.text);
  EXPECT_THAT(found,
              UnorderedElementsAre(
                  "FI_PROVIDERR is not known and has no effect: did you mean FI_PROVIDER?",
                  "FI_LOG_LEVLE is not known and has no effect: did you mean FI_LOG_LEVEL?",
                  "FI_HOKO is not known and has no effect: did you mean FI_HOOK?",
                  "FI_UNIVERSE_SIZE: \"all\" is not an integer from 1 to 4294967296; it counts as "
                  "not set"));
}

// One run reports all that is wrong with a file: its form, and the names that could be read.
TEST_F(PolicyTest, NamesOfAFileWithErrorsAreChecked) {
  site(
      "version: 1\nproviders: {disable: [upd], rnak: []}\nuse: [rmd, good]\n"
      "stacks: {rdm: [{layer: rxn, on_unavailable: perhaps}, {hook: tcp}, {provider: tcp, params: "
      "{conect_timeout_ms: 5}}], good: [{provider: udp}]}\n"
      "params: {tcp: {conect_timeout_ms: 5}}\n");
  const Policy policy = load({});
  EXPECT_EQ(policy.disable.size(), 0u) << "nothing of the file counts";
  EXPECT_FALSE(policy.use);
  const std::vector<UnitInfo> units = {unit("tcp"), unit("udp"),
                                       unit("rxm", WEFT_KIND_LAYER, "ofi_rxm"),
                                       unit("trace", WEFT_KIND_HOOK)};
  EXPECT_TRUE(check_names(policy, units).empty());
  const auto json = nlohmann::json::parse(policy_json(policy, units));
  std::vector<std::string> found;
  for (const auto &one : json["diagnostics"])
    found.push_back(one["severity"].get<std::string>() + ": " + one["text"].get<std::string>());
  EXPECT_THAT(
      found,
      UnorderedElementsAre(
          HasSubstr("rnak"), HasSubstr("perhaps"), "error: has errors: the file is left out",
          HasSubstr("warning: providers.disable names \"upd\""),
          HasSubstr("error: use names \"rmd\", and there is no such stack: did you mean \"rdm\"?"),
          HasSubstr("warning: stack rdm names \"rxn\", and there is no such layer: did you mean "
                    "\"rxm\"?"),
          "error: stack rdm names \"tcp\" as a hook, and it is a provider",
          HasSubstr("error: stack rdm: params names \"conect_timeout_ms\", and there is no such "
                    "parameter: did you mean \"connect_timeout_ms\"?"),
          HasSubstr("error: params.tcp names \"conect_timeout_ms\"")));
}

// Job scripts set variables of stock libfabric for any libfabric: a note, not a warning.
TEST_F(PolicyTest, VariablesOfStockLibfabricAreKnown) {
  const Policy policy = load({{"FI_OFI_RXM_DATA_AUTO_PROGRESS", "1"},
                              {"FI_OFI_RXM_DATA_AUTO_PROGRES", "1"},
                              {"FI_TCP_DISABLE_AUTO_PROGRESS", "1"},
                              {"FI_TCP_", "1"},
                              {"FI_VERBS_TX_SIZE", "1"}});
  const std::vector<UnitInfo> units = {unit("tcp"), unit("rxm", WEFT_KIND_LAYER, "ofi_rxm")};
  std::vector<std::string> notes, others;
  for (const Diagnostic &one : check_names(policy, units)) {
    (one.note ? notes : others).push_back(one.text);
    EXPECT_FALSE(one.error) << one.text;
  }
  EXPECT_THAT(notes, UnorderedElementsAre(HasSubstr("FI_OFI_RXM_DATA_AUTO_PROGRESS is a variable "
                                                    "of stock libfabric that has no effect on rxm"),
                                          HasSubstr("FI_TCP_DISABLE_AUTO_PROGRESS is a variable")));
  EXPECT_THAT(others, ElementsAre("FI_OFI_RXM_DATA_AUTO_PROGRES is no parameter of rxm"));
  EXPECT_FALSE(is_stock_variable("FI_TCP_"));
  EXPECT_FALSE(is_stock_variable(""));
  const auto json = nlohmann::json::parse(policy_json(policy, units));
  EXPECT_EQ(std::count_if(json["diagnostics"].begin(), json["diagnostics"].end(),
                          [](const auto &one) { return one["severity"] == "note"; }),
            2);
}

TEST_F(PolicyTest, VariablesOfUnitsWithDashesAndSecondNames) {
  EXPECT_THAT(variables_of(unit("hook-trace", WEFT_KIND_HOOK), "buffer_size"),
              ElementsAre("FI_HOOK_TRACE_BUFFER_SIZE"));
  EXPECT_THAT(variables_of(unit("rxm", WEFT_KIND_LAYER, "ofi_rxm"), "tx_size"),
              ElementsAre("FI_RXM_TX_SIZE", "FI_OFI_RXM_TX_SIZE"));
}

// A unit has two names; who uses the other one does not get around the site.
// What stands at one place of a stack is stronger than what holds everywhere, but not than what a
// weaker source has made final.
TEST_F(PolicyTest, AFinalParameterStandsInTheStacksOfStrongerSources) {
  const std::string stack = "stacks: {s: [{provider: tcp, params: {iface: here}}]}\n";
  struct Case {
    const char *name;
    std::string site, user;
    bool counts;
  };
  const std::string fixed = "params: {tcp: {iface: site}}\nfinal: [params.tcp.iface]\n";
  const Case cases[] = {
      {"not final", "params: {tcp: {iface: site}}\n", stack, true},
      {"final", fixed, stack, false},
      {"the unit is final", "final: [params.tcp]\n", stack, false},
      {"another parameter is", "final: [params.tcp.connect_timeout_ms]\n", stack, true},
      {"of the same source", fixed + stack, "", true},
  };
  for (const Case &c : cases) {
    SCOPED_TRACE(c.name);
    const std::string from_site = site("version: 1\n" + c.site);
    const std::string from_user = user("version: 1\n" + c.user);
    const Policy policy = load();
    const auto spec = std::ranges::find(policy.stacks, "s", &StackSpec::name);
    ASSERT_NE(spec, policy.stacks.end());
    const std::vector<Setting> settings =
        settings_at(policy, unit("tcp"), spec->elements[0].params);
    EXPECT_EQ(!settings.empty() && settings.back().value == "here", c.counts);
    std::string told;
    for (const Diagnostic &one : check_names(policy, {unit("tcp")}))
      told += text_of(one.where) + ": " + one.text + "\n";
    if (c.counts)
      EXPECT_EQ(told, "");
    else
      EXPECT_THAT(told,
                  AllOf(HasSubstr(from_user + ":2:"), HasSubstr("iface is final in " + from_site)));
  }
  const Setting asked{"iface", "x", Rule::call("control socket")};
  site("version: 1\n" + fixed);
  EXPECT_NE(overruled_by(load(), unit("tcp"), asked), nullptr) << "a hook attached to a live job";
  const Setting built_in{"iface", "x", Rule::built_in()};
  EXPECT_EQ(overruled_by(load(), unit("tcp"), built_in), nullptr);
}

TEST_F(PolicyTest, AParameterIsOneByBothNamesOfItsUnit) {
  const UnitInfo rxm = unit("rxm", WEFT_KIND_LAYER, "ofi_rxm");
  const std::string names[] = {"rxm", "ofi_rxm"};
  for (const std::string &weak : names) {
    for (const std::string &strong : names) {
      const std::string mine =
          user("version: 1\nparams: {" + strong + ": {iface: mine, connect_timeout_ms: 7}}\n");
      const std::string set = "version: 1\nparams: {" + weak + ": {iface: site}}\n";
      site(set);
      std::vector<Setting> settings = settings_of(load(), rxm);
      ASSERT_FALSE(settings.empty());
      EXPECT_EQ(settings.back().value, "mine") << weak << " " << strong;

      site(set + "final: [params." + weak + ".iface]\n");
      const Policy policy = load({{"FI_RXM_IFACE", "a"}, {"FI_OFI_RXM_IFACE", "b"}});
      std::vector<Diagnostic> told = policy.diagnostics;
      settings = settings_of(policy, rxm, &told);
      ASSERT_EQ(settings.size(), 2u) << weak << " " << strong;
      EXPECT_EQ(settings[0].value, "7");
      EXPECT_EQ(settings[1].value, "site") << weak << " " << strong;
      ASSERT_EQ(told.size(), 3u);
      EXPECT_EQ(told[0].where.name, mine);
      EXPECT_THAT(told[0].text, HasSubstr("params." + strong + ".iface is final in "));
    }
  }
}

TEST_F(PolicyTest, JsonTellsOrigins) {
  const std::string path = site(
      "version: 1\nproviders: {disable: [udp]}\nparams: {tcp: {iface: eth0}}\n"
      "use: [rdm]\nstacks: {rdm: [{hook: trace}, {provider: tcp}]}\n"
      "final: [providers.disable]\n");
  const Policy policy =
      load({{"FI_PROVIDER", "^shm"}, {"FI_HOOK", "trace"}, {"FI_TCP_CONNECT_TIMEOUT_MS", "9"}});
  const std::vector<UnitInfo> units = {unit("tcp"), unit("udp"), unit("trace", WEFT_KIND_HOOK)};
  const auto json = nlohmann::json::parse(policy_json(policy, units));
  EXPECT_EQ(json["files"][0]["path"], path);
  EXPECT_EQ(json["files"][0]["used"], true);
  const auto value = [&](const std::string &key) {
    for (const auto &one : json["values"]) {
      if (one["key"] == key) return one;
    }
    return nlohmann::json();
  };
  EXPECT_EQ(value("providers.disable")["value"], "udp");
  EXPECT_EQ(value("providers.disable")["origin"], path + ":2:23");
  EXPECT_EQ(value("providers.disable")["final"], true);
  EXPECT_EQ(value("params.tcp.iface")["value"], "eth0");
  EXPECT_EQ(value("params.tcp.connect_timeout_ms")["value"], "9");
  EXPECT_EQ(value("params.tcp.connect_timeout_ms")["origin"],
            "environment FI_TCP_CONNECT_TIMEOUT_MS");
  EXPECT_EQ(value("params.udp.connect_timeout_ms")["origin"], "default");
  EXPECT_EQ(value("filter.exclude")["value"][0], "shm");
  EXPECT_EQ(value("hooks")["origin"], "environment FI_HOOK");
  EXPECT_EQ(value("stacks.rdm")["value"][0]["hook"], "trace");
  EXPECT_EQ(value("plugins.unprobed")["origin"], "built-in");
  EXPECT_EQ(json["diagnostics"].size(), 1u) << json["diagnostics"];  // no unit shm
}

}  // namespace
}  // namespace weft
