// SPDX-License-Identifier: BSD-2-Clause
// Reliable endpoints without connections: a random program with signals, of whose peers one dies
// (random_calls.h).
#include "tests/conformance/random_calls.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

class RdmRandomCalls : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RdmRandomCalls, ::testing::ValuesIn(seeds_of_random_calls()));

TEST_P(RdmRandomCalls, EachHasItsEnd) {
  covers("peers that die");
  if (in_process_of_random_calls()) make_random_calls(Options(), GetParam());
}

}  // namespace
}  // namespace weft::conformance::rdm
