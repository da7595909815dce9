// SPDX-License-Identifier: BSD-2-Clause
// Aliases of connected endpoints (fi_endpoint.3, fi_ep_alias).
#include <rdma/fi_tagged.h>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

TEST(Alias, TheCallNamesOneSide) {
  Pair pair;
  fid_ep *alias = nullptr;
  EXPECT_EQ(fi_ep_alias(pair.a.ep, &alias, 0), -FI_EINVAL);
  EXPECT_EQ(fi_ep_alias(pair.a.ep, &alias, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
  EXPECT_EQ(fi_ep_alias(pair.a.ep, &alias, FI_TRANSMIT | FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(alias, nullptr);
}

// One endpoint, two completion modes.
TEST(Alias, ReportsByItsOwnFlags) {
  Options options;
  options.tx_cq_flags = FI_SELECTIVE_COMPLETION;
  Pair pair(options);
  Handle<fid_ep> loud;
  must(fi_ep_alias(pair.a.ep, loud.out(), FI_TRANSMIT | FI_COMPLETION));
  uint64_t flags = FI_TRANSMIT;
  must(fi_control(loud.fid(), FI_GETOPSFLAG, &flags));
  EXPECT_EQ(flags, FI_COMPLETION);
  char in[2][4], out[2][4] = {"one", "two"};
  for (auto &buffer : in) must(fi_recv(pair.b.ep, buffer, sizeof buffer, nullptr, 0, buffer));
  must(fi_send(pair.a.ep, out[0], 4, nullptr, 0, out[0]));
  must(fi_send(loud, out[1], 4, nullptr, 0, out[1]));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, out[1]) << "the first one reports nothing";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(pair.wait(pair.b.rx_cq).context, in[i]);
    EXPECT_STREQ(in[i], out[i]);
  }
}

TEST(Alias, IsTheSameEndpoint) {
  Pair pair;
  Handle<fid_ep> alias;
  must(fi_ep_alias(pair.b.ep, alias.out(), FI_RECV));
  EXPECT_EQ(alias->fid.context, pair.b.ep->fid.context);
  char name[256], other[256];
  size_t size = sizeof name, other_size = sizeof other;
  must(fi_getname(alias.fid(), name, &size));
  must(fi_getname(pair.b.ep.fid(), other, &other_size));
  EXPECT_EQ(std::string(name, size), std::string(other, other_size));
  size = sizeof name;
  must(fi_getpeer(alias, name, &size));
  EXPECT_EQ(std::string(name, size), pair.b.peer());
  char in[8], out[8] = "through";
  must(fi_recv(alias, in, sizeof in, nullptr, 0, in));
  must(fi_send(pair.a.ep, out, sizeof out, nullptr, 0, out));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, in);
  EXPECT_STREQ(in, out);
  EXPECT_EQ(fi_tsend(alias, out, 1, nullptr, 0, 0, nullptr),
            fi_tsend(pair.b.ep, out, 1, nullptr, 0, 0, nullptr));
}

TEST(Alias, ShutdownEndsTheEndpointsConnection) {
  Pair pair;
  Handle<fid_ep> alias;
  must(fi_ep_alias(pair.b.ep, alias.out(), FI_RECV));
  must(fi_shutdown(alias, 0));
  EXPECT_EQ(pair.wait_event(pair.a.eq, FI_SHUTDOWN).fid, pair.a.ep.fid());
  char byte = 0;
  EXPECT_EQ(fi_send(alias, &byte, 1, nullptr, 0, nullptr),
            fi_send(pair.b.ep, &byte, 1, nullptr, 0, nullptr));
}

TEST(Alias, TheEndpointClosesAfterIt) {
  Pair pair;
  Handle<fid_ep> alias;
  must(fi_ep_alias(pair.a.ep, alias.out(), FI_TRANSMIT));
  EXPECT_EQ(fi_close(pair.a.ep.fid()), -FI_EBUSY);
  alias.reset();
  char in[4], out[4] = "yes";
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_send(pair.a.ep, out, sizeof out, nullptr, 0, out));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
}

}  // namespace
}  // namespace weft::conformance
