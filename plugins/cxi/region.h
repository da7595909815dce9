// SPDX-License-Identifier: BSD-2-Clause
// Region: memory of the application that peers may reach through one endpoint (FI_MR_ENDPOINT).
// Regions: those of a domain, and their keys.
//
// Example:
//    // What fi_enable does with the regions that were bound before it.
//    inline void link_all(const std::vector<Region *> &bound) {
//      for (Region *const region : bound)
//        if (auto linked = region->link(); !linked)
//          WEFT_WARN(region->instance(), FI_LOG_MR, "%s", linked.error().text.c_str());
//    }
//
// A region is standard (an entry in the portals that all standard regions of an endpoint share,
// found by its key) or optimized (portals of its own, reached by short packets without order).
// Keys of the provider are cached (FI_CXI_PROV_KEY_CACHE) where nobody counts what peers do in the
// region: such a key is an address, and one entry of the NIC serves all of them.
// Peers name offsets from its start (no FI_MR_VIRT_ADDR). With FI_HMEM a region may be memory of a
// device, and its descriptor says so to transfers; without it they need none.
#ifndef WEFT_PLUGINS_CXI_REGION_H
#define WEFT_PLUGINS_CXI_REGION_H

#include <rdma/fi_domain.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/memory/memory.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/fid.h>

#include <bitset>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plugins/cxi/control.h"

namespace weft::cxi {

class Domain;
class CxiEndpoint;
class Regions;

class Region final : public sdk::Object<Region, fid_mr>, private WindowUser {
 public:
  uint64_t key() const { return c_key_; }
  // Of a buffer in it; none: it is not.
  std::optional<sdk::HmemPlace> place_of(const void *address, size_t length) const;
  // With the domain's lock held: opens it to peers, when its endpoint is enabled; the opposite.
  Result<void> link();
  void unlink();
  void forget_endpoint() { endpoint_ = nullptr; }
  // Not of the application: what all regions with cached keys of an endpoint and a LAC are reached
  // through. `key` is theirs, without an address.
  static Result<Region *> open_window(Domain &domain, CxiEndpoint &endpoint, uint64_t key);
  void close_window();
  // Somebody counts what peers do there, who did not before.
  void refresh();

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 private:
  friend class Regions;
  Region(Domain &domain, const fi_mr_attr &attr, uint64_t flags, uint64_t key,
         const sdk::HmemPlace &place);
  Result<weft::cxi::Memory> map(unsigned access);
  Result<void> link_cached();
  int leave_cache();
  ~Region() = default;
  int enable();
  Entry entry() const;
  void append(Entry entry);
  sdk::Cntr *counter_of(bool write) const;
  void count(bool write, const Event &event);
  std::vector<Portal *> portals() const;
  void withdraw(uint16_t id);
  bool await_peers(uint16_t id);
  bool has_events() const;
  Result<std::unique_ptr<Portal>> open_portal(Index index);
  void on_window(const Event &event) override;

  Domain &domain_;
  const iovec memory_;
  const uint64_t access_, flags_;
  uint64_t c_key_;
  bool is_cached_ = false, is_window_ = false;
  const sdk::HmemPlace place_;
  CxiEndpoint *endpoint_ = nullptr;
  bool enabled_ = false, linked_ = false;
  sdk::Cntr *remote_write_ = nullptr, *remote_read_ = nullptr;
  // What the NIC raises by the entry that peers find now.
  sdk::Cntr *nic_write_ = nullptr, *nic_read_ = nullptr;
  // The same of the entry before that, whose events may still come.
  struct {
    std::optional<uint16_t> id;
    sdk::Cntr *write = nullptr, *read = nullptr;
  } old_;
  Memory mapped_;
  uint16_t id_ = 0, solicited_id_ = 0;
  bool is_solicited_ = false;
  std::unique_ptr<Portal> write_portal_, read_portal_;  // of an optimized one
};

class Regions final : public sdk::Memory {
 public:
  Regions(Domain &domain, bool provider_keys) : domain_(domain), provider_keys_(provider_keys) {}

  Result<fid_mr *> open(const fi_mr_attr &attr, uint64_t flags) override;
  // With FI_HMEM: the place of a buffer, if `desc` is a region that has it.
  std::optional<sdk::HmemPlace> place_of(const void *desc, const void *address,
                                         size_t length) const;
  bool has_provider_keys() const { return provider_keys_; }
  bool empty() const { return regions_.empty() && cached_ == 0; }
  bool optimized = true;      // keys below kOptimizedKeys, and provider keys while there are some
  bool match_events = false;  // the NIC tells of each access, and closing waits for those
  bool key_cache = true;      // provider keys are cached where they can be

 private:
  friend class Region;
  Result<void> check_auth_key(const fi_mr_attr &attr) const;
  bool may_be_cached(const fi_mr_attr &attr, uint64_t flags, const sdk::HmemPlace &place) const;
  Result<uint64_t> cached_key_of(const iovec &memory) const;
  // Whether a region with this access has a key that no other one has. What no peer reaches has
  // none, if the application chooses them.
  bool has_key(uint64_t access) const {
    return provider_keys_ || (access & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0;
  }
  Result<uint64_t> new_key(const fi_mr_attr &attr, uint64_t flags);
  void leave(const Region &region);
  void give_key(uint64_t key);

  Domain &domain_;
  const bool provider_keys_;
  std::unordered_map<uint64_t, Region *> regions_;  // by key, without cached ones
  size_t cached_ = 0;
  std::unordered_set<const void *> descriptors_;  // with FI_HMEM
  std::bitset<kOptimizedKeys - kFirstProviderId> optimized_ids_;
  uint16_t next_id_ = 0;
};

}  // namespace weft::cxi

#endif
