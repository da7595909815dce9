// SPDX-License-Identifier: BSD-2-Clause
// Authorization: the key that endpoints must share to talk to each other (auth_key of fi_domain.3
// and fi_endpoint.3), and the message authentication code by which they prove that they have it.
//
// Example:
//    weft::Result<bool> is_genuine(const fi_info &info, std::string_view key_file,
//                                  uint32_t api_version, Mac::Bytes bytes, const Mac::Code &code) {
//      WEFT_TRY(const AuthKey key, auth_key(info, key_file, api_version));
//      if (key.empty()) return true;
//      WEFT_TRY(const Mac *const mac, Mac::load());
//      return Mac::equal(mac->of(key, {bytes_of("hello"), bytes}), code);
//    }
//
// The code is keyed BLAKE2b of 128 bits, by libsodium. The library is opened when a key is used for
// the first time; without a key it is not needed. Not for encryption.
#ifndef WEFT_SDK_ADDRESSES_AUTH_H
#define WEFT_SDK_ADDRESSES_AUTH_H

#include <rdma/fabric.h>
#include <weft/result.h>
#include <weft/sdk/addresses/address.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace weft::sdk {

using AuthKey = std::vector<uint8_t>;
inline constexpr size_t kMaxAuthKey = 64;  // bytes

// The key of an endpoint that is opened with `info`: the endpoint's own, else the domain's, else
// what is in `file` (a final newline is not part of it), else none. Where the fabric was opened
// with an API before 1.5 the info says nothing about keys (fi_endpoint.3, fi_domain.3). FI_EINVAL:
// too long, or no pointer; FI_EACCES: others than the owner may read the file, or it cannot be
// read.
Result<AuthKey> auth_key(const fi_info &info, std::string_view file, uint32_t api_version);
bool has_auth_keys(uint32_t api_version);

class Mac {
 public:
  static constexpr size_t kSize = 16;
  using Code = std::array<uint8_t, kSize>;
  using Bytes = std::span<const uint8_t>;

  // FI_ENOSYS: there is no libsodium.
  static Result<const Mac *> load();

  Code of(Bytes key, std::initializer_list<Bytes> pieces) const;  // key: 1 to kMaxAuthKey bytes
  // In constant time.
  static bool equal(std::span<const uint8_t, kSize> a, std::span<const uint8_t, kSize> b);

 private:
  Mac() = default;
  void *functions_[4] = {};  // crypto_generichash_statebytes, _init, _update, _final
};

// An address that is called, as a code covers it: the host as IPv6 (IPv4 by RFC 4291, 2.5.5.2) or
// GID, then the port. Without a scope, which each host numbers for itself.
using Place = std::array<uint8_t, 18>;
Place place_of(const Address &called);

// Unpredictable bytes from the system (getrandom).
void random_bytes(std::span<uint8_t> out);

inline Mac::Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t *>(text.data()), text.size()};
}

}  // namespace weft::sdk

#endif
