// SPDX-License-Identifier: BSD-2-Clause
// The descriptors of an application's memory (fi_mr_desc): every call puts them into its request,
// and a receiver that is asked to keeps those of a receive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/objects/rdm_endpoint.h>
#include <weft/sdk/transfers/transfer.h>

#include <cstdint>
#include <vector>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "plugin-api/sdk/testing/test_receiver.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Descriptors are any values; these are numbers.
void *d(uintptr_t number) {
  return reinterpret_cast<void *>(number);
}
using Numbers = std::vector<uintptr_t>;
Numbers numbers(void *const *desc, size_t count) {
  Numbers all;
  for (size_t i = 0; desc != nullptr && i < count; ++i)
    all.push_back(reinterpret_cast<uintptr_t>(desc[i]));
  return all;
}

// An endpoint that takes every call and remembers the descriptors of the last one.
class Recorder : public TransferOps<Recorder> {
 public:
  static constexpr uint64_t kSendFlags = RdmEndpoint::kSendFlags;
  Lock &lock() { return lock_; }
  bool enabled() const { return true; }
  bool offers(uint64_t, uint64_t) const { return true; }
  bool reports(uint64_t) const { return true; }
  bool heeds_level(uint64_t) const { return false; }
  uint64_t tx_flags() const { return 0; }
  uint64_t rx_flags() const { return 0; }
  ssize_t check_length(uint64_t, uint64_t) const { return 0; }
  ssize_t check_atomic(AtomicRequest &) const { return 0; }
  ssize_t start(const RecvRequest &r) { return keep(r.desc, r.count); }
  ssize_t start(const SendRequest &r) { return keep(r.desc, r.count); }
  ssize_t start(const RmaRequest &r) { return keep(r.desc, r.count); }
  ssize_t start(const AtomicRequest &r) {
    compares = numbers(r.compare_desc, r.compare_count);
    results = numbers(r.result_desc, r.result_count);
    return keep(r.operand_desc, r.operand_count);
  }
  Numbers last{999}, compares, results;

 private:
  ssize_t keep(void *const *desc, size_t count) {
    last = numbers(desc, count);
    return 0;
  }
  Lock lock_;
};

class DescriptorsOfCalls : public ::testing::Test {
 protected:
  Recorder ep;
  char buf[8] = {};
  iovec iov[2] = {{buf, 4}, {buf + 4, 4}};
  fi_ioc ioc[2] = {{buf, 1}, {buf + 4, 1}};
  fi_rma_iov rma{0, 8, 1};
  fi_rma_ioc rma_ioc{0, 2, 1};
  void *two[2] = {d(1), d(2)}, *more[2] = {d(3), d(4)}, *most[2] = {d(5), d(6)};
};

TEST_F(DescriptorsOfCalls, OfMessages) {
  for (const bool tagged : {false, true}) {
    const auto check = [&](ssize_t rc, const Numbers &want) {
      EXPECT_EQ(rc, 0);
      EXPECT_EQ(ep.last, want);
      ep.last = {999};
    };
    const fi_msg msg{.msg_iov = iov, .desc = two, .iov_count = 2};
    const fi_msg_tagged tmsg{.msg_iov = iov, .desc = two, .iov_count = 2};
    if (tagged) {
      check(ep.tsend(buf, 8, d(7), 0, 1, nullptr), {7});
      check(ep.tsend(buf, 8, nullptr, 0, 1, nullptr), {0});
      check(ep.tsendv(iov, two, 2, 0, 1, nullptr), {1, 2});
      check(ep.tsendv(iov, nullptr, 2, 0, 1, nullptr), {});
      check(ep.tsendmsg(&tmsg, 0), {1, 2});
      check(ep.tsenddata(buf, 8, d(7), 0, 0, 1, nullptr), {7});
      check(ep.tinject(buf, 8, 0, 1), {});
      check(ep.tinjectdata(buf, 8, 0, 0, 1), {});
      check(ep.trecv(buf, 8, d(7), 0, 1, 0, nullptr), {7});
      check(ep.trecvv(iov, two, 2, 0, 1, 0, nullptr), {1, 2});
      check(ep.trecvmsg(&tmsg, 0), {1, 2});
    } else {
      check(ep.send(buf, 8, d(7), 0, nullptr), {7});
      check(ep.sendv(iov, two, 2, 0, nullptr), {1, 2});
      check(ep.sendv(iov, nullptr, 2, 0, nullptr), {});
      check(ep.sendmsg(&msg, 0), {1, 2});
      check(ep.senddata(buf, 8, d(7), 0, 0, nullptr), {7});
      check(ep.inject(buf, 8, 0), {});
      check(ep.injectdata(buf, 8, 0, 0), {});
      check(ep.recv(buf, 8, d(7), 0, nullptr), {7});
      check(ep.recvv(iov, two, 2, 0, nullptr), {1, 2});
      check(ep.recvmsg(&msg, 0), {1, 2});
    }
  }
}

TEST_F(DescriptorsOfCalls, OfRemoteAccess) {
  const fi_msg_rma msg{
      .msg_iov = iov, .desc = two, .iov_count = 2, .rma_iov = &rma, .rma_iov_count = 1};
  EXPECT_EQ(ep.read(buf, 8, d(7), 0, 0, 1, nullptr), 0);
  EXPECT_THAT(ep.last, ElementsAre(7));
  EXPECT_EQ(ep.readv(iov, two, 2, 0, 0, 1, nullptr), 0);
  EXPECT_THAT(ep.last, ElementsAre(1, 2));
  EXPECT_EQ(ep.write(buf, 8, d(8), 0, 0, 1, nullptr), 0);
  EXPECT_THAT(ep.last, ElementsAre(8));
  EXPECT_EQ(ep.readmsg(&msg, 0), 0);
  EXPECT_THAT(ep.last, ElementsAre(1, 2));
  EXPECT_EQ(ep.writedata(buf, 8, d(9), 0, 0, 0, 1, nullptr), 0);
  EXPECT_THAT(ep.last, ElementsAre(9));
  EXPECT_EQ(ep.writev(iov, two, 2, 0, 0, 1, nullptr), 0);
  EXPECT_THAT(ep.last, ElementsAre(1, 2));
  EXPECT_EQ(ep.inject_write(buf, 8, 0, 0, 1), 0);
  EXPECT_THAT(ep.last, IsEmpty());
  EXPECT_EQ(ep.writemsg(&msg, 0), 0);
  EXPECT_THAT(ep.last, ElementsAre(1, 2));
}

TEST_F(DescriptorsOfCalls, OfAtomics) {
  const auto check = [&](ssize_t rc, const Numbers &of, const Numbers &with, const Numbers &into) {
    EXPECT_EQ(rc, 0);
    EXPECT_EQ(ep.last, of);
    EXPECT_EQ(ep.compares, with);
    EXPECT_EQ(ep.results, into);
  };
  const fi_msg_atomic msg{.msg_iov = ioc,
                          .desc = two,
                          .iov_count = 2,
                          .rma_iov = &rma_ioc,
                          .rma_iov_count = 1,
                          .datatype = FI_INT32,
                          .op = FI_SUM};
  check(ep.atomic(buf, 1, d(7), 0, 0, 1, FI_INT32, FI_SUM, nullptr), {7}, {}, {});
  check(ep.atomicv(ioc, two, 2, 0, 0, 1, FI_INT32, FI_SUM, nullptr), {1, 2}, {}, {});
  check(ep.atomicmsg(&msg, 0), {1, 2}, {}, {});
  check(ep.inject_atomic(buf, 1, 0, 0, 1, FI_INT32, FI_SUM), {}, {}, {});
  check(ep.fetch_atomic(buf, 1, d(7), buf, d(8), 0, 0, 1, FI_INT32, FI_SUM, nullptr), {7}, {}, {8});
  check(ep.fetch_atomicv(ioc, two, 2, ioc, most, 2, 0, 0, 1, FI_INT32, FI_SUM, nullptr), {1, 2}, {},
        {5, 6});
  check(ep.fetch_atomicmsg(&msg, ioc, most, 2, 0), {1, 2}, {}, {5, 6});
  check(ep.compare_atomic(buf, 1, d(7), buf, d(8), buf, d(9), 0, 0, 1, FI_INT32, FI_CSWAP, nullptr),
        {7}, {8}, {9});
  check(ep.compare_atomicv(ioc, two, 2, ioc, more, 2, ioc, most, 2, 0, 0, 1, FI_INT32, FI_CSWAP,
                           nullptr),
        {1, 2}, {3, 4}, {5, 6});
  check(ep.compare_atomicmsg(&msg, ioc, more, 2, ioc, most, 2, 0), {1, 2}, {3, 4}, {5, 6});
}

TEST(DescriptorSlices, GoWithTheirVectors) {
  char bytes[30];
  const iovec iov[] = {{bytes, 10}, {bytes + 10, 10}, {bytes + 20, 10}};
  void *const desc[] = {d(1), d(2), d(3)};
  iovec parts[3];
  void *of_parts[3] = {};
  ASSERT_EQ(slice(iov, desc, 3, 12, 10, parts, of_parts), 2u);
  EXPECT_EQ(parts[0].iov_base, bytes + 12);
  EXPECT_EQ(parts[0].iov_len, 8u);
  EXPECT_EQ(parts[1].iov_base, bytes + 20);
  EXPECT_EQ(parts[1].iov_len, 2u);
  EXPECT_THAT(numbers(of_parts, 2), ElementsAre(2, 3));
  ASSERT_EQ(slice(iov, nullptr, 3, 0, 11, parts, of_parts), 2u);
  EXPECT_THAT(numbers(of_parts, 2), ElementsAre(0, 0));
}

// ---- receives that are kept ----

class KeptDescriptors : public ReceiverFixture {
 protected:
  // Posts a receive of two vectors and gives the descriptors that a message finds.
  Numbers found(void *const *desc) {
    const iovec iov[2] = {{buf, 4}, {buf + 4, 4}};
    EXPECT_EQ(post({.iov = iov, .desc = desc, .count = 2, .context = ctx(1)}), 0);
    hold = true;
    arrive(untagged(), "x");
    hold = false;
    const Numbers all = numbers(held[0].receive->desc(), held[0].receive->count);
    finish(0);
    hold = false;
    entries();
    return all;
  }
  void *two[2] = {d(1), d(2)};
};

TEST_F(KeptDescriptors, OnlyWhereTheyAreWanted) {
  EXPECT_THAT(found(two), IsEmpty());
  make({.source = true, .descriptors = true});
  EXPECT_THAT(found(two), ElementsAre(1, 2));
  EXPECT_THAT(found(nullptr), ElementsAre(0, 0)) << "not those of an earlier receive";
}

TEST_F(KeptDescriptors, APartOfAMultiReceiveBufferHasThatOfTheBuffer) {
  make({.source = true, .descriptors = true});
  const iovec iov{buf, sizeof buf};
  void *const one = d(5);
  ASSERT_EQ(
      post({.iov = &iov, .desc = &one, .count = 1, .flags = FI_MULTI_RECV, .context = ctx(1)}), 0);
  hold = true;
  arrive(untagged(), "first");
  arrive(untagged(), "second");
  ASSERT_EQ(held.size(), 2u);
  for (const Held &h : held) EXPECT_THAT(numbers(h.receive->desc(), 1), ElementsAre(5));
  finish(0);
  finish(0);
  EXPECT_EQ(cancel(1), 0);
}

TEST_F(KeptDescriptors, AreKeptWithoutTheAllocator) {
  make({.source = true, .descriptors = true});
  const iovec iov{buf, sizeof buf};
  void *const one = d(5);
  Guard guard(domain.engine.lock());
  size_t before = 0;
  for (int round = 0; round < 4; ++round) {
    if (round == 1) before = allocations();
    for (int i = 0; i < 64; ++i)
      ASSERT_EQ(receiver->post({.iov = &iov, .desc = &one, .count = 1}), 0);
    while (Receive *r = receiver->match(untagged())) {
      ASSERT_EQ(r->desc()[0], one);
      receiver->complete(*r, untagged(), 0, 0);
    }
    domain.engine.lock().unlock();
    fi_cq_tagged_entry e[16];
    while (fi_cq_read(cq_->c(), e, 16) > 0) {
    }
    domain.engine.lock().lock();
  }
  EXPECT_EQ(allocations(), before);
}

TEST_F(KeptDescriptors, WithoutMemoryAReceiveIsRefused) {
  make({.source = true, .descriptors = true});
  const iovec iov{buf, sizeof buf};
  ASSERT_EQ(post({.iov = &iov, .count = 1, .context = ctx(1)}), 0);  // the pool has its chunk
  int rc = 0;
  {
    NoMoreMemory no_more;
    rc = post({.iov = &iov, .count = 1, .context = ctx(2)});
  }
  EXPECT_EQ(rc, -FI_ENOMEM);
  EXPECT_EQ(receiver->posted(), 1u);
  EXPECT_EQ(post({.iov = &iov, .count = 1, .context = ctx(2)}), 0);
}

}  // namespace
}  // namespace weft::sdk
