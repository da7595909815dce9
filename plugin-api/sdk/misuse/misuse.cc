// SPDX-License-Identifier: BSD-2-Clause
// Wrong uses of the SDK, one per CASE, each with the sentence that the compiler must say. Case 0 is
// right and must compile. misuse_test.sh compiles them all.
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/log.h>

using namespace weft;
using namespace weft::sdk;

struct Right {
  static constexpr weft_param params[] = {size_param("room", "1K", "bytes")};
  static constexpr UnitInfo info{.name = "right",
                                 .summary = "a provider",
                                 .version = FI_VERSION(1, 0),
                                 .offers_ep = WEFT_EP_BIT(FI_EP_MSG),
                                 .security = WEFT_SECURITY_ROBUST,
                                 .params = params};
  explicit Right(const weft_instance *) {}
  Result<InfoList> getinfo(const GetinfoQuery &) { return fail(FI_ENODATA, "nothing"); }
  Result<fid_fabric *> fabric(const fi_fabric_attr &, void *) { return fail(FI_EIO, "no"); }
};

struct Ep final : Object<Ep, fid_ep> {
  Ep() : Object(nullptr, FI_CLASS_EP, nullptr) {}
  int close() { return 0; }
};

constexpr PluginInfo kPlugin{.name = "p", .vendor = "v", .version = "1", .license = "MIT"};

constexpr UnitInfo changed(UnitInfo info, auto change) {
  change(info);
  return info;
}

#if CASE == 0
const weft_plugin_desc *use = &unit_detail::desc<kPlugin, Right>;
size_t room(const weft_instance *i) {
  return Params<Right>(i).size("room");
}
const fi_ops *ops = fid_ops<Ep>();

#elif CASE == 1  // the member `send` must have the parameters and the result of the op `send`
struct Wrong final : Object<Wrong, fid_ep> {
  ssize_t send(const void *buf, size_t len);
};
auto use = msg_ops<Wrong>();

#elif CASE == 2  // an object needs a public member `int close()`
struct Wrong final : Object<Wrong, fid_ep> {};
auto use = fid_ops<Wrong>();

#elif CASE == 3  // this op belongs to another kind of fid
struct Wrong final : Object<Wrong, fid_pep> {
  int connect(const void *addr, const void *param, size_t paramlen);
};
auto use = cm_ops<Wrong>();

#elif CASE == 4  // a unit needs `static constexpr weft::sdk::UnitInfo info
struct Wrong {};
auto use = &unit<Wrong>;

#elif CASE == 5  // info.name must be there and consist of
struct Wrong : Right {
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) { i.name = "Big Name"; });
};
auto use = &unit<Wrong>;

#elif CASE == 6  // info.summary must say in one sentence
struct Wrong : Right {
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) { i.summary = nullptr; });
};
auto use = &unit<Wrong>;

#elif CASE == 7  // info.version must be an FI_VERSION
struct Wrong : Right {
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) { i.version = 0; });
};
auto use = &unit<Wrong>;

#elif CASE == 8  // info.security must say what the unit withstands
struct Wrong : Right {
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) { i.security = 0; });
};
auto use = &unit<Wrong>;

#elif CASE == 9  // info.offers_ep must say which endpoints
struct Wrong : Right {
  using Right::Right;
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) { i.offers_ep = 0; });
};
auto use = &unit<Wrong>;

#elif CASE == 10  // info.needs_ep is for layers
struct Wrong : Right {
  using Right::Right;
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) { i.needs_ep = 1; });
};
auto use = &unit<Wrong>;

#elif CASE == 11  // info.needs_ep must say which endpoints the layer needs
struct Wrong : Right {
  Wrong(const weft_instance *i, Inner) : Right(i) {}
};
auto use = &unit<Wrong>;

#elif CASE == 12  // a provider or layer needs `Result<InfoList> getinfo(const GetinfoQuery &query)`
struct Wrong : Right {
  int getinfo(const char *node);
};
auto use = &unit<Wrong>;

#elif CASE == 13  // a provider or layer needs `Result<fid_fabric *> fabric(
struct Wrong : Right {
  fid_fabric *fabric(const fi_fabric_attr &, void *);
};
auto use = &unit<Wrong>;

#elif CASE == 14  // a provider needs a constructor or a `static Result<std::unique_ptr<P>> create`
struct Wrong : Right {
  Wrong(int, int);
};
auto use = &unit<Wrong>;

#elif CASE == 15  // this class is no provider or layer (it has no getinfo) and no hook
struct Wrong {
  static constexpr UnitInfo info = Right::info;
};
auto use = &unit<Wrong>;

#elif CASE == 16  // the hook's member `send` must have the result of the op `send`
struct Wrong {
  static constexpr UnitInfo info = Right::info;
  ssize_t send(fid_ep *, const void *, size_t, void *, fi_addr_t, void *);
};
auto use = &unit<Wrong>;

#elif CASE == 17  // attach must be `Result<std::unique_ptr<ObjectState>> attach(fid *fid)`
struct Wrong {
  static constexpr UnitInfo info = Right::info;
  struct ObjectState {};
  bool attach(fid *);
  int cntr_add(const weft_hook_link &, fid_cntr *, uint64_t);
};
auto use = &unit<Wrong>;

#elif CASE == 18  // a hook with an ObjectState needs
struct Wrong {
  static constexpr UnitInfo info = Right::info;
  struct ObjectState {};
  int cntr_add(const weft_hook_link &, fid_cntr *, uint64_t);
};
auto use = &unit<Wrong>;

#elif CASE == 19  // the_unit_declares_no_parameter_of_this_name_and_type
size_t room(const weft_instance *i) {
  return Params<Right>(i).size("rooms");
}

#elif CASE == 20  // the_unit_declares_no_parameter_of_this_name_and_type
bool room(const weft_instance *i) {
  return Params<Right>(i).flag("room");
}

#elif CASE == 21  // every entry of info.params needs a name of its own
struct Wrong : Right {
  static constexpr weft_param params[] = {bool_param("a", "1", "x"), bool_param("a", "1", "y")};
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) { i.params = params; });
};
auto use = &unit<Wrong>;

#elif CASE == 22  // the PluginInfo of WEFT_PLUGIN must have a name, vendor, version and license
constexpr PluginInfo kNameless{.name = "p"};
auto use = &unit_detail::desc<kNameless, Right>;

#elif CASE == 23  // explain must be `Result<void> explain(const LineSink &line)`
struct Wrong : Right {
  using Right::Right;
  void explain();
};
auto use = &unit<Wrong>;

#elif CASE == 24  // format
void use(const weft_instance *i) {
  WEFT_WARN(i, FI_LOG_CQ, "%s", 5);
}

#elif CASE == 25  // a layer that takes several providers needs create or a constructor with
struct Wrong : Right {
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) {
    i.needs_ep = 1;
    i.inner_max = 2;
  });
  Wrong(const weft_instance *i, Inner) : Right(i) {}
};
auto use = &unit<Wrong>;

#elif CASE == 26  // info.inner_min and info.inner_max must say how many providers
struct Wrong : Right {
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) {
    i.needs_ep = 1;
    i.inner_min = 3;
    i.inner_max = 2;
  });
  Wrong(const weft_instance *i, std::span<const Inner>) : Right(i) {}
};
auto use = &unit<Wrong>;

#elif CASE == 27  // info.inner_min and info.inner_max are for layers
struct Wrong : Right {
  using Right::Right;
  static constexpr UnitInfo info = changed(Right::info, [](UnitInfo &i) { i.inner_max = 2; });
};
auto use = &unit<Wrong>;

#else
#error no such case
#endif
