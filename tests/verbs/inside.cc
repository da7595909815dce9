// SPDX-License-Identifier: BSD-2-Clause
// The network of network.h as a library that any program of the conformance suite can open.
#include <string>

#include "tests/conformance/devices.h"
#include "tests/verbs/network.h"

const char *weft_test_devices_trouble() {
  static std::string trouble;
  trouble = weft::conformance::network_trouble();
  return trouble.c_str();
}

namespace {

// The devices are there from the start.
[[maybe_unused]] const auto &network_inside = weft::conformance::network();

}  // namespace
