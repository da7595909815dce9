// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/peer/place.h>

#include <algorithm>

namespace weft::sdk {

PlaceOwner::Claim PlaceOwner::judge(unsigned place, uint64_t now, bool connected) {
  const bool recent = at_ != 0 && now - at_ < kLastsNs;
  if (knows_ && (connected || recent)) return place <= last_ ? Claim::kTrue : Claim::kFalse;
  if (!recent) {
    knows_ = false;
    at_ = claimed_at_ = now;
    waited_ = 0;
    return Claim::kAsk;
  }
  waited_ += std::min(now - claimed_at_, kLongestGapNs);
  claimed_at_ = now;
  return waited_ < kPatienceNs ? Claim::kWait : Claim::kFalse;
}

void PlaceOwner::told(unsigned last, uint64_t now) {
  knows_ = true;
  last_ = uint8_t(std::min(last, 255U));
  at_ = now;
}

PlaceOwners::Claim PlaceOwners::judge(const Address &from, unsigned place, uint64_t now) {
  if (place == 0 || place > from.port()) return Claim::kFalse;
  const uint32_t context = peers_.index_of_context(from, place);
  const Result<Address> first = from.with_port(uint16_t(from.port() - place));
  if (context == Av::kNone || !first) return Claim::kFalse;
  const uint32_t entry = Av::entry_of(context);
  const Claim claim = owners_[entry].judge(place, now, peers_.is_connected(entry));
  // A question whose connection has ended without an answer is repeated.
  if (claim == Claim::kAsk || claim == Claim::kWait) peers_.ask_for_places(entry, *first);
  return claim;
}

bool PlaceOwners::is_first(uint32_t entry, const Address &first) const {
  if (first.port() == UINT16_MAX) return false;  // it has no contexts
  const Result<Address> second = first.with_port(uint16_t(first.port() + 1));
  const uint32_t context = second ? peers_.index_of_context(*second, 1) : Av::kNone;
  return context != Av::kNone && Av::entry_of(context) == entry;
}

void PlaceOwners::told(uint32_t entry, const Address &first, unsigned last, uint64_t now) {
  const auto owner = owners_.find(entry);
  if (owner == owners_.end() || !is_first(entry, first)) return;
  owner->second.told(last, now);
  for (unsigned place = 1; place < Av::kContexts; ++place) {
    const Result<Address> address = first.with_port(uint16_t(first.port() + place));
    if (!address || address->port() < place) return;
    const uint32_t context = peers_.index_of_context(*address, place);
    if (context == Av::kNone) continue;
    if (place <= last)
      peers_.name_context(*address, place, context);
    else
      peers_.drop_context(*address, place);
  }
}

void PlaceOwners::begun(uint32_t entry, const Address &first, uint64_t now) {
  const auto owner = owners_.find(entry);
  if (owner == owners_.end() || !is_first(entry, first)) return;
  owner->second.forget();
  if (owner->second.judge(1, now, false) == Claim::kAsk) peers_.ask_for_places(entry, first);
}

void PlaceOwners::ended(uint32_t entry) {
  if (const auto owner = owners_.find(entry); owner != owners_.end()) owner->second.forget();
}

bool PlaceOwners::waits(uint32_t entry, uint64_t now) const {
  const auto owner = owners_.find(entry);
  return owner != owners_.end() && owner->second.waits(now);
}

}  // namespace weft::sdk
