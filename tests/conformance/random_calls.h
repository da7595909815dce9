// SPDX-License-Identifier: BSD-2-Clause
// A random program: it makes calls in any order that the man pages allow, at and beyond the limits
// of its objects, while signals come and one of its two peers is killed and starts again.
//
// Example:
//     TEST(Example, ThisSeed) {
//       Options options;
//       options.type = FI_EP_RDM;
//       if (in_process_of_random_calls()) make_random_calls(options, 1);
//     }
//
// What is demanded: each operation has one completion, or error, and those of the living peer are
// good; every message comes back once, with its bytes; what is written is read; counters tell as
// many; signals end nothing but blocking calls; each call returns; and everything closes.
//
// A failure prints its seed and the last calls. Not for what a single call does: other tests have
// more to say there.
#ifndef WEFT_TESTS_CONFORMANCE_RANDOM_CALLS_H
#define WEFT_TESTS_CONFORMANCE_RANDOM_CALLS_H

#include <vector>

#include "tests/conformance/common.h"

namespace weft::conformance {

// `options` names the type and the capabilities that every stack of it has; more are taken where
// they are offered.
void make_random_calls(const Options &options, unsigned seed);

// WEFT_TEST_SEED, or the first WEFT_TEST_SEEDS numbers, or the first few.
std::vector<unsigned> seeds_of_random_calls();

// in_fresh_process(), with what shows that the end of operations is told by the network, not by a
// timeout.
bool in_process_of_random_calls();

}  // namespace weft::conformance

#endif
