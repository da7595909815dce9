// SPDX-License-Identifier: BSD-2-Clause
// Endpoint: an endpoint of the layer, over one of the network and one of memory. It has the name of
// the former; the latter listens under a name that follows from it (local_name.h).
//
// Example:
//    inline bool may_send(const Endpoint &endpoint) { return endpoint.offers(FI_MSG, FI_SEND); }
//
// What sends is the endpoint beneath: a transfer becomes the same call there, without a lock of the
// layer. What receives is the layer's: one queue of receives, which both endpoints beneath bring
// their messages to (lent.h).
//
// The first operation toward a peer decides which way it goes. It stays so until the peer's
// endpoint is gone; so messages of one peer are never reordered. Of a peer of this host that is
// reached by the network, only its operations tell that it is gone: they are watched (watch.h). Not
// for the tables of ways: ways.h.
#ifndef WEFT_PLUGINS_LINK_ENDPOINT_H
#define WEFT_PLUGINS_LINK_ENDPOINT_H

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/rdm_endpoint.h>
#include <weft/sdk/transfers/transfer.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "plugins/link/domain.h"
#include "plugins/link/watch.h"
#include "plugins/link/ways.h"

namespace weft::link {

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       public sdk::RdmEndpoint,
                       public sdk::TransferOps<Endpoint>,
                       public sdk::AvUser,
                       private sdk::ReceiverSink {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);
  Endpoint(Domain &domain, const fi_info &info, void *context);
  ~Endpoint();

  // ---- fi_ops_msg, fi_ops_tagged: the calls of most messages, without a detour ----
  ssize_t send(const void *buf, size_t len, void *desc, fi_addr_t dest, void *context) {
    const Way way = way_to(dest);
    if (!way.is_plain() || check_length(len, 0) != 0) [[unlikely]]
      return TransferOps::send(buf, len, desc, dest, context);
    return counted(way, fi_send(beneath_[way.branch()], buf, len, desc, way.name(), context));
  }
  ssize_t inject(const void *buf, size_t len, fi_addr_t dest) {
    const Way way = way_to(dest);
    if (!way.is_plain() || check_length(len, FI_INJECT) != 0) [[unlikely]]
      return TransferOps::inject(buf, len, dest);
    return counted(way, fi_inject(beneath_[way.branch()], buf, len, way.name()));
  }
  ssize_t tsend(const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
                void *context) {
    const Way way = way_to(dest);
    if (!way.is_plain() || check_length(len, 0) != 0) [[unlikely]]
      return TransferOps::tsend(buf, len, desc, dest, tag, context);
    return counted(way, fi_tsend(beneath_[way.branch()], buf, len, desc, way.name(), tag, context));
  }
  ssize_t tinject(const void *buf, size_t len, fi_addr_t dest, uint64_t tag) {
    const Way way = way_to(dest);
    if (!way.is_plain() || check_length(len, FI_INJECT) != 0) [[unlikely]]
      return TransferOps::tinject(buf, len, dest, tag);
    return counted(way, fi_tinject(beneath_[way.branch()], buf, len, way.name(), tag));
  }

  // ---- for TransferOps: the endpoints beneath have locks of their own ----
  sdk::Lock &lock() { return no_lock_; }
  bool may_receive() const { return EndpointCore::may_receive(); }
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RecvRequest &request);
  ssize_t start(const sdk::RmaRequest &request);
  ssize_t start(const sdk::AtomicRequest &request);

  // ---- fi_ops_atomic ----
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);

  // ---- fi_ops_cm ----
  int setname(void *addr, size_t length);
  int getname(void *addr, size_t *length);

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context);
  ssize_t tx_size_left();

  // ---- for Watch, with the engine's lock held ----
  // An operation toward the peer has ended. `is_gone`: because the peer was not there.
  void end_watched(uint32_t peer, bool is_gone);

  // ---- fi_ops ----
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);
  int close();
  void close_copies();

 private:
  // endpoint_life.cc
  Result<void> open_beneath(const fi_info &info);
  Result<void> open_branch(size_t branch, const fi_info &info);
  int bind_beneath(struct fid *fid, uint64_t flags);
  template <class Lent>
  int bind_lent(Result<std::shared_ptr<Lent>> lent, std::vector<std::shared_ptr<Lent>> &kept,
                uint64_t flags);
  Result<void> take_name();
  Result<void> listen(const sdk::Address &address);
  Result<void> enable();
  Result<void> open_receives();
  ssize_t open_receives_early();
  void close_beneath();

  // The way of a peer; none: it has to be decided.
  Way way_to(fi_addr_t dest) const {
    const Way way = ways_.of(dest);
    const bool is_lost = way.branch() == kLocal && losses_->load(std::memory_order_relaxed) !=
                                                       seen_losses_.load(std::memory_order_relaxed);
    return is_lost ? Way() : way;
  }
  // Decides it where it is not known. 0, or -FI_E...
  ssize_t find_way(fi_addr_t dest, Way &way) {
    way = way_to(dest);
    return way.is_known() ? 0 : decide(dest, way);
  }
  [[gnu::noinline]] ssize_t decide(fi_addr_t dest, Way &way);
  uint64_t losses() const {
    return losses_ != nullptr ? losses_->load(std::memory_order_acquire) : 0;
  }
  // A transfer has begun, if `rc` is 0.
  ssize_t counted(Way way, ssize_t rc) {
    if (rc != 0) return rc;
    if (way.branch() == kNetwork) domain_.branch(kNetwork).note_event();  // more is to come there
    sdk::Counter &counter = way.branch() == kLocal ? counts_.sent_local : counts_.sent_network;
    if (domain_.engine().lock().needed())
      counter.add();
    else
      counter.add_alone();
    domain_.engine().turn_of_readers().works();
    return 0;
  }
  // fi_inject and its like: no flag of a call says that it reports nothing.
  template <class Request>
  bool is_silent(const Request &request) {
    return !request.report && !tx().selective;
  }
  // Finds the way of the request's peer, and makes its call(endpoint beneath, peer's name there,
  // request).
  template <class Request, class Call>
  ssize_t launch(const Request &request, Call call) {
    Way way;
    if (const ssize_t rc = find_way(request.dest, way); rc != 0) return rc;
    if (!way.is_watched()) [[likely]]
      return counted(way, call(beneath_[way.branch()], way.name(), request));
    Request changed = request;
    Watch::Entry *entry = nullptr;
    if (const ssize_t rc = begin_watched(request.dest, way, request.context, request.report, entry);
        rc != 0)
      return rc;
    changed.context = entry;
    changed.report = true;
    changed.flags |= FI_COMPLETION;
    const ssize_t rc = call(beneath_[way.branch()], way.name(), changed);
    if (rc != 0) give_watched(*entry, rc);
    return counted(way, rc);
  }
  ssize_t begin_watched(fi_addr_t dest, Way way, void *context, bool reports, Watch::Entry *&entry);
  void give_watched(Watch::Entry &entry, ssize_t rc);
  ssize_t cancel_watched(void *context);

  // accesses.cc
  template <class Valid>
  int valid_in_both(Valid valid, size_t *count);

  // sdk::AvUser
  void on_av_removed(uint32_t index) override {
    ways_.set(index, {});
    watched_.forget(index);
  }
  // sdk::ReceiverSink: no message is the layer's own
  void deliver(sdk::Unexpected &, sdk::Receive &) override {}
  void discard(sdk::Unexpected &) override {}
  bool waits_for_receives(bool) const override { return false; }

  Domain &domain_;
  sdk::Lock no_lock_{false};
  fid_ep *beneath_[kBranches] = {};
  const weft_local_ops *local_ops_ = nullptr;
  const std::atomic<uint64_t> *losses_ = nullptr;  // of peers on this host
  std::atomic<uint64_t> seen_losses_{0};
  bool is_named_ = false, listens_ = false;
  Ways ways_;  // written with the engine's lock held
  WatchedPeers watched_;
  std::vector<std::shared_ptr<LentQueue>> queues_;
  std::vector<std::shared_ptr<LentCounter>> counters_;
  std::vector<std::shared_ptr<LentReceives>> receives_;
  std::vector<std::shared_ptr<LentTransmit>> transmits_;
  std::shared_ptr<Names> names_;
  sdk::SharedReceiveContext *own_receives_ = nullptr;  // null: the application shares some
  Counters counts_;
  sdk::Stats<Counters>::Part part_;
};

}  // namespace weft::link

#endif
