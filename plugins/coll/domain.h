// SPDX-License-Identifier: BSD-2-Clause
// Domain: the domain of the layer, above the one that carries its messages.
//
// Example:
//    // The longest message that a member sends another.
//    inline uint64_t longest(const Domain &domain) {
//      return domain.inner_info().ep_attr->max_msg_size;
//    }
//
// Not for groups, which are an endpoint's: collectives.h.
#ifndef WEFT_PLUGINS_COLL_DOMAIN_H
#define WEFT_PLUGINS_COLL_DOMAIN_H

#include <weft/sdk/layer_domain.h>

#include <utility>

#include "plugins/coll/fabric.h"

namespace weft::coll {

class Endpoint;

// fi_query_collective of endpoints whose messages have up to `longest` bytes.
int query_collective(enum fi_collective_op coll, struct fi_collective_attr *attr, uint64_t flags,
                     uint64_t longest);

class Domain final : public sdk::LayerDomain<Domain, Fabric, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context) {
    WEFT_TRY(sdk::InfoList inner, fabric.layer().inner_info(info));
    return start(new Domain(fabric, info, std::move(inner), context), info);
  }
  sdk::AtomicLimits atomic_limits() const { return {}; }
  int srx_ctx(struct fi_rx_attr *, struct fid_ep **, void *) { return -FI_ENOSYS; }
  int query_collective(enum fi_collective_op coll, struct fi_collective_attr *attr,
                       uint64_t flags) {
    return coll::query_collective(coll, attr, flags, inner_info().ep_attr->max_msg_size);
  }

 private:
  friend LayerDomain;
  Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner, void *context)
      : LayerDomain(fabric, {.iov_limit = 1}, info, std::move(inner), context) {}
  ~Domain() = default;
};

}  // namespace weft::coll

#endif
