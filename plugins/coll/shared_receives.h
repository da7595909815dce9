// SPDX-License-Identifier: BSD-2-Clause
// SharedReceives: fi_srx_context of the layer: receives that several of its endpoints share. They
// are posted to a shared receive context beneath, which the endpoints beneath are bound to, and
// messages of groups come by it, too.
//
// Example:
//    // fi_ep_bind.
//    inline fid_ep *context_beneath(Domain &domain, struct fid *fid) {
//      SharedReceives *const found = SharedReceives::find(domain, fid);
//      return found != nullptr ? found->beneath() : nullptr;
//    }
//
// A message is reported by the endpoint that got it. What groups need is common to all of them: the
// names of peers, the numbers of groups, and the receives for packets. Not for an owner's receives
// (FI_PEER).
#ifndef WEFT_PLUGINS_COLL_SHARED_RECEIVES_H
#define WEFT_PLUGINS_COLL_SHARED_RECEIVES_H

#include <weft/sdk/objects/fid.h>
#include <weft/sdk/transfers/recv_ops.h>

#include <atomic>
#include <memory>
#include <vector>

#include "plugins/coll/domain.h"
#include "plugins/coll/group/groups.h"
#include "plugins/coll/names.h"
#include "plugins/coll/receives.h"

namespace weft::coll {

class SharedReceives final : public sdk::Object<SharedReceives, fid_ep>,
                             public sdk::ReceiveOps<SharedReceives> {
 public:
  static Result<SharedReceives *> open(Domain &domain, const fi_rx_attr *attr, void *context);
  // One of the domain's; null: the fid is something else.
  static SharedReceives *find(Domain &domain, struct fid *fid);

  fid_ep *beneath() const { return inner_; }
  uint64_t caps() const { return caps_; }
  std::atomic<size_t> users{0};  // endpoints bound, until those beneath are closed

  // ---- with the engine's lock held ----
  Receives &receives() { return receives_; }
  Names &names() { return *names_; }
  Numbers &numbers() { return numbers_; }
  void add(Endpoint &endpoint) { endpoints_.push_back(&endpoint); }
  void drop(Endpoint &endpoint) { std::erase(endpoints_, &endpoint); }
  // Reads the queues of all that share: any of them reports what was cancelled.
  void poll_beneath();
  // A receive of a group; and it has ended.
  ssize_t receive(Wire &wire);
  void ended() { --of_groups_; }
  // Receives for packets of groups, from the first group on.
  void open_packets();
  void repost(Wire &packet) { idle_packets_.push_back(&packet); }
  void post_packets();

  // ---- for ReceiveOps ----
  sdk::Lock &lock();
  static constexpr bool enabled() { return true; }
  bool offers(uint64_t kind, uint64_t) const { return (caps_ & kind) != 0; }
  uint64_t rx_flags() const { return rx_flags_; }
  ssize_t start(const sdk::RecvRequest &request);

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context);
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t rx_size_left();

  // ---- fi_ops ----
  int close();  // -FI_EBUSY while endpoints are bound
  int control(int command, void *arg);

 private:
  SharedReceives(Domain &domain, uint64_t caps, uint64_t op_flags, size_t size, void *context);
  ~SharedReceives();
  Result<void> open_inner();
  size_t left() const;

  Domain &domain_;
  const uint64_t caps_;
  uint64_t rx_flags_;
  fid_ep *inner_ = nullptr;
  std::unique_ptr<Names> names_;  // closed after the context beneath
  Receives receives_;             // and those that were lost with their endpoint
  size_t of_groups_ = 0;
  Numbers numbers_;
  std::vector<Endpoint *> endpoints_;
  std::vector<std::unique_ptr<Wire>> packets_;
  std::vector<Wire *> idle_packets_;
};

}  // namespace weft::coll

#endif
