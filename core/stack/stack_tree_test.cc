// SPDX-License-Identifier: BSD-2-Clause
// Stacks with a layer over several providers. Chains: stack_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/stack/stack.h"
#include "core/stack/toys.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using toys::Profile;
using toys::Trace;

class StackTreeTest : public ::testing::Test {
 protected:
  using Chain = std::vector<PlanElement>;
  void SetUp() override {
    toys::current_table() = &table_;
    Trace::reset();
    Profile::reset();
  }
  PlanElement tcp() { return {toys::loaded(tcp_, plugin_), {}}; }
  PlanElement shm() { return {toys::loaded(shm_, shm_plugin_), {}}; }
  PlanElement rxm() { return {toys::loaded(rxm_, plugin_), {}}; }
  PlanElement link(std::vector<Chain> branches) {
    return {toys::loaded(link_, plugin_), {}, std::move(branches)};
  }
  static PlanElement trace() { return {Trace::loaded(), {}}; }
  static PlanElement profile() { return {Profile::loaded(), {}}; }
  std::shared_ptr<Stack> build(Chain elements) {
    auto made = Stack::build({"", std::move(elements)}, &services_, &table_);
    EXPECT_TRUE(made.has_value()) << made.error().text;
    return *made;
  }
  std::string refused(Chain elements) {
    const auto made = Stack::build({"", std::move(elements)}, &services_, &table_);
    return made ? "built" : made.error().text;
  }
  // The names of the offers.
  std::vector<std::string> ask(Stack &stack, const fi_info *hints = nullptr) {
    branches_refused_.clear();
    auto found = stack.getinfo(FI_VERSION(2, 6), nullptr, nullptr, 0, hints, {},
                               [&](const std::string &why) { branches_refused_.push_back(why); });
    if (!found) return {found.error().text};
    std::vector<std::string> names;
    for (fi_info *info : *found) {
      names.push_back(std::string(info->fabric_attr->prov_name) + " " + info->domain_attr->name);
      free_info(info);
    }
    return names;
  }
  struct fid_ep *open(Stack &stack) {
    struct fi_fabric_attr attr {};
    fabric_ = stack.fabric(&attr, nullptr).value();
    EXPECT_EQ(fi_domain(fabric_, nullptr, &domain_, nullptr), 0);
    struct fid_ep *ep = nullptr;
    EXPECT_EQ(fi_endpoint(domain_, nullptr, &ep, nullptr), 0);
    return ep;
  }
  void close(struct fid_ep *ep) {
    EXPECT_EQ(fi_close(&ep->fid), 0);
    EXPECT_EQ(fi_close(&domain_->fid), 0);
    EXPECT_EQ(fi_close(&fabric_->fid), 0);
    EXPECT_THAT(table_.list(), IsEmpty());
  }
  static ssize_t send(struct fid_ep *ep) {
    return fi_send(ep, nullptr, 0, nullptr, FI_ADDR_UNSPEC, nullptr);
  }
  // "tcp<trace" for each endpoint.
  std::vector<std::string> hooked() const {
    std::vector<std::string> all;
    for (const ObjectTable::Live &live : table_.list()) {
      if (live.fclass != FI_CLASS_EP) continue;
      all.push_back(live.element);
      for (const std::string &hook : live.hooks) all.back() += "<" + hook;
    }
    return all;
  }

  weft_core_services services_ = toys::services();
  toys::Plugin plugin_, shm_plugin_;
  weft_unit tcp_ = toys::provider();
  weft_unit shm_ = toys::provider("shm");
  weft_unit rxm_ = toys::layer();
  weft_unit link_ = toys::fork();
  ObjectTable table_;
  std::vector<std::string> branches_refused_;
  struct fid_fabric *fabric_ = nullptr;
  struct fid_domain *domain_ = nullptr;
};

TEST_F(StackTreeTest, CreatesEachBranchFromTheWireUp) {
  auto stack = build({link({{shm()}, {rxm(), tcp()}})});
  EXPECT_THAT(shm_plugin_.events, ElementsAre("create shm"));
  EXPECT_THAT(plugin_.events, ElementsAre("create tcp", "create rxm", "create link"));
  plugin_.events.clear();
  stack.reset();
  EXPECT_THAT(plugin_.events, ElementsAre("destroy link", "destroy rxm", "destroy tcp"));
  EXPECT_THAT(shm_plugin_.events, ElementsAre("create shm", "destroy shm"));
}

TEST_F(StackTreeTest, NamesAndPlaces) {
  const std::string name = "(shm+tcp;ofi_rxm);link";
  shm_.ofi_name = nullptr;
  auto made = Stack::build({name, {trace(), link({{profile(), shm()}, {rxm(), trace(), tcp()}})}},
                           &services_, &table_);
  ASSERT_TRUE(made.has_value()) << made.error().text;
  // trace 0, link 1, profile 2, shm 3, rxm 4, trace 5, tcp 6
  EXPECT_THAT(shm_plugin_.places, ElementsAre("shm 3 " + name));
  EXPECT_THAT(plugin_.places, ElementsAre("tcp 6 " + name, "rxm 4 " + name, "link 1 " + name));
  EXPECT_THAT(ask(**made), ElementsAre(name + " eth0", name + " eth0"));
}

TEST_F(StackTreeTest, WithoutANameItIsCalledAfterItsUnits) {
  EXPECT_THAT(ask(*build({link({{shm()}, {rxm(), tcp()}})})),
              testing::Each("(shm+tcp;ofi_rxm);link eth0"));
  weft_unit coll = toys::fork("coll");
  auto deep = build({{toys::loaded(coll, plugin_), {}, {{tcp()}, {link({{shm()}, {tcp()}})}}}});
  EXPECT_THAT(ask(*deep), testing::Each("(tcp+(shm+tcp);link);coll eth0"));
  EXPECT_THAT(ask(*build({link({}), shm()})), ElementsAre("shm;link eth0"));
}

TEST_F(StackTreeTest, ALayerSeesTheNameOfEachBranch) {
  static std::vector<std::string> names;
  names.clear();
  const weft_layer_unit tables = {
      sizeof tables, 0,
      [](const weft_instance *instance, const weft_provider *inner, uint32_t count,
         weft_provider *out, weft_error *why) -> int32_t {
        for (uint32_t i = 0; i < count; ++i) {
          fi_info *list = nullptr;
          if (inner[i].ops->getinfo(inner[i].self, FI_VERSION(2, 6), nullptr, nullptr, 0, nullptr,
                                    &list, why) == 0)
            names.emplace_back(list->fabric_attr->prov_name);
          free_info(list);
        }
        return toys::fork().layer->wrap(instance, inner, count, out, why);
      }};
  link_.layer = &tables;
  build({link({{shm()}, {rxm(), tcp()}, {tcp()}})});
  EXPECT_THAT(names, ElementsAre("shm", "tcp;ofi_rxm", "tcp"));
}

TEST_F(StackTreeTest, AsksEachBranchAndSaysWhichOneRefused) {
  auto stack = build({link({{shm()}, {rxm(), tcp()}})});
  shm_plugin_.getinfo_rc = -FI_ENODATA;
  EXPECT_THAT(ask(*stack), ElementsAre("(shm+tcp;ofi_rxm);link eth0"));
  EXPECT_THAT(branches_refused_, ElementsAre("branch 1 (shm): shm: no interface is up"));
  shm_plugin_.getinfo_rc = 0;
  plugin_.offers = [](const toys::Plugin::Add &add, const fi_info *) { add(FI_EP_DGRAM); };
  EXPECT_THAT(ask(*stack), ElementsAre("(shm+tcp;ofi_rxm);link eth0"));
  EXPECT_THAT(branches_refused_,
              ElementsAre("branch 2 (tcp;ofi_rxm): rxm: tcp: hints.ep_attr.type: FI_EP_MSG wanted, "
                          "FI_EP_DGRAM offered"));
  // All refuse: the error is the last one's.
  fi_info *hints = alloc_info();
  hints->caps = FI_TAGGED;
  EXPECT_THAT(ask(*stack, hints),
              ElementsAre(HasSubstr("link: branch 2 (tcp;ofi_rxm): rxm: tcp:")));
  EXPECT_THAT(branches_refused_,
              ElementsAre(HasSubstr("branch 1 (shm): shm: hints.caps: FI_TAGGED"),
                          HasSubstr("branch 2 (tcp;ofi_rxm): rxm: tcp: ")));
  free_info(hints);
}

TEST_F(StackTreeTest, NestedBranchesSayWhereTheyStand) {
  weft_unit coll = toys::fork("coll");
  auto deep = build({{toys::loaded(coll, plugin_), {}, {{tcp()}, {link({{shm()}, {shm()}})}}}});
  shm_plugin_.getinfo_rc = -FI_ENODATA;
  EXPECT_THAT(ask(*deep), ElementsAre("(tcp+(shm+shm);link);coll eth0"));
  EXPECT_THAT(
      branches_refused_,
      ElementsAre("branch 1 (shm): shm: no interface is up",
                  "branch 2 (shm): shm: no interface is up",
                  "branch 2 ((shm+shm);link): link: branch 2 (shm): shm: no interface is up"));
}

TEST_F(StackTreeTest, AFabricOfABranchThatFailsSaysWhichBranch) {
  static const weft_provider_ops *toy_ops = nullptr;
  static weft_provider_ops failing{};
  const weft_provider_unit tables = {
      sizeof tables, 0,
      [](const weft_instance *instance, weft_provider *out, weft_error *why) -> int32_t {
        const int32_t rc = toys::provider("shm").provider->create(instance, out, why);
        toy_ops = out->ops;
        failing = *toy_ops;
        failing.fabric = [](void *, fi_fabric_attr *, fid_fabric **, void *,
                            weft_error *error) -> int32_t {
          return to_c({FI_ENODEV, "the segment is gone"}, error);
        };
        out->ops = &failing;
        return rc;
      }};
  shm_.provider = &tables;
  auto stack = build({link({{rxm(), tcp()}, {shm()}})});
  fi_fabric_attr attr{};
  const auto fabric = stack->fabric(&attr, nullptr);
  ASSERT_FALSE(fabric.has_value());
  EXPECT_EQ(fabric.error().code, FI_ENODEV);
  EXPECT_EQ(fabric.error().text, "link: branch 2 (shm): shm: the segment is gone");
  EXPECT_THAT(table_.list(), IsEmpty()) << "the fabrics of the first branch are closed";
}

TEST_F(StackTreeTest, HooksInABranchSeeOnlyThatBranch) {
  auto stack = build({link({{trace(), shm()}, {rxm(), profile(), tcp()}})});
  struct fid_ep *ep = open(*stack);
  EXPECT_THAT(hooked(), UnorderedElementsAre("link", "shm<trace", "rxm", "tcp<profile"));
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(Trace::sends, 1u);
  EXPECT_EQ(Profile::sends, 1u);
  EXPECT_TRUE(stack->made(&domain_->fid));
  close(ep);
  EXPECT_EQ(Trace::released, 1u);
  EXPECT_EQ(Profile::released, 1u);
}

TEST_F(StackTreeTest, AHookAboveTheForkSeesOnlyTheForksObjects) {
  auto stack = build({trace(), link({{profile(), shm()}, {profile(), rxm(), tcp()}})});
  struct fid_ep *ep = open(*stack);
  EXPECT_THAT(hooked(), UnorderedElementsAre("link<trace", "shm<profile", "rxm<profile", "tcp"));
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(Trace::sends, 1u);
  EXPECT_EQ(Profile::sends, 2u) << "the same hook in both branches";
  close(ep);
}

TEST_F(StackTreeTest, AnOpenFabricKeepsTheWholeTree) {
  auto stack = build({link({{shm()}, {tcp()}})});
  const std::weak_ptr<Stack> watch = stack;
  struct fid_ep *ep = open(*stack);
  stack.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(send(ep), 1001);
  close(ep);
  table_.reap();
  EXPECT_TRUE(watch.expired());
}

TEST_F(StackTreeTest, ExplainsItsBranches) {
  const auto all = build({link({{shm()}, {rxm(), tcp()}})})->explain();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].element, "link");
  EXPECT_THAT(all[0].lines, ElementsAre("a layer"));
  ASSERT_EQ(all[0].branches.size(), 2u);
  ASSERT_EQ(all[0].branches[0].size(), 1u);
  EXPECT_EQ(all[0].branches[0][0].element, "shm");
  ASSERT_EQ(all[0].branches[1].size(), 2u);
  EXPECT_EQ(all[0].branches[1][0].element, "rxm");
  EXPECT_THAT(all[0].branches[1][0].branches, IsEmpty());
  EXPECT_THAT(all[0].branches[1][1].lines, ElementsAre("eth0: up"));
}

TEST_F(StackTreeTest, AWrongTreeIsNotBuilt) {
  link_ = toys::fork("link", 2, 2);
  EXPECT_EQ(refused({link({{shm()}, {tcp()}, {shm()}})}),
            "layer link takes 2 providers beneath it, not 3");
  EXPECT_EQ(refused({link({}), shm()}), "layer link takes 2 providers beneath it, not 1");
  EXPECT_EQ(refused({link({{shm()}, {rxm()}})}),
            "branch 2 of link: nothing beneath layer rxm: end the stack with a provider");
  EXPECT_EQ(refused({link({{shm()}, {tcp()}}), tcp()}),
            "tcp stands beneath link, which has branches");
  EXPECT_THAT(plugin_.events, IsEmpty()) << "nothing was created";
}

TEST_F(StackTreeTest, AUnitThatFailsInABranchUndoesTheOthers) {
  shm_plugin_.create_rc = -FI_ENODEV;
  EXPECT_EQ(refused({link({{rxm(), tcp()}, {shm()}})}), "shm: the toy is broken");
  EXPECT_THAT(plugin_.events,
              ElementsAre("create tcp", "create rxm", "destroy rxm", "destroy tcp"));
}

}  // namespace
}  // namespace weft
