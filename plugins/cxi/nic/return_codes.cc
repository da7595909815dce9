// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/nic/return_codes.h"

#include <rdma/fi_errno.h>

namespace weft::cxi {
namespace {

struct Row {
  Rc rc;
  int err;
  const char *text;
};

constexpr Row kReturnCodes[] = {
    {Rc::kNone, FI_EIO, "no event"},
    {Rc::kOk, 0, "success"},
    {Rc::kUndeliverable, FI_EHOSTUNREACH, "the target NIC cannot be reached"},
    {Rc::kPtDisabled, FI_EIO, "the target's portal is disabled (flow control)"},
    {Rc::kDropped, FI_EIO, "dropped"},
    {Rc::kPermViolation, FI_EIO, "permission violation"},
    {Rc::kOpViolation, FI_EIO, "the target's memory does not allow the operation"},
    {Rc::kNoMatch, FI_EIO, "no match"},
    {Rc::kNoSpace, FI_EIO, "no list entry is left"},
    {Rc::kEntryNotFound, FI_EIO,
     "the target has no entry that matches: no receive, or no region with this key"},
    {Rc::kVniNotFound, FI_ENOTCONN, "the target NIC has no endpoint of this VNI"},
    {Rc::kPtlteNotFound, FI_ENOTCONN,
     "the target has no such endpoint, or it has not mapped this portal"},
    {Rc::kPtlteSwManaged, FI_EIO, "software matches at the target"},
    {Rc::kMstCancelled, FI_EIO, "the target has ended the operation"},
    {Rc::kInvalidAc, FI_EIO, "no such address space"},
    {Rc::kPagePermError, FI_EIO, "memory is mapped without this access"},
    {Rc::kNoTranslation, FI_EIO, "memory is not mapped"},
    {Rc::kAmoInvalOp, FI_EIO, "no such atomic operation"},
    {Rc::kAmoAlign, FI_EIO, "the target of an atomic operation is not aligned"},
    {Rc::kRestrictedUnicast, FI_EIO, "the target's portal takes no restricted packets"},
    {Rc::kAddrOutOfRange, FI_EIO, "beyond the bounds of the target's memory"},
    {Rc::kCanceled, FI_ECANCELED, "canceled"},
    {Rc::kAmoLength, FI_EIO, "the length of an atomic operation is wrong"},
};

const Row *row_of(Rc rc) {
  for (const Row &row : kReturnCodes)
    if (row.rc == rc) return &row;
  return nullptr;
}

}  // namespace

// A card may know more codes.
int errno_of(Rc rc) {
  const Row *const row = row_of(rc);
  return row != nullptr ? row->err : FI_EIO;
}

bool is_gone(Rc rc) {
  const int err = errno_of(rc);
  return err == FI_EHOSTUNREACH || err == FI_ENOTCONN;
}

const char *text_of(Rc rc) {
  const Row *const row = row_of(rc);
  return row != nullptr ? row->text : nullptr;
}

}  // namespace weft::cxi
