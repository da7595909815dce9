// SPDX-License-Identifier: BSD-2-Clause
// Domain: the domain of the layer, above one of the network and one of memory.
//
// Example:
//    inline bool knows_host(const Domain &domain, const sdk::Address &peer) {
//      return domain.has_local() && domain.may_be_local(peer);
//    }
//
// The providers beneath report to queues, counters and receives of this domain with their locks
// held. So nothing beneath is called with the lock of this domain's engine held: progress is made
// there (on_poll) while it is let go. Not for ways to peers, which are an endpoint's: ways.h.
#ifndef WEFT_PLUGINS_LINK_DOMAIN_H
#define WEFT_PLUGINS_LINK_DOMAIN_H

#include <weft/sdk/addresses/address.h>
#include <weft/sdk/layers/layer_domain.h>
#include <weft/sdk/memory/memory.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "plugins/link/branch.h"
#include "plugins/link/fabric.h"
#include "plugins/link/lent.h"
#include "plugins/link/names.h"
#include "plugins/link/pace.h"
#include "plugins/link/watch.h"

namespace weft::link {

class Endpoint;

// What is made once for an object of the application's, and shared by the endpoints that use it.
template <class T>
class Shared {
 public:
  Result<std::shared_ptr<T>> get(Domain &domain, typename T::Owned &owned) {
    const std::lock_guard guard(mutex_);
    if (auto there = all_[&owned].lock()) return there;
    auto made = T::open(domain, owned);
    if (made) all_[&owned] = *made;
    std::erase_if(all_, [](const auto &one) { return one.second.expired(); });
    return made;
  }
  // When this returns, the last user has let go of what is the application's.
  void drop(std::shared_ptr<T> &one) {
    const std::lock_guard guard(mutex_);
    one.reset();
  }
  template <class F>
  void visit(F each) {
    const std::lock_guard guard(mutex_);
    for (const auto &[owned, one] : all_)
      if (const auto there = one.lock()) each(*there);
  }

 private:
  std::mutex mutex_;  // taken before all locks of engines
  std::map<typename T::Owned *, std::weak_ptr<T>> all_;
};

class Domain;

// Regions are those of the domains beneath (region.h).
class BeneathMemory final : public sdk::Memory {
 public:
  explicit BeneathMemory(Domain &domain) : domain_(domain) {}
  Result<fid_mr *> open(const fi_mr_attr &attr, uint64_t flags) override;

 private:
  Domain &domain_;
};

class Domain final : public sdk::LayerDomain<Domain, Fabric, Endpoint, sdk::DomainCore>,
                     private sdk::Poller {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  // How many providers are beneath: without memory it is the network alone.
  size_t branches() const { return has_local() ? kBranches : kLocal; }
  Branch &branch(size_t place) { return branches_[place]; }
  bool has_local() const { return local_ != nullptr; }
  // Whether the address is one of this host's, as far as an address tells.
  bool may_be_local(const sdk::Address &address) const;

  // ---- without the engine's lock ----
  Result<std::shared_ptr<LentQueue>> lend(sdk::Cq &queue) { return queues_.get(*this, queue); }
  Result<std::shared_ptr<LentCounter>> lend(sdk::Cntr &counter) {
    return counters_.get(*this, counter);
  }
  Result<std::shared_ptr<LentReceives>> lend(sdk::SharedReceiveContext &receives) {
    return receives_.get(*this, receives);
  }
  Result<std::shared_ptr<LentTransmit>> lend(sdk::SharedTransmit &transmit) {
    return transmits_.get(*this, transmit);
  }
  Result<std::shared_ptr<Names>> names(sdk::Av &av) { return names_.get(*this, av); }

  void drop(std::shared_ptr<LentQueue> &queue) { queues_.drop(queue); }
  void drop(std::shared_ptr<Names> &names) { names_.drop(names); }

  Watch &watch() { return watch_; }

  // The next progress tells the application's queues again what they had no room for; and follows
  // changes of its address vectors.
  void note_held_back() { holds_back_.store(true, std::memory_order_relaxed); }
  void note_names() { names_changed_.store(true, std::memory_order_relaxed); }

  // fi_ops_domain
  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context);
  int cntr_open(struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
  int srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
  int query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                   uint64_t flags);

  // fi_ops
  int close();
  void close_copies();

 private:
  friend LayerDomain;
  Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner, void *context);
  ~Domain() = default;

  Result<void> open_branches(const fi_info &info);
  Result<void> open_local(const fi_info &info);
  void close_local();

  // sdk::Poller
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;

  BeneathMemory memory_{*this};
  const uint64_t receive_caps_;
  Branch branches_[kBranches];
  sdk::InfoList local_info_{instance()->core};
  fid_fabric *local_fabric_ = nullptr;
  fid_domain *local_ = nullptr;
  std::vector<sdk::Address> hosts_;  // of this host, with any port
  Pace pace_;
  Watch watch_;
  Shared<LentQueue> queues_;
  Shared<LentCounter> counters_;
  Shared<LentReceives> receives_;
  Shared<LentTransmit> transmits_;
  Shared<Names> names_;
  std::atomic<bool> holds_back_{false}, names_changed_{false};
  bool polls_ = false;  // is a poller of the engine
};

}  // namespace weft::link

#endif
