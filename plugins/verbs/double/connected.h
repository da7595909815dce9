// SPDX-License-Identifier: BSD-2-Clause
// Operations of connected queue pairs (RC, XRC): sends, writes, reads and atomics at the peer, with
// the errors that each end sees.
//
// Example:
//    // Executes the first operation of a queue pair, if it can be executed now.
//    bool execute_first(Qp &qp) {
//      execute_connected(qp, qp.sq.front());
//      return qp.sq.front().executed;  // otherwise it waits for a receive, or for an answer
//    }
//
// Not for datagrams (ud.cc).
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_CONNECTED_H
#define WEFT_PLUGINS_VERBS_DOUBLE_CONNECTED_H

#include "plugins/verbs/double/objects.h"

namespace weft::verbs_double {

void execute_connected(Qp &qp, SendWqe &wqe);

}  // namespace weft::verbs_double

#endif
