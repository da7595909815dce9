// SPDX-License-Identifier: BSD-2-Clause
// Hooks: classes with a member for each op that they want (the concept Hook), the sparse op tables
// made of them, and the C functions that call them. weft/sdk/unit.h makes a plugin of them.
//
// Example:
//    struct Count {
//      static constexpr UnitInfo info{.name = "count", .summary = "counts sends"};
//      ssize_t send(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len,
//                   void *desc, fi_addr_t dest, void *context) {
//        ++sends;
//        return link.next.msg->send(ep, buf, len, desc, dest, context);
//      }
//      uint64_t sends = 0;
//    };
//    static_assert(Hook<Count>);
//
// Not for the tables of objects that a plugin makes itself: weft/sdk/objects/ops.h.
#ifndef WEFT_SDK_UNIT_HOOK_H
#define WEFT_SDK_UNIT_HOOK_H

#include <weft/plugin.h>
#include <weft/result.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/boundary.h>
#include <weft/sdk/unit/unit_info.h>

#include <atomic>
#include <concepts>
#include <memory>

namespace weft::sdk {

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
        "a public type of the hook");
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

}  // namespace unit_detail

}  // namespace weft::sdk

#endif
