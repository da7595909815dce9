// SPDX-License-Identifier: BSD-2-Clause
// Aliases of reliable datagram endpoints (fi_endpoint.3, fi_ep_alias): everything of the endpoint,
// with default operation flags of their own.
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

class RdmAlias : public ::testing::Test {
 protected:
  RdmAlias() { covers("endpoint aliases"); }
  static Options selective() {
    Options options;
    options.tx_cq_flags = options.rx_cq_flags = FI_SELECTIVE_COMPLETION;
    options.tx_op_flags = options.rx_op_flags = 0;
    return options;
  }
  static uint64_t flags_of(fid_ep *ep, uint64_t side) {
    uint64_t flags = side;
    must(fi_control(&ep->fid, FI_GETOPSFLAG, &flags));
    return flags;
  }
};

TEST_F(RdmAlias, TheCallNamesOneSide) {
  Net net(2);
  fid_ep *alias = nullptr;
  EXPECT_EQ(fi_ep_alias(net[0].ep, &alias, 0), -FI_EINVAL);
  EXPECT_EQ(fi_ep_alias(net[0].ep, &alias, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
  EXPECT_EQ(fi_ep_alias(net[0].ep, &alias, FI_TRANSMIT | FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(alias, nullptr);
}

TEST_F(RdmAlias, InheritsTheFlagsOfTheOtherSide) {
  Net net(1);
  uint64_t set = FI_RECV | FI_COMPLETION;
  must(fi_control(net[0].ep.fid(), FI_SETOPSFLAG, &set));
  Handle<fid_ep> alias;
  must(fi_ep_alias(net[0].ep, alias.out(), FI_TRANSMIT | FI_DELIVERY_COMPLETE));
  EXPECT_EQ(flags_of(alias, FI_TRANSMIT), FI_DELIVERY_COMPLETE);
  EXPECT_EQ(flags_of(alias, FI_RECV), FI_COMPLETION);
  EXPECT_NE(flags_of(net[0].ep, FI_TRANSMIT), FI_DELIVERY_COMPLETE) << "the endpoint keeps its own";
  set = FI_TRANSMIT | FI_COMPLETION;
  must(fi_control(alias.fid(), FI_SETOPSFLAG, &set));
  EXPECT_EQ(flags_of(alias, FI_TRANSMIT), FI_COMPLETION);
  Handle<fid_ep> second;
  must(fi_ep_alias(alias, second.out(), FI_RECV));
  EXPECT_EQ(flags_of(second, FI_TRANSMIT), FI_COMPLETION) << "of what it is an alias of";
  EXPECT_EQ(flags_of(second, FI_RECV), 0u);
}

// The default flags of an alias are those of its sends: what they cannot have is refused here, and
// not at each of them.
TEST_F(RdmAlias, HasNoFlagsWithWhichItCannotSend) {
  Net net(2);
  std::vector<uint8_t> out(8);
  // From here on flags are a provider's own, and an alias may be for its one-sided operations alone
  // (fi_cxi.7, "CXI Alias EP Overrides").
  constexpr int kFirstOfAProvider = 57;
  for (int bit = 0; bit < kFirstOfAProvider; ++bit) {
    const uint64_t flag = uint64_t{1} << bit;
    if (flag & (FI_TRANSMIT | FI_RECV | FI_MULTICAST | FI_TRIGGER)) continue;
    fid_ep *alias = nullptr;
    if (fi_ep_alias(net[0].ep, &alias, FI_TRANSMIT | flag) != 0) continue;
    const Handle<fid_ep> own(alias);
    const ssize_t rc = net.attempt(
        [&] { return fi_send(alias, out.data(), out.size(), nullptr, net.at(0, 1), nullptr); });
    EXPECT_EQ(rc, 0) << "bit " << bit;
  }
}

// One endpoint, two completion modes.
TEST_F(RdmAlias, ReportsByItsOwnFlags) {
  std::vector<uint8_t> in(4), in2(4), out = pattern(4, 1), out2 = pattern(4, 2);
  Net net(2, selective());
  Handle<fid_ep> loud, loud_receiver;
  must(fi_ep_alias(net[0].ep, loud.out(), FI_TRANSMIT | FI_COMPLETION));
  must(fi_ep_alias(net[1].ep, loud_receiver.out(), FI_RECV | FI_COMPLETION));
  must(fi_recv(net[1].ep, in.data(), 4, nullptr, FI_ADDR_UNSPEC, &in));
  must(fi_recv(loud_receiver, in2.data(), 4, nullptr, FI_ADDR_UNSPEC, &in2));
  net.post([&] { return fi_send(net[0].ep, out.data(), 4, nullptr, net.at(0, 1), &out); });
  net.post([&] { return fi_send(loud, out2.data(), 4, nullptr, net.at(0, 1), &out2); });
  EXPECT_EQ(net.wait(net[0].tx_cq).context, &out2) << "the first one reports nothing";
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &in2);
  EXPECT_EQ(in, out);
  EXPECT_EQ(in2, out2);
}

TEST_F(RdmAlias, IsTheSameEndpoint) {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA;
  std::vector<uint8_t> in(50000), out = pattern(50000, 1);
  std::vector<uint8_t> memory(100);
  Net net(2, options);
  Handle<fid_ep> alias;
  must(fi_ep_alias(net[1].ep, alias.out(), FI_RECV));
  char name[256], other[256];
  size_t size = sizeof name, other_size = sizeof other;
  must(fi_getname(&alias->fid, name, &size));
  must(fi_getname(net[1].ep.fid(), other, &other_size));
  EXPECT_EQ(std::string(name, size), std::string(other, other_size));
  EXPECT_EQ(alias->fid.fclass, size_t(FI_CLASS_EP));
  EXPECT_EQ(alias->fid.context, net[1].ep->fid.context);
  const ssize_t left = receives_left(alias);
  must(fi_trecv(alias, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  EXPECT_EQ(receives_left(net[1].ep), left - 1) << "one queue of receives";
  must(fi_cancel(net[1].ep.fid(), &in));
  EXPECT_EQ(net.wait(net[1].rx_cq).err, FI_ECANCELED);
  must(fi_trecv(alias, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  net.post(
      [&] { return fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), 1, &out); });
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
  EXPECT_EQ(in, out);
  net.wait(net[0].tx_cq);
  fid_mr *mr = net[0].expose(memory.data(), memory.size(), FI_REMOTE_WRITE, 5);
  net.post([&] {
    return fi_write(alias, out.data(), memory.size(), nullptr, net.at(1, 0),
                    net[0].base_of(memory.data()), fi_mr_key(mr), &out);
  });
  EXPECT_EQ(net.wait(net[1].tx_cq).err, 0);
  EXPECT_TRUE(net.until([&] { return std::equal(memory.begin(), memory.end(), out.begin()); }));
  EXPECT_EQ(fi_enable(alias), 0) << "it is enabled already";
  EXPECT_EQ(fi_ep_bind(alias, net[1].rx_cq.fid(), FI_RECV), -FI_EBUSY) << "so it is bound";
}

TEST_F(RdmAlias, TheEndpointClosesAfterIt) {
  Net net(2);
  Handle<fid_ep> alias;
  must(fi_ep_alias(net[0].ep, alias.out(), FI_TRANSMIT));
  EXPECT_EQ(fi_close(net[0].ep.fid()), -FI_EBUSY);
  net.exchange(0, 1);
  alias.reset();
  net.exchange(0, 1);
}

TEST_F(RdmAlias, MayBeMadeBeforeTheEndpointIsEnabled) {
  Handle<fid_ep> alias;
  Net net(2, {}, [&alias](Node &node) {
    if (!alias) must(fi_ep_alias(node.ep, alias.out(), FI_TRANSMIT));
  });
  std::vector<uint8_t> in(10), out = pattern(10, 1);
  must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  net.post([&] { return fi_tsend(alias, out.data(), out.size(), nullptr, net.at(0, 1), 1, &out); });
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in, out);
  net.settle();
  alias.reset();
}

TEST_F(RdmAlias, DeclinesWhatTheEndpointDoesNotHave) {
  Options options;
  options.caps = FI_MSG;
  Net net(1, options);
  Handle<fid_ep> alias;
  must(fi_ep_alias(net[0].ep, alias.out(), FI_TRANSMIT));
  char byte = 0;
  EXPECT_EQ(fi_tsend(alias, &byte, 1, nullptr, net.at(0, 0), 0, nullptr),
            fi_tsend(net[0].ep, &byte, 1, nullptr, net.at(0, 0), 0, nullptr));
  EXPECT_LT(fi_write(alias, &byte, 1, nullptr, net.at(0, 0), 0, 0, nullptr), 0);
  size_t count = 0;
  EXPECT_EQ(fi_atomicvalid(alias, FI_INT64, FI_SUM, &count),
            fi_atomicvalid(net[0].ep, FI_INT64, FI_SUM, &count));
}

}  // namespace
}  // namespace weft::conformance::rdm
