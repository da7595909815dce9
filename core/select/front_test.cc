// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <set>
#include <thread>
#include <tuple>

#include "core/loader/loader.h"
#include "core/select/test_front.h"
#include "tests/paths.h"

namespace weft {

void FrontTest::install(const TestFolder &root) {
  root.copy(test::built("tests/select-plugins/toys.so"), "lib/weft/toys.so");
  root.copy(test::built("lib/weft/weft-config.so"), "lib/weft/weft-config.so");
  LoaderOptions options;
  options.reader_library = root.at("lib/weft/weft-config.so");
  options.probe_program = test::built("lib/weft/weft-probe");
  const Result<RefreshReport> report = Loader::refresh(options, root.at("lib/weft"));
  ASSERT_TRUE(report.has_value()) << report.error().text;
  ASSERT_EQ(report->troubles.to_text(), "");
  ASSERT_EQ(report->plugins, 1u);
}

namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(FrontTest, ListsStacksBestFirst) {
  EXPECT_THAT(shown(ask(front())), ElementsAre("tcp eth0", "tcp docker0", "tcp;ofi_rxm eth0",
                                               "tcp;ofi_rxm docker0", "udp eth0", "udp docker0"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(FrontTest, ProviderVariable) {
  EXPECT_THAT(shown(ask(front({{"FI_PROVIDER", "udp"}}))), ElementsAre("udp eth0", "udp docker0"));
  EXPECT_THAT(shown(ask(front({{"FI_PROVIDER", "tcp;ofi_rxm"}}))),
              ElementsAre("tcp;ofi_rxm eth0", "tcp;ofi_rxm docker0"));
  EXPECT_THAT(shown(ask(front({{"FI_PROVIDER", "^tcp"}}))), ElementsAre("udp eth0", "udp docker0"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(FrontTest, AMisspeltProviderGivesOneNotice) {
  Front &from = front({{"FI_PROVIDER", "tpc"}});
  ask(from, nullptr, 0, -FI_ENODATA);
  ask(from, nullptr, 0, -FI_ENODATA);
  EXPECT_THAT(notices_, ElementsAre("FI_PROVIDER=tpc (column 1): no provider \"tpc\": did you mean "
                                    "\"tcp\"? known: verbs, link, ofi_rxm, tcp, udp, broken"));
  EXPECT_THAT(reasons(from, "tpc"), HasSubstr("tpc manifest: FI_PROVIDER=tpc (column 1)"));
  EXPECT_THAT(reasons(from, "tcp"), HasSubstr("tcp policy: FI_PROVIDER=tpc does not name it"));
}

TEST_F(FrontTest, AMalformedVariableChoosesNothing) {
  ask(front({{"FI_PROVIDER", "tcp, udp"}}), nullptr, 0, -FI_ENODATA);
  EXPECT_THAT(notices_, ElementsAre("FI_PROVIDER=tcp, udp: column 5: a blank: remove it"));
  notices_.clear();
  ask(front({{"FI_HOOK", "nosuch"}}), nullptr, 0, -FI_ENODATA);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0], HasSubstr("FI_HOOK=nosuch (column 1): no hook \"nosuch\": known: "));
}

TEST_F(FrontTest, ReportsAnAbsentDevice) {
  Front &from = front({{"FI_PROVIDER", "verbs"}});
  ask(from, nullptr, 0, -FI_ENODATA);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0], HasSubstr("FI_PROVIDER=verbs: verbs: "));
  EXPECT_THAT(notices_[0], HasSubstr("/nonexistent/uverbs"));
  EXPECT_THAT(reasons(from, "verbs"), HasSubstr("verbs device: "));
  EXPECT_THAT(reasons(from, "verbs;ofi_rxm"), HasSubstr("its provider verbs cannot be used"));
}

TEST_F(FrontTest, LogsTheNearestMissIfNothingFits) {
  log_level_ = FI_LOG_INFO;
  Front &from = front();
  InfoPtr hints = hints_for(FI_EP_RDM);
  ask(from, hints.get());
  EXPECT_THAT(logged_, IsEmpty()) << "something fits";
  hints->tx_attr->size = size_t{1} << 40;
  ask(from, hints.get(), 0, -FI_ENODATA);
  ASSERT_GT(logged_.size(), 3u);
  EXPECT_THAT(logged_[0], HasSubstr("warn fi_getinfo: nothing fits; the nearest: tcp;ofi_rxm: "
                                    "tx_attr.size 1099511627776 is above "));
  EXPECT_THAT(logged_[1],
              HasSubstr("info fi_getinfo: tcp;ofi_rxm: tx_attr.size 1099511627776 is above "));
  EXPECT_THAT(logged_, Contains("info fi_getinfo: udp: ep_attr.type: FI_EP_RDM wanted, FI_EP_DGRAM "
                                "offered"));
  // Each candidate once.
  EXPECT_EQ(std::set<std::string>(logged_.begin(), logged_.end()).size(), logged_.size());
  logged_.clear();
  log_level_ = FI_LOG_WARN;
  ask(from, hints.get(), 0, -FI_ENODATA);
  EXPECT_EQ(logged_.size(), 1u);
  EXPECT_THAT(notices_, IsEmpty()) << "the configuration has no mistake";
}

TEST_F(FrontTest, AMisspeltNameInTheHintsIsTheNearestMiss) {
  log_level_ = FI_LOG_INFO;
  ask(front(), hints_for(FI_EP_RDM, "tpc").get(), 0, -FI_ENODATA);
  ASSERT_GT(logged_.size(), 1u);
  EXPECT_THAT(logged_[0], HasSubstr("the nearest: tpc: no provider or layer is called \"tpc\": did "
                                    "you mean \"tcp\"?"));
}

TEST_F(FrontTest, RecordsEachCallIfAskedTo) {
  recording_ = true;
  Front &from = front();
  InfoPtr hints = hints_for(FI_EP_RDM, "tcp;ofi_rxm");
  hints->caps = FI_MSG;
  const InfoPtr list = ask(from, hints.get());
  ASSERT_EQ(recorded_.size(), 1u);
  EXPECT_EQ(recorded_[0]["call"], "getinfo");
  EXPECT_EQ(recorded_[0]["version"], "2.6");
  EXPECT_EQ(recorded_[0]["result"], 0);
  EXPECT_EQ(recorded_[0]["hints"]["ep_attr.type"], "FI_EP_RDM");
  EXPECT_EQ(recorded_[0]["hints"]["caps"], "FI_MSG");
  EXPECT_EQ(recorded_[0]["answers"][0]["provider"], "tcp;ofi_rxm");
  EXPECT_EQ(recorded_[0]["answers"][0]["domain"], "eth0");
  for (const auto &miss : recorded_[0]["misses"]) EXPECT_NE(miss["candidate"], "tcp;ofi_rxm");
  ask(from, hints_for(FI_EP_RDM, "tpc").get(), 0, -FI_ENODATA);
  ASSERT_EQ(recorded_.size(), 2u);
  EXPECT_EQ(recorded_[1]["result"], -FI_ENODATA);
  EXPECT_EQ(recorded_[1]["misses"][0]["candidate"], "tpc");
  EXPECT_THAT(recorded_[1]["misses"][0]["remedy"].get<std::string>(),
              HasSubstr("did you mean \"tcp\"?"));
  ask(from, nullptr, FI_PROV_ATTR_ONLY);
  ASSERT_EQ(recorded_.size(), 3u);
  EXPECT_EQ(recorded_[2]["flags"][0], "FI_PROV_ATTR_ONLY");
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  ASSERT_EQ(recorded_.size(), 4u);
  EXPECT_EQ(recorded_[3]["call"], "fabric");
  EXPECT_EQ(recorded_[3]["provider"], "tcp;ofi_rxm");
  EXPECT_EQ(recorded_[3]["stack"], (std::vector<std::string>{"rxm", "tcp"}));
  fi_close(&fabric->fid);
  fi_fabric_attr none{};
  char name[] = "nosuch";
  none.prov_name = name;
  EXPECT_EQ(from.fabric(&none, nullptr, 0, &fabric, nullptr), -FI_ENODEV);
  EXPECT_THAT(recorded_[4]["error"].get<std::string>(), HasSubstr("no stack \"nosuch\""));
}

TEST_F(FrontTest, AFailingProviderDoesNotStopOthers) {
  Front &from = front();
  ask(from);
  EXPECT_THAT(reasons(from, "broken"), HasSubstr("broken init: broken: the adapter is on fire"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(FrontTest, HintsThatDoNotFitGiveNoNotice) {
  Front &from = front({{"FI_PROVIDER", "udp"}});
  ask(from, hints_for(FI_EP_RDM).get(), 0, -FI_ENODATA);
  EXPECT_THAT(notices_, IsEmpty()) << "the application may ask again with others";
  EXPECT_THAT(reasons(from, "udp"),
              HasSubstr("udp hints: hints.ep_attr.type: FI_EP_RDM wanted, FI_EP_DGRAM offered"));
  const InfoPtr hints = hints_for(FI_EP_UNSPEC);
  hints->caps = FI_TAGGED;
  ask(from, hints.get(), 0, -FI_ENODATA);
  EXPECT_THAT(reasons(from, "udp"), HasSubstr("hints.caps: FI_TAGGED wanted"));
}

TEST_F(FrontTest, ProvNameInHints) {
  Front &from = front();
  const auto found = [&](const char *name) {
    return shown(ask(from, hints_for(FI_EP_UNSPEC, name).get()));
  };
  EXPECT_THAT(found("udp"), ElementsAre("udp eth0", "udp docker0"));
  EXPECT_THAT(found("ofi_rxm"), ElementsAre("tcp;ofi_rxm eth0", "tcp;ofi_rxm docker0"));
  EXPECT_THAT(found("rxm"), ElementsAre("tcp;ofi_rxm eth0", "tcp;ofi_rxm docker0"));
  EXPECT_THAT(found("ofi_rxm;tcp"), ElementsAre("tcp;ofi_rxm eth0", "tcp;ofi_rxm docker0"));
  EXPECT_THAT(found("^tcp"), ElementsAre("udp eth0", "udp docker0"));
  ask(from, hints_for(FI_EP_UNSPEC, "nosuch").get(), 0, -FI_ENODATA);
}

TEST_F(FrontTest, AStackNotInUseCanBeAskedForByName) {
  Front &from = front();
  EXPECT_THAT(shown(ask(from)), Not(Contains(HasSubstr("sockets"))));
  EXPECT_THAT(reasons(from, "Sockets"), HasSubstr("only those who ask for this name"));
  for (const auto &part : why(from, "sockets"))
    EXPECT_EQ(part["remedy"].get<std::string>().ends_with(", with FI_ATOMIC in caps"),
              part["candidate"] == "sockets(tcp;ofi_rxm)")
        << part;
  const auto both =
      ElementsAre("sockets eth0", "sockets docker0", "sockets eth0", "sockets docker0");
  EXPECT_THAT(shown(ask(from, hints_for(FI_EP_UNSPEC, "sockets").get())), both);
  EXPECT_THAT(shown(ask(front({{"FI_PROVIDER", "sockets"}}))), both);
}

// A stack of several parts: one for connections, one for datagrams.
TEST_F(FrontTest, AFabricIsOfThePartWhoseInfoWasGiven) {
  Front &from = front();
  const auto opened = [&](fi_fabric_attr attr, const fi_info *info = nullptr) -> std::string {
    fid_fabric *fabric = nullptr;
    if (const int rc = from.fabric(&attr, info, 0, &fabric, nullptr); rc != 0) return "no fabric";
    const std::string element = objects_.list().front().element;
    EXPECT_EQ(fi_close(&fabric->fid), 0);
    return element;
  };
  const InfoPtr msg = ask(from, hints_for(FI_EP_MSG, "sockets").get());
  EXPECT_EQ(shown(msg).size(), 2u);
  EXPECT_THAT(reasons(from, "sockets"), HasSubstr("sockets(udp) hints: hints.ep_attr.type"));
  EXPECT_EQ(opened(*msg->fabric_attr), "tcp");
  const InfoPtr dgram = ask(from, hints_for(FI_EP_DGRAM, "sockets").get());
  EXPECT_EQ(shown(dgram).size(), 2u);
  EXPECT_EQ(opened(*dgram->fabric_attr), "udp");
  EXPECT_NE(msg->fabric_attr->prov_version, dgram->fabric_attr->prov_version);

  fi_fabric_attr by_hand = *dgram->fabric_attr;
  by_hand.prov_version = 0;
  EXPECT_EQ(opened(by_hand), "tcp") << "nothing says which";
  EXPECT_EQ(opened(by_hand, hints_for(FI_EP_DGRAM).get()), "udp") << "fi_fabric2()";
  EXPECT_EQ(opened(by_hand, hints_for(FI_EP_UNSPEC).get()), "tcp");
}

TEST_F(FrontTest, AFabricInHintsIsOfOnePart) {
  Front &from = front();
  const InfoPtr dgram = ask(from, hints_for(FI_EP_DGRAM, "sockets").get());
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(dgram->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  EXPECT_EQ(ask(from, hints_for(FI_EP_DGRAM, "sockets").get())->fabric_attr->fabric, fabric);
  const InfoPtr msg = hints_for(FI_EP_MSG, "sockets");
  EXPECT_EQ(ask(from, msg.get())->fabric_attr->fabric, nullptr);
  msg->fabric_attr->fabric = fabric;
  ask(from, msg.get(), 0, -FI_ENODATA);
  EXPECT_THAT(reasons(from, "sockets"), HasSubstr("sockets(tcp) hints: hints.fabric_attr.fabric"));
  msg->fabric_attr->fabric = nullptr;
  EXPECT_EQ(fi_close(&fabric->fid), 0);
}

TEST_F(FrontTest, EachPartFollowsThePolicy) {
  site("version: 1\nproviders: {disable: [udp]}\n");
  EXPECT_THAT(shown(ask(front({{"FI_PROVIDER", "sockets"}}))),
              ElementsAre("sockets eth0", "sockets docker0"));
  site("version: 1\nstacks: {sockets: [{provider: udp}]}\n");
  const InfoPtr own = ask(front({{"FI_PROVIDER", "sockets"}}));
  EXPECT_THAT(shown(own), ElementsAre("sockets eth0", "sockets docker0"));
  EXPECT_EQ(own->fabric_attr->prov_version, FI_VERSION(1, 0)) << "that of udp";
  site("version: 1\nuse: [sockets]\n");
  EXPECT_THAT(shown(ask(front({{"FI_PROVIDER", "tcp,udp"}}))),
              ElementsAre("tcp eth0", "tcp docker0", "udp eth0", "udp docker0", "tcp;ofi_rxm eth0",
                          "tcp;ofi_rxm docker0"));
}

TEST_F(FrontTest, ExplainsEachPart) {
  Front &from = front();
  auto told = nlohmann::json::parse(from.explain_json("sockets").value());
  EXPECT_EQ(told["elements"][0]["unit"], "tcp");
  ASSERT_EQ(told["parts"].size(), 2u);
  EXPECT_EQ(told["parts"][0]["elements"][0]["unit"], "udp");
  EXPECT_EQ(told["parts"][1]["elements"][0]["unit"], "rxm");
  told = nlohmann::json::parse(from.explain_json("udp").value());
  EXPECT_FALSE(told.contains("parts"));
  site("version: 1\nuse: [sockets]\n");
  told = nlohmann::json::parse(front().explain_json("sockets").value());
  EXPECT_EQ(told["parts"][0]["elements"][0]["unit"], "udp");
}

// mercury asks so for what it calls ofi+sockets.
TEST_F(FrontTest, AStackHasTheProtocolOfWhatItReplaces) {
  Front &from = front();
  for (const char *const name : {"sockets", "tcp"}) {
    const InfoPtr hints = hints_for(FI_EP_UNSPEC, name);
    hints->ep_attr->protocol = FI_PROTO_SOCK_TCP;
    const bool replaces = std::string_view(name) == "sockets";
    const InfoPtr found = ask(from, hints.get(), 0, replaces ? 0 : -FI_ENODATA);
    if (replaces) {
      EXPECT_EQ(found->ep_attr->protocol, uint32_t(FI_PROTO_SOCK_TCP));
    }
  }
  const InfoPtr plain = ask(from, hints_for(FI_EP_UNSPEC, "sockets").get());
  EXPECT_NE(plain->ep_attr->protocol, uint32_t(FI_PROTO_SOCK_TCP)) << "nobody asked";
}

TEST_F(FrontTest, AttributesOnlyOpensNothing) {
  TestFolder fresh;
  install(fresh);
  const InfoPtr list = ask(front({}, &fresh), nullptr, FI_PROV_ATTR_ONLY);
  std::vector<std::string> names;
  for (const fi_info *info = list.get(); info != nullptr; info = info->next) {
    names.push_back(info->fabric_attr->prov_name);
    EXPECT_EQ(info->fabric_attr->prov_version, FI_VERSION(1, 0));
    EXPECT_EQ(info->caps, 0u);
  }
  EXPECT_THAT(names,
              ElementsAre("verbs", "link", "profile", "ofi_rxm", "tcp", "trace", "udp", "broken"));
  std::ifstream maps("/proc/self/maps");
  const std::string mapped((std::istreambuf_iterator<char>(maps)), {});
  EXPECT_THAT(mapped, Not(HasSubstr(fresh.path())));
}

TEST_F(FrontTest, NeverOpensUnchosenPlugins) {
  TestFolder fresh;
  install(fresh);
  ask(front({{"FI_PROVIDER", "nosuch"}}, &fresh), nullptr, 0, -FI_ENODATA);
  std::ifstream maps("/proc/self/maps");
  const std::string mapped((std::istreambuf_iterator<char>(maps)), {});
  EXPECT_THAT(mapped, Not(HasSubstr(fresh.path())));
}

TEST_F(FrontTest, SourceNeedsAnAddress) {
  ask(front(), nullptr, FI_SOURCE, -FI_ENODATA);
}

TEST_F(FrontTest, RulesOfTheSite) {
  site(
      "version: 1\nproviders:\n  disable: [verbs]\n  rank:\n"
      "    - {match: {provider: udp, netdev: \"eth*\"}, rank: 600}\n"
      "    - {match: {provider: tcp, subnet: 172.17.0.0/16}, enable: false}\n");
  Front &from = front();
  EXPECT_THAT(shown(ask(from)),
              ElementsAre("udp eth0", "tcp eth0", "tcp;ofi_rxm eth0", "udp docker0"));
  EXPECT_THAT(reasons(from, "tcp"),
              HasSubstr("tcp rank: a rule of providers.rank switches docker0 off"));
  EXPECT_THAT(reasons(from, "verbs"), HasSubstr("verbs policy: verbs is disabled"));
  for (const auto &one : why(from, "udp")) {
    if (one["stage"] == "selected") {
      EXPECT_THAT(one["rule"].get<std::string>(), HasSubstr("10-site.yaml:5:7"));
    }
  }
}

TEST_F(FrontTest, StacksOfTheSiteComeFirst) {
  site(
      "version: 1\nstacks:\n  traced:\n    - {hook: trace}\n    - {layer: rxm}\n"
      "    - {hook: profile, on_unavailable: skip}\n    - {provider: tcp, params: {eager_size: "
      "64}}\n"
      "use: [traced]\n");
  Front &from = front();
  const InfoPtr list = ask(from);
  EXPECT_EQ(shown(list)[0], "tcp;ofi_rxm eth0");
  EXPECT_THAT(reasons(from, "tcp;ofi_rxm"), HasSubstr(""));
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  fid_domain *domain = nullptr;
  fid_ep *ep = nullptr;
  ASSERT_EQ(fi_domain(fabric, list.get(), &domain, nullptr), 0);
  ASSERT_EQ(fi_endpoint(domain, list.get(), &ep, nullptr), 0);
  std::vector<std::string> hooked;
  for (const ObjectTable::Live &live : objects_.list()) {
    for (const std::string &hook : live.hooks) hooked.push_back(live.element + "<" + hook);
  }
  EXPECT_THAT(hooked, ElementsAre("tcp<profile", "rxm<trace"));
  EXPECT_EQ(fi_send(ep, nullptr, 0, nullptr, 0, nullptr), 1001);
  fi_close(&ep->fid);
  fi_close(&domain->fid);
  fi_close(&fabric->fid);
}

TEST_F(FrontTest, AnEmptyUseChangesNothing) {
  const std::string stacks =
      "version: 1\nproviders: {disable: [verbs]}\nstacks: {mine: [{provider: udp}]}\nuse: [";
  site(stacks + "mine]\n");
  EXPECT_EQ(shown(ask(front()))[0], "udp eth0");
  site(stacks + "]\n");
  Front &from = front();
  EXPECT_EQ(shown(ask(from))[0], "tcp eth0");
  EXPECT_EQ(shown(ask(from, hints_for(FI_EP_UNSPEC, "mine").get()))[0], "mine eth0");
}

TEST_F(FrontTest, OpensAFabricByOwnAttributes) {
  Front &from = front();
  const auto open = [&](const char *prov_name, const char *name) {
    fi_fabric_attr attr{};
    std::string own_prov = prov_name != nullptr ? prov_name : "", own_name = name;
    attr.prov_name = prov_name != nullptr ? own_prov.data() : nullptr;
    attr.name = own_name.data();
    attr.api_version = FI_VERSION(1, 9);
    fid_fabric *fabric = nullptr;
    const int rc = from.fabric(&attr, nullptr, 0, &fabric, nullptr);
    if (rc == 0) {
      EXPECT_EQ(fabric->api_version, FI_VERSION(1, 9));
      EXPECT_EQ(fi_close(&fabric->fid), 0);
    }
    return rc;
  };
  EXPECT_EQ(open("tcp", "10.0.0.0/24"), 0) << "without a getinfo before";
  EXPECT_EQ(open("tcp;ofi_rxm", "10.0.0.0/24"), 0);
  EXPECT_EQ(open("ofi_rxm;tcp", "10.0.0.0/24"), 0);
  EXPECT_EQ(open("TCP", "x"), 0);
  EXPECT_EQ(open("ofi_rxm", "x"), -FI_ENODEV);
  EXPECT_EQ(open("nosuch", "x"), -FI_ENODEV);
  EXPECT_EQ(open("verbs", "x"), -FI_ENODEV);
  EXPECT_THAT(toys::logged().back(), HasSubstr("no stack \"verbs\" (verbs: "));
  EXPECT_EQ(open(nullptr, "x"), -FI_EINVAL);
  fi_fabric_attr attr{};
  fid_fabric *fabric = nullptr;
  EXPECT_EQ(from.fabric(&attr, nullptr, FI_PEER, &fabric, nullptr), -FI_EBADFLAGS);
}

TEST_F(FrontTest, RefersToOpenFabrics) {
  Front &from = front();
  const InfoPtr list = ask(from, hints_for(FI_EP_MSG, "tcp").get());
  EXPECT_EQ(list->fabric_attr->fabric, nullptr);
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  const InfoPtr again = ask(from);
  EXPECT_EQ(again->fabric_attr->fabric, fabric);
  EXPECT_EQ(again->next->fabric_attr->fabric, nullptr) << "another network";
  const InfoPtr hints = hints_for(FI_EP_UNSPEC);
  hints->fabric_attr->fabric = fabric;
  EXPECT_THAT(shown(ask(from, hints.get())), ElementsAre("tcp eth0"));
  EXPECT_EQ(fi_close(&fabric->fid), 0);
  ask(from, hints.get(), 0, -FI_ENODATA);  // a pointer to a closed fabric is only compared
  EXPECT_THAT(reasons(from, "tcp"),
              HasSubstr("hints.fabric_attr.fabric was opened by another stack"));
}

TEST_F(FrontTest, HooksOnARunningProgram) {
  Front &from = front();
  const InfoPtr list = ask(from, hints_for(FI_EP_MSG).get());
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(from.fabric(list->fabric_attr, nullptr, 0, &fabric, nullptr), 0);
  fid_domain *domain = nullptr;
  fid_ep *ep = nullptr;
  ASSERT_EQ(fi_domain(fabric, list.get(), &domain, nullptr), 0);
  ASSERT_EQ(fi_endpoint(domain, list.get(), &ep, nullptr), 0);
  const fi_ops_msg *before = ep->msg;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(from.attach_hook(std::array{&fabric->fid}, "trace").has_value());
    EXPECT_NE(ep->msg, before);
    EXPECT_THAT(from.attach_hook(std::array{&fabric->fid}, "trace").error().text,
                HasSubstr("already"));
    ASSERT_TRUE(from.detach_hook(std::array{&fabric->fid}, "trace").has_value());
    EXPECT_EQ(ep->msg, before);
  }
  EXPECT_THAT(from.attach_hook(std::array{&fabric->fid}, "trcae").error().text,
              HasSubstr("did you mean \"trace\"?"));
  EXPECT_THAT(from.attach_hook(std::array{&fabric->fid}, "tcp").error().text,
              HasSubstr("no hook \"tcp\""));
  EXPECT_THAT(from.detach_hook(std::array{&fabric->fid}, "trace").error().text,
              HasSubstr("not on this object"));
  fi_close(&ep->fid);
  fi_close(&domain->fid);
  fi_close(&fabric->fid);
  EXPECT_THAT(from.attach_hook(std::array{&fabric->fid}, "trace").error().text,
              HasSubstr("no open object"));
}

TEST_F(FrontTest, AProviderThatIsAskedForAndHasNothingLeftIsToldOnce) {
  site("version: 1\nparams: {tcp: {iface: gone7}}\n");
  Front &from = front();
  for (int i = 0; i < 2; ++i) EXPECT_THAT(shown(ask(from)), ElementsAre("udp eth0", "udp docker0"));
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0], HasSubstr("tcp: the filter gone7 matches no interface ("));
  EXPECT_THAT(notices_[0], HasSubstr("10-site.yaml:2:16): tcp is left out"));
  const nlohmann::json decisions = why(from, "tcp");
  EXPECT_TRUE(std::ranges::any_of(decisions, [](const auto &one) {
    return one["candidate"] == "tcp" && one.value("lost", false);
  })) << decisions;
  site("version: 1\n");
  for (const bool alone : {true, false}) {
    notices_.clear();
    ask(front({{"FI_PROVIDER", alone ? "tcp" : "tcp,udp"}, {"FI_TCP_IFACE", "gone8"}}), nullptr, 0,
        alone ? -FI_ENODATA : 0);
    ASSERT_EQ(notices_.size(), 1u) << ::testing::PrintToString(notices_);
    EXPECT_THAT(notices_[0], HasSubstr("gone8"));
  }
  // The value of another setting may be in the reason by chance.
  site("version: 1\nparams: {tcp: {iface: gone-9}}\n");
  notices_.clear();
  ask(front({{"FI_TCP_EAGER_SIZE", "9"}}));
  ASSERT_EQ(notices_.size(), 1u) << ::testing::PrintToString(notices_);
  EXPECT_THAT(notices_[0], HasSubstr("10-site.yaml:2:16)"));
}

TEST_F(FrontTest, AProviderKnowsWhetherSomebodyNamesIt) {
  const auto offered = [&](Front &from, const char *prov_name) {
    const InfoPtr hints = hints_for(FI_EP_UNSPEC, prov_name);
    fi_info *list = nullptr;
    (void)from.getinfo(kVersion, nullptr, nullptr, 0, hints.get(), &list);
    const InfoPtr owner(list);
    for (const fi_info *info = list; info != nullptr; info = info->next)
      if (std::string_view(info->fabric_attr->prov_name).starts_with("tcp")) return true;
    return false;
  };
  for (const auto &[filter, prov_name, expected] :
       {std::tuple("", static_cast<const char *>(nullptr), false),
        {"tcp", nullptr, true},
        {"udp,TCP", nullptr, true},
        {"tcp;ofi_rxm", nullptr, true},
        {"ofi_rxm", nullptr, false},
        {"^udp", nullptr, false},
        {"", "tcp", true},
        {"", "udp,Tcp", true},
        {"", "tcp;ofi_rxm", true},
        {"", "ofi_rxm;tcp", true},
        {"", "ofi_rxm", false},
        {"", "^udp", false}}) {
    std::map<std::string, std::string> environment = {{"FI_TCP_IFACE", "named"}};
    if (*filter != '\0') environment["FI_PROVIDER"] = filter;
    EXPECT_EQ(offered(front(environment), prov_name), expected)
        << filter << "/" << (prov_name != nullptr ? prov_name : "");
  }
  fi_info *list = nullptr;
  (void)front({{"FI_TCP_IFACE", "named"}})
      .getinfo(kVersion, nullptr, nullptr, WEFT_GETINFO_NAMED | WEFT_GETINFO_OPENING, nullptr,
               &list);
  EXPECT_THAT(shown(InfoPtr(list)), ElementsAre("udp eth0", "udp docker0"))
      << "an application has no such flags";
  site("version: 1\nstacks: {mine: [{provider: tcp}]}\nuse: [mine]\n");
  EXPECT_TRUE(offered(front({{"FI_TCP_IFACE", "named"}}), nullptr)) << "a stack names it";
}

TEST_F(FrontTest, AWrongVariableTakesNoProviderAway) {
  Front &from = front({{"FI_TCP_EAGER_SIZE", "lots"}, {"FI_TCP_EAGER_SIEZ", "1"}});
  EXPECT_THAT(shown(ask(from)), testing::Contains("tcp eth0"));
  ask(from);
  EXPECT_THAT(notices_,
              testing::UnorderedElementsAre(
                  "FI_TCP_EAGER_SIEZ is no parameter of tcp: did you mean FI_TCP_EAGER_SIZE?",
                  testing::AllOf(HasSubstr("FI_TCP_EAGER_SIZE: \"lots\" is not a size"),
                                 HasSubstr("; the default, \"16K\", is used"))));
}

TEST_F(FrontTest, AWrongValueOfAFileRejectsItsUnit) {
  site("version: 1\nparams: {tcp: {eager_size: lots}}\n");
  Front &from = front({{"FI_TCP_EAGER_SIZE", "32K"}});
  EXPECT_THAT(shown(ask(from)), ElementsAre("udp eth0", "udp docker0"));
  EXPECT_THAT(reasons(from, "tcp"), HasSubstr("\"lots\" is not a size"));
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0], HasSubstr("10-site.yaml:2:16: params.tcp.eager_size: \"lots\""));
}

TEST_F(FrontTest, AFileThatIsRefusedIsNotOpened) {
  Front &from = front();
  ASSERT_TRUE(from.refuse({installed_->at("lib/weft/toys.so"), Stage::kGetinfo,
                           "it stalled elsewhere", "ask its vendor"}));
  ask(from, nullptr, 0, -FI_ENODATA);
  EXPECT_THAT(reasons(from, "tcp"),
              HasSubstr("tcp getinfo: it stalled elsewhere | ask its vendor"));
  EXPECT_FALSE(from.refuse({"/late.so", Stage::kGetinfo, "", ""})) << "it was asked already";
}

// Questions about another site and another host, in the order in which rules ask.
TEST_F(FrontTest, AnswersAsForAnotherMachine) {
  site("version: 1\nproviders: {disable: [udp]}\n");
  const std::string trial =
      system_.write("trial.yaml",
                    "version: 1\nproviders:\n  rank:\n"
                    "  - {match: {hostname: login7, netdev: docker0}, enable: false}\n"
                    "  - {match: {executable: solver, netdev: hsn0}, rank: 900}\n");
  const std::string place = system_.path() + "/etc/weft/10-site.yaml";
  EXPECT_THAT(shown(ask(front(), hints_for(FI_EP_DGRAM).get(), 0, -FI_ENODATA)),
              testing::IsEmpty());
  Front &from = front({{"FI_PROVIDER", "udp"}});
  ASSERT_TRUE(from.suppose("file", place, trial));
  EXPECT_THAT(shown(ask(from)), ElementsAre("udp eth0", "udp docker0"));
  EXPECT_THAT(from.suppose("hostname", "", "login7").error().text, HasSubstr("before anything"));

  Front &elsewhere = front({{"FI_PROVIDER", "udp"}});
  ASSERT_TRUE(elsewhere.suppose("file", place, trial));
  ASSERT_TRUE(elsewhere.suppose("hostname", "", "login7"));
  EXPECT_THAT(shown(ask(elsewhere)), ElementsAre("udp eth0"));

  Front &other = front({{"FI_PROVIDER", "udp"}});
  ASSERT_TRUE(other.suppose("file", place, trial));
  ASSERT_TRUE(other.suppose("executable", "", "/opt/solver"));
  ASSERT_TRUE(other.suppose("netdev", "docker0", "hsn0"));
  EXPECT_THAT(shown(ask(other)), ElementsAre("udp docker0", "udp eth0"));
  EXPECT_FALSE(front().suppose("file", "/elsewhere.yaml", trial));
}

// The words of a remedy are anybody's; they do not make the core's own reason of it.
TEST_F(FrontTest, ARemedyThatSendsToAManualHidesNoReason) {
  site(
      "version: 1\nstacks: {mine: [{hook: trace, on_unavailable: skip}, {provider: tcp}]}\n"
      "use: [mine]\n");
  Front &from = front();
  ASSERT_TRUE(from.refuse(
      {installed_->at("lib/weft/toys.so"), Stage::kGetinfo, "it stalled", "see its manual"}));
  EXPECT_EQ(from.explain_json("mine").error().text, "tcp: it stalled: see its manual");
}

TEST_F(FrontTest, EachCallIntoAPluginIsHeard) {
  Front &from = front({{"FI_PROVIDER", "tcp"}});
  std::vector<std::string> heard;
  from.listen(
      [](void *arg, const char *unit, const char *, const char *call) {
        if (unit != nullptr)
          static_cast<std::vector<std::string> *>(arg)->push_back(std::string(unit) + " " + call);
      },
      &heard);
  ask(from);
  EXPECT_THAT(heard, testing::IsSupersetOf({"tcp create", "tcp getinfo"}));
  from.listen(nullptr, nullptr);
}

TEST_F(FrontTest, WhyTellsOfAFolderThatWasRefused) {
  TestFolder open;
  const std::string folder = open.at("plugins");
  std::filesystem::create_directories(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  Front &from = front({{"FI_PROVIDER_PATH", folder}});
  EXPECT_THAT(reasons(from, "frob"),
              testing::AllOf(HasSubstr("no plugin has a unit or stack of this name; the folder " +
                                       folder + " was refused: "),
                             HasSubstr("chmod")));
}

TEST_F(FrontTest, ConfigurationMistakesGiveOneNotice) {
  site("version: 1\nproviders: {disabel: [udp]}\n");
  Front &from = front();
  ask(from);
  ask(from);
  ASSERT_EQ(notices_.size(), 2u);
  EXPECT_THAT(notices_[0], HasSubstr("10-site.yaml"));
  EXPECT_THAT(notices_[0], HasSubstr("did you mean 'disable'?"));
  EXPECT_THAT(notices_[1], HasSubstr("has errors: the file is left out"));
  const auto config = nlohmann::json::parse(from.config_json().value());
  EXPECT_EQ(config["diagnostics"][0]["severity"], "error");
}

// Each process of a job tells them.
TEST_F(FrontTest, ThousandsOfMistakesGiveAFewNotices) {
  std::string names;
  for (int i = 0; i < 3000; ++i) names += "nm" + std::to_string(i) + ",";
  site("version: 1\nuse: [" + names + "nm]\n");
  ask(front({{"FI_PROVIDER", names + "tpc,tcp"}}));
  ASSERT_EQ(notices_.size(), 21u);
  EXPECT_THAT(notices_[0], HasSubstr("use names \"nm0\""));
  EXPECT_EQ(notices_[20],
            "2981 more problems of the configuration: `weft config lint` tells them all");
  for (const std::string &one : notices_) EXPECT_LT(one.size(), 500u);
  EXPECT_LT(front_->why_json("").value().size(), size_t{4} << 20);
  notices_.clear();
  ask(front({{"FI_PROVIDER", names + "nm"}}), nullptr, 0, -FI_ENODATA);
  for (const std::string &one : notices_) EXPECT_LT(one.size(), 500u);
}

// What makes something unusable is told, whatever else has no effect.
TEST_F(FrontTest, MistakesAreToldBeforeWarnings) {
  std::string stacks;
  for (int i = 0; i < 25; ++i) stacks += "s" + std::to_string(i) + ": [{provider: tcp}], ";
  site("version: 1\nfinal: [stacks]\n");
  const std::string more =
      system_.write("etc/weft/20-more.yaml", "version: 1\nstacks: {" + stacks + "}\nuse: [nm]\n");
  ask(front());
  ASSERT_EQ(notices_.size(), 21u);
  EXPECT_THAT(notices_[0], HasSubstr("use names \"nm\""));
  EXPECT_THAT(notices_[1], HasSubstr("is final in"));
  std::filesystem::remove(more);
}

TEST_F(FrontTest, ReportsASiteThatDisablesEverything) {
  site("version: 1\nproviders: {enable: [shm]}\n");
  ask(front(), nullptr, 0, -FI_ENODATA);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0], HasSubstr("is not in providers.enable"));
  EXPECT_THAT(notices_[0], HasSubstr("10-site.yaml:2:22"));
}

TEST_F(FrontTest, ReportsThatNoPluginIsInstalled) {
  TestFolder bare;
  std::filesystem::create_directories(bare.at("lib/weft"));
  ask(front({}, &bare), nullptr, 0, -FI_ENODATA);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0],
              HasSubstr("no provider plugin can be used (searched: " + bare.at("lib/weft")));
}

TEST_F(FrontTest, ProviderPathAddsPlugins) {
  TestFolder bare;
  std::filesystem::create_directories(bare.at("lib/weft"));
  bare.copy(test::built("lib/weft/weft-config.so"), "lib/weft/weft-config.so");
  Front &from =
      front({{"FI_PROVIDER_PATH", installed_->at("lib/weft")}, {"FI_PROVIDER", "udp"}}, &bare);
  EXPECT_THAT(shown(ask(from)), ElementsAre("udp eth0", "udp docker0"));
}

TEST_F(FrontTest, WhyExplainsStacksThatWereNeverAsked) {
  Front &from = front();  // no getinfo before
  EXPECT_THAT(reasons(from, "verbs"), HasSubstr("device"));
  EXPECT_THAT(reasons(from, "nosuch"), HasSubstr("no plugin has a unit or stack of this name"));
  EXPECT_THAT(reasons(from, "trace"),
              HasSubstr("it is a hook that no stack uses | name it in FI_HOOK"));
  std::vector<std::string> selected;
  for (const auto &one : why(from, "tcp")) {
    if (one["stage"] == "selected" && one["accepted"] == true)
      selected.push_back(one["candidate"].get<std::string>() + ": " +
                         one["reason"].get<std::string>());
  }
  EXPECT_THAT(selected, ElementsAre("tcp: 2 of 6 answers, the first at place 1; rank 500",
                                    "tcp;ofi_rxm: 2 of 6 answers, the first at place 3; rank 500"));
  EXPECT_GT(why(from, "").size(), 6u);
}

TEST_F(FrontTest, ExplainsPluginsConfigurationAndParameters) {
  Front &from = front({{"FI_TCP_IFACE", "eth0"}, {"HOME", "/nonexistent"}});
  const auto explained = nlohmann::json::parse(from.explain_json("tcp;ofi_rxm").value());
  EXPECT_EQ(explained["stack"], "tcp;ofi_rxm");
  EXPECT_EQ(explained["elements"][1]["unit"], "tcp");
  EXPECT_EQ(explained["elements"][1]["lines"][0], "eth0: up");
  EXPECT_EQ(nlohmann::json::parse(from.explain_json("").value())["stack"], "tcp");
  EXPECT_THAT(from.explain_json("verbs").error().text, HasSubstr("/nonexistent/uverbs"));
  EXPECT_THAT(from.explain_json("tpc").error().text, HasSubstr("did you mean \"tcp\"?"));

  const auto plugins = nlohmann::json::parse(from.plugins_json().value());
  ASSERT_EQ(plugins["plugins"].size(), 1u);
  EXPECT_EQ(plugins["plugins"][0]["vendor"], "weft");
  EXPECT_EQ(plugins["plugins"][0]["units"].size(), 8u);
  EXPECT_EQ(plugins["troubles"], nlohmann::json::array());

  const auto config = nlohmann::json::parse(from.config_json().value());
  bool seen = false;
  for (const auto &value : config["values"]) {
    seen = seen ||
           (value["key"] == "params.tcp.iface" && value["origin"] == "environment FI_TCP_IFACE");
  }
  EXPECT_TRUE(seen);

  bool set = false;
  for (const FrontParam &param : from.params()) {
    if (param.variable != "FI_TCP_IFACE") continue;
    set = param.is_set && param.value == "eth0" && param.type == FI_PARAM_STRING;
  }
  EXPECT_TRUE(set);
}

TEST_F(FrontTest, ASecureProcessIgnoresTheEnvironment) {
  secure_ = true;
  site("version: 1\nproviders: {disable: [tcp]}\n");
  TestFolder home;
  home.write("weft/weft.yaml", "version: 1\nproviders: {disable: [udp]}\n");
  Front &from = front({{"FI_PROVIDER", "tcp"}, {"XDG_CONFIG_HOME", home.path()}});
  // It may find no plugins, because they must lie in folders of root. Only the files that it reads
  // matter here.
  fi_info *list = nullptr;
  (void)from.getinfo(kVersion, nullptr, nullptr, 0, nullptr, &list);
  free_info(list);
  const auto config = nlohmann::json::parse(from.config_json().value());
  ASSERT_EQ(config["files"].size(), 1u);
  EXPECT_EQ(config["files"][0]["system"], true);
  for (const auto &value : config["values"]) EXPECT_NE(value["key"], "filter.include");
}

TEST_F(FrontTest, ManyThreadsMayAskAtOnce) {
  Front &from = front();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        fi_info *list = nullptr;
        if (from.getinfo(kVersion, nullptr, nullptr, 0, nullptr, &list) != 0 ||
            shown(InfoPtr(list)).size() != 6)
          ++wrong;
        if (!from.why_json("tcp").has_value()) ++wrong;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace weft
