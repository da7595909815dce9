// SPDX-License-Identifier: BSD-2-Clause
#include "engine.h"

namespace weft::bench {

Arena &Engine::arena_for(const Spec &spec) {
  if (arena && arena->fits(spec)) {
    arena->reset();
    return *arena;
  }
  if (fabric) fabric->end();
  arena.reset();
  arena = std::make_unique<Arena>(spec);
  return *arena;
}

void Engine::close() {
  fabric.reset();
  raw.reset();
  raw_udp.reset();
  arena.reset();
}

nlohmann::json receive_in_progress(Engine &engine, Control &control, Watch &watch, double timeout) {
  watch.start("waiting for the peer to finish", timeout);
  while (!control.readable()) {
    for (int i = 0; i < 64 && engine.fabric; ++i) engine.fabric->poll();
    watch.check_deadline();
  }
  return control.receive(timeout);
}

}  // namespace weft::bench
