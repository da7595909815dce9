// SPDX-License-Identifier: BSD-2-Clause
// FabricOps, DomainOps: calls of fabrics and domains that only pass the application's arguments on
// to the open() of a class of the plugin.
//
// Example:
//    class Domain;
//    class Endpoint;
//    class Fabric final : public Object<Fabric, fid_fabric>, public FabricOps<Fabric, Domain> {
//     public:
//      std::atomic<size_t> children{0};  // objects that are open
//    };
//    class Domain final : public Object<Domain, fid_domain>,
//                         public DomainCore,
//                         public DomainOps<Domain, Endpoint> {
//     public:
//      static weft::Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);
//    };
//    class Endpoint final : public Object<Endpoint, fid_ep> {
//     public:
//      static weft::Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);
//    };
//
// A class that needs more in a call has a member of that name itself. The calls are members of
// templates, so Domain and Endpoint need be complete only where op tables are made. Not for
// av_open: see open_av() in av.h.
#ifndef WEFT_SDK_OBJECTS_FABRIC_OPS_H
#define WEFT_SDK_OBJECTS_FABRIC_OPS_H

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/plugin.h>
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/sets.h>

namespace weft::sdk {

template <class F, class Domain>
class FabricOps {
 public:
  // fi_ops_fabric
  int domain(struct fi_info *info, struct fid_domain **domain, void *context) {
    return self().domain2(info, domain, 0, context);
  }
  int domain2(struct fi_info *info, struct fid_domain **domain, uint64_t flags, void *context) {
    if (info == nullptr || domain == nullptr || info->domain_attr == nullptr) return -FI_EINVAL;
    // A domain uses nothing of another provider's (fi_peer.3, PEER DOMAIN).
    if (flags & FI_PEER) return -FI_EINVAL;
    if (flags != 0) return -FI_EBADFLAGS;
    return finish(self().instance(), FI_LOG_DOMAIN, Domain::open(self(), *info, context), domain);
  }
  int eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context) {
    if (eq == nullptr) return -FI_EINVAL;
    return finish(self().instance(), FI_LOG_EQ,
                  Eq::open(self().instance(), self().base(), self().children, attr, context), eq);
  }
  int wait_open(struct fi_wait_attr *attr, struct fid_wait **set) {
    if (set == nullptr) return -FI_EINVAL;
    return finish(self().instance(), FI_LOG_FABRIC,
                  WaitSet::open(self().instance(), self().base(), self().children, attr), set);
  }
  int trywait(struct fid **fids, int count) { return sdk::trywait(self().instance(), fids, count); }

 private:
  F &self() { return static_cast<F &>(*this); }
};

template <class D, class Endpoint>
class DomainOps {
 public:
  // fi_ops_domain
  int endpoint(struct fi_info *info, struct fid_ep **ep, void *context) {
    return self().endpoint2(info, ep, 0, context);
  }
  int endpoint2(struct fi_info *info, struct fid_ep **ep, uint64_t flags, void *context) {
    if (info == nullptr || ep == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
    if (flags != 0) return -FI_EBADFLAGS;
    return finish(self().instance(), FI_LOG_EP_CTRL, Endpoint::open(self(), *info, context), ep);
  }

 private:
  D &self() { return static_cast<D &>(*this); }
};

}  // namespace weft::sdk

#endif
