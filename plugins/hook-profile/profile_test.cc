// SPDX-License-Identifier: BSD-2-Clause
// The hook on a real connection: the counts that other processes read, and those of fi_profile.
#include <gtest/gtest.h>
#include <rdma/fi_profile.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/diagnosis.h>

#include <filesystem>
#include <map>

#include "tests/conformance/harness.h"
#include "tests/conformance/rdm_harness.h"
#include "tools/stats/segment.h"

namespace weft::conformance {
namespace {

namespace fs = std::filesystem;

// A runtime folder for the fresh process, the same in parent and child.
std::string folder() {
  const char *given = getenv("WEFT_RUNTIME_DIR");
  if (given != nullptr) return given;
  const char *tmp = getenv("TMPDIR");
  return std::string(tmp != nullptr ? tmp : "/tmp") + "/weft-profile-test-" +
         std::to_string(getpid());
}
bool in_profiled_process(const char *sample = "FI_PROFILE_SAMPLE=1") {
  const std::string runtime = "WEFT_RUNTIME_DIR=" + folder();
  if (in_fresh_process(
          {"FI_PROVIDER=tcp", "FI_HOOK=profile", "WEFT_TEST_REQUIRED=1", runtime.c_str(), sample}))
    return true;
  EXPECT_TRUE(stats::segments(folder()).empty()) << "removed at the end of the process";
  fs::remove_all(folder());
  return false;
}

stats::Snapshot snapshot() {
  const std::vector<fs::path> paths = stats::segments(folder());
  if (paths.size() != 1) throw std::runtime_error("not one segment in " + folder());
  Result<stats::Snapshot> read = stats::read_segment(paths[0]);
  if (!read) throw std::runtime_error(read.error().text);
  EXPECT_EQ(read->pid, uint64_t(getpid()));
  EXPECT_EQ(read->lost, 0u);
  return *std::move(read);
}
// The sum of a counter over all rows of an operation (and class of peers).
uint64_t counted(const stats::Snapshot &snapshot, const char *operation, const char *counter,
                 const char *peer = nullptr) {
  uint64_t sum = 0;
  for (const stats::Row &row : snapshot.rows) {
    if (row.label("operation") == operation && (peer == nullptr || row.label("peer") == peer))
      sum += row.value(counter).value_or(0);
  }
  return sum;
}

void exchange(Pair &pair, int messages, size_t size) {
  std::vector<uint8_t> in(size), out(size);
  for (int i = 0; i < messages; ++i) {
    pair.post([&] { return fi_recv(pair.b.ep, in.data(), size, nullptr, 0, &in); });
    pair.post([&] { return fi_send(pair.a.ep, out.data(), size, nullptr, 0, &out); });
    pair.wait(pair.b.rx_cq);
    pair.wait(pair.a.tx_cq);
  }
}

TEST(Profile, OtherProcessesReadTheCounts) {
  if (!in_profiled_process()) return;
  Pair pair;
  exchange(pair, 20, 1000);
  const stats::Snapshot now = snapshot();
  EXPECT_EQ(counted(now, "send", "calls"), 20u);
  EXPECT_EQ(counted(now, "send", "bytes"), 20000u);
  EXPECT_EQ(counted(now, "send", "errors"), 0u);
  EXPECT_EQ(counted(now, "recv", "calls"), 20u);
  EXPECT_EQ(counted(now, "cq_read", "completions"), 40u);
  EXPECT_EQ(counted(now, "cq_read", "received_bytes"), 20000u);
  EXPECT_EQ(counted(now, "send", "post_samples"), 20u);
  // All operations have the same context, but no two at once. The hook measures the first; then the
  // context does not differ from that of the call before.
  EXPECT_GE(counted(now, "send", "latency_samples"), 1u);
  EXPECT_EQ(counted(now, "send", "calls", "host") + counted(now, "send", "calls", "process"), 20u);
}

TEST(Profile, SumsNeverFall) {
  if (!in_profiled_process()) return;
  Pair keeper;  // keeps the segment
  for (uint64_t round = 1; round <= 3; ++round) {
    {
      Pair pair;
      exchange(pair, 10, 10);
      EXPECT_EQ(counted(snapshot(), "send", "calls"), 10 * round);
    }
    EXPECT_EQ(counted(snapshot(), "send", "calls"), 10 * round);
  }
}

TEST(Profile, EachReadIsConsistent) {
  if (!in_profiled_process("FI_PROFILE_SAMPLE=128")) return;
  Pair pair;
  for (int i = 0; i < 50; ++i) {
    exchange(pair, 5, 64);
    for (const stats::Row &row : snapshot().rows) {
      const auto *sizes = row.histogram("size");
      if (sizes == nullptr) continue;
      EXPECT_EQ(stats::total(sizes->second), row.value("calls"));
      EXPECT_EQ(row.value("bytes"), *row.value("calls") * 64);
    }
  }
}

TEST(Profile, ApiOfAnEndpoint) {
  if (!in_profiled_process()) return;
  Pair pair;
  exchange(pair, 3, 100);
  fid_profile *profile = nullptr;
  EXPECT_EQ(fi_profile_open(&pair.a.ep->fid, 1, &profile, nullptr), -FI_EBADFLAGS);
  ASSERT_EQ(fi_profile_open(&pair.a.ep->fid, 0, &profile, &pair), 0);
  EXPECT_EQ(profile->fid.fclass, size_t{FI_CLASS_PROFILE});
  EXPECT_EQ(profile->fid.context, &pair);

  size_t count = 0;
  EXPECT_EQ(fi_profile_query_vars(profile, nullptr, &count), 0);
  ASSERT_GT(count, 20u);
  std::vector<fi_profile_desc> vars(count);
  size_t room = 5;
  EXPECT_EQ(fi_profile_query_vars(profile, vars.data(), &room), 5);
  EXPECT_EQ(room, count);
  ASSERT_EQ(fi_profile_query_vars(profile, vars.data(), &room), ssize_t(count));
  std::map<std::string, uint32_t> ids;
  for (const fi_profile_desc &var : vars) {
    EXPECT_EQ(var.datatype_sel, fi_primitive_type);
    EXPECT_EQ(var.datatype.primitive, FI_UINT64);
    EXPECT_EQ(var.size, sizeof(uint64_t));
    EXPECT_NE(var.desc, nullptr);
    EXPECT_TRUE(ids.emplace(var.name, var.id).second);
  }
  const auto read = [&](const char *name) {
    uint64_t value = 0;
    EXPECT_EQ(fi_profile_read_u64(profile, ids.at(name), &value), 0) << name;
    return value;
  };
  EXPECT_EQ(read("send_calls"), 3u);
  EXPECT_EQ(read("send_bytes"), 300u);
  EXPECT_EQ(read("recv_calls"), 0u) << "the other side posted the receives";
  uint64_t value = 0;
  EXPECT_EQ(fi_profile_read_u64(profile, FI_VAR_UNEXP_MSG_CNT, &value), -FI_EINVAL);
  size_t small = 4;
  EXPECT_EQ(profile->ops->read_var(profile, ids.at("send_calls"), &value, &small), -FI_ETOOSMALL);
  EXPECT_EQ(small, 8u);

  fi_profile_start_reads(profile, 0);
  exchange(pair, 2, 100);
  EXPECT_EQ(read("send_calls"), 3u) << "the value when the reads began";
  fi_profile_end_reads(profile, 0);
  EXPECT_EQ(read("send_calls"), 5u);
  fi_profile_reset(profile, 0);
  EXPECT_EQ(read("send_calls"), 0u);
  exchange(pair, 1, 100);
  EXPECT_EQ(read("send_bytes"), 100u);
  EXPECT_EQ(counted(snapshot(), "send", "calls"), 6u) << "a reset is for this profile object only";

  size_t events = 7;
  EXPECT_EQ(fi_profile_query_events(profile, nullptr, &events), 0);
  EXPECT_EQ(events, 0u);
  EXPECT_EQ(fi_profile_register_callback(profile, FI_EVENT_UNEXP_MSG_RECVD, nullptr, nullptr),
            -FI_EINVAL);
  EXPECT_EQ(fi_profile_close(profile), 0);
}

TEST(Profile, ApiOfADomainCountsClosedEndpoints) {
  if (!in_profiled_process()) return;
  Pair pair;
  exchange(pair, 3, 100);
  fid_profile *profile = nullptr;
  ASSERT_EQ(fi_profile_open(&pair.a.domain->fid, 0, &profile, nullptr), 0);
  constexpr uint32_t kSendCalls = 1u << 31;
  uint64_t value = 0;
  EXPECT_EQ(fi_profile_read_u64(profile, kSendCalls, &value), 0);
  EXPECT_EQ(value, 3u);
  pair.a.ep.reset();
  EXPECT_EQ(fi_profile_read_u64(profile, kSendCalls, &value), 0);
  EXPECT_EQ(value, 3u);
  EXPECT_EQ(fi_profile_close(profile), 0);
  fid_profile *none = nullptr;
  EXPECT_LT(fi_profile_open(&pair.a.tx_cq->fid, 0, &none, nullptr), 0);
}

TEST(Profile, PeersOfDatagrams) {
  const std::string runtime = "WEFT_RUNTIME_DIR=" + folder();
  if (!in_fresh_process({"FI_PROVIDER=tcp", "FI_HOOK=profile", "WEFT_TEST_STACK=tcp",
                         "WEFT_TEST_REQUIRED=1", runtime.c_str()})) {
    fs::remove_all(folder());
    return;
  }
  rdm::Net net(2);
  for (int i = 0; i < 10; ++i) net.exchange(0, 1);
  const stats::Snapshot now = snapshot();
  EXPECT_EQ(counted(now, "tsend", "calls", "process"), 10u) << "both are endpoints of this process";
  EXPECT_EQ(counted(now, "tsend", "bytes"), 1000u);
}

// In a running program, the hook counts from attach to detach.
TEST(Profile, CanBeAttachedToARunningProgram) {
  const std::string runtime = "WEFT_RUNTIME_DIR=" + folder();
  if (!in_fresh_process({"FI_PROVIDER=tcp", "WEFT_TEST_REQUIRED=1", runtime.c_str()})) {
    EXPECT_TRUE(stats::segments(folder()).empty());
    fs::remove_all(folder());
    return;
  }
  struct fid *weft = nullptr;
  weft_diagnosis_ops *ops = nullptr;
  must(fi_open(fi_version(), WEFT_DIAGNOSIS, nullptr, 0, 0, &weft, nullptr));
  must(fi_open_ops(weft, WEFT_DIAGNOSIS_OPS, 0, reinterpret_cast<void **>(&ops), nullptr));
  Pair pair;
  exchange(pair, 5, 100);
  EXPECT_TRUE(stats::segments(folder()).empty());
  must(ops->attach_hook(weft, pair.a.fabric.fid(), "profile", nullptr));
  exchange(pair, 7, 100);
  EXPECT_EQ(counted(snapshot(), "send", "calls"), 7u);
  EXPECT_EQ(counted(snapshot(), "send", "latency_samples"), 0u)
      << "the hook does not know the endpoint's queue";
  must(ops->detach_hook(weft, pair.a.fabric.fid(), "profile", nullptr));
  exchange(pair, 3, 100);
  EXPECT_EQ(counted(snapshot(), "send", "calls"), 7u) << "the counts can still be read";
  must(ops->attach_hook(weft, pair.a.fabric.fid(), "profile", nullptr));
  exchange(pair, 2, 100);
  EXPECT_EQ(counted(snapshot(), "send", "calls"), 9u);
  must(ops->detach_hook(weft, pair.a.fabric.fid(), "profile", nullptr));
  fi_close(weft);
}

// The next reader removes the segment of a killed process.
TEST(Profile, ReadersRemoveAbandonedSegments) {
  if (!in_profiled_process()) return;
  Child child([](int socket) {
    Pair pair;
    exchange(pair, 1, 1);
    tell(socket, 1);
    hear(socket);  // does not come
  });
  hear(child.socket());
  const std::vector<fs::path> alive = stats::segments(folder());
  ASSERT_EQ(alive.size(), 1u);
  child.kill();
  EXPECT_TRUE(until([&] { return stats::segments(folder()).empty(); }, {}));
  EXPECT_FALSE(fs::exists(alive[0]));
}

}  // namespace
}  // namespace weft::conformance
