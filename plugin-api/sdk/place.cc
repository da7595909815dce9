// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/peer/place.h>

#include <algorithm>

namespace weft::sdk {

PlaceOwner::Claim PlaceOwner::judge(unsigned place, uint64_t now, bool connected) {
  const bool recent = at_ != 0 && now - at_ < kLastsNs;
  if (knows_ && (connected || recent)) return place <= last_ ? Claim::kTrue : Claim::kFalse;
  if (!recent) {
    knows_ = false;
    at_ = now;
    return Claim::kAsk;
  }
  return now - at_ < kPatienceNs ? Claim::kWait : Claim::kFalse;
}

void PlaceOwner::told(unsigned last, uint64_t now) {
  knows_ = true;
  last_ = uint8_t(std::min(last, 255U));
  at_ = now;
}

}  // namespace weft::sdk
