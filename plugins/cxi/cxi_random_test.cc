// SPDX-License-Identifier: BSD-2-Clause
// Random programs, each from its seed: WEFT_TEST_SEED runs one, WEFT_TEST_SEEDS so many.
#include <cstdlib>

#include "plugins/cxi/test_random_program.h"

namespace weft::conformance::rdm {
namespace {

TEST(CxiRandom, AnyLegalCallsInAnyOrder) {
  RDM_NEEDS(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
  const char *const one = std::getenv("WEFT_TEST_SEED"), *const many =
                                                             std::getenv("WEFT_TEST_SEEDS");
  const unsigned begin = one != nullptr ? unsigned(std::atoi(one)) : 1;
  const unsigned count = many != nullptr ? unsigned(std::atoi(many)) : one != nullptr ? 1 : 12;
  for (unsigned seed = begin; seed < begin + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(seed));
    RandomProgram(seed).run(600);
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
