// SPDX-License-Identifier: BSD-2-Clause
// The calls of udp for layers above it, beyond the C API (weft/sdk/carrier.h).
#include <weft/sdk/carrier.h>

#include "tests/conformance/dgram_harness.h"

namespace weft::conformance::dgram {
namespace {

weft_datagram_ops *ops_of(Node &node) {
  weft_datagram_ops *ops = nullptr;
  must(fi_open_ops(&node.domain->fid, WEFT_DATAGRAM_OPS, 0, reinterpret_cast<void **>(&ops),
                   nullptr));
  EXPECT_EQ(ops->size, sizeof *ops);
  return ops;
}

TEST(Carrier, SourcesAreReportedOnlyWhileTheyAreWanted) {
  Options options;
  options.caps |= FI_SOURCE;
  Net net(1, options);
  weft_datagram_ops *ops = ops_of(net[0]);
  PlainSocket peer;
  const fi_addr_t known = net[0].insert(peer.name());
  std::vector<uint8_t> in(100);
  for (const bool named : {true, false, true}) {
    EXPECT_EQ(ops->name_sources(net[0].ep, named), 0);
    must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    ASSERT_EQ(peer.send(net[0].name(), {1, 2, 3}), 0);
    EXPECT_EQ(net.wait(net[0].rx_cq).source, named ? known : FI_ADDR_NOTAVAIL);
  }
}

TEST(Carrier, ReadingOfSourcesCannotChangeWithoutFiSourceOrWithFiSourceErr) {
  Net without;
  EXPECT_EQ(ops_of(without[0])->name_sources(without[0].ep, 1), -FI_EOPNOTSUPP);
  EXPECT_EQ(ops_of(without[0])->name_sources(without[0].ep, 0), -FI_EOPNOTSUPP);
  Options options;
  options.caps |= FI_SOURCE | FI_SOURCE_ERR;
  Net net(1, options);
  EXPECT_EQ(ops_of(net[0])->name_sources(net[0].ep, 0), -FI_EOPNOTSUPP);
  PlainSocket stranger;
  std::vector<uint8_t> in(100);
  must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  ASSERT_EQ(stranger.send(net[0].name(), {1, 2, 3}), 0);
  EXPECT_EQ(net.wait(net[0].rx_cq).err, FI_EADDRNOTAVAIL);
}

}  // namespace
}  // namespace weft::conformance::dgram
