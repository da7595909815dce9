// SPDX-License-Identifier: BSD-2-Clause
// What picky demands and finds, over udp: one endpoint that sends to itself.
#include "tests/picky/picky.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>

#include "tests/conformance/common.h"
#include "tests/picky/counters.h"

namespace weft::conformance {
namespace {

constexpr size_t kPrefix = picky::kPrefix;
constexpr uint64_t kModes = FI_CONTEXT2 | FI_RX_CQ_DATA | FI_ASYNC_IOV | FI_MSG_PREFIX;

class Picky : public ::testing::Test {
 protected:
  static Info ask(uint64_t modes = kModes, int mr_mode = FI_MR_LOCAL) {
    const Info hints = make_hints(Options{.type = FI_EP_DGRAM, .caps = FI_MSG, .mr_mode = mr_mode});
    hints->mode = modes;
    fi_info *info = nullptr;
    const int rc = fi_getinfo(kApi, test_node(), nullptr, FI_SOURCE, hints.get(), &info);
    return Info(rc == 0 ? info : nullptr);
  }
  void SetUp() override {
    info = ask();
    ASSERT_NE(info, nullptr);
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    must(fi_domain(fabric, info.get(), domain.out(), nullptr));
    fi_cq_attr cq_attr{.format = FI_CQ_FORMAT_MSG};
    must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
    fi_av_attr av_attr{};
    must(fi_av_open(domain, &av_attr, av.out(), nullptr));
    must(fi_endpoint(domain, info.get(), ep.out(), nullptr));
    must(fi_ep_bind(ep, &cq.get()->fid, FI_TRANSMIT | FI_RECV));
    must(fi_ep_bind(ep, &av.get()->fid, 0));
    must(fi_enable(ep));
    char name[64];
    size_t length = sizeof name;
    must(fi_getname(&ep.get()->fid, name, &length));
    ASSERT_EQ(fi_av_insert(av, name, 1, &self, 0, nullptr), 1);
    both = reg(bytes.data(), bytes.size(), FI_SEND | FI_RECV);
  }
  void TearDown() override {
    if (both == nullptr) return;
    ep.reset();  // with the calls that use the region
    EXPECT_EQ(fi_close(&both->fid), 0);
  }
  fid_mr *reg(void *at, size_t size, uint64_t access) {
    fid_mr *mr = nullptr;
    must(fi_mr_reg(domain, at, size, access, 0, ++keys, 0, &mr, nullptr));
    return mr;
  }
  uint64_t violations() { return counter(fabric, "picky_violations"); }
  // 100 bytes, and the prefix, from the place `from` of `bytes`.
  ssize_t send(void *desc, size_t from = 0, fi_context2 *context = nullptr) {
    return fi_send(ep, bytes.data() + from, kPrefix + 100, desc, self,
                   context != nullptr ? context : &sent);
  }
  ssize_t receive(size_t at = 1000) {
    return fi_recv(ep, bytes.data() + at, kPrefix + 100, fi_mr_desc(both), FI_ADDR_UNSPEC, &got);
  }
  // The next completion: its context, or the error.
  struct Outcome {
    void *context = nullptr;
    size_t length = 0;
    int err = 0;
  };
  Outcome next() {
    const Deadline deadline;
    while (!deadline.passed()) {
      fi_cq_msg_entry entry{};
      const ssize_t n = fi_cq_read(cq, &entry, 1);
      if (n == 1) return {entry.op_context, entry.len, 0};
      if (n != -FI_EAVAIL) continue;
      fi_cq_err_entry failed{};
      EXPECT_EQ(fi_cq_readerr(cq, &failed, 0), 1);
      return {failed.op_context, 0, failed.err};
    }
    ADD_FAILURE() << "no completion";
    return {};
  }
  // Two completions, of `sent` and of `got`, in any order: the error of this one.
  int outcome_of(const void *context) {
    const Outcome one = next(), other = next();
    EXPECT_NE(one.context, other.context);
    EXPECT_EQ((one.context == context ? other : one).err, 0) << "of the other";
    return (one.context == context ? one : other).err;
  }

  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_cq> cq;
  Handle<fid_av> av;
  Handle<fid_ep> ep;
  fid_mr *both = nullptr;
  fi_addr_t self = 0;
  uint64_t keys = 0;
  std::array<uint8_t, 2000> bytes{};
  fi_context2 sent{}, got{};
};

TEST_F(Picky, OffersItsDemandsAndNothingToWhoDoesNotKnowThem) {
  EXPECT_EQ(info->mode & kModes, kModes);
  EXPECT_EQ(info->domain_attr->mr_mode, FI_MR_LOCAL);
  EXPECT_EQ(info->ep_attr->msg_prefix_size, kPrefix);
  for (const uint64_t missing : {FI_CONTEXT2, FI_RX_CQ_DATA, FI_ASYNC_IOV, FI_MSG_PREFIX})
    EXPECT_EQ(ask(kModes & ~missing), nullptr) << fi_tostr(&missing, FI_TYPE_MODE);
  EXPECT_EQ(ask(kModes, 0), nullptr);
}

TEST_F(Picky, ACorrectMessageArrivesBehindThePrefix) {
  const uint64_t before = violations();
  for (size_t i = 0; i < 100; ++i) bytes[kPrefix + i] = uint8_t(i + 1);
  ASSERT_EQ(receive(), 0);
  ASSERT_EQ(send(fi_mr_desc(both)), 0);
  const Outcome one = next(), other = next();
  const Outcome &arrived = one.context == &got ? one : other;
  EXPECT_EQ(arrived.context, &got);
  EXPECT_EQ(arrived.length, kPrefix + 100);
  EXPECT_EQ(one.err + other.err, 0);
  EXPECT_EQ(std::memcmp(&bytes[kPrefix], &bytes[1000 + kPrefix], 100), 0);
  EXPECT_EQ(violations(), before);
}

TEST_F(Picky, MemoryHasToLieInALiveRegionOfItsDescriptor) {
  uint8_t elsewhere[kPrefix + 100];
  fid_mr *const gone = reg(elsewhere, sizeof elsewhere, FI_SEND);
  void *const old = fi_mr_desc(gone);
  EXPECT_EQ(send(old), -FI_EINVAL) << "of other memory";
  must(fi_close(&gone->fid));
  fid_mr *const receives = reg(bytes.data(), bytes.size(), FI_RECV);
  const uint64_t before = violations();
  EXPECT_EQ(send(nullptr), -FI_EINVAL);
  EXPECT_EQ(send(old), -FI_EINVAL) << "of a region that is gone";
  EXPECT_EQ(send(&bytes), -FI_EINVAL) << "no descriptor";
  EXPECT_EQ(send(fi_mr_desc(receives)), -FI_EINVAL) << "not for sends";
  EXPECT_EQ(send(fi_mr_desc(both), bytes.size() - kPrefix - 99), -FI_EINVAL) << "one byte too far";
  EXPECT_EQ(violations(), before + 5);
  EXPECT_EQ(send(fi_mr_desc(both), bytes.size() - kPrefix - 100), 0);
  EXPECT_EQ(next().err, 0);
  must(fi_close(&receives->fid));
}

TEST_F(Picky, EachVectorHasItsDescriptor) {
  const iovec iov[] = {{bytes.data(), kPrefix}, {bytes.data() + 200, 100}};
  void *desc[] = {fi_mr_desc(both), nullptr};
  EXPECT_EQ(fi_sendv(ep, iov, desc, 2, self, &sent), -FI_EINVAL);
  desc[1] = desc[0];
  EXPECT_EQ(fi_sendv(ep, iov, desc, 2, self, &sent), 0);
  EXPECT_EQ(next().err, 0);
}

TEST_F(Picky, APrefixHasToFit) {
  EXPECT_EQ(fi_send(ep, bytes.data(), kPrefix - 1, fi_mr_desc(both), self, &sent), -FI_EINVAL);
  EXPECT_EQ(fi_inject(ep, bytes.data(), kPrefix - 1, self), -FI_EINVAL);
}

TEST_F(Picky, AContextServesOneCallAtATime) {
  EXPECT_EQ(fi_send(ep, bytes.data(), kPrefix, fi_mr_desc(both), self, nullptr), -FI_EINVAL);
  ASSERT_EQ(receive(), 0);
  EXPECT_EQ(send(fi_mr_desc(both), 0, &got), -FI_EINVAL);
  ASSERT_EQ(send(fi_mr_desc(both)), 0);
  EXPECT_EQ(outcome_of(&got), 0);
  ASSERT_EQ(receive(), 0) << "it is free again";
}

TEST_F(Picky, AContextThatIsWrittenToFailsItsCall) {
  ASSERT_EQ(receive(), 0);
  got.internal[7] = this;
  ASSERT_EQ(send(fi_mr_desc(both)), 0);
  EXPECT_EQ(outcome_of(&got), FI_EINVAL);
}

TEST_F(Picky, APrefixThatIsWrittenToFailsItsCall) {
  ASSERT_EQ(receive(), 0);
  bytes[1000] ^= 1;
  ASSERT_EQ(send(fi_mr_desc(both)), 0);
  EXPECT_EQ(outcome_of(&got), FI_EINVAL);
}

TEST_F(Picky, AnArrayThatIsWrittenToFailsItsCall) {
  iovec iov[] = {{bytes.data() + 1000, kPrefix}, {bytes.data() + 1200, 100}};
  void *desc[] = {fi_mr_desc(both), fi_mr_desc(both)};
  for (const bool vectors : {true, false}) {
    ASSERT_EQ(fi_recvv(ep, iov, desc, 2, FI_ADDR_UNSPEC, &got), 0);
    if (vectors) {
      iov[1].iov_len = 99;
    } else {
      desc[1] = nullptr;
    }
    ASSERT_EQ(send(fi_mr_desc(both)), 0);
    EXPECT_EQ(outcome_of(&got), FI_EINVAL);
  }
}

TEST_F(Picky, ARegionInUseDoesNotClose) {
  ASSERT_EQ(receive(), 0);
  EXPECT_EQ(fi_close(&both->fid), -FI_EINVAL);
  ASSERT_EQ(send(fi_mr_desc(both)), 0);
  EXPECT_EQ(outcome_of(&got), 0);
}

}  // namespace
}  // namespace weft::conformance
