// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/check_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(CheckOrder, ReportsWhatIsWrong) {
  const ElementKind tcp{"tcp", WEFT_KIND_PROVIDER, 0, WEFT_EP_BIT(FI_EP_MSG)};
  const ElementKind udp{"udp", WEFT_KIND_PROVIDER, 0, WEFT_EP_BIT(FI_EP_DGRAM)};
  const ElementKind rxm{"rxm", WEFT_KIND_LAYER, WEFT_EP_BIT(FI_EP_MSG), WEFT_EP_BIT(FI_EP_RDM)};
  const ElementKind any{"link", WEFT_KIND_LAYER, 0, 0};
  const ElementKind trace{"trace", WEFT_KIND_HOOK, 0, 0};
  const auto text = [](std::vector<ElementKind> elements) {
    const Result<void> order = check_order(elements);
    return order ? std::string("fine") : order.error().text;
  };
  EXPECT_EQ(text({tcp}), "fine");
  EXPECT_EQ(text({trace, rxm, trace, tcp}), "fine");
  EXPECT_EQ(text({any, rxm, tcp}), "fine");
  EXPECT_THAT(text({}), HasSubstr("empty"));
  EXPECT_THAT(text({rxm}), HasSubstr("nothing beneath layer rxm"));
  EXPECT_THAT(text({tcp, trace}), HasSubstr("nothing beneath hook trace"));
  EXPECT_THAT(text({tcp, udp}), HasSubstr("one provider"));
  EXPECT_THAT(text({rxm, udp}),
              HasSubstr("layer rxm needs FI_EP_MSG beneath it, udp offers FI_EP_DGRAM"));
  EXPECT_THAT(text({any, any, tcp}), HasSubstr("layer link twice"));
  EXPECT_THAT(text({rxm, any, rxm, tcp}), HasSubstr("layer rxm twice"));
  EXPECT_THAT(text({trace, trace, tcp}), HasSubstr("hook trace twice on tcp"));
  EXPECT_THAT(text({{"odd", 9, 0, 0}, tcp}), HasSubstr("unknown kind"));
}

class CheckOrderOfTrees : public ::testing::Test {
 protected:
  using Chain = std::vector<ElementKind>;
  static ElementKind link(std::vector<Chain> branches, uint32_t least = 1, uint32_t most = 3) {
    ElementKind made{"link", WEFT_KIND_LAYER, WEFT_EP_BIT(FI_EP_RDM), WEFT_EP_BIT(FI_EP_RDM)};
    made.inner_min = least;
    made.inner_max = most;
    made.branches = std::move(branches);
    return made;
  }
  static std::string text(const Chain &elements) {
    const Result<void> order = check_order(elements);
    return order ? "fine" : order.error().text;
  }
  const ElementKind tcp_{"tcp", WEFT_KIND_PROVIDER, 0, WEFT_EP_BIT(FI_EP_MSG)};
  const ElementKind shm_{"shm", WEFT_KIND_PROVIDER, 0, WEFT_EP_BIT(FI_EP_RDM)};
  const ElementKind rxm_{"rxm", WEFT_KIND_LAYER, WEFT_EP_BIT(FI_EP_MSG), WEFT_EP_BIT(FI_EP_RDM)};
  const ElementKind trace_{"trace", WEFT_KIND_HOOK, 0, 0};
};

TEST_F(CheckOrderOfTrees, Fine) {
  EXPECT_EQ(text({link({{shm_}, {rxm_, tcp_}})}), "fine");
  EXPECT_EQ(text({trace_, link({{trace_, shm_}, {trace_, rxm_, trace_, tcp_}})}), "fine");
  EXPECT_EQ(text({link({{rxm_, tcp_}, {rxm_, tcp_}})}), "fine") << "a layer once in each branch";
  EXPECT_EQ(text({link({}), shm_}), "fine") << "it may stand over one";
  ElementKind other = link({{shm_}, {link({{shm_}, {shm_}})}});
  other.name = "coll";
  EXPECT_EQ(text({other}), "fine");
}

TEST_F(CheckOrderOfTrees, TheLayerTakesSoMany) {
  EXPECT_EQ(text({link({{shm_}}, 2, 3)}), "layer link takes 2 to 3 providers beneath it, not 1");
  EXPECT_EQ(text({link({}, 2, 2), shm_}), "layer link takes 2 providers beneath it, not 1");
  EXPECT_EQ(text({link({{shm_}, {shm_}, {shm_}, {shm_}})}),
            "layer link takes 1 to 3 providers beneath it, not 4");
  ElementKind rxm = rxm_;
  rxm.branches = {{tcp_}, {tcp_}};
  EXPECT_EQ(text({rxm}), "layer rxm takes one provider beneath it, not 2");
}

TEST_F(CheckOrderOfTrees, EachBranchIsAStack) {
  EXPECT_EQ(text({link({{shm_}, {}})}),
            "branch 2 of link: the stack is empty: it needs a provider");
  EXPECT_THAT(text({link({{shm_}, {rxm_}})}),
              HasSubstr("branch 2 of link: nothing beneath layer rxm"));
  EXPECT_THAT(text({link({{trace_}, {shm_}})}),
              HasSubstr("branch 1 of link: nothing beneath hook trace"));
  EXPECT_EQ(text({link({{shm_}, {rxm_, shm_}})}),
            "branch 2 of link: layer rxm needs FI_EP_MSG beneath it, shm offers FI_EP_RDM");
  EXPECT_EQ(text({link({{shm_}, {tcp_}})}),
            "layer link needs FI_EP_RDM beneath it, tcp offers FI_EP_MSG");
  EXPECT_THAT(text({link({{trace_, trace_, shm_}, {shm_}})}),
              HasSubstr("branch 1 of link: hook trace twice on shm"));
}

TEST_F(CheckOrderOfTrees, NothingStandsBesideBranchesOrBeneathItself) {
  EXPECT_EQ(text({link({{shm_}, {shm_}}), shm_}), "shm stands beneath link, which has branches");
  EXPECT_EQ(text({link({{shm_}, {link({{shm_}, {shm_}})}})}), "layer link twice in one stack");
  ElementKind tcp = tcp_, trace = trace_;
  tcp.branches = trace.branches = {{shm_}, {shm_}};
  EXPECT_THAT(text({tcp}), HasSubstr("provider tcp stands above shm"));
  EXPECT_THAT(text({trace}), HasSubstr("nothing beneath hook trace"));
}

}  // namespace
}  // namespace weft
