// SPDX-License-Identifier: BSD-2-Clause
// Bindings: the queues and counters that an endpoint of any kind reports to (fi_ep_bind). A bound
// object cannot be closed before the endpoint lets go of it.
//
// Example:
//    struct Endpoint {
//      int bind(struct fid *fid, uint64_t flags) {
//        if (fid->fclass != FI_CLASS_CQ) return -FI_EINVAL;
//        return bindings.bind_cq(fid, flags, {tx_cq, tx_selective}, {rx_cq, rx_selective});
//      }
//      void close() { bindings.release(); }  // after the last completion
//      Bindings bindings;
//      Cq *tx_cq = nullptr, *rx_cq = nullptr;
//      bool tx_selective = false, rx_selective = false;
//    };
//
// It knows no state of the endpoint and takes no lock. Address vectors, event queues and shared
// contexts differ between endpoints: the endpoint binds them, and Bindings only holds them.
#ifndef WEFT_SDK_BINDINGS_H
#define WEFT_SDK_BINDINGS_H

#include <weft/sdk/cntr.h>
#include <weft/sdk/cq.h>

#include <atomic>
#include <initializer_list>
#include <vector>

namespace weft::sdk {

// Whether an endpoint of `info` receives through a shared context (ep_attr.rx_ctx_cnt); and
// fi_enable's error if such an endpoint has none bound, since it could never receive.
bool wants_shared_receive(const fi_info &info);
Result<void> check_shared_receive(bool wanted, bool bound);

class Bindings {
 public:
  explicit Bindings(const DomainContext &domain) : domain_(domain) {}

  // Where a direction's queue goes, and whether it was bound with FI_SELECTIVE_COMPLETION.
  struct CqPlace {
    Cq *&cq;
    bool &selective;
  };
  // 0; -FI_EINVAL: no queue, or another domain's; -FI_EBADFLAGS; -FI_EBUSY: there is one.
  int bind_cq(struct fid *fid, uint64_t flags, CqPlace tx, CqPlace rx);

  // Where the counter of an event goes (FI_SEND, FI_REMOTE_READ, ...).
  struct CntrPlace {
    uint64_t event;
    Cntr *&cntr;
  };
  int bind_cntr(struct fid *fid, uint64_t flags, std::initializer_list<CntrPlace> places);

  void hold(std::atomic<size_t> &users) {
    bound_.push_back(&users);
    users.fetch_add(1);
  }
  void release() {
    for (std::atomic<size_t> *users : bound_) users->fetch_sub(1);
    bound_.clear();
  }

 private:
  const DomainContext &domain_;
  std::vector<std::atomic<size_t> *> bound_;
};

}  // namespace weft::sdk

#endif
