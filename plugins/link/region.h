// SPDX-License-Identifier: BSD-2-Clause
// Region: a memory region of an application, which is one of each domain beneath, with one key: the
// network's, which memory takes as the application's choice.
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
// Not for buffers of messages, which need none.
#ifndef WEFT_PLUGINS_LINK_REGION_H
#define WEFT_PLUGINS_LINK_REGION_H

#include <rdma/fi_domain.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/fid.h>

#include <memory>
#include <vector>

#include "plugins/link/branch.h"
#include "plugins/link/lent.h"

namespace weft::link {

class Domain;

class Region final : public sdk::Object<Region, fid_mr> {
 public:
  static Result<Region *> open(Domain &domain, const fi_mr_attr &attr, uint64_t flags);

  // ---- fi_ops ----
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 private:
  Region(Domain &domain, void *context);
  ~Region();
  Result<void> register_in(size_t branch, const fi_mr_attr &attr, uint64_t flags);
  int bind_counter(sdk::Cntr &counter, uint64_t flags);

  Domain &domain_;
  fid_mr *beneath_[kBranches] = {};
  uint64_t counted_ = 0;  // FI_REMOTE_READ, FI_REMOTE_WRITE
  std::vector<std::shared_ptr<LentCounter>> counters_;
  std::vector<std::atomic<size_t> *> held_;  // the application's counters
};

}  // namespace weft::link

#endif
