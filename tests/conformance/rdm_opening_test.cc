// SPDX-License-Identifier: BSD-2-Clause
// What an application changes in an fi_info before it opens something with it (opening.h).
#include "tests/conformance/opening.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

TEST(RdmOpening, RandomChanges) {
  covers("a changed fi_info");
  opening::check_random_changes(Options(), 200);
}

TEST(RdmOpening, UsualChanges) {
  covers("a changed fi_info");
  opening::check_usual_changes(Options());
}

}  // namespace
}  // namespace weft::conformance::rdm
