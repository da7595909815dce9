// SPDX-License-Identifier: BSD-2-Clause
// Traffic classes of connected endpoints (fi_endpoint.3, Traffic Class): each side's packets have
// its own.
#include "tests/conformance/harness.h"
#include "tests/conformance/packets.h"

namespace weft::conformance {
namespace {

Options with_class(uint32_t tclass) {
  Options options;
  options.tclass = tclass;
  return options;
}
bool has_dscps() {
  const uint32_t wanted = fi_tc_dscp_set(9);
  const Info info = find_info(with_class(wanted));
  return info && info->tx_attr->tclass == wanted;
}
#define CLASSES_NEEDED()                                                       \
  do {                                                                         \
    covers("traffic classes");                                                 \
    if (!is_fresh_process() && !has_dscps()) GTEST_SKIP() << "no DSCPs of IP"; \
  } while (0)

void exchange(Pair &pair, Side &from, Side &to) {
  std::vector<uint8_t> out = pattern(100'000, 1), in(out.size());
  must(fi_recv(to.ep, in.data(), in.size(), nullptr, 0, &in));
  pair.post([&] { return fi_send(from.ep, out.data(), out.size(), nullptr, 0, &out); });
  EXPECT_EQ(pair.wait(to.rx_cq).err, 0);
  EXPECT_EQ(pair.wait(from.tx_cq).err, 0);
  EXPECT_EQ(in, out);
}

TEST(Class, EachSidesPacketsHaveItsOwn) {
  CLASSES_NEEDED();
  if (!in_fresh_process()) return;
  Packets packets;
  if (!packets.opened()) GTEST_SKIP() << "this user may have no network namespace";
  Pair pair(with_class(FI_TC_BULK_DATA), with_class(FI_TC_SCAVENGER));
  const uint16_t port = uint16_t(std::stoi(port_of(pair.a.name())));
  exchange(pair, pair.a, pair.b);
  exchange(pair, pair.b, pair.a);
  for (const auto &[from, seen] : packets.dscps_by_port())
    EXPECT_EQ(seen, std::set<int>{from == port ? 10 : 1}) << from;
}

TEST(Class, AnAcceptedOneDoesNotKeepTheListeners) {
  CLASSES_NEEDED();
  if (!in_fresh_process()) return;
  Packets packets;
  if (!packets.opened()) GTEST_SKIP() << "this user may have no network namespace";
  Pair pair;
  exchange(pair, pair.a, pair.b);
  exchange(pair, pair.b, pair.a);
  EXPECT_EQ(packets.dscps(), std::set<int>{0});
}

TEST(Class, WhatIsNoClassIsRefused) {
  CLASSES_NEEDED();
  EXPECT_FALSE(find_info(with_class(0x777)));
  EXPECT_FALSE(find_info(with_class(FI_TC_DSCP | 64)));
  Pair pair;
  const Info info(fi_dupinfo(pair.a.info.get()));
  info->handle = nullptr;
  info->tx_attr->tclass = 0x777;
  fid_ep *ep = nullptr;
  EXPECT_EQ(fi_endpoint(pair.a.domain, info.get(), &ep, nullptr), -FI_EINVAL);
  fid_pep *pep = nullptr;
  EXPECT_EQ(fi_passive_ep(pair.a.fabric, info.get(), &pep, nullptr), -FI_EINVAL);
}

}  // namespace
}  // namespace weft::conformance
