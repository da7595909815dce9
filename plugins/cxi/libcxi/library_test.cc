// SPDX-License-Identifier: BSD-2-Clause
// What is said of a library that cannot be used.
#include "plugins/cxi/libcxi/library.h"

#include <gtest/gtest.h>

namespace weft::cxi {
namespace {

TEST(Library, OneThatIsNotThereIsNamed) {
  const auto library = Library::open("/nowhere/libcxi.so.1");
  ASSERT_FALSE(library.has_value());
  EXPECT_EQ(library.error().code, FI_ENODATA);
  EXPECT_NE(library.error().text.find("/nowhere/libcxi.so.1"), std::string::npos);
  EXPECT_NE(library.error().text.find("FI_CXI_LIBCXI"), std::string::npos);
}

TEST(Library, OneThatLacksAFunctionIsNamedWithItsVersion) {
  const auto library = Library::open("libm.so.6");
  ASSERT_FALSE(library.has_value());
  EXPECT_EQ(library.error().code, FI_ENOSYS);
  EXPECT_NE(library.error().text.find("cxil_get_device_list"), std::string::npos);
  EXPECT_NE(library.error().text.find("/libm"), std::string::npos) << library.error().text;
}

}  // namespace
}  // namespace weft::cxi
