// SPDX-License-Identifier: BSD-2-Clause
// AvKeys: what address vectors ask a provider about authorization keys (FI_AV_AUTH_KEY, fi_av.3).
// AvKey: a key in a vector.
//
// Example:
//    // Keys are the names of networks: one letter, which an address has in its last byte.
//    class Networks final : public AvKeys {
//     public:
//      size_t limit() const override { return 4; }
//      Result<AuthKey> read(Bytes key) override {
//        if (key.size() != 1) return fail(FI_EINVAL, "a key is one letter, not %zu", key.size());
//        return AuthKey(key.begin(), key.end());
//      }
//      Result<Address> with_key(const Address &address, Bytes key) const override {
//        alignas(8) unsigned char bytes[Address::kMaxSize] = {};
//        std::memcpy(bytes, address.data(), address.size());
//        bytes[address.size() - 1] = key[0];
//        return Address::of(address.format(), bytes, address.size());
//      }
//    };
//
// A domain with keys has one (DomainContext::av_keys). The key that a peer is reached with is part
// of its address in the vector: the same peer with another key is another entry. So finding,
// comparing and sharing of addresses need nothing more. All calls are with the engine's lock held.
// Not for the one key of a domain or an endpoint: auth.h.
#ifndef WEFT_SDK_ADDRESSES_AV_KEYS_H
#define WEFT_SDK_ADDRESSES_AV_KEYS_H

#include <weft/result.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/addresses/auth.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft::sdk {

class AvKeys {
 public:
  using Bytes = std::span<const uint8_t>;
  // How many a vector can have (fi_domain_attr.max_ep_auth_key).
  virtual size_t limit() const = 0;
  // A key that is about to be inserted, as it is kept: equal keys have equal bytes, also where an
  // application has left some undefined. FI_EINVAL: it is none of this provider.
  virtual Result<AuthKey> read(Bytes key) = 0;
  // The address of a peer that is reached with the key, whatever key it has had before.
  virtual Result<Address> with_key(const Address &address, Bytes key) const = 0;

 protected:
  ~AvKeys() = default;
};

struct AvKey {
  AuthKey bytes;            // empty: none
  fi_addr_t id = 0;         // in completions
  uint32_t insertions = 0;  // of the same key
  uint32_t users = 0;       // endpoints that are enabled with it
};

}  // namespace weft::sdk

#endif
