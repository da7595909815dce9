// SPDX-License-Identifier: BSD-2-Clause
//
// One side of one measurement: the transport in use and the message buffers.
//
// Example:
//     Arena &connected(Engine &engine, const Spec &spec, Watch &watch) {
//       engine.raw = std::make_unique<RawTransport>(dial("host", 47747, 10.0), &watch);
//       return engine.arena_for(spec);  // and then run_client(*engine.raw, ...) of patterns.h
//     }
#ifndef WEFT_BENCH_ENGINE_H
#define WEFT_BENCH_ENGINE_H

#include <memory>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "control.h"
#include "fabric_transport.h"
#include "raw.h"
#include "raw_udp.h"

namespace weft::bench {

// The transport in use, fabric or socket, and the buffers. Members are destroyed in reverse order,
// so the registration of the buffers ends before the buffers.
struct Engine {
  std::unique_ptr<Arena> arena;
  std::unique_ptr<FabricTransport> fabric;
  std::unique_ptr<RawTransport> raw;
  std::unique_ptr<RawUdpTransport> raw_udp;

  Arena &arena_for(const Spec &spec);
  void close();
};

// Drives progress until the peer's next line is there, and returns it. Under manual progress the
// library may still hold an injected message or an acknowledgement, which leaves only during a
// call.
nlohmann::json receive_in_progress(Engine &engine, Control &control, Watch &watch, double timeout);

}  // namespace weft::bench

#endif  // WEFT_BENCH_ENGINE_H
