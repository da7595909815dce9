// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/domain.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/ip/interfaces.h>
#include <weft/sdk/progress/progress.h>

#include <algorithm>

#include "plugins/link/endpoint.h"

namespace weft::link {
namespace {

// Lets go of a lock that the caller holds.
class Unlocked {
 public:
  explicit Unlocked(sdk::Lock &lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;

 private:
  sdk::Lock &lock_;
};

}  // namespace

Domain::Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner, void *context)
    : LayerDomain(fabric, {}, info, std::move(inner), context, memory_),
      receive_caps_(receive_caps_over(info)) {}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  WEFT_TRY(sdk::InfoList inner, fabric.layer().inner_info(info));
  // What the application does by itself, whether it was demanded or not.
  inner.front()->domain_attr->mr_mode |= registration_bits(info.domain_attr->mr_mode);
  WEFT_TRY(Domain *const domain, start(new Domain(fabric, info, std::move(inner), context), info));
  if (auto opened = domain->open_branches(info); !opened) {
    domain->close();
    return tl::unexpected(std::move(opened).error());
  }
  return domain;
}

Result<void> Domain::open_branches(const fi_info &info) {
  WEFT_CHECK(branches_[kNetwork].open(fabric().inner(), inner(), inner_info()));
  if (fabric().layer().options().local) WEFT_CHECK(open_local(info));
  const sdk::Guard guard(engine().lock());
  engine().add_poller(*this);
  polls_ = true;
  return {};
}

Result<void> Domain::open_local(const fi_info &info) {
  WEFT_TRY(const std::vector<sdk::Interface> interfaces, sdk::list_interfaces());
  for (const sdk::Interface &one : interfaces) hosts_.push_back(sdk::Address(one.address));
  WEFT_TRY(local_info_, fabric().layer().local_info(info));
  fi_info &local = *local_info_.front();
  // Its keys are those of the network; addresses mean the same in both.
  local.domain_attr->mr_mode = inner_info().domain_attr->mr_mode & FI_MR_VIRT_ADDR;
  local.domain_attr->threading = sdk::needs_lock(info) ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
  WEFT_TRY(local_fabric_, fabric().layer().local_fabric(*local.fabric_attr));
  if (const int rc = fi_domain(local_fabric_, &local, &local_, nullptr); rc != 0)
    return fail(-rc, "link: the first provider beneath has no domain for it");
  return branches_[kLocal].open(local_fabric_, local_, local);
}

bool Domain::may_be_local(const sdk::Address &address) const {
  const auto host = address.host();
  if (host.empty() || address.is_loopback()) return true;
  return std::ranges::any_of(
      hosts_, [&](const sdk::Address &own) { return std::ranges::equal(own.host(), host); });
}

// What peers do is counted beneath, where only operations can be (fi_peer.3).
int Domain::cntr_open(struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context) {
  if (attr != nullptr && attr->events == FI_CNTR_EVENTS_BYTES) return -FI_ENOSYS;
  return LayerDomain::cntr_open(attr, cntr, context);
}

// What other processes change is known only where each operation looks.
int Domain::av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
  if (attr != nullptr && attr->name != nullptr) return -FI_ENOSYS;
  return LayerDomain::av_open(attr, av, context);
}

int Domain::srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context) {
  return sdk::open_shared_receive(shared(), attr,
                                  {.caps = receive_caps_,
                                   .size = fabric().layer().options().rx_size,
                                   .max_size = sdk::kMaxQueueSize},
                                  ep, context);
}

int Domain::query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                         uint64_t flags) {
  const int rc = fi_query_atomic(inner(), datatype, op, attr, flags);
  if (rc != 0 || !has_local()) return rc;
  fi_atomic_attr near{};
  if (const int refused = fi_query_atomic(local_, datatype, op, &near, flags); refused != 0)
    return refused;
  attr->count = std::min(attr->count, near.count);
  return 0;
}

// ---- progress ----

// Other threads may be here at the same time. The engine has no other poller, and this one comes
// and goes with the domain.
void Domain::on_poll() {
  const Unlocked unlocked(engine().lock());
  if (names_changed_.load(std::memory_order_relaxed) && names_changed_.exchange(false))
    names_.visit([](Names &names) { names.follow(); });
  Branch &network = branches_[kNetwork], &local = branches_[kLocal];
  if (has_local()) local.poll();
  if (!has_local() || pace_.is_turn_of_network(local.events(), network.events())) network.poll();
  if (holds_back_.load(std::memory_order_relaxed) && holds_back_.exchange(false))
    queues_.visit([](LentQueue &queue) { queue.tell_again(); });
}

int Domain::wait_fds(std::vector<int> &fds) {
  const Unlocked unlocked(engine().lock());
  int rc = 0;
  for (size_t i = 0; i < branches() && rc == 0; ++i) rc = branches_[i].wait_fds(fds);
  return rc;
}

bool Domain::may_wait() {
  bool may = true, changed = false;
  {
    const Unlocked unlocked(engine().lock());
    for (size_t i = 0; i < branches(); ++i) may = branches_[i].may_wait(changed) && may;
  }
  if (changed) engine().rewatch(*this);
  return may;
}

// ---- the end ----

void Domain::close_local() {
  branches_[kLocal].close();
  if (local_ != nullptr) fi_close(&std::exchange(local_, nullptr)->fid);
  if (local_fabric_ != nullptr) fi_close(&std::exchange(local_fabric_, nullptr)->fid);
}

int Domain::close() {
  if (shared().children.load() != 0) return -FI_EBUSY;
  engine().stop_thread();
  if (polls_) {
    const sdk::Guard guard(engine().lock());
    engine().remove_poller(*this);
    polls_ = false;
  }
  branches_[kNetwork].close();
  close_local();
  return LayerDomain::close();
}

void Domain::close_copies() {
  LayerDomain::close_copies();
  if (local_ != nullptr) fi_close(&local_->fid);
}

}  // namespace weft::link
