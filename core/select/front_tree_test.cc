// SPDX-License-Identifier: BSD-2-Clause
// Stacks with branches, from weft.yaml to the calls of a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "core/select/test_front.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr const char *kTree = "(udp+tcp;ofi_rxm);link";

class FrontTreeTest : public FrontTest {
 protected:
  // One stack, "fast", in use.
  void tree(const std::string &elements, const std::string &more = "use: [fast]\n") {
    site("version: 1\nstacks:\n  fast: [" + elements + "]\n" + more);
  }
  void usual(const std::string &more = "use: [fast]\n") {
    tree("{layer: link, over: [[{provider: udp}], [{layer: rxm}, {provider: tcp}]]}", more);
  }
  static std::vector<std::string> names(const InfoPtr &list) {
    std::vector<std::string> out;
    for (const std::string &one : shown(list)) {
      const std::string name = one.substr(0, one.find(' '));
      if (out.empty() || out.back() != name) out.push_back(name);
    }
    return out;
  }
};

TEST_F(FrontTreeTest, AStackOfTheSiteMayBeATree) {
  usual();
  Front &from = front();
  const InfoPtr list = ask(from);
  EXPECT_EQ(names(list)[0], kTree);
  EXPECT_THAT(notices_, IsEmpty());
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  fid_domain *domain = nullptr;
  fid_ep *ep = nullptr;
  ASSERT_EQ(fi_domain(fabric, list.get(), &domain, nullptr), 0);
  ASSERT_EQ(fi_endpoint(domain, list.get(), &ep, nullptr), 0);
  std::vector<std::string> elements;
  for (const ObjectTable::Live &live : objects_.list())
    if (live.fclass == FI_CLASS_EP) elements.push_back(live.element);
  EXPECT_THAT(elements, UnorderedElementsAre("link", "udp", "rxm", "tcp"));
  EXPECT_EQ(fi_send(ep, nullptr, 0, nullptr, 0, nullptr), 1001);
  EXPECT_EQ(ask(from)->fabric_attr->fabric, fabric);
  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_close(&domain->fid), 0);
  EXPECT_EQ(fi_close(&fabric->fid), 0);
}

TEST_F(FrontTreeTest, HooksInABranch) {
  tree(
      "{hook: trace}, {layer: link, over: [[{hook: profile}, {provider: udp}], [{layer: rxm}, "
      "{provider: tcp}]]}");
  Front &from = front();
  const InfoPtr list = ask(from);
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  fid_domain *domain = nullptr;
  fid_ep *ep = nullptr;
  ASSERT_EQ(fi_domain(fabric, list.get(), &domain, nullptr), 0);
  ASSERT_EQ(fi_endpoint(domain, list.get(), &ep, nullptr), 0);
  std::vector<std::string> hooked;
  for (const ObjectTable::Live &live : objects_.list())
    for (const std::string &hook : live.hooks) hooked.push_back(live.element + "<" + hook);
  EXPECT_THAT(hooked, UnorderedElementsAre("link<trace", "udp<profile"));
  fi_close(&ep->fid);
  fi_close(&domain->fid);
  fi_close(&fabric->fid);
}

TEST_F(FrontTreeTest, NoDefaultStackHasALayerThatMayTakeSeveral) {
  EXPECT_THAT(names(ask(front())), Not(Contains(HasSubstr("link"))));
}

TEST_F(FrontTreeTest, NamesInHintsAndVariables) {
  usual();
  Front &from = front();
  const auto found = [&](const char *name) {
    return names(ask(from, hints_for(FI_EP_RDM, name).get()));
  };
  EXPECT_THAT(found(kTree), ElementsAre(kTree));
  EXPECT_THAT(found("(UDP+tcp;rxm);link"), ElementsAre(kTree)) << "by weft's names, in any case";
  EXPECT_THAT(found("link"), ElementsAre(kTree));
  EXPECT_THAT(found("udp"), ElementsAre(kTree)) << "udp alone offers no FI_EP_RDM";
  EXPECT_THAT(found("^link"), ElementsAre("tcp;ofi_rxm"));
  ask(from, hints_for(FI_EP_RDM, "(tcp;ofi_rxm+udp);link").get(), 0, -FI_ENODATA);
  ask(from, hints_for(FI_EP_RDM, "udp;tcp;ofi_rxm;link").get(), 0, -FI_ENODATA);

  EXPECT_THAT(names(ask(front({{"FI_PROVIDER", "link"}}))), ElementsAre(kTree));
  EXPECT_THAT(names(ask(front({{"FI_PROVIDER", "fast"}}))), ElementsAre("fast"));
  EXPECT_THAT(names(ask(front({{"FI_PROVIDER", "^link"}}))), Not(Contains(kTree)));
  ask(front({{"FI_PROVIDER", "udp;tcp;ofi_rxm;link"}}), nullptr, 0, -FI_ENODATA);
  EXPECT_THAT(names(ask(front({{"FI_PROVIDER", kTree}}))), ElementsAre(kTree));
}

TEST_F(FrontTreeTest, TheVariableSpellsOutATree) {
  const auto found = [&](const std::string &value) {
    return names(ask(front({{"FI_PROVIDER", value}})));
  };
  EXPECT_THAT(found(kTree), ElementsAre(kTree));
  EXPECT_THAT(found("(UDP+tcp;rxm);link"), ElementsAre(kTree)) << "by weft's names, in any case";
  EXPECT_THAT(found(std::string("udp,") + kTree), UnorderedElementsAre(kTree, "udp"));
  EXPECT_THAT(notices_, IsEmpty());
  Front &from = front({{"FI_PROVIDER", kTree}});
  const InfoPtr list = ask(from);
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  EXPECT_EQ(fi_close(&fabric->fid), 0);
  const auto config = nlohmann::json::parse(from.config_json().value());
  EXPECT_THAT(config["values"].dump(), HasSubstr("[\"(udp+tcp;ofi_rxm);link\"]"));

  ask(front({{"FI_PROVIDER", "(udp+tpc);link"}}), nullptr, 0, -FI_ENODATA);
  ASSERT_THAT(notices_, Not(IsEmpty()));
  EXPECT_THAT(notices_[0], HasSubstr("FI_PROVIDER=(udp+tpc);link (column 6): no provider \"tpc\": "
                                     "did you mean \"tcp\"?"));
  ask(front({{"FI_PROVIDER", "(udp+tcp);rxm"}}), nullptr, 0, -FI_ENODATA);
  EXPECT_THAT(reasons(*front_, "udp"), HasSubstr("layer rxm takes one provider beneath it, not 2"));
  notices_.clear();
  ask(front({{"FI_PROVIDER", "(udp+tcp;link"}}), nullptr, 0, -FI_ENODATA);
  EXPECT_THAT(notices_, ElementsAre("FI_PROVIDER=(udp+tcp;link: column 14: the ')' of column 1 is "
                                    "missing"));
  usual();
  EXPECT_THAT(found(std::string("^") + kTree), Not(Contains(kTree)));
  EXPECT_THAT(found("^(tcp;ofi_rxm+udp);link"), Contains(kTree)) << "of another order";
}

TEST_F(FrontTreeTest, AStackNotInUseHasItsLabelAsName) {
  usual("");
  Front &from = front();
  EXPECT_THAT(names(ask(from)), Not(Contains(HasSubstr("link"))));
  EXPECT_THAT(names(ask(from, hints_for(FI_EP_UNSPEC, "fast").get())), ElementsAre("fast"));
}

TEST_F(FrontTreeTest, OpensAFabricByOwnAttributes) {
  usual();
  Front &from = front();
  const auto open = [&](std::string prov_name) {
    fi_fabric_attr attr{};
    char name[] = "10.0.0.0/24";
    attr.prov_name = prov_name.data();
    attr.name = name;
    fid_fabric *fabric = nullptr;
    const int rc = from.fabric(&attr, nullptr, 0, &fabric, nullptr);
    if (rc == 0) {
      EXPECT_EQ(fi_close(&fabric->fid), 0);
    }
    return rc;
  };
  EXPECT_EQ(open(kTree), 0) << "without a getinfo before";
  EXPECT_EQ(open("(udp+TCP;rxm);link"), 0);
  EXPECT_EQ(open("link"), -FI_ENODEV);
  EXPECT_EQ(open("(tcp;ofi_rxm+udp);link"), -FI_ENODEV);
  EXPECT_EQ(open("(udp+tcp;ofi_rxm"), -FI_ENODEV);
}

TEST_F(FrontTreeTest, ABranchIsLeftOutWhereItsProviderCannotBeUsed) {
  // verbs has no device, and there is no plugin with shm.
  tree(
      "{layer: link, over: [[{provider: udp}], [{layer: rxm}, {provider: verbs, on_unavailable: "
      "skip}], [{provider: shm, on_unavailable: skip}], [{layer: rxm}, {provider: tcp}]]}");
  Front &from = front();
  EXPECT_EQ(names(ask(from))[0], kTree);
  EXPECT_THAT(reasons(from, "verbs"), HasSubstr("verbs device: "));
  EXPECT_THAT(names(ask(from, hints_for(FI_EP_UNSPEC, kTree).get())), ElementsAre(kTree));
  // In a program that asks for this name at first.
  Front &fresh = front();
  EXPECT_THAT(names(ask(fresh, hints_for(FI_EP_UNSPEC, kTree).get())), ElementsAre(kTree));
  fi_fabric_attr attr{};
  std::string prov_name = kTree;
  char name[] = "10.0.0.0/24";
  attr.prov_name = prov_name.data();
  attr.name = name;
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(front().fabric(&attr, nullptr, 0, &fabric, nullptr), 0);
  EXPECT_EQ(fi_close(&fabric->fid), 0);
}

TEST_F(FrontTreeTest, SaysWhyATreeCannotBeUsed) {
  const auto reason = [&](const std::string &elements, const char *name) {
    tree(elements);
    Front &from = front();
    ask(from);
    return reasons(from, name);
  };
  EXPECT_THAT(reason("{layer: link, over: [[{provider: udp}], [{provider: verbs, on_unavailable: "
                     "skip}]]}",
                     "(udp+verbs);link"),
              HasSubstr("(udp+verbs);link init: layer link takes 2 to 3 providers beneath it, not "
                        "1"));
  EXPECT_THAT(
      reason("{layer: link, over: [[{provider: udp}], [{provider: verbs}]]}", "(udp+verbs);link"),
      HasSubstr("(udp+verbs);link device: its provider verbs cannot be used | see verbs"));
  EXPECT_THAT(reason("{layer: link, over: [[{provider: verbs, on_unavailable: skip}], [{layer: "
                     "rxm}, {provider: verbs, on_unavailable: skip}]]}",
                     "(verbs+verbs;ofi_rxm);link"),
              HasSubstr("no branch of its layer link can be used"));
  EXPECT_THAT(reason("{layer: link, over: [[{provider: shm, on_unavailable: skip}], [{layer: rxm}, "
                     "{provider: shm, on_unavailable: skip}]]}",
                     "fast"),
              HasSubstr("fast manifest: no plugin has the provider of any branch of link"));
  EXPECT_THAT(
      reason("{layer: link, over: [[{provider: udp}], [{layer: rxn}, {provider: tcp}]]}", "fast"),
      HasSubstr("fast manifest: branch 2 of link: no plugin has a layer \"rxn\" | did you "
                "mean \"rxm\"?"));
  EXPECT_THAT(reason("{layer: link, over: [[{layer: rxm}, {provider: udp}], [{provider: tcp}]]}",
                     "(udp;ofi_rxm+tcp);link"),
              HasSubstr("policy: branch 1 of link: layer rxm needs FI_EP_MSG beneath it"));
  EXPECT_THAT(reason("{layer: link}, {provider: tcp}", "tcp;link"),
              HasSubstr("tcp;link policy: layer link takes 2 to 3 providers beneath it, not 1"));
  EXPECT_THAT(reason("{layer: rxm, over: [[{provider: tcp}], [{provider: broken}]]}",
                     "(tcp+broken);ofi_rxm"),
              HasSubstr("layer rxm takes one provider beneath it, not 2"));
  EXPECT_THAT(reason("{layer: link, over: [[{layer: rxm}, {provider: tcp}], [{provider: broken}]]}",
                     "(tcp;ofi_rxm+broken);link"),
              HasSubstr("init: broken: the adapter is on fire"));
  site(
      "version: 1\nproviders: {disable: [tcp]}\nstacks:\n  fast: [{layer: link, over: [[{provider: "
      "udp}], [{layer: rxm}, {provider: tcp}]]}]\nuse: [fast]\n");
  Front &from = front();
  ask(from);
  EXPECT_THAT(reasons(from, kTree), HasSubstr("policy: tcp is disabled"));
}

TEST_F(FrontTreeTest, WhyTellsOfBranchesThatRefused) {
  usual();
  Front &from = front();
  const InfoPtr hints = hints_for(FI_EP_RDM, "link");
  hints->tx_attr->size = size_t{1} << 40;
  log_level_ = FI_LOG_WARN;
  ask(from, hints.get(), 0, -FI_ENODATA);
  EXPECT_THAT(reasons(from, "link"),
              HasSubstr("hints: branch 1 (udp): udp: hints.tx_attr.size 1099511627776 is above"));
  EXPECT_THAT(reasons(from, "ofi_rxm"), HasSubstr("branch 2 (tcp;ofi_rxm): rxm: "));
  ASSERT_THAT(logged_, Not(IsEmpty()));
  EXPECT_THAT(logged_[0], HasSubstr("nothing fits; the nearest: (udp+tcp;ofi_rxm);link: branch 1"));
}

TEST_F(FrontTreeTest, AWrongNameOfABranchInHintsIsTold) {
  usual();
  recording_ = true;
  Front &from = front();
  ask(from, hints_for(FI_EP_RDM, "(udp+tpc;ofi_rxm);link").get(), 0, -FI_ENODATA);
  std::vector<std::string> wrong;
  for (const auto &miss : recorded_.back()["misses"])
    if (miss["stage"] == "manifest") wrong.push_back(miss["text"]);
  ASSERT_EQ(wrong.size(), 1u) << recorded_.back().dump();
  EXPECT_THAT(wrong[0], HasSubstr("no provider or layer is called \"tpc\": did you mean \"tcp\"?"));
}

TEST_F(FrontTreeTest, ExplainsItAsATree) {
  usual();
  Front &from = front();
  const auto json = nlohmann::json::parse(from.explain_json("fast").value());
  EXPECT_EQ(json["stack"], kTree);
  ASSERT_EQ(json["elements"].size(), 1u);
  EXPECT_EQ(json["elements"][0]["unit"], "link");
  const auto &branches = json["elements"][0]["branches"];
  ASSERT_EQ(branches.size(), 2u);
  EXPECT_EQ(branches[0][0]["unit"], "udp");
  EXPECT_EQ(branches[1][0]["unit"], "rxm");
  EXPECT_EQ(branches[1][1]["unit"], "tcp");
  EXPECT_EQ(branches[1][1]["lines"][0], "eth0: up");
  EXPECT_FALSE(branches[1][1].contains("branches"));
  EXPECT_EQ(nlohmann::json::parse(from.explain_json(kTree).value())["stack"], kTree);
}

TEST_F(FrontTreeTest, TheConfigurationShowsIt) {
  tree(
      "{layer: link, params: {eager: 1}, over: [[{provider: udp, on_unavailable: skip}], [{layer: "
      "rxm}, {provider: tcp}]]}");
  const auto config = nlohmann::json::parse(front().config_json().value());
  bool seen = false;
  for (const auto &value : config["values"]) {
    if (value["key"] != "stacks.fast") continue;
    seen = true;
    EXPECT_EQ(value["value"],
              nlohmann::json::parse("[{\"layer\": \"link\", \"over\": [[{\"provider\": \"udp\", "
                                    "\"on_unavailable\": \"skip\"}], [{\"layer\": \"rxm\"}, "
                                    "{\"provider\": \"tcp\"}]], \"params\": {\"eager\": \"1\"}}]"));
  }
  EXPECT_TRUE(seen);
  EXPECT_THAT(config["diagnostics"].dump(), HasSubstr("stack fast: params names \\\"eager\\\""));
}

TEST_F(FrontTreeTest, WrongNamesInABranchAreTold) {
  tree(
      "{layer: link, over: [[{provider: upd}], [{layer: rxm}, {provider: tcp, params: {ifaec: "
      "x}}]]}");
  const auto config = nlohmann::json::parse(front().config_json().value());
  const std::string text = config["diagnostics"].dump();
  EXPECT_THAT(text, HasSubstr("10-site.yaml:3:32"));
  EXPECT_THAT(text,
              HasSubstr("stack fast names \\\"upd\\\", and there is no such provider: did you "
                        "mean \\\"udp\\\"?"));
  EXPECT_THAT(text, HasSubstr("did you mean \\\"iface\\\"?"));
}

TEST_F(FrontTreeTest, RecordsAndLogsTheTreeThatWasOpened) {
  usual();
  recording_ = true;
  log_level_ = FI_LOG_INFO;
  Front &from = front();
  const InfoPtr list = ask(from);
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  EXPECT_EQ(recorded_.back()["stack"],
            nlohmann::json::parse("[\"link\", [[\"udp\"], [\"rxm\", \"tcp\"]]]"));
  EXPECT_THAT(logged_,
              Contains(HasSubstr("opened: application > link > (udp | rxm > tcp) > wire")));
  fi_close(&fabric->fid);
}

TEST_F(FrontTreeTest, RulesSeeAllUnitsOfATree) {
  usual("use: [fast]\nproviders: {rank: [{match: {provider: link}, rank: 7}]}\n");
  Front &from = front();
  ask(from);
  bool selected = false;
  for (const auto &one : why(from, "link")) {
    if (one["stage"] != "selected") continue;
    selected = true;
    EXPECT_THAT(one["reason"].get<std::string>(), HasSubstr("number 1 in `use`, rank 7"));
  }
  EXPECT_TRUE(selected);
  usual("use: [fast]\nproviders: {rank: [{match: {provider: tcp}, enable: false}]}\n");
  EXPECT_THAT(names(ask(front())), Not(Contains(kTree)));
}

}  // namespace
}  // namespace weft
