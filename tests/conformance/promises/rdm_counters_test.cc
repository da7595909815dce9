// SPDX-License-Identifier: BSD-2-Clause
// What counters of an endpoint count (fi_endpoint.3, fi_ep_bind), where no other test asks for it.
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

TEST(PromisesCounters, AtomicsThatFetchCountAsReads) {
  RDM_NEEDS(FI_ATOMIC);
  if (find_info()->domain_attr->cntr_cnt == 0) GTEST_SKIP() << stack() << " has no counters";
  Options options;
  options.caps |= FI_ATOMIC;
  fid_cntr *reads = nullptr, *writes = nullptr;
  Net net(2, options, [&](Node &node) {
    if (reads != nullptr) return;  // the first one is the initiator
    reads = node.count(FI_READ);
    writes = node.count(FI_WRITE);
  });
  uint64_t word = 5, one = 1, old = 0, same = 7;
  const uint64_t key =
      fi_mr_key(net[1].expose(&word, sizeof word, FI_REMOTE_READ | FI_REMOTE_WRITE, 1));
  const uint64_t base = net[1].base_of(&word);
  const fi_addr_t to = net.at(0, 1);
  fid_ep *const ep = net[0].ep;
  net.post([&] { return fi_atomic(ep, &one, 1, nullptr, to, base, key, FI_UINT64, FI_SUM, &one); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.post([&] {
    return fi_fetch_atomic(ep, &one, 1, nullptr, &old, nullptr, to, base, key, FI_UINT64, FI_SUM,
                           &one);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.post([&] {
    return fi_compare_atomic(ep, &one, 1, nullptr, &same, nullptr, &old, nullptr, to, base, key,
                             FI_UINT64, FI_CSWAP, &one);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.wait_count(writes, 1);
  net.wait_count(reads, 2);
  EXPECT_EQ(fi_cntr_read(writes), 1u);
  EXPECT_EQ(fi_cntr_read(reads), 2u);
}

}  // namespace
}  // namespace weft::conformance::rdm
