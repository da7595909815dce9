// SPDX-License-Identifier: BSD-2-Clause
// Objects that are opened with an fi_info which the application has changed since fi_getinfo gave
// it: what fi_getinfo refuses as hints is refused, and what opens does all that the info says. Once
// for each type of endpoint.
//
// Example:
//     TEST(EveryChange, OfTheUsualAnswer) {
//       opening::check_each_change(Options{});
//     }
//     TEST(Opening, RandomChanges) {
//       opening::check_random_changes(Options{}, /*seeds=*/40);
//     }
//
// WEFT_TEST_SEED repeats one seed. Not for what fi_getinfo answers to hints: hints_test.cc.
#ifndef WEFT_TESTS_CONFORMANCE_OPENING_H
#define WEFT_TESTS_CONFORMANCE_OPENING_H

#include "tests/conformance/common.h"

namespace weft::conformance::opening {

// Each member of the info, each value around what is offered, for an application with `options`.
void check_each_change(const Options &options);
// Several at once.
void check_random_changes(const Options &options, unsigned seeds);
// What changes nothing, or asks for less, is no reason to refuse: programs do it.
void check_usual_changes(const Options &options);

}  // namespace weft::conformance::opening

#endif
