// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plugins/verbs/paths.h"
#include "plugins/verbs/provider.h"
#include "plugins/verbs/test_node.h"

namespace weft::verbs {
namespace {

using testing::HasSubstr;

bool has_address(const DeviceFacts &facts, const char *ip) {
  return std::ranges::any_of(facts.addresses, [&](const auto &a) { return a.ip() == ip; });
}

TEST(VerbsDevices, FactsComeFromTheDevice) {
  TestNode node({}, {.limits = {.max_qp_wr = 77, .max_sge = 5, .max_inline = 100}});
  Devices devices({});
  ASSERT_TRUE(devices.refresh());
  const auto all = devices.facts();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name, "dbl0");
  EXPECT_TRUE(all[0].port_active);
  EXPECT_EQ(all[0].transport, Transport::kRoce);
  EXPECT_EQ(all[0].mtu, 4096u);
  EXPECT_EQ(all[0].max_queue_entries, 77u);
  EXPECT_EQ(all[0].max_sges, 5u);
  EXPECT_EQ(all[0].max_inline, 64u);  // the largest half of 256 that a queue pair took
  EXPECT_TRUE(all[0].has_atomics);
  EXPECT_TRUE(has_address(all[0], "10.99.0.1"));
  EXPECT_TRUE(has_address(all[0], "fd99::1"));
}

TEST(VerbsDevices, APortThatGoesDownIsSeen) {
  TestNode node;
  Devices devices({});
  ASSERT_TRUE(devices.refresh());
  node.device.set_port_state(IBV_PORT_DOWN);
  ASSERT_TRUE(devices.refresh());
  EXPECT_FALSE(devices.facts()[0].port_active);
  const auto paths = device_paths({}, devices.facts(), devices);
  ASSERT_FALSE(paths);
  EXPECT_THAT(paths.error().text, HasSubstr("active port"));
}

TEST(VerbsDevices, ADeviceThatCannotBeAskedIsLeftOutWithTheReason) {
  TestNode node;
  node.network.fail({.call = "ibv_query_device_ex", .error = EIO});
  Devices devices({});
  ASSERT_TRUE(devices.refresh());
  EXPECT_TRUE(devices.facts().empty());
  ASSERT_EQ(devices.left_out().size(), 1u);
  EXPECT_THAT(devices.left_out()[0], HasSubstr("dbl0: ibv_query_device_ex"));
}

TEST(VerbsDevices, ADeviceThatIsGoneIsNotOffered) {
  TestNode node;
  node.network.add({.name = "dbl1", .addresses = {"10.99.1.1"}});
  Devices devices({});
  ASSERT_TRUE(devices.refresh());
  ASSERT_EQ(devices.facts().size(), 2u);
  node.device.remove();
  ASSERT_TRUE(devices.refresh());
  ASSERT_EQ(devices.facts().size(), 1u);
  EXPECT_EQ(devices.facts()[0].name, "dbl1");
  EXPECT_FALSE(devices.find("dbl0"));
}

TEST(VerbsDevices, APortThatCannotBeAskedAnyMoreIsLeftOut) {
  TestNode node;
  Devices devices({});
  ASSERT_TRUE(devices.refresh());
  node.network.fail({.call = "ibv_query_port", .error = EIO});
  ASSERT_TRUE(devices.refresh());
  EXPECT_TRUE(devices.facts().empty());
  EXPECT_THAT(devices.left_out().at(0), HasSubstr("dbl0: ibv_query_port"));
  ASSERT_TRUE(devices.refresh());
  EXPECT_EQ(devices.facts().size(), 1u);
}

TEST(VerbsDevices, ThePeerDecidesWhichDeviceIsUsed) {
  TestNode node;
  node.network.add({.name = "dbl1", .addresses = {"10.99.1.1"}});
  Devices devices({});
  ASSERT_TRUE(devices.refresh());
  const auto paths =
      device_paths({.node = "10.99.1.1", .service = "7471"}, devices.facts(), devices);
  ASSERT_TRUE(paths) << paths.error().text;
  ASSERT_EQ(paths->size(), 1u);
  EXPECT_EQ(paths->front().facts.name, "dbl1");
  EXPECT_EQ(paths->front().dest.to_string(), "10.99.1.1:7471");
  EXPECT_EQ(paths->front().source.port(), 0);
}

TEST(VerbsDevices, AnAddressThatNoDeviceLeadsToIsAnError) {
  TestNode node;
  Devices devices({});
  ASSERT_TRUE(devices.refresh());
  const auto paths = device_paths({.node = "192.0.2.1", .service = "1"}, devices.facts(), devices);
  ASSERT_FALSE(paths);
  EXPECT_EQ(paths.error().code, FI_ENODATA);
  EXPECT_THAT(paths.error().text, HasSubstr("192.0.2.1"));
}

TEST(VerbsDevices, AnInterfaceMayBeNamed) {
  TestNode node({}, {.addresses = {"127.0.0.1", "10.99.0.1"}});
  Settings settings;
  settings.iface = "lo";
  fi_info hints{};
  hints.addr_format = FI_SOCKADDR_IN;  // connected endpoints
  auto list = VerbsProvider(&node.instance, settings).getinfo({.hints = &hints});
  ASSERT_TRUE(list) << list.error().text;
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in *>(list->front()->src_addr)->sin_addr.s_addr,
            htonl(INADDR_LOOPBACK));
  settings.iface = "none";
  EXPECT_FALSE(VerbsProvider(&node.instance, settings).getinfo({.hints = &hints}));
  const auto route =
      VerbsProvider(&node.instance, settings).getinfo({.node = "10.99.0.1", .hints = &hints});
  ASSERT_FALSE(route);
  EXPECT_THAT(route.error().text, HasSubstr("verbs iface"));
}

TEST(VerbsDevices, WithoutADeviceTheErrorSaysHowToMakeOne) {
  verbs_double::Network network;
  Devices devices({});
  if (devices.refresh()) {
    EXPECT_TRUE(devices.facts().empty());
  }
  const auto paths = device_paths({}, {}, devices);
  ASSERT_FALSE(paths);
  EXPECT_THAT(paths.error().text, HasSubstr("rdma link add rxe0 type rxe"));
}

}  // namespace
}  // namespace weft::verbs
