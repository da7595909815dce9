// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/transfers/recv_queue.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

namespace weft::sdk::recv_queue_test {
namespace {

void *ctx(size_t i) {
  return reinterpret_cast<void *>(i);
}

// Posts a receive of one vector; its context is its number.
ssize_t post(RecvQueue &queue, size_t i, uint64_t flags = 0) {
  static char memory[64];
  const iovec iov{memory, 64};
  return queue.post(&iov, 1, ctx(i), flags);
}

size_t pop(RecvQueue &queue) {
  if (queue.front() == nullptr) return 0;
  PostedRecv *r = queue.pop();
  EXPECT_TRUE(r->popped);
  const auto i = reinterpret_cast<size_t>(r->context);
  queue.release(r);
  return i;
}

TEST(RecvQueue, IsInOrderOfPosting) {
  RecvQueue queue(10);
  EXPECT_EQ(queue.front(), nullptr);
  for (size_t i = 1; i <= 5; ++i) EXPECT_EQ(post(queue, i), 0);
  EXPECT_EQ(queue.posted(), 5u);
  EXPECT_EQ(queue.left(), 5u);
  EXPECT_EQ(pop(queue), 1u);
  EXPECT_EQ(post(queue, 6), 0);
  for (size_t i = 2; i <= 6; ++i) EXPECT_EQ(pop(queue), i);
  EXPECT_EQ(pop(queue), 0u);
  EXPECT_EQ(queue.posted(), 0u);
  EXPECT_EQ(post(queue, 7), 0) << "an empty queue fills again";
  EXPECT_EQ(pop(queue), 7u);
}

TEST(RecvQueue, KeepsWhatWasPosted) {
  RecvQueue queue(10);
  char memory[32];
  const iovec iov[kIovLimit + 1] = {
      {memory, 1}, {memory + 8, 0}, {memory + 16, 5}, {memory, 2}, {}};
  EXPECT_EQ(queue.post(iov, kIovLimit, ctx(3), FI_COMPLETION), 0);
  const PostedRecv *r = queue.front();
  EXPECT_EQ(r->context, ctx(3));
  EXPECT_EQ(r->flags, uint64_t(FI_COMPLETION));
  EXPECT_EQ(r->count, kIovLimit);
  EXPECT_EQ(r->length, 8u);
  EXPECT_EQ(r->capacity, 8u);
  EXPECT_EQ(r->iov[2].iov_base, memory + 16);
  EXPECT_FALSE(r->popped);
  EXPECT_EQ(queue.post(iov, kIovLimit + 1, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(queue.post(nullptr, 1, nullptr, 0), -FI_EINVAL);
  const iovec endless[2] = {{memory, SIZE_MAX}, {memory, 1}};
  EXPECT_EQ(queue.post(endless, 2, nullptr, 0), -FI_EINVAL);
  const iovec nowhere{nullptr, 1};
  EXPECT_EQ(queue.post(&nowhere, 1, nullptr, FI_MULTI_RECV), -FI_EINVAL);
  EXPECT_EQ(queue.post(iov, 2, nullptr, FI_MULTI_RECV), -FI_EINVAL) << "one vector or none";
  EXPECT_EQ(queue.post(nullptr, 0, nullptr, FI_MULTI_RECV), -FI_EINVAL);
  EXPECT_EQ(queue.posted(), 1u);
  EXPECT_EQ(queue.remove(nullptr), nullptr);
  EXPECT_EQ(queue.post(nullptr, 0, nullptr, 0), 0) << "a receive of zero bytes";
  pop(queue);
  EXPECT_EQ(queue.front()->length, 0u);
  pop(queue);
  EXPECT_EQ(queue.post(&nowhere, 1, nullptr, 0), 0) << "fi_shared_ctx of fabtests does so";
  EXPECT_EQ(queue.front()->length, 0u) << "nothing is ever written there";
  EXPECT_EQ(queue.front()->iov[0].iov_len, 0u);
}

TEST(RecvQueue, TakesMoreThanItsSize) {
  RecvQueue queue(3);
  EXPECT_EQ(queue.size(), 3u);
  for (size_t i = 1; i <= 100; ++i) EXPECT_EQ(post(queue, i), 0);
  EXPECT_EQ(queue.left(), 0u);
  for (size_t i = 1; i <= 98; ++i) EXPECT_EQ(pop(queue), i);
  EXPECT_EQ(queue.left(), 1u);
}

TEST(RecvQueue, ARecycledReceiveKeepsNothingOfTheFormer) {
  RecvQueue queue(1);
  EXPECT_EQ(post(queue, 1, FI_MULTI_RECV), 0);
  PostedRecv *r = queue.pop();
  r->users = 5;
  r->length = 1;
  queue.release(r);
  EXPECT_EQ(post(queue, 2), 0);
  EXPECT_EQ(queue.front(), r);
  EXPECT_EQ(r->users, 0u);
  EXPECT_EQ(r->length, 64u);
  EXPECT_EQ(r->flags, 0u);
  EXPECT_FALSE(r->popped);
  EXPECT_EQ(r->next, nullptr);
}

TEST(RecvQueue, AMultiReceiveBufferStaysUntilItIsPopped) {
  RecvQueue queue(4);
  EXPECT_EQ(post(queue, 1, FI_MULTI_RECV), 0);
  EXPECT_EQ(post(queue, 2), 0);
  PostedRecv *r = queue.front();
  // Two messages, as an endpoint places them.
  for (const size_t length : {40, 20}) {
    r->iov[0] = {static_cast<char *>(r->iov[0].iov_base) + length, r->iov[0].iov_len - length};
    r->length -= length;
    EXPECT_EQ(queue.front(), r);
  }
  EXPECT_EQ(r->capacity, 64u);
  EXPECT_EQ(r->length, 4u);
  EXPECT_EQ(queue.pop(), r);
  queue.release(r);
  EXPECT_EQ(pop(queue), 2u);
}

TEST(RecvQueueRemove, FindsTheOldestWithTheContext) {
  for (size_t gone = 1; gone <= 4; ++gone) {
    RecvQueue queue(10);
    for (size_t i = 1; i <= 4; ++i) EXPECT_EQ(post(queue, i), 0);
    EXPECT_EQ(queue.remove(ctx(9)), nullptr);
    PostedRecv *r = queue.remove(ctx(gone));
    ASSERT_NE(r, nullptr);
    EXPECT_TRUE(r->popped);
    queue.release(r);
    EXPECT_EQ(queue.remove(ctx(gone)), nullptr);
    EXPECT_EQ(queue.posted(), 3u);
    EXPECT_EQ(post(queue, 5), 0) << "behind the last, whichever that is now";
    for (size_t i = 1; i <= 5; ++i) {
      if (i != gone) {
        EXPECT_EQ(pop(queue), i);
      }
    }
    EXPECT_EQ(pop(queue), 0u);
  }
  RecvQueue queue(10);
  EXPECT_EQ(post(queue, 1), 0);
  queue.release(queue.remove(ctx(1)));
  EXPECT_EQ(queue.front(), nullptr);
  EXPECT_EQ(post(queue, 1, 10), 0);
  EXPECT_EQ(post(queue, 1, 20), 0);
  PostedRecv *r = queue.remove(ctx(1));
  EXPECT_EQ(r->flags, 10u);
  queue.release(r);
}

// An endpoint whose input is stalled: it needs `needs` receives.
class Stalled final : public RecvWaiter {
 public:
  Stalled(RecvQueue &queue, std::string &order, char name, size_t needs = 1)
      : queue_(queue), order_(order), name_(name), needs_(needs) {
    queue_.wait(*this);
  }
  ~Stalled() { queue_.stop_waiting(*this); }
  void on_recv_posted() override {
    order_ += name_;
    if (then) then();
    while (needs_ != 0 && pop(queue_) != 0) --needs_;
    if (needs_ != 0) queue_.wait(*this);
  }
  std::function<void()> then;

 private:
  RecvQueue &queue_;
  std::string &order_;
  const char name_;
  size_t needs_;
};

TEST(RecvQueueWait, WaitersAreCalledInTurn) {
  RecvQueue queue(10);
  std::string order;
  Stalled a(queue, order, 'a'), b(queue, order, 'b', 2), c(queue, order, 'c');
  queue.wait(a);  // a second call changes nothing
  EXPECT_EQ(order, "");
  EXPECT_EQ(post(queue, 1), 0);
  EXPECT_EQ(order, "a") << "no receive is left for the others";
  EXPECT_EQ(post(queue, 2), 0);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(post(queue, 3), 0);
  EXPECT_EQ(order, "abc") << "b needs more and waits behind c";
  EXPECT_EQ(post(queue, 4), 0);
  EXPECT_EQ(order, "abcb");
  EXPECT_EQ(post(queue, 5), 0);
  EXPECT_EQ(order, "abcb");
  EXPECT_EQ(queue.posted(), 1u);
}

TEST(RecvQueueWait, AllWaitersAreCalledWhereThereIsEnough) {
  // A multi-receive buffer, which stays posted.
  RecvQueue queue(10);
  std::string order;
  Stalled a(queue, order, 'a', 0), b(queue, order, 'b', 0), c(queue, order, 'c', 0);
  EXPECT_EQ(post(queue, 1, FI_MULTI_RECV), 0);
  EXPECT_EQ(order, "abc");
}

TEST(RecvQueueWait, AWaiterThatWaitsAgainIsCalledOncePerPost) {
  RecvQueue queue(10);
  std::string order;
  Stalled a(queue, order, 'a', 0), b(queue, order, 'b', 0);
  a.then = [&] { queue.wait(a); };
  EXPECT_EQ(post(queue, 1), 0);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(post(queue, 2), 0);
  EXPECT_EQ(order, "aba");
}

TEST(RecvQueueWait, AWaiterMayDestroyAnother) {
  RecvQueue queue(10);
  std::string order;
  auto a = std::make_unique<Stalled>(queue, order, 'a', 0);
  auto b = std::make_unique<Stalled>(queue, order, 'b');
  auto c = std::make_unique<Stalled>(queue, order, 'c');
  a->then = [&] { b.reset(); };
  EXPECT_EQ(post(queue, 1), 0);
  EXPECT_EQ(order, "ac");
  a.reset();
  c.reset();
  EXPECT_EQ(post(queue, 2), 0);
  EXPECT_EQ(order, "ac");
}

}  // namespace
}  // namespace weft::sdk::recv_queue_test
