// SPDX-License-Identifier: BSD-2-Clause
// Collective operations (fi_collective.3) of stacks that have them: what fi_query_collective names
// works, in groups of several sizes.
#include <rdma/fi_collective.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

Options collective_options() {
  Options options;
  options.caps |= FI_COLLECTIVE;
  options.event_queue = true;
  return options;
}

// Applications that are all in one group.
class Group {
 public:
  explicit Group(size_t members) : net(members, collective_options()), groups_(members) {
    for (size_t i = 0; i < members; ++i) {
      fi_av_set_attr attr{};
      attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
      Handle<fid_av_set> set;
      must(fi_av_set(net[i].av, &attr, set.out(), nullptr));
      for (size_t k = 0; k < members; ++k) must(fi_av_set_insert(set, net.at(i, k)));
      fi_addr_t address = FI_ADDR_NOTAVAIL;
      must(fi_av_set_addr(set, &address));
      must(fi_join_collective(net[i].ep, address, set, 0, groups_[i].out(), this));
    }
    for (size_t i = 0; i < members; ++i) {
      fi_eq_entry entry{};
      uint32_t event = 0;
      ssize_t rc = 0;
      EXPECT_TRUE(net.until([&] {
        return (rc = fi_eq_read(net[i].eq, &event, &entry, sizeof entry, 0)) != -FI_EAGAIN;
      }));
      EXPECT_EQ(rc, ssize_t(sizeof entry));
      EXPECT_EQ(event, uint32_t(FI_JOIN_COMPLETE));
      EXPECT_EQ(entry.fid, groups_[i].fid());
      EXPECT_EQ(entry.context, this);
    }
  }
  fi_addr_t at(size_t i) { return fi_mc_addr(groups_[i]); }
  size_t size() { return net.size(); }
  bool has(fi_collective_op coll, enum fi_op op, enum fi_datatype datatype, size_t *count) {
    fi_collective_attr attr{};
    attr.op = op;
    attr.datatype = datatype;
    if (fi_query_collective(net[0].domain, coll, &attr, 0) != 0) return false;
    *count = attr.datatype_attr.count;
    EXPECT_GE(attr.max_members, size());
    return true;
  }
  void all(const std::function<ssize_t(size_t)> &call) {
    for (size_t i = 0; i < size(); ++i) net.post([&] { return call(i); });
    for (size_t i = 0; i < size(); ++i) {
      const Completion done = net.wait(net[i].tx_cq);
      EXPECT_EQ(done.err, 0);
      EXPECT_EQ(done.context, this);
    }
  }

  Net net;

 private:
  std::vector<Handle<fid_mc>> groups_;
};

class RdmCollective : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Members, RdmCollective, ::testing::Values(1, 2, 3, 5, 8));

TEST_P(RdmCollective, NobodyPassesABarrierBeforeAll) {
  RDM_NEEDS(FI_COLLECTIVE);
  Group group(GetParam());
  for (size_t late = 0; late < group.size(); ++late) {
    for (size_t i = 0; i < group.size(); ++i)
      if (i != late) must(fi_barrier(group.net[i].ep, group.at(i), &group));
    group.net.settle();
    for (size_t i = 0; i < group.size(); ++i) EXPECT_FALSE(poll(group.net[i].tx_cq));
    must(fi_barrier(group.net[late].ep, group.at(late), &group));
    for (size_t i = 0; i < group.size(); ++i)
      EXPECT_EQ(group.net.wait(group.net[i].tx_cq).context, &group);
  }
}

TEST_P(RdmCollective, ABroadcastComesFromItsRoot) {
  RDM_NEEDS(FI_COLLECTIVE);
  Group group(GetParam());
  size_t count = 0;
  ASSERT_TRUE(group.has(FI_BROADCAST, FI_NOOP, FI_UINT32, &count));
  count = std::min<size_t>(count, 100);
  for (size_t root = 0; root < group.size(); ++root) {
    std::vector<std::vector<uint32_t>> data(group.size(), std::vector<uint32_t>(count));
    for (size_t k = 0; k < count; ++k) data[root][k] = uint32_t(root * 1000 + k);
    group.all([&](size_t i) {
      return fi_broadcast(group.net[i].ep, data[i].data(), count, nullptr, group.at(i),
                          group.net.at(i, root), FI_UINT32, FI_COMPLETION, &group);
    });
    for (const auto &one : data) EXPECT_EQ(one, data[root]);
  }
}

// What the operations make of numbers that all of them take.
uint64_t reduced(enum fi_op op, uint64_t a, uint64_t b) {
  switch (op) {
    case FI_MIN:
      return std::min(a, b);
    case FI_MAX:
      return std::max(a, b);
    case FI_SUM:
      return a + b;
    case FI_PROD:
      return a * b;
    case FI_BOR:
      return a | b;
    case FI_BAND:
      return a & b;
    default:
      return a ^ b;
  }
}

template <class T>
void check_allreduce(Group &group, enum fi_op op, enum fi_datatype datatype) {
  size_t count = 0;
  if (!group.has(FI_ALLREDUCE, op, datatype, &count)) return;
  SCOPED_TRACE(std::to_string(op) + " " + std::to_string(datatype));
  count = std::min<size_t>(count, 100);
  std::vector<std::vector<T>> data(group.size(), std::vector<T>(count)), results = data;
  std::vector<T> expected(count);
  for (size_t k = 0; k < count; ++k) {
    uint64_t value = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      const uint64_t own = 1 + (i * 3 + k) % 4;
      data[i][k] = T(own);
      value = i == 0 ? own : reduced(op, value, own);
    }
    expected[k] = T(value);
  }
  group.all([&](size_t i) {
    return fi_allreduce(group.net[i].ep, data[i].data(), count, nullptr, results[i].data(), nullptr,
                        group.at(i), datatype, op, FI_COMPLETION, &group);
  });
  for (const auto &result : results) EXPECT_EQ(result, expected);
  if (!group.has(FI_REDUCE, op, datatype, &count)) return;
  for (auto &result : results) result.assign(result.size(), T(77));
  const size_t root = group.size() - 1;
  group.all([&](size_t i) {
    return fi_reduce(group.net[i].ep, data[i].data(), results[i].size(), nullptr, results[i].data(),
                     nullptr, group.at(i), group.net.at(i, root), datatype, op, FI_COMPLETION,
                     &group);
  });
  EXPECT_EQ(results[root], expected);
  if (root != 0) {
    EXPECT_EQ(results[0][0], T(77)) << "it is the root's alone";
  }
}

TEST_P(RdmCollective, ReductionsAreWhatTheQuerySays) {
  RDM_NEEDS(FI_COLLECTIVE);
  Group group(GetParam());
  for (const enum fi_op op : {FI_MIN, FI_MAX, FI_SUM, FI_PROD, FI_BOR, FI_BAND, FI_BXOR}) {
    check_allreduce<uint8_t>(group, op, FI_UINT8);
    check_allreduce<uint16_t>(group, op, FI_UINT16);
    check_allreduce<uint32_t>(group, op, FI_UINT32);
    check_allreduce<uint64_t>(group, op, FI_UINT64);
    check_allreduce<int32_t>(group, op, FI_INT32);
    check_allreduce<int64_t>(group, op, FI_INT64);
    check_allreduce<float>(group, op, FI_FLOAT);
    check_allreduce<double>(group, op, FI_DOUBLE);
  }
}

// What member `from` has for member `to`.
uint32_t item(size_t from, size_t to, size_t k) {
  return uint32_t(from * 1000003 + to * 1009 + k);
}

struct Blocks {
  Blocks(Group &group, size_t per_member, size_t result_per_member)
      : in(group.size(), std::vector<uint32_t>(per_member)),
        out(group.size(), std::vector<uint32_t>(result_per_member)) {}
  std::vector<std::vector<uint32_t>> in, out;
};

TEST_P(RdmCollective, SlicesGoWhereTheyBelong) {
  RDM_NEEDS(FI_COLLECTIVE);
  Group group(GetParam());
  const size_t n = group.size();
  size_t most = 0;
  if (!group.has(FI_ALLTOALL, FI_NOOP, FI_UINT32, &most)) GTEST_SKIP() << "no alltoall";
  for (const size_t count : {1u, 7u, 3000u}) {
    if (group.has(FI_ALLTOALL, FI_NOOP, FI_UINT32, &most) && count <= most) {
      Blocks data(group, n * count, n * count);
      for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < n * count; ++k) data.in[i][k] = item(i, k / count, k % count);
      group.all([&](size_t i) {
        return fi_alltoall(group.net[i].ep, data.in[i].data(), count, nullptr, data.out[i].data(),
                           nullptr, group.at(i), FI_UINT32, FI_COMPLETION, &group);
      });
      for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < n * count; ++k)
          ASSERT_EQ(data.out[i][k], item(k / count, i, k % count));
    }
    if (group.has(FI_ALLGATHER, FI_NOOP, FI_UINT32, &most) && count <= most) {
      Blocks data(group, count, n * count);
      for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < count; ++k) data.in[i][k] = item(i, 0, k);
      group.all([&](size_t i) {
        return fi_allgather(group.net[i].ep, data.in[i].data(), count, nullptr, data.out[i].data(),
                            nullptr, group.at(i), FI_UINT32, FI_COMPLETION, &group);
      });
      for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < n * count; ++k)
          ASSERT_EQ(data.out[i][k], item(k / count, 0, k % count));
    }
    if (group.has(FI_REDUCE_SCATTER, FI_SUM, FI_UINT32, &most) && count <= most) {
      Blocks data(group, n * count, count);
      for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < n * count; ++k) data.in[i][k] = item(i, k / count, k % count);
      group.all([&](size_t i) {
        return fi_reduce_scatter(group.net[i].ep, data.in[i].data(), count, nullptr,
                                 data.out[i].data(), nullptr, group.at(i), FI_UINT32, FI_SUM,
                                 FI_COMPLETION, &group);
      });
      for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < count; ++k) {
          uint32_t sum = 0;
          for (size_t from = 0; from < n; ++from) sum += item(from, i, k);
          ASSERT_EQ(data.out[i][k], sum);
        }
    }
  }
}

TEST_P(RdmCollective, RootsScatterAndGather) {
  RDM_NEEDS(FI_COLLECTIVE);
  Group group(GetParam());
  const size_t n = group.size(), count = 5;
  size_t most = 0;
  if (!group.has(FI_SCATTER, FI_NOOP, FI_UINT32, &most) ||
      !group.has(FI_GATHER, FI_NOOP, FI_UINT32, &most))
    GTEST_SKIP() << "no scatter and gather";
  for (size_t root = 0; root < n; ++root) {
    Blocks data(group, n * count, count);
    for (size_t k = 0; k < n * count; ++k) data.in[root][k] = item(root, k / count, k % count);
    group.all([&](size_t i) {
      return fi_scatter(group.net[i].ep, i == root ? data.in[i].data() : nullptr, count, nullptr,
                        data.out[i].data(), nullptr, group.at(i), group.net.at(i, root), FI_UINT32,
                        FI_COMPLETION, &group);
    });
    for (size_t i = 0; i < n; ++i)
      for (size_t k = 0; k < count; ++k) ASSERT_EQ(data.out[i][k], item(root, i, k));
    std::vector<uint32_t> all(n * count);
    group.all([&](size_t i) {
      return fi_gather(group.net[i].ep, data.out[i].data(), count, nullptr,
                       i == root ? all.data() : nullptr, nullptr, group.at(i),
                       group.net.at(i, root), FI_UINT32, FI_COMPLETION, &group);
    });
    EXPECT_EQ(all, data.in[root]);
  }
}

TEST_P(RdmCollective, ManyAtOnceAndLong) {
  RDM_NEEDS(FI_COLLECTIVE);
  Group group(GetParam());
  size_t most = 0;
  ASSERT_TRUE(group.has(FI_ALLREDUCE, FI_BXOR, FI_UINT64, &most));
  constexpr size_t kAtOnce = 6;
  const size_t n = group.size();
  std::vector<std::vector<uint64_t>> in(n * kAtOnce), out(n * kAtOnce);
  for (size_t k = 0; k < kAtOnce; ++k)
    for (size_t i = 0; i < n; ++i) {
      auto &own = in[k * n + i];
      own.resize(std::min(most, k == 0 ? 200000 : 100 * k));
      for (size_t e = 0; e < own.size(); ++e) own[e] = (i + 1) * 0x9e3779b97f4a7c15 + k + e;
      out[k * n + i].resize(own.size());
    }
  for (size_t k = 0; k < kAtOnce; ++k)
    for (size_t i = 0; i < n; ++i)
      group.net.post([&] {
        return fi_allreduce(group.net[i].ep, in[k * n + i].data(), in[k * n + i].size(), nullptr,
                            out[k * n + i].data(), nullptr, group.at(i), FI_UINT64, FI_BXOR,
                            FI_COMPLETION, &group);
      });
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < kAtOnce; ++k) {
      EXPECT_EQ(group.net.wait(group.net[i].tx_cq).err, 0);
    }
  for (size_t k = 0; k < kAtOnce; ++k) {
    std::vector<uint64_t> expected(in[k * n].size());
    for (size_t i = 0; i < n; ++i)
      for (size_t e = 0; e < expected.size(); ++e) expected[e] ^= in[k * n + i][e];
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[k * n + i], expected);
  }
}

// A receive for any tag takes a message of the application, and none of the group's.
TEST(RdmCollectiveTags, TheApplicationsMessagesAreItsOwn) {
  RDM_NEEDS(FI_COLLECTIVE);
  Group group(2);
  std::vector<uint8_t> in(8), out(8, 7);
  must(fi_trecv(group.net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 0, ~uint64_t(0),
                &in));
  for (int i = 0; i < 3; ++i)
    group.all([&](size_t k) { return fi_barrier(group.net[k].ep, group.at(k), &group); });
  EXPECT_FALSE(poll(group.net[0].rx_cq));
  must(fi_tsend(group.net[1].ep, out.data(), out.size(), nullptr, group.net.at(1, 0), 99, &out));
  EXPECT_EQ(group.net.wait(group.net[0].rx_cq).tag, 99u);
  EXPECT_EQ(in, out);
}

TEST(RdmCollectiveErrors, WhatIsNotOfferedIsRefused) {
  RDM_NEEDS(FI_COLLECTIVE);
  Group group(2);
  fi_collective_attr attr{};
  attr.op = static_cast<enum fi_op>(0x7777);
  attr.datatype = FI_INT64;
  EXPECT_LT(fi_query_collective(group.net[0].domain, FI_ALLREDUCE, &attr, 0), 0);
  int64_t value = 1, result = 0;
  EXPECT_LT(fi_allreduce(group.net[0].ep, &value, 1, nullptr, &result, nullptr, FI_ADDR_NOTAVAIL,
                         FI_INT64, FI_SUM, 0, nullptr),
            0)
      << "no such group";
  EXPECT_LT(fi_allreduce(group.net[0].ep, &value, SIZE_MAX, nullptr, &result, nullptr, group.at(0),
                         FI_INT64, FI_SUM, 0, nullptr),
            0);
  fid_mc *none = nullptr;
  EXPECT_LT(fi_join_collective(group.net[0].ep, FI_ADDR_NOTAVAIL, nullptr, 0, &none, nullptr), 0);
  EXPECT_EQ(none, nullptr);
}

}  // namespace
}  // namespace weft::conformance::rdm
