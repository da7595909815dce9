// SPDX-License-Identifier: BSD-2-Clause
// LibcxiEndpoint and LibcxiPortal: a (VNI, PID) of a Cassini, and a portal table entry.
//
// Example:
//    inline Result<std::unique_ptr<LibcxiPortal>> open_mailbox(LibcxiLni &lni,
//                                                              LibcxiEventQueue &events) {
//      return LibcxiPortal::open(lni, {.is_matching = true, .flow_control = true}, events);
//    }
//
// Lists and states change by commands; what has to be known at once is the driver's to say. Not for
// what a portal does: docs/cxi.md.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_PORTAL_H
#define WEFT_PLUGINS_CXI_LIBCXI_PORTAL_H

#include <memory>
#include <utility>
#include <vector>

#include "plugins/cxi/libcxi/event_queue.h"
#include "plugins/cxi/libcxi/lni.h"

namespace weft::cxi {

class LibcxiEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<LibcxiEndpoint>> open(LibcxiLni &lni, Vni vni, Pid pid);
  ~LibcxiEndpoint() override { lni_.library().destroy_domain(domain_); }

  Vni vni() const override { return Vni(domain_->vni); }
  Pid pid() const override { return Pid(domain_->pid); }
  abi::Domain *handle() const { return domain_; }

 private:
  LibcxiEndpoint(LibcxiLni &lni, abi::Domain *domain) : lni_(lni), domain_(domain) {}
  LibcxiLni &lni_;
  abi::Domain *const domain_;
};

class LibcxiPortal final : public Portal {
 public:
  static Result<std::unique_ptr<LibcxiPortal>> open(LibcxiLni &lni, const PortalOptions &options,
                                                    LibcxiEventQueue &eq);
  ~LibcxiPortal() override;

  // ---- Portal ----
  Result<void> map(Endpoint &endpoint, Index index) override;
  void set_state(PortalState state, uint32_t drops) override;
  int take_over(uint32_t drops) override;
  PortalStatus status() const override;
  void append(List list, const Entry &entry) override;
  void unlink(List list, uint16_t buffer_id) override;
  void search(const Criteria &criteria, bool takes) override;
  void invalidate(List list, uint16_t buffer_id) override;

 private:
  LibcxiPortal(LibcxiLni &lni, abi::Portal *portal) : lni_(lni), portal_(portal) {}
  uint16_t number() const { return uint16_t(portal_->number); }

  LibcxiLni &lni_;
  abi::Portal *const portal_;
  std::vector<std::pair<const LibcxiEndpoint *, abi::PortalMap *>> maps_;
};

}  // namespace weft::cxi

#endif
