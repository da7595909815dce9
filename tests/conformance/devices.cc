// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/devices.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/conformance/common.h"

namespace weft::conformance {
namespace {

const char *library_of_devices() {
  const char *const named = std::getenv("WEFT_TEST_DEVICES");
  return named != nullptr && *named != '\0' ? named : nullptr;
}

class DevicesWatch : public testing::EmptyTestEventListener {
 public:
  explicit DevicesWatch(decltype(&weft_test_devices_trouble) trouble) : trouble_(trouble) {}
  void OnTestEnd(const testing::TestInfo &) override { EXPECT_STREQ(trouble_(), ""); }

 private:
  decltype(&weft_test_devices_trouble) const trouble_;
};

// The plugin that is opened later finds the functions of the library, so they are global.
const bool devices_are_there = [] {
  const char *const path = library_of_devices();
  if (path == nullptr) return false;
  void *const library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  void *const trouble = library != nullptr ? dlsym(library, "weft_test_devices_trouble") : nullptr;
  if (trouble == nullptr) {
    std::fprintf(stderr, "WEFT_TEST_DEVICES=%s: %s\n", path, dlerror());
    std::_Exit(1);
  }
  testing::UnitTest::GetInstance()->listeners().Append(
      new DevicesWatch(reinterpret_cast<decltype(&weft_test_devices_trouble)>(trouble)));
  return true;
}();

}  // namespace

bool has_devices_inside() {
  return devices_are_there;
}

}  // namespace weft::conformance
