// SPDX-License-Identifier: BSD-2-Clause
// RecvQueue: receives that an application posted and for which no message has arrived yet, of one
// endpoint or of a shared receive context.
//
// Example:
//    ssize_t recv(RecvQueue &queue, void *buf, size_t len, void *context) {
//      const iovec iov{buf, len};
//      return queue.post(&iov, 1, context, FI_COMPLETION);  // -FI_ENOMEM: no memory for one more
//    }
//    PostedRecv *on_message(RecvQueue &queue, RecvWaiter &endpoint) {
//      if (queue.front() != nullptr) return queue.pop();
//      queue.wait(endpoint);  // on_recv_posted() follows
//      return nullptr;
//    }
//
// In order of posting; for matching by tag see match.h. A multi-receive buffer stays at the front
// until what is left of it is below the minimum; it must not be released while it has users, on the
// queue or off it. It takes receives as long as there is memory: `size` is how many the application
// expects. Called with the engine's lock held.
#ifndef WEFT_SDK_TRANSFERS_RECV_QUEUE_H
#define WEFT_SDK_TRANSFERS_RECV_QUEUE_H

#include <rdma/fi_endpoint.h>
#include <sys/uio.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/memory/pool.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace weft::sdk {

struct PostedRecv {
  PostedRecv *next = nullptr;
  void *context = nullptr;
  uint64_t flags = 0;   // FI_COMPLETION, FI_MULTI_RECV as posted
  size_t length = 0;    // bytes left in iov
  size_t capacity = 0;  // bytes as posted
  uint32_t count = 0;
  uint32_t users = 0;      // multi-receive: messages that are being written into the buffer
  bool popped = false;     // off the queue
  bool cancelled = false;  // multi-receive: while it was in use; told when that is over
  iovec iov[kIovLimit];
};

// An endpoint whose input waits for a receive to be posted.
class RecvWaiter {
 public:
  virtual void
  on_recv_posted() = 0;  // may take receives, wait again and stop others; does not post

 protected:
  ~RecvWaiter() = default;
};

class RecvQueue {
 public:
  explicit RecvQueue(size_t size) : size_(size) {}

  ssize_t post(const iovec *iov, size_t count, void *context, uint64_t flags) {
    if (count > kIovLimit || (count != 0 && iov == nullptr)) return -FI_EINVAL;
    // Messages are put into one vector, one behind the other.
    if (flags & FI_MULTI_RECV && (count != 1 || room_of(*iov) != iov->iov_len)) return -FI_EINVAL;
    size_t length = 0;
    for (size_t i = 0; i < count; ++i)
      if (__builtin_add_overflow(length, room_of(iov[i]), &length)) return -FI_EINVAL;
    PostedRecv *r = pool_.take();
    if (r == nullptr) return -FI_ENOMEM;
    r->next = nullptr;
    r->context = context;
    r->flags = flags;
    r->users = 0;
    r->popped = r->cancelled = false;
    r->count = uint32_t(count);
    for (size_t i = 0; i < count; ++i) r->iov[i] = {iov[i].iov_base, room_of(iov[i])};
    r->length = r->capacity = length;
    (tail_ != nullptr ? tail_->next : head_) = r;
    tail_ = r;
    ++posted_;
    if (!waiters_.empty()) wake();
    return 0;
  }

  PostedRecv *front() { return head_; }
  // Takes the front off; give it back with release().
  PostedRecv *pop() {
    PostedRecv *r = head_;
    head_ = r->next;
    if (head_ == nullptr) tail_ = nullptr;
    --posted_;
    r->popped = true;
    return r;
  }
  // Takes off the oldest with this context; null: none. What was posted without one cannot be named
  // (fi_endpoint.3, fi_cancel).
  PostedRecv *remove(const void *context) {
    if (context == nullptr) return nullptr;
    PostedRecv **link = &head_, *before = nullptr;
    for (; *link != nullptr; before = *link, link = &(*link)->next) {
      if ((*link)->context != context) continue;
      PostedRecv *r = *link;
      *link = r->next;
      if (tail_ == r) tail_ = before;
      --posted_;
      r->popped = true;
      return r;
    }
    return nullptr;
  }
  void release(PostedRecv *r) { pool_.give(r); }

  size_t posted() const { return posted_; }
  size_t size() const { return size_; }  // rx_attr.size
  size_t left() const { return size_ - std::min(size_, pool_.in_use()); }

  void wait(RecvWaiter &waiter) {
    if (std::ranges::find(waiters_, &waiter) == waiters_.end()) waiters_.push_back(&waiter);
  }
  void stop_waiting(RecvWaiter &waiter) { std::erase(waiters_, &waiter); }

 private:
  // Programs post receives with a null address, and stock takes them (fabtests' fi_shared_ctx):
  // they have no room.
  static size_t room_of(const iovec &v) { return v.iov_base != nullptr ? v.iov_len : 0; }

  void wake() {
    // In turn, while there are receives. A waiter that needs more waits again, behind the others.
    for (size_t n = waiters_.size(); n != 0 && head_ != nullptr && !waiters_.empty(); --n) {
      RecvWaiter *waiter = waiters_.front();
      waiters_.erase(waiters_.begin());
      waiter->on_recv_posted();
    }
  }

  const size_t size_;
  Pool<PostedRecv> pool_{SIZE_MAX};
  PostedRecv *head_ = nullptr, *tail_ = nullptr;
  size_t posted_ = 0;
  std::vector<RecvWaiter *> waiters_;
};

}  // namespace weft::sdk

#endif
