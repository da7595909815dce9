// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/vector_keys.h"

#include <rdma/fi_cxi_ext.h>

#include <cstddef>
#include <cstring>

#include "plugins/cxi/domain.h"
#include "plugins/cxi/sources.h"

namespace weft::cxi {

Vni VectorKeys::vni_of(Bytes key) {
  cxi_auth_key found{};
  if (key.size() == sizeof found) std::memcpy(&found, key.data(), sizeof found);
  return found.vni;
}

Result<sdk::AuthKey> VectorKeys::read(Bytes bytes) {
  WEFT_TRY(const auto key, auth_key_of("fi_av_insert_auth_key", bytes.data(), bytes.size()));
  WEFT_CHECK(check_auth_key(*key, domain_.device().facts().name, domain_.device().services(),
                            User::own()));
  WEFT_CHECK(domain_.take_service(*key));
  // Its padding may be anything.
  sdk::AuthKey kept(kAuthKeySize, 0);
  std::memcpy(kept.data() + offsetof(cxi_auth_key, svc_id), &key->service, sizeof key->service);
  std::memcpy(kept.data() + offsetof(cxi_auth_key, vni), &key->vni, sizeof key->vni);
  return kept;
}

Result<sdk::Address> VectorKeys::with_key(const sdk::Address &address, Bytes key) const {
  return address_of(peer_of(address).in(vni_of(key)), host_of(address));
}

}  // namespace weft::cxi
