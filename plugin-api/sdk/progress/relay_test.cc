// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/progress/relay.h"

#include <gtest/gtest.h>

#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk {
namespace {

TEST(Relay, WritesOnceWhenTheSourceIsReadable) {
  const size_t before = open_files();
  {
    Event source, a, b;  // closed when the relay writes no more
    const size_t events = open_files();
    Relay relay;
    EXPECT_EQ(open_files(), events) << "no descriptor before the first arm()";
    ASSERT_EQ(relay.arm(source.fd(), a.fd()), 0);
    ASSERT_EQ(relay.arm(source.fd(), b.fd()), 0);
    ASSERT_EQ(relay.arm(source.fd(), b.fd()), 0) << "a second call changes nothing";
    EXPECT_FALSE(readable(a.fd()));
    source.signal();
    EXPECT_TRUE(readable(a.fd(), kPatienceMs));
    EXPECT_TRUE(readable(b.fd(), kPatienceMs));
    eventfd_t count;
    eventfd_read(a.fd(), &count);
    EXPECT_EQ(count, 1u);
    ASSERT_EQ(relay.arm(source.fd(), b.fd()), 0);
    EXPECT_FALSE(readable(a.fd(), 1)) << "not armed again";
  }
  EXPECT_EQ(open_files(), before);
}

TEST(Relay, ARemovedDescriptorIsNotWritten) {
  Relay relay;
  for (int round = 0; round < 200; ++round) {
    Event source, a, b;
    ASSERT_EQ(relay.arm(source.fd(), a.fd()), 0);
    ASSERT_EQ(relay.arm(source.fd(), b.fd()), 0);
    relay.forget(a.fd());
    source.signal();
    EXPECT_TRUE(readable(b.fd(), kPatienceMs));
    EXPECT_FALSE(readable(a.fd()));
    relay.forget(b.fd());
  }
}

}  // namespace
}  // namespace weft::sdk
