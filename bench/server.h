// SPDX-License-Identifier: BSD-2-Clause
//
// The server of one client: makes the measurements that the client asks for, until it says quit.
//
// Example (statements):
//     const Fd listener = Listen("", 47747);
//     Server(AcceptOne(listener.get(), 60.0), 60.0, nullptr).Serve();
//
// Throws Error when the peer fails or is gone.
#ifndef WEFT_BENCH_SERVER_H_
#define WEFT_BENCH_SERVER_H_

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

  void Serve();

 private:
  // False: the client has said quit.
  bool Handle(const nlohmann::json &request);
  void Open(const nlohmann::json &request);
  void Memory(const nlohmann::json &request);
  void Run(const Spec &spec, const nlohmann::json &request);
  template <class Transport>
  void RunOver(Transport &t, Arena &arena, const Spec &spec);

  Control control_;
  Watch watch_;
  double timeout_;
  SharedLine *line_;
  Engine engine_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_SERVER_H_
