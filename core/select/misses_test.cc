// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/misses.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Misses, TheNearestFirstAndOnePerCandidate) {
  Misses misses;
  misses.add({"udp", Stage::kHints, "hints.ep_attr.type: FI_EP_MSG wanted", "", 16});
  misses.add(
      {"verbs", Stage::kDevice, "no device", "load the driver", distance_of_stage(Stage::kDevice)});
  misses.add({"tcp", Stage::kHints, "hints.caps: FI_FENCE wanted", "", 8});
  misses.add({"tcp", Stage::kHints, "hints.tx_attr.size 4096 is above 1024", "", 1});
  misses.add({"tcp", Stage::kHints, "hints.mode lacks FI_CONTEXT", "", 4});
  misses.add({"shm", Stage::kPolicy, "shm is disabled", "", distance_of_stage(Stage::kPolicy)});
  misses.add({"gone", Stage::kHints, "it answers later", "", 1});
  misses.drop("gone");
  std::vector<std::string> texts;
  for (const Miss &miss : misses.sorted()) texts.push_back(text_of(miss));
  EXPECT_EQ(texts,
            (std::vector<std::string>{
                "tcp: tx_attr.size 4096 is above 1024", "udp: ep_attr.type: FI_EP_MSG wanted",
                "verbs: no device: load the driver", "shm: shm is disabled"}));
  EXPECT_TRUE(misses.has("tcp"));
  EXPECT_FALSE(misses.has("gone"));
}

TEST(Misses, TheTextHasTheNameOnce) {
  EXPECT_EQ(text_of({"tcp", Stage::kGetinfo, "tcp: no such host", "", 4}), "tcp: no such host");
  EXPECT_EQ(text_of({"", Stage::kGetinfo, "FI_SOURCE alone", "", 4}), "FI_SOURCE alone");
  EXPECT_EQ(
      text_of({"tcp;ofi_rxm", Stage::kGetinfo, "rxm: tcp: hints.domain_attr.name: \"a\"", "", 8}),
      "tcp;ofi_rxm: rxm: tcp: domain_attr.name: \"a\"");
}

}  // namespace
}  // namespace weft
