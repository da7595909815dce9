// SPDX-License-Identifier: BSD-2-Clause
// The domain of shm: endpoints, address vectors, and shared contexts.
//
// Example:
//    inline uint64_t most_to_wait_ns(Domain &domain) {
//      return domain.linger_budget().left(sdk::now_ns(), domain.settings().close_linger_ns);
//    }
//
// Not for regions, completion queues and counters: sdk::SoftwareDomain and sdk::DomainOps have
// them.
#ifndef WEFT_PLUGINS_SHM_DOMAIN_H
#define WEFT_PLUGINS_SHM_DOMAIN_H

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/linger_budget.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/order.h>

#include "plugins/shm/counters.h"
#include "plugins/shm/settings.h"
#include "plugins/shm/wire/record.h"

namespace weft::shm {

// A ring keeps the order of what is put into it, and the target executes all at once, but for two
// things: the bytes of long messages come when there is a receive, and those of long accesses come
// part by part where processes cannot copy from each other.
inline constexpr uint64_t kOrder = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                                   FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
// These cost something, where the hints ask for them: the later operation waits for the earlier
// one.
inline constexpr uint64_t kOrderIfAsked = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR |
                                          FI_ORDER_WAW | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW |
                                          FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW | FI_ORDER_RAS |
                                          FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW;

inline constexpr sdk::AtomicLimits kAtomicLimits{
    .write = kMostAtomic, .fetch = kMostAtomic, .compare = kMostAtomic / 2};

class Endpoint;
class Fabric;

class Domain final : public sdk::Object<Domain, fid_domain>,
                     public sdk::SoftwareDomain,
                     public sdk::DomainOps<Domain, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  Fabric &fabric() { return fabric_; }
  const Settings &settings() const;
  Counters &counters();
  sdk::LingerBudget &linger_budget() { return linger_budget_; }  // with the lock held

  // fi_ops_domain
  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context);
  int srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
  int stx_ctx(struct fi_tx_attr *attr, struct fid_stx **stx, void *context);
  int query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                   uint64_t flags);

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_eq(fid, flags); }

 private:
  Domain(Fabric &fabric, const sdk::DomainSettings &settings, void *context);
  ~Domain() = default;

  Fabric &fabric_;
  sdk::LingerBudget linger_budget_;
};

}  // namespace weft::shm

#endif
