// SPDX-License-Identifier: BSD-2-Clause
//
// The client: asks the server for measurements, takes part in them, prints and collects the
// figures.
//
// Example:
//     nlohmann::json latency_of(const Options &options) {
//       Client client(dial(options.host, options.port, options.timeout), options, nullptr);
//       nlohmann::json report;
//       client.run_tests({Test::kLat}, &report);
//       client.quit();
//       return report["results"];
//     }
//
// Throws Error when the peer fails or is gone.
#ifndef WEFT_BENCH_CLIENT_H
#define WEFT_BENCH_CLIENT_H

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"
#include "bench_options.h"
#include "control.h"
#include "distance.h"
#include "engine.h"

namespace weft::bench {

class Client {
 public:
  // `line`: null when the distance of the CPUs cannot be measured.
  Client(Fd connection, const Options &options, SharedLine *line)
      : options_(options), control_(std::move(connection)), watch_(&control_), line_(line) {}

  // Appends to report["results"] and prints a line for each.
  void run_tests(const std::vector<Test> &tests, nlohmann::json *report);
  void run_memory(nlohmann::json *report);
  void quit();
  // Tells a peer that still waits why this side ends; nothing if it is gone.
  void tell_peer(const std::string &failure);

 private:
  void open(bool rma, nlohmann::json *report);
  void note_library(const nlohmann::json &opened, nlohmann::json *report);
  nlohmann::json measure(Test test, size_t size);
  double distance_ns();
  // Warms everything up and finds how many iterations fill the time that was asked for.
  void calibrate(Spec *spec);
  void execute(const Spec &spec, Samples *samples, uint64_t *waited_ns);

  const Options &options_;
  Control control_;
  Watch watch_;
  SharedLine *line_;
  Engine engine_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_CLIENT_H
