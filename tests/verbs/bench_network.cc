// SPDX-License-Identifier: BSD-2-Clause
// A device for weft-mr-bench, which knows nothing of the double.
#include "plugins/verbs/double/double.h"

namespace {

struct BenchHost {
  weft::verbs_double::Network network;
  weft::verbs_double::Device &device = network.add({});
};
const BenchHost bench_host;

}  // namespace
