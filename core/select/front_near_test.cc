// SPDX-License-Identifier: BSD-2-Clause
// `local: shm`: what programs are offered, and what they are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "core/loader/loader.h"
#include "core/select/near.h"
#include "core/select/test_front.h"
#include "tests/paths.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class FrontNearTest : public FrontTest {
 protected:
  static void SetUpTestSuite() {
    FrontTest::SetUpTestSuite();
    near_ = new TestFolder;
    FrontTest::install(*near_);
    near_->copy(test::built("tests/select-plugins/memory.so"), "lib/weft/memory.so");
    LoaderOptions options;
    options.reader_library = near_->at("lib/weft/weft-config.so");
    options.probe_program = test::built("lib/weft/weft-probe");
    ASSERT_TRUE(Loader::refresh(options, near_->at("lib/weft")).has_value());
  }
  static void TearDownTestSuite() {
    delete near_;
    near_ = nullptr;
    FrontTest::TearDownTestSuite();
  }

  Front &linked(std::map<std::string, std::string> environment = {}) {
    return front(std::move(environment), near_);
  }
  Front &near(std::map<std::string, std::string> environment = {}) {
    environment["FI_LINK"] = "shm";
    return linked(std::move(environment));
  }
  // The prov_versions, in order.
  static std::vector<std::string> versions(const InfoPtr &list) {
    std::vector<std::string> out;
    for (const fi_info *info = list.get(); info != nullptr; info = info->next)
      out.push_back(std::to_string(FI_MAJOR(info->fabric_attr->prov_version)) + "." +
                    std::to_string(FI_MINOR(info->fabric_attr->prov_version)));
    return out;
  }
  // What an answer opens: the units that made its endpoints, each with its hooks.
  std::vector<std::string> opened(Front &from, fi_info &info) {
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_ep *ep = nullptr;
    std::vector<std::string> made;
    EXPECT_EQ(from.fabric(info.fabric_attr, nullptr, 0, &fabric, nullptr), 0);
    if (fabric == nullptr) return made;
    EXPECT_EQ(fi_domain(fabric, &info, &domain, nullptr), 0);
    EXPECT_EQ(fi_endpoint(domain, &info, &ep, nullptr), 0);
    for (const ObjectTable::Live &live : objects_.list()) {
      if (live.fclass != FI_CLASS_EP) continue;
      std::string text = live.element;
      for (const std::string &hook : live.hooks) text += "<" + hook;
      made.push_back(text);
    }
    EXPECT_EQ(fi_close(&ep->fid), 0);
    EXPECT_EQ(fi_close(&domain->fid), 0);
    EXPECT_EQ(fi_close(&fabric->fid), 0);
    return made;
  }
  std::vector<std::string> opened_first(Front &from, const fi_info *hints = nullptr) {
    const InfoPtr list = ask(from, hints);
    return list == nullptr ? std::vector<std::string>() : opened(from, *list);
  }
  // Whether FI_EP_RDM is through memory.
  bool is_near(Front &from) {
    const InfoPtr list = ask(from, hints_for(FI_EP_RDM).get());
    return list != nullptr && FI_MAJOR(list->fabric_attr->prov_version) == 0;
  }

  static inline TestFolder *near_ = nullptr;
};

TEST_F(FrontNearTest, WithoutTheKeyNothingIsDifferent) {
  const std::vector<std::string> usual = {"tcp eth0",         "tcp docker0",
                                          "tcp;ofi_rxm eth0", "tcp;ofi_rxm docker0",
                                          "udp eth0",         "udp docker0"};
  EXPECT_EQ(shown(ask(linked())), usual);
  EXPECT_EQ(shown(ask(linked({{"FI_LINK", "none"}}))), usual);
  EXPECT_FALSE(is_near(linked()));
  EXPECT_THAT(reasons(*front_, ""), Not(HasSubstr("link")));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(FrontNearTest, ProgramsSeeTheNamesThatTheyKnow) {
  Front &from = near();
  const InfoPtr list = ask(from);
  EXPECT_THAT(shown(list), ElementsAre("tcp eth0", "tcp docker0", "tcp;ofi_rxm eth0",
                                       "tcp;ofi_rxm docker0", "udp eth0", "udp docker0"));
  EXPECT_THAT(versions(list), ElementsAre("1.0", "1.0", "0.1", "0.1", "1.0", "1.0"));
  EXPECT_THAT(opened(from, *list->next->next), UnorderedElementsAre("link", "shm", "rxm", "tcp"));
  EXPECT_THAT(opened(from, *list), ElementsAre("tcp")) << "FI_EP_MSG";
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(FrontNearTest, TheStrongestSourceCounts) {
  site("version: 1\nlocal: shm\n");
  EXPECT_TRUE(is_near(linked()));
  EXPECT_FALSE(is_near(linked({{"FI_LINK", "none"}})));
  notices_.clear();
  EXPECT_TRUE(is_near(linked({{"FI_LINK", "yes"}})));
  EXPECT_THAT(notices_, ElementsAre("FI_LINK=yes: write shm or none: the "
                                    "variable is ignored"));
  site("version: 1\nlocal: none\nfinal: [local]\n");
  notices_.clear();
  EXPECT_FALSE(is_near(near()));
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0], HasSubstr("local is final in "));
}

TEST_F(FrontNearTest, AProgramThatNamesAStackGetsIt) {
  Front &from = near();
  for (const char *name : {"tcp;ofi_rxm", "ofi_rxm;tcp", "rxm", "^udp"}) {
    const InfoPtr list = ask(from, hints_for(FI_EP_RDM, name).get());
    EXPECT_THAT(versions(list), ElementsAre("0.1", "0.1")) << name;
  }
  // What a program found before may be part of its hints.
  const InfoPtr found = ask(from, hints_for(FI_EP_RDM).get());
  const InfoPtr again(dup_info(found.get()));
  EXPECT_THAT(versions(ask(from, again.get())), Contains("0.1"));
  again->ep_attr->type = FI_EP_MSG;
  std::free(again->fabric_attr->prov_name);
  again->fabric_attr->prov_name = strdup("tcp");
  EXPECT_THAT(opened_first(from, again.get()), ElementsAre("tcp"));
  ask(from, hints_for(FI_EP_RDM, "shm").get(), 0, -FI_ENODATA);
}

TEST_F(FrontNearTest, AFabricWithoutAVersionIsTheStackByItself) {
  Front &from = near();
  const InfoPtr list = ask(from, hints_for(FI_EP_RDM).get());
  list->fabric_attr->prov_version = 0;
  EXPECT_THAT(opened(from, *list), UnorderedElementsAre("rxm", "tcp"));
  list->fabric_attr->prov_version = FI_VERSION(1, 0);
  EXPECT_THAT(opened(from, *list), UnorderedElementsAre("rxm", "tcp"));
}

TEST_F(FrontNearTest, HooksStayWhereTheyWere) {
  EXPECT_THAT(opened_first(near({{"FI_HOOK", "trace"}}), hints_for(FI_EP_RDM).get()),
              UnorderedElementsAre("link<trace", "shm", "rxm", "tcp"));
  site(
      "version: 1\nlocal: shm\nuse: [mine]\nstacks: {mine: [{hook: trace}, {layer: rxm}, {hook: "
      "profile}, {provider: tcp}]}\n");
  EXPECT_THAT(opened_first(linked()),
              UnorderedElementsAre("link<trace", "shm", "rxm", "tcp<profile"));
  EXPECT_THAT(opened_first(linked({{"FI_PROVIDER", "mine"}})),
              UnorderedElementsAre("link<trace", "shm", "rxm", "tcp<profile"));
  EXPECT_THAT(shown(ask(*front_)), Contains("mine eth0"));
}

TEST_F(FrontNearTest, AStackWithLinkStaysAsItIs) {
  site(
      "version: 1\nlocal: shm\nuse: [mine]\nstacks: {mine: [{layer: link, over: [[{provider: "
      "shm}], [{layer: rxm}, {provider: tcp}]]}]}\n");
  const InfoPtr list = ask(linked());
  EXPECT_STREQ(list->fabric_attr->prov_name, "(shm+tcp;ofi_rxm);link");
  EXPECT_EQ(list->fabric_attr->prov_version,
            ask(linked({{"FI_LINK", "none"}}))->fabric_attr->prov_version);
}

struct Off {
  const char *what, *file, *variable;  // `variable`: FI_PROVIDER
  const char *reason;
};

TEST_F(FrontNearTest, ThePolicyMayForbidIt) {
  const Off rows[] = {
      {"disable", "providers: {disable: [shm]}\n", nullptr, "policy: shm is disabled"},
      {"disable of the layer", "providers: {disable: [link]}\n", nullptr,
       "policy: link is disabled"},
      {"a final enable", "providers: {enable: [tcp]}\nfinal: [providers.enable]\n", nullptr,
       "policy: shm is not in providers.enable"},
      {"a rule", "providers: {rank: [{match: {provider: shm}, enable: false}]}\n", nullptr,
       "policy: "},
      {"FI_PROVIDER=^shm", "", "^shm", "policy: FI_PROVIDER=^shm excludes it"},
      {"the tree", "", "^(shm+tcp;ofi_rxm);link", "excludes it"}};
  for (const Off &row : rows) {
    site(std::string("version: 1\n") + row.file);
    std::map<std::string, std::string> environment;
    if (row.variable != nullptr) environment["FI_PROVIDER"] = row.variable;
    Front &from = near(environment);
    EXPECT_FALSE(is_near(from)) << row.what;
    EXPECT_THAT(reasons(from, "tcp"),
                HasSubstr(std::string("tcp;ofi_rxm((shm+tcp;ofi_rxm);link) ") +
                          (row.variable != nullptr && row.reason[0] == 'e' ? "" : row.reason)))
        << row.what;
    EXPECT_THAT(reasons(from, "tcp"), HasSubstr(row.reason)) << row.what;
  }
  // An `enable` that is not final need not name shm, and rules see the stack as what it stands for.
  for (const char *file :
       {"providers: {enable: [tcp]}\n",
        "providers: {rank: [{match: {provider: tcp, netdev: eth0}, rank: 900}]}\n"}) {
    site(std::string("version: 1\n") + file);
    EXPECT_TRUE(is_near(near())) << file;
  }
  EXPECT_THAT(why(*front_, "link").dump(),
              HasSubstr("peers of this host through memory, rank 900"));
  site("version: 1\nproviders: {rank: [{match: {provider: tcp}, enable: false}]}\n");
  ask(near(), hints_for(FI_EP_RDM).get(), 0, -FI_ENODATA);
}

TEST_F(FrontNearTest, WithoutThePluginsTheStackByItselfIsUsed) {
  Front &from = front({{"FI_LINK", "shm"}});
  EXPECT_FALSE(is_near(from));
  EXPECT_THAT(notices_, ElementsAre("FI_LINK=shm names \"shm\", and there is no such unit"));
  EXPECT_THAT(reasons(from, "tcp"),
              HasSubstr("tcp;ofi_rxm((shm+tcp;ofi_rxm);link) manifest: `local: shm` takes the "
                        "provider shm, and no plugin has it | install the plugin shm, or set "
                        "`local: none`"));
}

TEST_F(FrontNearTest, WhatFitsNeitherIsToldOfTheStackByItself) {
  Front &from = near();
  const InfoPtr hints = hints_for(FI_EP_RDM);
  hints->tx_attr->size = size_t{1} << 40;
  log_level_ = FI_LOG_WARN;
  ask(from, hints.get(), 0, -FI_ENODATA);
  ASSERT_THAT(logged_, Not(IsEmpty()));
  EXPECT_THAT(logged_.back(), HasSubstr("nothing fits; the nearest: tcp;ofi_rxm: "));
}

TEST_F(FrontNearTest, WhyAndExplainTellIt) {
  site("version: 1\nlocal: shm\n");
  Front &from = linked();
  ask(from, hints_for(FI_EP_RDM).get());
  bool selected = false;
  for (const auto &one : why(from, "tcp")) {
    if (one["stage"] != "selected") continue;
    selected = true;
    EXPECT_EQ(one["candidate"], "tcp;ofi_rxm((shm+tcp;ofi_rxm);link)");
    EXPECT_THAT(one["reason"].get<std::string>(),
                HasSubstr("; peers of this host through memory, rank 500"));
    EXPECT_THAT(one["rule"].get<std::string>(), HasSubstr("10-site.yaml:2:1"));
  }
  EXPECT_TRUE(selected);
  const auto json = nlohmann::json::parse(from.explain_json("tcp;ofi_rxm").value());
  EXPECT_EQ(json["stack"], "tcp;ofi_rxm");
  ASSERT_EQ(json["parts"].size(), 1u);
  EXPECT_EQ(json["parts"][0]["stack"], "(shm+tcp;ofi_rxm);link");
  EXPECT_EQ(json["parts"][0]["offered_as"], "tcp;ofi_rxm");
  EXPECT_THAT(json["parts"][0]["origin"].get<std::string>(), HasSubstr("10-site.yaml:2:1"));
  EXPECT_EQ(json["parts"][0]["elements"][0]["unit"], "link");
  EXPECT_FALSE(nlohmann::json::parse(from.explain_json("tcp").value()).contains("parts"));
}

TEST_F(FrontNearTest, CallsAndFabricsAreRecordedWithTheirStack) {
  recording_ = true;
  log_level_ = FI_LOG_INFO;
  Front &from = near();
  const InfoPtr list = ask(from, hints_for(FI_EP_RDM).get());
  EXPECT_EQ(recorded_.back()["answers"][0]["provider"], "tcp;ofi_rxm");
  EXPECT_EQ(recorded_.back()["answers"][0]["stack"], "(shm+tcp;ofi_rxm);link");
  opened(from, *list);
  EXPECT_THAT(logged_,
              Contains(HasSubstr("stack tcp;ofi_rxm with `local: shm` (environment FI_LINK) "
                                 "opened: application > link > (shm | rxm > tcp) > wire")));
  ask(from, hints_for(FI_EP_MSG).get());
  EXPECT_FALSE(recorded_.back()["answers"][0].contains("stack"));
}

// The name of the stack in statistics.
TEST_F(FrontNearTest, UnitsKnowTheWholeStack) {
  Front &from = near();
  const InfoPtr list = ask(from, hints_for(FI_EP_RDM).get());
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  std::vector<std::string> stacks;
  objects_.visit_fabrics([&](const ObjectTable::Visited &one) {
    stacks.push_back(std::string(one.element->unit->name) + " of " + one.element->stack);
  });
  EXPECT_THAT(stacks, UnorderedElementsAre(
                          "link of (shm+tcp;ofi_rxm);link", "shm of (shm+tcp;ofi_rxm);link",
                          "rxm of (shm+tcp;ofi_rxm);link", "tcp of (shm+tcp;ofi_rxm);link"));
  EXPECT_EQ(fi_close(&fabric->fid), 0);
}

}  // namespace
}  // namespace weft
