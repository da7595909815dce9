// SPDX-License-Identifier: BSD-2-Clause
// The domain of the verbs provider: a protection domain of one device, with its regions, queues and
// endpoints.
//
// Example:
//    inline Result<Domain *> open(Fabric &fabric, const fi_info &info) {
//      return Domain::open(fabric, info, /*context=*/nullptr);  // domain_attr.name is the device
//    }
//
// Its engine has nothing to do: each completion queue has one of its own, and the fabric's makes
// the progress of connections.
#ifndef WEFT_PLUGINS_VERBS_DOMAIN_H
#define WEFT_PLUGINS_VERBS_DOMAIN_H

#include <infiniband/verbs.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/fid.h>

#include <memory>

#include "plugins/verbs/device.h"
#include "plugins/verbs/device_memory.h"
#include "plugins/verbs/last_receive.h"
#include "plugins/verbs/settings.h"

namespace weft::verbs {

class DatagramEndpoint;
class Domain;
class Endpoint;
class Fabric;
class XrcDomain;

class Domain final : public sdk::Object<Domain, fid_domain>,
                     public sdk::DomainCore,
                     public sdk::DomainOps<Domain, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  Fabric &fabric() { return fabric_; }
  const Device &device() const { return device_; }
  const Settings &settings() const;
  ibv_pd *pd() { return pd_; }
  DeviceMemory &device_memory() { return memory_; }
  bool locked() { return engine().lock().needed(); }
  XrcDomain *xrc() { return xrc_.get(); }  // null: its endpoints have no XRC
  LastReceives &last_receives() { return last_receives_; }

  // fi_ops_domain
  int endpoint2(struct fi_info *info, struct fid_ep **ep, uint64_t flags, void *context);
  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context);
  int cq_open(struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
  int cntr_open(struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
  int srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
  int query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                   uint64_t flags);

  // fi_ops: what a layer above may ask (weft/sdk/layers/carrier.h)
  int ops_open(const char *name, uint64_t flags, void **ops, void *context);

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_eq(fid, flags); }
  // No raw keys: the keys fit into 8 bytes.
  int control(int command, void *arg) {
    return command == WEFT_READ_BY_LAYER ? DomainCore::control(command, arg) : -FI_ENOSYS;
  }

 private:
  Domain(Fabric &fabric, Device device, ibv_pd *pd, const sdk::DomainSettings &settings,
         void *context);
  ~Domain();
  // A cache of registrations, where the parameters ask for one and the kernel lets it be.
  void start_cache();
  // The events of its device.
  Result<void> watch();
  void unwatch();
  Result<void> open_xrc();
  void close_xrc();

  DeviceMemory memory_;
  Fabric &fabric_;
  const Device device_;
  ibv_pd *const pd_;
  std::unique_ptr<XrcDomain> xrc_;
  LastReceives last_receives_;
};

}  // namespace weft::verbs

#endif
