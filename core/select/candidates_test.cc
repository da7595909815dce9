// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/render.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

UnitInfo unit(const char *name, uint32_t kind, const char *ofi_name, uint32_t needs,
              uint32_t offers) {
  UnitInfo info;
  info.name = name;
  info.kind = kind;
  info.ofi_name = ofi_name;
  info.needs_ep = needs;
  info.offers_ep = offers;
  return info;
}

constexpr uint32_t kMsg = WEFT_EP_BIT(FI_EP_MSG), kDgram = WEFT_EP_BIT(FI_EP_DGRAM),
                   kRdm = WEFT_EP_BIT(FI_EP_RDM);

class CandidatesTest : public ::testing::Test {
 protected:
  CandidatesTest() { units_[4].inner_max = 2; }  // link stands nowhere unless it is named
  std::vector<Candidate> make() {
    notes_ = {};
    return make_candidates(policy_, units_, notes_);
  }
  // "tcp;ofi_rxm: [trace rxm tcp]" or "tcp: no: reason (rule): remedy"
  std::vector<std::string> made() {
    std::vector<std::string> out;
    for (const Candidate &one : make()) {
      std::string text = one.name + ": ";
      if (one.verdict.accepted) {
        text += "[";
        for (const CandidateElement &element : one.elements) text += element.unit->name + " ";
        text.back() = ']';
      } else {
        text += "no: " + one.verdict.reason + " (" + text_of(one.verdict.rule) +
                "): " + text_of(one.verdict.remedy);
      }
      out.push_back(std::move(text));
    }
    return out;
  }
  void filter(const char *text) { policy_.filter = parse_provider_filter(text).value(); }
  void hooks(const char *text) { policy_.hooks = parse_hooks(text).value(); }
  void stack(const char *name, std::vector<StackElement> elements) {
    policy_.stacks.push_back({name, std::move(elements), {Rule::file("site.yaml", 1, 1)}});
    if (!policy_.use) policy_.use.emplace();
    policy_.use->value.push_back({name, {Rule::file("site.yaml", 9, 1)}});
  }

  std::vector<UnitInfo> units_ = {unit("tcp", WEFT_KIND_PROVIDER, "", 0, kMsg),
                                  unit("udp", WEFT_KIND_PROVIDER, "", 0, kDgram),
                                  unit("rxm", WEFT_KIND_LAYER, "ofi_rxm", kMsg, kRdm),
                                  unit("rxd", WEFT_KIND_LAYER, "ofi_rxd", kDgram, kRdm),
                                  unit("link", WEFT_KIND_LAYER, "", kRdm, kRdm),
                                  unit("trace", WEFT_KIND_HOOK, "", 0, 0),
                                  unit("profile", WEFT_KIND_HOOK, "", 0, 0)};
  Policy policy_;
  DecisionRecord notes_;
};

TEST_F(CandidatesTest, ProvidersAndLayersThatFit) {
  EXPECT_THAT(made(), ElementsAre("tcp: [tcp]", "udp: [udp]", "tcp;ofi_rxm: [rxm tcp]",
                                  "udp;ofi_rxd: [rxd udp]"));
}

// A layer over a layer is for who names the stack; for collective operations the name without it
// will do.
TEST_F(CandidatesTest, LayersOverLayersAreAskedForByName) {
  units_.push_back(unit("coll", WEFT_KIND_LAYER, "off_coll", kRdm, kRdm));
  units_.back().version = 7;
  EXPECT_THAT(made(),
              ElementsAre("tcp: [tcp]", "udp: [udp]", "tcp;ofi_rxm: [rxm tcp]",
                          "tcp;ofi_rxm;off_coll: [coll rxm tcp]", "tcp;ofi_rxm: [coll rxm tcp]",
                          "udp;ofi_rxd: [rxd udp]", "udp;ofi_rxd;off_coll: [coll rxd udp]",
                          "udp;ofi_rxd: [coll rxd udp]"));
  const std::vector<Candidate> all = make();
  EXPECT_FALSE(all[2].only_by_name);
  EXPECT_TRUE(all[3].only_by_name && all[4].only_by_name);
  EXPECT_EQ(all[3].only_for_caps, 0u);
  EXPECT_EQ(all[4].only_for_caps, FI_COLLECTIVE);
  EXPECT_EQ(all[4].version, 7u) << "by which fi_fabric() tells it from the stack without it";
  for (const char *named : {"ofi_rxm;tcp", "tcp;rxm"}) {
    filter(named);
    EXPECT_EQ(made()[0], "tcp;ofi_rxm: [rxm tcp]");
    const std::vector<Candidate> filtered = make();
    const auto stands_in = std::ranges::find_if(filtered, [](const Candidate &one) {
      return one.verdict.accepted && one.only_for_caps != 0;
    });
    ASSERT_NE(stands_in, filtered.end()) << named;
    EXPECT_EQ(stands_in->name, "tcp;ofi_rxm");
    EXPECT_EQ(stands_in->origin, Rule::spelt_in("FI_PROVIDER")) << "nobody has to name it in hints";
  }
}

TEST_F(CandidatesTest, TheFilterLeavesOutStacks) {
  filter("tcp");
  EXPECT_THAT(made(),
              ElementsAre("tcp: [tcp]", HasSubstr("udp: no: FI_PROVIDER=tcp does not name it"),
                          "tcp;ofi_rxm: [rxm tcp]", HasSubstr("udp;ofi_rxd: no: ")));
  filter("^ofi_rxm");
  EXPECT_THAT(made(), ElementsAre("tcp: [tcp]", "udp: [udp]",
                                  HasSubstr("tcp;ofi_rxm: no: FI_PROVIDER=^ofi_rxm excludes it"),
                                  "udp;ofi_rxd: [rxd udp]"));
}

TEST_F(CandidatesTest, TheFilterCanNameDeeperStacks) {
  filter("tcp;ofi_rxm;link");
  EXPECT_EQ(made()[0], "tcp;ofi_rxm;link: [link rxm tcp]");
  filter("link;rxm;tcp");
  EXPECT_EQ(made()[0], "tcp;ofi_rxm;link: [link rxm tcp]");
  filter("udp;ofi_rxm");
  EXPECT_THAT(made()[0], HasSubstr("layer rxm needs FI_EP_MSG beneath it, udp offers FI_EP_DGRAM"));
}

TEST_F(CandidatesTest, ReportsUnknownNames) {
  filter("tpc,tcp;ofi_rmx,trace");
  (void)made();
  ASSERT_EQ(notes_.decisions().size(), 3u);
  EXPECT_EQ(notes_.decisions()[0].reason,
            "FI_PROVIDER=tpc,tcp;ofi_rmx,trace (column 1): no provider \"tpc\"");
  EXPECT_EQ(notes_.decisions()[0].remedy.meant, "tcp");
  EXPECT_EQ(notes_.decisions()[0].rule.column, 1u);
  EXPECT_EQ(text_of(notes_.decisions()[0].remedy),
            "did you mean \"tcp\"? known: tcp, udp, ofi_rxm, ofi_rxd, link");
  EXPECT_EQ(notes_.decisions()[1].remedy.meant, "ofi_rxm");
  EXPECT_THAT(notes_.decisions()[2].reason, HasSubstr("\"trace\" is a hook"));
  EXPECT_EQ(notes_.decisions()[2].remedy.words, "name it in FI_HOOK");
}

TEST_F(CandidatesTest, StacksNotInUseCanBeAskedForByName) {
  policy_.stacks.push_back(
      {"sockets", {{WEFT_KIND_PROVIDER, "tcp", false, {}, {}}}, {Rule::built_in()}});
  EXPECT_THAT(made(), ElementsAre("tcp: [tcp]", "udp: [udp]", "tcp;ofi_rxm: [rxm tcp]",
                                  "udp;ofi_rxd: [rxd udp]", "sockets: [tcp]"));
  EXPECT_TRUE(make().back().only_by_name);
  filter("Sockets");
  EXPECT_THAT(made(), ElementsAre(HasSubstr("tcp: no: "), HasSubstr("udp: no: "),
                                  HasSubstr("tcp;ofi_rxm: no: "), HasSubstr("udp;ofi_rxd: no: "),
                                  "sockets: [tcp]"));
  EXPECT_TRUE(notes_.decisions().empty());
  filter("udp");
  EXPECT_THAT(made().back(), HasSubstr("sockets: no: "));
  filter("sockets;ofi_rxm");
  (void)made();
  EXPECT_THAT(notes_.decisions().at(0).reason, HasSubstr("no provider \"sockets\""));
}

TEST_F(CandidatesTest, AStackInUseCanBeAskedForByName) {
  stack("fast", {{WEFT_KIND_PROVIDER, "udp", false, {}, {}}});
  EXPECT_THAT(made(), Not(Contains(HasSubstr("fast"))));
  filter("fast");
  EXPECT_EQ(made().back(), "fast: [udp]");
}

TEST_F(CandidatesTest, HooksAreOnTopOnce) {
  hooks("trace;profile");
  stack("mine", {{WEFT_KIND_HOOK, "trace", false, {}, {}},
                 {WEFT_KIND_LAYER, "rxm", false, {}, {}},
                 {WEFT_KIND_HOOK, "profile", false, {}, {}},
                 {WEFT_KIND_PROVIDER, "tcp", false, {}, {}}});
  const std::vector<std::string> all = made();
  EXPECT_EQ(all[0], "tcp;ofi_rxm: [profile trace rxm profile tcp]");
  EXPECT_EQ(all[1], "tcp: [trace profile tcp]");
}

TEST_F(CandidatesTest, AnUnknownHookRefusesAllStacks) {
  hooks("trace;profil");
  for (const std::string &one : made())
    EXPECT_THAT(one,
                HasSubstr("no: FI_HOOK (column 7): no hook \"profil\" (environment FI_HOOK): did "
                          "you mean \"profile\"? known: trace, profile"));
  hooks("tcp");
  EXPECT_THAT(made()[0], HasSubstr("\"tcp\" is a provider, no hook"));
  hooks("trace;trace");
  EXPECT_THAT(made()[0], HasSubstr("hook \"trace\" twice"));
}

TEST_F(CandidatesTest, ABadVariableRefusesAllStacks) {
  policy_.refusal = {.error = true,
                     .where = Rule::environment("FI_PROVIDER"),
                     .text = "FI_PROVIDER=,: column 1: a name is missing"};
  for (const std::string &one : made()) EXPECT_THAT(one, HasSubstr("column 1: a name is missing"));
}

TEST_F(CandidatesTest, StacksOfTheSiteComeFirst) {
  stack("rdm", {{WEFT_KIND_LAYER, "rxd", false, {{"a", "1", {}}}, {}},
                {WEFT_KIND_PROVIDER, "udp", false, {}, {}}});
  stack("other", {{WEFT_KIND_PROVIDER, "tcp", false, {}, {}}});
  const std::vector<Candidate> all = make();
  EXPECT_EQ(all[0].name, "udp;ofi_rxd");
  EXPECT_EQ(all[0].preference, 0u);
  EXPECT_EQ(all[0].origin, Rule::stack("rdm"));
  EXPECT_EQ(all[0].elements[0].settings[0].value, "1");
  EXPECT_EQ(all[1].name, "tcp");
  EXPECT_EQ(all[1].preference, 1u);
  EXPECT_EQ(all[2].preference, Candidate::kNoPreference);
}

TEST_F(CandidatesTest, ReportsStacksThatCannotBeBuilt) {
  stack("typo", {{WEFT_KIND_LAYER, "rxn", false, {}, Rule::file("site.yaml", 3, 7)},
                 {WEFT_KIND_PROVIDER, "tcp", false, {}, {}}});
  stack("kind", {{WEFT_KIND_LAYER, "tcp", false, {}, Rule::file("site.yaml", 4, 7)}});
  stack("optional",
        {{WEFT_KIND_HOOK, "count", true, {}, {}}, {WEFT_KIND_PROVIDER, "tcp", false, {}, {}}});
  policy_.use->value.push_back({"tipo", {Rule::file("site.yaml", 9, 8)}});
  const std::vector<std::string> all = made();
  EXPECT_THAT(all[0], HasSubstr("typo: no: no plugin has a layer \"rxn\" (site.yaml:3:7): did you "
                                "mean \"rxm\"? known: "));
  EXPECT_THAT(all[1], HasSubstr("kind: no: tcp is a provider, no layer"));
  EXPECT_EQ(all[2], "tcp: [tcp]");
  EXPECT_THAT(
      all[3],
      HasSubstr("tipo: no: no stack is called \"tipo\" (site.yaml:9:8): did you mean \"typo\"?"));
}

TEST_F(CandidatesTest, DisabledUnitsDisableTheirStacks) {
  policy_.disable.push_back({"ofi_rxm", {Rule::file("site.yaml", 2, 3)}});
  EXPECT_THAT(made()[2], HasSubstr("tcp;ofi_rxm: no: rxm is disabled (site.yaml:2:3)"));
  policy_.disable.push_back({"trace", {Rule::file("site.yaml", 2, 4)}});
  hooks("trace");
  EXPECT_THAT(made()[0], HasSubstr("tcp: no: trace is disabled"));
}

}  // namespace
}  // namespace weft
