// SPDX-License-Identifier: BSD-2-Clause
// A fuzz target that crashes if its input begins with an 'x', for replay_test.cc.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size != 0 && data[0] == 'x') std::abort();
  return 0;
}
