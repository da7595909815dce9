// SPDX-License-Identifier: BSD-2-Clause
// Op tables from classes: every op that a class has as a member becomes an entry, every other op a
// stub that returns -FI_ENOSYS.
//
// Example:
//    #include <weft/sdk/objects/fid.h>
//    class Ep final : public Object<Ep, fid_ep> {
//     public:
//      Ep(const weft_instance *instance, void *context) : Object(instance, FI_CLASS_EP, context) {
//        fill_tables(*this);  // or one by one: c()->msg = c_table(msg_ops<Ep>());
//      }
//      int close();  // fi_ops::close without the fid
//      ssize_t send(const void *buf, size_t len, void *desc, fi_addr_t dest, void *context);
//    };
//
// A member has the parameters and the result of its op, less the fid, and must be public. It may be
// const, inherited or noexcept. An exception ends at the table: std::bad_alloc as -FI_ENOMEM, any
// other as -FI_EOTHER. A member of the right name and the wrong type does not compile. There is one
// table per class and kind, constant and complete, so no caller checks for null pointers.
//
// What an application passes to a call that opens something is checked before the member gets it
// (opening.h). In a child after fork() close() and shutdown() of its parent's objects are not
// called: fi_close only calls `void close_copies()`, if the class has it, which closes descriptors
// and does nothing else.
//
// Names of members are OFI's. Where several tables of one object have an op of the same name, the
// member has the name of the function that applications call: tsend, inject_write, fetch_atomic
// (see the lists below). Not for hooks: weft/sdk/unit/hook.h makes their sparse tables with the
// same lists.
#ifndef WEFT_SDK_OBJECTS_OPS_H
#define WEFT_SDK_OBJECTS_OPS_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <weft/plugin.h>
#include <weft/sdk/unit/opening.h>

#include <cstddef>
#include <new>
#include <type_traits>

namespace weft::sdk {

// OFI's structs point to their tables without const, but nothing writes through them.
template <class Ops>
Ops *c_table(const Ops *ops) {
  return const_cast<Ops *>(ops);
}

namespace ops_detail {

inline constexpr const char kNoText[] = "the provider has no text for this";

// Copies a text into the buffer of fi_cq_strerror and fi_eq_strerror, cut to its size.
const char *copy_text(const char *text, char *buf, size_t len) noexcept;
// The same with fi_av_straddr's length in and out.
const char *copy_text(const char *text, char *buf, size_t *len) noexcept;

// What an op returns when it cannot do its work. A call that returns a count has no error value.
template <class R>
constexpr R failure(int code) {
  if constexpr (std::is_pointer_v<R>) {
    return kNoText;
  } else if constexpr (std::is_signed_v<R>) {
    return -code;
  } else {
    return 0;
  }
}

// Calls and returns what the call returns; nothing is thrown past this.
template <class R, class Call>
R guarded(Call call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc &) {
    return failure<R>(FI_ENOMEM);
  } catch (...) {
    return failure<R>(FI_EOTHER);
  }
}

// Ops of an object: F is the type of the table's entry, its first parameter the fid.
template <class T, class F>
struct ObjectOp;

template <class T, class R, class First, class... Args>
struct ObjectOp<T, R (*)(First, Args...)> {
  using Function = R (*)(First, Args...);
  using Member = R (T::*)(Args...);
  using ConstMember = R (T::*)(Args...) const;

  template <class Call>
  static R call(First fid, Args... args) noexcept {
    return guarded<R>([&]() -> R {
      T &mine = *object(fid);
      if constexpr (opening_detail::opens<Args...>)
        if (const int rc = opening_detail::check_all(mine, args...); rc != 0) return rc;
      return Call{}(mine, args...);
    });
  }

  static R absent(First, [[maybe_unused]] Args... args) noexcept {
    if constexpr (std::is_pointer_v<R>) {
      return absent_text(args...);
    } else {
      return failure<R>(FI_ENOSYS);
    }
  }

 private:
  static T *object(First fid) {
    if constexpr (std::is_same_v<First, const struct fid *>) {
      return T::from(const_cast<struct fid *>(fid));
    } else {
      static_assert(
          std::is_same_v<First, struct fid *> || std::is_same_v<First, typename T::FidType *>,
          "this op belongs to another kind of fid than the class is an Object of");
      return T::from(fid);
    }
  }
  static const char *absent_text(int, const void *, char *buf, size_t len) noexcept {  // strerror
    return copy_text(kNoText, buf, len);
  }
  static const char *absent_text(const void *, char *buf, size_t *len) noexcept {  // straddr
    return copy_text(kNoText, buf, len);
  }
};

// Ops of a hook: its member gets the link and the fid in front of the other arguments.
template <class T, class F>
struct HookOp;

}  // namespace ops_detail

// The lists: X(op, member of an object, member of a hook). A hook is one class for all tables.
#define WEFT_FID_OPS(X)           \
  X(close, close, close)          \
  X(bind, bind, bind)             \
  X(control, control, control)    \
  X(ops_open, ops_open, ops_open) \
  X(tostr, tostr, tostr)          \
  X(ops_set, ops_set, ops_set)
#define WEFT_FABRIC_OPS(X)              \
  X(domain, domain, domain)             \
  X(passive_ep, passive_ep, passive_ep) \
  X(eq_open, eq_open, eq_open)          \
  X(wait_open, wait_open, wait_open)    \
  X(trywait, trywait, trywait)          \
  X(domain2, domain2, domain2)
#define WEFT_DOMAIN_OPS(X)                                \
  X(av_open, av_open, av_open)                            \
  X(cq_open, cq_open, cq_open)                            \
  X(endpoint, endpoint, endpoint)                         \
  X(scalable_ep, scalable_ep, scalable_ep)                \
  X(cntr_open, cntr_open, cntr_open)                      \
  X(poll_open, poll_open, poll_open)                      \
  X(stx_ctx, stx_ctx, stx_ctx)                            \
  X(srx_ctx, srx_ctx, srx_ctx)                            \
  X(query_atomic, query_atomic, query_atomic)             \
  X(query_collective, query_collective, query_collective) \
  X(endpoint2, endpoint2, endpoint2)
#define WEFT_MR_OPS(X)   \
  X(reg, reg, mr_reg)    \
  X(regv, regv, mr_regv) \
  X(regattr, regattr, mr_regattr)
#define WEFT_EP_OPS(X)                        \
  X(cancel, cancel, cancel)                   \
  X(getopt, getopt, getopt)                   \
  X(setopt, setopt, setopt)                   \
  X(tx_ctx, tx_ctx, tx_ctx)                   \
  X(rx_ctx, rx_ctx, rx_ctx)                   \
  X(rx_size_left, rx_size_left, rx_size_left) \
  X(tx_size_left, tx_size_left, tx_size_left)
#define WEFT_CM_OPS(X)            \
  X(setname, setname, setname)    \
  X(getname, getname, getname)    \
  X(getpeer, getpeer, getpeer)    \
  X(connect, connect, connect)    \
  X(listen, listen, listen)       \
  X(accept, accept, accept)       \
  X(reject, reject, reject)       \
  X(shutdown, shutdown, shutdown) \
  X(join, join, join)
#define WEFT_MSG_OPS(X)           \
  X(recv, recv, recv)             \
  X(recvv, recvv, recvv)          \
  X(recvmsg, recvmsg, recvmsg)    \
  X(send, send, send)             \
  X(sendv, sendv, sendv)          \
  X(sendmsg, sendmsg, sendmsg)    \
  X(inject, inject, inject)       \
  X(senddata, senddata, senddata) \
  X(injectdata, injectdata, injectdata)
#define WEFT_RMA_OPS(X)                 \
  X(read, read, read)                   \
  X(readv, readv, readv)                \
  X(readmsg, readmsg, readmsg)          \
  X(write, write, write)                \
  X(writev, writev, writev)             \
  X(writemsg, writemsg, writemsg)       \
  X(inject, inject_write, inject_write) \
  X(writedata, writedata, writedata)    \
  X(injectdata, inject_writedata, inject_writedata)
#define WEFT_TAGGED_OPS(X)          \
  X(recv, trecv, trecv)             \
  X(recvv, trecvv, trecvv)          \
  X(recvmsg, trecvmsg, trecvmsg)    \
  X(send, tsend, tsend)             \
  X(sendv, tsendv, tsendv)          \
  X(sendmsg, tsendmsg, tsendmsg)    \
  X(inject, tinject, tinject)       \
  X(senddata, tsenddata, tsenddata) \
  X(injectdata, tinjectdata, tinjectdata)
#define WEFT_ATOMIC_OPS(X)                                \
  X(write, atomic, atomic)                                \
  X(writev, atomicv, atomicv)                             \
  X(writemsg, atomicmsg, atomicmsg)                       \
  X(inject, inject_atomic, inject_atomic)                 \
  X(readwrite, fetch_atomic, fetch_atomic)                \
  X(readwritev, fetch_atomicv, fetch_atomicv)             \
  X(readwritemsg, fetch_atomicmsg, fetch_atomicmsg)       \
  X(compwrite, compare_atomic, compare_atomic)            \
  X(compwritev, compare_atomicv, compare_atomicv)         \
  X(compwritemsg, compare_atomicmsg, compare_atomicmsg)   \
  X(writevalid, atomicvalid, atomicvalid)                 \
  X(readwritevalid, fetch_atomicvalid, fetch_atomicvalid) \
  X(compwritevalid, compare_atomicvalid, compare_atomicvalid)
#define WEFT_COLLECTIVE_OPS(X)                      \
  X(barrier, barrier, barrier)                      \
  X(broadcast, broadcast, broadcast)                \
  X(alltoall, alltoall, alltoall)                   \
  X(allreduce, allreduce, allreduce)                \
  X(allgather, allgather, allgather)                \
  X(reduce_scatter, reduce_scatter, reduce_scatter) \
  X(reduce, reduce, reduce)                         \
  X(scatter, scatter, scatter)                      \
  X(gather, gather, gather)                         \
  X(msg, collective_msg, collective_msg)            \
  X(barrier2, barrier2, barrier2)
#define WEFT_CQ_OPS(X)                  \
  X(read, read, cq_read)                \
  X(readfrom, readfrom, cq_readfrom)    \
  X(readerr, readerr, cq_readerr)       \
  X(sread, sread, cq_sread)             \
  X(sreadfrom, sreadfrom, cq_sreadfrom) \
  X(signal, signal, cq_signal)          \
  X(strerror, strerror, cq_strerror)
#define WEFT_EQ_OPS(X)            \
  X(read, read, eq_read)          \
  X(readerr, readerr, eq_readerr) \
  X(write, write, eq_write)       \
  X(sread, sread, eq_sread)       \
  X(strerror, strerror, eq_strerror)
#define WEFT_CNTR_OPS(X)            \
  X(read, read, cntr_read)          \
  X(readerr, readerr, cntr_readerr) \
  X(add, add, cntr_add)             \
  X(set, set, cntr_set)             \
  X(wait, wait, cntr_wait)          \
  X(adderr, adderr, cntr_adderr)    \
  X(seterr, seterr, cntr_seterr)
#define WEFT_AV_OPS(X)                                    \
  X(insert, insert, av_insert)                            \
  X(insertsvc, insertsvc, av_insertsvc)                   \
  X(insertsym, insertsym, av_insertsym)                   \
  X(remove, remove, av_remove)                            \
  X(lookup, lookup, av_lookup)                            \
  X(straddr, straddr, av_straddr)                         \
  X(av_set, av_set, av_set)                               \
  X(insert_auth_key, insert_auth_key, av_insert_auth_key) \
  X(lookup_auth_key, lookup_auth_key, av_lookup_auth_key) \
  X(set_user_id, set_user_id, av_set_user_id)
#define WEFT_AV_SET_OPS(X)           \
  X(set_union, set_union, set_union) \
  X(intersect, intersect, intersect) \
  X(diff, diff, diff)                \
  X(insert, insert, insert)          \
  X(remove, remove, remove)          \
  X(addr, addr, addr)
#define WEFT_WAIT_OPS(X) X(wait, wait, wait)
#define WEFT_POLL_OPS(X)          \
  X(poll, poll, poll)             \
  X(poll_add, poll_add, poll_add) \
  X(poll_del, poll_del, poll_del)

// One entry of an object's table. The casts ask for a member of exactly the right type, overloaded
// or not. (A pointer to an inherited member cannot be a template argument; a lambda's type can.)
#define WEFT_OBJECT_OP_(op, member, hook_member)                                             \
  {                                                                                          \
    using Op = ops_detail::ObjectOp<T, decltype(table.op)>;                                  \
    if constexpr (                                                                           \
        requires { static_cast<typename Op::Member>(&T::member); } ||                        \
        requires { static_cast<typename Op::ConstMember>(&T::member); }) {                   \
      auto caller = [](T &object, auto... args) { return object.member(args...); };          \
      table.op = &Op::template call<decltype(caller)>;                                       \
    } else {                                                                                 \
      static_assert(                                                                         \
          !requires { &T::member; },                                                         \
          "the member `" #member "` must have the parameters and the result of the op `" #op \
          "` of this table, without the fid");                                               \
      table.op = &Op::absent;                                                                \
    }                                                                                        \
  }

#define WEFT_OBJECT_TABLE_(name, NAME)                         \
  namespace ops_detail {                                       \
  template <class T>                                           \
  constexpr fi_ops##name make##name() {                        \
    fi_ops##name table{};                                      \
    table.size = sizeof table;                                 \
    NAME(WEFT_OBJECT_OP_)                                      \
    return table;                                              \
  }                                                            \
  template <class T>                                           \
  inline constexpr fi_ops##name table##name = make##name<T>(); \
  }

WEFT_OBJECT_TABLE_(, WEFT_FID_OPS)
WEFT_OBJECT_TABLE_(_fabric, WEFT_FABRIC_OPS)
WEFT_OBJECT_TABLE_(_domain, WEFT_DOMAIN_OPS)
WEFT_OBJECT_TABLE_(_mr, WEFT_MR_OPS)
WEFT_OBJECT_TABLE_(_ep, WEFT_EP_OPS)
WEFT_OBJECT_TABLE_(_cm, WEFT_CM_OPS)
WEFT_OBJECT_TABLE_(_msg, WEFT_MSG_OPS)
WEFT_OBJECT_TABLE_(_rma, WEFT_RMA_OPS)
WEFT_OBJECT_TABLE_(_tagged, WEFT_TAGGED_OPS)
WEFT_OBJECT_TABLE_(_atomic, WEFT_ATOMIC_OPS)
WEFT_OBJECT_TABLE_(_collective, WEFT_COLLECTIVE_OPS)
WEFT_OBJECT_TABLE_(_cq, WEFT_CQ_OPS)
WEFT_OBJECT_TABLE_(_eq, WEFT_EQ_OPS)
WEFT_OBJECT_TABLE_(_cntr, WEFT_CNTR_OPS)
WEFT_OBJECT_TABLE_(_av, WEFT_AV_OPS)
WEFT_OBJECT_TABLE_(_av_set, WEFT_AV_SET_OPS)
WEFT_OBJECT_TABLE_(_wait, WEFT_WAIT_OPS)
WEFT_OBJECT_TABLE_(_poll, WEFT_POLL_OPS)

#undef WEFT_OBJECT_TABLE_
#undef WEFT_OBJECT_OP_

namespace ops_detail {

// In a child after fork() the object stays its parent's: the child has no threads of it, and shares
// its sockets and devices. A class that has descriptors closes the child's copies of them.
template <class T>
int close_unless_inherited(struct fid *fid) noexcept {
  T &object = *T::from(fid);
  if constexpr (requires { object.is_inherited(); }) {
    if (!object.is_inherited()) return table<T>.close(fid);
  } else {
    return table<T>.close(fid);
  }
  if constexpr (requires { object.close_copies(); }) object.close_copies();
  return 0;
}
template <class T>
int shutdown_unless_inherited(struct fid_ep *ep, uint64_t flags) noexcept {
  return T::from(ep)->is_inherited() ? 0 : table_cm<T>.shutdown(ep, flags);
}

template <class T>
inline constexpr fi_ops table_of_parent = [] {
  fi_ops own = make<T>();
  own.close = &close_unless_inherited<T>;
  return own;
}();
template <class T>
inline constexpr fi_ops_cm table_cm_of_parent = [] {
  fi_ops_cm own = make_cm<T>();
  if constexpr (requires { &T::shutdown; }) own.shutdown = &shutdown_unless_inherited<T>;
  return own;
}();

}  // namespace ops_detail

// The table of each kind for the class T.
template <class T>
const fi_ops *fid_ops() {
  static_assert(
      requires { &T::close; },
      "an object needs a public member `int close()`: nobody else can free it");
  return &ops_detail::table_of_parent<T>;
}
template <class T>
const fi_ops_fabric *fabric_ops() {
  return &ops_detail::table_fabric<T>;
}
template <class T>
const fi_ops_domain *domain_ops() {
  return &ops_detail::table_domain<T>;
}
template <class T>
const fi_ops_mr *mr_ops() {  // of a domain
  return &ops_detail::table_mr<T>;
}
template <class T>
const fi_ops_ep *ep_ops() {
  return &ops_detail::table_ep<T>;
}
template <class T>
const fi_ops_cm *cm_ops() {
  return &ops_detail::table_cm_of_parent<T>;
}
template <class T>
const fi_ops_msg *msg_ops() {
  return &ops_detail::table_msg<T>;
}
template <class T>
const fi_ops_rma *rma_ops() {
  return &ops_detail::table_rma<T>;
}
template <class T>
const fi_ops_tagged *tagged_ops() {
  return &ops_detail::table_tagged<T>;
}
template <class T>
const fi_ops_atomic *atomic_ops() {
  return &ops_detail::table_atomic<T>;
}
template <class T>
const fi_ops_collective *collective_ops() {
  return &ops_detail::table_collective<T>;
}
template <class T>
const fi_ops_cq *cq_ops() {
  return &ops_detail::table_cq<T>;
}
template <class T>
const fi_ops_eq *eq_ops() {
  return &ops_detail::table_eq<T>;
}
template <class T>
const fi_ops_cntr *cntr_ops() {
  return &ops_detail::table_cntr<T>;
}
template <class T>
const fi_ops_av *av_ops() {
  return &ops_detail::table_av<T>;
}
template <class T>
const fi_ops_av_set *av_set_ops() {  // hooks do not reach it
  return &ops_detail::table_av_set<T>;
}
template <class T>
const fi_ops_wait *wait_ops() {
  return &ops_detail::table_wait<T>;
}
template <class T>
const fi_ops_poll *poll_ops() {
  return &ops_detail::table_poll<T>;
}

namespace ops_detail {

template <class T>
struct Table {
  static void set(fi_ops_fabric *&place) { place = c_table(fabric_ops<T>()); }
  static void set(fi_ops_domain *&place) { place = c_table(domain_ops<T>()); }
  static void set(fi_ops_mr *&place) { place = c_table(mr_ops<T>()); }
  static void set(fi_ops_ep *&place) { place = c_table(ep_ops<T>()); }
  static void set(fi_ops_cm *&place) { place = c_table(cm_ops<T>()); }
  static void set(fi_ops_msg *&place) { place = c_table(msg_ops<T>()); }
  static void set(fi_ops_rma *&place) { place = c_table(rma_ops<T>()); }
  static void set(fi_ops_tagged *&place) { place = c_table(tagged_ops<T>()); }
  static void set(fi_ops_atomic *&place) { place = c_table(atomic_ops<T>()); }
  static void set(fi_ops_collective *&place) { place = c_table(collective_ops<T>()); }
  static void set(fi_ops_cq *&place) { place = c_table(cq_ops<T>()); }
  static void set(fi_ops_eq *&place) { place = c_table(eq_ops<T>()); }
  static void set(fi_ops_cntr *&place) { place = c_table(cntr_ops<T>()); }
  static void set(fi_ops_av *&place) { place = c_table(av_ops<T>()); }
  static void set(fi_ops_av_set *&place) { place = c_table(av_set_ops<T>()); }
  static void set(fi_ops_wait *&place) { place = c_table(wait_ops<T>()); }
  static void set(fi_ops_poll *&place) { place = c_table(poll_ops<T>()); }
};

}  // namespace ops_detail

// Sets every table of the object's fid: those of its class, and stubs where the class has no op of
// a table.
template <class T>
void fill_tables(T &object) {
  using Table = ops_detail::Table<T>;
  auto *fid = object.c();
  object.base()->ops = c_table(fid_ops<T>());
  if constexpr (requires { Table::set(fid->ops); }) Table::set(fid->ops);
  if constexpr (requires { fid->mr; }) Table::set(fid->mr);
  if constexpr (requires { fid->cm; }) Table::set(fid->cm);
  if constexpr (requires { fid->msg; }) Table::set(fid->msg);
  if constexpr (requires { fid->rma; }) Table::set(fid->rma);
  if constexpr (requires { fid->tagged; }) Table::set(fid->tagged);
  if constexpr (requires { fid->atomic; }) Table::set(fid->atomic);
  if constexpr (requires { fid->collective; }) Table::set(fid->collective);
}

}  // namespace weft::sdk

#endif
