// SPDX-License-Identifier: BSD-2-Clause
// Connected endpoints.
#include "tests/conformance/promises/asked.h"

namespace weft::conformance::promises {

namespace {
[[maybe_unused]] const auto *const kStackIsThere = require_stack(Options());
}  // namespace

Options options() {
  return {};
}

}  // namespace weft::conformance::promises
