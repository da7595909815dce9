// SPDX-License-Identifier: BSD-2-Clause
#include "bench_options.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <sched.h>

#include <algorithm>
#include <map>

namespace weft::bench {

namespace {

size_t parse_size(absl::string_view text) {
  absl::string_view digits = text;
  unsigned shift = 0;
  if (absl::ConsumeSuffix(&digits, "K") || absl::ConsumeSuffix(&digits, "k")) {
    shift = 10;
  } else if (absl::ConsumeSuffix(&digits, "M") || absl::ConsumeSuffix(&digits, "m")) {
    shift = 20;
  }
  uint64_t number = 0;
  if (!absl::SimpleAtoi(digits, &number) || number == 0 || number > (kMaxSize >> shift)) {
    fail("size '%s' is not a number from 1 to 1024M (suffixes K and M mean 1024 and 1048576)",
         text);
  }
  return number << shift;
}

}  // namespace

std::vector<size_t> parse_sizes(const std::string &text, Test test) {
  std::vector<size_t> sizes;
  if (text.empty() && (test == Test::kRate || test == Test::kOverlap)) return {64};
  if (text.empty() || text == "all") {
    for (size_t size = 1; size <= (4u << 20); size *= 2) sizes.push_back(size);
    return sizes;
  }
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty()))
    sizes.push_back(parse_size(part));
  if (test == Test::kOverlap && std::ranges::any_of(sizes, [](size_t size) { return size < 8; })) {
    fail("overlap wants messages of at least 8 bytes, for the time in them");
  }
  if (sizes.empty()) fail("--sizes names no size");
  return sizes;
}

std::vector<int> parse_cpus(const std::string &text) {
  std::vector<int> cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int cpu = 0;
    if (!absl::SimpleAtoi(part, &cpu) || cpu < 0 || cpu >= CPU_SETSIZE) {
      fail("--cpus: '%s' is not a CPU number", part);
    }
    cpus.push_back(cpu);
  }
  if (cpus.size() != 2) fail("--cpus wants two CPU numbers, client and server, such as 0,1");
  return cpus;
}

void add_options(CLI::App &app, Options &options) {
  app.option_defaults()->always_capture_default();
  app.add_option("host", options.host, "Host on which `weft-bench --server` runs");
  app.add_flag("--server", options.server, "Be the server of one client, then end");
  app.add_flag("--keep", options.keep, "With --server: serve one client after the other");
  app.add_flag("--local", options.local, "Start the server as a process of this host");
  app.add_flag("--raw", options.raw, "Measure a raw non-blocking TCP socket instead");
  app.add_flag("--raw-udp", options.raw_udp,
               "Measure a raw non-blocking UDP socket instead, with segmentation offload");
  app.add_option(
      "-t,--test", options.tests,
      "Comma list of lat bw rate write_lat write_bw read_lat read_bw overlap memory startup, "
      "or all");
  app.add_option("-S,--sizes", options.sizes,
                 "Comma list of sizes such as 1,64,4K,1M, or all: powers of two to 4M "
                 "(default: all; 64 for rate)");
  app.add_option("-n,--iters", options.iterations,
                 "Round trips, or windows, per size (0: as many as fill --seconds)");
  app.add_option("--seconds", options.seconds, "Time per size")->check(CLI::Range(0.001, 3600.0));
  app.add_option("-W,--window", options.window, "Messages in flight in the streams")
      ->check(CLI::Range(1, 1024));
  app.add_option("--ack-every", options.ack_every,
                 "Messages per acknowledgement of a stream (0: the whole window, so the sender "
                 "stops and waits after each)");
  app.add_option("--in-flight", options.in_flight_mib,
                 "MiB in flight at most: makes the window of large messages smaller")
      ->check(CLI::Range(1, 4096));
  app.add_option("-p,--provider", options.fabric.provider, "Provider");
  app.add_option("-d,--domain", options.fabric.domain, "Domain of the client (default: any)");
  app.add_option("-e,--endpoint", options.endpoint, "Endpoint type")
      ->check(CLI::IsMember({"msg", "rdm"}));
  app.add_flag("--tagged", options.fabric.tagged, "Tagged messages");
  app.add_flag(
      "--more", options.more,
      "Announce that more messages of a window follow (FI_MORE; gathered writes in --raw)");
  app.add_flag("--inject", options.inject, "fi_inject for messages that are small enough");
  app.add_flag("--split-cq", options.fabric.split_cq, "One completion queue per direction");
  app.add_option("--level", options.fabric.level, "Completion level of the sends")
      ->default_str("none")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, uint64_t>{{"inject", FI_INJECT_COMPLETE},
                                          {"transmit", FI_TRANSMIT_COMPLETE},
                                          {"delivery", FI_DELIVERY_COMPLETE},
                                          {"match", FI_MATCH_COMPLETE}}));
  app.add_flag("--thread-safe", options.fabric.thread_safe, "FI_THREAD_SAFE, not FI_THREAD_DOMAIN");
  app.add_flag("--wait-fd", options.fabric.wait_fd,
               "Sleep on the queues' descriptors (FI_WAIT_FD) when they are empty");
  app.add_flag("--selective", options.fabric.selective,
               "FI_SELECTIVE_COMPLETION; each operation asks for its completion");
  app.add_flag("--counters", options.fabric.counters,
               "Messages are counted (fi_cntr_read), without completions");
  app.add_flag("--multi-recv", options.fabric.multi_recv,
               "Messages arrive in large buffers (FI_MULTI_RECV)");
  app.add_flag("-c,--check", options.check, "Check every byte received (slow: no fair timing)");
  app.add_option("--port", options.port, "TCP port of the control connection");
  app.add_option("--cpu", options.cpu, "CPU to pin this process to (-1: none; without --local)");
  app.add_option("--cpus", options.cpus,
                 "With --local: CPUs of client and server, such as 0,1 (default: two cores)");
  app.add_option("--timeout", options.timeout, "Seconds that any one step may take")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("--endpoints", options.endpoints, "Connections of the memory test")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--repeat", options.repeat, "Processes of the startup test")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--server-library-path", options.server_library_path,
                 "With --local: LD_LIBRARY_PATH of the server, for mixed pairs");
  app.add_option("--expect-library", options.expect_library,
                 "Fail unless libfabric was loaded from this directory");
  app.add_option("--json", options.json_file,
                 "Write the results to this file as JSON (- : stdout)");
  app.add_option("--listen-fd", options.listen_fd)->group("");
  app.add_option("--line-fd", options.line_fd)->group("");
}

Selection select_tests(const Options &options) {
  Selection selection;
  const std::vector<std::string> names = absl::StrSplit(options.tests, ',', absl::SkipEmpty());
  for (const std::string &name : names) {
    Test test;
    if (name == "memory") {
      selection.memory = true;
    } else if (name == "startup") {
      selection.startup = true;
    } else if (parse_test(name, &test)) {
      parse_sizes(options.sizes, test);  // Reports errors before anything is started.
      selection.tests.push_back(test);
    } else {
      fail(
          "unknown test '%s': know lat bw rate write_lat write_bw read_lat read_bw overlap memory "
          "startup",
          name);
    }
  }
  return selection;
}

}  // namespace weft::bench
