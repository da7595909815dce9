// SPDX-License-Identifier: BSD-2-Clause
// The domain of the udp provider: endpoints, and the scratch memory of their calls.
#ifndef WEFT_PLUGINS_UDP_DOMAIN_H
#define WEFT_PLUGINS_UDP_DOMAIN_H

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/fid.h>

#include <string>

#include "plugins/udp/inlet.h"
#include "plugins/udp/outlet.h"
#include "plugins/udp/settings.h"

namespace weft::udp {

class Fabric;

// The op tables of missing capabilities: every op returns -FI_ENOSYS.
struct Nothing final : sdk::Object<Nothing, fid_ep> {};

class Endpoint;

class Domain final : public sdk::Object<Domain, fid_domain>,
                     public sdk::SoftwareDomain,
                     public sdk::DomainOps<Domain, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  Fabric &fabric() { return fabric_; }
  uint8_t dscp() const { return dscp_; }  // of domain_attr.tclass
  // For the time of one call, with the lock held.
  Inlet::Scratch &inlet_scratch() { return inlet_scratch_; }
  Outlet::Scratch &outlet_scratch() { return outlet_scratch_; }

  // fi_ops_domain
  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context);
  int endpoint2(struct fi_info *info, struct fid_ep **ep, uint64_t flags, void *context);
  int stx_ctx(struct fi_tx_attr *attr, struct fid_stx **stx, void *context);

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_eq(fid, flags); }
  int ops_open(const char *name, uint64_t flags, void **ops, void *context);

 private:
  Domain(Fabric &fabric, const sdk::DomainSettings &settings, const fi_info &info, void *context);
  ~Domain() = default;

  Fabric &fabric_;
  const uint32_t addr_format_;
  const std::string name_;
  uint8_t dscp_ = 0;
  Inlet::Scratch inlet_scratch_;
  Outlet::Scratch outlet_scratch_;
};

}  // namespace weft::udp

#endif
