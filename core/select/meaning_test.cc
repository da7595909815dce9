// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/meaning.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/select/test_policy.h"

namespace weft {
namespace {

TEST_F(PolicyTest, ValuesOfOneEffectHaveOneMeaning) {
  std::vector<UnitInfo> units = {unit("tcp"), unit("udp"), unit("rxm", WEFT_KIND_LAYER, "ofi_rxm"),
                                 unit("coll", WEFT_KIND_LAYER, "off_coll")};
  for (UnitInfo &one : units) {
    one.params.push_back({.type = WEFT_TYPE_SIZE, .name = "size"});
    one.params.push_back({.type = WEFT_TYPE_BOOL, .name = "flag"});
  }
  // The meaning of the value of a key.
  const auto meaning = [&](const std::string &key, const std::string &text) {
    site("version: 1\n" + text + "\n");
    nlohmann::json all = nlohmann::json::array();
    const auto policy = nlohmann::json::parse(policy_json(load(), units));
    for (const auto &value : policy["values"])
      if (value["key"] == key) all.push_back(value.value("means", value["value"]));
    EXPECT_EQ(all.size(), 1u) << key << " of " << text;
    return all.dump();
  };
  struct Row {
    const char *key, *text, *same, *other;
  };
  const Row kRows[] = {
      {"params.tcp.size", "params: {tcp: {size: 16K}}", "params: {tcp: {size: 16384}}",
       "params: {tcp: {size: 16000}}"},
      {"params.rxm.flag", "params: {rxm: {flag: yes}}", "params: {ofi_rxm: {flag: On}}",
       "params: {rxm: {flag: no}}"},
      {"params.tcp.connect_timeout_ms", "params: {tcp: {connect_timeout_ms: 16}}",
       "params: {tcp: {connect_timeout_ms: 0x10}}", "params: {tcp: {connect_timeout_ms: soon}}"},
      {"params.tcp.iface", "params: {tcp: {iface: 16K}}", "params: {tcp: {iface: \"16K\"}}",
       "params: {tcp: {iface: 16384}}"},
      {"providers.enable", "providers: {enable: [tcp, rxm, udp]}",
       "providers: {enable: [udp, tcp, ofi_rxm, tcp]}", "providers: {enable: [udp]}"},
      {"providers.disable", "providers: {disable: [rxm]}", "providers: {disable: [ofi_rxm]}",
       "providers: {disable: [rxn]}"},
      {"providers.rank",
       "providers: {rank: [{match: {provider: \"tcp;rxm\", subnet: \"fd00::/8\"}, rank: 1}]}",
       "providers: {rank: [{match: {subnet: \"fd00:0::/8\", provider: \"tcp;ofi_rxm\"}, rank: 1}]}",
       "providers: {rank: [{match: {provider: \"tcp;rx*\", subnet: \"fd00::/8\"}, rank: 1}]}"},
      {"providers.rank", "providers: {rank: [{match: {provider: \"tcp;rxm;off_coll\"}, rank: 1}]}",
       "providers: {rank: [{match: {provider: \"TCP;OFI_RXM;coll\"}, rank: 1}]}",
       "providers: {rank: [{match: {provider: \"udp;rxm;coll\"}, rank: 1}]}"},
      {"stacks.a", "stacks: {a: [{layer: rxm, params: {size: 1K, flag: 1}}, {provider: tcp}]}",
       "stacks: {a: [{layer: ofi_rxm, params: {flag: yes, size: 1024}}, {provider: tcp}]}",
       "stacks: {a: [{layer: rxm, params: {size: 1K}}, {provider: tcp}]}"},
      {"use", "use: [a, b]", "use: [ a, b ]", "use: [b, a]"},
      {"plugins.path", "plugins: {path: [/opt/a]}", "plugins: {path: [/opt/a/]}",
       "plugins: {path: [/opt/b]}"},
      {"final", "final: [params.rxm.size]", "final: [params.ofi_rxm.size]",
       "final: [params.rxm.flag]"}};
  for (const Row &row : kRows) {
    EXPECT_EQ(meaning(row.key, row.text), meaning(row.key, row.same)) << row.text;
    EXPECT_NE(meaning(row.key, row.text), meaning(row.key, row.other)) << row.text;
  }
}

}  // namespace
}  // namespace weft
