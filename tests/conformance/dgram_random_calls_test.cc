// SPDX-License-Identifier: BSD-2-Clause
// Datagrams: a random program with signals, of whose peers one dies (random_calls.h). Over loopback
// none is lost, as few are under way.
#include "tests/conformance/dgram_harness.h"
#include "tests/conformance/random_calls.h"

namespace weft::conformance::dgram {
namespace {

class DgramRandomCalls : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, DgramRandomCalls, ::testing::ValuesIn(seeds_of_random_calls()));

TEST_P(DgramRandomCalls, EachHasItsEnd) {
  covers("peers that die");
  if (in_process_of_random_calls()) make_random_calls(Options(), GetParam());
}

}  // namespace
}  // namespace weft::conformance::dgram
