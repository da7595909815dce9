// SPDX-License-Identifier: BSD-2-Clause
// mr_mode of the hints against that of an offer (fi_mr(3)), in its old form and in its new one.
#include "core/match/parts.h"

namespace weft::matching {
namespace {

// FI_MR_BASIC is short for these three.
constexpr int kBasicBits = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr int kOldForms = FI_MR_BASIC | FI_MR_SCALABLE;

// mr_mode in the hints, in the sense of the application's API version.
struct MrWish {
  bool any = false;                      // not given
  bool basic = false, scalable = false;  // an old form; both: either of them
  bool invalid = false;
  int bits = 0;  // new form: what the application does
};

// The requirements of registration at an endpoint with these capabilities. If no peer reaches its
// memory, there are no requirements on keys.
int required_mr_bits(int offered, uint64_t caps) {
  int bits = offered & ~kOldForms;
  if (bits == 0 && (offered & kOldForms) == FI_MR_BASIC) bits = kBasicBits;
  if ((caps & FI_HMEM) == 0) bits &= ~FI_MR_HMEM;
  if ((caps & FI_COLLECTIVE) == 0) bits &= ~FI_MR_COLLECTIVE;
  if ((caps & FI_RMA_EVENT) == 0) bits &= ~FI_MR_RMA_EVENT;
  if (!is_target(caps)) {
    bits &= ~(FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_RMA_EVENT);
    // No memory is registered: neither peers nor local operations need it.
    if ((bits & (FI_MR_LOCAL | FI_MR_HMEM | FI_MR_COLLECTIVE)) == 0) bits = 0;
  }
  return bits;
}

// Whether basic registration (addresses are virtual, the provider chooses the keys) is what the
// provider does or can do.
bool can_basic(int offered, int required, uint64_t caps) {
  if ((required & ~(kBasicBits | FI_MR_LOCAL)) != 0) return false;
  if ((offered & FI_MR_BASIC) != 0 || !is_target(caps)) return true;
  const int keys = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
  return (required & keys) == keys;
}

bool can_scalable(int required) {
  return (required & ~FI_MR_LOCAL) == 0;
}

MrWish mr_wish(uint32_t version, const fi_info *hints) {
  MrWish wish;
  if (hints == nullptr || hints->domain_attr == nullptr) {
    wish.any = true;
    return wish;
  }
  const int mode = hints->domain_attr->mr_mode;
  if (mode == FI_MR_BASIC) {
    wish.basic = true;
  } else if (mode == FI_MR_SCALABLE) {
    wish.scalable = true;
  } else if (FI_VERSION_LT(version, kMrBits)) {
    wish.basic = wish.scalable = mode == FI_MR_UNSPEC;
    wish.invalid = mode != FI_MR_UNSPEC;
  } else {
    wish.bits = mode;
    wish.invalid = (mode & kOldForms) != 0;
  }
  return wish;
}

}  // namespace

void check_mr_mode(Check &check, uint32_t version, const fi_info *hints, const fi_info &offer) {
  const int offered = offer.domain_attr->mr_mode;
  const uint64_t caps = returned_caps(hints, offer);
  const int required = required_mr_bits(offered, caps);
  const bool basic = can_basic(offered, required, caps);
  const bool scalable = can_scalable(required);
  const bool old_api = FI_VERSION_LT(version, kMrBits);
  const auto text = [](int bits) { return Check::text(bits, FI_TYPE_MR_MODE); };
  const MrWish wish = mr_wish(version, hints);
  if (wish.invalid) {
    check.says("domain_attr.mr_mode",
               ": " + text(hints->domain_attr->mr_mode) +
                   (old_api ? " is unknown to API versions before 1.5"
                            : ": FI_MR_BASIC and FI_MR_SCALABLE stand alone"));
    return;
  }
  if (!old_api && !wish.basic && !wish.scalable) {
    if (!wish.any && (required & ~wish.bits) != 0)
      check.lacks("domain_attr.mr_mode", text(required & ~wish.bits));
    return;
  }
  const bool basic_will_do = wish.basic || wish.any;
  const bool scalable_will_do = wish.scalable || wish.any;
  if ((basic_will_do && basic) || (scalable_will_do && scalable)) {
    // Old applications accept FI_MR_LOCAL by a mode bit.
    if (hints != nullptr && (required & FI_MR_LOCAL) != 0)
      check.requires_bits("mode", hints->mode, FI_LOCAL_MR, FI_TYPE_MODE);
    return;
  }
  std::string wanted = wish.any || (wish.basic && wish.scalable) ? "FI_MR_BASIC or FI_MR_SCALABLE"
                       : wish.basic                              ? "FI_MR_BASIC"
                                                                 : "FI_MR_SCALABLE";
  if (required != 0)
    check.says("domain_attr.mr_mode",
               ": " + wanted + " wanted, " + text(required) + " required here");
  else
    check.differs("domain_attr.mr_mode", wanted, "FI_MR_SCALABLE");
}

void narrow_mr_mode(uint32_t version, const fi_info *hints, fi_info &offer, uint64_t caps) {
  int &mode = offer.domain_attr->mr_mode;
  const int offered = mode;
  const int required = required_mr_bits(offered, caps);
  const MrWish wish = mr_wish(version, hints);
  const bool old_api = FI_VERSION_LT(version, kMrBits);
  if (!old_api && !wish.basic && !wish.scalable) {
    mode = required;
    return;
  }
  // The old forms. If both fit, the one that old applications know best.
  const bool basic = (wish.basic || wish.any) && can_basic(offered, required, caps);
  mode = basic ? FI_MR_BASIC : FI_MR_SCALABLE;
  if ((required & FI_MR_LOCAL) != 0) offer.mode |= FI_LOCAL_MR;
}

}  // namespace weft::matching
