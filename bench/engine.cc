// SPDX-License-Identifier: BSD-2-Clause
#include "engine.h"

namespace weft::bench {

Arena &Engine::ArenaFor(const Spec &spec) {
  if (arena && arena->Fits(spec)) {
    arena->Reset();
    return *arena;
  }
  if (fabric) fabric->End();
  arena.reset();
  arena = std::make_unique<Arena>(spec);
  return *arena;
}

void Engine::Close() {
  fabric.reset();
  raw.reset();
  raw_udp.reset();
  arena.reset();
}

nlohmann::json ReceiveInProgress(Engine &engine, Control &control, Watch &watch, double timeout) {
  watch.Start("waiting for the peer to finish", timeout);
  while (!control.Readable()) {
    for (int i = 0; i < 64 && engine.fabric; ++i) engine.fabric->Poll();
    watch.CheckDeadline();
  }
  return control.Receive(timeout);
}

}  // namespace weft::bench
