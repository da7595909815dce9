// SPDX-License-Identifier: BSD-2-Clause
// The domain of the layer: endpoints, address vectors, regions that peers reach by packets, and the
// inner provider's domain, of which only datagrams are used.
#ifndef WEFT_PLUGINS_RXD_DOMAIN_H
#define WEFT_PLUGINS_RXD_DOMAIN_H

#include <rdma/fi_domain.h>
#include <weft/sdk/auth.h>
#include <weft/sdk/fabric_ops.h>
#include <weft/sdk/fid.h>

#include <string>

#include "plugins/rxd/fabric.h"

namespace weft::rxd {

class Endpoint;

class Domain final : public sdk::Object<Domain, fid_domain>,
                     public sdk::DomainCore,
                     public sdk::DomainOps<Domain, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  Fabric &fabric() { return fabric_; }
  fid_domain *inner() const { return inner_; }
  const fi_info &inner_info() const { return *inner_info_.front(); }
  const sdk::AuthKey &auth_key() const { return auth_key_; }  // of endpoints without their own

  // fi_ops_domain
  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context);
  int srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
  int query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                   uint64_t flags);

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_eq(fid, flags); }

 private:
  Domain(Fabric &fabric, const sdk::DomainSettings &settings, sdk::InfoList inner_info,
         const fi_info &info, void *context);
  ~Domain() = default;

  Fabric &fabric_;
  fid_domain *inner_ = nullptr;
  const sdk::InfoList inner_info_;
  const std::string name_;
  sdk::AuthKey auth_key_;
  const uint32_t addr_format_;
};

}  // namespace weft::rxd

#endif
