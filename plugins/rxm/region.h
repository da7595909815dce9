// SPDX-License-Identifier: BSD-2-Clause
// A memory region of an application: one of the inner domain, and what the layer itself needs of it
// to execute atomics.
#ifndef WEFT_PLUGINS_RXM_REGION_H
#define WEFT_PLUGINS_RXM_REGION_H

#include <rdma/fi_domain.h>
#include <weft/sdk/cntr.h>
#include <weft/sdk/fid.h>

#include "plugins/rxm/domain.h"

namespace weft::rxm {

class Region final : public sdk::Object<Region, fid_mr> {
 public:
  static Result<Region *> open(Domain &domain, const fi_mr_attr &attr, uint64_t flags);

  uint64_t key() const { return key_; }
  uint64_t access() const { return access_; }
  bool enabled() const { return enabled_; }
  uint64_t base_address() const { return base_; }  // that peers count from
  const iovec &memory() const { return memory_; }
  // An atomic did `access` (FI_REMOTE_READ or FI_REMOTE_WRITE). What the inner provider does itself
  // it counts itself.
  void count_remote(uint64_t access, uint64_t bytes) {
    const Bound &bound = access & FI_REMOTE_WRITE ? write_ : read_;
    if (bound.outer != nullptr) bound.outer->add_events(1, bytes);
  }

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 private:
  Region(Domain &domain, const fi_mr_attr &attr, fid_mr *inner, bool enabled);
  ~Region() = default;

  Domain &domain_;
  fid_mr *const inner_;
  const iovec memory_;
  const uint64_t access_, key_, base_;
  bool enabled_;
  struct Bound {
    fid_cntr *inner = nullptr;
    sdk::Cntr *outer = nullptr;
  } write_, read_;
};

}  // namespace weft::rxm

#endif
