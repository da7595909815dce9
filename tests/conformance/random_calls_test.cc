// SPDX-License-Identifier: BSD-2-Clause
// Connected endpoints: a random program with signals, whose peers die (random_calls.h).
#include "tests/conformance/random_calls.h"
#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

class RandomCalls : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomCalls, ::testing::ValuesIn(seeds_of_random_calls()));

TEST_P(RandomCalls, EachHasItsEnd) {
  covers("peers that die");
  Options options;
  options.caps = FI_MSG;
  if (in_process_of_random_calls()) make_random_calls(options, GetParam());
}

}  // namespace
}  // namespace weft::conformance
