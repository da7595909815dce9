// SPDX-License-Identifier: BSD-2-Clause
//
// The server of one client: makes the measurements that the client asks for, until it says quit.
//
// Example (statements):
//     const Fd listener = listen("", 47747);
//     Server(accept_one(listener.get(), 60.0), 60.0, nullptr).serve();
//
// Throws Error when the peer fails or is gone.
#ifndef WEFT_BENCH_SERVER_H
#define WEFT_BENCH_SERVER_H

#include <nlohmann/json.hpp>
#include <utility>

#include "bench.h"
#include "control.h"
#include "distance.h"
#include "engine.h"

namespace weft::bench {

class Server {
 public:
  // `line`: null when the client is on another host.
  Server(Fd connection, double timeout, SharedLine *line)
      : control_(std::move(connection)), watch_(&control_), timeout_(timeout), line_(line) {}

  void serve();

 private:
  // False: the client has said quit.
  bool handle(const nlohmann::json &request);
  void open(const nlohmann::json &request);
  void memory(const nlohmann::json &request);
  void run(const Spec &spec, const nlohmann::json &request);
  template <class Transport>
  void run_over(Transport &t, Arena &arena, const Spec &spec);

  Control control_;
  Watch watch_;
  double timeout_;
  SharedLine *line_;
  Engine engine_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_SERVER_H
