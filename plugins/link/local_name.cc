// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/local_name.h"

#include <unistd.h>
#include <weft/sdk/addresses/host_name.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace weft::link {
namespace {

// FNV-1a.
uint64_t hash(uint64_t seed, const std::string &text) {
  uint64_t value = UINT64_C(0xcbf29ce484222325) ^ seed;
  for (const char c : text) value = (value ^ uint8_t(c)) * UINT64_C(0x100000001b3);
  return value;
}

}  // namespace

// The user's id is in it, so that no two users have the same, and the whole address: 128 bits of a
// hash, because an address of IPv6 is longer than a name may be.
sdk::Address local_name(const sdk::Address &address) {
  const std::string text = std::to_string(geteuid()) + " " + sdk::format_address_string(address);
  char name[sdk::kHostNameSize] = {};
  std::snprintf(name, sizeof name, "weft-link-%016llx%016llx",
                static_cast<unsigned long long>(hash(0, text)),
                static_cast<unsigned long long>(hash(UINT64_C(0x9e3779b97f4a7c15), text)));
  return sdk::Address::of(sdk::kHostName, name, sizeof name);
}

}  // namespace weft::link
