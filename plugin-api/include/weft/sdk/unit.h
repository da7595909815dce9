// SPDX-License-Identifier: BSD-2-Clause
// Units from classes: a provider, a layer or a hook is a class, and WEFT_PLUGIN makes a plugin of
// some.
//
//   class Frob {  // a provider
//    public:
//     static constexpr UnitInfo info{.name = "frob",
//                                    .summary = "messages over Frobco cards",
//                                    .version = FI_VERSION(1, 0),
//                                    .offers_ep = WEFT_EP_BIT(FI_EP_MSG),
//                                    .security = WEFT_SECURITY_TRUSTED_PEERS};
//     static Result<std::unique_ptr<Frob>> create(const weft_instance *instance);
//     Result<InfoList> getinfo(const GetinfoQuery &query);
//     Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
//     Result<void> explain(const LineSink &line);                                  // optional
//   };
//   constexpr PluginInfo plugin{
//       .name = "frobco", .vendor = "Frobco", .version = "1.0.0", .license = "BSD-2-Clause"};
//   WEFT_PLUGIN(plugin, Frob)
//
// A layer has the same members and is created with the provider beneath it as a second argument:
//
//     static Result<std::unique_ptr<Rxm>> create(const weft_instance *instance, Inner inner);
//
// A hook has a member for each op that it wants, named as in weft/sdk/ops.h (where tables share a
// name: cq_read, eq_read, cntr_read, av_insert, mr_reg), with two arguments in front of the op's:
//
//     ssize_t send(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
//                  fi_addr_t dest, void *context) {
//       return link.next.msg->send(ep, buf, len, desc, dest, context);
//     }
//
// and, if it keeps something per object,
//
//     using ObjectState = Seen;
//     Result<std::unique_ptr<Seen>> attach(fid *fid);  // null: leave this object alone
//
// found again by object_state<Hook>(link) and deleted when the object is gone.
//
// In place of create, a constructor with the same parameters will do. Nothing that a unit throws
// leaves the plugin. What is missing or of the wrong form does not compile, and says so in English.
// Not for the objects that a fabric opens: see weft/sdk/fid.h and weft/sdk/ops.h.
#ifndef WEFT_SDK_UNIT_H
#define WEFT_SDK_UNIT_H

#include <weft/plugin.h>
#include <weft/result.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/info_list.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/params.h>

#include <array>
#include <atomic>
#include <concepts>
#include <cstdarg>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string_view>

namespace weft::sdk {

// What a unit says of itself; see weft_unit for the meaning of each.
struct UnitInfo {
  const char *name = nullptr;
  const char *ofi_name = nullptr;
  const char *summary = nullptr;
  uint32_t version = 0;
  uint32_t needs_ep = 0;  // layers
  uint32_t offers_ep = 0;
  int32_t rank = 500;
  uint32_t maturity = WEFT_MATURITY_EXPERIMENTAL;
  uint32_t security = 0;
  std::span<const char *const> devices = {};
  std::span<const weft_param> params = {};
};

struct PluginInfo {
  const char *name = nullptr;
  const char *vendor = nullptr;
  const char *version = nullptr;
  const char *license = nullptr;  // SPDX expression
  const char *support = nullptr;  // URL or mail
  uint16_t min_core_minor = 0;
  uint64_t required_core_caps = 0;
  // Optional: work that the whole plugin needs once. The state reaches units as
  // instance->plugin_state.
  Result<void *> (*init)(const weft_offer &offer) = nullptr;
  void (*fini)(void *state) = nullptr;
};

// The arguments of fi_getinfo. Everything but api_version and flags may be null.
struct GetinfoQuery {
  uint32_t api_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  const char *node = nullptr;
  const char *service = nullptr;
  uint64_t flags = 0;
  const struct fi_info *hints = nullptr;
};

// The provider beneath a layer.
class Inner {
 public:
  Inner(const weft_core_services *core, const weft_provider *provider)
      : core_(core), provider_(provider) {}

  // Filtered by the hints, as fi_getinfo does it. Never an empty list: that is FI_ENODATA.
  Result<InfoList> getinfo(const GetinfoQuery &query) const;
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) const;

 private:
  const weft_core_services *core_;
  const weft_provider *provider_;
};

// Where explain() puts its lines.
class LineSink {
 public:
  LineSink(void (*line)(void *arg, const char *text), void *arg) : line_(line), arg_(arg) {}
  __attribute__((format(printf, 2, 3))) void operator()(const char *format, ...) const;

 private:
  void (*line_)(void *arg, const char *text);
  void *arg_;
};

// ---- what a class must have ----

// `P(args...)` or `P::create(args...)`.
template <class P, class... Args>
concept Creatable = std::constructible_from<P, Args...> || requires(Args... args) {
  { P::create(args...) } -> std::same_as<Result<std::unique_ptr<P>>>;
};

template <class U>
concept HasInfo = requires {
  { U::info } -> std::same_as<const UnitInfo &>;
};
template <class P>
concept HasGetinfo = requires(P &p, const GetinfoQuery &query) {
  { p.getinfo(query) } -> std::same_as<Result<InfoList>>;
};
template <class P>
concept HasFabric = requires(P &p, const fi_fabric_attr &attr, void *context) {
  { p.fabric(attr, context) } -> std::same_as<Result<fid_fabric *>>;
};

template <class P>
concept Layer =
    HasInfo<P> && HasGetinfo<P> && HasFabric<P> && Creatable<P, const weft_instance *, Inner>;
template <class P>
concept Provider =
    HasInfo<P> && HasGetinfo<P> && HasFabric<P> && !Layer<P> && Creatable<P, const weft_instance *>;

// ---- hooks ----

namespace unit_detail {

// The place in weft_fid_header.links that the core gave to a hook class.
template <class H>
inline std::atomic<uint32_t> hook_slot{0};

template <class H>
const weft_hook_link &link_of(const struct fid *fid) {
  weft_hook_link **links = __atomic_load_n(&header_of(fid)->links_core, __ATOMIC_ACQUIRE);
  return *links[hook_slot<H>.load(std::memory_order_relaxed)];
}

inline const struct fid *base_of(const struct fid *fid) {
  return fid;
}
template <class Fid>
const struct fid *base_of(const Fid *fid) {
  return &fid->fid;
}

}  // namespace unit_detail

namespace ops_detail {

template <class H, class R, class First, class... Args>
struct HookOp<H, R (*)(First, Args...)> {
  using Member = R (H::*)(const weft_hook_link &, First, Args...);

  template <class Call>
  static R call(First fid, Args... args) noexcept {
    const weft_hook_link &link = unit_detail::link_of<H>(unit_detail::base_of(fid));
    return guarded<R>(
        [&]() -> R { return Call{}(*static_cast<H *>(link.hook_state), link, fid, args...); });
  }
};

#define WEFT_HOOK_OP_(op, object_member, member)                                      \
  {                                                                                   \
    using Op = ops_detail::HookOp<T, decltype(table.op)>;                             \
    if constexpr (requires { static_cast<typename Op::Member>(&T::member); }) {       \
      auto caller = [](T &hook, const weft_hook_link &link, auto... args) {           \
        return hook.member(link, args...);                                            \
      };                                                                              \
      table.op = &Op::template call<decltype(caller)>;                                \
    } else {                                                                          \
      static_assert(                                                                  \
          !requires { &T::member; },                                                  \
          "the hook's member `" #member "` must have the result of the op `" #op      \
          "` and its parameters, with `const weft_hook_link &` in front of the fid"); \
    }                                                                                 \
  }
#define WEFT_HOOK_TABLE_(name, NAME)                                     \
  template <class T>                                                     \
  constexpr fi_ops##name make_overlay##name() {                          \
    fi_ops##name table{};                                                \
    table.size = sizeof table;                                           \
    NAME(WEFT_HOOK_OP_)                                                  \
    return table;                                                        \
  }                                                                      \
  template <class T>                                                     \
  inline constexpr fi_ops##name overlay##name = make_overlay##name<T>(); \
  template <class T>                                                     \
  constexpr bool names##name() {                                         \
    bool any = false;                                                    \
    NAME(WEFT_HOOK_NAMES_)                                               \
    return any;                                                          \
  }                                                                      \
  template <class T>                                                     \
  constexpr const fi_ops##name *used##name() {                           \
    if constexpr (names##name<T>()) {                                    \
      return &overlay##name<T>;                                          \
    } else {                                                             \
      return nullptr;                                                    \
    }                                                                    \
  }
#define WEFT_HOOK_NAMES_(op, object_member, member) \
  any = any || requires {                           \
    &T::member;                                     \
  };

WEFT_HOOK_TABLE_(, WEFT_FID_OPS)
WEFT_HOOK_TABLE_(_fabric, WEFT_FABRIC_OPS)
WEFT_HOOK_TABLE_(_domain, WEFT_DOMAIN_OPS)
WEFT_HOOK_TABLE_(_mr, WEFT_MR_OPS)
WEFT_HOOK_TABLE_(_ep, WEFT_EP_OPS)
WEFT_HOOK_TABLE_(_cm, WEFT_CM_OPS)
WEFT_HOOK_TABLE_(_msg, WEFT_MSG_OPS)
WEFT_HOOK_TABLE_(_rma, WEFT_RMA_OPS)
WEFT_HOOK_TABLE_(_tagged, WEFT_TAGGED_OPS)
WEFT_HOOK_TABLE_(_atomic, WEFT_ATOMIC_OPS)
WEFT_HOOK_TABLE_(_collective, WEFT_COLLECTIVE_OPS)
WEFT_HOOK_TABLE_(_cq, WEFT_CQ_OPS)
WEFT_HOOK_TABLE_(_eq, WEFT_EQ_OPS)
WEFT_HOOK_TABLE_(_cntr, WEFT_CNTR_OPS)
WEFT_HOOK_TABLE_(_av, WEFT_AV_OPS)
WEFT_HOOK_TABLE_(_wait, WEFT_WAIT_OPS)
WEFT_HOOK_TABLE_(_poll, WEFT_POLL_OPS)

#undef WEFT_HOOK_TABLE_
#undef WEFT_HOOK_NAMES_
#undef WEFT_HOOK_OP_

}  // namespace ops_detail

// The ops that a class names.
template <class H>
constexpr weft_op_tables hook_overlay() {
  using namespace ops_detail;
  return {.struct_size = sizeof(weft_op_tables),
          .fid = used<H>(),
          .fabric = used_fabric<H>(),
          .domain = used_domain<H>(),
          .mr = used_mr<H>(),
          .ep = used_ep<H>(),
          .cm = used_cm<H>(),
          .msg = used_msg<H>(),
          .rma = used_rma<H>(),
          .tagged = used_tagged<H>(),
          .atomic = used_atomic<H>(),
          .collective = used_collective<H>(),
          .cq = used_cq<H>(),
          .eq = used_eq<H>(),
          .cntr = used_cntr<H>(),
          .av = used_av<H>(),
          .wait = used_wait<H>(),
          .poll = used_poll<H>()};
}
template <class H>
constexpr bool hook_names_an_op() {
  using namespace ops_detail;
  return names<H>() || names_fabric<H>() || names_domain<H>() || names_mr<H>() || names_ep<H>() ||
         names_cm<H>() || names_msg<H>() || names_rma<H>() || names_tagged<H>() ||
         names_atomic<H>() || names_collective<H>() || names_cq<H>() || names_eq<H>() ||
         names_cntr<H>() || names_av<H>() || names_wait<H>() || names_poll<H>();
}

template <class H>
concept Hook = HasInfo<H> && !requires {
  &H::getinfo;
}
&&!requires {
  &H::fabric;
}
&&hook_names_an_op<H>() && (Creatable<H, const weft_instance *> || std::default_initializable<H>);

// The link of an object that the hook is attached to, for code that is not an op of the hook: an op
// has it as its argument.
template <class H>
const weft_hook_link &hook_link(const struct fid *fid) {
  return unit_detail::link_of<H>(fid);
}
// What attach() returned for the object that the link ties to the hook.
template <class H>
typename H::ObjectState &object_state(const weft_hook_link &link) {
  return *static_cast<typename H::ObjectState *>(link.object_state);
}

// ---- the C side ----

namespace unit_detail {

// A sentence that a unit returned, as the C boundary wants it: a code of 0 or below would read as
// success.
int32_t report(const Error &error, weft_error *why) noexcept;
int32_t report(int code, const char *text, weft_error *why) noexcept;
// What is being handled, for use in a catch (...).
int32_t report_exception(weft_error *why) noexcept;

// Runs a function that returns a Result<void>.
template <class Body>
int32_t boundary(weft_error *why, Body body) noexcept {
  try {
    Result<void> result = body();
    return result ? 0 : report(result.error(), why);
  } catch (...) {
    return report_exception(why);
  }
}

template <class P, class... Args>
Result<std::unique_ptr<P>> make(Args... args) {
  if constexpr (requires { P::create(args...); }) {
    return P::create(args...);
  } else if constexpr (std::constructible_from<P, Args...>) {
    return std::make_unique<P>(args...);
  } else {
    return std::make_unique<P>();
  }
}

template <class P>
int32_t getinfo(void *self, uint32_t api_version, const char *node, const char *service,
                uint64_t flags, const struct fi_info *hints, struct fi_info **info,
                weft_error *why) noexcept {
  return boundary(why, [&]() -> Result<void> {
    WEFT_TRY(InfoList list, static_cast<P *>(self)->getinfo(
                                GetinfoQuery{api_version, node, service, flags, hints}));
    if (list.empty()) return fail(FI_ENODATA, "%s has nothing to offer here", P::info.name);
    *info = list.release();
    return {};
  });
}

template <class P>
int32_t fabric(void *self, struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context,
               weft_error *why) noexcept {
  return boundary(why, [&]() -> Result<void> {
    if (attr == nullptr || fabric == nullptr) {
      return fail(FI_EINVAL, "%s: fi_fabric needs attributes and a place for the fabric",
                  P::info.name);
    }
    WEFT_TRY(*fabric, static_cast<P *>(self)->fabric(*attr, context));
    return {};
  });
}

template <class P>
int32_t explain(void *self, void (*line)(void *arg, const char *text), void *arg,
                weft_error *why) noexcept {
  return boundary(
      why, [&]() -> Result<void> { return static_cast<P *>(self)->explain(LineSink(line, arg)); });
}

template <class P>
void destroy(void *self) noexcept {
  delete static_cast<P *>(self);
}

template <class P>
constexpr weft_provider_ops make_provider_ops() {
  weft_provider_ops ops{.struct_size = sizeof ops,
                        .getinfo = &getinfo<P>,
                        .fabric = &fabric<P>,
                        .destroy = &destroy<P>};
  if constexpr (requires { &P::explain; }) {
    static_assert(
        requires(P & p, const LineSink &line) {
          { p.explain(line) } -> std::same_as<Result<void>>;
        },
        "explain must be `Result<void> explain(const LineSink &line)`");
    ops.explain = &explain<P>;
  }
  return ops;
}
template <class P>
inline constexpr weft_provider_ops provider_ops = make_provider_ops<P>();

template <class P>
int32_t create(const weft_instance *instance, weft_provider *provider, weft_error *why) noexcept {
  return boundary(why, [&]() -> Result<void> {
    WEFT_TRY(std::unique_ptr<P> made, make<P>(instance));
    *provider = {&provider_ops<P>, made.release()};
    return {};
  });
}

template <class P>
int32_t wrap(const weft_instance *instance, const weft_provider *inner, weft_provider *provider,
             weft_error *why) noexcept {
  return boundary(why, [&]() -> Result<void> {
    WEFT_TRY(std::unique_ptr<P> made, make<P>(instance, Inner(instance->core, inner)));
    *provider = {&provider_ops<P>, made.release()};
    return {};
  });
}

template <class H>
int32_t create_hook(const weft_instance *instance, void **state, weft_error *why) noexcept {
  return boundary(why, [&]() -> Result<void> {
    hook_slot<H>.store(instance->hook_slot, std::memory_order_relaxed);
    WEFT_TRY(std::unique_ptr<H> made, make<H>(instance));
    *state = made.release();
    return {};
  });
}

template <class H>
int32_t attach(void *hook, struct fid *fid, void **object, weft_error *why) noexcept {
  bool wanted = true;
  const int32_t rc = boundary(why, [&]() -> Result<void> {
    WEFT_TRY(std::unique_ptr<typename H::ObjectState> made, static_cast<H *>(hook)->attach(fid));
    wanted = made != nullptr;
    *object = made.release();
    return {};
  });
  return rc != 0 ? rc : (wanted ? 0 : 1);
}

template <class H>
void release(void *, void *object) noexcept {
  delete static_cast<typename H::ObjectState *>(object);
}

template <class U>
inline constexpr weft_provider_unit provider_unit{.struct_size = sizeof(weft_provider_unit),
                                                  .create = &create<U>};
template <class U>
inline constexpr weft_layer_unit layer_unit{.struct_size = sizeof(weft_layer_unit),
                                            .wrap = &wrap<U>};

template <class H>
inline constexpr weft_op_tables overlay = hook_overlay<H>();

template <class H>
constexpr weft_hook_unit make_hook_unit() {
  weft_hook_unit unit{.struct_size = sizeof unit,
                      .overlay = &overlay<H>,
                      .create = &create_hook<H>,
                      .destroy = &destroy<H>};
  if constexpr (requires { &H::attach; }) {
    static_assert(
        requires(H & h, struct fid * fid) {
          { h.attach(fid) } -> std::same_as<Result<std::unique_ptr<typename H::ObjectState>>>;
        },
        "attach must be `Result<std::unique_ptr<ObjectState>> attach(fid *fid)`, with ObjectState "
        "a "
        "public type of the hook");
    unit.attach = &attach<H>;
    unit.release = &release<H>;
  } else {
    static_assert(
        !requires { typename H::ObjectState; },
        "a hook with an ObjectState needs `Result<std::unique_ptr<ObjectState>> "
        "attach(fid *fid)` to make one");
  }
  return unit;
}
template <class H>
inline constexpr weft_hook_unit hook_unit = make_hook_unit<H>();

template <class U>
constexpr auto make_param_pointers() {
  std::array<const weft_param *, U::info.params.size()> pointers{};
  for (size_t i = 0; i < pointers.size(); ++i) pointers[i] = &U::info.params[i];
  return pointers;
}
template <class U>
inline constexpr auto param_pointers = make_param_pointers<U>();

constexpr bool is_name(const char *name, std::string_view more) {
  if (name == nullptr || *name == '\0') return false;
  for (; *name != '\0'; ++name) {
    if (!(*name >= 'a' && *name <= 'z') && !(*name >= '0' && *name <= '9') &&
        more.find(*name) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

constexpr bool params_are_named(std::span<const weft_param> params) {
  for (size_t i = 0; i < params.size(); ++i) {
    if (!is_name(params[i].name, "_") || params[i].help == nullptr) return false;
    for (size_t j = 0; j < i; ++j) {
      if (std::string_view(params[i].name) == params[j].name) return false;
    }
  }
  return true;
}

template <class U>
constexpr weft_unit make_unit() {
  static_assert(HasInfo<U>,
                "a unit needs `static constexpr weft::sdk::UnitInfo info{...}`, public");
  constexpr const UnitInfo &info = U::info;
  static_assert(is_name(info.name, "-_"),
                "info.name must be there and consist of a-z, 0-9, '-' and '_'");
  static_assert(info.summary != nullptr,
                "info.summary must say in one sentence what the unit does");
  static_assert(info.version != 0, "info.version must be an FI_VERSION(major, minor)");
  static_assert(
      info.maturity >= WEFT_MATURITY_STABLE && info.maturity <= WEFT_MATURITY_EXPERIMENTAL,
      "info.maturity must be a WEFT_MATURITY_...");
  static_assert(
      info.security >= WEFT_SECURITY_NO_NETWORK && info.security <= WEFT_SECURITY_TRUSTED_PEERS,
      "info.security must say what the unit withstands: a WEFT_SECURITY_...");
  static_assert(
      params_are_named(info.params),
      "every entry of info.params needs a name of its own, of a-z, 0-9 and '_', and a help");

  weft_unit unit{.magic = WEFT_UNIT_MAGIC,
                 .struct_size = sizeof unit,
                 .version = info.version,
                 .name = info.name,
                 .ofi_name = info.ofi_name,
                 .summary = info.summary,
                 .needs_ep = info.needs_ep,
                 .offers_ep = info.offers_ep,
                 .rank = info.rank,
                 .maturity = info.maturity,
                 .security = info.security,
                 .device_count = static_cast<uint32_t>(info.devices.size()),
                 .devices = info.devices.data(),
                 .params = param_pointers<U>.data(),
                 .param_count = static_cast<uint32_t>(info.params.size())};
  if constexpr (
      requires { &U::getinfo; } || requires { &U::fabric; }) {
    static_assert(
        HasGetinfo<U>,
        "a provider or layer needs `Result<InfoList> getinfo(const GetinfoQuery &query)`, "
        "public");
    static_assert(HasFabric<U>,
                  "a provider or layer needs `Result<fid_fabric *> fabric(const fi_fabric_attr "
                  "&attr, void *context)`, public");
    static_assert(Layer<U> || Provider<U>,
                  "a provider needs a constructor or a `static Result<std::unique_ptr<P>> create` "
                  "with the parameter (const weft_instance *), a layer one with (const "
                  "weft_instance *, Inner)");
    static_assert(
        info.offers_ep != 0,
        "info.offers_ep must say which endpoints the unit offers: WEFT_EP_BIT(FI_EP_...)");
    if constexpr (Layer<U>) {
      static_assert(info.needs_ep != 0,
                    "info.needs_ep must say which endpoints the layer needs beneath it: "
                    "WEFT_EP_BIT(FI_EP_...)");
      unit.kind = WEFT_KIND_LAYER;
      unit.layer = &layer_unit<U>;
    } else {
      static_assert(info.needs_ep == 0,
                    "info.needs_ep is for layers: a provider has nothing beneath");
      unit.kind = WEFT_KIND_PROVIDER;
      unit.provider = &provider_unit<U>;
    }
  } else {
    static_assert(hook_names_an_op<U>(),
                  "this class is no provider or layer (it has no getinfo) and no hook (it has no "
                  "member named as an op of weft/sdk/ops.h)");
    static_assert(Hook<U>,
                  "a hook needs a constructor, or a `static Result<std::unique_ptr<H>> create`, "
                  "without parameters or with (const weft_instance *)");
    unit.kind = WEFT_KIND_HOOK;
    unit.hook = &hook_unit<U>;
  }
  return unit;
}

}  // namespace unit_detail

// The C struct of a unit class.
template <class U>
inline constexpr weft_unit unit = unit_detail::make_unit<U>();

namespace unit_detail {

template <class... Units>
inline constexpr std::array<const weft_unit *, sizeof...(Units)> units{&unit<Units>...};

template <const PluginInfo &kInfo>
int32_t init(const weft_offer *offer, void **state, weft_error *why) noexcept {
  return boundary(why, [&]() -> Result<void> {
    WEFT_TRY(*state, kInfo.init(*offer));
    return {};
  });
}

template <const PluginInfo &kInfo>
void fini(void *state) noexcept {
  try {
    kInfo.fini(state);
  } catch (...) {  // nobody could act on it
  }
}

template <const PluginInfo &kInfo, class... Units>
constexpr weft_plugin_desc make_desc() {
  static_assert(kInfo.name != nullptr && kInfo.vendor != nullptr && kInfo.version != nullptr &&
                    kInfo.license != nullptr,
                "the PluginInfo of WEFT_PLUGIN must have a name, vendor, version and license");
  static_assert(sizeof...(Units) >= 1 && sizeof...(Units) <= WEFT_MAX_UNITS,
                "WEFT_PLUGIN needs at least one unit class, and at most WEFT_MAX_UNITS");
  weft_plugin_desc desc{.magic = WEFT_DESC_MAGIC,
                        .struct_size = sizeof desc,
                        .abi_major = WEFT_ABI_MAJOR,
                        .abi_minor = WEFT_ABI_MINOR,
                        .min_core_minor = kInfo.min_core_minor,
                        .required_core_caps = kInfo.required_core_caps,
                        .name = kInfo.name,
                        .vendor = kInfo.vendor,
                        .version = kInfo.version,
                        .license = kInfo.license,
                        .support = kInfo.support,
                        .units = units<Units...>.data(),
                        .unit_count = sizeof...(Units)};
  if constexpr (kInfo.init != nullptr) desc.init = &init<kInfo>;
  if constexpr (kInfo.fini != nullptr) desc.fini = &fini<kInfo>;
  return desc;
}

template <const PluginInfo &kInfo, class... Units>
inline constexpr weft_plugin_desc desc = make_desc<kInfo, Units...>();

}  // namespace unit_detail
}  // namespace weft::sdk

// WEFT_PLUGIN(info, Unit...): makes this file the plugin. `info` is a constexpr PluginInfo at
// namespace scope, the units are classes. Once per plugin, outside of any namespace.
#define WEFT_PLUGIN(info, ...)                                                         \
  extern "C" WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *, \
                                                                   weft_error *) {     \
    return &::weft::sdk::unit_detail::desc<info, __VA_ARGS__>;                         \
  }

#endif
