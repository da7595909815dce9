// SPDX-License-Identifier: BSD-2-Clause
// Region: a memory region of an application. It wraps a region of the inner domain, and keeps the
// address range and access rights that the layer needs to execute atomics.
//
// Example:
//    // Until its close(), Domain::resolve() finds the region by its key.
//    inline Result<fid_mr *> expose(Domain &domain, const iovec &memory) {
//      fi_mr_attr attr{};
//      attr.mr_iov = &memory;
//      attr.iov_count = 1;
//      attr.access = FI_REMOTE_READ | FI_REMOTE_WRITE;
//      WEFT_TRY(Region *const region, Region::open(domain, attr, /*flags=*/0));
//      return region->c();
//    }
//
// Not for regions that rxm registers itself for large messages (Lower::expose).
#ifndef WEFT_PLUGINS_RXM_REGION_H
#define WEFT_PLUGINS_RXM_REGION_H

#include <rdma/fi_domain.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/fid.h>

#include "plugins/rxm/domain.h"

namespace weft::rxm {

class Region final : public sdk::Object<Region, fid_mr> {
 public:
  static Result<Region *> open(Domain &domain, const fi_mr_attr &attr, uint64_t flags);

  uint64_t key() const { return key_; }
  uint64_t access() const { return access_; }
  bool enabled() const { return enabled_; }
  bool persistent() const { return persistent_; }  // FI_RMA_PMEM
  uint64_t endpoint() const { return endpoint_; }  // that it is bound to; 0: none
  uint64_t base_address() const { return base_; }  // of the first byte, as peers give it
  const iovec &memory() const { return memory_; }
  void *inner_descriptor() const { return fi_mr_desc(inner_); }
  // Counts an atomic that did `access` (FI_REMOTE_READ or FI_REMOTE_WRITE) on the counter bound to
  // the region. Remote memory accesses are counted by the inner provider.
  void count_remote(uint64_t access, uint64_t bytes) {
    const Bound &bound = access & FI_REMOTE_WRITE ? write_ : read_;
    if (bound.reached != nullptr) bound.reached->add_events(1, bytes);
  }

  // The same by a lane, which does not have the counter's lock: by way of the inner counter.
  void count_from_lane(uint64_t access) {
    const Bound &bound = access & FI_REMOTE_WRITE ? write_ : read_;
    if (bound.inner != nullptr) fi_cntr_add(bound.inner, 1);
  }

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 private:
  Region(Domain &domain, const fi_mr_attr &attr, uint64_t flags, fid_mr *inner, bool enabled);
  ~Region() = default;
  int bind_endpoint(struct fid *fid, uint64_t flags);

  Domain &domain_;
  fid_mr *const inner_;
  const iovec memory_;
  const uint64_t access_, key_, base_;
  const bool persistent_;
  bool enabled_;
  uint64_t endpoint_ = 0;
  struct Bound {
    fid_cntr *inner = nullptr;
    sdk::Cntr *outer = nullptr, *reached = nullptr;  // the application's, and what reaches it
  } write_, read_;
};

}  // namespace weft::rxm

#endif
