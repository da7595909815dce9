// SPDX-License-Identifier: BSD-2-Clause
//
// The command line of weft-bench.
//
// Example:
//     Selection read(int argc, char **argv, Options &options) {
//       CLI::App app;
//       add_options(app, options);
//       app.parse(argc, argv);  // --local -t lat,bw
//       return select_tests(options);
//     }
//
// Errors are thrown as Error.
#ifndef WEFT_BENCH_BENCH_OPTIONS_H
#define WEFT_BENCH_BENCH_OPTIONS_H

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "bench.h"
#include "fabric_node.h"

namespace weft::bench {

inline constexpr size_t kMaxSize = 1u << 30;

struct Options {
  std::string host;
  bool server = false;
  bool local = false;
  bool keep = false;
  bool raw = false;      // a socket, not a libfabric
  bool raw_udp = false;  // of UDP
  FabricOptions fabric;
  std::string endpoint = "msg";
  std::string tests = "lat,bw,rate";
  std::string sizes;
  uint64_t iterations = 0;
  double seconds = 0.3;
  uint32_t window = 64;
  uint32_t ack_every = 0;
  uint32_t in_flight_mib = 16;
  bool check = false;
  bool more = false;
  bool inject = false;
  uint16_t port = 47747;
  int listen_fd = -1, line_fd = -1;
  int cpu = -1;
  std::string cpus;
  double timeout = 60;
  std::string json_file;
  uint32_t endpoints = 1000;
  uint32_t repeat = 200;
  std::string server_library_path;
  std::string expect_library;
};

void add_options(CLI::App &app, Options &options);

// What --test names.
struct Selection {
  std::vector<Test> tests;
  bool memory = false, startup = false;
};
Selection select_tests(const Options &options);

// "1,64,4K", "all", or the default of `test` for an empty text.
std::vector<size_t> parse_sizes(const std::string &text, Test test);
// "0,1": the CPUs of client and server.
std::vector<int> parse_cpus(const std::string &text);

}  // namespace weft::bench

#endif  // WEFT_BENCH_BENCH_OPTIONS_H
