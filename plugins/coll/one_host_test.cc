// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/one_host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <weft/sdk/ip/interfaces.h>

#include <thread>

namespace weft::coll {
namespace {

sdk::Address at(const char *ip, uint16_t port = 7471) {
  return *sdk::SockAddr::from_ip(ip, port);
}

TEST(OneHost, HasItsAddressInAnyForm) {
  OneHost host(at("10.254.0.1"));  // of another host, but the endpoint's own
  EXPECT_TRUE(host.has(at("10.254.0.1")));
  EXPECT_TRUE(host.has(at("10.254.0.1", 1)));
  for (const char *const ip : {"127.0.0.1", "127.9.0.2", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(host.has(at(ip))) << ip;
}

TEST(OneHost, HasAllAddressesOfItsInterfaces) {
  OneHost host(at("127.0.0.1"));
  const auto interfaces = sdk::list_interfaces();
  ASSERT_TRUE(interfaces) << interfaces.error().text;
  for (const sdk::Interface &interface : *interfaces) {
    EXPECT_TRUE(host.has(interface.address)) << interface.address.to_string();
    if (interface.address.family() != AF_INET) continue;
    const std::string ip = interface.address.to_string();
    const std::string mapped = "::ffff:" + ip.substr(0, ip.find(':'));
    EXPECT_TRUE(host.has(at(mapped.c_str()))) << mapped;
  }
}

// Addresses for documentation (RFC 5737 and 3849), which no host has.
TEST(OneHost, HasNoAddressOfAnother) {
  OneHost host(at("127.0.0.1"));
  for (const char *const ip : {"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1"})
    EXPECT_FALSE(host.has(at(ip))) << ip;
  EXPECT_FALSE(host.has(sdk::Address()));
  EXPECT_FALSE(OneHost(sdk::Address()).has(at("127.0.0.1")));
}

TEST(OwnCpus, AreThoseThatTheThreadMayUse) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_EQ(own_cpus().count, CPU_COUNT(&all));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    std::thread([cpu] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
      EXPECT_EQ(own_cpus().count, 1);
      EXPECT_EQ(own_cpus().first, cpu);
    }).join();
  }
}

}  // namespace
}  // namespace weft::coll
