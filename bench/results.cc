// SPDX-License-Identifier: BSD-2-Clause
#include "results.h"

#include <absl/strings/str_format.h>
#include <stdio.h>

#include "patterns.h"

namespace weft::bench {

using nlohmann::json;

json describe(const Spec &spec, Samples *samples, uint64_t waited_ns) {
  const double total_ns = spec.test == Test::kOverlap
                              ? static_cast<double>(spec.iterations) * kComputeNs
                              : samples->total();
  samples->sort();
  // A round trip is two messages. A read is a round trip already.
  const bool timed = is_latency(spec.test) || spec.test == Test::kOverlap;
  const double scale = is_latency(spec.test) && spec.test != Test::kReadLat ? 2e3 : 1e3;
  const auto us = [&](double fraction) {
    return static_cast<double>(samples->percentile(fraction)) / scale;
  };
  json result = {{"test", test_name(spec.test)},
                 {"size", spec.size},
                 {"iterations", spec.iterations},
                 {"window", spec.window},
                 {"ack_every", spec.ack_every},
                 {"waited", static_cast<double>(waited_ns) / total_ns},
                 {"us",
                  {{"min", us(0)},
                   {"p50", us(0.5)},
                   {"p99", us(0.99)},
                   {"max", us(1)},
                   {"mean", samples->total() / static_cast<double>(samples->count()) / scale}}}};
  if (timed) {
    result["value"] = us(0.5);
    result["unit"] = "us";
    result["better"] = "lower";
    return result;
  }
  // The headline is the median window, which a preempted window does not change. The average of the
  // whole run stands beside it: it shows costs that come only now and then.
  const double window_s = static_cast<double>(samples->percentile(0.5)) / 1e9;
  const double rate = spec.window / window_s;
  const double average_rate = static_cast<double>(spec.messages()) / (total_ns / 1e9);
  const auto megabytes = [&](double r) { return r * static_cast<double>(spec.size) / 1e6; };
  result["messages_per_s"] = rate;
  result["mb_per_s"] = megabytes(rate);
  result["average_messages_per_s"] = average_rate;
  result["average_mb_per_s"] = megabytes(average_rate);
  result["value"] = spec.test == Test::kRate ? rate : megabytes(rate);
  result["unit"] = spec.test == Test::kRate ? "msg/s" : "MB/s";
  result["better"] = "higher";
  return result;
}

void print_heading(Test test) {
  static const char *const kTitles[] = {
      "lat: ping-pong, half a round trip",
      "bw: stream of messages, acknowledged per window",
      "rate: stream of small messages, acknowledged per window",
      "write_lat: RMA writes with remote completion data, there and back, half a round trip",
      "write_bw: stream of RMA writes, acknowledged per window",
      "read_lat: RMA read, from post to completion",
      "read_bw: stream of RMA reads",
      "overlap: 8 messages, then a millisecond without progress; until the last has arrived"};
  absl::PrintF("\n%s\n", kTitles[static_cast<int>(test)]);
  if (is_latency(test) || test == Test::kOverlap) {
    absl::PrintF("%9s %9s %10s %10s %10s %10s %6s\n", "bytes", "rounds", "min us", "p50 us",
                 "p99 us", "mean us", "wait%");
  } else {
    absl::PrintF("%9s %9s %7s %10s %12s %10s %12s %6s\n", "bytes", "windows", "window", "MB/s",
                 "msg/s", "avg MB/s", "avg msg/s", "wait%");
  }
}

void print_result(Test test, const json &r) {
  if (is_latency(test) || test == Test::kOverlap) {
    const json &us = r.at("us");
    absl::PrintF("%9d %9d %10.2f %10.2f %10.2f %10.2f %6.1f\n", r.at("size").get<size_t>(),
                 r.at("iterations").get<unsigned long long>(), us.at("min").get<double>(),
                 us.at("p50").get<double>(), us.at("p99").get<double>(),
                 us.at("mean").get<double>(), r.at("waited").get<double>() * 100);
  } else {
    absl::PrintF("%9d %9d %7u %10.1f %12.0f %10.1f %12.0f %6.1f\n", r.at("size").get<size_t>(),
                 r.at("iterations").get<unsigned long long>(), r.at("window").get<unsigned>(),
                 r.at("mb_per_s").get<double>(), r.at("messages_per_s").get<double>(),
                 r.at("average_mb_per_s").get<double>(),
                 r.at("average_messages_per_s").get<double>(), r.at("waited").get<double>() * 100);
  }
  fflush(stdout);
}

}  // namespace weft::bench
