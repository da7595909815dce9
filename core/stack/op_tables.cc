// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/op_tables.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace weft {
namespace {

// Tables of all types are read through this.
typedef void *AnyTable __attribute__((may_alias));

constexpr size_t kSlot = sizeof(void (*)());
// No table of any release is as large. A larger `size` is a mistake of the plugin.
constexpr size_t kMaxTable = 4096;

template <class Result, class... Args>
Result not_supported(Args...) {
  if constexpr (std::is_same_v<Result, const char *>) {
    return "operation not supported";
  } else if constexpr (std::is_same_v<Result, uint64_t>) {
    return 0;
  } else {
    return -FI_ENOSYS;
  }
}

template <class Ops, class Result, class... Args>
void fill(Ops &ops, Result (*Ops::*member)(Args...)) {
  ops.*member = &not_supported<Result, Args...>;
}

template <class Ops, class... Members>
Ops stubs(Members... members) {
  static_assert(sizeof(Ops) == sizeof(size_t) + sizeof...(Members) * kSlot, "every op, once");
  Ops ops{};
  ops.size = sizeof ops;
  (fill(ops, members), ...);
  return ops;
}

struct Stubs {
  fi_ops fid = stubs<fi_ops>(&fi_ops::close, &fi_ops::bind, &fi_ops::control, &fi_ops::ops_open,
                             &fi_ops::tostr, &fi_ops::ops_set);
  fi_ops_fabric fabric = stubs<fi_ops_fabric>(&fi_ops_fabric::domain, &fi_ops_fabric::passive_ep,
                                              &fi_ops_fabric::eq_open, &fi_ops_fabric::wait_open,
                                              &fi_ops_fabric::trywait, &fi_ops_fabric::domain2);
  fi_ops_domain domain = stubs<fi_ops_domain>(
      &fi_ops_domain::av_open, &fi_ops_domain::cq_open, &fi_ops_domain::endpoint,
      &fi_ops_domain::scalable_ep, &fi_ops_domain::cntr_open, &fi_ops_domain::poll_open,
      &fi_ops_domain::stx_ctx, &fi_ops_domain::srx_ctx, &fi_ops_domain::query_atomic,
      &fi_ops_domain::query_collective, &fi_ops_domain::endpoint2);
  fi_ops_mr mr = stubs<fi_ops_mr>(&fi_ops_mr::reg, &fi_ops_mr::regv, &fi_ops_mr::regattr);
  fi_ops_ep ep = stubs<fi_ops_ep>(&fi_ops_ep::cancel, &fi_ops_ep::getopt, &fi_ops_ep::setopt,
                                  &fi_ops_ep::tx_ctx, &fi_ops_ep::rx_ctx, &fi_ops_ep::rx_size_left,
                                  &fi_ops_ep::tx_size_left);
  fi_ops_cm cm = stubs<fi_ops_cm>(&fi_ops_cm::setname, &fi_ops_cm::getname, &fi_ops_cm::getpeer,
                                  &fi_ops_cm::connect, &fi_ops_cm::listen, &fi_ops_cm::accept,
                                  &fi_ops_cm::reject, &fi_ops_cm::shutdown, &fi_ops_cm::join);
  fi_ops_msg msg =
      stubs<fi_ops_msg>(&fi_ops_msg::recv, &fi_ops_msg::recvv, &fi_ops_msg::recvmsg,
                        &fi_ops_msg::send, &fi_ops_msg::sendv, &fi_ops_msg::sendmsg,
                        &fi_ops_msg::inject, &fi_ops_msg::senddata, &fi_ops_msg::injectdata);
  fi_ops_rma rma =
      stubs<fi_ops_rma>(&fi_ops_rma::read, &fi_ops_rma::readv, &fi_ops_rma::readmsg,
                        &fi_ops_rma::write, &fi_ops_rma::writev, &fi_ops_rma::writemsg,
                        &fi_ops_rma::inject, &fi_ops_rma::writedata, &fi_ops_rma::injectdata);
  fi_ops_tagged tagged = stubs<fi_ops_tagged>(
      &fi_ops_tagged::recv, &fi_ops_tagged::recvv, &fi_ops_tagged::recvmsg, &fi_ops_tagged::send,
      &fi_ops_tagged::sendv, &fi_ops_tagged::sendmsg, &fi_ops_tagged::inject,
      &fi_ops_tagged::senddata, &fi_ops_tagged::injectdata);
  fi_ops_atomic atomic = stubs<fi_ops_atomic>(
      &fi_ops_atomic::write, &fi_ops_atomic::writev, &fi_ops_atomic::writemsg,
      &fi_ops_atomic::inject, &fi_ops_atomic::readwrite, &fi_ops_atomic::readwritev,
      &fi_ops_atomic::readwritemsg, &fi_ops_atomic::compwrite, &fi_ops_atomic::compwritev,
      &fi_ops_atomic::compwritemsg, &fi_ops_atomic::writevalid, &fi_ops_atomic::readwritevalid,
      &fi_ops_atomic::compwritevalid);
  fi_ops_collective collective = stubs<fi_ops_collective>(
      &fi_ops_collective::barrier, &fi_ops_collective::broadcast, &fi_ops_collective::alltoall,
      &fi_ops_collective::allreduce, &fi_ops_collective::allgather,
      &fi_ops_collective::reduce_scatter, &fi_ops_collective::reduce, &fi_ops_collective::scatter,
      &fi_ops_collective::gather, &fi_ops_collective::msg, &fi_ops_collective::barrier2);
  fi_ops_cq cq = stubs<fi_ops_cq>(&fi_ops_cq::read, &fi_ops_cq::readfrom, &fi_ops_cq::readerr,
                                  &fi_ops_cq::sread, &fi_ops_cq::sreadfrom, &fi_ops_cq::signal,
                                  &fi_ops_cq::strerror);
  fi_ops_eq eq = stubs<fi_ops_eq>(&fi_ops_eq::read, &fi_ops_eq::readerr, &fi_ops_eq::write,
                                  &fi_ops_eq::sread, &fi_ops_eq::strerror);
  fi_ops_cntr cntr = stubs<fi_ops_cntr>(&fi_ops_cntr::read, &fi_ops_cntr::readerr,
                                        &fi_ops_cntr::add, &fi_ops_cntr::set, &fi_ops_cntr::wait,
                                        &fi_ops_cntr::adderr, &fi_ops_cntr::seterr);
  fi_ops_av av = stubs<fi_ops_av>(&fi_ops_av::insert, &fi_ops_av::insertsvc, &fi_ops_av::insertsym,
                                  &fi_ops_av::remove, &fi_ops_av::lookup, &fi_ops_av::straddr,
                                  &fi_ops_av::av_set, &fi_ops_av::insert_auth_key,
                                  &fi_ops_av::lookup_auth_key, &fi_ops_av::set_user_id);
  fi_ops_wait wait = stubs<fi_ops_wait>(&fi_ops_wait::wait);
  fi_ops_poll poll =
      stubs<fi_ops_poll>(&fi_ops_poll::poll, &fi_ops_poll::poll_add, &fi_ops_poll::poll_del);
};

struct Known {
  const void *stubs;
  size_t size;
};

const Known &known(Table table) {
  static const Stubs all;
  static const std::array<Known, kTableCount> tables = {{
      {&all.fid, sizeof all.fid},
      {&all.fabric, sizeof all.fabric},
      {&all.domain, sizeof all.domain},
      {&all.mr, sizeof all.mr},
      {&all.ep, sizeof all.ep},
      {&all.cm, sizeof all.cm},
      {&all.msg, sizeof all.msg},
      {&all.rma, sizeof all.rma},
      {&all.tagged, sizeof all.tagged},
      {&all.atomic, sizeof all.atomic},
      {&all.collective, sizeof all.collective},
      {&all.cq, sizeof all.cq},
      {&all.eq, sizeof all.eq},
      {&all.cntr, sizeof all.cntr},
      {&all.av, sizeof all.av},
      {&all.wait, sizeof all.wait},
      {&all.poll, sizeof all.poll},
  }};
  return tables[static_cast<size_t>(table)];
}

constexpr size_t member_offset(Table table) {
  return offsetof(weft_op_tables, fid) + static_cast<size_t>(table) * sizeof(void *);
}
static_assert(member_offset(Table::kPoll) == offsetof(weft_op_tables, poll));
static_assert(static_cast<size_t>(Table::kPoll) + 1 == kTableCount);

size_t size_of(const void *ops) {
  size_t size;
  std::memcpy(&size, ops, sizeof size);
  return size < sizeof(size_t) || size > kMaxTable ? sizeof(size_t) : size / kSlot * kSlot;
}

bool has_op(const void *ops, size_t offset) {
  static constexpr char kNone[kSlot] = {};
  return std::memcmp(static_cast<const char *>(ops) + offset, kNone, kSlot) != 0;
}

#define PLACE(name, type, member)       \
  TablePlace {                          \
    Table::name, offsetof(type, member) \
  }
constexpr TablePlace kFidPlace = {Table::kFid, offsetof(struct fid, ops)};
constexpr TablePlace kOnlyFid[] = {kFidPlace};
constexpr TablePlace kFabric[] = {kFidPlace, PLACE(kFabric, fid_fabric, ops)};
constexpr TablePlace kDomain[] = {kFidPlace, PLACE(kDomain, fid_domain, ops),
                                  PLACE(kMr, fid_domain, mr)};
constexpr TablePlace kEp[] = {kFidPlace,
                              PLACE(kEp, fid_ep, ops),
                              PLACE(kCm, fid_ep, cm),
                              PLACE(kMsg, fid_ep, msg),
                              PLACE(kRma, fid_ep, rma),
                              PLACE(kTagged, fid_ep, tagged),
                              PLACE(kAtomic, fid_ep, atomic),
                              PLACE(kCollective, fid_ep, collective)};
constexpr TablePlace kPep[] = {kFidPlace, PLACE(kEp, fid_pep, ops), PLACE(kCm, fid_pep, cm)};
constexpr TablePlace kStx[] = {kFidPlace, PLACE(kEp, fid_stx, ops)};
constexpr TablePlace kAv[] = {kFidPlace, PLACE(kAv, fid_av, ops)};
constexpr TablePlace kEq[] = {kFidPlace, PLACE(kEq, fid_eq, ops)};
constexpr TablePlace kCq[] = {kFidPlace, PLACE(kCq, fid_cq, ops)};
constexpr TablePlace kCntr[] = {kFidPlace, PLACE(kCntr, fid_cntr, ops)};
constexpr TablePlace kWait[] = {kFidPlace, PLACE(kWait, fid_wait, ops)};
constexpr TablePlace kPoll[] = {kFidPlace, PLACE(kPoll, fid_poll, ops)};
#undef PLACE

}  // namespace

std::span<const TablePlace> places_of(size_t fclass) {
  switch (fclass) {
    case FI_CLASS_FABRIC:
      return kFabric;
    case FI_CLASS_DOMAIN:
      return kDomain;
    case FI_CLASS_EP:
    case FI_CLASS_SEP:
    case FI_CLASS_RX_CTX:
    case FI_CLASS_SRX_CTX:
    case FI_CLASS_TX_CTX:
      return kEp;
    case FI_CLASS_STX_CTX:
      return kStx;
    case FI_CLASS_PEP:
      return kPep;
    case FI_CLASS_AV:
      return kAv;
    case FI_CLASS_EQ:
      return kEq;
    case FI_CLASS_CQ:
      return kCq;
    case FI_CLASS_CNTR:
      return kCntr;
    case FI_CLASS_WAIT:
      return kWait;
    case FI_CLASS_POLL:
      return kPoll;
    default:
      return kOnlyFid;
  }
}

const void *load_table(const struct fid *fid, const TablePlace &place) {
  auto *at = reinterpret_cast<const AnyTable *>(reinterpret_cast<const char *>(fid) + place.offset);
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

void store_table(struct fid *fid, const TablePlace &place, const void *table) {
  auto *at = reinterpret_cast<AnyTable *>(reinterpret_cast<char *>(fid) + place.offset);
  __atomic_store_n(at, const_cast<void *>(table), __ATOMIC_RELEASE);
}

const void *table_in(const weft_op_tables &tables, Table table) {
  const size_t offset = member_offset(table);
  if (offset + sizeof(void *) > tables.struct_size) return nullptr;
  return *reinterpret_cast<const AnyTable *>(reinterpret_cast<const char *>(&tables) + offset);
}

void publish_table_in(weft_op_tables &tables, Table table, const void *value) {
  auto *at = reinterpret_cast<AnyTable *>(reinterpret_cast<char *>(&tables) + member_offset(table));
  __atomic_store_n(at, const_cast<void *>(value), __ATOMIC_RELEASE);
}

bool is_complete(Table table, const void *ops) {
  if (ops == nullptr) return false;
  const size_t size = known(table).size;
  if (size_of(ops) < size) return false;
  for (size_t offset = sizeof(size_t); offset < size; offset += kSlot) {
    if (!has_op(ops, offset)) return false;
  }
  return true;
}

TableCopy complete(Table table, const void *ops) {
  const Known &full = known(table);
  // The table of a newer plugin is longer, and its callers may know those ops.
  const size_t given = ops == nullptr ? 0 : size_of(ops);
  const size_t size = std::max(full.size, given);
  TableCopy copy(std::calloc(1, size));
  if (copy == nullptr) return copy;
  std::memcpy(copy.get(), full.stubs, full.size);
  if (ops != nullptr) overlay(copy.get(), ops);
  if (given > full.size) {
    std::memcpy(static_cast<char *>(copy.get()) + full.size,
                static_cast<const char *>(ops) + full.size, given - full.size);
  }
  std::memcpy(copy.get(), &size, sizeof size);
  return copy;
}

void overlay(void *copy, const void *hook) {
  const size_t end = std::min(size_of(copy), size_of(hook));
  for (size_t offset = sizeof(size_t); offset < end; offset += kSlot) {
    if (has_op(hook, offset)) {
      std::memcpy(static_cast<char *>(copy) + offset, static_cast<const char *>(hook) + offset,
                  kSlot);
    }
  }
}

}  // namespace weft
