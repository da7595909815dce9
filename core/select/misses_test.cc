// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/misses.h"

#include <gtest/gtest.h>

#include "core/base/render.h"

namespace weft {
namespace {

Decision refused(const char *candidate, Refusal refusal) {
  return {.candidate = candidate, .stage = Stage::kHints, .refusals = {std::move(refusal)}};
}

TEST(Misses, TheNearestFirstAndOnePerCandidate) {
  const Refusal size{"tx_attr.size", Misfit::kAbove, "4096", "1024"};
  Misses misses;
  misses.add(refused("udp", {"ep_attr.type", Misfit::kNone, "FI_EP_MSG"}));
  misses.add({.candidate = "verbs",
              .stage = Stage::kDevice,
              .reason = "no device",
              .remedy = "load the driver"});
  misses.add(refused("tcp", {"caps", Misfit::kNone, "FI_FENCE"}));
  misses.add(refused("tcp", size));
  misses.add(refused("tcp", {"mode", Misfit::kRequired, "", "FI_CONTEXT"}));
  misses.add({.candidate = "shm", .stage = Stage::kPolicy, .reason = "shm is disabled"});
  misses.add(refused("gone", size));
  misses.drop("gone");
  std::vector<std::string> texts;
  for (const Decision &miss : misses.sorted()) texts.push_back(miss_line(miss));
  EXPECT_EQ(texts, (std::vector<std::string>{"tcp: tx_attr.size 4096 is above 1024",
                                             "udp: ep_attr.type: FI_EP_MSG wanted, not offered",
                                             "verbs: no device: load the driver",
                                             "shm: shm is disabled"}));
  EXPECT_TRUE(misses.has("tcp"));
  EXPECT_FALSE(misses.has("gone"));
}

TEST(Misses, TheTextHasTheNameOnce) {
  const auto line = [](const char *candidate, const char *words) {
    return miss_line({.candidate = candidate, .stage = Stage::kGetinfo, .reason = words});
  };
  EXPECT_EQ(line("tcp", "tcp: no such host"), "tcp: no such host");
  EXPECT_EQ(line("", "FI_SOURCE alone"), "FI_SOURCE alone");
  EXPECT_EQ(line("tcp;ofi_rxm", "rxm: tcp: hints.domain_attr.name: \"a\""),
            "tcp;ofi_rxm: rxm: tcp: domain_attr.name: \"a\"");
}

}  // namespace
}  // namespace weft
