// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/peer/crowd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace weft::sdk {

uint64_t Crowd::name_of(const Address &from) {
  const std::span<const uint8_t> host = from.host();
  uint64_t name = 0;
  if (!host.empty()) std::memcpy(&name, host.data(), std::min(host.size(), sizeof name));
  return name;
}

Crowd::Host *Crowd::find(uint64_t name) {
  const auto at = std::ranges::lower_bound(hosts_, name, {}, &Host::name);
  return at != hosts_.end() && at->name == name ? &*at : nullptr;
}

void Crowd::add(const Address &from) {
  const uint64_t name = name_of(from);
  if (Host *known = find(name)) {
    ++known->strangers;
    return;
  }
  try {
    hosts_.insert(std::ranges::lower_bound(hosts_, name, {}, &Host::name), {name, 1});
  } catch (const std::bad_alloc &) {
    // Its strangers go last.
  }
}

bool Crowd::goes_before(const Address &from, uint64_t useful_at) {
  const Host *host = find(name_of(from));
  const uint32_t strangers = host != nullptr ? host->strangers : 0;
  if (offered_ && (strangers != most_ ? strangers < most_ : useful_at >= earliest_)) return false;
  offered_ = true;
  most_ = strangers;
  earliest_ = useful_at;
  return true;
}

}  // namespace weft::sdk
