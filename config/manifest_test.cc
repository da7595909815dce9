// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_endpoint.h>

#include "config/test_reader.h"

namespace weft::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFull[] = R"(manifest: 1
name: frobco-fabric
vendor: Frobco Inc.
version: 2.1.0-rc1
license: BSD-2-Clause OR GPL-2.0-only
support: "mailto:fabric@frobco.example"
library: ../frobco.so
arch: x86_64
abi: {major: 1, minor: 3, min_core_minor: 2}
units:
  - name: frob
    ofi_name: ofi_frob
    kind: provider
    version: "2.1"
    summary: "Frobco's network: fast, \"quoted\""
    needs_ep: []
    offers_ep: [msg, rdm, dgram]
    rank: 700
    maturity: stable
    security: robust
    devices: ["pci:1fc9:*", "path:/dev/frob*", "netdev:hsn*"]
    device_remedy: "load frobco.ko: `modprobe frobco`"
    params:
      - {name: port, type: int, default: 7471, help: "Port to listen at", minimum: 1, maximum: 65535}
      - {name: eager_size, type: size, default: 16K, minimum: 0, maximum: 9223372036854775807}
      - {name: nodelay, type: bool, default: yes}
      - {name: interfaces, type: list, default: [lo, "eth*"]}
      - {name: label, type: string, help: ""}
      - {name: offset, type: int, default: "-5", minimum: -9223372036854775808, maximum: 0}
  - {name: frob-link, kind: layer, version: 1.10, needs_ep: [rdm], inner_min: 2,
     inner_max: 4, offers_ep: [rdm], rank: -1, maturity: beta, security: no_network}
  - {name: frob_trace, kind: hook, version: "0.65535", maturity: experimental, security: trusted_peers}
)";

std::string minimal(const std::string &unit_extra = "", const std::string &extra = "") {
  return "manifest: 1\nname: a\nvendor: v\nversion: '1'\nlicense: l\nlibrary: a.so\narch: x86_64\n"
         "abi: {major: 1, minor: 0, min_core_minor: 0}\n"
         "units:\n- {name: u, kind: provider, version: '1.0', maturity: stable, security: "
         "robust}\n" +
         (unit_extra.empty() ? "" : "- " + unit_extra + "\n") + extra;
}

TEST(Manifest, EveryKey) {
  const auto manifest = read_manifest(kFull);
  ASSERT_EQ(manifest.code, 0) << ::testing::PrintToString(manifest.placed());
  EXPECT_EQ(manifest->struct_size, sizeof(weft_manifest));
  EXPECT_STREQ(manifest->name, "frobco-fabric");
  EXPECT_STREQ(manifest->vendor, "Frobco Inc.");
  EXPECT_STREQ(manifest->version, "2.1.0-rc1");
  EXPECT_STREQ(manifest->license, "BSD-2-Clause OR GPL-2.0-only");
  EXPECT_STREQ(manifest->support, "mailto:fabric@frobco.example");
  EXPECT_STREQ(manifest->library, "../frobco.so");
  EXPECT_STREQ(manifest->arch, "x86_64");
  EXPECT_EQ(manifest->abi_major, 1);
  EXPECT_EQ(manifest->abi_minor, 3);
  EXPECT_EQ(manifest->min_core_minor, 2);
  ASSERT_EQ(manifest->unit_count, 3u);

  const weft_manifest_unit &frob = manifest->units[0];
  EXPECT_STREQ(frob.name, "frob");
  EXPECT_STREQ(frob.ofi_name, "ofi_frob");
  EXPECT_EQ(frob.kind, uint32_t{WEFT_KIND_PROVIDER});
  EXPECT_EQ(frob.version, FI_VERSION(2, 1));
  EXPECT_STREQ(frob.summary, "Frobco's network: fast, \"quoted\"");
  EXPECT_EQ(frob.needs_ep, 0u);
  EXPECT_EQ(frob.offers_ep,
            WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_RDM) | WEFT_EP_BIT(FI_EP_DGRAM));
  EXPECT_EQ(frob.rank, 700);
  EXPECT_EQ(frob.maturity, uint32_t{WEFT_MATURITY_STABLE});
  EXPECT_EQ(frob.security, uint32_t{WEFT_SECURITY_ROBUST});
  ASSERT_EQ(frob.device_count, 3u);
  EXPECT_STREQ(frob.devices[0], "pci:1fc9:*");
  EXPECT_STREQ(frob.devices[2], "netdev:hsn*");
  EXPECT_STREQ(frob.device_remedy, "load frobco.ko: `modprobe frobco`");
  ASSERT_EQ(frob.param_count, 6u);
  const weft_param &port = frob.params[0];
  EXPECT_EQ(port.struct_size, sizeof(weft_param));
  EXPECT_EQ(port.type, uint32_t{WEFT_TYPE_INT});
  EXPECT_STREQ(port.name, "port");
  EXPECT_STREQ(port.default_value, "7471");
  EXPECT_STREQ(port.help, "Port to listen at");
  EXPECT_EQ(port.minimum, 1);
  EXPECT_EQ(port.maximum, 65535);
  EXPECT_EQ(frob.params[1].type, uint32_t{WEFT_TYPE_SIZE});
  EXPECT_STREQ(frob.params[1].default_value, "16K");
  EXPECT_EQ(frob.params[1].maximum, INT64_MAX);
  EXPECT_EQ(frob.params[2].type, uint32_t{WEFT_TYPE_BOOL});
  EXPECT_STREQ(frob.params[2].default_value, "yes");
  EXPECT_STREQ(frob.params[2].help, "");
  EXPECT_EQ(frob.params[3].type, uint32_t{WEFT_TYPE_LIST});
  EXPECT_STREQ(frob.params[3].default_value, "lo,eth*");
  EXPECT_EQ(frob.params[4].type, uint32_t{WEFT_TYPE_STRING});
  EXPECT_EQ(frob.params[4].default_value, nullptr);
  EXPECT_EQ(frob.params[5].minimum, INT64_MIN);

  const weft_manifest_unit &link = manifest->units[1];
  EXPECT_EQ(link.kind, uint32_t{WEFT_KIND_LAYER});
  EXPECT_EQ(link.ofi_name, nullptr);
  EXPECT_STREQ(link.summary, "");
  EXPECT_EQ(link.version, FI_VERSION(1, 10));  // not the number 1.1
  EXPECT_EQ(link.needs_ep, WEFT_EP_BIT(FI_EP_RDM));
  EXPECT_EQ(link.inner_min, 2u);
  EXPECT_EQ(link.inner_max, 4u);
  EXPECT_EQ(frob.inner_min + frob.inner_max, 0u);
  EXPECT_EQ(link.rank, -1);
  EXPECT_EQ(link.maturity, uint32_t{WEFT_MATURITY_BETA});
  EXPECT_EQ(link.security, uint32_t{WEFT_SECURITY_NO_NETWORK});
  EXPECT_EQ(link.device_count + link.param_count, 0u);

  const weft_manifest_unit &trace = manifest->units[2];
  EXPECT_EQ(trace.kind, uint32_t{WEFT_KIND_HOOK});
  EXPECT_EQ(trace.version, FI_VERSION(0, 65535));
  EXPECT_EQ(trace.rank, 0);
  EXPECT_EQ(trace.maturity, uint32_t{WEFT_MATURITY_EXPERIMENTAL});
  EXPECT_EQ(trace.security, uint32_t{WEFT_SECURITY_TRUSTED_PEERS});
}

// Text that a program wrote in double quotes is read back unchanged.
TEST(Manifest, RoundTripOfAwkwardText) {
  const auto yaml = [](std::string_view text) {
    std::string out = "\"";
    for (char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\n')
        out += "\\n";
      else
        out += c;
    }
    return out + "\"";
  };
  for (const std::string text :
       {"plain",      "yes",         "~",          "null",     "12",  "a: b # c", "it's",
        "say \"no\"", "back\\slash", "two\nlines", " blanks ", "[x]", "{x}",      "*a",
        "&a",         "!a",          "%a",         "@a",       "`a",  "- a",      "ünï€",
        "---",        "...",         "? a",        "| a"}) {
    const auto manifest = read_manifest(minimal(
        "{name: b, kind: layer, version: '1.0', maturity: beta, security: robust, summary: " +
        yaml(text) + "}"));
    ASSERT_EQ(manifest.code, 0) << text << ::testing::PrintToString(manifest.placed());
    EXPECT_EQ(manifest->units[1].summary, text);
  }
}

TEST(Manifest, AbsentTextIsNullOrEmpty) {
  const auto manifest = read_manifest(minimal());
  ASSERT_EQ(manifest.code, 0) << ::testing::PrintToString(manifest.placed());
  EXPECT_EQ(manifest->support, nullptr);
  EXPECT_EQ(manifest->units[0].ofi_name, nullptr);
  EXPECT_STREQ(manifest->units[0].summary, "");
}

TEST(ManifestErrors, MissingKeys) {
  EXPECT_THAT(manifest_errors(""),
              ElementsAre("1:1 the manifest says nothing: begin it with 'manifest: 1'"));
  EXPECT_THAT(
      manifest_errors("support: x\n"),
      ElementsAre(
          "1:1 the manifest has no 'manifest': add it", "1:1 the manifest has no 'name': add it",
          "1:1 the manifest has no 'vendor': add it", "1:1 the manifest has no 'version': add it",
          "1:1 the manifest has no 'license': add it", "1:1 the manifest has no 'library': add it",
          "1:1 the manifest has no 'arch': add it", "1:1 the manifest has no 'abi': add it",
          "1:1 the manifest has no 'units': add it"));
  EXPECT_THAT(
      manifest_errors(minimal("{}")),
      ElementsAre("11:3 a unit has no 'name': add it", "11:3 a unit has no 'kind': add it",
                  "11:3 a unit has no 'version': add it", "11:3 a unit has no 'maturity': add it",
                  "11:3 a unit has no 'security': add it"));
}

TEST(ManifestErrors, Top) {
  EXPECT_THAT(manifest_errors(minimal("", "vendr: x\n")),
              ElementsAre("11:1 unknown key 'vendr': did you mean 'vendor'?"));
  EXPECT_THAT(manifest_errors(minimal("", "name: x\n")),
              ElementsAre("11:1 duplicate key 'name': it was given in line 2 already; keep one of "
                          "them"));
  EXPECT_THAT(
      manifest_errors(
          "manifest: 2\nname: 'a/b'\nvendor: ''\nversion: [1]\nlicense: ~\nlibrary: {}\n"
          "support: ''\narch: x86-64\nabi: 1\nunits: []\n"),
      ElementsAre(
          "1:11 version 2 of this format is unknown: this release reads version 1; generate "
          "the manifest with this release",
          "2:7 'name' 'a/b' is no name: names are made of A-Z a-z 0-9 - _",
          "3:9 'vendor' is empty: give a value or remove it",
          "4:10 'version' must be text, not a list: write it as one word or in quotes",
          "5:1 'license' must be text, not nothing: give a value or remove the key",
          "6:10 'library' must be text, not a map: write it as one word or in quotes",
          "7:10 'support' is empty: give a value or remove it",
          "8:7 'arch' 'x86-64' is no name: names are made of a-z 0-9 _",
          "9:6 'abi' must be a map, not text: write abi: {major: 1, minor: 0, "
          "min_core_minor: 0}",
          "10:8 the manifest has no units: a plugin has at least one"));
  EXPECT_THAT(manifest_errors("- a\n"),
              ElementsAre("1:1 the manifest must be a map, not a list: write 'key: value' lines"));
}

TEST(ManifestErrors, Abi) {
  const std::string text = minimal();
  const auto with = [&](const std::string &abi) {
    std::string out = text;
    const std::string was = "{major: 1, minor: 0, min_core_minor: 0}";
    return manifest_errors(out.replace(out.find(was), was.size(), abi));
  };
  EXPECT_THAT(with("{major: 0, minor: 65536, min_core_minor: -1}"),
              ElementsAre("8:14 'abi.major' is out of range: '0': it may be 1 to 65535",
                          "8:24 'abi.minor' is out of range: '65536': it may be 0 to 65535",
                          "8:47 'abi.min_core_minor' is out of range: '-1': it may be 0 to 65535"));
  EXPECT_THAT(
      with("{mayor: 1, minor: 0}"),
      ElementsAre("8:6 'abi' has no 'major': add it", "8:6 'abi' has no 'min_core_minor': add it",
                  "8:7 unknown key 'mayor': did you mean 'major'?"));
}

TEST(ManifestErrors, Units) {
  const std::string good = "name: b, kind: layer, version: '1.0', maturity: beta, security: robust";
  const auto with = [&](const std::string &more) {
    return manifest_errors(minimal("{" + good + ", " + more + "}"));
  };
  EXPECT_THAT(with("rnak: 5"), ElementsAre("11:76 unknown key 'rnak': did you mean 'rank'?"));
  EXPECT_THAT(with("rank: 3000000000"),
              ElementsAre("11:82 'rank' is out of range: '3000000000': it may be -2147483648 to "
                          "2147483647"));
  EXPECT_THAT(with("offers_ep: rdm"),
              ElementsAre("11:87 'offers_ep' must be a list, not text: write [msg, rdm, dgram]"));
  EXPECT_THAT(with("needs_ep: [rmd, RDM]"),
              ElementsAre("11:87 'needs_ep' cannot be 'rmd': did you mean 'rdm'?",
                          "11:92 'needs_ep' cannot be 'RDM': known here: 'msg', 'rdm', 'dgram'"));
  EXPECT_THAT(with("inner_min: 0"),
              ElementsAre("11:87 'inner_min' is out of range: '0': it may be 1 to 16"));
  EXPECT_THAT(with("inner_max: 17"),
              ElementsAre("11:87 'inner_max' is out of range: '17': it may be 1 to 16"));
  EXPECT_THAT(with("inner_min: 3, inner_max: 2"),
              ElementsAre("11:101 'inner_min' 3 is above 'inner_max' 2: the layer takes from "
                          "inner_min to inner_max providers"));
  EXPECT_THAT(
      manifest_errors(minimal("{name: b, kind: hook, version: '1.0', maturity: beta, security: "
                              "robust, inner_max: 2}")),
      ElementsAre(
          "11:86 a hook takes no inner providers: remove 'inner_min' and 'inner_max', which "
          "are for layers"));
  EXPECT_THAT(
      with("devices: [pci, ':x', 'pci:', 'P:x']"),
      ElementsAre(HasSubstr("11:86 'pci' is no device: "), HasSubstr("11:91 ':x' is no device: "),
                  HasSubstr("11:97 'pci:' is no device: "),
                  HasSubstr("11:105 'P:x' is no device: ")));
  EXPECT_THAT(with("device_remedy: [a]"),
              ElementsAre("11:91 'device_remedy' must be text, not a list: write it in quotes"));
  EXPECT_THAT(with("ofi_name: ''"),
              ElementsAre("11:86 'ofi_name' is empty: give a name or remove it"));
  EXPECT_THAT(with("summary: [a]"),
              ElementsAre("11:85 'summary' must be text, not a list: write it in quotes"));
  EXPECT_THAT(with("summary: \"a\\e[1m\""),
              ElementsAre("11:85 'summary' has a control character: remove it"));
  EXPECT_THAT(manifest_errors(minimal("{name: B, kind: privider, version: 1, maturity: old, "
                                      "security: none}")),
              ElementsAre("11:10 'name' 'B' is no name: names are made of a-z 0-9 - _",
                          "11:19 'kind' cannot be 'privider': did you mean 'provider'?",
                          "11:38 'version' of a unit must be MAJOR.MINOR, not '1': write it like "
                          "\"1.0\", each part 0 to 65535",
                          "11:51 'maturity' cannot be 'old': known here: 'stable', 'beta', "
                          "'experimental'",
                          "11:66 'security' cannot be 'none': known here: 'no_network', 'robust', "
                          "'trusted_peers'"));
  for (const char *version : {"1.", ".1", "1.0.0", "1.65536", "-1.0", "1.x", "1. 0"})
    EXPECT_THAT(manifest_errors(minimal("{name: b, kind: hook, version: '" + std::string(version) +
                                        "', maturity: beta, security: robust}")),
                ElementsAre(HasSubstr("11:34 'version' of a unit must be MAJOR.MINOR, not '" +
                                      std::string(version) + "'")));
  EXPECT_THAT(manifest_errors(minimal("tcp")),
              ElementsAre("11:3 a unit must be a map, not text: write {name: tcp, kind: provider, "
                          "...}"));
  EXPECT_THAT(manifest_errors(minimal("{name: u, kind: hook, version: '1.0', maturity: beta, "
                                      "security: robust}")),
              ElementsAre("11:10 unit 'u' is described twice: it stands in line 10 already"));
}

TEST(ManifestErrors, AtMost64Units) {
  std::string more;
  for (int i = 1; i < WEFT_MAX_UNITS; ++i)
    more += "- {name: u" + std::to_string(i) +
            ", kind: hook, version: '1.0', maturity: beta, security: robust}\n";
  const auto manifest = read_manifest(minimal("", more));
  EXPECT_EQ(manifest.code, 0) << ::testing::PrintToString(manifest.placed());
  more += "- {name: more, kind: hook, version: '1.0', maturity: beta, security: robust}\n";
  EXPECT_THAT(manifest_errors(minimal("", more)),
              ElementsAre("10:1 the manifest has 65 units: the most is 64"));
}

TEST(ManifestErrors, Params) {
  const auto with = [&](const std::string &params) {
    return manifest_errors(minimal(
        "{name: b, kind: layer, version: '1.0', maturity: beta, security: robust,\n params: " +
        params + "}"));
  };
  EXPECT_THAT(with("{}"),
              ElementsAre("12:10 'params' must be a list, not a map: write [{name: port, type: "
                          "int}]"));
  EXPECT_THAT(with("[a]"), ElementsAre("12:11 a parameter must be a map, not text: write {name: "
                                       "port, type: int}"));
  EXPECT_THAT(with("[{}]"), ElementsAre("12:11 a parameter has no 'name': add it",
                                        "12:11 a parameter has no 'type': add it"));
  EXPECT_THAT(with("[{name: Port, type: integer, defualt: 5}]"),
              ElementsAre("12:18 'name' 'Port' is no name: names are made of a-z 0-9 _",
                          "12:30 'type' cannot be 'integer': known here: 'bool', 'int', 'size', "
                          "'string', 'list'",
                          "12:39 unknown key 'defualt': did you mean 'default'?"));
  EXPECT_THAT(with("[{name: a, type: int}, {name: a, type: int}]"),
              ElementsAre("12:40 parameter 'a' is described twice: it stands in line 12 already"));
  EXPECT_THAT(with("[{name: a, type: int, minimum: 5, maximum: 4}]"),
              ElementsAre("12:53 'minimum' 5 is above 'maximum' 4: give both; both 0 mean no "
                          "limits"));
  EXPECT_THAT(with("[{name: a, type: int, minimum: 5}]"),
              ElementsAre("12:41 'minimum' 5 is above 'maximum' 0: give both; both 0 mean no "
                          "limits"));
  EXPECT_THAT(with("[{name: a, type: bool, minimum: 0, maximum: 1}]"),
              ElementsAre("12:54 limits of a parameter that is no number: only int and size have "
                          "'minimum' and 'maximum'"));
  EXPECT_THAT(with("[{name: a, type: int, maximum: 9223372036854775808}]"),
              ElementsAre(HasSubstr("12:41 'maximum' is out of range: '9223372036854775808'")));
  EXPECT_THAT(
      with("[{name: a, type: list, default: ['x,y']}]"),
      ElementsAre("12:43 an entry of 'default' has a comma: 'x,y': commas separate entries; "
                  "write two entries"));
}

}  // namespace
}  // namespace weft::config
