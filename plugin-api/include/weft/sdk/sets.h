// SPDX-License-Identifier: BSD-2-Clause
// Wait sets and poll sets (fi_poll.3): several queues and counters behind one wait or one poll.
// Deprecated in the API, used by programs of 1.x. And fi_trywait over any mixture of them.
//
//   int trywait(fid_fabric *, fid **fids, int n) { return sdk::trywait(instance(), fids, n); }
#ifndef WEFT_SDK_SETS_H
#define WEFT_SDK_SETS_H

#include <rdma/fi_domain.h>
#include <weft/sdk/cq.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace weft::sdk {

class WaitSet final : public Object<WaitSet, fid_wait> {
 public:
  static Result<WaitSet *> open(const weft_instance *instance, struct fid *fabric,
                                std::atomic<size_t> &children, const fi_wait_attr *attr);
  // A queue opened with FI_WAIT_SET joins with its descriptor and leaves when it closes.
  static Result<void> check(struct fid_wait *set, const weft_instance *instance);
  Result<void> join(struct fid *fid, int fd);
  void leave(struct fid *fid);

  int wait(int timeout);
  int close();
  int control(int command, void *arg);
  int trywait();

 private:
  WaitSet(const weft_instance *instance, std::atomic<size_t> &children);
  ~WaitSet() = default;

  std::atomic<size_t> &children_;
  std::mutex mutex_;
  int epoll_ = -1;
  struct Member {
    struct fid *fid;
    int fd;
  };
  std::vector<Member> members_;
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

  DomainContext &domain_;
  std::mutex mutex_;
  std::vector<struct fid *> members_;
};

// fi_trywait: 0 if a wait on the objects' descriptors is safe, -FI_EAGAIN if one of them has
// something to read.
int trywait(const weft_instance *instance, struct fid **fids, int count);

}  // namespace weft::sdk

#endif
