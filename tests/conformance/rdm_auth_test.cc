// SPDX-License-Identifier: BSD-2-Clause
// Authorization keys (fi_endpoint.3 and fi_domain.3, auth_key): endpoints with the same key
// communicate; all others get an error.
#include <cstring>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// Who gets no answer gives up soon. The library reads this when it starts, so it is a process of
// the test's own.
bool in_impatient_process() {
  return in_fresh_process({"FI_TCP_CONNECT_TIMEOUT_MS=300", "FI_OFI_RXM_CONNECT_TIMEOUT_MS=300",
                           "FI_OFI_RXD_PEER_TIMEOUT_MS=100"});
}

class RdmAuth : public ::testing::Test {
 protected:
  void SetUp() override {
    covers("auth_key");
    if (!find_info(with("key"))) GTEST_SKIP() << stack() << " takes no auth_key";
  }
  static Options with(const std::string &key) {
    Options options;
    options.auth_key = key;
    return options;
  }
  // A message from the first to the second fails, and nothing arrives.
  static void expect_no_way(Net &net, size_t from, size_t to) {
    std::vector<uint8_t> in(8), out(8, 1);
    must(fi_trecv(net[to].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
    net.post([&] {
      return fi_tsend(net[from].ep, out.data(), out.size(), nullptr, net.at(from, to), 7, &out);
    });
    const Completion done = net.wait(net[from].tx_cq);
    EXPECT_NE(done.err, 0);
    EXPECT_EQ(done.context, &out);
    EXPECT_FALSE(poll(net[to].receive_cq()).has_value());
    must(fi_cancel(&net[to].ep->fid, &in));
    EXPECT_EQ(net.wait(net[to].receive_cq()).err, FI_ECANCELED);
  }
};

TEST_F(RdmAuth, InfoHasTheKey) {
  const Info info = find_info(with("a key of 17 bytes"));
  ASSERT_NE(info, nullptr);
  ASSERT_EQ(info->ep_attr->auth_key_size, 17u);
  EXPECT_EQ(std::memcmp(info->ep_attr->auth_key, "a key of 17 bytes", 17), 0);
  EXPECT_EQ(find_info(with(std::string(65, 'k'))), nullptr) << "longer than any that is taken";
}

TEST_F(RdmAuth, TheSameKeyTalks) {
  Net net(3, with("key"));
  net.exchange(0, 1);
  net.exchange(1, 0);
  net.exchange(2, 0, 100'000);
  net.exchange(1, 2, 5000);
}

TEST_F(RdmAuth, AnotherKeyDoesNot) {
  if (!in_impatient_process()) return;
  Net net(0);
  net.add(with("one key"));
  net.add(with("another"));
  expect_no_way(net, 0, 1);
  expect_no_way(net, 1, 0);
}

TEST_F(RdmAuth, NoKeyDoesNot) {
  if (!in_impatient_process()) return;
  Net net(0);
  net.add(with("key"));
  net.add(with(""));
  expect_no_way(net, 0, 1);
  expect_no_way(net, 1, 0);
}

TEST_F(RdmAuth, ARefusedPeerHarmsNoOther) {
  if (!in_impatient_process()) return;
  Net net(0);
  net.add(with("key"));
  net.add(with("other"));
  net.add(with("key"));
  net.exchange(0, 2);
  expect_no_way(net, 1, 0);
  net.exchange(0, 2);
  net.exchange(2, 0);
}

}  // namespace
}  // namespace weft::conformance::rdm
