// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams.
#include "tests/conformance/promises/asked.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::promises {

Options options() {
  return rdm::Options();
}

}  // namespace weft::conformance::promises
