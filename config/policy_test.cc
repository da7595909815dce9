// SPDX-License-Identifier: BSD-2-Clause
// What is accepted in a policy file, and what the reader makes of it.
#include "config/test_reader.h"

namespace weft::config {
namespace {

using ::testing::ElementsAre;

Rule at(uint32_t line, uint32_t column) {
  return Rule::file(kPath, line, column);
}

// Line and column in the file: "3:13".
std::string place(const Origin &origin) {
  EXPECT_EQ(origin.where, at(origin.where.line, origin.where.column));
  return std::to_string(origin.where.line) + ":" + std::to_string(origin.where.column);
}

std::vector<std::string> texts(const std::vector<Sourced<std::string>> &names) {
  std::vector<std::string> out;
  for (const auto &name : names) out.push_back(name.value + " " + place(name.origin));
  return out;
}

std::vector<std::string> texts(const std::vector<UnitParam> &params) {
  std::vector<std::string> out;
  for (const auto &[unit, key, value] : params)
    out.push_back(unit + "." + key + "=" + value.value + " " + place(value.origin));
  return out;
}

TEST(Policy, VersionAloneSaysNothing) {
  const auto policy = good_policy("");
  EXPECT_FALSE(policy->enable);
  EXPECT_FALSE(policy->use);
  EXPECT_TRUE(policy->disable.empty() && policy->plugin_path.empty() &&
              policy->final_keys.empty() && policy->ranks.empty() && policy->stacks.empty() &&
              policy->params.empty());
  EXPECT_FALSE(policy->control_allow);
  EXPECT_FALSE(policy->unprobed_allow);
  EXPECT_FALSE(policy->probe_budget_ms);
}

TEST(Policy, TheDesignsExample) {
  const auto policy = read_policy(R"(version: 1
providers:
  disable: [udp]
  rank:
    - {match: {provider: verbs, netdev: "ib*"}, rank: 900}
    - {match: {provider: tcp, subnet: 172.17.0.0/16}, enable: false}
stacks:                       # from the application down to the wire
  rdm: [{layer: rxm}, {provider: verbs}]
  traced: [{hook: trace}, {layer: rxm, params: {eager_size: 16K}}, {hook: profile}, {provider: tcp}]
use: [rdm, traced]
params: {tcp: {interfaces: ["hsn*", "!docker*"], connect_timeout_ms: 5000}}
)");
  ASSERT_EQ(policy.code, 0) << ::testing::PrintToString(policy.placed());
  EXPECT_THAT(texts(policy->disable), ElementsAre("udp 3:13"));
  ASSERT_EQ(policy->ranks.size(), 2u);
  EXPECT_EQ(policy->ranks[0].provider, "verbs");
  EXPECT_EQ(policy->ranks[0].netdev, "ib*");
  EXPECT_EQ(policy->ranks[0].subnet, "");
  EXPECT_EQ(policy->ranks[0].rank, 900);
  EXPECT_FALSE(policy->ranks[0].enable);
  EXPECT_EQ(policy->ranks[0].origin.where, at(5, 7));
  EXPECT_EQ(policy->ranks[1].subnet, "172.17.0.0/16");
  EXPECT_FALSE(policy->ranks[1].rank);
  EXPECT_EQ(policy->ranks[1].enable, false);
  ASSERT_EQ(policy->stacks.size(), 2u);
  EXPECT_EQ(policy->stacks[0].name, "rdm");
  EXPECT_EQ(policy->stacks[0].origin.where, at(8, 3));
  ASSERT_EQ(policy->stacks[0].elements.size(), 2u);
  const StackSpec &traced = policy->stacks[1];
  ASSERT_EQ(traced.elements.size(), 4u);
  EXPECT_EQ(traced.elements[0].kind, uint32_t{WEFT_KIND_HOOK});
  EXPECT_EQ(traced.elements[0].name, "trace");
  EXPECT_EQ(traced.elements[1].kind, uint32_t{WEFT_KIND_LAYER});
  EXPECT_EQ(traced.elements[1].name, "rxm");
  ASSERT_EQ(traced.elements[1].params.size(), 1u);
  EXPECT_EQ(traced.elements[1].params[0].key, "eager_size");
  EXPECT_EQ(traced.elements[1].params[0].value, "16K");
  EXPECT_EQ(traced.elements[1].params[0].where, at(9, 49));
  EXPECT_EQ(traced.elements[1].where, at(9, 27));
  EXPECT_EQ(traced.elements[3].kind, uint32_t{WEFT_KIND_PROVIDER});
  EXPECT_TRUE(traced.elements[3].params.empty());
  ASSERT_TRUE(policy->use);
  EXPECT_EQ(policy->use->origin.where, at(10, 7));
  EXPECT_THAT(texts(policy->use->value), ElementsAre("rdm 10:7", "traced 10:12"));
  EXPECT_THAT(texts(policy->params), ElementsAre("tcp.interfaces=hsn*,!docker* 11:16",
                                                 "tcp.connect_timeout_ms=5000 11:50"));
}

TEST(Policy, AnEmptyAllowListIsAnAllowList) {
  const auto policy = good_policy("providers: {enable: []}\n");
  ASSERT_TRUE(policy->enable);
  EXPECT_EQ(policy->enable->value.size(), 0u);
}

TEST(Policy, Enable) {
  const auto policy = good_policy("providers: {enable: [tcp, ofi_rxm]}\n");
  ASSERT_TRUE(policy->enable);
  EXPECT_THAT(texts(policy->enable->value), ElementsAre("tcp 2:22", "ofi_rxm 2:27"));
}

TEST(Policy, RankRuleTakesEveryMatch) {
  const auto policy = good_policy(R"(providers:
  rank:
    - match:
        provider: "t?p"
        netdev: "[!a-c]*"
        subnet: fd00::/8
        ep_type: dgram
        hostname: node[0-9]
        executable: "*/lammps"
      rank: -5
      enable: yes
    - {match: {}, enable: off}
)");
  ASSERT_EQ(policy->ranks.size(), 2u);
  const RankRule &rule = policy->ranks[0];
  EXPECT_EQ(rule.provider, "t?p");
  EXPECT_EQ(rule.netdev, "[!a-c]*");
  EXPECT_EQ(rule.subnet, "fd00::/8");
  EXPECT_EQ(rule.ep_type, "dgram");
  EXPECT_EQ(rule.hostname, "node[0-9]");
  EXPECT_EQ(rule.executable, "*/lammps");
  EXPECT_EQ(rule.rank, -5);
  EXPECT_EQ(rule.enable, true);
  EXPECT_EQ(rule.origin.where, at(4, 7));
  EXPECT_EQ(policy->ranks[1].provider, "");
  EXPECT_EQ(policy->ranks[1].enable, false);
}

TEST(Policy, BooleansInEveryForm) {
  for (const char *word : {"true", "yes", "on", "1"})
    EXPECT_EQ(good_policy(std::string("providers: {rank: [{match: {}, enable: ") + word + "}]}\n")
                  ->ranks[0]
                  .enable,
              true)
        << word;
  for (const char *word : {"false", "no", "off", "0"})
    EXPECT_EQ(good_policy(std::string("providers: {rank: [{match: {}, enable: ") + word + "}]}\n")
                  ->ranks[0]
                  .enable,
              false)
        << word;
}

TEST(Policy, OnUnavailable) {
  const auto policy = good_policy(
      "stacks: {a: [{hook: trace, on_unavailable: skip}, {layer: rxm, on_unavailable: fail},"
      " {provider: tcp}]}\n");
  EXPECT_TRUE(policy->stacks[0].elements[0].skip_if_unavailable);
  EXPECT_FALSE(policy->stacks[0].elements[1].skip_if_unavailable);
  EXPECT_FALSE(policy->stacks[0].elements[2].skip_if_unavailable);
}

TEST(Policy, ValuesStayText) {
  const auto policy = good_policy(
      "params:\n  tcp: {a: 16K, b: 0x10, c: yes, d: \"x, y\", e: '', f: [], g: [1, two], h: "
      "1.50}\n");
  EXPECT_THAT(texts(policy->params),
              ElementsAre("tcp.a=16K 3:9", "tcp.b=0x10 3:17", "tcp.c=yes 3:26", "tcp.d=x, y 3:34",
                          "tcp.e= 3:45", "tcp.f= 3:52", "tcp.g=1,two 3:59", "tcp.h=1.50 3:72"));
}

TEST(Policy, Plugins) {
  const auto policy = good_policy(
      "plugins:\n  path: [/opt/a, \"/opt/b c\"]\n  unprobed: deny\n  probe_budget_ms: 250\n");
  EXPECT_THAT(texts(policy->plugin_path), ElementsAre("/opt/a 3:10", "/opt/b c 3:18"));
  ASSERT_TRUE(policy->unprobed_allow);
  EXPECT_FALSE(policy->unprobed_allow->value);
  EXPECT_EQ(policy->unprobed_allow->origin.where, at(4, 3));
  ASSERT_TRUE(policy->probe_budget_ms);
  EXPECT_EQ(policy->probe_budget_ms->value, 250);
  EXPECT_EQ(policy->probe_budget_ms->origin.where, at(5, 3));
  EXPECT_TRUE(good_policy("plugins: {unprobed: allow}\n")->unprobed_allow.value().value);
}

TEST(Policy, Control) {
  const auto policy = good_policy("control: deny\n");
  ASSERT_TRUE(policy->control_allow);
  EXPECT_FALSE(policy->control_allow->value);
  EXPECT_EQ(policy->control_allow->origin.where, at(2, 1));
  EXPECT_TRUE(good_policy("control: allow\n")->control_allow.value().value);
  EXPECT_FALSE(good_policy("use: [a]\n")->control_allow);
}

TEST(Policy, Local) {
  const auto policy = good_policy("local: shm\n");
  ASSERT_TRUE(policy->local_shm);
  EXPECT_TRUE(policy->local_shm->value);
  EXPECT_EQ(policy->local_shm->origin.where, at(2, 1));
  EXPECT_FALSE(good_policy("local: none\n")->local_shm.value().value);
  EXPECT_FALSE(good_policy("use: [a]\n")->local_shm);
}

TEST(Policy, AnEmptyUseIsSaidAllTheSame) {
  const auto policy = good_policy("use: []\n");
  ASSERT_TRUE(policy->use);
  EXPECT_EQ(policy->use.value().value.size(), 0u);
  EXPECT_EQ(policy->use->origin.where, at(2, 1));
}

TEST(Policy, FinalTakesEveryKey) {
  const auto policy = good_policy(R"(final:
  - providers
  - providers.enable
  - providers.disable
  - providers.rank
  - stacks
  - stacks.rdm
  - use
  - params
  - params.tcp
  - params.tcp.interfaces
  - plugins
  - plugins.path
  - plugins.unprobed
  - plugins.probe_budget_ms
  - control
)");
  EXPECT_EQ(policy->final_keys.size(), 15u);
  EXPECT_EQ(policy->final_keys[9].value, "params.tcp.interfaces");
  EXPECT_EQ(policy->final_keys[9].origin.where, at(12, 5));
}

TEST(Policy, TwiceInAListIsAWarning) {
  const auto policy = read_policy(
      "version: 1\nproviders: {disable: [udp, shm,\n  udp]}\nuse: [a, a]\n"
      "plugins: {path: [/a, /a]}\nfinal: [use, use]\n");
  EXPECT_EQ(policy.code, 0);
  EXPECT_THAT(policy.placed(),
              ElementsAre("3:3 'udp' is given twice: it stands in line 2 already",
                          "4:10 'a' is given twice: it stands in line 4 already",
                          "5:22 '/a' is given twice: it stands in line 5 already",
                          "6:14 'use' is given twice: it stands in line 6 already"));
  for (const Diagnostic &d : policy.diagnostics) EXPECT_EQ(d.severity, uint32_t{WEFT_DIAG_WARNING});
}

}  // namespace
}  // namespace weft::config
