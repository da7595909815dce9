// SPDX-License-Identifier: BSD-2-Clause
// Part of every test program of connected endpoints: without the stack under test there is nothing
// to test. (Those of other endpoints have it in their harness.)
#include "tests/conformance/common.h"

namespace weft::conformance {
namespace {

[[maybe_unused]] const auto *const kStackIsThere = require_stack(Options());

}  // namespace
}  // namespace weft::conformance
