// SPDX-License-Identifier: BSD-2-Clause
// LentQueue, LentCounter, LentReceives: what the layer owns and lends to both providers beneath
// (fi_peer.3): their messages find one queue of receives, and end in one queue of completions.
// LentTransmit: a shared transmit context, which is one of each provider.
//
// Example:
//    // Completions of the endpoint beneath come to the application's queue.
//    inline int report_to(const LentQueue &queue, size_t branch, fid_ep *beneath) {
//      return fi_ep_bind(beneath, &queue.at(branch)->fid, FI_TRANSMIT | FI_RECV);
//    }
//
// They are made and go without a lock of the layer, because objects beneath are opened and closed.
// Not for address vectors, of which each provider has its own: names.h.
#ifndef WEFT_PLUGINS_LINK_LENT_H
#define WEFT_PLUGINS_LINK_LENT_H

#include <rdma/fi_endpoint.h>
#include <rdma/providers/fi_peer.h>
#include <weft/result.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/shared_receive.h>
#include <weft/sdk/objects/shared_transmit.h>

#include <memory>

#include "plugins/link/branch.h"

namespace weft::link {

class Domain;

class LentQueue {
 public:
  using Owned = sdk::Cq;
  static Result<std::shared_ptr<LentQueue>> open(Domain &domain, sdk::Cq &queue);
  LentQueue(Domain &domain, sdk::Cq &queue);
  ~LentQueue();

  fid_cq *at(size_t branch) const { return beneath_[branch]; }
  // What the application's queue had no room for comes now, if it has.
  void tell_again();
  bool is_full() const { return queue_.full(); }  // with the engine's lock held

 private:
  struct Owner {
    fid_peer_cq peer{};  // the first member
    LentQueue *queue = nullptr;
    size_t branch = 0;
  };
  static Owner &of(fid_peer_cq *peer) { return *reinterpret_cast<Owner *>(peer); }
  static ssize_t write(fid_peer_cq *peer, void *context, uint64_t flags, size_t len, void *buf,
                       uint64_t data, uint64_t tag, fi_addr_t source);
  static ssize_t writeerr(fid_peer_cq *peer, const fi_cq_err_entry *entry);
  static fi_ops_cq_owner kOps;
  template <class Push>
  ssize_t report(size_t branch, Push push);
  bool is_watched(size_t branch) const;

  Domain &domain_;
  sdk::Cq &queue_;
  Owner owners_[kBranches];
  fid_cq *beneath_[kBranches] = {};
};

class LentCounter {
 public:
  using Owned = sdk::Cntr;
  static Result<std::shared_ptr<LentCounter>> open(Domain &domain, sdk::Cntr &counter);
  ~LentCounter();

  fid_cntr *at(size_t branch) const { return beneath_[branch]; }

 private:
  struct fid *lent_[kBranches] = {};
  fid_cntr *beneath_[kBranches] = {};
};

class LentReceives {
 public:
  using Owned = sdk::SharedReceiveContext;
  static Result<std::shared_ptr<LentReceives>> open(Domain &domain,
                                                    sdk::SharedReceiveContext &receives);
  ~LentReceives();  // after the endpoints beneath that use it

  fid_ep *at(size_t branch) const { return beneath_[branch]; }

 private:
  struct fid *lent_[kBranches] = {};
  fid_ep *beneath_[kBranches] = {};
};

// The places of a context are counted beneath, for each way.
class LentTransmit {
 public:
  using Owned = sdk::SharedTransmit;
  static Result<std::shared_ptr<LentTransmit>> open(Domain &domain, sdk::SharedTransmit &transmit);
  ~LentTransmit();  // after the endpoints beneath that use it

  fid_stx *at(size_t branch) const { return beneath_[branch]; }

 private:
  fid_stx *beneath_[kBranches] = {};
};

}  // namespace weft::link

#endif
