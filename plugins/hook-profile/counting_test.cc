// SPDX-License-Identifier: BSD-2-Clause
// Buckets, records and counting without a provider.
#include "plugins/hook-profile/counting.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

namespace weft::profile {
namespace {

TEST(Buckets, StartsAndValuesAgree) {
  for (const uint32_t sub_bits : {0u, 2u, 3u}) {
    const uint32_t count = buckets_to(36, sub_bits);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t start = bucket_start(i, sub_bits);
      EXPECT_EQ(bucket_of(start, sub_bits, count), i);
      EXPECT_EQ(bucket_of(bucket_start(i + 1, sub_bits) - 1, sub_bits, count), i);
    }
    EXPECT_EQ(bucket_start(count, sub_bits), uint64_t{1} << 36);
    EXPECT_EQ(bucket_of(UINT64_MAX, sub_bits, count), count - 1);
  }
  EXPECT_EQ(bucket_start(UINT32_MAX, 2), UINT64_MAX);
}

TEST(Buckets, AreNarrow) {
  for (uint32_t i = 1 << kTimeSubBits; i < kTimeBuckets; ++i) {
    const auto start = static_cast<double>(bucket_start(i, kTimeSubBits));
    EXPECT_LE(static_cast<double>(bucket_start(i + 1, kTimeSubBits)), start * 1.126);
  }
}

sockaddr_in address(uint32_t host, uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(host);
  in.sin_port = htons(port);
  return in;
}

TEST(Peers, Classes) {
  const sockaddr_in mine = address(INADDR_LOOPBACK, 5000), other = address(INADDR_LOOPBACK, 5001),
                    far = address(0xc0000201, 5000);  // 192.0.2.1, a documentation address
  const std::vector<std::string> own = {
      std::string(reinterpret_cast<const char *>(&mine), sizeof mine)};
  EXPECT_EQ(peer_class(&mine, sizeof mine, own), kProcess);
  EXPECT_EQ(peer_class(&mine, sizeof mine, {}), kHost);
  EXPECT_EQ(peer_class(&other, sizeof other, own), kHost);
  EXPECT_EQ(peer_class(&far, sizeof far, own), kRemote);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  EXPECT_EQ(peer_class(&v6, sizeof v6, own), kHost);
  EXPECT_EQ(peer_class(&v6, sizeof(sockaddr_in), own), kAny) << "cut off";
  EXPECT_EQ(peer_class("some text that is no address", 28, own), kAny);
  EXPECT_EQ(peer_class(&mine, 3, own), kAny);
}

TEST(PeerTable, KeepsAndForgets) {
  PeerTable table;
  EXPECT_EQ(table.find(5000), -1);
  table.keep(5000, kRemote);
  EXPECT_EQ(table.find(5000), kRemote);
  EXPECT_EQ(table.find(5001), -1);
  table.forget(5000);
  EXPECT_EQ(table.find(5000), -1);
  EXPECT_EQ(table.find(FI_ADDR_UNSPEC), kAny) << "beyond the table";
  table.keep(FI_ADDR_UNSPEC, kRemote);
  table.forget(FI_ADDR_UNSPEC);
}

// A segment in a folder of its own.
class SegmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/profile-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    setenv("WEFT_RUNTIME_DIR", folder, 1);
  }
  void TearDown() override {
    unsetenv("WEFT_RUNTIME_DIR");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path file() const { return folder_ / (std::to_string(getpid()) + ".profile"); }
  static Labels labels(uint64_t object) {
    Labels labels{};
    labels.object = object;
    std::strcpy(labels.element, "test");
    return labels;
  }
  std::filesystem::path folder_;
};

TEST_F(SegmentTest, IsMadeAndRemoved) {
  std::string why;
  {
    const auto segment = Segment::open(1 << 20, why);
    EXPECT_EQ(why, "");
    EXPECT_EQ(segment->path(), file());
    EXPECT_TRUE(std::filesystem::exists(file()));
    EXPECT_EQ(std::filesystem::status(file()).permissions(), std::filesystem::perms(0600));
  }
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(SegmentTest, RemovesTheSegmentOfADeadProcess) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::string why;
    const auto segment = Segment::open(1 << 20, why);
    _exit(segment->path() == file() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const auto left = folder_ / (std::to_string(child) + ".profile");
  ASSERT_TRUE(std::filesystem::exists(left));
  std::string why;
  const auto segment = Segment::open(1 << 20, why);
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(file()));
}

TEST_F(SegmentTest, IsPrivateWithoutAFile) {
  setenv("WEFT_RUNTIME_DIR", "/proc/no-such-folder", 1);
  std::string why;
  const auto segment = Segment::open(1 << 20, why);
  EXPECT_NE(why.find("/proc/no-such-folder"), std::string::npos) << why;
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(segment->path(), "");
  EXPECT_NE(segment->operation(labels(1)), nullptr);
}

TEST_F(SegmentTest, GivesNoRecordWhenItIsFull) {
  std::string why;
  const auto segment = Segment::open(256 << 10, why);
  std::vector<OperationRecord *> records;
  while (OperationRecord *record = segment->operation(labels(records.size() + 1)))
    records.push_back(record);
  EXPECT_GT(records.size(), 30u);
  EXPECT_LT(records.size(), 60u);
  // Closed objects share a record; their own records are used again.
  for (OperationRecord *record : records) {
    bump(record->calls, 2);
    segment->retire(record);
  }
  EXPECT_EQ(records[0]->calls, 2 * records.size());
  EXPECT_EQ(records[0]->labels.object, 0u);
  EXPECT_EQ(records[0]->head.live, 1u);
  for (size_t i = 1; i < records.size(); ++i) EXPECT_EQ(records[i]->head.live, 0u);
  for (size_t i = 1; i < records.size(); ++i) {
    OperationRecord *record = segment->operation(labels(1));
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->calls, 0u);
  }
  EXPECT_EQ(segment->operation(labels(1)), nullptr);
}

class TestSource final : public Source {
 public:
  explicit TestSource(Segment &segment) : segment_(segment) {}
  OperationRecord *operation(Operation operation, PeerClass peer) override {
    Labels labels{};
    labels.object = 1;
    std::snprintf(labels.operation, sizeof labels.operation, "%s", kOperationNames[operation]);
    std::snprintf(labels.peer, sizeof labels.peer, "%s", peer_name(peer));
    last = segment_.operation(labels);
    return last;
  }
  void unused(OperationRecord *record) override { segment_.retire(record); }
  PeerClass peer(fi_addr_t) override { return kHost; }
  OperationRecord *last = nullptr;

 private:
  Segment &segment_;
};

TEST_F(SegmentTest, CountsResultsSizesAndTimes) {
  std::string why;
  const auto segment = Segment::open(1 << 20, why);
  TestSource source(*segment);
  Endpoint endpoint(source, 2);
  const auto call = [&](ssize_t rc, uint64_t size) {
    return endpoint.count(
        kSend, 0, nullptr, [&] { return rc; }, [&] { return size; });
  };
  EXPECT_EQ(call(0, 100), 0);
  EXPECT_EQ(call(0, 0), 0);
  EXPECT_EQ(call(-FI_EAGAIN, 1), -FI_EAGAIN);
  EXPECT_EQ(call(-FI_ENOMEM, 1), -FI_ENOMEM);
  const OperationRecord &record = *source.last;
  EXPECT_STREQ(record.labels.peer, "host");
  EXPECT_EQ(record.calls, 2u);
  EXPECT_EQ(record.bytes, 100u);
  EXPECT_EQ(record.again, 1u);
  EXPECT_EQ(record.errors, 1u);
  EXPECT_EQ(record.size[0], 1u);
  EXPECT_EQ(record.size[bucket_of(100, kSizeSubBits, kSizeBuckets)], 1u);
  EXPECT_EQ(record.post_samples, 1u) << "one call of two is measured, if it succeeds";
  EXPECT_EQ(record.head.sequence % 2, 0u);
  endpoint.retire(*segment);
}

TEST_F(SegmentTest, CountsOfSeveralThreadsAddUp) {
  std::string why;
  const auto segment = Segment::open(1 << 20, why);
  TestSource source(*segment);
  Endpoint endpoint(source, 16);
  auto queue = std::make_shared<Queue>(segment, labels(2));
  queue->set_format(FI_CQ_FORMAT_CONTEXT);
  endpoint.set_queue(false, queue);
  constexpr int kThreads = 4, kCalls = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uintptr_t i = 1; i <= kCalls; ++i) {
        fi_cq_entry entry{reinterpret_cast<void *>(i * kThreads + static_cast<uintptr_t>(t))};
        endpoint.count(
            kSend, 0, entry.op_context, [] { return ssize_t{0}; }, [] { return uint64_t{3}; });
        queue->count(1, &entry);
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  const Endpoint::Sums sums = endpoint.sums(kSend);
  EXPECT_EQ(sums.calls, uint64_t{kThreads * kCalls});
  EXPECT_EQ(sums.bytes, uint64_t{3 * kThreads * kCalls});
  endpoint.retire(*segment);
  queue->retire();
}

TEST_F(SegmentTest, FollowsAnOperationToItsCompletion) {
  std::string why;
  const auto segment = Segment::open(1 << 20, why);
  TestSource source(*segment);
  Endpoint endpoint(source, 1);
  auto queue = std::make_shared<Queue>(segment, labels(2));
  queue->set_format(FI_CQ_FORMAT_MSG);
  endpoint.set_queue(false, queue);
  const auto post = [&](void *context) {
    endpoint.count(
        kSend, 0, context, [] { return ssize_t{0}; }, [] { return uint64_t{8}; });
  };
  int a, b, other;
  post(&a);
  post(&b);
  fi_cq_msg_entry entries[2] = {{&other, FI_RECV, 50}, {&b, FI_SEND, 0}};
  queue->count(2, entries);
  EXPECT_EQ(source.last->latency_samples, 1u);
  queue->count_error(1, &a);  // a failed operation has no latency
  EXPECT_EQ(source.last->latency_samples, 1u);
  post(&a);
  post(&a);  // two operations with one context: a completion does not tell which
  fi_cq_msg_entry again = {&a, FI_SEND, 0};
  queue->count(1, &again);
  queue->count(1, &again);
  EXPECT_EQ(source.last->latency_samples, 2u);
  post(nullptr);
  fi_cq_msg_entry none = {nullptr, FI_SEND, 0};
  queue->count(1, &none);
  EXPECT_EQ(source.last->latency_samples, 2u);
  endpoint.retire(*segment);
  queue->retire();
}

}  // namespace
}  // namespace weft::profile
