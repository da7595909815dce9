// SPDX-License-Identifier: BSD-2-Clause
#include "peer.h"

#include <rdma/fi_errno.h>

#include <cstddef>

namespace weft::sdk {
namespace {

// Of a struct with a `size`: it ends behind this member.
#define WEFT_END_OF(type, member) (offsetof(type, member) + sizeof(type::member))

// The owner's object in the context of an open call. `named` ends behind the context's member,
// `needed` behind the last operation of the owner that is called.
template <class Owner, class Context>
Result<Owner *> lent(void *context, Owner *Context::*member, size_t named, size_t needed,
                     size_t fclass, const char *call, const char *type) {
  const auto *given = static_cast<const Context *>(context);
  if (given == nullptr || given->size < named || given->*member == nullptr)
    return fail(FI_EINVAL, "%s: with FI_PEER the context is a %s with the owner's object", call,
                type);
  Owner *const owner = given->*member;
  const fid *const base = reinterpret_cast<const fid *>(owner);  // its first member
  if (base->fclass != fclass)
    return fail(FI_EINVAL, "%s: fclass %zu of the object in %s: %zu is expected", call,
                base->fclass, type, fclass);
  if (owner->owner_ops == nullptr || owner->owner_ops->size < needed)
    return fail(FI_EINVAL, "%s: the owner_ops of the object in %s lack operations", call, type);
  return owner;
}

Error lacks(const char *call) {
  return {FI_EINVAL, std::string(call) + ": an operation of the owner (owner_ops) is null"};
}

}  // namespace

Result<fid_peer_cq *> peer_cq(void *context) {
  constexpr const char *kCall = "fi_cq_open";
  WEFT_TRY(fid_peer_cq *const owner,
           lent(context, &fi_peer_cq_context::cq, WEFT_END_OF(fi_peer_cq_context, cq),
                WEFT_END_OF(fi_ops_cq_owner, writeerr), FI_CLASS_PEER_CQ, kCall,
                "struct fi_peer_cq_context"));
  if (owner->owner_ops->write == nullptr || owner->owner_ops->writeerr == nullptr)
    return tl::unexpected(lacks(kCall));
  return owner;
}

Result<fid_peer_cntr *> peer_cntr(void *context) {
  constexpr const char *kCall = "fi_cntr_open";
  WEFT_TRY(fid_peer_cntr *const owner,
           lent(context, &fi_peer_cntr_context::cntr, WEFT_END_OF(fi_peer_cntr_context, cntr),
                WEFT_END_OF(fi_ops_cntr_owner, incerr), FI_CLASS_PEER_CNTR, kCall,
                "struct fi_peer_cntr_context"));
  if (owner->owner_ops->inc == nullptr || owner->owner_ops->incerr == nullptr)
    return tl::unexpected(lacks(kCall));
  return owner;
}

// Lent as it is: an event queue that can be written to.
Result<fid_eq *> peer_eq(void *context) {
  const auto *const given = static_cast<const fi_peer_eq_context *>(context);
  if (given == nullptr || given->size < WEFT_END_OF(fi_peer_eq_context, eq) || given->eq == nullptr)
    return fail(FI_EINVAL,
                "fi_eq_open: with FI_PEER the context is a struct fi_peer_eq_context with the "
                "owner's queue");
  fid_eq *const owner = given->eq;
  if (owner->fid.fclass != FI_CLASS_EQ)
    return fail(FI_EINVAL,
                "fi_eq_open: fclass %zu of the object in struct fi_peer_eq_context: an "
                "event queue is expected",
                owner->fid.fclass);
  if (owner->ops == nullptr || owner->ops->size < WEFT_END_OF(fi_ops_eq, write) ||
      owner->ops->write == nullptr)
    return tl::unexpected(lacks("fi_eq_open"));
  return owner;
}

Result<fid_peer_srx *> peer_srx(void *context) {
  constexpr const char *kCall = "fi_srx_context";
  WEFT_TRY(fid_peer_srx *const owner,
           lent(context, &fi_peer_srx_context::srx, WEFT_END_OF(fi_peer_srx_context, srx),
                WEFT_END_OF(fi_ops_srx_owner, free_entry), FI_CLASS_PEER_SRX, kCall,
                "struct fi_peer_srx_context"));
  const fi_ops_srx_owner &ops = *owner->owner_ops;
  if (ops.get_msg == nullptr || ops.get_tag == nullptr || ops.queue_msg == nullptr ||
      ops.queue_tag == nullptr || ops.free_entry == nullptr)
    return tl::unexpected(lacks(kCall));
  return owner;
}

Result<fid_peer_av *> peer_av(void *context) {
  constexpr const char *kCall = "fi_av_open";
  WEFT_TRY(fid_peer_av *const owner,
           lent(context, &fi_peer_av_context::av, WEFT_END_OF(fi_peer_av_context, av),
                WEFT_END_OF(fi_ops_av_owner, ep_addr), FI_CLASS_PEER_AV, kCall,
                "struct fi_peer_av_context"));
  if (owner->owner_ops->query == nullptr || owner->owner_ops->ep_addr == nullptr)
    return tl::unexpected(lacks(kCall));
  return owner;
}

namespace {

// The member of fi_peer_av_set_context has a type that nobody defines.
struct AvSetContext {
  size_t size;
  fid_peer_av_set *av_set;
};
static_assert(sizeof(AvSetContext) == sizeof(fi_peer_av_set_context));

}  // namespace

Result<fid_peer_av_set *> peer_av_set(void *context) {
  constexpr const char *kCall = "fi_av_set";
  WEFT_TRY(fid_peer_av_set *const owner,
           lent(context, &AvSetContext::av_set, WEFT_END_OF(AvSetContext, av_set),
                WEFT_END_OF(fi_ops_av_set_owner, members), FI_CLASS_PEER_AV_SET, kCall,
                "struct fi_peer_av_set_context"));
  if (owner->owner_ops->members == nullptr) return tl::unexpected(lacks(kCall));
  return owner;
}

CompletionError error_of(const fi_cq_err_entry &entry) {
  const auto *const text = static_cast<const char *>(entry.err_data);
  return {.context = entry.op_context,
          .flags = entry.flags,
          .len = entry.len,
          .buf = entry.buf,
          .data = entry.data,
          .tag = entry.tag,
          .olen = entry.olen,
          .err = entry.err,
          .prov_errno = entry.prov_errno,
          .err_data = text != nullptr ? std::string(text, entry.err_data_size) : "",
          .src_addr = entry.src_addr};
}

}  // namespace weft::sdk
