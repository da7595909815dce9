// SPDX-License-Identifier: BSD-2-Clause
// Region: a memory region of an application. It is a region of the domain beneath, which peers
// reach by its key; its counters and its endpoint are the layer's.
//
// Example:
//    // Until its close(), peers reach the memory.
//    inline Result<fid_mr *> expose(Domain &domain, const iovec &memory) {
//      fi_mr_attr attr{};
//      attr.mr_iov = &memory;
//      attr.iov_count = 1;
//      attr.access = FI_REMOTE_READ | FI_REMOTE_WRITE;
//      WEFT_TRY(Region *const region, Region::open(domain, attr, /*flags=*/0));
//      return region->c();
//    }
//
// Not for messages of groups, whose buffers need none.
#ifndef WEFT_PLUGINS_COLL_REGION_H
#define WEFT_PLUGINS_COLL_REGION_H

#include <rdma/fi_domain.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/fid.h>

#include "plugins/coll/domain.h"

namespace weft::coll {

class Region final : public sdk::Object<Region, fid_mr> {
 public:
  static Result<Region *> open(Domain &domain, const fi_mr_attr &attr, uint64_t flags);

  // ---- fi_ops ----
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg) { return fi_control(&inner_->fid, command, arg); }

 private:
  struct Count {
    fid_cntr *inner = nullptr;
    sdk::Cntr *outer = nullptr;
  };
  Region(Domain &domain, void *context, fid_mr *inner);
  ~Region() = default;
  int bind_endpoint(struct fid *fid, uint64_t flags);
  int bind_counter(uint64_t access, Count &count, sdk::Cntr &outer);

  Domain &domain_;
  fid_mr *const inner_;
  Count written_, read_;  // FI_RMA_EVENT
};

}  // namespace weft::coll

#endif
