// SPDX-License-Identifier: BSD-2-Clause
// Reading segments that plugins/hook-profile writes, and damaged ones.
#include "tools/stats/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugins/hook-profile/segment.h"
#include "tools/stats/lines.h"
#include "tools/stats/output.h"

namespace weft::stats {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Segments : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/stats-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    setenv("WEFT_RUNTIME_DIR", folder, 1);
    std::string why;
    segment_ = profile::Segment::open(1 << 20, why);
    ASSERT_EQ(why, "");
  }
  void TearDown() override {
    segment_ = nullptr;
    unsetenv("WEFT_RUNTIME_DIR");
    fs::remove_all(folder_);
  }
  static profile::Labels labels(uint64_t object, const char *peer = "host") {
    profile::Labels labels{};
    labels.object = object;
    std::strcpy(labels.element, "tcp");
    std::strcpy(labels.operation, "send");
    std::strcpy(labels.peer, peer);
    return labels;
  }
  Snapshot snapshot() {
    Result<Snapshot> read = read_segment(fs::path(segment_->path()));
    EXPECT_TRUE(read) << (read ? "" : read.error().text);
    return read ? *std::move(read) : Snapshot{};
  }
  std::string bytes() {
    std::ifstream file(segment_->path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static Result<Snapshot> read_bytes(const std::string &bytes) {
    return read_segment([&](uint64_t offset, void *to, size_t size) {
      if (offset > bytes.size() || size > bytes.size() - offset) return false;
      std::memcpy(to, bytes.data() + offset, size);
      return true;
    });
  }

  fs::path folder_;
  std::shared_ptr<profile::Segment> segment_;
};

TEST_F(Segments, SumsRecordsWithTheSameLabels) {
  for (const uint64_t object : {3, 3, 4}) {
    profile::OperationRecord *record = segment_->operation(labels(object));
    profile::bump(record->calls, 2);
    profile::bump(record->bytes, 200);
    profile::bump(record->size[profile::bucket_of(100, 2, profile::kSizeBuckets)], 2);
  }
  const Snapshot now = snapshot();
  EXPECT_EQ(now.pid, uint64_t(getpid()));
  ASSERT_EQ(now.rows.size(), 2u);
  EXPECT_EQ(now.rows[0].label("object"), "3");
  EXPECT_EQ(now.rows[0].value("calls"), 4u);
  EXPECT_EQ(now.rows[1].value("calls"), 2u);
  EXPECT_EQ(now.rows[0].value("nonsense"), std::nullopt);
  const std::vector<Row> all = merged(now.rows, {"object"});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].value("bytes"), 600u);
  const auto *sizes = all[0].histogram("size");
  ASSERT_NE(sizes, nullptr);
  EXPECT_EQ(total(sizes->second), 6u);
  EXPECT_NEAR(quantile(*sizes->first, sizes->second, 0.5), 100, 13);
  EXPECT_EQ(sizes->first->unit, "bytes");
  EXPECT_EQ(sizes->first->sum, "bytes");
}

TEST_F(Segments, ClosedObjectsKeepTheirCounts) {
  profile::OperationRecord *first = segment_->operation(labels(1));
  profile::OperationRecord *second = segment_->operation(labels(2));
  profile::bump(first->calls, 5);
  profile::bump(second->calls, 6);
  segment_->retire(first);
  segment_->retire(second);
  const Snapshot now = snapshot();
  ASSERT_EQ(now.rows.size(), 1u);
  EXPECT_EQ(now.rows[0].label("object"), "0");
  EXPECT_EQ(now.rows[0].value("calls"), 11u);
}

// A reader at the same time as a writer: the counters of a record are read as of one moment.
TEST_F(Segments, ReadersSeeWholeRecords) {
  profile::OperationRecord *record = segment_->operation(labels(1));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) {
      for (int i = 0; i < 100; ++i) {
        profile::write(record->head, [&] {
          profile::bump(record->calls, 1);
          profile::bump(record->bytes, 7);
          profile::bump(record->size[7], 1);
        });
      }
      std::this_thread::yield();
    }
  });
  uint64_t last = 0;
  int whole = 0;
  for (int i = 0; i < 300; ++i) {
    const Snapshot now = snapshot();
    if (now.torn) continue;
    ++whole;
    const uint64_t calls = *now.rows.at(0).value("calls");
    EXPECT_EQ(now.rows[0].value("bytes"), calls * 7);
    EXPECT_EQ(total(now.rows[0].histogram("size")->second), calls);
    EXPECT_GE(calls, last);
    last = calls;
  }
  stop = true;
  writer.join();
  EXPECT_GT(whole, 0);
}

TEST_F(Segments, AbandonedOnesAreRemoved) {
  const fs::path dead = folder_ / "999999.profile", draft = folder_ / "999999.profile.new",
                 other = folder_ / "notes.profile", more = folder_ / "12x.profile";
  for (const fs::path &path : {dead, draft, other, more}) std::ofstream(path) << "?";
  const std::vector<fs::path> found = segments(folder_);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], segment_->path());
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(other)) << "not ours";
  EXPECT_TRUE(fs::exists(more)) << "not ours";
  EXPECT_TRUE(segments(folder_ / "nothing").empty());
}

TEST_F(Segments, DamageIsAnError) {
  segment_->operation(labels(1));
  const std::string good = bytes();
  ASSERT_TRUE(read_bytes(good));
  EXPECT_THAT(read_bytes("").error().text, HasSubstr("no segment"));
  EXPECT_THAT(read_bytes(good.substr(0, 300)).error().text, HasSubstr("ends before"));
  const auto with = [&](size_t offset, uint64_t value, size_t size) {
    std::string bad = good;
    std::memcpy(bad.data() + offset, &value, size);
    const Result<Snapshot> read = read_bytes(bad);
    return read ? "" : read.error().text;
  };
  profile::Header head;
  std::memcpy(&head, good.data(), sizeof head);
  EXPECT_THAT(with(offsetof(profile::Header, version), 9, 4), HasSubstr("version 9"));
  EXPECT_THAT(with(offsetof(profile::Header, type_count), 1u << 30, 4), HasSubstr("damaged"));
  EXPECT_THAT(with(offsetof(profile::Header, used), 1ull << 60, 8), HasSubstr("damaged"));
  EXPECT_THAT(with(offsetof(profile::Header, used), head.size + 64, 8), HasSubstr("damaged"));
  EXPECT_THAT(with(head.types + offsetof(profile::TypeEntry, first_field), 1u << 31, 4),
              HasSubstr("type 0"));
  EXPECT_THAT(with(head.fields + offsetof(profile::FieldEntry, offset), 1u << 31, 4),
              HasSubstr("field 0"));
  EXPECT_THAT(with(head.records + offsetof(profile::Record, size), 0, 4), HasSubstr("record at"));
}

// Many types whose many fields overlap would give gigabytes of rows.
TEST_F(Segments, FieldsTakeNoMoreThanTheirRecord) {
  segment_->operation(labels(1));
  std::string bad = bytes();
  profile::Header head;
  std::memcpy(&head, bad.data(), sizeof head);
  profile::TypeEntry type;
  std::memcpy(&type, bad.data() + head.types, sizeof type);
  ASSERT_GT(type.field_count, 1u);
  for (uint32_t f = 0; f < type.field_count; ++f) {
    char *at = bad.data() + head.fields + size_t{type.first_field + f} * head.field_size;
    profile::FieldEntry field;
    std::memcpy(&field, at, sizeof field);
    field.kind = profile::kHistogram;
    field.type = profile::kU64;
    field.offset = sizeof(profile::Record);
    field.count = (type.record_size - field.offset) / 8;
    std::memcpy(at, &field, sizeof field);
  }
  EXPECT_THAT(read_bytes(bad).error().text,
              HasSubstr("field 1 of type 0 of the segment is damaged"));
}

// Any number in any field: the reader refuses the segment or reads it, and ends.
TEST_F(Segments, AFieldMayHoldAnyNumber) {
  segment_->operation(labels(1));
  segment_->operation(labels(2, "other"));
  const std::string good = bytes();
  profile::Header head;
  std::memcpy(&head, good.data(), sizeof head);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGALRM, &action, nullptr);
  std::string bad = good;
  for (size_t at = 0; at + 8 <= head.records + 256; at += 4 * sdk::kRoundsDivisor) {
    alarm(100);
    for (const size_t width : {4, 8}) {
      const uint64_t all = width == 4 ? UINT32_MAX : UINT64_MAX;
      for (const uint64_t value : {uint64_t{0}, uint64_t{1}, all, all - 1, all / 2, all / 2 + 1}) {
        std::memcpy(bad.data() + at, &value, width);
        const Result<Snapshot> read = read_bytes(bad);
        if (read) (void)lines_of(since({*read}, {*read}), 1);
        if (read && at % 32 == 0) (void)prometheus({*read});
      }
    }
    std::memcpy(bad.data() + at, good.data() + at, 8);
  }
  alarm(0);
}

TEST_F(Segments, WriterThatNeverEndsDoesNotHangAReader) {
  profile::OperationRecord *record = segment_->operation(labels(1));
  std::atomic_ref<uint32_t>(record->head.sequence).fetch_add(1);
  EXPECT_TRUE(snapshot().torn);
  std::string bytes = this->bytes();
  bytes[offsetof(profile::Header, structure)] |= 1;
  const Result<Snapshot> read = read_bytes(bytes);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->torn);
  EXPECT_EQ(read->rows.size(), 1u);
}

TEST_F(Segments, JsonAndPrometheus) {
  profile::OperationRecord *record = segment_->operation(labels(1, "we\"ird\\\n\xff"));
  profile::bump(record->calls, 1);
  profile::bump(record->bytes, 100);
  profile::bump(record->size[profile::bucket_of(100, 2, profile::kSizeBuckets)], 1);
  profile::bump(record->post_samples, 1);
  profile::bump(record->post_ns, 1500);
  profile::bump(record->post[profile::bucket_of(1500, 3, profile::kTimeBuckets)], 1);
  const Snapshot now = snapshot();
  const auto json = to_json(now);
  EXPECT_EQ(json["records"][0]["values"]["calls"], 1);
  EXPECT_EQ(json["records"][0]["labels"]["object"], 1);
  EXPECT_EQ(json["records"][0]["histograms"]["size"]["sum"], 100);
  EXPECT_EQ(json["records"][0]["histograms"]["size"]["buckets"][0]["from"], 96);

  const std::string text = prometheus({now, now});
  EXPECT_THAT(text, HasSubstr("# TYPE weft_operation_calls_total counter\n"));
  EXPECT_THAT(text, HasSubstr(R"(peer="we\"ird\\ \\xff")"));
  EXPECT_THAT(text, HasSubstr("# TYPE weft_operation_size_bytes histogram\n"));
  EXPECT_THAT(text, HasSubstr(",le=\"127\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weft_operation_size_bytes_sum{"));
  EXPECT_THAT(text, HasSubstr("# TYPE weft_operation_post_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("} 1.5e-06\n"));
  EXPECT_EQ(text.find("# TYPE weft_operation_calls_total"),
            text.rfind("# TYPE weft_operation_calls_total"))
      << "once, however many processes there are";
}

}  // namespace
}  // namespace weft::stats
