// SPDX-License-Identifier: BSD-2-Clause
// Datagrams.
#include "tests/conformance/dgram_harness.h"
#include "tests/conformance/promises/asked.h"

namespace weft::conformance::promises {

Options options() {
  return dgram::Options();
}

}  // namespace weft::conformance::promises
