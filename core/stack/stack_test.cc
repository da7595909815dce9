// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/stack/toys.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using toys::Profile;
using toys::Trace;

class StackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    toys::current_table() = &table_;
    Trace::reset();
    Profile::reset();
  }
  PlanElement tcp(std::vector<Setting> settings = {}) {
    return {toys::loaded(tcp_, plugin_), std::move(settings)};
  }
  PlanElement rxm() { return {toys::loaded(rxm_, plugin_), {}}; }
  PlanElement trace() { return {Trace::loaded(), {}}; }
  PlanElement profile() { return {Profile::loaded(), {}}; }
  Result<std::shared_ptr<Stack>> build(std::string name, std::vector<PlanElement> elements) {
    return Stack::build({std::move(name), std::move(elements)}, &services_, &table_);
  }
  std::vector<struct fi_info *> ask(Stack &stack, const fi_info *hints) {
    rejected_.clear();
    auto found = stack.getinfo(
        FI_VERSION(2, 6), nullptr, nullptr, 0, hints,
        [&](const fi_info &, const Match &why) { rejected_.push_back(why.reason()); });
    return found.value_or(std::vector<struct fi_info *>{});
  }
  struct fid_ep *open(Stack &stack) {
    struct fi_fabric_attr attr {};
    char name[] = "net0";
    attr.name = name;
    attr.api_version = FI_VERSION(2, 6);
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

  weft_core_services services_ = toys::services();
  toys::Plugin plugin_;
  weft_unit tcp_ = toys::provider();
  weft_unit rxm_ = toys::layer();
  ObjectTable table_;
  std::vector<std::string> rejected_;
  struct fid_fabric *fabric_ = nullptr;
  struct fid_domain *domain_ = nullptr;
};

TEST_F(StackTest, CreatesFromTheWireUpAndDestroysFromTheOutsideIn) {
  auto stack = build("tcp;ofi_rxm", {rxm(), tcp()});
  ASSERT_TRUE(stack.has_value());
  EXPECT_THAT(plugin_.events, ElementsAre("create tcp", "create rxm"));
  stack->reset();
  EXPECT_THAT(plugin_.events,
              ElementsAre("create tcp", "create rxm", "destroy rxm", "destroy tcp"));
}

TEST_F(StackTest, NamesAndNarrowsItsOffers) {
  auto stack = build("tcp;ofi_rxm", {rxm(), tcp()});
  fi_info *hints = alloc_info();
  hints->caps = FI_MSG;
  const auto found = ask(**stack, hints);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_STREQ(found[0]->fabric_attr->prov_name, "tcp;ofi_rxm");
  EXPECT_EQ(found[0]->fabric_attr->prov_version, FI_VERSION(1, 0));
  EXPECT_EQ(found[0]->fabric_attr->api_version, FI_VERSION(2, 6));
  EXPECT_EQ(found[0]->ep_attr->type, FI_EP_RDM);
  EXPECT_EQ(found[0]->caps & FI_RMA, 0u) << "a primary capability that was not asked for";
  free_info(found[0]);
  free_info(hints);
}

TEST_F(StackTest, FiltersAnswersByTheLayersHints) {
  plugin_.offers = [](const toys::Plugin::Add &add, const fi_info *) {
    add(FI_EP_DGRAM);
    add(FI_EP_MSG).domain_attr->mr_mode = FI_MR_LOCAL;
  };
  auto stack = build("tcp;ofi_rxm", {rxm(), tcp()});
  auto found = (*stack)->getinfo(FI_VERSION(2, 6), nullptr, nullptr, 0, nullptr, {});
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, FI_ENODATA);
  EXPECT_THAT(found.error().text,
              HasSubstr("rxm: tcp: hints.domain_attr.mr_mode lacks FI_MR_LOCAL"));
  EXPECT_THAT(found.error().text, testing::Not(HasSubstr("FI_EP_DGRAM"))) << "not the nearest";
}

TEST_F(StackTest, ReportsWhyAnOfferDoesNotFit) {
  auto stack = build("tcp", {tcp()});
  fi_info *hints = alloc_info();
  hints->ep_attr->type = FI_EP_RDM;
  EXPECT_THAT(ask(**stack, hints), IsEmpty());
  EXPECT_THAT(rejected_, ElementsAre("hints.ep_attr.type: FI_EP_RDM wanted, FI_EP_MSG offered"));
  free_info(hints);
  plugin_.getinfo_rc = -FI_ENODATA;
  auto failed = (*stack)->getinfo(FI_VERSION(2, 6), nullptr, nullptr, 0, nullptr, {});
  EXPECT_EQ(failed.error().text, "tcp: no interface is up");
}

TEST_F(StackTest, RejectsAnIncompleteOffer) {
  plugin_.offers = [](const toys::Plugin::Add &add, const fi_info *) {
    fi_info &info = add(FI_EP_MSG);
    std::free(info.rx_attr);
    info.rx_attr = nullptr;
    fi_info &other = add(FI_EP_MSG);
    std::free(other.fabric_attr->name);
    std::free(other.fabric_attr);
    other.fabric_attr = nullptr;
  };
  auto stack = build("tcp", {tcp()});
  EXPECT_THAT(ask(**stack, nullptr), IsEmpty());
  EXPECT_THAT(rejected_, ElementsAre(HasSubstr("no rx_attr"), HasSubstr("no fabric_attr")));
}

TEST_F(StackTest, HooksWatchTheElementBeneathThem) {
  auto stack = build("tcp;ofi_rxm", {trace(), rxm(), profile(), tcp()});
  ASSERT_TRUE(stack.has_value());
  struct fid_ep *ep = open(**stack);
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(Trace::sends, 1u);
  EXPECT_EQ(Profile::sends, 1u);
  EXPECT_EQ(ep->msg->send, &Trace::send);
  EXPECT_EQ(Trace::link_of(&ep->fid)->next.msg->send, &toys::toy_send);
  struct fid_ep *below = reinterpret_cast<struct fid_ep *>(toys::Ep::from(ep)->below);
  EXPECT_EQ(below->msg->send, &Profile::send);
  for (const ObjectTable::Live &live : table_.list()) {
    if (live.fid == &ep->fid) {
      EXPECT_THAT(live.hooks, ElementsAre("trace"));
    }
    if (live.fid == &below->fid) {
      EXPECT_THAT(live.hooks, ElementsAre("profile"));
    }
  }
  close(ep);
  EXPECT_EQ(Trace::released, 1u);
  EXPECT_EQ(Profile::released, 1u);
  stack->reset();
  table_.reap();
  EXPECT_THAT(Trace::events, ElementsAre("create", "destroy"));
}

TEST_F(StackTest, TheSameHookMayBeOnSeveralElements) {
  auto stack = build("tcp;ofi_rxm", {trace(), rxm(), trace(), tcp()});
  ASSERT_TRUE(stack.has_value());
  struct fid_ep *ep = open(**stack);
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(Trace::sends, 2u);
  close(ep);
}

// A layer may change the answers of fi_getinfo() and leave the objects to the provider.
TEST_F(StackTest, HooksAboveALayerThatPassesObjectsOn) {
  static const weft_provider_ops *toy_ops = nullptr;
  static weft_provider_ops handing{};
  static const weft_provider *inner = nullptr;
  const weft_layer_unit tables = {
      sizeof tables, 0,
      [](const weft_instance *instance, const weft_provider *beneath, uint32_t count,
         weft_provider *out, weft_error *why) -> int32_t {
        inner = beneath;
        const int32_t rc = toys::layer().layer->wrap(instance, beneath, count, out, why);
        toy_ops = out->ops;
        handing = *toy_ops;
        handing.fabric = [](void *, fi_fabric_attr *attr, fid_fabric **fabric, void *context,
                            weft_error *error) {
          return inner->ops->fabric(inner->self, attr, fabric, context, error);
        };
        out->ops = &handing;
        return rc;
      }};
  rxm_.layer = &tables;
  auto stack = build("tcp;ofi_rxm", {trace(), rxm(), profile(), tcp()});
  ASSERT_TRUE(stack.has_value()) << stack.error().text;
  struct fid_ep *ep = open(**stack);
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(Trace::sends, 1u);
  EXPECT_EQ(Profile::sends, 1u);
  EXPECT_EQ(ep->msg->send, &Trace::send);
  EXPECT_TRUE((*stack)->made(&domain_->fid));
  EXPECT_EQ((*stack)->open_fabric("net0"), &fabric_->fid);
  close(ep);
  // The same hook cannot be on one object twice.
  auto twice = build("tcp;ofi_rxm", {trace(), rxm(), trace(), tcp()});
  ASSERT_TRUE(twice.has_value());
  fi_fabric_attr attr{};
  const auto fabric = (*twice)->fabric(&attr, nullptr);
  ASSERT_FALSE(fabric.has_value());
  EXPECT_THAT(fabric.error().text, HasSubstr("hook trace is on this object already"));
  EXPECT_THAT(table_.list(), IsEmpty());
}

TEST_F(StackTest, AnOpenFabricKeepsItsStack) {
  auto stack = build("tcp", {trace(), tcp()});
  const std::weak_ptr<Stack> watch = *stack;
  struct fid_ep *ep = open(**stack);
  EXPECT_EQ((*stack)->open_fabric("net0"), &fabric_->fid);
  EXPECT_TRUE((*stack)->made(&domain_->fid));
  stack->reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(send(ep), 1001);
  EXPECT_EQ(fabric_->api_version, FI_VERSION(2, 6));
  close(ep);
  EXPECT_THAT(plugin_.events, ElementsAre("create tcp"));
  table_.reap();
  EXPECT_TRUE(watch.expired());
  EXPECT_THAT(plugin_.events, ElementsAre("create tcp", "destroy tcp"));
}

TEST_F(StackTest, UnitsSeeTheirParameters) {
  ASSERT_TRUE(build("tcp", {tcp({{"eager_size", "32K", Rule::file("/etc/weft/a.yaml", 1, 2)}})})
                  .has_value());
  EXPECT_THAT(plugin_.params,
              ElementsAre("eager_size=32768@/etc/weft/a.yaml:1:2", "iface=0@default"));
  auto bad = build("tcp", {tcp({{"eager_size", "2G", Rule::file("/etc/weft/a.yaml", 1, 2)}})});
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error().text, HasSubstr("out of range"));
  EXPECT_THAT(bad.error().text, HasSubstr("/etc/weft/a.yaml:1:2"));
}

TEST_F(StackTest, AFailingUnitLeavesTheOthersUsable) {
  auto good = build("tcp", {tcp()});
  plugin_.create_rc = -FI_ENODEV;
  auto bad = build("tcp;ofi_rxm", {trace(), rxm(), tcp()});
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, FI_ENODEV);
  EXPECT_EQ(bad.error().text, "tcp: the toy is broken");
  const auto found = ask(**good, nullptr);
  EXPECT_EQ(found.size(), 1u);
  for (fi_info *info : found) free_info(info);
}

TEST_F(StackTest, ExplainsItsElements) {
  auto stack = build("tcp;ofi_rxm", {rxm(), tcp()});
  const auto lines = (*stack)->explain();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].element, "rxm");
  EXPECT_THAT(lines[1].lines, ElementsAre("eth0: up"));
}

}  // namespace
}  // namespace weft
