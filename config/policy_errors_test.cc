// SPDX-License-Identifier: BSD-2-Clause
// What is wrong in a policy file, and where.
#include "config/test_reader.h"

namespace weft::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// After an error the reader still returns what it could read, so that its names can be checked.
TEST(PolicyErrors, TheRestIsReadAllTheSame) {
  const auto answer = read_policy(
      "version: 1\nproviders: {disable: [upd], rnak: []}\nuse: [a]\n"
      "stacks: {s: [{layer: rxn, on_unavailable: perhaps}, {provdier: x}, {hook: trace}]}\n"
      "params: {tcp: {key: 1}}\n");
  EXPECT_EQ(answer.code, -FI_EINVAL);
  ASSERT_NE(answer.view, nullptr);
  ASSERT_EQ(answer->disable.size(), 1u);
  EXPECT_EQ(answer->disable[0].value, "upd");
  EXPECT_EQ(answer->use.value().value.size(), 1u);
  ASSERT_EQ(answer->stacks.size(), 1u);
  ASSERT_EQ(answer->stacks[0].elements.size(), 2u);
  EXPECT_EQ(answer->stacks[0].elements[0].name, "rxn");
  EXPECT_EQ(answer->stacks[0].elements[1].name, "trace");
  EXPECT_EQ(answer->params.size(), 1u);
  EXPECT_EQ(read_policy("version: [1\n").view, nullptr) << "no YAML at all";
}

TEST(PolicyErrors, FullText) {
  const auto answer = read_policy("version: 1\n# sites\nprovidrs: {}\n");
  ASSERT_EQ(answer.diagnostics.size(), 1u);
  EXPECT_EQ(answer.diagnostics[0].text,
            "unknown key 'providrs' (line 3, column 1): did you mean 'providers'?");
  EXPECT_EQ(answer.diagnostics[0].where.line, 3u);
  EXPECT_EQ(answer.diagnostics[0].where.column, 1u);
  EXPECT_STREQ(answer.diagnostics[0].where.file, kPath);
}

TEST(PolicyErrors, AllAreReportedInTheOrderOfTheFile) {
  EXPECT_THAT(policy_errors(R"(version: 2
providers:
  disbale: [udp]
  rank:
    - {match: {netdevs: ib0}, rank: high}
stacks:
  a: []
use: rdm
params: {tcp: {interfaces: [a, "b,c"]}}
)"),
              ElementsAre("1:10 version 2 of this format is unknown: this release reads version 1",
                          "3:3 unknown key 'disbale': did you mean 'disable'?",
                          "5:16 unknown key 'netdevs': did you mean 'netdev'?",
                          "5:37 'rank' must be a whole number, not 'high': write decimal digits, "
                          "without quotes",
                          "7:6 stack 'a' is empty: list its elements from the application down to "
                          "the wire, the provider last",
                          "8:6 'use' must be a list, not text: write [a, b]",
                          "9:32 an entry of 'interfaces' has a comma: 'b,c': commas separate "
                          "entries; write two entries"));
}

TEST(PolicyErrors, Version) {
  EXPECT_THAT(policy_errors(""),
              ElementsAre("1:1 the file says nothing: begin it with 'version: 1'"));
  EXPECT_THAT(policy_errors("# only a comment\n\n"),
              ElementsAre("1:1 the file says nothing: begin it with 'version: 1'"));
  EXPECT_THAT(policy_errors("\nuse: []\n"),
              ElementsAre("2:1 'version' is missing: begin the file with 'version: 1'"));
  EXPECT_THAT(policy_errors("version: \"1\"\n"),
              ElementsAre("1:10 'version' must be a whole number, not '1': write decimal digits, "
                          "without quotes"));
  EXPECT_THAT(policy_errors("version: 1.0\n"),
              ElementsAre("1:10 'version' must be a whole number, not '1.0': write decimal digits, "
                          "without quotes"));
  EXPECT_THAT(policy_errors("version: 0\n"),
              ElementsAre("1:10 'version' is out of range: '0': it may be 1 to 1000000"));
  EXPECT_THAT(policy_errors("version:\n"),
              ElementsAre("1:1 'version' must be a number, not nothing: give a value or remove the "
                          "key"));
  EXPECT_THAT(policy_errors("[version, 1]\n"),
              ElementsAre("1:1 the file must be a map, not a list: write 'key: value' lines"));
  EXPECT_THAT(policy_errors("version 1\n"),
              ElementsAre("1:1 the file must be a map, not text: write 'key: value' lines"));
}

TEST(PolicyErrors, UnknownWords) {
  EXPECT_THAT(body_errors("Use: []\n"), ElementsAre("2:1 unknown key 'Use': did you mean 'use'?"));
  EXPECT_THAT(body_errors("banana: []\n"),
              ElementsAre("2:1 unknown key 'banana': known here: 'version', 'providers', 'stacks', "
                          "'use', 'local', 'params', 'plugins', 'control', 'final'"));
  EXPECT_THAT(body_errors("<<: {}\n"),
              ElementsAre(HasSubstr("2:1 unknown key '<<': known here: ")));
  EXPECT_THAT(body_errors("providers: {rnak: []}\n"),
              ElementsAre("2:13 unknown key 'rnak': did you mean 'rank'?"));
  EXPECT_THAT(body_errors("providers: {rank: [{macth: {}, match: {}, rank: 1}]}\n"),
              ElementsAre("2:21 unknown key 'macth': did you mean 'match'?"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {ep_type: rmd}, rank: 1}]}\n"),
              ElementsAre("2:38 'match.ep_type' cannot be 'rmd': did you mean 'rdm'?"));
  EXPECT_THAT(body_errors("stacks: {a: [{hok: x}, {provider: tcp, on_unavailable: skp}]}\n"),
              ElementsAre("2:14 an element without a unit: add 'provider: NAME', 'layer: NAME' or "
                          "'hook: NAME'",
                          "2:15 unknown key 'hok': did you mean 'hook'?",
                          "2:56 'on_unavailable' cannot be 'skp': did you mean 'skip'?"));
  EXPECT_THAT(
      body_errors("plugins: {paths: [], unprobed: denied}\n"),
      ElementsAre("2:11 unknown key 'paths': did you mean 'path'?",
                  "2:32 'plugins.unprobed' cannot be 'denied': known here: 'allow', 'deny'"));
}

TEST(PolicyErrors, DuplicateKeys) {
  EXPECT_THAT(
      body_errors("use: []\nparams: {tcp: {a: 1, a: 2}}\nuse: []\n"),
      ElementsAre("3:22 duplicate key 'a': it was given in line 3 already; keep one of them",
                  "4:1 duplicate key 'use': it was given in line 2 already; keep one of "
                  "them"));
}

TEST(PolicyErrors, WrongTypes) {
  EXPECT_THAT(body_errors("providers: [tcp]\n"),
              ElementsAre("2:12 'providers' must be a map, not a list: write providers: {disable: "
                          "[udp]}"));
  EXPECT_THAT(body_errors("providers:\n  disable: udp\n"),
              ElementsAre("3:12 'providers.disable' must be a list, not text: write [a, b]"));
  EXPECT_THAT(body_errors("providers:\n  disable:\n"),
              ElementsAre("3:3 'providers.disable' must be a list, not nothing: write [a, b]"));
  EXPECT_THAT(body_errors("providers: {disable: [[udp], {a: b}, ~]}\n"),
              ElementsAre("2:23 an entry of 'providers.disable' must be text, not a list: write a "
                          "name",
                          "2:30 an entry of 'providers.disable' must be text, not a map: write a "
                          "name",
                          "2:38 an entry of 'providers.disable' must be text, not nothing: write a "
                          "name"));
  EXPECT_THAT(body_errors("use:\n  -\n  - a\n"),
              ElementsAre("3:3 an entry of 'use' must be text, not nothing: write a name"));
  EXPECT_THAT(body_errors("providers: {rank: {}}\n"),
              ElementsAre("2:19 'providers.rank' must be a list, not a map: write [{match: "
                          "{provider: verbs}, rank: 900}]"));
  EXPECT_THAT(body_errors("providers: {rank: [tcp]}\n"),
              ElementsAre("2:20 a rule of 'providers.rank' must be a map, not text: write {match: "
                          "{provider: verbs}, rank: 900}"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: tcp, rank: 1}]}\n"),
              ElementsAre("2:28 'match' must be a map, not text: write match: {provider: verbs}"));
  EXPECT_THAT(
      body_errors("providers: {rank: [{match: {netdev: [a]}, rank: 1}]}\n"),
      ElementsAre("2:37 'match.netdev' must be text, not a list: write it as one word or in "
                  "quotes"));
  EXPECT_THAT(body_errors("stacks: []\n"),
              ElementsAre("2:9 'stacks' must be a map, not a list: write stacks: {rdm: [{layer: "
                          "rxm}, {provider: verbs}]}"));
  EXPECT_THAT(body_errors("stacks: {a: tcp}\n"),
              ElementsAre("2:13 stack 'a' must be a list, not text: write [{layer: rxm}, "
                          "{provider: verbs}]"));
  EXPECT_THAT(body_errors("stacks: {a: [tcp]}\n"),
              ElementsAre("2:14 an element of a stack must be a map, not text: write {provider: "
                          "NAME}, {layer: NAME} or {hook: NAME}"));
  EXPECT_THAT(body_errors("stacks: {a: [{provider: [tcp]}]}\n"),
              ElementsAre("2:25 'provider' must be a name, not a list: write it as one word or in "
                          "quotes"));
  EXPECT_THAT(body_errors("stacks: {a: [{provider: tcp, params: [a]}]}\n"),
              ElementsAre("2:38 'params' must be a map, not a list: write {key: value}"));
  EXPECT_THAT(body_errors("use: {a: b}\n"),
              ElementsAre("2:6 'use' must be a list, not a map: write [a, b]"));
  EXPECT_THAT(
      body_errors("params: tcp\n"),
      ElementsAre("2:9 'params' must be a map, not text: write params: {tcp: {key: value}}"));
  EXPECT_THAT(body_errors("params: {tcp: 5}\n"),
              ElementsAre("2:15 'params.tcp' must be a map, not text: write {key: value}"));
  EXPECT_THAT(body_errors("params: {tcp: {a: {b: c}, d: ~, e: [[f]], g: [~]}}\n"),
              ElementsAre("2:19 'a' must be text, a number or a list, not a map: write it as one "
                          "word or in quotes",
                          "2:27 'd' must be text, a number or a list, not nothing: give a value or "
                          "remove the key",
                          "2:37 an entry of 'e' must be text, not a list: write it as one word or "
                          "in quotes",
                          "2:47 an entry of 'g' must be text, not nothing: give a value or remove "
                          "the key"));
  EXPECT_THAT(body_errors("plugins: /opt\n"),
              ElementsAre("2:10 'plugins' must be a map, not text: write plugins: {path: "
                          "[/opt/vendor/lib/weft]}"));
  EXPECT_THAT(body_errors("plugins: {path: /opt}\n"),
              ElementsAre("2:17 'plugins.path' must be a list, not text: write "
                          "[/opt/vendor/lib/weft]"));
  EXPECT_THAT(
      body_errors("plugins: {unprobed: [deny]}\n"),
      ElementsAre("2:21 'plugins.unprobed' must be a word, not a list: write it as one word "
                  "or in quotes"));
  EXPECT_THAT(body_errors("final: use\n"),
              ElementsAre("2:8 'final' must be a list, not text: write [providers.disable]"));
}

TEST(PolicyErrors, Names) {
  EXPECT_THAT(
      body_errors("providers: {disable: [UDP, 'a b', '', \"tcp;ofi_rxm\"]}\n"),
      ElementsAre("2:23 an entry of 'providers.disable' 'UDP' is no name: names are made of "
                  "a-z 0-9 - _",
                  "2:28 an entry of 'providers.disable' 'a b' is no name: names are made of "
                  "a-z 0-9 - _",
                  "2:35 an entry of 'providers.disable' is empty: give a name or remove it",
                  "2:39 an entry of 'providers.disable' 'tcp;ofi_rxm' is no name: names are "
                  "made of a-z 0-9 - _"));
  EXPECT_THAT(body_errors("stacks: {a.b: [{provider: tcp}]}\n"),
              ElementsAre("2:10 the stack 'a.b' is no name: names are made of A-Z a-z 0-9 - _"));
  EXPECT_THAT(body_errors("stacks: {a: [{provider: TCP}]}\n"),
              ElementsAre("2:25 'provider' 'TCP' is no name: names are made of a-z 0-9 - _"));
  EXPECT_THAT(body_errors("params: {Tcp: {Port-x: 1}}\n"),
              ElementsAre("2:10 the unit 'Tcp' is no name: names are made of a-z 0-9 - _",
                          "2:16 the parameter 'Port-x' is no name: names are made of a-z 0-9 _"));
  EXPECT_THAT(body_errors("use: [" + std::string(64, 'x') + "]\n"),
              ElementsAre("2:7 an entry of 'use' '" + std::string(40, 'x') +
                          "...' has 64 characters: the most is 63"));
  EXPECT_EQ(good_policy("use: [" + std::string(63, 'x') + "]\n")->use.value().value.size(), 1u);
}

TEST(PolicyErrors, NothingThatATerminalObeysIsRepeated) {
  EXPECT_THAT(body_errors("\"a\\e[31m\\x7f\\u009b\": 1\n"),
              ElementsAre(HasSubstr("2:1 unknown key 'a\\x1b[31m\\x7f\\xc2\\x9b': known here: ")));
  // Clipped between characters, not inside one.
  EXPECT_THAT(body_errors("use: [" + std::string(39, 'a') + "éé]\n"),
              ElementsAre("2:7 an entry of 'use' '" + std::string(39, 'a') +
                          "...' is no name: names are made of A-Z a-z 0-9 - _"));
}

TEST(PolicyErrors, EnabledAndDisabled) {
  EXPECT_THAT(
      body_errors("providers:\n  disable: [tcp, udp]\n  enable: [shm, tcp]\n"),
      ElementsAre("3:13 'tcp' is both enabled and disabled: it is enabled in line 4; remove "
                  "it from one of the lists"));
}

TEST(PolicyErrors, RankRules) {
  EXPECT_THAT(body_errors("providers: {rank: [{rank: 5}]}\n"),
              ElementsAre("2:20 a rule without 'match': say what it is for; 'match: {}' is for "
                          "everything"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {}}]}\n"),
              ElementsAre("2:20 a rule that changes nothing: add 'rank: N' or 'enable: false'"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {}, rank: 2147483648}]}\n"),
              ElementsAre("2:38 'rank' is out of range: '2147483648': it may be -2147483648 to "
                          "2147483647"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {}, rank: 99999999999999999999}]}\n"),
              ElementsAre("2:38 'rank' is out of range: '99999999999999999999': it may be "
                          "-2147483648 to 2147483647"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {}, rank: 010}]}\n"),
              ElementsAre("2:38 'rank' must be a decimal number, not '010': remove the leading "
                          "zeros"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {}, rank: -}]}\n"),
              ElementsAre("2:38 'rank' must be a whole number, not '-': write decimal digits, "
                          "without quotes"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {}, enable: \"true\"}]}\n"),
              ElementsAre("2:40 'enable' must be true or false, not 'true': yes/no, on/off and 1/0 "
                          "do as well, without quotes"));
  EXPECT_THAT(body_errors("providers: {rank: [{match: {}, enable: maybe}]}\n"),
              ElementsAre("2:40 'enable' must be true or false, not 'maybe': yes/no, on/off and "
                          "1/0 do as well, without quotes"));
}

TEST(PolicyErrors, Subnets) {
  const auto subnet = [](const std::string &text) {
    return body_errors("providers: {rank: [{match: {subnet: \"" + text + "\"}, rank: 1}]}\n");
  };
  for (const char *text :
       {"0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "::/0", "fe80::/10", "2001:db8::1/128"})
    EXPECT_EQ(read_policy("version: 1\nproviders: {rank: [{match: {subnet: \"" + std::string(text) +
                          "\"}, rank: 1}]}\n")
                  .code,
              0)
        << text;
  EXPECT_THAT(subnet("10.0.0.1"),
              ElementsAre("2:37 'match.subnet' must be a subnet, not '10.0.0.1': add the length of "
                          "the prefix, 10.0.0.1/32 for one address"));
  EXPECT_THAT(subnet("fd00::1"), ElementsAre(HasSubstr("fd00::1/128 for one address")));
  EXPECT_THAT(subnet("10.0.0.5/8"),
              ElementsAre("2:37 'match.subnet' must be a subnet, not '10.0.0.5/8': bits beyond the "
                          "prefix are set: write 10.0.0.0/8"));
  EXPECT_THAT(subnet("fd00::1/8"), ElementsAre(HasSubstr("are set: write fd00::/8")));
  EXPECT_THAT(subnet("10.0.0.0/33"),
              ElementsAre(HasSubstr("the length of the prefix may be 0 to 32")));
  for (const char *text :
       {"fd00::/129", "fd00::/", "fd00::/08", "fd00::/8x", "fd00::/-1", "fd00::/4294967304"})
    EXPECT_THAT(subnet(text), ElementsAre(HasSubstr("the length of the prefix may be 0 to 128")))
        << text;
  for (const char *text : {"10.0.0/8", "10.0.0.0.0/8", "300.0.0.0/8", "eth0", "fd00:::/8", "/8",
                           " 10.0.0.0/8", "010.0.0.0/8"})
    EXPECT_THAT(subnet(text),
                ElementsAre("2:37 'match.subnet' must be a subnet, not '" + std::string(text) +
                            "': write it like 172.17.0.0/16 or fd00::/8"));
  EXPECT_THAT(subnet(""), ElementsAre("2:37 'match.subnet' is empty: give a value or remove it"));
}

TEST(PolicyErrors, Globs) {
  for (const char *key : {"provider", "netdev", "hostname", "executable"}) {
    const auto glob = [&](const std::string &text) {
      return body_errors("providers:\n  rank:\n    - match:\n        " + std::string(key) + ": '" +
                         text + "'\n      rank: 1\n");
    };
    const std::string start =
        "5:" + std::to_string(11 + std::string(key).size()) + " 'match." + key + "' ";
    EXPECT_THAT(glob("ib["), ElementsAre(start + "'ib[' has a '[' without its ']': close the set"));
    EXPECT_THAT(glob("[]"), ElementsAre(start + "'[]' has a '[' without its ']': close the set"));
    EXPECT_THAT(glob("[!]"), ElementsAre(start + "'[!]' has a '[' without its ']': close the set"));
    EXPECT_THAT(glob("a[9-0]"), ElementsAre(start + "'a[9-0]' has a range that runs backwards: "
                                                    "write the lesser character first"));
    EXPECT_THAT(glob("a\\*"), ElementsAre(start + "'a\\*' has a backslash: for a plain *, ? or [ "
                                                  "write [*], [?] or [[]"));
    EXPECT_THAT(glob(""), ElementsAre(start + "is empty: give a value or remove it"));
  }
  for (const char *text :
       {"*", "ib?", "[]]", "[!]a]", "[[]", "[a-]", "[-a]", "[0-9][0-9]", "a]b", "[a-cx-z]*"})
    EXPECT_EQ(read_policy("version: 1\nproviders: {rank: [{match: {netdev: '" + std::string(text) +
                          "'}, rank: 1}]}\n")
                  .code,
              0)
        << text;
}

TEST(PolicyErrors, Stacks) {
  EXPECT_THAT(body_errors("stacks: {a: []}\n"),
              ElementsAre("2:13 stack 'a' is empty: list its elements from the application down to "
                          "the wire, the provider last"));
  EXPECT_THAT(
      body_errors("stacks:\n  a: [{layer: rxm}, {hook: trace}]\n"),
      ElementsAre("3:3 stack 'a' has no provider: end it with {provider: NAME}, which moves "
                  "the bytes"));
  const std::string tail =
      ": a stack runs from the application down to the wire and ends with its one provider";
  EXPECT_THAT(body_errors("stacks:\n  a: [{provider: tcp}, {layer: rxm}]\n"),
              ElementsAre("3:24 layer 'rxm' stands below the provider 'tcp'" + tail));
  EXPECT_THAT(body_errors("stacks:\n  a: [{provider: tcp}, {hook: trace}]\n"),
              ElementsAre("3:24 hook 'trace' stands below the provider 'tcp'" + tail));
  EXPECT_THAT(body_errors("stacks:\n  a: [{provider: tcp}, {provider: udp}]\n"),
              ElementsAre("3:24 provider 'udp' stands below the provider 'tcp'" + tail));
  EXPECT_THAT(body_errors("stacks:\n  a: [{layer: rxm}, {layer: rxm}, {provider: tcp}]\n"),
              ElementsAre("3:21 'rxm' stands twice in a row: remove one"));
  EXPECT_THAT(body_errors("stacks:\n  a: [{layer: rxm, provider: tcp}]\n"),
              ElementsAre("3:20 an element is one thing, but has 'layer' and 'provider': write two "
                          "elements"));
  EXPECT_THAT(body_errors("stacks:\n  a: [{}, {provider: tcp}]\n"),
              ElementsAre("3:7 an element without a unit: add 'provider: NAME', 'layer: NAME' or "
                          "'hook: NAME'"));
  EXPECT_THAT(body_errors("stacks:\n  a: [{provider: tcp, on_unavailable: skip}]\n"),
              ElementsAre("3:7 a stack cannot do without its provider: remove 'on_unavailable: "
                          "skip'"));
  // One hook above and below a layer is a usual thing.
  EXPECT_EQ(
      good_policy("stacks: {a: [{hook: trace}, {layer: rxm}, {hook: trace}, {provider: tcp}]}\n")
          ->stacks[0]
          .elements.size(),
      4u);
}

TEST(PolicyErrors, Values) {
  EXPECT_THAT(body_errors("params: {tcp: {a: [x, '']}}\n"),
              ElementsAre("2:23 an entry of 'a' is empty: give a value or remove it"));
  EXPECT_THAT(body_errors("params:\n  tcp:\n    a: |\n      two\n      lines\n"),
              ElementsAre("4:8 'a' has a control character or a line end: write it on one line"));
  EXPECT_THAT(body_errors("params: {tcp: {a: \"x\\0y\"}}\n"),
              ElementsAre("2:19 text with a NUL character: remove the \\0"));
}

TEST(PolicyErrors, Plugins) {
  EXPECT_THAT(
      body_errors("plugins: {path: [lib/weft, '', ~/weft]}\n"),
      ElementsAre("2:18 'lib/weft' is no absolute path: programs run in many folders; begin "
                  "it with '/'",
                  "2:28 an entry of 'plugins.path' is empty: give a value or remove it",
                  "2:32 '~/weft' is no absolute path: programs run in many folders; begin "
                  "it with '/'"));
  for (const char *text : {"0", "600001", "-1"})
    EXPECT_THAT(body_errors("plugins: {probe_budget_ms: " + std::string(text) + "}\n"),
                ElementsAre("2:28 'plugins.probe_budget_ms' is out of range: '" +
                            std::string(text) + "': it may be 1 to 600000"));
  EXPECT_THAT(body_errors("plugins: {probe_budget_ms: 2s}\n"),
              ElementsAre("2:28 'plugins.probe_budget_ms' must be a whole number, not '2s': write "
                          "decimal digits, without quotes"));
}

TEST(PolicyErrors, Final) {
  const auto final_key = [](const std::string &key) {
    return body_errors("final: ['" + key + "']\n");
  };
  const std::string no = " is no key that could be final: ";
  EXPECT_THAT(final_key("param.tcp"),
              ElementsAre("2:9 'param.tcp'" + no + "did you mean 'params'?"));
  EXPECT_THAT(
      final_key("version"),
      ElementsAre(
          "2:9 'version'" + no +
          "known here: 'providers', 'stacks', 'use', 'local', 'params', 'plugins', 'control'"));
  EXPECT_THAT(final_key("providers.disabel"),
              ElementsAre("2:9 'providers.disabel'" + no + "did you mean 'disable'?"));
  EXPECT_THAT(final_key("plugins.pth"),
              ElementsAre("2:9 'plugins.pth'" + no + "did you mean 'path'?"));
  EXPECT_THAT(final_key("use.x"), ElementsAre("2:9 'use.x'" + no + "it has no more than 1 part"));
  EXPECT_THAT(final_key("providers.rank.x"),
              ElementsAre("2:9 'providers.rank.x'" + no + "it has no more than 2 parts"));
  for (const char *key : {"params.a.b.c", "params.", ".tcp", "params..x"})
    EXPECT_THAT(final_key(key),
                ElementsAre("2:9 '" + std::string(key) + "'" + no +
                            "write it like 'providers.disable' or 'params.tcp.interfaces'"))
        << key;
  EXPECT_THAT(final_key(""),
              ElementsAre("2:9 an entry of 'final' is empty: give a value or remove it"));
}

}  // namespace
}  // namespace weft::config
