// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/loader/test_folder.h"

namespace weft {
namespace {

class Device : public testing::Test {
 protected:
  Device() {
    folder_.write("class/net/hsn0/address", "x");
    folder_.write("class/net/lo/address", "x");
    folder_.write("bus/pci/devices/0000:01:00.0/vendor", "0x15b3\n");
    folder_.write("bus/pci/devices/0000:01:00.0/device", "0x101b\n");
    folder_.write("bus/pci/devices/0000:02:00.0/vendor", "");
    folder_.write("dev/uverbs0", "");
  }
  bool here(const std::string &device) {
    return check_devices({device}, folder_.path()).has_value();
  }
  TestFolder folder_;
};

TEST_F(Device, AUnitMayNeedNoDevice) {
  EXPECT_TRUE(check_devices({}, "/nonexistent"));
}

TEST_F(Device, OnePresentDeviceIsEnough) {
  EXPECT_TRUE(check_devices({"netdev:ib*", "netdev:hsn*"}, folder_.path()));
}

TEST_F(Device, MatchesPatterns) {
  EXPECT_TRUE(here("netdev:hsn?"));
  EXPECT_FALSE(here("netdev:hsn"));
  EXPECT_TRUE(here("pci:15b3:*"));
  EXPECT_TRUE(here("pci:15B3:101B"));
  EXPECT_FALSE(here("pci:15b3:1000"));
  EXPECT_FALSE(here("pci:1fc9:*"));
  EXPECT_TRUE(here("path:" + folder_.at("dev/uverbs*")));
  EXPECT_FALSE(here("path:" + folder_.at("dev/nothing*")));
  EXPECT_FALSE(here("gpu:*"));
  EXPECT_FALSE(here("nothing"));
}

TEST_F(Device, TheRejectionNamesAllDevices) {
  const auto result = check_devices({"pci:1fc9:*", "netdev:ib*"}, folder_.path());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().stage, Stage::kDevice);
  EXPECT_THAT(result.error().cause, testing::HasSubstr("pci:1fc9:*, netdev:ib*"));
  EXPECT_FALSE(result.error().remedy.empty());
}

}  // namespace
}  // namespace weft
