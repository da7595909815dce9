// SPDX-License-Identifier: BSD-2-Clause
// Timelines: links, pairs, limits; reports and conversions. Trace files: plugins/hook-trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "tools/trace/convert.h"
#include "tools/trace/deadline.h"
#include "tools/trace/perfetto.pb.h"
#include "tools/trace/report.h"
#include "tools/trace/snapshot.h"
#include "tools/trace/timeline.h"

namespace weft::trace {
namespace {

using testing::HasSubstr;

// ---- files ----

// A reader that looks while the hook makes a file sees it without a magic number, or empty.
TEST(TraceFiles, OneThatAProcessStillMakesIsNotThereYet) {
  std::string folder = testing::TempDir() + "weft-trace-files-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  setenv("WEFT_RUNTIME_DIR", folder.c_str(), 1);
  const auto make = [&](const std::string &name, const std::string &content) {
    std::ofstream(folder + "/" + name, std::ios::binary) << content;
    return folder + "/" + name;
  };
  const std::string own = std::to_string(getpid());
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  make(own + ".trace", "");
  make(own + ".1.trace", std::string(100, '\0'));
  const std::string torn = make(own + ".2.trace", "something else");
  const std::string left = make(std::to_string(child) + ".trace", "");  // its process was killed
  const std::string strange = make("notes.trace", "");
  const auto files = trace_files();
  unsetenv("WEFT_RUNTIME_DIR");
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(files);
  EXPECT_THAT(*files, testing::UnorderedElementsAre(torn, left, strange));
}

// A saved trace may be anybody's.
TEST(TraceFiles, NoTextOfOneControlsTheTerminal) {
  const std::string bad = "\x1b]0;title\x07\xc2\x9b\x7f\nline";
  Snapshot process;
  process.pid = 7;
  process.host = process.program = process.arguments = process.boot_id = bad;
  process.addresses.push_back({1, 2, bad});
  ObjectInfo &object = process.objects.emplace_back();
  object.id = 1;
  object.fclass = FI_CLASS_EP;
  object.element = object.stack = object.address = object.peer = bad;
  ThreadInfo &thread = process.threads.emplace_back();
  thread.name = bad;
  thread.written = 1;
  thread.records.push_back({.begin = 1, .object = 1, .peer = kNoPeer, .op = uint16_t(Op::send)});
  const auto read = parse_saved(to_saved({process}));
  ASSERT_TRUE(read);
  const Timeline timeline = build_timeline(*read);
  std::string shown = to_text(make_report(timeline, {}));
  for (const Form form : {Form::kChrome, Form::kCsv}) {
    std::ostringstream out;
    write_trace(timeline, form, out);
    shown += out.str();
  }
  EXPECT_THAT(shown, HasSubstr("\\x1b]0;title\\x07\\xc2\\x9b\\x7f line"));
  EXPECT_EQ(shown.find_first_of("\x1b\x07\x7f\r\x9b"), std::string::npos);
}

// ---- limits ----

// A file may say that all endpoints have one address, and that all of them sent to it.
TEST(Timeline, PairsThatTakeTooLongAreLeftOut) {
  Snapshot process;
  process.pid = 1;
  process.boot_id = "boot";
  process.lost_records = 1;
  ThreadInfo &thread = process.threads.emplace_back();
  constexpr uint32_t kMany = sdk::rounds(60'000);
  for (uint32_t i = 1; i <= kMany; ++i) {
    ObjectInfo &object = process.objects.emplace_back();
    object.id = i;
    object.fclass = FI_CLASS_EP;
    object.ep_type = FI_EP_RDM;
    object.element = "tcp";
    object.address = "10.0.0.1:5";
    object.av = 7;
    object.tx_cq = object.rx_cq = kMany + 1;
    process.addresses.push_back({7, i, "10.0.0.1:5"});
    thread.records.push_back({.begin = i,
                              .context = i,
                              .size = 8,
                              .object = i,
                              .peer = i,
                              .op = uint16_t(Op::send),
                              .fclass = FI_CLASS_EP});
    thread.records.push_back({.begin = i,
                              .context = kMany + i,
                              .size = 8,
                              .object = i,
                              .peer = kNoPeer,
                              .op = uint16_t(Op::recv),
                              .fclass = FI_CLASS_EP});
    thread.records.push_back({.begin = i + 1,
                              .context = kMany + i,
                              .flags = FI_RECV,
                              .size = 8,
                              .object = kMany + 1,
                              .peer = kNoPeer,
                              .op = uint16_t(Op::completion),
                              .fclass = FI_CLASS_CQ});
  }
  thread.written = thread.records.size();
  const Deadline deadline(100);
  deadline.says("endpoints of one address", kMany, 0);
  const std::vector<Snapshot> one{process};
  const Timeline timeline = build_timeline(one);
  EXPECT_GT(timeline.pairs_left_out[0], 0u);
  (void)make_report(timeline);
}

TEST(Report, ManyProcessesTakeNoLongerThanTheirRecords) {
  std::vector<Snapshot> processes(sdk::rounds(10'000));
  for (size_t p = 0; p < processes.size(); ++p) {
    processes[p].pid = uint32_t(p);
    ThreadInfo &thread = processes[p].threads.emplace_back();
    for (uint32_t i = 0; i < 100; ++i)
      thread.records.push_back({.begin = i,
                                .context = i,
                                .size = 8,
                                .object = 1,
                                .peer = kNoPeer,
                                .op = uint16_t(Op::send),
                                .fclass = FI_CLASS_EP});
    thread.written = thread.records.size();
  }
  const Deadline deadline(100);
  deadline.says("processes", processes.size(), 0);
  const Timeline timeline = build_timeline(processes);
  EXPECT_EQ(timeline.spans.size(), 100 * processes.size());
  EXPECT_EQ(make_report(timeline)["processes"].size(), processes.size());
}

// ---- links ----

// A process made by hand; its ticks are nanoseconds.
class Made {
 public:
  explicit Made(uint32_t pid, std::string boot = "boot") {
    process.pid = pid;
    process.host = "host";
    process.boot_id = std::move(boot);
    process.program = "/bin/made";
    process.threads.emplace_back();
    process.threads[0].tid = pid;
  }
  void endpoint(uint64_t id, const char *element, uint32_t cq, const char *address,
                const char *peer, uint32_t type = FI_EP_MSG) {
    ObjectInfo object;
    object.id = id;
    object.fclass = FI_CLASS_EP;
    object.element = element;
    object.tx_cq = object.rx_cq = cq;
    object.address = address;
    object.peer = peer;
    object.ep_type = type;
    process.objects.push_back(object);
  }
  Record &add(Op op, uint32_t object, uint64_t begin, uint64_t end, uint8_t depth = 0) {
    std::vector<Record> &records = process.threads[0].records;
    records.push_back({.duration = uint32_t(end - begin),
                       .begin = begin,
                       .object = object,
                       .peer = kNoPeer,
                       .op = uint16_t(op),
                       .depth = depth,
                       .fclass = FI_CLASS_EP});
    ++process.threads[0].written;
    return records.back();
  }
  void post(Op op, uint32_t ep, uint64_t at, uint64_t context, uint64_t size, uint64_t tag = 0) {
    Record &r = add(op, ep, at, at + 10);
    r.context = context;
    r.size = size;
    r.tag = tag;
  }
  void done(uint32_t cq, uint64_t at, uint64_t context, uint64_t flags, uint64_t size = 0,
            uint64_t tag = 0) {
    Record &r = add(Op::completion, cq, at, at, 1);
    r.context = context;
    r.flags = flags;
    r.size = size;
    r.tag = tag;
    r.fclass = FI_CLASS_CQ;
    add(Op::cq_read, cq, at - 20, at + 1).result = 1;
  }
  Snapshot process;
};

TEST(Timeline, LinksPostsWithCompletionsFirstComeFirstServed) {
  Made p(1);
  p.endpoint(5, "tcp", 3, "", "");
  p.post(Op::send, 5, 1000, 42, 8);
  p.post(Op::send, 5, 1100, 42, 9);
  p.post(Op::recv, 5, 1200, 42, 64);
  p.post(Op::inject, 5, 1250, 0, 1);
  p.done(3, 2000, 42, FI_SEND | FI_MSG);
  p.done(3, 3000, 42, FI_RECV | FI_MSG, 7);
  p.done(3, 4000, 43, FI_SEND | FI_MSG);
  const std::vector<Snapshot> processes{p.process};
  const Timeline t = build_timeline(processes);
  ASSERT_EQ(t.spans.size(), 4u);
  EXPECT_EQ(t.spans[0].end, SpanEnd::kCompleted);
  EXPECT_EQ(t.spans[0].end_ns - t.spans[0].begin_ns, 1000);
  EXPECT_EQ(t.spans[1].end, SpanEnd::kUnknown);
  EXPECT_TRUE(t.spans[1].expects);
  EXPECT_EQ(t.spans[2].end, SpanEnd::kCompleted);
  EXPECT_EQ(t.spans[2].bytes, 7u);
  EXPECT_FALSE(t.spans[3].expects) << "injected";
  EXPECT_EQ(t.unlinked[0], 1u);
  const auto report = make_report(t);
  EXPECT_EQ(report["processes"][0]["unmatched"]["sends"], 1);
  EXPECT_EQ(report["processes"][0]["unmatched"]["receives"], 0);
  EXPECT_EQ(report["processes"][0]["unmatched"]["first"][0]["bytes"], 9);
}

TEST(Timeline, UnsignalledPostsAreNotCountedAsUnmatched) {
  Made p(1);
  p.endpoint(5, "tcp", 3, "", "");
  p.process.objects[0].tx_bind_flags = FI_TRANSMIT | FI_SELECTIVE_COMPLETION;
  p.post(Op::send, 5, 1000, 1, 8);
  p.post(Op::sendmsg, 5, 1100, 2, 8);
  p.process.threads[0].records.back().flags = FI_COMPLETION;
  const std::vector<Snapshot> processes{p.process};
  const Timeline t = build_timeline(processes);
  EXPECT_FALSE(t.spans[0].expects);
  EXPECT_TRUE(t.spans[1].expects);
}

TEST(Timeline, AMultiReceiveCompletesManyTimes) {
  Made p(1);
  p.endpoint(5, "tcp", 3, "", "");
  p.post(Op::recvmsg, 5, 1000, 9, 4096);
  p.process.threads[0].records.back().flags = FI_MULTI_RECV;
  p.done(3, 2000, 9, FI_RECV | FI_MSG, 8);
  p.done(3, 3000, 9, FI_RECV | FI_MSG, 8);
  p.done(3, 4000, 9, FI_RECV | FI_MSG | FI_MULTI_RECV, 8);
  p.done(3, 5000, 9, FI_RECV | FI_MSG, 8);
  const std::vector<Snapshot> processes{p.process};
  const Timeline t = build_timeline(processes);
  EXPECT_EQ(t.spans[0].end_ns, t.spans[0].begin_ns + 3000);
  EXPECT_EQ(t.unlinked[0], 1u) << "after its end it takes no more";
}

TEST(Timeline, InnerCallsAreChildrenOfOuterOnes) {
  Made p(1);
  p.endpoint(5, "rxm", 3, "", "");
  p.endpoint(6, "tcp", 4, "", "");
  p.add(Op::send, 6, 90, 95, 1);      // of a call that was not recorded
  p.add(Op::send, 6, 1010, 1020, 1);  // 1
  p.add(Op::send, 6, 1030, 1040, 1);  // 2
  p.add(Op::tsend, 5, 1000, 1100, 0);
  p.add(Op::tsend, 5, 1200, 1300, 0);
  const std::vector<Snapshot> processes{p.process};
  const Timeline t = build_timeline(processes);
  EXPECT_EQ(t.events[0].parent, kNone);
  EXPECT_EQ(t.events[1].parent, 3u);
  EXPECT_EQ(t.events[2].parent, 3u);
  EXPECT_EQ(t.events[3].parent, kNone);
  EXPECT_EQ(t.events[4].parent, kNone);
}

TEST(Timeline, EndpointsThatWereThereBeforeTheHookAreLinkedByElement) {
  Made p(1);
  p.endpoint(5, "rxm", 0, "", "");
  p.endpoint(6, "tcp", 0, "", "");
  for (const auto &[id, element] : {std::pair(3, "rxm"), std::pair(4, "tcp")}) {
    ObjectInfo cq;
    cq.id = uint64_t(id);
    cq.fclass = FI_CLASS_CQ;
    cq.element = element;
    p.process.objects.push_back(cq);
  }
  p.post(Op::send, 5, 1000, 42, 8);
  p.post(Op::send, 6, 1001, 42, 8);
  p.done(4, 2000, 42, FI_SEND | FI_MSG);
  const std::vector<Snapshot> processes{p.process};
  const Timeline t = build_timeline(processes);
  EXPECT_EQ(t.spans[0].end, SpanEnd::kUnknown);
  EXPECT_EQ(t.spans[1].end, SpanEnd::kCompleted);
  // An endpoint that the hook saw open, with a counter and without a queue, has no completions.
  p.process.objects[0].caps = FI_MSG;
  const std::vector<Snapshot> seen{p.process};
  EXPECT_FALSE(build_timeline(seen).spans[0].expects);
}

TEST(Timeline, PostsThatWereNotMeasuredAreGuessed) {
  Made p(1);
  p.endpoint(5, "tcp", 3, "", "");
  p.add(Op::send, 5, 1000, 1040);
  p.add(Op::send, 5, 2000, 2000).duration = kNotMeasured;
  p.add(Op::send, 5, 3000, 3000).duration = kNotMeasured;
  p.add(Op::send, 5, 3010, 3050);
  const std::vector<Snapshot> processes{p.process};
  const Timeline t = build_timeline(processes);
  EXPECT_FALSE(t.events[1].measured);
  EXPECT_EQ(t.events[1].end_ns - t.events[1].begin_ns, 40);
  EXPECT_EQ(t.events[2].end_ns - t.events[2].begin_ns, 10) << "until the next begins";
  const auto report = make_report(t);
  EXPECT_EQ(report["processes"][0]["operations"][0]["call_ns"]["count"], 2);
  EXPECT_EQ(report["processes"][0]["operations"][0]["calls"], 4);
}

// Two processes that send each other `n` messages in turns; each takes `delay` ns.
std::vector<Snapshot> ping_pong(size_t n, uint64_t delay, uint64_t skew = 0,
                                const char *other_boot = "boot") {
  Made a(1), b(2, other_boot);
  a.endpoint(5, "tcp", 3, "1.1.1.1:1", "1.1.1.1:2");
  b.endpoint(5, "tcp", 3, "1.1.1.1:2", "1.1.1.1:1");
  uint64_t now = 1000000;
  for (size_t i = 0; i < n; ++i) {
    a.post(Op::recv, 5, now - 50, 1, 64);
    b.post(Op::recv, 5, now - 50 + skew, 1, 64);
    a.post(Op::send, 5, now, 2, 8);
    a.done(3, now + 40, 2, FI_SEND | FI_MSG);
    b.done(3, now + delay + skew, 1, FI_RECV | FI_MSG, 8);
    now += delay + 10;
    b.post(Op::send, 5, now + skew, 2, 8);
    b.done(3, now + 40 + skew, 2, FI_SEND | FI_MSG);
    a.done(3, now + delay, 1, FI_RECV | FI_MSG, 8);
    now += delay + 10;
  }
  return {a.process, b.process};
}

TEST(Timeline, PairsSendsWithReceivesAcrossProcesses) {
  const std::vector<Snapshot> processes = ping_pong(20, 700);
  const Timeline t = build_timeline(processes);
  size_t pairs = 0;
  for (const Span &span : t.spans) {
    if (span.receives || span.pair == kNone) continue;
    ++pairs;
    EXPECT_EQ(t.spans[span.pair].end_ns - span.begin_ns, 700);
    EXPECT_NE(t.spans[span.pair].process, span.process);
  }
  EXPECT_EQ(pairs, 40u);
  EXPECT_EQ(t.offsets[1].ns, 0);
  auto report = make_report(t);
  EXPECT_EQ(report["processes"][0]["ping_pong"][0]["half_round_trip_ns"]["p50"], 710);
  EXPECT_EQ(report["processes"][0]["ping_pong"][0]["half_round_trip_ns"]["count"], 19);
  EXPECT_EQ(report["processes"][0]["pairs"][0]["send_to_receive_ns"]["p99"], 700);
  EXPECT_THAT(to_text(report), HasSubstr("ping-pong"));
}

TEST(Timeline, LostBeginningsAreAlignedInTime) {
  std::vector<Snapshot> processes = ping_pong(20, 700);
  // The sender's ring has lost its first 30 records, the receiver's none.
  ThreadInfo &thread = processes[0].threads[0];
  thread.records.erase(thread.records.begin(), thread.records.begin() + 30);
  const Timeline t = build_timeline(processes);
  size_t pairs = 0;
  for (const Span &span : t.spans) {
    if (span.receives || span.pair == kNone) continue;
    ++pairs;
    EXPECT_EQ(t.spans[span.pair].end_ns - span.begin_ns, 700);
  }
  EXPECT_GT(pairs, 20u);
}

TEST(Timeline, EstimatesTheOffsetOfAnotherHostsClock) {
  const std::vector<Snapshot> processes = ping_pong(20, 700, 5000000, "another");
  const Timeline t = build_timeline(processes);
  EXPECT_EQ(t.offsets[1].ns, -5000000);
  EXPECT_THAT(t.offsets[1].how, HasSubstr("estimated"));
  for (const Span &span : t.spans) {
    if (span.pair != kNone && !span.receives) {
      EXPECT_EQ(t.spans[span.pair].end_ns - span.begin_ns, 700);
    }
  }
}

TEST(Report, PercentilesAreValuesThatOccurred) {
  std::vector<int64_t> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(percentile(values, 0.5), 50);
  EXPECT_EQ(percentile(values, 0.99), 99);
  EXPECT_EQ(percentile(values, 0.999), 100);
  std::vector<int64_t> none;
  EXPECT_EQ(percentile(none, 0.5), 0);
}

// ---- other forms ----

TEST(Convert, PerfettoSlicesNestAndArrowsEnd) {
  const std::vector<Snapshot> processes = ping_pong(5, 700);
  const Timeline t = build_timeline(processes);
  std::ostringstream out;
  write_trace(t, Form::kPerfetto, out);
  perfetto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(out.str()));
  std::map<uint64_t, std::vector<uint64_t>> open;  // by track: where slices began
  std::set<uint64_t> tracks;
  std::map<uint64_t, int> flows;
  size_t slices = 0;
  for (const perfetto::TracePacket &packet : trace.packet()) {
    if (packet.has_track_descriptor()) {
      tracks.insert(packet.track_descriptor().uuid());
      continue;
    }
    const perfetto::TrackEvent &event = packet.track_event();
    ASSERT_TRUE(tracks.contains(event.track_uuid())) << "described before it is used";
    if (event.type() == perfetto::TrackEvent::TYPE_SLICE_BEGIN) {
      ++slices;
      open[event.track_uuid()].push_back(packet.timestamp());
      EXPECT_FALSE(event.name().empty());
    } else if (event.type() == perfetto::TrackEvent::TYPE_SLICE_END) {
      ASSERT_FALSE(open[event.track_uuid()].empty());
      EXPECT_LE(open[event.track_uuid()].back(), packet.timestamp());
      open[event.track_uuid()].pop_back();
    }
    for (const uint64_t flow : event.flow_ids()) flows[flow] += 1;
    for (const uint64_t flow : event.terminating_flow_ids()) flows[flow] -= 1;
  }
  for (const auto &[track, begins] : open) EXPECT_TRUE(begins.empty());
  for (const auto &[flow, balance] : flows) EXPECT_EQ(balance, 0) << flow;
  EXPECT_EQ(flows.size(), 20u + 10u) << "completions and messages";
  EXPECT_EQ(slices, 5u * 8u + 20u) << "calls and spans";
}

TEST(Convert, ChromeIsJsonWithSpansAndArrows) {
  const std::vector<Snapshot> processes = ping_pong(5, 700);
  std::ostringstream out;
  write_trace(build_timeline(processes), Form::kChrome, out);
  const auto json = nlohmann::json::parse(out.str());
  std::map<std::string, int> phases;
  for (const auto &event : json["traceEvents"]) ++phases[event["ph"]];
  EXPECT_EQ(phases["b"], 20);
  EXPECT_EQ(phases["e"], 20);
  EXPECT_EQ(phases["s"], 30);
  EXPECT_EQ(phases["f"], 30);
  EXPECT_EQ(phases["X"], 40);
  std::ostringstream empty;
  const std::vector<Snapshot> none;
  write_trace(build_timeline(none), Form::kChrome, empty);
  EXPECT_TRUE(nlohmann::json::accept(empty.str()));
}

TEST(Convert, CsvHasARowForEveryRecord) {
  const std::vector<Snapshot> processes = ping_pong(5, 700);
  std::ostringstream out;
  write_trace(build_timeline(processes), Form::kCsv, out);
  const std::string text = out.str();
  EXPECT_EQ(size_t(std::count(text.begin(), text.end(), '\n')),
            1 + processes[0].threads[0].records.size() + processes[1].threads[0].records.size());
  EXPECT_TRUE(read_form("csv"));
  EXPECT_FALSE(read_form("xml"));
}

TEST(Convert, LanesDoNotOverlap) {
  Made p(1);
  p.endpoint(5, "tcp", 3, "", "");
  for (uint64_t i = 0; i < 50; ++i) p.post(Op::send, 5, 1000 + i, i, 8);
  for (uint64_t i = 0; i < 50; ++i) p.done(3, 2000 + i, i, FI_SEND | FI_MSG);
  const std::vector<Snapshot> processes{p.process};
  const Timeline t = build_timeline(processes);
  const std::vector<size_t> lanes = lanes_of(t, 32);
  std::set<size_t> used;
  for (const size_t lane : lanes) {
    if (lane != kNone) {
      EXPECT_TRUE(used.insert(lane).second) << "all overlap";
    }
  }
  EXPECT_EQ(used.size(), 32u);
}

}  // namespace
}  // namespace weft::trace
