// SPDX-License-Identifier: BSD-2-Clause
// VectorKeys: the authorization keys of a domain whose address vectors have them (FI_AV_AUTH_KEY,
// fi_av.3): each is a struct cxi_auth_key. The first one says which service the domain has.
//
// Example:
//    // The VNIs that an endpoint with this vector is to be in.
//    inline std::vector<Vni> vnis_of(const sdk::Av &vector) {
//      std::vector<Vni> vnis;
//      for (const sdk::AvKey &key : vector.keys())
//        if (!key.bytes.empty()) vnis.push_back(VectorKeys::vni_of(key.bytes));
//      return vnis;
//    }
//
// An address in such a vector has the VNI of its key (sources.h). Not for the one key of other
// domains: auth_key.h.
#ifndef WEFT_PLUGINS_CXI_VECTOR_KEYS_H
#define WEFT_PLUGINS_CXI_VECTOR_KEYS_H

#include <weft/sdk/addresses/av_keys.h>

#include "plugins/cxi/auth_key.h"

namespace weft::cxi {

class Domain;

class VectorKeys final : public sdk::AvKeys {
 public:
  static constexpr size_t kLimit = 4;

  explicit VectorKeys(Domain &domain) : domain_(domain) {}

  static Vni vni_of(Bytes key);

  // ---- sdk::AvKeys ----
  size_t limit() const override { return kLimit; }
  Result<sdk::AuthKey> read(Bytes key) override;
  Result<sdk::Address> with_key(const sdk::Address &address, Bytes key) const override;

 private:
  Domain &domain_;
};

}  // namespace weft::cxi

#endif
