// SPDX-License-Identifier: BSD-2-Clause
// Traffic over a pair of endpoints, and what the example hook `count` counted of it.
//
// Example:
//     TEST(Example, TheHookCountsMessages) {
//       Pair pair;  // with hook-count above the provider
//       exchange(pair, 3);
//       EXPECT_EQ(counted(pair.a.ep), 3u);
//     }
#ifndef WEFT_TESTS_STACKS_COUNT_H
#define WEFT_TESTS_STACKS_COUNT_H

#include <gtest/gtest.h>
#include <weft/plugin.h>

#include <optional>

#include "tests/conformance/harness.h"

namespace weft::conformance {

// Nothing if the hook is not on the endpoint.
inline std::optional<uint64_t> counted(fid_ep *ep) {
  weft_counters_ops *ops = nullptr;
  if (fi_open_ops(&ep->fid, "hook-count", 0, reinterpret_cast<void **>(&ops), nullptr) != 0)
    return {};
  weft_counter counter{};
  ops->read(&ep->fid, &counter, 1);
  return counter.value;
}

// Messages from a to b, one after the other.
inline void exchange(Pair &pair, int messages) {
  for (int i = 0; i < messages; ++i) {
    const auto out = pattern(100 + size_t(i), unsigned(i));
    std::vector<uint8_t> in(out.size());
    pair.post([&] { return fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, nullptr); });
    pair.post([&] { return fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr); });
    EXPECT_EQ(pair.wait(pair.b.receive_cq()).len, out.size());
    pair.wait(pair.a.tx_cq);
    ASSERT_EQ(in, out);
  }
}

}  // namespace weft::conformance

#endif
