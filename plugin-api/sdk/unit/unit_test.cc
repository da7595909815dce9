// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/unit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace weft::sdk::unit_test {
namespace {

using ::testing::HasSubstr;

// A core that counts its fi_info.
int infos = 0;
const weft_core_services kCore = {
    .struct_size = sizeof(weft_core_services),
    .info_alloc = [] { return ++infos, static_cast<fi_info *>(std::calloc(1, sizeof(fi_info))); },
    .info_dup =
        [](const fi_info *info) {
          auto *copy = static_cast<fi_info *>(std::calloc(1, sizeof(fi_info)));
          copy->caps = info->caps;
          return ++infos, copy;
        },
    .info_free =
        [](fi_info *info) {
          while (info != nullptr) {
            fi_info *next = info->next;
            std::free(info->src_addr);
            std::free(info);
            --infos;
            info = next;
          }
        },
};

class Toy {
 public:
  static constexpr weft_param params[] = {
      bool_param("eager", "yes", "whether to hurry"),
      int_param("delay", nullptr, "microseconds", -5, 5),
      size_param("room", "1K", "bytes"),
      string_param("text", nullptr, "any text"),
      list_param("interfaces", nullptr, "names"),
  };
  static constexpr const char *devices[] = {"pci:1234:*", "netdev:hsn*"};
  static constexpr UnitInfo info{.name = "toy",
                                 .summary = "a toy",
                                 .version = FI_VERSION(1, 2),
                                 .offers_ep = WEFT_EP_BIT(FI_EP_MSG),
                                 .rank = 7,
                                 .security = WEFT_SECURITY_NO_NETWORK,
                                 .devices = devices,
                                 .device_remedy = "insert the card",
                                 .params = params};

  static Result<std::unique_ptr<Toy>> create(const weft_instance *instance) {
    if (instance->place == 99) return fail(FI_ENODEV, "no card %d", 99);
    return std::make_unique<Toy>(instance);
  }
  explicit Toy(const weft_instance *instance) : core_(instance->core) { ++alive; }
  ~Toy() { --alive; }

  Result<InfoList> getinfo(const GetinfoQuery &query) {
    InfoList list(core_);
    if (query.node == nullptr) return list;
    if (std::string_view(query.node) == "throw") throw std::runtime_error("a broken toy");
    if (std::string_view(query.node) == "memory") throw std::bad_alloc();
    if (std::string_view(query.node) == "number") throw 5;
    if (std::string_view(query.node) == "zero") return fail(0, "wrong code");
    WEFT_TRY(fi_info * info, list.add());
    info->caps = query.hints != nullptr ? query.hints->caps : FI_MSG;
    WEFT_CHECK(set_address(info->src_addr, info->src_addrlen, "abcd", 4));
    WEFT_TRY(info, list.add_copy(info));
    return list;
  }
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) {
    if (attr.name == nullptr) return fail(FI_EINVAL, "a fabric without a name");
    return static_cast<fid_fabric *>(context);
  }
  Result<void> explain(const LineSink &line) {
    line("card %d: good", 1);
    line("card %d: bad", 2);
    return {};
  }

  static inline int alive = 0;

 private:
  const weft_core_services *core_;
};

class Above {
 public:
  static constexpr UnitInfo info{.name = "above",
                                 .ofi_name = "ofi_above",
                                 .summary = "a toy layer",
                                 .version = FI_VERSION(1, 0),
                                 .needs_ep = WEFT_EP_BIT(FI_EP_MSG),
                                 .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
                                 .security = WEFT_SECURITY_ROBUST};
  Above(const weft_instance *, Inner inner) : inner_(inner) {}
  Result<InfoList> getinfo(const GetinfoQuery &query) {
    WEFT_TRY(InfoList list, inner_.getinfo(query));
    for (fi_info *info = list.front(); info != nullptr; info = info->next) info->caps |= FI_TAGGED;
    return list;
  }
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) {
    return inner_.fabric(attr, context);
  }

 private:
  Inner inner_;
};

// Asks all providers beneath it.
class AboveSeveral {
 public:
  static constexpr UnitInfo info{.name = "above-several",
                                 .summary = "a toy layer over several providers",
                                 .version = FI_VERSION(1, 0),
                                 .needs_ep = WEFT_EP_BIT(FI_EP_MSG),
                                 .inner_min = 2,
                                 .inner_max = 3,
                                 .offers_ep = WEFT_EP_BIT(FI_EP_MSG),
                                 .security = WEFT_SECURITY_ROBUST};
  static Result<std::unique_ptr<AboveSeveral>> create(const weft_instance *instance,
                                                      std::span<const Inner> inner) {
    return std::make_unique<AboveSeveral>(instance, inner);
  }
  AboveSeveral(const weft_instance *instance, std::span<const Inner> inner)
      : core_(instance->core), inner_(inner.begin(), inner.end()) {}
  Result<InfoList> getinfo(const GetinfoQuery &query) {
    InfoList all(core_);
    for (size_t i = 0; i < inner_.size(); ++i) {
      WEFT_TRY(InfoList list, inner_[i].getinfo(query));
      WEFT_TRY(fi_info * info, all.add_copy(list.front()));
      info->caps |= uint64_t{1} << (60 + i);  // which one it comes from
    }
    return all;
  }
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) {
    return inner_.back().fabric(attr, context);
  }

 private:
  const weft_core_services *core_;
  std::vector<Inner> inner_;
};

class Counting {
 public:
  static constexpr UnitInfo info{.name = "hook-counting",
                                 .summary = "counts sends",
                                 .version = FI_VERSION(1, 0),
                                 .security = WEFT_SECURITY_NO_NETWORK};
  struct ObjectState {
    int sends = 0;
    ~ObjectState() { ++released; }
    static inline int released = 0;
  };
  Result<std::unique_ptr<ObjectState>> attach(fid *fid) {
    if (fid->fclass == FI_CLASS_SRX_CTX) return nullptr;
    if (fid->fclass == FI_CLASS_STX_CTX) return fail(FI_ENOMEM, "no room");
    return std::make_unique<ObjectState>();
  }
  ssize_t send(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
               fi_addr_t dest, void *context) {
    ++object_state<Counting>(link).sends;
    ++sends;
    return link.next.msg->send(ep, buf, len, desc, dest, context);
  }
  ssize_t cq_read(const weft_hook_link &, fid_cq *, void *, size_t) { throw std::bad_alloc(); }
  int sends = 0;
};

static_assert(Provider<Toy> && !Layer<Toy> && !Hook<Toy>);
static_assert(Layer<Above> && !Provider<Above> && !Hook<Above>);
static_assert(Hook<Counting> && !Provider<Counting> && !Layer<Counting>);

Result<void *> start(const weft_offer &offer) {
  if (offer.core_caps == 0) return fail(FI_ENOSYS, "an old core");
  return const_cast<weft_offer *>(&offer);
}
int stopped = 0;
constexpr PluginInfo kPlugin{.name = "toys",
                             .vendor = "us",
                             .version = "1.0",
                             .license = "MIT",
                             .min_core_minor = 0,
                             .init = &start,
                             .fini = [](void *) { ++stopped; }};
constexpr PluginInfo kPlain{.name = "toys", .vendor = "us", .version = "1.0", .license = "MIT"};

weft_instance instance_of(const weft_unit &u) {
  return {.magic = WEFT_INSTANCE_MAGIC,
          .struct_size = sizeof(weft_instance),
          .core = &kCore,
          .unit = &u,
          .stack = "toy"};
}

TEST(Unit, TheDescriptorMatchesTheClasses) {
  const weft_plugin_desc &desc = unit_detail::desc<kPlugin, Toy, Above, Counting>;
  EXPECT_EQ(desc.magic, WEFT_DESC_MAGIC);
  EXPECT_EQ(desc.struct_size, sizeof desc);
  EXPECT_EQ(desc.abi_major, WEFT_ABI_MAJOR);
  ASSERT_EQ(desc.unit_count, 3u);
  const weft_unit &toy = *desc.units[0];
  EXPECT_EQ(toy.magic, WEFT_UNIT_MAGIC);
  EXPECT_EQ(toy.kind, static_cast<uint32_t>(WEFT_KIND_PROVIDER));
  EXPECT_STREQ(toy.name, "toy");
  EXPECT_EQ(toy.version, static_cast<uint32_t>(FI_VERSION(1, 2)));
  EXPECT_EQ(toy.rank, 7);
  ASSERT_EQ(toy.param_count, 5u);
  EXPECT_STREQ(toy.params[1]->name, "delay");
  EXPECT_EQ(toy.params[1]->minimum, -5);
  EXPECT_STREQ(toy.params[2]->default_value, "1K");
  ASSERT_EQ(toy.device_count, 2u);
  EXPECT_STREQ(toy.devices[1], "netdev:hsn*");
  EXPECT_STREQ(toy.device_remedy, "insert the card");
  EXPECT_NE(toy.provider, nullptr);
  EXPECT_EQ(toy.layer, nullptr);
  EXPECT_EQ(toy.hook, nullptr);
  EXPECT_EQ(desc.units[1]->kind, static_cast<uint32_t>(WEFT_KIND_LAYER));
  EXPECT_NE(desc.units[1]->layer, nullptr);
  EXPECT_EQ(desc.units[2]->kind, static_cast<uint32_t>(WEFT_KIND_HOOK));
  EXPECT_NE(desc.units[2]->hook, nullptr);
}

TEST(Unit, InitAndFiniCrossTheBoundary) {
  const weft_plugin_desc &desc = unit_detail::desc<kPlugin, Toy>;
  weft_offer offer{};
  weft_error why{};
  void *state = nullptr;
  EXPECT_EQ(desc.init(&offer, &state, &why), -FI_ENOSYS);
  EXPECT_STREQ(why.text, "an old core");
  offer.core_caps = WEFT_CORE_CAP_HOOKS;
  EXPECT_EQ(desc.init(&offer, &state, &why), 0);
  EXPECT_EQ(state, &offer);
  desc.fini(state);
  EXPECT_EQ(stopped, 1);
  const weft_plugin_desc &plain = unit_detail::desc<kPlain, Toy>;
  EXPECT_EQ(plain.init, nullptr);
  EXPECT_EQ(plain.fini, nullptr);
}

struct ProviderTest : ::testing::Test {
  void SetUp() override { ASSERT_EQ(unit<Toy>.provider->create(&instance, &toy, &why), 0); }
  void TearDown() override {
    toy.ops->destroy(toy.self);
    EXPECT_EQ(infos, 0);
    EXPECT_EQ(Toy::alive, 0);
  }
  int32_t getinfo(const weft_provider &p, const char *node, const fi_info *hints = nullptr) {
    return p.ops->getinfo(p.self, FI_VERSION(2, 6), node, nullptr, 0, hints, &info, &why);
  }
  weft_instance instance = instance_of(unit<Toy>);
  weft_provider toy{};
  weft_error why{};
  fi_info *info = nullptr;
};

TEST_F(ProviderTest, GetinfoGivesAList) {
  ASSERT_EQ(getinfo(toy, "node"), 0);
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->caps, FI_MSG);
  EXPECT_EQ(info->src_addrlen, 4u);
  ASSERT_NE(info->next, nullptr);
  EXPECT_EQ(info->next->next, nullptr);
  kCore.info_free(info);
}

TEST_F(ProviderTest, GetinfoFailsWithAReason) {
  EXPECT_EQ(getinfo(toy, nullptr), -FI_ENODATA);
  EXPECT_THAT(why.text, HasSubstr("toy has nothing to offer"));
  EXPECT_EQ(getinfo(toy, "throw"), -FI_EOTHER);
  EXPECT_STREQ(why.text, "a broken toy");
  EXPECT_EQ(why.code, -FI_EOTHER);
  EXPECT_EQ(getinfo(toy, "memory"), -FI_ENOMEM);
  EXPECT_EQ(getinfo(toy, "number"), -FI_EOTHER);
  EXPECT_EQ(getinfo(toy, "zero"), -FI_EOTHER);
  EXPECT_STREQ(why.text, "wrong code");
}

TEST_F(ProviderTest, FabricAndExplain) {
  char name[] = "toys";
  fi_fabric_attr attr{};
  fid_fabric *fabric = nullptr;
  EXPECT_EQ(toy.ops->fabric(toy.self, nullptr, &fabric, nullptr, &why), -FI_EINVAL);
  EXPECT_EQ(toy.ops->fabric(toy.self, &attr, &fabric, this, &why), -FI_EINVAL);
  EXPECT_STREQ(why.text, "a fabric without a name");
  attr.name = name;
  EXPECT_EQ(toy.ops->fabric(toy.self, &attr, &fabric, this, nullptr), 0);
  EXPECT_EQ(static_cast<void *>(fabric), this);

  std::vector<std::string> lines;
  auto add = [](void *arg, const char *text) {
    static_cast<std::vector<std::string> *>(arg)->push_back(text);
  };
  EXPECT_EQ(toy.ops->explain(toy.self, add, &lines, &why), 0);
  EXPECT_THAT(lines, ::testing::ElementsAre("card 1: good", "card 2: bad"));
}

TEST_F(ProviderTest, CreateFailsWithAReason) {
  weft_instance wrong = instance;
  wrong.place = 99;
  weft_provider none{};
  EXPECT_EQ(unit<Toy>.provider->create(&wrong, &none, &why), -FI_ENODEV);
  EXPECT_STREQ(why.text, "no card 99");
  EXPECT_EQ(none.self, nullptr);
}

TEST_F(ProviderTest, ALayerStandsOnTheProvider) {
  weft_provider above{};
  weft_instance place = instance_of(unit<Above>);
  ASSERT_EQ(unit<Above>.layer->wrap(&place, &toy, 1, &above, &why), 0);
  EXPECT_EQ(above.ops->explain, nullptr);
  fi_info hints{};
  hints.caps = FI_RMA;
  ASSERT_EQ(getinfo(above, "node", &hints), 0);
  EXPECT_EQ(info->caps, FI_RMA | FI_TAGGED);
  EXPECT_EQ(info->next->caps, FI_RMA | FI_TAGGED);
  kCore.info_free(info);
  EXPECT_EQ(getinfo(above, nullptr), -FI_ENODATA);
  EXPECT_THAT(why.text, HasSubstr("toy has nothing"));
  fi_fabric_attr attr{};
  fid_fabric *fabric = nullptr;
  EXPECT_EQ(above.ops->fabric(above.self, &attr, &fabric, nullptr, &why), -FI_EINVAL);
  above.ops->destroy(above.self);
}

TEST_F(ProviderTest, ALayerStatesHowManyProvidersItTakes) {
  EXPECT_EQ(unit<Above>.inner_min, 1u);
  EXPECT_EQ(unit<Above>.inner_max, 1u);
  EXPECT_EQ(unit<AboveSeveral>.kind, uint32_t{WEFT_KIND_LAYER});
  EXPECT_EQ(unit<AboveSeveral>.inner_min, 2u);
  EXPECT_EQ(unit<AboveSeveral>.inner_max, 3u);
  EXPECT_EQ(unit<Toy>.inner_max, 0u);
  EXPECT_EQ(unit<Counting>.inner_max, 0u);
}

TEST_F(ProviderTest, ALayerStandsOnSeveralProviders) {
  const weft_instance place = instance_of(unit<AboveSeveral>);
  weft_provider beneath[3] = {toy, toy, toy}, above{};
  weft_instance other_place = instance_of(unit<Toy>);
  ASSERT_EQ(unit<Toy>.provider->create(&other_place, &beneath[1], &why), 0);
  ASSERT_EQ(unit<AboveSeveral>.layer->wrap(&place, beneath, 2, &above, &why), 0) << why.text;
  fi_info hints{};
  hints.caps = FI_RMA;
  ASSERT_EQ(getinfo(above, "node", &hints), 0) << why.text;
  EXPECT_EQ(info->caps, FI_RMA | UINT64_C(1) << 60);
  ASSERT_NE(info->next, nullptr);
  EXPECT_EQ(info->next->caps, FI_RMA | UINT64_C(1) << 61);
  EXPECT_EQ(info->next->next, nullptr) << "two were given";
  kCore.info_free(info);
  // fabric() is the last one's.
  fi_fabric_attr attr{};
  char name[] = "net";
  attr.name = name;
  fid_fabric made{}, *fabric = nullptr;
  EXPECT_EQ(above.ops->fabric(above.self, &attr, &fabric, &made, &why), 0);
  EXPECT_EQ(fabric, &made);
  above.ops->destroy(above.self);
  beneath[1].ops->destroy(beneath[1].self);
}

TEST_F(ProviderTest, ALayerRefusesAnotherNumberOfProviders) {
  const weft_provider beneath[4] = {toy, toy, toy, toy};
  weft_provider above{};
  const weft_instance several = instance_of(unit<AboveSeveral>), one = instance_of(unit<Above>);
  EXPECT_EQ(unit<AboveSeveral>.layer->wrap(&several, beneath, 1, &above, &why), -FI_EINVAL);
  EXPECT_STREQ(why.text, "above-several takes 2 to 3 providers beneath it, not 1");
  EXPECT_EQ(unit<AboveSeveral>.layer->wrap(&several, beneath, 4, &above, &why), -FI_EINVAL);
  EXPECT_EQ(unit<Above>.layer->wrap(&one, beneath, 2, &above, &why), -FI_EINVAL);
  EXPECT_STREQ(why.text, "above takes one provider beneath it, not 2");
  EXPECT_EQ(unit<Above>.layer->wrap(&one, nullptr, 0, &above, &why), -FI_EINVAL);
  EXPECT_EQ(above.self, nullptr);
}

class Ep final : public Object<Ep, fid_ep> {
 public:
  Ep() : Object(nullptr, FI_CLASS_EP, nullptr) { c()->msg = c_table(msg_ops<Ep>()); }
  ssize_t send(const void *, size_t len, void *, fi_addr_t, void *) {
    return static_cast<ssize_t>(len);
  }
};

TEST(Hook, OverlayNamesOnlyTheOpsOfTheClass) {
  const weft_op_tables &overlay = *unit<Counting>.hook->overlay;
  EXPECT_EQ(overlay.struct_size, sizeof overlay);
  EXPECT_EQ(overlay.fid, nullptr);
  EXPECT_EQ(overlay.rma, nullptr);
  EXPECT_EQ(overlay.eq, nullptr);
  ASSERT_NE(overlay.msg, nullptr);
  EXPECT_EQ(overlay.msg->size, sizeof(fi_ops_msg));
  EXPECT_NE(overlay.msg->send, nullptr);
  EXPECT_EQ(overlay.msg->recv, nullptr);
  ASSERT_NE(overlay.cq, nullptr);
  EXPECT_NE(overlay.cq->read, nullptr);
  EXPECT_EQ(overlay.cq->readfrom, nullptr);
}

TEST(Hook, AnOpReachesTheHookAndTheNextTable) {
  const weft_hook_unit &hook = *unit<Counting>.hook;
  weft_instance instance = instance_of(unit<Counting>);
  instance.hook_slot = 3;
  weft_error why{};
  void *state = nullptr;
  ASSERT_EQ(hook.create(&instance, &state, &why), 0);

  Ep ep;
  fi_ops_msg table = *msg_ops<Ep>();
  weft_hook_link link{.struct_size = sizeof link, .slot = 3, .hook_state = state};
  link.next.msg = msg_ops<Ep>();
  ASSERT_EQ(hook.attach(state, ep.base(), &link.object_state, &why), 0);
  weft_hook_link *links[4] = {nullptr, nullptr, nullptr, &link};
  header_of(ep.base())->links_core = links;
  table.send = hook.overlay->msg->send;
  ep.c()->msg = &table;

  EXPECT_EQ(fi_send(ep.c(), "abc", 3, nullptr, 0, nullptr), 3);
  EXPECT_EQ(fi_send(ep.c(), "abcd", 4, nullptr, 0, nullptr), 4);
  EXPECT_EQ(object_state<Counting>(link).sends, 2);
  EXPECT_EQ(static_cast<Counting *>(state)->sends, 2);
  EXPECT_EQ(hook.overlay->cq->read(reinterpret_cast<fid_cq *>(ep.c()), nullptr, 0), -FI_ENOMEM);

  void *none = nullptr;
  ep.base()->fclass = FI_CLASS_SRX_CTX;
  EXPECT_EQ(hook.attach(state, ep.base(), &none, &why), 1);
  ep.base()->fclass = FI_CLASS_STX_CTX;
  EXPECT_EQ(hook.attach(state, ep.base(), &none, &why), -FI_ENOMEM);
  EXPECT_STREQ(why.text, "no room");
  hook.release(state, link.object_state);
  EXPECT_EQ(Counting::ObjectState::released, 1);
  hook.destroy(state);
}

TEST(Params, ByNameAndType) {
  // As a newer core would lay them out: longer values, with their size as the stride.
  struct Longer {
    weft_value value;
    uint64_t more;
  } values[] = {
      {{sizeof(Longer), WEFT_TYPE_BOOL, 1, 0, 1, nullptr, "default"}, 0},
      {{sizeof(Longer), WEFT_TYPE_INT, 0, 0, -3, nullptr, "environment FI_TOY_DELAY"}, 0},
      {{sizeof(Longer), WEFT_TYPE_SIZE, 1, 0, 1024, nullptr, "default"}, 0},
      {{sizeof(Longer), WEFT_TYPE_STRING, 1, 0, 0, nullptr, "default"}, 0},
      {{sizeof(Longer), WEFT_TYPE_LIST, 0, 0, 0, ",hsn*,!docker*,,eth0", nullptr}, 0},
  };
  weft_instance instance = instance_of(unit<Toy>);
  instance.params = &values[0].value;
  instance.param_count = 5;
  const Params<Toy> params(&instance);
  EXPECT_TRUE(params.flag("eager"));
  EXPECT_EQ(params.integer("delay"), -3);
  EXPECT_EQ(params.size("room"), 1024u);
  EXPECT_EQ(params.string("text"), "");
  EXPECT_THAT(params.list("interfaces"), ::testing::ElementsAre("hsn*", "!docker*", "eth0"));
  EXPECT_TRUE(params.is_default("room"));
  EXPECT_FALSE(params.is_default("delay"));
  EXPECT_STREQ(params.origin("delay"), "environment FI_TOY_DELAY");
  EXPECT_STREQ(params.origin("interfaces"), "default");

  instance.param_count = 1;
  EXPECT_EQ(params.size("room"), 0u);
  EXPECT_TRUE(params.list("interfaces").empty());
}

TEST(InfoListTest, OwnsItsEntries) {
  {
    InfoList a(&kCore), b(&kCore);
    ASSERT_TRUE(a.add());
    ASSERT_TRUE(b.add());
    ASSERT_TRUE(b.add());
    a.append(std::move(b));
    EXPECT_EQ(a.size(), 3u);
    ASSERT_TRUE(a.add());
    EXPECT_EQ(infos, 4);
    InfoList c(std::move(a));
    EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): says what a moved-from list is
    EXPECT_EQ(c.size(), 4u);
  }
  EXPECT_EQ(infos, 0);
  weft_core_services poor = kCore;
  poor.info_alloc = []() -> fi_info * { return nullptr; };
  InfoList none(&poor);
  EXPECT_EQ(none.add().error().code, FI_ENOMEM);
}

}  // namespace
}  // namespace weft::sdk::unit_test
