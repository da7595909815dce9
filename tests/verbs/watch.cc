// SPDX-License-Identifier: BSD-2-Clause
// Of a program that is linked with the network: after each test the devices must be as before it.
#include <gtest/gtest.h>

#include "tests/verbs/network.h"

namespace weft::conformance {
namespace {

class Watch : public testing::EmptyTestEventListener {
  void OnTestProgramStart(const testing::UnitTest &) override { network(); }
  void OnTestEnd(const testing::TestInfo &) override { EXPECT_EQ(network_trouble(), ""); }
};

[[maybe_unused]] const bool watched = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new Watch);
  return true;
}();

}  // namespace
}  // namespace weft::conformance
