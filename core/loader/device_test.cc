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
  Checked<void> check(std::vector<std::string> devices, std::string remedy = {}) {
    return check_devices({.devices = std::move(devices), .device_remedy = std::move(remedy)},
                         folder_.path());
  }
  bool here(const std::string &device) { return check({device}).has_value(); }
  TestFolder folder_;
};

TEST_F(Device, AUnitMayNeedNoDevice) {
  EXPECT_TRUE(check_devices({}, "/nonexistent"));
  EXPECT_TRUE(check({}, "buy one"));
}

TEST_F(Device, OnePresentDeviceIsEnough) {
  EXPECT_TRUE(check({"netdev:ib*", "netdev:hsn*"}));
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
  const auto result = check({"pci:1fc9:*", "netdev:ib*"});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().stage, Stage::kDevice);
  EXPECT_THAT(result.error().cause, testing::HasSubstr("pci:1fc9:*, netdev:ib*"));
  EXPECT_THAT(result.error().remedy, testing::HasSubstr("load its kernel driver"));
}

TEST_F(Device, TheRemedyIsTheUnitsOwn) {
  const auto result = check({"netdev:ib*"}, "load 100% of ib.ko");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().remedy, "load 100% of ib.ko");
  EXPECT_TRUE(check({"netdev:hsn*"}, "load ib.ko"));
}

}  // namespace
}  // namespace weft
