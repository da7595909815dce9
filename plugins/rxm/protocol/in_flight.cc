// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/in_flight.h"

namespace weft::rxm {

InFlight::~InFlight() {
  for (TxOp *op : table_.all()) offers_.conceal(*op);
}

void InFlight::end(TxOp &op, int err) {
  if (op.answer) {
    op.answer = false;
    op.connection->departed.awaited_.remove(op);
    offers_.forget(op);
  }
  op.sent = true;
  if (op.err == 0) op.err = err;
  settle(op);
}

void InFlight::end_all(OpQueue queue, int err) {
  while (!queue.empty()) end(queue.pop(), err);
}

void InFlight::end_awaited(Connection &c, int err) {
  while (TxOp *const op = c.departed.awaited_.first) end(*op, err);
}

}  // namespace weft::rxm
