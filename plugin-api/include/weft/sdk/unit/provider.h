// SPDX-License-Identifier: BSD-2-Clause
// Providers and layers: what their classes must have (the concepts Provider and Layer), what they
// work with, and the C functions that call them. weft/sdk/unit.h makes a plugin of them.
//
// Example:
//    struct Frob {
//      static constexpr UnitInfo info{.name = "frob", .summary = "messages over Frobco cards"};
//      explicit Frob(const weft_instance *instance);
//      weft::Result<InfoList> getinfo(const GetinfoQuery &query);
//      weft::Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
//    };
//    static_assert(Provider<Frob>);
//
// A layer also gets what is beneath it: one Inner, or a span of them if it takes several.
//
// Example:
//    class Bundle {
//     public:
//      static constexpr UnitInfo info{.name = "bundle",
//                                     .summary = "the first provider that answers",
//                                     .inner_min = 1,
//                                     .inner_max = 4};
//      Bundle(const weft_instance *, std::span<const Inner> inner)
//          : inner_(inner.begin(), inner.end()) {}
//      weft::Result<InfoList> getinfo(const GetinfoQuery &query) {
//        weft::Result<InfoList> list = inner_[0].getinfo(query);
//        for (size_t i = 1; !list && i < inner_.size(); ++i) list = inner_[i].getinfo(query);
//        return list;
//      }
//      weft::Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
//
//     private:
//      const std::vector<Inner> inner_;
//    };
//    static_assert(Layer<Bundle>);
//
// Not for hooks: weft/sdk/unit/hook.h.
#ifndef WEFT_SDK_UNIT_PROVIDER_H
#define WEFT_SDK_UNIT_PROVIDER_H

#include <weft/plugin.h>
#include <weft/result.h>
#include <weft/sdk/unit/boundary.h>
#include <weft/sdk/unit/info_list.h>
#include <weft/sdk/unit/unit_info.h>

#include <array>
#include <concepts>
#include <cstdarg>
#include <memory>
#include <span>
#include <vector>

namespace weft::sdk {

// The arguments of fi_getinfo. Everything but api_version and flags may be null.
struct GetinfoQuery {
  uint32_t api_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  const char *node = nullptr;
  const char *service = nullptr;
  uint64_t flags = 0;
  const struct fi_info *hints = nullptr;
};

// A provider beneath a layer. A copy is the same provider.
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

template <class P>
concept HasGetinfo = requires(P &p, const GetinfoQuery &query) {
  { p.getinfo(query) } -> std::same_as<Result<InfoList>>;
};
template <class P>
concept HasFabric = requires(P &p, const fi_fabric_attr &attr, void *context) {
  { p.fabric(attr, context) } -> std::same_as<Result<fid_fabric *>>;
};

// A layer over one provider, and one over several. The span is gone after create; what is in it may
// be copied.
template <class P>
concept LayerOfOne =
    HasInfo<P> && HasGetinfo<P> && HasFabric<P> && Creatable<P, const weft_instance *, Inner>;
template <class P>
concept LayerOfSeveral = HasInfo<P> && HasGetinfo<P> && HasFabric<P> && !LayerOfOne<P> &&
                         Creatable<P, const weft_instance *, std::span<const Inner>>;
template <class P>
concept Layer = LayerOfOne<P> || LayerOfSeveral<P>;
template <class P>
concept Provider =
    HasInfo<P> && HasGetinfo<P> && HasFabric<P> && !Layer<P> && Creatable<P, const weft_instance *>;

// ---- the C side ----

namespace unit_detail {

// Whether the core gave a layer as many inner providers as it takes.
Result<void> check_inner_count(const UnitInfo &layer, const weft_provider *inner, uint32_t count);

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
int32_t wrap(const weft_instance *instance, const weft_provider *inner, uint32_t count,
             weft_provider *provider, weft_error *why) noexcept {
  return boundary(why, [&]() -> Result<void> {
    WEFT_CHECK(check_inner_count(P::info, inner, count));
    std::unique_ptr<P> made;
    if constexpr (LayerOfSeveral<P>) {
      std::vector<Inner> several;
      for (uint32_t i = 0; i < count; ++i) several.emplace_back(instance->core, inner + i);
      WEFT_TRY(made, make<P>(instance, std::span<const Inner>(several)));
    } else {
      WEFT_TRY(made, make<P>(instance, Inner(instance->core, inner)));
    }
    *provider = {&provider_ops<P>, made.release()};
    return {};
  });
}

template <class U>
inline constexpr weft_provider_unit provider_unit{.struct_size = sizeof(weft_provider_unit),
                                                  .create = &create<U>};
template <class U>
inline constexpr weft_layer_unit layer_unit{.struct_size = sizeof(weft_layer_unit),
                                            .wrap = &wrap<U>};

}  // namespace unit_detail

}  // namespace weft::sdk

#endif
