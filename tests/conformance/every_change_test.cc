// SPDX-License-Identifier: BSD-2-Clause
// What an application changes in an fi_info, each change by itself, before it opens something with
// it (opening.h).
#include "tests/conformance/opening.h"

namespace weft::conformance {
namespace {

TEST(EveryChange, OfTheUsualAnswer) {
  covers("a changed fi_info");
  opening::check_each_change(Options{});
}

}  // namespace
}  // namespace weft::conformance
