// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/branch.h"

#include <weft/sdk/layers/carrier.h>

#include <utility>

namespace weft::link {

Result<void> Branch::open(fid_fabric *fabric, fid_domain *domain, const fi_info &info) {
  fi_cq_attr attr{.size = 1, .format = FI_CQ_FORMAT_CONTEXT};
  const int rc = sdk::open_inner_wait([&](enum fi_wait_obj wait) {
    attr.wait_obj = wait;
    return fi_cq_open(domain, &attr, &pulse_, nullptr);
  });
  if (rc != 0)
    return fail(-rc, "link: a domain beneath has no completion queue that can be waited for");
  wait_ = sdk::InnerWait(&pulse_->fid);
  fi_control(&domain->fid, WEFT_READ_BY_LAYER, nullptr);
  fabric_ = fabric;
  domain_ = domain;
  info_ = &info;
  return {};
}

void Branch::close() {
  if (pulse_ != nullptr) fi_close(&std::exchange(pulse_, nullptr)->fid);
  domain_ = nullptr;
}

int Branch::wait_fds(std::vector<int> &fds) {
  const std::lock_guard guard(mutex_);
  return wait_.add_to(fds);
}

bool Branch::may_wait(bool &changed) {
  {
    const std::lock_guard guard(mutex_);
    changed |= wait_.changed();
  }
  struct fid *fids[] = {&pulse_->fid};
  return fi_trywait(fabric_, fids, 1) == 0;
}

}  // namespace weft::link
