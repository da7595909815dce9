// SPDX-License-Identifier: BSD-2-Clause
// The domain of the layer: endpoints, address vectors, and regions that stand for regions of the
// inner domain.
#ifndef WEFT_PLUGINS_RXM_DOMAIN_H
#define WEFT_PLUGINS_RXM_DOMAIN_H

#include <weft/sdk/layer_domain.h>

#include <array>
#include <unordered_map>
#include <vector>

#include "plugins/rxm/fabric.h"

namespace weft::rxm {

class Region;

// Counters of the inner provider that an application's counters follow.
class Mirrors final : public sdk::Poller {
 public:
  explicit Mirrors(fid_fabric *fabric) : fabric_(fabric) {}
  // Takes `inner`. With the engine's lock held.
  void add(sdk::Engine &engine, fid_cntr *inner, sdk::Cntr &outer);
  void follow_now() { on_poll(); }
  // Closes the inner one.
  void remove(sdk::Engine &engine, fid_cntr *inner);

  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;

 private:
  struct Mirror {
    fid_cntr *inner;
    sdk::Cntr *outer;
    uint64_t value, errors;
  };
  static void follow(Mirror &mirror);
  fid_fabric *const fabric_;
  std::vector<Mirror> mirrors_;
};

class Endpoint;

class Domain final : public sdk::LayerDomain<Domain, Fabric, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  bool virtual_addresses() const { return mr_bits_ & FI_MR_VIRT_ADDR; }
  bool provider_keys() const { return mr_bits_ & FI_MR_PROV_KEY; }
  bool enable_needed() const { return mr_bits_ & FI_MR_RMA_EVENT; }
  sdk::Eq *eq() { return regions().eq; }  // registrations complete there

  // With the lock held.
  std::unordered_map<uint64_t, Region *> &table() { return table_; }
  Mirrors &mirrors() { return mirrors_; }
  // For a region of our own where applications choose keys: one that nobody can guess, as long as
  // the inner provider's are. False: the kernel gave none.
  bool random_key(uint64_t &key);
  // A counter of the inner domain that counts events.
  Result<fid_cntr *> open_inner_cntr();
  // Atomics are executed by the software of the target.
  ssize_t resolve(uint64_t key, uint64_t address, uint64_t length, uint64_t access, iovec *iov,
                  size_t room);

  // Atomics count on the counters of the regions, too.
  void count_remote(uint64_t access, uint64_t key, uint64_t bytes);

  sdk::AtomicLimits atomic_limits() const;

  // fi_ops_mr
  int reg(const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t requested_key,
          uint64_t flags, struct fid_mr **mr, void *context);
  int regv(const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
           uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context);
  int regattr(const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr);

 private:
  friend LayerDomain;
  Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner_info, void *context);
  ~Domain() = default;

  const int mr_bits_;
  // Random numbers that were not used yet.
  std::array<uint64_t, 32> random_;
  size_t random_left_ = 0;
  std::unordered_map<uint64_t, Region *> table_;
  Mirrors mirrors_;
};

}  // namespace weft::rxm

#endif
