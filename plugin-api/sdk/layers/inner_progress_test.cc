// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/layers/inner_progress.h>

#include <gtest/gtest.h>

#include "plugin-api/sdk/testing/test_cq.h"

namespace weft::sdk {
namespace {

// The progress of the domain beneath.
struct Beneath : TestDomain {
  struct Counted : Poller {
    void on_poll() override { ++count; }
    int wait_fds(std::vector<int> &) override { return 0; }
    bool may_wait() override { return true; }
    int count = 0;
  };
  Beneath() { engine.add_poller(counted); }
  ~Beneath() { engine.remove_poller(counted); }
  Counted counted;
};

fi_cq_attr tagged() {
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  return attr;
}

// A layer with two queues, each read until it has nothing.
struct TwoQueues {
  size_t read(const InnerQueue &queue) {
    size_t found = 0;
    fi_cq_tagged_entry entry;
    while (progress.may_find(queue, engine)) {
      const ssize_t n = fi_cq_read(queue.cq, &entry, 1);
      if (n == -FI_EAGAIN) progress.note(engine);
      if (n < 1) break;
      ++found;
    }
    return found;
  }
  Engine engine{false};
  InnerProgress progress;
};

struct InnerProgressTest : ::testing::Test {
  Beneath beneath;
  TestCq a{beneath, tagged()}, b{beneath, tagged()};
  const InnerQueue first{a.c()}, second{b.c()};
  TwoQueues layer;
};

TEST_F(InnerProgressTest, EmptyQueuesCostOneProgress) {
  EXPECT_EQ(layer.read(first) + layer.read(second), 0u);
  EXPECT_EQ(beneath.counted.count, 1);
  layer.engine.progress();
  EXPECT_EQ(layer.read(second) + layer.read(first), 0u);
  EXPECT_EQ(beneath.counted.count, 2);
}

TEST_F(InnerProgressTest, EntriesAreReadInAnyOrder) {
  b.push(1);
  EXPECT_EQ(layer.read(first), 0u);
  b.push(2);
  EXPECT_EQ(layer.read(second), 2u);
  a.push(3);
  EXPECT_EQ(layer.read(first), 1u);
  EXPECT_EQ(beneath.counted.count, 1);
}

// Somebody's queue that passes on the commands that it does not know.
struct PassedOn {
  explicit PassedOn(fid_cq *beneath) : beneath(beneath) {
    cq.fid.fclass = FI_CLASS_CQ;
    cq.fid.ops = &ops;
    ops.control = [](fid *self, int command, void *arg) {
      return fi_control(&reinterpret_cast<PassedOn *>(self)->beneath->fid, command, arg);
    };
  }
  fid_cq cq{};
  fi_ops ops{.size = sizeof ops};
  fid_cq *const beneath;
};

TEST_F(InnerProgressTest, AQueueBetweenNeedNotKnowOfIt) {
  PassedOn between(b.c());
  const InnerQueue passed_on(&between.cq);
  EXPECT_FALSE(passed_on.may_have_entries());
  b.push(1);
  EXPECT_TRUE(passed_on.may_have_entries());
}

TEST_F(InnerProgressTest, AnErrorIsAnEntry) {
  EXPECT_EQ(layer.read(first), 0u);
  b.push_error(1);
  EXPECT_TRUE(second.may_have_entries());
  EXPECT_EQ(b.next(), -1001);
  EXPECT_FALSE(second.may_have_entries());
}

}  // namespace
}  // namespace weft::sdk
