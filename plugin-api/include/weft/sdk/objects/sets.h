// SPDX-License-Identifier: BSD-2-Clause
// Wait sets and poll sets (fi_poll.3): several queues and counters behind one wait or one poll, and
// fi_trywait over any mixture of them. Deprecated in the API, used by programs of 1.x.
//
// Example:
//    struct Fabric {
//      int trywait(fid_fabric *, struct fid **fids, int count) {
//        return weft::sdk::trywait(instance, fids, count);
//      }
//      const weft_instance *instance;
//    };
//
// Not for waiting inside of a provider: wait.h.
#ifndef WEFT_SDK_OBJECTS_SETS_H
#define WEFT_SDK_OBJECTS_SETS_H

#include <rdma/fi_domain.h>
#include <weft/sdk/objects/cq.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::sdk {

class WaitSet final : public Object<WaitSet, fid_wait>, private WaitObject::Listener {
 public:
  static Result<WaitSet *> open(const weft_instance *instance, struct fid *fabric,
                                std::atomic<size_t> &children, const fi_wait_attr *attr);
  // A queue opened with FI_WAIT_SET joins with its wait object, and leaves when it closes; call
  // without an engine's lock. The sources of event queues come and go.
  static Result<void> check(struct fid_wait *set, const weft_instance *instance);
  Result<void> join(struct fid *fid, WaitSource source, WaitObject &wait);
  void leave(struct fid *fid, WaitSource source);
  void add_source(WaitSource source);  // counted
  void remove_source(WaitSource source);

  int wait(int timeout);
  int close();
  int control(int command, void *arg);
  int trywait();

 private:
  WaitSet(const weft_instance *instance, std::atomic<size_t> &children);
  ~WaitSet() = default;
  void on_notify() override;
  int trywait_members();
  int prepare();

  std::atomic<size_t> &children_;
  // Two locks, as in Eq. The second one is taken where members are notified.
  std::mutex sources_mutex_, mutex_;
  WaitObject wait_;
  std::vector<std::pair<WaitSource, size_t>> sources_;
  std::vector<struct fid *> members_;
};

class PollSet final : public Object<PollSet, fid_poll> {
 public:
  static Result<PollSet *> open(DomainContext &domain, const fi_poll_attr *attr);

  int poll(void **context, int count);
  int poll_add(struct fid *event, uint64_t flags);
  int poll_del(struct fid *event, uint64_t flags);
  int close();

 private:
  explicit PollSet(DomainContext &domain);
  ~PollSet() = default;
  int poll_members(void **context, int count);

  DomainContext &domain_;
  std::mutex mutex_;
  std::vector<struct fid *> members_;
};

// fi_trywait: 0 if a wait on the objects' descriptors is safe, -FI_EAGAIN if one of them has
// something to read.
int trywait(const weft_instance *instance, struct fid **fids, int count);

}  // namespace weft::sdk

#endif
