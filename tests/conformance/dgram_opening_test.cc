// SPDX-License-Identifier: BSD-2-Clause
// What an application changes in an fi_info before it opens something with it (opening.h).
#include "tests/conformance/dgram_harness.h"
#include "tests/conformance/opening.h"

namespace weft::conformance::dgram {
namespace {

TEST(DgramOpening, RandomChanges) {
  covers("a changed fi_info");
  opening::check_random_changes(Options(), 200);
}

TEST(DgramOpening, UsualChanges) {
  covers("a changed fi_info");
  opening::check_usual_changes(Options());
}

}  // namespace
}  // namespace weft::conformance::dgram
