// SPDX-License-Identifier: BSD-2-Clause
// Signals end blocking calls (fi_cq.3, fi_eq.3): a thread in one returns when a signal's handler
// has run in it, so that a program without a timeout can be told to stop.
//
// Example:
//     TEST(Example, ASignalEndsBlockingCalls) {
//       Application application;
//       application.open_fabric(get_info(nullptr, nullptr, 0, nullptr).get());
//       signals_end_blocking_calls(application);
//     }
//
// It is not about fi_cq_signal, which other tests call.
#ifndef WEFT_TESTS_CONFORMANCE_SIGNALS_H
#define WEFT_TESTS_CONFORMANCE_SIGNALS_H

#include "tests/conformance/common.h"

namespace weft::conformance {

// Each blocking call on each kind of queue, counter and wait set that the application's domain
// opens: without a timeout it returns -FI_EINTR, as stock libfabric does. The signals are sent to
// the process, and no other thread of the application takes them: nor may one of the library.
void signals_end_blocking_calls(const Application &application);

}  // namespace weft::conformance

#endif
