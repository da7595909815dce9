// SPDX-License-Identifier: BSD-2-Clause
// Which NICs there are, with a library and without.
#include "plugins/cxi/all_devices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/paths.h"

namespace weft::cxi {
namespace {

const std::string kFakecxi = test::built("tests/fakecxi.so");

Settings settings(const std::string &libcxi, bool is_soft, std::vector<std::string> soft = {}) {
  Settings settings;
  settings.libcxi = libcxi;
  settings.names_libcxi = libcxi == "/nowhere/libcxi.so.1";
  settings.soft_for = is_soft ? Settings::SoftFor::kNamers : Settings::SoftFor::kNobody;
  settings.soft_devices = std::move(soft);
  return settings;
}

std::string list(const Settings &settings) {
  const auto devices = AllDevices::make(settings);
  if (!devices) return devices.error().text;
  std::string text;
  for (const DeviceFacts &facts : (*devices)->list())
    text += facts.name + (facts.is_software ? "s " : "h ");
  return text;
}

TEST(AllDevices, WithoutALibraryTheyAreSoftware) {
  EXPECT_EQ(list(settings("libnothing-here.so.1", true)), "cxi0s cxi1s ");
  EXPECT_EQ(list(settings("", true)), "cxi0s cxi1s ");
  EXPECT_EQ(list(settings("", false)), "");
}

TEST(AllDevices, ThoseOfTheLibraryComeInTheirPlace) {
  EXPECT_EQ(list(settings(kFakecxi, true)), "cxi0h cxi1h ");
  EXPECT_EQ(list(settings(kFakecxi, false)), "cxi0h cxi1h ");
  EXPECT_EQ(list(settings(kFakecxi, true, {"cxi1=127.0.0.7", "soft0=127.0.0.9"})),
            "cxi0h cxi1h soft0s ")
      << "a name is of one NIC";
}

TEST(AllDevices, ALibraryThatSomebodyNamesMustBeThere) {
  EXPECT_NE(list(settings("/nowhere/libcxi.so.1", true)).find("FI_CXI_LIBCXI"), std::string::npos);
}

TEST(AllDevices, AnOldLibraryIsNoted) {
  const auto devices = AllDevices::make(settings("libm.so.6", true));
  ASSERT_TRUE(devices.has_value());
  ASSERT_EQ((*devices)->notes().size(), 1u);
  EXPECT_NE((*devices)->notes()[0].find("cxil_get_device_list"), std::string::npos);
}

TEST(AllDevices, OpensTheOneThatItLists) {
  const auto devices = AllDevices::make(settings(kFakecxi, true, {"soft0=127.0.0.9"}));
  ASSERT_TRUE(devices.has_value());
  const auto hardware = (*devices)->open("cxi0"), software = (*devices)->open("soft0");
  ASSERT_TRUE(hardware.has_value() && software.has_value());
  EXPECT_FALSE((*hardware)->facts().is_software);
  EXPECT_TRUE((*software)->facts().is_software);
  EXPECT_EQ((*hardware)->wait_fd(), -1) << "it needs nobody";
  EXPECT_EQ((*devices)->open("cxi7").error().code, FI_ENODEV);
}

}  // namespace
}  // namespace weft::cxi
