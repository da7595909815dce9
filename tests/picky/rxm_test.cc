// SPDX-License-Identifier: BSD-2-Clause
// rxm above a provider that wants local registration: what it registers, with and without the
// application's help, and what becomes of a registration that fails.
#include <gtest/gtest.h>
#include <weft/diagnosis.h>

#include <algorithm>

#include "tests/conformance/rdm_harness.h"
#include "tests/picky/counters.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kSizes[] = {1, 3000, 16384, 60000, 1 << 20};

class RxmOverPicky : public ::testing::Test {
 protected:
  void SetUp() override {
    const Info hints = make_hints(conformance::Options{.mr_mode = FI_MR_LOCAL});
    hints->mode = FI_CONTEXT2 | FI_RX_CQ_DATA | FI_ASYNC_IOV | FI_MSG_PREFIX;
    free(std::exchange(hints->fabric_attr->prov_name, strdup("tcp;picky")));
    fi_info *info = nullptr;
    must(fi_getinfo(kApi, test_node(), nullptr, FI_SOURCE, hints.get(), &info));
    const Info of_picky(info);
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
  }
  uint64_t registrations() { return counter(fabric, "picky_registrations"); }
  uint64_t violations() { return counter(fabric, "picky_violations"); }
  static Options with(int mr_mode, uint64_t more = 0) {
    Options options;
    options.mr_mode = mr_mode;
    options.caps |= more;
    return options;
  }
  Handle<fid_fabric> fabric;
};

TEST_F(RxmOverPicky, IsOfferedWithAndWithoutLocalRegistration) {
  EXPECT_EQ(find_info(with(0))->domain_attr->mr_mode & FI_MR_LOCAL, 0);
  EXPECT_EQ(find_info(with(FI_MR_LOCAL))->domain_attr->mr_mode & FI_MR_LOCAL, FI_MR_LOCAL);
  EXPECT_EQ(find_info(with(0))->mode, 0u);
}

TEST_F(RxmOverPicky, UsesTheDescriptorsOfTheApplication) {
  Net net(2, with(FI_MR_LOCAL, FI_RMA));
  for (const size_t i : {0, 1}) ASSERT_NE(net[i].info->domain_attr->mr_mode & FI_MR_LOCAL, 0);
  const uint64_t at_first = violations();
  uint64_t before = 0;
  for (const bool warm : {false, true}) {
    std::vector<uint8_t> out = pattern(1 << 20, 1), in(out.size());
    fid_mr *const from = net[0].expose(out.data(), out.size(), FI_SEND | FI_WRITE, 1 + 10 * warm);
    fid_mr *const to =
        net[1].expose(in.data(), in.size(), FI_RECV | FI_REMOTE_WRITE, 2 + 10 * warm);
    before = registrations();
    for (const size_t size : kSizes) {
      for (const size_t parts : {1, 4}) {
        if (size < parts) continue;
        std::fill(in.begin(), in.end(), 0);
        std::vector<uint8_t> part(out.begin(), out.begin() + long(size));
        std::vector<iovec> send_iov, recv_iov;
        for (size_t i = 0; i < parts; ++i) {
          const size_t begin = size * i / parts, end = size * (i + 1) / parts;
          send_iov.push_back({out.data() + begin, end - begin});
          recv_iov.push_back({in.data() + begin, end - begin});
        }
        void *send_desc[4], *recv_desc[4];
        std::fill_n(send_desc, 4, fi_mr_desc(from));
        std::fill_n(recv_desc, 4, fi_mr_desc(to));
        must(fi_trecvv(net[1].ep, recv_iov.data(), recv_desc, parts, FI_ADDR_UNSPEC, size, 0, &in));
        net.post([&] {
          return fi_tsendv(net[0].ep, send_iov.data(), send_desc, parts, net.at(0, 1), size, &out);
        });
        const Completion received = net.wait(net[1].rx_cq), sent = net.wait(net[0].tx_cq);
        EXPECT_EQ(received.err, 0) << size << " in " << parts;
        EXPECT_EQ(sent.err, 0) << size << " in " << parts;
        EXPECT_EQ(received.len, size);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), in.begin())) << size << " in " << parts;
      }
    }
    std::fill(in.begin(), in.end(), 0);
    net.post([&] {
      return fi_write(net[0].ep, out.data(), out.size(), fi_mr_desc(from), net.at(0, 1),
                      net[1].base_of(in.data()), fi_mr_key(to), &out);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_TRUE(net.until([&] { return in == out; }));
  }
  EXPECT_EQ(registrations(), before) << "the pools are there, and nothing else is registered";
  EXPECT_EQ(violations(), at_first);
}

TEST_F(RxmOverPicky, RegistersForTheCallWhatHasNoDescriptor) {
  Net net(2, with(0, FI_RMA));
  const uint64_t at_first = violations();
  std::vector<uint8_t> out = pattern(1 << 20, 1), in(out.size());
  fid_mr *const to = net[1].expose(in.data(), in.size(), FI_REMOTE_WRITE, 7);
  net.exchange(0, 1);
  const uint64_t before = registrations();
  for (int i = 0; i < 3; ++i) {
    net.post([&] {
      return fi_write(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1),
                      net[1].base_of(in.data()), fi_mr_key(to), &out);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
  EXPECT_GE(registrations(), before + 3);
  net.exchange(0, 1, 1 << 20);
  EXPECT_EQ(violations(), at_first) << "and lets go of it only then";
}

TEST_F(RxmOverPicky, RemoteDataUsesAReceiveBufferThatIsPostedAgain) {
  Net net(2, with(0, FI_RMA));
  net.exchange(0, 1);
  const uint64_t at_first = violations(), before = counter(fabric, "picky_data_receives");
  constexpr uint64_t kWrites = 500;  // more than there are receive buffers
  std::vector<uint8_t> out = pattern(64, 1), in(out.size());
  fid_mr *const to = net[1].expose(in.data(), in.size(), FI_REMOTE_WRITE, 7);
  for (uint64_t i = 0; i < kWrites; ++i) {
    net.post([&] {
      return fi_writedata(net[0].ep, out.data(), out.size(), nullptr, i, net.at(0, 1),
                          net[1].base_of(in.data()), fi_mr_key(to), &out);
    });
    const Completion told = net.wait(net[1].rx_cq);
    ASSERT_EQ(told.err, 0);
    ASSERT_EQ(told.data, i);
    ASSERT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
  EXPECT_EQ(counter(fabric, "picky_data_receives"), before + kWrites);
  EXPECT_EQ(in, out);
  net.exchange(0, 1);
  EXPECT_EQ(violations(), at_first);
}

// FI_PICKY_REGIONS=32: an application fills its domain with regions.
class RxmWithoutRegions : public RxmOverPicky {};

TEST_F(RxmWithoutRegions, AFailedRegistrationFailsThatOperationOnly) {
  Net net(2, with(0, FI_RMA));
  net.exchange(0, 1, 3000);  // everybody has its pools
  net.exchange(1, 0, 3000);
  std::vector<uint8_t> out = pattern(1 << 20, 1), in(out.size());
  fid_mr *const to = net[0].expose(in.data(), in.size(), FI_REMOTE_WRITE, 1000);
  std::vector<Handle<fid_mr>> all;
  for (uint64_t key = 1;; ++key) {
    fid_mr *mr = nullptr;
    const int rc = fi_mr_reg(net[1].domain, in.data(), 1, FI_REMOTE_READ, 0, key, 0, &mr, nullptr);
    if (rc != 0) {
      ASSERT_EQ(rc, -FI_ENOMEM);
      break;
    }
    all.emplace_back(mr);
    ASSERT_LE(all.size(), 32u);
  }
  // A large receive cannot be fetched.
  must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, &in));
  net.post(
      [&] { return fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), 5, &out); });
  const Completion received = net.wait(net[1].rx_cq);
  EXPECT_EQ(received.err, FI_ENOMEM);
  EXPECT_EQ(received.context, &in);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  // A write has no local region.
  const ssize_t rc = fi_write(net[1].ep, out.data(), out.size(), nullptr, net.at(1, 0),
                              net[0].base_of(in.data()), fi_mr_key(to), &out);
  EXPECT_EQ(rc, -FI_ENOMEM);
  // Other messages go on, by the same connection, and so do large ones when there is room again.
  net.exchange(0, 1, 3000);
  all.clear();
  net.exchange(0, 1, 1 << 20);
}

// FI_PICKY_PREFIX=1: a mode that rxm does not take over.
TEST(RxmOverPrefix, IsNotOfferedAndTheRecordSaysWhy) {
  EXPECT_EQ(find_info(), nullptr);
  struct fid *weft = nullptr;
  weft_diagnosis_ops *ops = nullptr;
  must(fi_open(fi_version(), WEFT_DIAGNOSIS, nullptr, 0, 0, &weft, nullptr));
  must(fi_open_ops(weft, WEFT_DIAGNOSIS_OPS, 0, reinterpret_cast<void **>(&ops), nullptr));
  char *text = nullptr;
  EXPECT_EQ(ops->why(weft, stack().c_str(), &text), 0);
  const std::string why = text != nullptr ? text : "";
  free(text);
  EXPECT_EQ(fi_close(weft), 0);
  EXPECT_NE(why.find("hints.mode lacks FI_MSG_PREFIX"), std::string::npos) << why;
}

}  // namespace
}  // namespace weft::conformance::rdm
