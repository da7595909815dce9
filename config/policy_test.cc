// SPDX-License-Identifier: BSD-2-Clause
#include "config/test_reader.h"
namespace weft::config { namespace {
TEST(X, y) { EXPECT_EQ(read_policy("version: 1\n").code, 0); }
} }
