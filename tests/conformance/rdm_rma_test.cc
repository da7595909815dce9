// SPDX-License-Identifier: BSD-2-Clause
// Remote memory access between reliable datagram endpoints (fi_rma.3, fi_mr.3): every form over
// every size, remote CQ data, completion levels, counters, and what a wrong key costs.
#include <algorithm>
#include <cstring>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kRmaData = 0x0102030405060708;
constexpr uint64_t kKey = 42;

Options with_rma(uint64_t more = 0) {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA | more;
  return options;
}

// Two applications; the second exposes `window`.
struct Exposed {
  explicit Exposed(size_t size, const Options &options = with_rma(),
                   uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE,
                   const std::function<void(Node &)> &before_enable = {})
      : window(size, 0xee), net(2, options, before_enable) {
    region = net[1].expose(window.data(), window.size(), access, kKey);
  }
  uint64_t at(size_t offset = 0) { return net[1].base_of(window.data()) + offset; }
  uint64_t key() { return fi_mr_key(region); }
  ssize_t write(std::vector<uint8_t> &out, size_t offset = 0) {
    return fi_write(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), at(offset), key(),
                    &out);
  }
  ssize_t read(std::vector<uint8_t> &in, size_t offset = 0) {
    return fi_read(net[0].ep, in.data(), in.size(), nullptr, net.at(0, 1), at(offset), key(), &in);
  }
  Completion initiated() { return net.wait(net[0].tx_cq); }

  std::vector<uint8_t> window;  // lives longer than what may still send from it
  Net net;
  fid_mr *region;
};

struct Message {
  Message(Exposed &e, std::vector<uint8_t> &local, size_t parts, size_t remote_parts)
      : iov(cut(local, std::min(parts, e.net[0].info->tx_attr->iov_limit))) {
    for (const iovec &part : cut(local, remote_parts)) {
      const size_t offset = size_t(static_cast<uint8_t *>(part.iov_base) - local.data());
      remote.push_back({e.at(offset), part.iov_len, e.key()});
    }
    msg.msg_iov = iov.data();
    msg.iov_count = iov.size();
    msg.rma_iov = remote.data();
    msg.rma_iov_count = remote.size();
    msg.addr = e.net.at(0, 1);
    msg.context = &local;
    msg.data = kRmaData;
  }
  std::vector<iovec> iov;
  std::vector<fi_rma_iov> remote;
  fi_msg_rma msg{};
};

struct RmaForm {
  const char *name;
  bool reads, injects, has_data;
  ssize_t (*go)(Exposed &e, std::vector<uint8_t> &local);
};
std::ostream &operator<<(std::ostream &out, const RmaForm &form) {
  return out << form.name;
}
const RmaForm kRmaForms[] = {
    {"Write", false, false, false,
     [](Exposed &e, std::vector<uint8_t> &local) { return e.write(local); }},
    {"Writev", false, false, false,
     [](Exposed &e, std::vector<uint8_t> &local) {
       const auto iov = cut(local, e.net[0].info->tx_attr->iov_limit);
       return fi_writev(e.net[0].ep, iov.data(), nullptr, iov.size(), e.net.at(0, 1), e.at(),
                        e.key(), &local);
     }},
    {"Writemsg", false, false, true,
     [](Exposed &e, std::vector<uint8_t> &local) {
       const Message m(e, local, 2, e.net[0].info->tx_attr->rma_iov_limit);
       return fi_writemsg(e.net[0].ep, &m.msg, FI_COMPLETION | FI_REMOTE_CQ_DATA);
     }},
    {"Writedata", false, false, true,
     [](Exposed &e, std::vector<uint8_t> &local) {
       return fi_writedata(e.net[0].ep, local.data(), local.size(), nullptr, kRmaData,
                           e.net.at(0, 1), e.at(), e.key(), &local);
     }},
    {"InjectWrite", false, true, false,
     [](Exposed &e, std::vector<uint8_t> &local) {
       std::vector<uint8_t> copy = local;
       const ssize_t rc =
           fi_inject_write(e.net[0].ep, copy.data(), copy.size(), e.net.at(0, 1), e.at(), e.key());
       std::fill(copy.begin(), copy.end(), 0xdd);
       return rc;
     }},
    {"InjectWritedata", false, true, true,
     [](Exposed &e, std::vector<uint8_t> &local) {
       std::vector<uint8_t> copy = local;
       const ssize_t rc = fi_inject_writedata(e.net[0].ep, copy.data(), copy.size(), kRmaData,
                                              e.net.at(0, 1), e.at(), e.key());
       std::fill(copy.begin(), copy.end(), 0xdd);
       return rc;
     }},
    {"Read", true, false, false,
     [](Exposed &e, std::vector<uint8_t> &local) { return e.read(local); }},
    {"Readv", true, false, false,
     [](Exposed &e, std::vector<uint8_t> &local) {
       const auto iov = cut(local, e.net[0].info->tx_attr->iov_limit);
       return fi_readv(e.net[0].ep, iov.data(), nullptr, iov.size(), e.net.at(0, 1), e.at(),
                       e.key(), &local);
     }},
    {"Readmsg", true, false, false,
     [](Exposed &e, std::vector<uint8_t> &local) {
       const Message m(e, local, 3, e.net[0].info->tx_attr->rma_iov_limit);
       return fi_readmsg(e.net[0].ep, &m.msg, FI_COMPLETION);
     }},
};

class RdmRmaForm : public ::testing::TestWithParam<RmaForm> {};
INSTANTIATE_TEST_SUITE_P(All, RdmRmaForm, ::testing::ValuesIn(kRmaForms),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(RdmRmaForm, EverySizeReachesItsPlace) {
  RDM_NEEDS(FI_RMA);
  const RmaForm &form = GetParam();
  Exposed e((1 << 20) + 8);
  if (form.has_data && e.net[0].info->domain_attr->cq_data_size == 0) {
    std::vector<uint8_t> local(8);
    EXPECT_EQ(form.go(e, local), -FI_EINVAL) << "the call says that there is no remote data";
    return;
  }
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    if (form.injects && size > e.net[0].info->tx_attr->inject_size) continue;
    std::vector<uint8_t> local = pattern(size, unsigned(size));
    std::fill(e.window.begin(), e.window.end(), 0xee);
    std::vector<uint8_t> expected = local;
    if (form.reads) {
      std::copy(local.begin(), local.end(), e.window.begin());
      std::fill(local.begin(), local.end(), 0);
    }
    e.net.post([&] { return form.go(e, local); });
    if (!form.injects) {
      const Completion done = e.initiated();
      ASSERT_EQ(done.err, 0) << fi_strerror(done.err);
      EXPECT_EQ(done.context, &local);
      const uint64_t flags = FI_RMA | (form.reads ? FI_READ : FI_WRITE);
      EXPECT_EQ(done.flags & flags, flags);
    }
    if (form.has_data) {
      const Completion told = e.net.wait(e.net[1].rx_cq);
      EXPECT_EQ(told.err, 0);
      EXPECT_EQ(told.data, e.net[1].arriving(kRmaData));
      EXPECT_EQ(told.flags & (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA),
                FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    }
    const auto &there = form.reads ? local : e.window;
    EXPECT_TRUE(e.net.until([&] {
      return size == 0 || std::memcmp(there.data(), expected.data(), size) == 0;
    })) << "the bytes never came";
    for (size_t i = size; i < size + 8; ++i) ASSERT_EQ(e.window[i], 0xee) << "behind, at " << i;
  }
  e.net.settle();
  EXPECT_FALSE(poll(e.net[0].tx_cq).has_value());
  EXPECT_FALSE(poll(e.net[1].rx_cq).has_value())
      << "a write without data has no completion at the target";
}

// fi_rma.3: vectors of any length, also of length 0.
TEST(RdmRma, EmptyVectorsAmongOthers) {
  RDM_NEEDS(FI_RMA);
  Exposed e(1 << 20);
  if (e.net[0].info->tx_attr->rma_iov_limit < 3) GTEST_SKIP() << "vectors of less than three";
  for (const size_t size : {size_t{100}, size_t{200'000}}) {
    for (const bool reads : {false, true}) {
      SCOPED_TRACE(testing::Message() << size << (reads ? " read" : " written"));
      std::vector<uint8_t> local = pattern(size, unsigned(size)), expected = local;
      std::fill(e.window.begin(), e.window.end(), 0xee);
      Message m(e, local, 1, 1);
      const size_t half = size / 2;
      m.remote = {{e.at(500'000), 0, e.key()},
                  {e.at(7), half, e.key()},
                  {e.at(300'000), size - half, e.key()}};
      m.msg.rma_iov = m.remote.data();
      m.msg.rma_iov_count = m.remote.size();
      if (reads) {
        std::copy_n(local.begin(), half, e.window.begin() + 7);
        std::copy(local.begin() + ptrdiff_t(half), local.end(), e.window.begin() + 300'000);
        std::fill(local.begin(), local.end(), 0);
      }
      e.net.post([&] {
        return reads ? fi_readmsg(e.net[0].ep, &m.msg, FI_COMPLETION)
                     : fi_writemsg(e.net[0].ep, &m.msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
      });
      const Completion done = e.initiated();
      ASSERT_EQ(done.err, 0) << fi_strerror(done.err);
      if (reads) {
        EXPECT_EQ(local, expected);
      } else {
        EXPECT_EQ(std::memcmp(e.window.data() + 7, expected.data(), half), 0);
        EXPECT_EQ(std::memcmp(e.window.data() + 300'000, expected.data() + half, size - half), 0);
      }
      EXPECT_EQ(e.window[500'000], 0xee);
      EXPECT_EQ(e.window[0], 0xee);
    }
  }
}

// fi_endpoint.3, FI_DELIVERY_COMPLETE: what was written is in the target's memory.
TEST(RdmRma, AfterDeliveryCompleteTheBytesAreThere) {
  RDM_NEEDS(FI_RMA);
  covers("FI_DELIVERY_COMPLETE");
  Options options = with_rma();
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  if (!find_info(options)) GTEST_SKIP() << "no FI_DELIVERY_COMPLETE";
  Exposed e(1 << 20, options);
  for (size_t size : {1, 100, 20000, 1 << 20}) {
    std::vector<uint8_t> out = pattern(size, 7);
    std::fill(e.window.begin(), e.window.end(), 0);
    e.net.post([&] { return e.write(out); });
    EXPECT_EQ(e.initiated().err, 0);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), e.window.begin())) << size;
  }
}

// fi_endpoint.3, FI_ORDER_RAW (fi_rma.3): a read after a write of the same place sees it.
TEST(RdmRma, AReadAfterAWriteSeesIt) {
  RDM_NEEDS(FI_RMA);
  covers("FI_ORDER_RMA_RAW");
  Options options = with_rma();
  options.order = FI_ORDER_RMA_RAW;
  if (!find_info(options)) GTEST_SKIP() << "no FI_ORDER_RMA_RAW";
  Exposed e(1 << 16, options);
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<uint8_t> out = pattern(round % 2 ? 40000 : 64, round), in(out.size());
    e.net.post([&] { return e.write(out); });
    e.net.post([&] { return e.read(in); });
    EXPECT_EQ(e.initiated().err, 0);
    EXPECT_EQ(e.initiated().err, 0);
    EXPECT_EQ(in, out);
  }
}

// FI_ORDER_SAW: when the message has arrived, what was written before it is there.
TEST(RdmRma, ASendAfterAWriteIsSeenAfterIt) {
  RDM_NEEDS(FI_RMA);
  covers("FI_ORDER_SAW");
  Options options = with_rma();
  options.order = FI_ORDER_SAW;
  if (!find_info(options)) GTEST_SKIP() << "no FI_ORDER_SAW";
  Exposed e(200000, options);
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<uint8_t> out = pattern(round % 2 ? 200000 : 64, round), in(8);
    must(fi_trecv(e.net[1].ep, in.data(), 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    e.net.post([&] { return e.write(out); });
    e.net.post([&] { return fi_tinject(e.net[0].ep, out.data(), 8, e.net.at(0, 1), 1); });
    EXPECT_EQ(e.net.wait(e.net[1].rx_cq).err, 0);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), e.window.begin())) << "round " << round;
    EXPECT_EQ(e.initiated().err, 0);
  }
}

// FI_ORDER_RMA_WAW: of two writes to one place the second stays.
TEST(RdmRma, TheLaterOfTwoWritesStays) {
  RDM_NEEDS(FI_RMA);
  covers("FI_ORDER_RMA_WAW");
  Options options = with_rma();
  options.order = FI_ORDER_RMA_WAW;
  if (!find_info(options)) GTEST_SKIP() << "no FI_ORDER_RMA_WAW";
  Exposed e(100000, options);
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<uint8_t> first = pattern(round % 2 ? 100000 : 64, 1), second = pattern(64, round);
    e.net.post([&] { return e.write(first); });
    e.net.post([&] { return e.write(second); });
    for (int i = 0; i < 2; ++i) EXPECT_EQ(e.initiated().err, 0);
    EXPECT_TRUE(
        e.net.until([&] { return std::equal(second.begin(), second.end(), e.window.begin()); }));
    e.net.settle();
    EXPECT_TRUE(std::equal(second.begin(), second.end(), e.window.begin())) << "round " << round;
  }
}

// What the target refuses. The initiator of a read, and of a write that asks for
// FI_DELIVERY_COMPLETE, gets an error: other writes may be complete before the target sees them.
// The target's memory stays as it is, and messages go on, if not between these two, then with
// others.
Options with_delivery_complete() {
  Options options = with_rma();
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  if (!find_info(options)) options.tx_op_flags = 0;
  return options;
}
enum class Wrong { kKey, kBeforeStart, kBehindEnd, kNoWrite, kNoRead };
class RdmRmaRefused : public ::testing::TestWithParam<std::tuple<Wrong, size_t>> {};
INSTANTIATE_TEST_SUITE_P(All, RdmRmaRefused,
                         ::testing::Combine(::testing::Values(Wrong::kKey, Wrong::kBeforeStart,
                                                              Wrong::kBehindEnd, Wrong::kNoWrite,
                                                              Wrong::kNoRead),
                                            ::testing::Values(16, 100000)));

TEST_P(RdmRmaRefused, OnlyTheInitiatorGetsTheError) {
  RDM_NEEDS(FI_RMA);
  covers("errors of RMA");
  const Wrong wrong = std::get<0>(GetParam());
  const size_t size = std::get<1>(GetParam());
  const uint64_t access = wrong == Wrong::kNoWrite  ? FI_REMOTE_READ
                          : wrong == Wrong::kNoRead ? FI_REMOTE_WRITE
                                                    : FI_REMOTE_READ | FI_REMOTE_WRITE;
  const Options options = with_delivery_complete();
  Exposed e(200000, options, access);
  Node &third = e.net.add(with_rma());
  e.net.exchange(0, 1);
  e.net.exchange(2, 1);
  std::vector<uint8_t> local = pattern(size, 1);
  uint64_t at = e.at(), key = e.key();
  if (wrong == Wrong::kKey) key += 12345;
  if (wrong == Wrong::kBeforeStart) at -= 8;
  if (wrong == Wrong::kBehindEnd) at = e.at(e.window.size() - size + 1);
  e.net.post([&] {
    return wrong == Wrong::kNoRead
               ? fi_read(e.net[0].ep, local.data(), size, nullptr, e.net.at(0, 1), at, key, &local)
               : fi_write(e.net[0].ep, local.data(), size, nullptr, e.net.at(0, 1), at, key,
                          &local);
  });
  const Completion done = e.initiated();
  if (wrong == Wrong::kNoRead || options.tx_op_flags != 0) {
    EXPECT_NE(done.err, 0);
  }
  EXPECT_EQ(done.context, &local);
  e.net.settle();
  EXPECT_TRUE(std::all_of(e.window.begin(), e.window.end(), [](uint8_t b) { return b == 0xee; }));
  EXPECT_FALSE(poll(e.net[1].rx_cq).has_value()) << "the target's own queue tells nothing";
  e.net.exchange(2, 1);
  e.net.exchange(1, 2);
  e.net.exchange(0, 2);
  e.net.exchange(2, 0, 100000);
  static_cast<void>(third);
}

// An access that the target refuses has an error at its initiator, even if it had completed: then
// the error has the endpoint's context. Nothing behind it is lost. A device ends the connection,
// and what was lost with it has errors, too.
struct Refused {
  const char *name;
  uint64_t caps, counts;
  ssize_t (*start)(Exposed &e, std::vector<uint8_t> &local, uint64_t key);
};
const Refused kRefused[] = {
    {"fi_write", FI_RMA, FI_WRITE,
     [](Exposed &e, std::vector<uint8_t> &local, uint64_t key) {
       return fi_write(e.net[0].ep, local.data(), 8, nullptr, e.net.at(0, 1), e.at(), key, &local);
     }},
    {"a long fi_write", FI_RMA, FI_WRITE,
     [](Exposed &e, std::vector<uint8_t> &local, uint64_t key) {
       return fi_write(e.net[0].ep, local.data(), local.size(), nullptr, e.net.at(0, 1), e.at(),
                       key, &local);
     }},
    {"fi_inject_write", FI_RMA, FI_WRITE,
     [](Exposed &e, std::vector<uint8_t> &local, uint64_t key) {
       return fi_inject_write(e.net[0].ep, local.data(), 8, e.net.at(0, 1), e.at(), key);
     }},
    {"fi_read", FI_RMA, FI_READ,
     [](Exposed &e, std::vector<uint8_t> &local, uint64_t key) {
       return fi_read(e.net[0].ep, local.data(), local.size(), nullptr, e.net.at(0, 1), e.at(), key,
                      &local);
     }},
    {"fi_atomic", FI_ATOMIC, FI_WRITE,
     [](Exposed &e, std::vector<uint8_t> &local, uint64_t key) {
       return fi_atomic(e.net[0].ep, local.data(), 1, nullptr, e.net.at(0, 1), e.at(), key,
                        FI_UINT64, FI_SUM, &local);
     }},
};

TEST(RdmRma, NothingBehindARefusedAccessIsLost) {
  RDM_NEEDS(FI_RMA);
  covers("errors of RMA");
  for (const Refused &refused : kRefused) {
    for (const uint64_t level : {uint64_t(0), uint64_t(FI_DELIVERY_COMPLETE)}) {
      SCOPED_TRACE(::testing::Message() << refused.name << ", level " << level);
      Options options = with_rma(refused.caps);
      options.tx_op_flags = level;
      if (!find_info(options)) continue;
      std::vector<uint8_t> local = pattern(50'000, 1), out = pattern(100, 2), in(100);
      fid_cntr *counter = nullptr;
      Exposed e(60'000, options, FI_REMOTE_READ | FI_REMOTE_WRITE, [&](Node &node) {
        if (counter == nullptr) counter = node.count(refused.counts);
      });
      e.net.exchange(0, 1);
      must(fi_trecv(e.net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 9, 0, &in));
      e.net.post([&] { return refused.start(e, local, e.key() + 12345); });
      e.net.post([&] {
        return fi_tsend(e.net[0].ep, out.data(), out.size(), nullptr, e.net.at(0, 1), 9, &out);
      });
      std::optional<Completion> error, sent;
      EXPECT_TRUE(e.net.until([&] {
        while (const auto done = poll(e.net[0].tx_cq)) {
          if (done->context == &out) {
            sent = done;
          } else if (done->err != 0) {
            EXPECT_FALSE(error.has_value()) << "told twice";
            error = done;
          }
        }
        return error && sent;
      })) << (error ? "no end of the message" : "no error");
      ASSERT_TRUE(error && sent);
      EXPECT_NE(error->flags & refused.counts, 0u);
      EXPECT_NE(error->context, nullptr);
      if (error->context != &local) {
        EXPECT_EQ(error->context, &e.net[0]) << "the endpoint's";
      }
      EXPECT_EQ(fi_cntr_readerr(counter), 1u);
      if (!is_over_a_device(FI_EP_RDM)) {
        EXPECT_EQ(sent->err, 0);
      }
      if (sent->err == 0) {
        EXPECT_EQ(e.net.wait(e.net[1].rx_cq).err, 0);
        EXPECT_EQ(in, out);
      }
      EXPECT_TRUE(
          std::all_of(e.window.begin(), e.window.end(), [](uint8_t b) { return b == 0xee; }));
      if (!is_over_a_device(FI_EP_RDM)) e.net.exchange(0, 1);
    }
  }
}

TEST(RdmRma, AClosedRegionIsRefused) {
  RDM_NEEDS(FI_RMA);
  covers("errors of RMA");
  Exposed e(4096, with_delivery_complete());
  std::vector<uint8_t> out = pattern(64, 1);
  e.net.post([&] { return e.write(out); });
  EXPECT_EQ(e.initiated().err, 0);
  const uint64_t key = e.key(), at = e.at();
  e.net[1].regions.clear();
  std::fill(e.window.begin(), e.window.end(), 0);
  e.net.post([&] {
    return fi_write(e.net[0].ep, out.data(), out.size(), nullptr, e.net.at(0, 1), at, key, &out);
  });
  const int err = e.initiated().err;
  if (e.net[0].options.tx_op_flags != 0) {
    EXPECT_NE(err, 0);
  }
  e.net.settle();
  EXPECT_EQ(e.window[0], 0);
}

// fi_mr.3, FI_MR_ENDPOINT: the region is bound to an endpoint, and peers reach it through no other.
TEST(RdmRma, ARegionOfAnEndpointIsReachedThroughItAlone) {
  RDM_NEEDS(FI_RMA);
  covers("FI_MR_ENDPOINT");
  Options options = with_delivery_complete();
  options.domain_mr_mode = FI_MR_ENDPOINT;
  std::vector<uint8_t> out = pattern(64, 1);
  Exposed e(4096, options);
  if (fi_mr_enable(e.region) == 0) GTEST_SKIP() << "regions need no endpoint here";
  e.net.add(options, {}, &e.net[1]);
  must(fi_mr_bind(e.region, e.net[1].ep.fid(), FI_REMOTE_WRITE));  // as Sandia OpenSHMEM does
  must(fi_mr_enable(e.region));
  const auto write_through = [&](size_t endpoint) {
    e.net.post([&] {
      return fi_write(e.net[0].ep, out.data(), out.size(), nullptr, e.net.at(0, endpoint), e.at(),
                      e.key(), &out);
    });
    const int err = e.initiated().err;
    e.net.settle();
    return err;
  };
  const int err = write_through(2);
  if (options.tx_op_flags != 0) {
    EXPECT_NE(err, 0);
  }
  EXPECT_EQ(e.window[0], 0xee);
  EXPECT_EQ(write_through(1), 0);
  EXPECT_EQ(e.window[0], out[0]);
}

// fi_cntr.3: FI_WRITE and FI_READ count at the initiator, FI_REMOTE_WRITE and FI_REMOTE_READ at the
// target, which with FI_RMA_EVENT counts every access.
TEST(RdmRma, CountersCountAtTheInitiator) {
  RDM_NEEDS(FI_RMA);
  covers("counters");
  fid_cntr *writes = nullptr, *reads = nullptr;
  Exposed e(4096, with_rma(), FI_REMOTE_READ | FI_REMOTE_WRITE, [&](Node &node) {
    if (writes != nullptr) return;  // of the first only
    writes = node.count(FI_WRITE);
    reads = node.count(FI_READ);
  });
  std::vector<uint8_t> local(100);
  for (int i = 0; i < 5; ++i) e.net.post([&] { return e.write(local); });
  for (int i = 0; i < 3; ++i) e.net.post([&] { return e.read(local); });
  e.net.post([&] {
    return fi_inject_write(e.net[0].ep, local.data(), 8, e.net.at(0, 1), e.at(), e.key());
  });
  e.net.wait_count(writes, 6);
  e.net.wait_count(reads, 3);
  e.net.settle();
  EXPECT_EQ(fi_cntr_read(writes), 6u);
  EXPECT_EQ(fi_cntr_read(reads), 3u);
  EXPECT_EQ(fi_cntr_readerr(writes), 0u);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(e.initiated().err, 0);
}

TEST(RdmRma, RmaEventsCountAtTheTarget) {
  RDM_NEEDS(FI_RMA | FI_RMA_EVENT);
  fid_cntr *writes = nullptr, *reads = nullptr;
  int opened = 0;
  Options options = with_rma(FI_RMA_EVENT);
  options.mr_mode = FI_MR_RMA_EVENT;
  Net net(2, options, [&](Node &node) {
    if (++opened != 2) return;
    writes = node.count(FI_REMOTE_WRITE);
    reads = node.count(FI_REMOTE_READ);
  });
  std::vector<uint8_t> window(200000), local(200000);
  fid_mr *region =
      net[1].expose(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, kKey);
  if (net[1].info->domain_attr->mr_mode & FI_MR_RMA_EVENT) {
    must(fi_mr_bind(region, &writes->fid, FI_REMOTE_WRITE));
    must(fi_mr_enable(region));
  }
  const uint64_t at = net[1].base_of(window.data()), key = fi_mr_key(region);
  for (size_t size : {8, 20000, 200000}) {
    net.post([&] {
      return fi_write(net[0].ep, local.data(), size, nullptr, net.at(0, 1), at, key, nullptr);
    });
    net.post([&] {
      return fi_read(net[0].ep, local.data(), size, nullptr, net.at(0, 1), at, key, nullptr);
    });
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.wait_count(writes, 3);
  if (!(net[1].info->domain_attr->mr_mode & FI_MR_RMA_EVENT)) net.wait_count(reads, 3);
  net.settle();
  EXPECT_EQ(fi_cntr_read(writes), 3u);
}

// A layer may fetch a message by remote access. The counters of FI_RMA_EVENT must not count that:
// programs that wait on them would take it for a peer's write.
TEST(RdmRma, MessagesAreNoRemoteAccesses) {
  RDM_NEEDS(FI_RMA | FI_RMA_EVENT);
  std::vector<fid_cntr *> counters;
  std::vector<uint8_t> window(8), local(8);
  Net net(2, with_rma(FI_RMA_EVENT), [&](Node &node) {
    counters.push_back(node.count(FI_REMOTE_WRITE));
    counters.push_back(node.count(FI_REMOTE_READ));
  });
  std::vector<size_t> sizes = edges();
  sizes.push_back(3 << 20);
  for (const size_t size : sizes) {
    SCOPED_TRACE(size);
    net.exchange(0, 1, size);
    net.exchange(1, 0, size);
  }
  net.settle();
  for (size_t i = 0; i < counters.size(); ++i) EXPECT_EQ(fi_cntr_read(counters[i]), 0u) << i;
  // A remote access is counted.
  fid_mr *region =
      net[1].expose(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, kKey);
  const uint64_t at = net[1].base_of(window.data()), key = fi_mr_key(region);
  net.post([&] {
    return fi_write(net[0].ep, local.data(), 8, nullptr, net.at(0, 1), at, key, nullptr);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.wait_count(counters[2], 1);
  net.post(
      [&] { return fi_read(net[0].ep, local.data(), 8, nullptr, net.at(0, 1), at, key, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.wait_count(counters[3], 1);
}

// A thousand operations at once, each to its own place.
TEST(RdmRma, ManyAtOnce) {
  RDM_NEEDS(FI_RMA);
  constexpr size_t kCount = 1000, kSize = 64;
  Exposed e(kCount * kSize);
  std::vector<std::vector<uint8_t>> out, in(kCount, std::vector<uint8_t>(kSize));
  for (size_t i = 0; i < kCount; ++i) out.push_back(pattern(kSize, unsigned(i)));
  size_t done = 0;
  const auto reap = [&] {
    while (auto got = poll(e.net[0].tx_cq)) {
      EXPECT_EQ(got->err, 0);
      ++done;
    }
    return done;
  };
  for (size_t i = 0; i < kCount; ++i) {
    e.net.post([&] {
      reap();
      return e.write(out[i], i * kSize);
    });
  }
  EXPECT_TRUE(e.net.until([&] { return reap() == kCount; }));
  for (size_t i = 0; i < kCount; ++i) {
    e.net.post([&] {
      reap();
      return e.read(in[i], i * kSize);
    });
  }
  EXPECT_TRUE(e.net.until([&] { return reap() == 2 * kCount; }));
  EXPECT_EQ(in, out);
}

TEST(RdmRma, AnEndpointReachesItsOwnMemory) {
  RDM_NEEDS(FI_RMA);
  std::vector<uint8_t> window(70000), out = pattern(70000, 1), in(70000);
  Net net(1, with_rma());
  fid_mr *region =
      net[0].expose(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, kKey);
  const uint64_t at = net[0].base_of(window.data()), key = fi_mr_key(region);
  net.post([&] {
    return fi_write(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 0), at, key, &out);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.post([&] {
    return fi_read(net[0].ep, in.data(), in.size(), nullptr, net.at(0, 0), at, key, &in);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace weft::conformance::rdm
