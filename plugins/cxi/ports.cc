// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/ports.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

namespace weft::cxi {

// A PID that is free in one VNI may be taken in another: those that were no good are kept until the
// end, so that the NIC proposes another one.
Result<void> Ports::claim(const std::vector<Vni> &vnis, Pid pid) {
  std::vector<std::unique_ptr<Endpoint>> no_good;
  for (;;) {
    std::vector<std::unique_ptr<Endpoint>> claimed;
    Result<void> done;
    for (const Vni vni : vnis) {
      auto one = lni->endpoint(vni, claimed.empty() ? pid : claimed.front()->pid());
      if (!one) {
        done = tl::unexpected(one.error());
        break;
      }
      claimed.push_back(std::move(*one));
    }
    if (done) {
      endpoints = std::move(claimed);
      initiator = sender = Peer{nid, this->pid()}.initiator();
      return {};
    }
    if (claimed.empty() || pid != kAnyPid || done.error().code != FI_EADDRINUSE) return done;
    no_good.push_back(std::move(claimed.front()));
  }
}

bool Ports::is_in(Vni vni) const {
  return std::ranges::any_of(endpoints, [&](const auto &one) { return one->vni() == vni; });
}

Result<void> Ports::map(Portal &portal, Index index) const {
  for (const auto &endpoint : endpoints) WEFT_CHECK(portal.map(*endpoint, index));
  return {};
}

Result<void> VniQueue::open(Lni &lni, size_t depth, const Profile &profile) {
  WEFT_TRY(queue_, lni.transmit_queue(depth, profile));
  profile_ = profile;
  return {};
}

int VniQueue::post(const Transfer &transfer, Vni vni) {
  if (vni != profile_.vni) {
    Profile other = profile_;
    other.vni = vni;
    if (const auto done = queue_->set_profile(other); !done) return -done.error().code;
    profile_ = other;
  }
  return queue_->post(transfer);
}

}  // namespace weft::cxi
