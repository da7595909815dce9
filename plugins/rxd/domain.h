// SPDX-License-Identifier: BSD-2-Clause
// The domain of the layer: endpoints, address vectors, memory regions that peers access by packets,
// and the inner provider's domain, which is only used for datagrams.
#ifndef WEFT_PLUGINS_RXD_DOMAIN_H
#define WEFT_PLUGINS_RXD_DOMAIN_H

#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/layers/layer_domain.h>

#include <vector>

#include "plugins/rxd/fabric.h"

namespace weft::rxd {

class DeviceCopies;
class Endpoint;

class Domain final : public sdk::LayerDomain<Domain, Fabric, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  const sdk::AuthKey &auth_key() const { return auth_key_; }  // for endpoints without their own
  // Bytes of the datagrams that peers are sent at first.
  size_t first_datagram() const;
  sdk::AtomicLimits atomic_limits() const;
  // A key for memory of this layer in the inner domain, where keys are chosen; with the lock held.
  uint64_t next_key() { return ++last_key_; }
  // With FI_HMEM: those of its endpoints; with the lock held.
  std::vector<DeviceCopies *> &copies() { return copies_; }

 private:
  friend LayerDomain;
  Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner_info, sdk::AuthKey auth_key,
         void *context);
  ~Domain() = default;

  const sdk::AuthKey auth_key_;
  uint64_t last_key_ = 0;
  std::vector<DeviceCopies *> copies_;
};

}  // namespace weft::rxd

#endif
