// SPDX-License-Identifier: BSD-2-Clause
// What the hook profile keeps per object that it is on, and the Registry of endpoints and domains.
//
// Example:
//    void bind(Link link, const fid_cq *cq, bool receive) {
//      if (auto *state = state_at<QueueState>(link, &cq->fid))  // null: the hook is not on it
//        endpoint_of(link).set_queue(receive, state->queue);
//    }
//
// Not for counting: counting.h.
#ifndef WEFT_PLUGINS_HOOK_PROFILE_STATE_H
#define WEFT_PLUGINS_HOOK_PROFILE_STATE_H

#include <weft/sdk/unit.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/hook-profile/counting.h"

namespace weft::profile {

using Link = const weft_hook_link &;

struct State {
  virtual ~State() = default;
};

struct QueueState final : State {
  explicit QueueState(std::shared_ptr<Queue> queue) : queue(std::move(queue)) {}
  ~QueueState() override { queue->retire(); }
  const std::shared_ptr<Queue> queue;
};

struct AvState final : State {
  const std::shared_ptr<PeerTable> peers = std::make_shared<PeerTable>();
};

using OperationSums = std::array<Endpoint::Sums, kOperations>;

class Registry;

struct DomainState final : State {
  DomainState(Registry &registry, const struct fid *fid);
  ~DomainState() override;
  Registry &registry;
  const struct fid *const fid;
  OperationSums closed;  // of endpoints that are closed; under the registry's mutex
};

class EndpointState final : public State, public Source {
 public:
  EndpointState(Registry &registry, fid_ep *ep, std::shared_ptr<Segment> segment,
                const Labels &labels, uint32_t sample);
  ~EndpointState() override;
  OperationRecord *operation(Operation operation, PeerClass peer) override;
  void unused(OperationRecord *record) override { segment_->retire(record); }
  PeerClass peer(fi_addr_t dest) override;
  void bound(Link link, struct fid *fid, uint64_t flags);
  void stands_for(const EndpointState &original) {
    counting.share(original.counting);
    av_ = original.av_;
  }
  void learn_name();
  bool is(const struct fid *fid) const { return &ep_->fid == fid; }
  const struct fid *domain() const { return domain_; }
  Endpoint counting;

 private:
  Registry &registry_;
  fid_ep *const ep_;
  const struct fid *domain_ = nullptr;
  const std::shared_ptr<Segment> segment_;
  const Labels labels_;
  fid_av *av_ = nullptr;
};

// The endpoints and domains of one instance of the hook.
class Registry {
 public:
  explicit Registry(uint32_t hook_slot) : slot(hook_slot) {}
  const uint32_t slot;  // of the hook's links

  void enter(EndpointState *endpoint);
  void leave(EndpointState *endpoint);
  void enter(DomainState *domain);
  void leave(DomainState *domain);
  void set_name(EndpointState *endpoint, std::string name);
  std::vector<std::string> names();
  // The counts of an endpoint, or of all endpoints of a domain.
  OperationSums sums(const struct fid *fid);

 private:
  std::mutex mutex_;
  std::map<EndpointState *, std::string> endpoints_;  // and their addresses, where known
  std::map<const struct fid *, DomainState *> domains_;
};

inline State &state_of(Link link) {
  return *static_cast<State *>(link.object_state);
}
inline Endpoint &endpoint_of(Link link) {
  return static_cast<EndpointState &>(state_of(link)).counting;
}
inline Queue &queue_of(Link link) {
  return *static_cast<QueueState &>(state_of(link)).queue;
}
// The hook's link on an object; null: the hook is not on it.
inline const weft_hook_link *link_at(uint32_t slot, const struct fid *fid) {
  const weft_fid_header *header = sdk::header_of(fid);
  if (header->magic != WEFT_FID_MAGIC) return nullptr;
  weft_hook_link **links = __atomic_load_n(&header->links_core, __ATOMIC_ACQUIRE);
  return links != nullptr ? __atomic_load_n(&links[slot], __ATOMIC_ACQUIRE) : nullptr;
}
template <class T>
T *state_at(Link mine, const struct fid *fid) {
  const weft_hook_link *link = link_at(mine.slot, fid);
  return link != nullptr ? dynamic_cast<T *>(&state_of(*link)) : nullptr;
}

}  // namespace weft::profile

#endif
