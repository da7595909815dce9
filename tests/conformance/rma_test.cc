// SPDX-License-Identifier: BSD-2-Clause
// Remote memory access (fi_rma.3, fi_mr.3): every form of read and write, vectors, keys, bounds,
// remote completion data, counters.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

constexpr uint64_t kRmaData = 0x8877665544332211;
constexpr uint64_t kAllAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

Options rma_options(int mr_mode = 0, uint64_t more_caps = 0) {
  Options options;
  options.caps = FI_MSG | FI_RMA | more_caps;
  options.mr_mode = mr_mode;
  return options;
}

// A pair, and memory that b exposes.
struct Rma {
  explicit Rma(size_t size = 1 << 16, const Options &options = rma_options(),
               uint64_t access = kAllAccess, const std::function<void(Side &)> &before_enable = {})
      : pair(options, options, before_enable), memory(pattern(size, 99)) {
    region = pair.b.expose(memory.data(), memory.size(), access, 0xc0de);
    key = fi_mr_key(region);
    base = pair.b.base_of(memory.data());
  }
  fid_ep *ep() { return pair.a.ep; }
  // Of a stack where a write with data takes a receive at the target (FI_RX_CQ_DATA): there are
  // receives for those up to number `end`.
  void expect_data(uint64_t end = 1) {
    if ((pair.b.info->mode & FI_RX_CQ_DATA) == 0) return;
    while (expected < end && fi_recv(pair.b.ep, nullptr, 0, nullptr, 0, nullptr) == 0) ++expected;
  }
  Done wait() { return pair.wait(pair.a.tx_cq); }

  Pair pair;
  std::vector<uint8_t> memory;
  fid_mr *region;
  uint64_t key, base;
  uint64_t expected = 0;
};

void expect_written(const Rma &r, const std::vector<uint8_t> &before, size_t at,
                    const std::vector<uint8_t> &bytes) {
  std::vector<uint8_t> expected = before;
  std::copy(bytes.begin(), bytes.end(), expected.begin() + ptrdiff_t(at));
  EXPECT_TRUE(r.memory == expected);
}

// Everything that was sent before is processed at the target when this returns: a read is answered
// in order.
void flush_writes(Rma &r) {
  uint8_t byte;
  r.pair.post([&] { return fi_read(r.ep(), &byte, 1, nullptr, 0, r.base, r.key, &byte); });
  for (;;) {
    const Done done = r.wait();
    ASSERT_EQ(done.err, 0);
    if (done.context == &byte) return;
  }
}

// ---- forms and sizes ----

class RmaSize : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, RmaSize,
                         ::testing::Values(0, 1, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097, 65535,
                                           65536, 65537, 1 << 20, 5 << 20));

TEST_P(RmaSize, Write) {
  Rma r(GetParam() + 100);
  const std::vector<uint8_t> before = r.memory;
  std::vector<uint8_t> out = pattern(GetParam(), 1);
  must(fi_write(r.ep(), out.data(), out.size(), nullptr, 0, r.base + 50, r.key, &out));
  const Done done = r.wait();
  EXPECT_EQ(done.err, 0);
  EXPECT_EQ(done.context, &out);
  EXPECT_EQ(done.flags & (FI_RMA | FI_WRITE), uint64_t(FI_RMA | FI_WRITE));
  flush_writes(r);
  expect_written(r, before, 50, out);
  EXPECT_FALSE(poll_cq(r.pair.b.rx_cq).has_value()) << "the target is not told";
}

TEST_P(RmaSize, Read) {
  Rma r(GetParam() + 100);
  std::vector<uint8_t> in(GetParam() + 8, 0xee);
  must(fi_read(r.ep(), in.data(), GetParam(), nullptr, 0, r.base + 50, r.key, &in));
  const Done done = r.wait();
  EXPECT_EQ(done.err, 0);
  EXPECT_EQ(done.context, &in);
  EXPECT_EQ(done.flags & (FI_RMA | FI_READ), uint64_t(FI_RMA | FI_READ));
  EXPECT_TRUE(std::equal(in.begin(), in.begin() + ptrdiff_t(GetParam()), r.memory.begin() + 50));
  for (size_t i = GetParam(); i < in.size(); ++i) ASSERT_EQ(in[i], 0xee);
}

TEST_P(RmaSize, WritevAndReadv) {
  Rma r(GetParam() + 100);
  const std::vector<uint8_t> before = r.memory;
  std::vector<uint8_t> out = pattern(GetParam(), 2), in(GetParam());
  for (size_t parts = 1; parts <= 4; ++parts) {
    out = pattern(GetParam(), unsigned(parts));
    std::fill(in.begin(), in.end(), 0);
    iovec to[4], from[4];
    for (size_t i = 0; i < parts; ++i) {
      const size_t start = GetParam() * i / parts, end = GetParam() * (i + 1) / parts;
      from[i] = {out.data() + start, end - start};
      to[i] = {in.data() + start, end - start};
    }
    must(fi_writev(r.ep(), from, nullptr, parts, 0, r.base + 3, r.key, &out));
    must(fi_readv(r.ep(), to, nullptr, parts, 0, r.base + 3, r.key, &in));
    EXPECT_EQ(r.wait().context, &out);
    EXPECT_EQ(r.wait().context, &in);
    EXPECT_EQ(in, out) << "a read behind a write sees it";
    expect_written(r, before, 3, out);
  }
}

TEST_P(RmaSize, WritedataCompletesAtTheTarget) {
  NEEDS_REMOTE_DATA(Options{});
  Rma r(GetParam() + 100);
  const std::vector<uint8_t> before = r.memory;
  std::vector<uint8_t> out = pattern(GetParam(), 1);
  r.expect_data();
  must(fi_writedata(r.ep(), out.data(), out.size(), nullptr, kRmaData, 0, r.base, r.key, &out));
  const Done told = r.pair.wait(r.pair.b.rx_cq);
  EXPECT_EQ(told.err, 0);
  EXPECT_EQ(told.data, r.pair.b.arriving(kRmaData));
  EXPECT_EQ(told.context, nullptr);
  EXPECT_EQ(told.flags & (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA),
            uint64_t(FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
  expect_written(r, before, 0, out);  // it is there when the target is told
  EXPECT_EQ(r.wait().context, &out);
}

TEST_P(RmaSize, InjectWrite) {
  Rma r(GetParam() + 100);
  const std::vector<uint8_t> before = r.memory;
  std::vector<uint8_t> out = pattern(GetParam(), 1);
  const std::vector<uint8_t> expected = out;
  const ssize_t rc = fi_inject_write(r.ep(), out.data(), out.size(), 0, r.base + 9, r.key);
  if (GetParam() > r.pair.a.info->tx_attr->inject_size) {
    EXPECT_LT(rc, 0);
    EXPECT_NE(rc, -FI_EAGAIN);
    return;
  }
  must(rc);
  std::fill(out.begin(), out.end(), 0xdd);
  flush_writes(r);  // which also sees that the inject has no completion
  expect_written(r, before, 9, expected);
}

TEST_P(RmaSize, InjectWritedata) {
  NEEDS_REMOTE_DATA(Options{});
  Rma r(GetParam() + 100);
  const std::vector<uint8_t> before = r.memory;
  std::vector<uint8_t> out = pattern(GetParam(), 1);
  const std::vector<uint8_t> expected = out;
  r.expect_data();
  const ssize_t rc =
      fi_inject_writedata(r.ep(), out.data(), out.size(), kRmaData, 0, r.base + 9, r.key);
  if (GetParam() > r.pair.a.info->tx_attr->inject_size) {
    EXPECT_LT(rc, 0);
    return;
  }
  must(rc);
  std::fill(out.begin(), out.end(), 0xdd);
  EXPECT_EQ(r.pair.wait(r.pair.b.rx_cq).data, r.pair.b.arriving(kRmaData));
  expect_written(r, before, 9, expected);
  EXPECT_FALSE(poll_cq(r.pair.a.tx_cq).has_value());
}

TEST_P(RmaSize, FourVectorsToFourPlaces) {
  // Cut differently on the two sides.
  Rma r(2 * GetParam() + 4000);
  if (r.pair.a.info->tx_attr->rma_iov_limit < 4) GTEST_SKIP() << "rma_iov_limit";
  const std::vector<uint8_t> before = r.memory;
  std::vector<uint8_t> out = pattern(GetParam(), 5), in(GetParam());
  iovec from[4], to[4];
  fi_rma_iov places[4];
  std::vector<uint8_t> expected = before;
  for (size_t i = 0; i < 4; ++i) {
    const size_t start = GetParam() * i / 4, end = GetParam() * (i + 1) / 4;
    from[i] = {out.data() + start, end - start};
    const size_t cuts[] = {0, GetParam() / 7, GetParam() / 3, GetParam() / 2, GetParam()};
    to[i] = {in.data() + cuts[i], cuts[i + 1] - cuts[i]};
    const size_t at = cuts[i] * 2 + i * 1000, length = cuts[i + 1] - cuts[i];
    places[i] = {r.base + at, length, r.key};
    std::copy_n(out.begin() + ptrdiff_t(cuts[i]), length, expected.begin() + ptrdiff_t(at));
  }
  fi_msg_rma message{};
  message.msg_iov = from;
  message.iov_count = 4;
  message.rma_iov = places;
  message.rma_iov_count = 4;
  message.context = &out;
  message.data = kRmaData;
  must(fi_writemsg(r.ep(), &message, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_COMPLETION));
  EXPECT_EQ(r.wait().context, &out);
  EXPECT_TRUE(r.memory == expected) << "delivered when the writer is told so";
  EXPECT_EQ(r.pair.wait(r.pair.b.rx_cq).data, r.pair.b.arriving(kRmaData));
  message.msg_iov = to;
  message.context = &in;
  message.data = 0;
  must(fi_readmsg(r.ep(), &message, FI_COMPLETION));
  EXPECT_EQ(r.wait().context, &in);
  EXPECT_EQ(in, out);
}

// ---- arguments ----

TEST(RmaArguments, AreChecked) {
  Rma r;
  char byte = 0;
  const iovec iov{&byte, 1};
  std::vector<fi_rma_iov> places(100, fi_rma_iov{r.base, 1, r.key});
  std::vector<iovec> many(100, iov);
  fi_msg_rma message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.rma_iov = places.data();
  message.rma_iov_count = 2;
  EXPECT_EQ(fi_writemsg(r.ep(), &message, 0), -FI_EINVAL) << "one byte here, two there";
  message.rma_iov_count = 100;
  EXPECT_EQ(fi_writemsg(r.ep(), &message, 0), -FI_EINVAL);
  EXPECT_EQ(fi_readmsg(r.ep(), &message, 0), -FI_EINVAL);
  message.rma_iov_count = 0;
  EXPECT_EQ(fi_writemsg(r.ep(), &message, 0), -FI_EINVAL);
  message.rma_iov_count = 1;
  message.rma_iov = nullptr;
  EXPECT_EQ(fi_writemsg(r.ep(), &message, 0), -FI_EINVAL);
  message.rma_iov = places.data();
  EXPECT_EQ(fi_writemsg(r.ep(), &message, UINT64_C(1) << 59), -FI_EBADFLAGS);
  EXPECT_EQ(fi_readmsg(r.ep(), &message, UINT64_C(1) << 59), -FI_EBADFLAGS);
  EXPECT_EQ(fi_writev(r.ep(), many.data(), nullptr, 100, 0, r.base, r.key, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_readv(r.ep(), many.data(), nullptr, 100, 0, r.base, r.key, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_readv(r.ep(), nullptr, nullptr, 2, 0, r.base, r.key, nullptr), -FI_EINVAL);
  r.pair.settle();
  EXPECT_FALSE(poll_cq(r.pair.a.tx_cq).has_value());
  flush_writes(r);  // and nothing is broken
}

// ---- what a peer may touch ----

struct Forbidden {
  const char *name;
  uint64_t access;  // of the region
  bool write;
  uint64_t key_offset;      // added to the key
  uint64_t address_offset;  // added to the region's start
  size_t size;
};
class RmaBounds : public ::testing::TestWithParam<Forbidden> {};
constexpr size_t kBoundedRegion = 4096;
INSTANTIATE_TEST_SUITE_P(
    Cases, RmaBounds,
    ::testing::Values(Forbidden{"WriteUnknownKey", kAllAccess, true, 1, 0, 8},
                      Forbidden{"ReadUnknownKey", kAllAccess, false, 1, 0, 8},
                      Forbidden{"WriteWithoutTheRight", FI_REMOTE_READ, true, 0, 0, 8},
                      Forbidden{"ReadWithoutTheRight", FI_REMOTE_WRITE, false, 0, 0, 8},
                      Forbidden{"WriteWithNoRightAtAll", FI_SEND | FI_RECV, true, 0, 0, 8},
                      Forbidden{"WriteBehindTheEnd", kAllAccess, true, 0, kBoundedRegion - 4, 8},
                      Forbidden{"WriteJustBehindTheEnd", kAllAccess, true, 0, kBoundedRegion, 1},
                      Forbidden{"ReadBehindTheEnd", kAllAccess, false, 0, kBoundedRegion - 4, 8},
                      Forbidden{"WriteFarAway", kAllAccess, true, 0, UINT64_C(1) << 40, 8},
                      Forbidden{"WriteThatWrapsAround", kAllAccess, true, 0, UINT64_MAX - 3, 8},
                      Forbidden{"ReadThatWrapsAround", kAllAccess, false, 0, UINT64_MAX - 3, 8},
                      Forbidden{"LargeWriteBehindTheEnd", kAllAccess, true, 0, 0,
                                kBoundedRegion + 1},
                      Forbidden{"LargeWriteUnknownKey", kAllAccess, true, 1, 0, 1 << 20}),
    [](const auto &info) { return info.param.name; });

TEST_P(RmaBounds, EndsTheConnectionAndTouchesNothing) {
  const Forbidden &f = GetParam();
  // The region lies in the middle of memory that is watched too.
  Pair pair;
  std::vector<uint8_t> memory = pattern(3 * kBoundedRegion, 1);
  const std::vector<uint8_t> before = memory;
  fid_mr *region = pair.b.expose(memory.data() + kBoundedRegion, kBoundedRegion, f.access, 0xc0de);
  const uint64_t base = pair.b.base_of(memory.data() + kBoundedRegion);
  std::vector<uint8_t> mine(f.size, 0xaa);
  char posted[4];
  must(fi_recv(pair.b.ep, posted, sizeof posted, nullptr, 0, posted));
  if (f.write) {
    must(fi_write(pair.a.ep, mine.data(), mine.size(), nullptr, 0, base + f.address_offset,
                  fi_mr_key(region) + f.key_offset, &mine));
  } else {
    must(fi_read(pair.a.ep, mine.data(), mine.size(), nullptr, 0, base + f.address_offset,
                 fi_mr_key(region) + f.key_offset, &mine));
  }
  // The target ends the connection: both sides hear of it, what was posted comes back.
  EXPECT_EQ(pair.wait(pair.b.eq).type, uint32_t(FI_SHUTDOWN));
  EXPECT_NE(pair.wait(pair.b.rx_cq).err, 0);
  EXPECT_EQ(pair.wait(pair.a.eq).type, uint32_t(FI_SHUTDOWN));
  const Done done = pair.wait(pair.a.tx_cq);
  EXPECT_EQ(done.context, &mine);
  if (!f.write) {
    EXPECT_NE(done.err, 0);
    EXPECT_EQ(mine, std::vector<uint8_t>(f.size, 0xaa));
  }
  EXPECT_TRUE(memory == before);
}

TEST(RmaBoundsMore, OneBadVectorAmongGoodOnesTouchesNothing) {
  Rma r(4096);
  if (r.pair.a.info->tx_attr->rma_iov_limit < 3) GTEST_SKIP() << "rma_iov_limit";
  const std::vector<uint8_t> before = r.memory;
  std::vector<uint8_t> out(30, 0xaa);
  const iovec iov{out.data(), out.size()};
  const fi_rma_iov places[] = {
      {r.base, 10, r.key}, {r.base + 100, 10, r.key}, {r.base + 4090, 10, r.key}};
  fi_msg_rma message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.rma_iov = places;
  message.rma_iov_count = 3;
  must(fi_writemsg(r.ep(), &message, 0));
  EXPECT_EQ(r.pair.wait(r.pair.a.eq).type, uint32_t(FI_SHUTDOWN));
  EXPECT_TRUE(r.memory == before);
}

TEST(RmaBoundsMore, TheVeryLastByteMayBeTouched) {
  Rma r(4096);
  uint8_t out = 0xaa, in = 0;
  must(fi_write(r.ep(), &out, 1, nullptr, 0, r.base + 4095, r.key, &out));
  must(fi_read(r.ep(), &in, 1, nullptr, 0, r.base + 4095, r.key, &in));
  EXPECT_EQ(r.wait().context, &out);
  EXPECT_EQ(r.wait().context, &in);
  EXPECT_EQ(in, out);
  EXPECT_EQ(r.memory[4095], out);
}

TEST(RmaBoundsMore, OtherConnectionsOfTheTargetLive) {
  Rma r(4096);
  Pair *victim = &r.pair;
  // A second connection to the same domain.
  Side intruder;
  intruder.open(options_info({}).get());
  intruder.make_endpoint(intruder.info.get());
  const std::string address = victim->listener->address();
  must(fi_connect(intruder.ep, address.data(), nullptr, 0));
  const Event request = next_request(victim->b, {&victim->a, &victim->b, &intruder});
  Handle<fid_ep> second;
  must(fi_endpoint(victim->b.domain, request.info.get(), second.out(), nullptr));
  must(fi_ep_bind(second, victim->b.eq.fid(), 0));
  must(fi_ep_bind(second, victim->b.tx_cq.fid(), FI_TRANSMIT));
  must(fi_ep_bind(second, victim->b.rx_cq.fid(), FI_RECV));
  must(fi_accept(second, nullptr, 0));
  EXPECT_EQ(wait_event(intruder.eq, {&intruder, &victim->b}).type, uint32_t(FI_CONNECTED));
  char byte = 0;
  must(fi_write(intruder.ep, &byte, 1, nullptr, 0, 0, r.key + 1, nullptr));
  EXPECT_EQ(wait_event(intruder.eq, {&intruder, &victim->b}).type, uint32_t(FI_SHUTDOWN));
  flush_writes(r);
}

// ---- keys and modes ----

TEST(RmaKeys, AChosenKeyIsKept) {
  Pair pair(rma_options(0));
  if (pair.b.info->domain_attr->mr_mode & FI_MR_PROV_KEY)
    GTEST_SKIP() << "this stack chooses the keys";
  char memory[8];
  for (const uint64_t key : {UINT64_C(0), UINT64_C(5), UINT64_MAX, UINT64_C(0x123456789abcdef0)})
    EXPECT_EQ(fi_mr_key(pair.b.expose(memory, sizeof memory, kAllAccess, key)), key);
}

TEST(RmaKeys, ProviderKeysDiffer) {
  Pair pair(rma_options(FI_MR_PROV_KEY));
  if (!(pair.b.info->domain_attr->mr_mode & FI_MR_PROV_KEY))
    GTEST_SKIP() << "this stack needs no provider keys";
  char memory[8];
  std::set<uint64_t> keys;
  unsigned high_bits = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t key = fi_mr_key(pair.b.expose(memory, sizeof memory, kAllAccess, 1));
    EXPECT_TRUE(keys.insert(key).second);
    high_bits += (key >> 32) != 0;
  }
  if (pair.b.info->domain_attr->mr_key_size == sizeof(uint64_t)) {
    EXPECT_GT(high_bits, 90u) << "a key that can be guessed protects nothing";
  }
}

TEST(RmaKeys, ProviderKeysWork) {
  Rma r(4096, rma_options(FI_MR_PROV_KEY));
  std::vector<uint8_t> in(100);
  must(fi_read(r.ep(), in.data(), in.size(), nullptr, 0, r.base, r.key, &in));
  EXPECT_EQ(r.wait().err, 0);
  EXPECT_EQ(memcmp(in.data(), r.memory.data(), in.size()), 0);
}

TEST(RmaKeys, BasicModeNamesVirtualAddresses) {
  // FI_MR_BASIC as old applications ask for it, through an old API version.
  Side passive, active;
  const Info hints = make_hints();
  hints->domain_attr->mr_mode = FI_MR_BASIC;
  if (is_of_a_device(FI_EP_MSG)) hints->mode |= FI_LOCAL_MR;
  const Info info = get_info(test_node(), nullptr, FI_SOURCE, hints.get(), FI_VERSION(1, 4));
  // A device says that local memory needs it, too.
  ASSERT_EQ(info->domain_attr->mr_mode & ~FI_MR_LOCAL, int(FI_MR_BASIC));
  passive.open(info.get());
  const Listener listener(passive, *info);
  active.open(info.get());
  active.make_endpoint(active.info.get());
  must(fi_connect(active.ep, listener.address().data(), nullptr, 0));
  const Event request = next_request(passive, {&active, &passive});
  passive.make_endpoint(request.info.get());
  must(fi_accept(passive.ep, nullptr, 0));
  EXPECT_EQ(wait_event(active.eq, {&active, &passive}).type, uint32_t(FI_CONNECTED));

  std::vector<uint8_t> memory = pattern(1000, 1), in(500);
  fid_mr *region = passive.expose(memory.data(), memory.size(), kAllAccess, 1);
  must(fi_read(active.ep, in.data(), in.size(), nullptr, 0, uint64_t(memory.data()) + 100,
               fi_mr_key(region), &in));
  std::optional<Done> done;
  ASSERT_TRUE(
      until([&] { return (done = poll_cq(active.tx_cq)).has_value(); }, {&active, &passive}));
  EXPECT_EQ(done->err, 0);
  EXPECT_EQ(memcmp(in.data(), memory.data() + 100, in.size()), 0);
}

TEST(RmaKeys, TheWholeAddressSpaceCanBeExposed) {
  // As SHMEM does to use remote virtual addresses with offsets: a region that starts at 0.
  NEEDS_SOFTWARE(FI_EP_MSG, "a device registers memory that is there");
  Pair pair;
  fid_mr *region = pair.b.expose(nullptr, SIZE_MAX, kAllAccess, 1);
  std::vector<uint8_t> memory = pattern(100, 1), in(100);
  must(fi_read(pair.a.ep, in.data(), in.size(), nullptr, 0, uint64_t(memory.data()),
               fi_mr_key(region), &in));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
  EXPECT_EQ(in, memory);
}

TEST(RmaKeys, AnEmptyRegionHoldsNothing) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device registers memory that is there");
  Rma r(4096);
  fid_mr *empty = r.pair.b.expose(r.memory.data(), 0, kAllAccess, 0xe);
  const std::vector<uint8_t> before = r.memory;
  char byte = 0;
  must(fi_write(r.ep(), &byte, 0, nullptr, 0, 0, fi_mr_key(empty), &byte));
  EXPECT_EQ(r.wait().err, 0);
  flush_writes(r);
  must(fi_write(r.ep(), &byte, 1, nullptr, 0, 0, fi_mr_key(empty), &byte));
  EXPECT_EQ(r.pair.wait(r.pair.a.eq).type, uint32_t(FI_SHUTDOWN));
  EXPECT_TRUE(r.memory == before);
}

TEST(RmaKeys, RegionsMayOverlap) {
  Rma r(4096);
  fid_mr *inner = r.pair.b.expose(r.memory.data() + 1000, 100, FI_REMOTE_READ, 0xd00d);
  uint8_t in[100];
  must(fi_read(r.ep(), in, sizeof in, nullptr, 0, r.pair.b.base_of(r.memory.data() + 1000),
               fi_mr_key(inner), in));
  EXPECT_EQ(r.wait().err, 0);
  EXPECT_EQ(memcmp(in, r.memory.data() + 1000, sizeof in), 0);
}

TEST(RmaKeys, AClosedRegionIsOutOfReach) {
  Rma r(4096);
  const std::vector<uint8_t> before = r.memory;
  r.pair.b.regions.clear();
  char byte = 0;
  must(fi_write(r.ep(), &byte, 1, nullptr, 0, r.base, r.key, &byte));
  EXPECT_EQ(r.pair.wait(r.pair.a.eq).type, uint32_t(FI_SHUTDOWN));
  EXPECT_TRUE(r.memory == before);
}

TEST(RmaKeys, ClosingARegionUnderTrafficStopsTheTraffic) {
  // The region closes in the middle of a large write and of a large read; its memory must not be
  // touched afterwards.
  for (const bool write : {true, false}) {
    Rma r(up_to_limit(32 << 20));
    std::vector<uint8_t> mine(r.memory.size(), 0xaa);
    if (write) {
      must(fi_write(r.ep(), mine.data(), mine.size(), nullptr, 0, r.base, r.key, &mine));
    } else {
      must(fi_read(r.ep(), mine.data(), mine.size(), nullptr, 0, r.base, r.key, &mine));
    }
    for (int i = 0; i < 3; ++i) r.pair.progress();
    r.pair.b.regions.clear();
    const std::vector<uint8_t> after = r.memory;
    r.pair.settle();
    EXPECT_TRUE(r.memory == after);
    // Either it was all done before, or the connection is over; a memory that is gone can do no
    // third thing.
    const Done done = r.wait();
    EXPECT_EQ(done.context, &mine);
  }
}

// ---- remote completion data ----

TEST(RmaData, ManyWritesAreReportedInOrder) {
  NEEDS_REMOTE_DATA(Options{});
  Rma r;
  constexpr uint64_t kCount = 2000;
  uint64_t told = 0, sent = 0;
  ASSERT_TRUE(r.pair.until([&] {
    r.expect_data(told + 64);
    while (sent < kCount && fi_inject_writedata(r.ep(), &sent, sizeof sent, sent, 0,
                                                r.base + sent * 8 % 4096, r.key) == 0)
      ++sent;
    while (auto done = poll_cq(r.pair.b.rx_cq)) {
      EXPECT_EQ(done->err, 0);
      EXPECT_EQ(done->data, told);
      ++told;
    }
    return told == kCount || ::testing::Test::HasFailure();
  }));
}

TEST(RmaData, ASmallQueueDelaysWritersAndLosesNothing) {
  NEEDS_REMOTE_DATA(Options{});
  Options small = rma_options();
  small.rx_cq.size = 8;
  Rma r(1 << 16, small);
  constexpr uint64_t kCount = 3000;
  uint64_t told = 0, sent = 0;
  // First without reading the target's queue at all.
  r.expect_data(8);
  for (int i = 0; i < 200; ++i) {
    while (sent < kCount &&
           fi_inject_writedata(r.ep(), &sent, sizeof sent, sent, 0, r.base, r.key) == 0)
      ++sent;
    r.pair.progress();
  }
  ASSERT_TRUE(r.pair.until([&] {
    r.expect_data(told + 8);
    while (sent < kCount &&
           fi_inject_writedata(r.ep(), &sent, sizeof sent, sent, 0, r.base, r.key) == 0)
      ++sent;
    while (auto done = poll_cq(r.pair.b.rx_cq)) {
      EXPECT_EQ(done->err, 0);
      EXPECT_EQ(done->data, told);
      ++told;
    }
    return told == kCount || ::testing::Test::HasFailure();
  }));
}

TEST(RmaData, ReachesTheTargetThoughItsCompletionsAreSelective) {
  NEEDS_REMOTE_DATA(Options{});
  Options options = rma_options();
  options.rx_cq_flags = FI_SELECTIVE_COMPLETION;
  Rma r(4096, options);
  char byte = 0;
  r.expect_data();
  must(fi_writedata(r.ep(), &byte, 1, nullptr, kRmaData, 0, r.base, r.key, &byte));
  EXPECT_EQ(r.pair.wait(r.pair.b.rx_cq).data, r.pair.b.arriving(kRmaData));
}

// ---- completions ----

TEST(RmaCompletion, AfterDeliveryCompleteTheBytesAreThere) {
  Rma r(1 << 20);
  std::vector<uint8_t> out = pattern(r.memory.size(), 3);
  const iovec iov{out.data(), out.size()};
  const fi_rma_iov place{r.base, out.size(), r.key};
  for (const uint64_t level : {FI_DELIVERY_COMPLETE, FI_TRANSMIT_COMPLETE, FI_COMMIT_COMPLETE}) {
    if (!find_info(Options{.tx_op_flags = level})) continue;
    std::fill(r.memory.begin(), r.memory.end(), 0);
    fi_msg_rma message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.rma_iov = &place;
    message.rma_iov_count = 1;
    message.context = &out;
    must(fi_writemsg(r.ep(), &message, level | FI_COMPLETION));
    EXPECT_EQ(r.wait().context, &out);
    if (level != FI_TRANSMIT_COMPLETE) {
      EXPECT_TRUE(r.memory == out);
    }
  }
}

TEST(RmaCompletion, SelectiveCompletionCoversRma) {
  Options options = rma_options();
  options.tx_cq_flags = FI_SELECTIVE_COMPLETION;
  Rma r(4096, options);
  char byte = 0;
  const iovec iov{&byte, 1};
  const fi_rma_iov place{r.base, 1, r.key};
  fi_msg_rma message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.rma_iov = &place;
  message.rma_iov_count = 1;
  int loud;
  message.context = &loud;
  must(fi_write(r.ep(), &byte, 1, nullptr, 0, r.base, r.key, &byte));
  must(fi_read(r.ep(), &byte, 1, nullptr, 0, r.base, r.key, &byte));
  must(fi_writemsg(r.ep(), &message, 0));
  must(fi_readmsg(r.ep(), &message, FI_COMPLETION));
  EXPECT_EQ(r.wait().context, &loud);
  r.pair.settle();
  EXPECT_FALSE(poll_cq(r.pair.a.tx_cq).has_value());
}

TEST(RmaCompletion, ManyReadsAreAnsweredInOrder) {
  Rma r(1 << 16);
  constexpr int kCount = 500;
  std::vector<std::vector<uint8_t>> in(kCount, std::vector<uint8_t>(100));
  int posted = 0, done = 0;
  ASSERT_TRUE(r.pair.until([&] {
    while (posted < kCount && fi_read(r.ep(), in[posted].data(), 100, nullptr, 0,
                                      r.base + uint64_t(posted), r.key, &in[posted]) == 0)
      ++posted;
    while (auto c = poll_cq(r.pair.a.tx_cq)) {
      EXPECT_EQ(c->context, &in[done]);
      EXPECT_EQ(memcmp(in[done].data(), r.memory.data() + done, 100), 0);
      ++done;
    }
    return done == kCount || ::testing::Test::HasFailure();
  }));
}

TEST(RmaCompletion, ReadsAndWritesOfBothSidesAtOnce) {
  Rma r(1 << 18);
  std::vector<uint8_t> there = pattern(1 << 18, 7);
  fid_mr *other = r.pair.a.expose(there.data(), there.size(), kAllAccess, 0xbeef);
  const uint64_t other_base = r.pair.a.base_of(there.data());
  constexpr int kRounds = 40;
  std::vector<uint8_t> in_a(100000), in_b(100000);
  int done_a = 0, done_b = 0, posted_a = 0, posted_b = 0;
  ASSERT_TRUE(r.pair.until([&] {
    if (posted_a == done_a && posted_a < kRounds &&
        fi_read(r.pair.a.ep, in_a.data(), in_a.size(), nullptr, 0, r.base + 5, r.key, nullptr) == 0)
      ++posted_a;
    if (posted_b == done_b && posted_b < kRounds &&
        fi_read(r.pair.b.ep, in_b.data(), in_b.size(), nullptr, 0, other_base + 9, fi_mr_key(other),
                nullptr) == 0)
      ++posted_b;
    while (auto c = poll_cq(r.pair.a.tx_cq)) {
      EXPECT_EQ(c->err, 0);
      EXPECT_EQ(memcmp(in_a.data(), r.memory.data() + 5, in_a.size()), 0);
      ++done_a;
    }
    while (auto c = poll_cq(r.pair.b.tx_cq)) {
      EXPECT_EQ(c->err, 0);
      EXPECT_EQ(memcmp(in_b.data(), there.data() + 9, in_b.size()), 0);
      ++done_b;
    }
    return (done_a == kRounds && done_b == kRounds) || ::testing::Test::HasFailure();
  }));
}

// ---- counters of the target ----

TEST(RmaEvent, ARegionsCountersCountRemoteAccess) {
  NEEDS_OFFER(rma_options(0, FI_RMA_EVENT), "FI_RMA_EVENT");
  Rma r(4096, rma_options(0, FI_RMA_EVENT));
  Handle<fid_cntr> writes, reads;
  fi_cntr_attr attr{};
  must(fi_cntr_open(r.pair.b.domain, &attr, writes.out(), nullptr));
  must(fi_cntr_open(r.pair.b.domain, &attr, reads.out(), nullptr));
  std::vector<uint8_t> memory(100);
  Handle<fid_mr> region;
  must(fi_mr_reg(r.pair.b.domain, memory.data(), memory.size(), kAllAccess, 0, 0xfeed, FI_RMA_EVENT,
                 region.out(), nullptr));
  must(fi_mr_bind(region, writes.fid(), FI_REMOTE_WRITE));
  must(fi_mr_bind(region, reads.fid(), FI_REMOTE_READ));
  if (r.pair.b.info->domain_attr->mr_mode & FI_MR_RMA_EVENT) must(fi_mr_enable(region));
  EXPECT_EQ(fi_close(writes.fid()), -FI_EBUSY);
  char byte = 1;
  for (int i = 0; i < 3; ++i)
    must(fi_write(r.ep(), &byte, 1, nullptr, 0, 0, fi_mr_key(region), nullptr));
  for (int i = 0; i < 2; ++i)
    must(fi_read(r.ep(), &byte, 1, nullptr, 0, 0, fi_mr_key(region), nullptr));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(r.wait().err, 0);
  EXPECT_TRUE(r.pair.until([&] { return fi_cntr_read(writes) == 3 && fi_cntr_read(reads) == 2; }));
  region.reset();
}

TEST(RmaEvent, WithFI_MR_RMA_EVENTARegionIsClosedUntilEnabled) {
  NEEDS_OFFER(rma_options(FI_MR_RMA_EVENT, FI_RMA_EVENT), "FI_RMA_EVENT");
  Pair pair(rma_options(FI_MR_RMA_EVENT, FI_RMA_EVENT));
  if (!(pair.b.info->domain_attr->mr_mode & FI_MR_RMA_EVENT))
    GTEST_SKIP() << "this stack does not need FI_MR_RMA_EVENT";
  std::vector<uint8_t> memory(100);
  fid_mr *region = pair.b.expose(memory.data(), memory.size(), kAllAccess, 1, FI_RMA_EVENT);
  char byte = 1;
  must(fi_write(pair.a.ep, &byte, 1, nullptr, 0, 0, fi_mr_key(region), nullptr));
  EXPECT_EQ(pair.wait(pair.a.eq).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(memory[0], 0);
}

// ---- orders that are kept for who asks ----

// What a read returns is what was there before a later write (WarOrder), and when a message
// arrives, what was read before it has been read (SarOrder).
TEST(Rma, WarOrderAndSarOrder) {
  constexpr size_t kSize = 300'000;
  Options options = rma_options();
  options.order = FI_ORDER_WAR | FI_ORDER_RMA_WAR | FI_ORDER_SAR;
  if (!find_info(options)) GTEST_SKIP() << stack() << " does not offer these orders";
  Rma r(kSize, options);
  for (unsigned round = 0; round < 20; ++round) {
    const std::vector<uint8_t> before = pattern(kSize, round), after = pattern(kSize, round + 1);
    std::vector<uint8_t> in(kSize);
    std::ranges::copy(before, r.memory.begin());
    r.pair.post([&] { return fi_read(r.ep(), in.data(), kSize, nullptr, 0, r.base, r.key, &r); });
    r.pair.post(
        [&] { return fi_write(r.ep(), after.data(), kSize, nullptr, 0, r.base, r.key, &r); });
    for (int i = 0; i < 2; ++i) ASSERT_EQ(r.wait().err, 0);
    ASSERT_EQ(in, before) << round;
    ASSERT_TRUE(r.pair.until([&] { return r.memory == after; }));
    uint8_t note = 1, got = 0;
    must(fi_recv(r.pair.b.ep, &got, 1, nullptr, 0, nullptr));
    r.pair.post([&] { return fi_read(r.ep(), in.data(), kSize, nullptr, 0, r.base, r.key, &r); });
    r.pair.post([&] { return fi_send(r.ep(), &note, 1, nullptr, 0, &r); });
    ASSERT_EQ(r.pair.wait(r.pair.b.rx_cq).err, 0);
    std::ranges::fill(r.memory, 0xdd);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(r.wait().err, 0);
    ASSERT_EQ(in, after) << round;
  }
}

}  // namespace
}  // namespace weft::conformance
