// SPDX-License-Identifier: BSD-2-Clause
// Whose turn it is: queue pairs with work, and messages of the connection manager.
#include "plugins/verbs/double/cm.h"
#include "plugins/verbs/double/transport.h"
#include "plugins/verbs/double/world.h"

namespace weft::verbs_double {

bool World::has_work() const {
  return !ready.empty() || cm->count() > 0;
}

bool World::step() {
  while (has_work()) {
    const bool picks = options.progress != Progress::kAtOnce;
    const size_t turn = picks ? random() % (ready.size() + cm->count()) : 0;
    if (turn >= ready.size()) {
      cm->deliver(turn - ready.size());
      return true;
    }
    Qp &qp = *ready[turn];
    if (act(qp)) return true;
    qp.is_ready = false;
    ready[turn] = ready.back();
    ready.pop_back();
  }
  return false;
}

}  // namespace weft::verbs_double
