// SPDX-License-Identifier: BSD-2-Clause
// The calls of udp for layers above it, beyond the C API (weft/sdk/layers/carrier.h).
#include <netinet/in.h>
#include <weft/sdk/layers/carrier.h>

#include <cstring>

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

// Of an endpoint that is bound to all addresses: each of 127.0.0.0/8 is one of the host's.
TEST(Carrier, TellsAtWhichAddressesOfTheHostDatagramsCome) {
  Options options;
  options.node = "0.0.0.0";
  options.service = "0";
  Node node(options);
  weft_datagram_ops *ops = ops_of(node);
  const auto next = [&]() -> std::string {
    char name[64];
    size_t size = sizeof name;
    const int rc = ops->next_arrival(node.ep, name, &size);
    if (rc == -FI_EAGAIN) return {};
    must(rc);
    return {name, size};
  };
  const auto at = [&](uint8_t host) {
    sockaddr_in address{};
    const std::string name = node.name();
    std::memcpy(&address, name.data(), sizeof address);
    address.sin_addr.s_addr = htonl(0x7f000000u | host);
    return std::string(reinterpret_cast<const char *>(&address), sizeof address);
  };
  PlainSocket peer;
  std::vector<uint8_t> in(100);
  const auto receive = [&](uint8_t host) {
    must(fi_recv(node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    ASSERT_EQ(peer.send(at(host), {1, 2, 3}), 0);
    const Deadline deadline;
    while (!poll(node.rx_cq)) ASSERT_FALSE(deadline.passed());
  };
  receive(1);
  EXPECT_EQ(next(), "") << "nobody has asked";
  for (int i = 0; i < 80; ++i) receive(3);
  receive(4);
  EXPECT_EQ(next(), at(3));
  EXPECT_EQ(next(), "") << "only for some datagrams";
  receive(3);
  receive(4);
  EXPECT_EQ(next(), at(4));
  EXPECT_EQ(next(), "");
}

}  // namespace
}  // namespace weft::conformance::dgram
