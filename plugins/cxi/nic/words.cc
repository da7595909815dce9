// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

const char *text_of(Rc rc) {
  switch (rc) {
    case Rc::kNone:
      return "no event";
    case Rc::kOk:
      return "success";
    case Rc::kUndeliverable:
      return "the target NIC cannot be reached";
    case Rc::kPtDisabled:
      return "the target's portal is disabled (flow control)";
    case Rc::kDropped:
      return "dropped";
    case Rc::kPermViolation:
      return "permission violation";
    case Rc::kOpViolation:
      return "the target's memory does not allow the operation";
    case Rc::kNoMatch:
      return "no match";
    case Rc::kNoSpace:
      return "no list entry is left";
    case Rc::kEntryNotFound:
      return "the target has no entry that matches";
    case Rc::kVniNotFound:
      return "the target NIC has no endpoint of this VNI";
    case Rc::kPtlteNotFound:
      return "the target has no such endpoint, or it has not mapped this portal";
    case Rc::kPtlteSwManaged:
      return "software matches at the target";
    case Rc::kMstCancelled:
      return "the target has ended the operation";
    case Rc::kInvalidAc:
      return "no such address space";
    case Rc::kPagePermError:
      return "memory is mapped without this access";
    case Rc::kNoTranslation:
      return "memory is not mapped";
    case Rc::kAmoInvalOp:
      return "no such atomic operation";
    case Rc::kAmoAlign:
      return "the target of an atomic operation is not aligned";
    case Rc::kRestrictedUnicast:
      return "the target's portal takes no restricted packets";
    case Rc::kAddrOutOfRange:
      return "beyond the bounds of the target's memory";
    case Rc::kCanceled:
      return "canceled";
    case Rc::kAmoLength:
      return "the length of an atomic operation is wrong";
  }
  return nullptr;
}

}  // namespace weft::cxi
