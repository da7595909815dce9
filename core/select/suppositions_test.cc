// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/suppositions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::HasSubstr;

PolicySources sources() {
  PolicySources sources;
  sources.system_folders = {"/usr/share/weft", "/etc/weft"};
  sources.user_file = "/home/me/weft.yaml";
  return sources;
}

std::string refused(const char *what, const char *name, const char *value) {
  Suppositions supposed;
  const Result<void> added = supposed.add(what, name, value, sources());
  return added ? "" : added.error().text;
}

TEST(Suppositions, NamesAreChecked) {
  EXPECT_EQ(refused("file", "/etc/weft/10-site.yaml", "/tmp/x"), "");
  EXPECT_EQ(refused("file", "/etc/10-site.yaml", "/tmp/x"),
            "no file is read at /etc/10-site.yaml: give one of /usr/share/weft/NAME.yaml, "
            "/etc/weft/NAME.yaml, /home/me/weft.yaml");
  EXPECT_EQ(refused("hostname", "", "login1"), "");
  EXPECT_EQ(refused("hostname", "", ""), "an empty hostname: give a name");
  EXPECT_EQ(refused("executable", "", ""), "an empty executable: give a name");
  EXPECT_THAT(refused("weather", "", "fair"), HasSubstr("\"weather\" cannot be supposed"));
  for (const char *good : {"ib0", "ib0,10.1.0.7", "ib0,fd00::7"})
    EXPECT_EQ(refused("netdev", "eth0", good), "") << good;
  for (const char *bad : {"", ",10.1.0.7", "ib0,", "ib0,10.1.0", "ib0,10.1.0.7/24"})
    EXPECT_NE(refused("netdev", "eth0", bad), "") << bad;
  EXPECT_NE(refused("netdev", "", "ib0"), "");
}

TEST(Suppositions, OneInterfaceIsOneOther) {
  Suppositions supposed;
  ASSERT_TRUE(supposed.add("netdev", "eth0", "ib0", sources()));
  ASSERT_TRUE(supposed.add("netdev", "eth1", "ib0", sources()));
  EXPECT_THAT(supposed.add("netdev", "eth0", "ib1", sources()).error().text,
              HasSubstr("eth0 is supposed to be ib0 and ib1"));
}

TEST(Suppositions, ThePlaceIsAsSupposed) {
  Suppositions supposed;
  Place place = supposed.applied_to(Place::of_process());
  EXPECT_EQ(place.hostname(), Place::of_process().hostname());
  ASSERT_TRUE(supposed.add("hostname", "", "login1", sources()));
  ASSERT_TRUE(supposed.add("executable", "", "/opt/solver", sources()));
  ASSERT_TRUE(supposed.add("netdev", "eth0", "ib0,fd00::7", sources()));
  place = supposed.applied_to(Place::of_process());
  EXPECT_EQ(place.hostname(), "login1");
  EXPECT_EQ(place.executable(), "/opt/solver");
  ASSERT_EQ(place.devices.size(), 1u);
  EXPECT_TRUE(in_subnet(reinterpret_cast<const sockaddr *>(&place.devices[0].address),
                        place.devices[0].address_length, "fd00::/8"));
}

}  // namespace
}  // namespace weft
