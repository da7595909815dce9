// SPDX-License-Identifier: BSD-2-Clause
// What the checks of single statements share: the kind of endpoint that their program is for, and
// one endpoint with its objects.
//
// Example:
//     TEST(PromisesExample, ACancelFindsNothing) {
//       Alone one;
//       one.enable();
//       EXPECT_LE(fi_cancel(one.ep.fid(), &one), 0);
//     }
//
// Each program has one of msg.cc, rdm.cc and dgram.cc, which say the kind. What needs a peer has
// the harness of its kind.
#ifndef WEFT_TESTS_CONFORMANCE_PROMISES_ASKED_H
#define WEFT_TESTS_CONFORMANCE_PROMISES_ASKED_H

#include <string>

#include "tests/conformance/common.h"

namespace weft::conformance::promises {

Options options();  // of the program's kind of endpoint

// An endpoint that is bound and not enabled.
struct Alone : Application {
  explicit Alone(const Options &wanted = promises::options());
  void enable() { must(fi_enable(ep)); }
};

}  // namespace weft::conformance::promises

#endif
