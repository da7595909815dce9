// SPDX-License-Identifier: BSD-2-Clause
// What an application changes in an fi_info, each change by itself, before it opens something with
// it (opening.h).
#include "tests/conformance/opening.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

TEST(RdmEveryChange, OfTheUsualAnswer) {
  covers("a changed fi_info");
  opening::check_each_change(Options());
}

TEST(RdmEveryChange, OfAllThatThereIs) {
  covers("a changed fi_info");
  Options options;
  options.caps = 0;
  opening::check_each_change(options);
}

}  // namespace
}  // namespace weft::conformance::rdm
