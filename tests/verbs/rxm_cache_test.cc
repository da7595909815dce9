// SPDX-License-Identifier: BSD-2-Clause
// rxm over verbs with and without the cache of registrations (FI_VERBS_MR_CACHE): rendezvous
// registers memory for each message, and finds it again where there is a cache.
#include <weft/sdk/devices/memory_monitor.h>

#include <cstdlib>
#include <string>

#include "plugins/rxm/test_peer.h"
#include "tests/verbs/network.h"

namespace weft::conformance {
namespace {

bool has_cache() {
  const char *const wanted = std::getenv("FI_VERBS_MR_CACHE");
  return wanted != nullptr && std::string(wanted) == "1";
}

TEST(RxmOverVerbs, MemoryThatIsUsedAgainIsRegisteredOnceWithACache) {
  const auto monitor = sdk::MemoryMonitor::open();
  if (has_cache() && !monitor) GTEST_SKIP() << monitor.error().text;
  constexpr size_t kSize = 1000000;
  constexpr uint64_t kMessages = 5;
  Peer a, b;
  const fi_addr_t to = a.insert(b);
  Bytes out = content(kSize, 1), in(kSize);
  const auto exchange = [&](uint64_t tag) {
    out[tag] = uint8_t(tag + 1);
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, tag, 0, &in));
    must(fi_tsend(a.ep, out.data(), kSize, nullptr, to, tag, &a));
    EXPECT_EQ(wait(a, &a, {&a, &b}).err, 0);
    EXPECT_EQ(wait(b, &in, {&a, &b}).err, 0);
    EXPECT_EQ(in, out);
  };
  exchange(0);
  const uint64_t before = network().calls("ibv_reg_mr");
  for (uint64_t tag = 1; tag <= kMessages; ++tag) exchange(tag);
  EXPECT_EQ(network().calls("ibv_reg_mr") - before, has_cache() ? 0 : 2 * kMessages);
}

}  // namespace
}  // namespace weft::conformance
