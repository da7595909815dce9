// SPDX-License-Identifier: BSD-2-Clause
// Collective operations of cxi (fi_collective.3; fi_cxi.7, COLLECTIVES), over the C API: in one
// process, and between processes.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "plugins/cxi/test_team.h"

namespace weft::conformance::rdm {
namespace {

using std::chrono::milliseconds;

// ---- what there is ----

TEST(CxiCollective, WhatThereIs) {
  Node node(collective_options());
  const auto ask = [&](fi_collective_op coll, int op, int datatype, uint64_t flags = 0) {
    fi_collective_attr attr{};
    attr.op = fi_op(op);
    attr.datatype = fi_datatype(datatype);
    const int rc = fi_query_collective(node.domain, coll, &attr, flags);
    return rc == 0 ? int(attr.datatype_attr.count) : rc;
  };
  EXPECT_EQ(ask(FI_BARRIER, FI_NOOP, FI_VOID), 0);
  EXPECT_EQ(ask(FI_BARRIER, FI_SUM, FI_VOID), -FI_EOPNOTSUPP);
  EXPECT_EQ(ask(FI_BROADCAST, FI_NOOP, FI_FLOAT), 8);
  EXPECT_EQ(ask(FI_BROADCAST, FI_NOOP, FI_VOID), -FI_EOPNOTSUPP);
  EXPECT_EQ(ask(FI_ALLREDUCE, FI_SUM, FI_DOUBLE), 4);
  EXPECT_EQ(ask(FI_ALLREDUCE, FI_BOR, FI_UINT8), 32);
  EXPECT_EQ(ask(FI_REDUCE, FI_CXI_MINMAXLOC, FI_INT64), 1);
  EXPECT_EQ(ask(FI_REDUCE, FI_CXI_REPSUM, FI_DOUBLE), 1);
  EXPECT_EQ(ask(FI_ALLREDUCE, FI_SUM, FI_FLOAT), -FI_EOPNOTSUPP);
  EXPECT_EQ(ask(FI_ALLREDUCE, FI_PROD, FI_DOUBLE), -FI_EOPNOTSUPP);
  EXPECT_EQ(ask(FI_ALLREDUCE, 99, 99), -FI_EOPNOTSUPP);
  EXPECT_EQ(ask(FI_ALLTOALL, FI_NOOP, FI_INT64), -FI_EOPNOTSUPP);
  EXPECT_EQ(ask(FI_ALLREDUCE, FI_SUM, FI_DOUBLE, FI_SCATTER), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_query_collective(node.domain, FI_BARRIER, nullptr, 0), -FI_EINVAL);
  EXPECT_NE(node.info->caps & FI_COLLECTIVE, 0u);
}

// ---- operations ----

class CxiCollectiveSizes : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Members, CxiCollectiveSizes, ::testing::Values(1, 2, 4, 7));

template <class T>
void check_bits(Team &team, enum fi_datatype datatype) {
  const size_t n = team.net.size();
  std::vector<std::vector<T>> operands(n, std::vector<T>(32 / sizeof(T)));
  std::vector<T> ands(operands[0].size(), T(~T{0})), ors(operands[0].size()), xors = ors;
  for (size_t i = 0; i < n; ++i) {
    const auto bytes = pattern(32, unsigned(i));
    std::memcpy(operands[i].data(), bytes.data(), 32);
    for (size_t k = 0; k < operands[i].size(); ++k) {
      ands[k] &= operands[i][k];
      ors[k] |= operands[i][k];
      xors[k] ^= operands[i][k];
    }
  }
  EXPECT_EQ(team.allreduce(operands, datatype, FI_BAND), std::vector(n, ands));
  EXPECT_EQ(team.allreduce(operands, datatype, FI_BOR), std::vector(n, ors));
  EXPECT_EQ(team.allreduce(operands, datatype, FI_BXOR), std::vector(n, xors));
}

template <class T>
void check_numbers(Team &team, enum fi_datatype datatype) {
  const size_t n = team.net.size();
  std::vector<std::vector<T>> operands(n, std::vector<T>(4));
  std::vector<T> least(4, T(1000)), most(4, T(-1000)), sum(4);
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < 4; ++k) {
      operands[i][k] = T(int64_t(i * 7 + k * 3) % 11 - 5);
      least[k] = std::min(least[k], operands[i][k]);
      most[k] = std::max(most[k], operands[i][k]);
      sum[k] += operands[i][k];
    }
  EXPECT_EQ(team.allreduce(operands, datatype, FI_MIN), std::vector(n, least));
  EXPECT_EQ(team.allreduce(operands, datatype, FI_MAX), std::vector(n, most));
  EXPECT_EQ(team.allreduce(operands, datatype, FI_SUM), std::vector(n, sum));
}

template <class T, class Value>
void check_locations(Team &team, enum fi_datatype datatype) {
  const size_t n = team.net.size();
  std::vector<std::vector<T>> operands(n);
  for (size_t i = 0; i < n; ++i) operands[i] = {{Value(10 - i), i, Value(i % 3), i}};
  const auto results = team.allreduce(operands, datatype, FI_CXI_MINMAXLOC);
  for (const auto &result : results) {
    EXPECT_EQ(result[0].minval, Value(10 - (n - 1)));
    EXPECT_EQ(result[0].minidx, n - 1);
    EXPECT_EQ(result[0].maxval, Value(std::min<size_t>(n - 1, 2)));
    EXPECT_EQ(result[0].maxidx, std::min<size_t>(n - 1, 2));
  }
}

TEST_P(CxiCollectiveSizes, ReducesToAll) {
  Team team(GetParam());
  check_bits<uint8_t>(team, FI_UINT8);
  check_bits<uint16_t>(team, FI_UINT16);
  check_bits<uint32_t>(team, FI_UINT32);
  check_bits<uint64_t>(team, FI_UINT64);
  check_numbers<int64_t>(team, FI_INT64);
  check_numbers<double>(team, FI_DOUBLE);
  check_locations<cxip_coll_intminmax, int64_t>(team, FI_INT64);
  check_locations<cxip_coll_fltminmax, double>(team, FI_DOUBLE);
}

TEST_P(CxiCollectiveSizes, BarrierBroadcastAndReduce) {
  const size_t n = GetParam();
  Team team(n);
  for (const Completion &done :
       team.all([&](size_t i) { return fi_barrier(team.net[i].ep, team.at(i), &team); })) {
    EXPECT_EQ(done.err, 0);
    EXPECT_EQ(done.context, &team);
  }
  for (size_t root = 0; root < n; ++root) {
    std::vector<std::array<float, 8>> data(n);
    for (size_t k = 0; k < 8; ++k) data[root][k] = float(k) + 0.5f;
    team.all([&](size_t i) {
      return fi_broadcast(team.net[i].ep, data[i].data(), 8, nullptr, team.at(i),
                          team.net.at(i, root), FI_FLOAT, 0, nullptr);
    });
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(data[i], data[root]);
    std::vector<int64_t> results(n, -1);
    team.all([&](size_t i) {
      const auto own = int64_t(i + 1);
      return fi_reduce(team.net[i].ep, &own, 1, nullptr, i == root ? &results[i] : nullptr, nullptr,
                       team.at(i), team.net.at(i, root), FI_INT64, FI_SUM, 0, nullptr);
    });
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(results[i], i == root ? int64_t(n * (n + 1) / 2) : -1);
  }
}

TEST(CxiCollective, ABarrierWaitsForAll) {
  Team team(3);
  for (const size_t i : {size_t{0}, size_t{2}})
    must(fi_barrier(team.net[i].ep, team.at(i), nullptr));
  EXPECT_FALSE(team.net.until([&] { return poll(team.net[0].tx_cq) || poll(team.net[2].tx_cq); },
                              milliseconds(200)));
  must(fi_barrier2(team.net[1].ep, team.at(1), FI_COMPLETION, nullptr));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, 0);
}

TEST(CxiCollective, EightAtATime) {
  Team team(2);
  std::vector<int64_t> results(9);
  const int64_t one = 1;
  const auto start = [&](size_t i, size_t k) {
    return fi_allreduce(team.net[i].ep, &one, 1, nullptr, &results[k], nullptr, team.at(i),
                        FI_INT64, FI_SUM, 0, &results[k]);
  };
  for (size_t k = 0; k < 8; ++k) EXPECT_EQ(start(0, k), 0);
  EXPECT_EQ(start(0, 8), -FI_EAGAIN);
  team.net.settle();
  EXPECT_EQ(start(0, 8), -FI_EAGAIN);
  int64_t ignored;
  for (size_t k = 0; k < 8; ++k)
    EXPECT_EQ(fi_allreduce(team.net[1].ep, &one, 1, nullptr, &ignored, nullptr, team.at(1),
                           FI_INT64, FI_SUM, 0, nullptr),
              0);
  for (size_t k = 0; k < 8; ++k) EXPECT_EQ(team.net.wait(team.net[0].tx_cq).context, &results[k]);
  EXPECT_EQ(start(0, 8), 0);
  EXPECT_EQ(results[7], 2);
  team.groups[1].reset();
  EXPECT_EQ(team.net.wait(team.net[0].tx_cq).err, FI_ENOTCONN);
}

// The same doubles, at other members each time.
TEST(CxiCollective, AReproducibleSumHasTheSameBits) {
  Team team(4);
  std::vector<double> values = {1e16, 3.14159, -1e16, 1e-9};
  std::ranges::sort(values);
  std::optional<uint64_t> expected;
  do {
    std::vector<std::vector<double>> operands;
    for (const double value : values) operands.push_back({value});
    for (const auto &result : team.allreduce(operands, FI_DOUBLE, FI_CXI_REPSUM)) {
      if (!expected) expected = std::bit_cast<uint64_t>(result[0]);
      EXPECT_EQ(std::bit_cast<uint64_t>(result[0]), *expected);
    }
  } while (std::ranges::next_permutation(values).found);
  EXPECT_EQ(std::bit_cast<double>(*expected), 3.14159 + 1e-9);
}

TEST(CxiCollective, ArithmeticFails) {
  Team team(2);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kMost = std::numeric_limits<double>::max();
  using Doubles = std::vector<std::vector<double>>;
  EXPECT_EQ(team.allreduce<double>({{kNan}, {2}}, FI_DOUBLE, FI_MIN), (Doubles{{2}, {2}}));
  EXPECT_EQ(team.allreduce<double>({{1}, {kNan}}, FI_DOUBLE, FI_MAX), (Doubles{{1}, {1}}));
  team.allreduce<double>({{kMost}, {kMost}}, FI_DOUBLE, FI_SUM, FI_EOVERFLOW);
  team.allreduce<int64_t>({{INT64_MAX}, {1}}, FI_INT64, FI_SUM, FI_EOVERFLOW);
  team.allreduce<double>({{INFINITY}, {-INFINITY}}, FI_DOUBLE, FI_SUM, FI_EINVAL);
  team.allreduce<double>({{INFINITY}, {-INFINITY}}, FI_DOUBLE, FI_CXI_REPSUM, FI_EINVAL);
  // Members that do not ask for the same: nothing is written.
  int64_t results[2][4] = {{7, 7, 7, 7}, {7, 7, 7, 7}};
  const auto done = team.all([&](size_t i) {
    const int64_t operands[4] = {1, 2, 3, 4};
    return fi_allreduce(team.net[i].ep, operands, i == 0 ? 4 : 1, nullptr, results[i], nullptr,
                        team.at(i), FI_INT64, FI_SUM, 0, nullptr);
  });
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(done[i].err, FI_EINVAL);
    EXPECT_EQ(done[i].prov_errno, FI_CXI_ERRNO_RED_OP_MISMATCH);
    EXPECT_EQ(results[i][1], 7);
  }
}

// FI_MORE adds in the process; FI_CXI_PRE_REDUCED hands on what it has.
TEST(CxiCollective, SumsAreBegunInTheProcess) {
  Team team(3);
  std::vector<cxip_coll_accumulator> sums(3);
  for (auto &sum : sums) std::memset(&sum, 0, sizeof sum);
  for (size_t i = 0; i < 3; ++i)
    for (int k = 0; k < 100; ++k) {
      const double value = std::ldexp(1.0 + k, int(i * 20) - k);
      EXPECT_EQ(fi_allreduce(team.net[i].ep, &value, 1, nullptr, &sums[i], nullptr, team.at(i),
                             FI_DOUBLE, fi_op(FI_CXI_REPSUM), FI_MORE, nullptr),
                0);
    }
  EXPECT_FALSE(poll(team.net[0].tx_cq)) << "it makes no completion";
  const double one = 1;
  EXPECT_EQ(fi_allreduce(team.net[0].ep, &one, 1, nullptr, &sums[0], nullptr, team.at(0), FI_DOUBLE,
                         FI_MIN, FI_MORE, nullptr),
            -FI_EINVAL)
      << "another operation";
  std::vector<double> results(3);
  team.all([&](size_t i) {
    return fi_allreduce(team.net[i].ep, &sums[i], 1, nullptr, &results[i], nullptr, team.at(i),
                        FI_DOUBLE, fi_op(FI_CXI_REPSUM), FI_CXI_PRE_REDUCED, nullptr);
  });
  // By one member alone, in another order.
  cxip_coll_accumulator all{};
  for (const size_t i : {2, 0, 1})
    EXPECT_EQ(fi_allreduce(team.net[0].ep, &sums[i], 1, nullptr, &all, nullptr, team.at(0),
                           FI_DOUBLE, fi_op(FI_CXI_REPSUM), FI_MORE | FI_CXI_PRE_REDUCED, nullptr),
              0);
  Team alone(1);
  double expected = 0;
  must(fi_allreduce(alone.net[0].ep, &all, 1, nullptr, &expected, nullptr, alone.at(0), FI_DOUBLE,
                    fi_op(FI_CXI_REPSUM), FI_CXI_PRE_REDUCED, nullptr));
  EXPECT_EQ(alone.net.wait(alone.net[0].tx_cq).err, 0);
  for (const double result : results) EXPECT_EQ(result, expected);
  const uint64_t garbage[8] = {1, 2, 3};
  EXPECT_EQ(fi_allreduce(team.net[0].ep, garbage, 1, nullptr, &expected, nullptr, team.at(0),
                         FI_DOUBLE, FI_SUM, FI_CXI_PRE_REDUCED, nullptr),
            -FI_EINVAL);
}

TEST(CxiCollective, CountersCount) {
  std::vector<fid_cntr *> counters;
  Net net(2, collective_options(), [&](Node &node) { counters.push_back(node.count(FI_WRITE)); });
  std::vector<Handle<fid_mc>> groups(2);
  for (size_t i = 0; i < 2; ++i) {
    const auto set = make_set(net[i].av, {net.at(i, 0), net.at(i, 1)});
    must(fi_join_collective(net[i].ep, FI_ADDR_NOTAVAIL, set, 0, groups[i].out(), nullptr));
  }
  for (size_t i = 0; i < 2; ++i)
    ASSERT_TRUE(net.until([&] { return poll_join(net[i].eq).has_value(); }));
  for (size_t i = 0; i < 2; ++i) must(fi_barrier(net[i].ep, fi_mc_addr(groups[i]), nullptr));
  for (size_t i = 0; i < 2; ++i) net.wait_count(counters[i], 1);
}

// ---- groups ----

TEST(CxiCollective, SeveralGroupsOverTheSameMembers) {
  Team team(4);
  std::vector<Handle<fid_mc>> second(4), third(4);
  for (size_t i = 0; i < 4; ++i) {
    second[i] = team.join(i);
    third[i] = team.join(i);
  }
  for (size_t i = 0; i < 4; ++i) {
    const Joined a = team.wait_joined(i), b = team.wait_joined(i);
    EXPECT_EQ(a.event, uint32_t(FI_JOIN_COMPLETE));
    EXPECT_EQ(a.context, &team);
    EXPECT_NE(a.fid, b.fid);
  }
  // An operation of each, begun in another order by each member.
  int64_t results[3][4];
  for (size_t i = 0; i < 4; ++i)
    for (size_t k = 0; k < 3; ++k) {
      const size_t g = (i + k) % 3;
      const fid_mc *const group = g == 0 ? team.groups[i] : g == 1 ? second[i] : third[i];
      const auto value = int64_t(g + 1);
      must(fi_allreduce(team.net[i].ep, &value, 1, nullptr, &results[g][i], nullptr, group->fi_addr,
                        FI_INT64, FI_SUM, 0, nullptr));
    }
  for (size_t i = 0; i < 4; ++i)
    for (int k = 0; k < 3; ++k) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, 0);
  for (size_t g = 0; g < 3; ++g)
    for (const int64_t result : results[g]) EXPECT_EQ(result, int64_t(4 * (g + 1)));
}

TEST(CxiCollective, JoiningIsRefused) {
  Net net(2, collective_options());
  const auto join = [&](const Handle<fid_av_set> &set, fi_addr_t address = FI_ADDR_NOTAVAIL,
                        uint64_t flags = 0) {
    fid_mc *group = nullptr;
    const int rc = fi_join_collective(net[0].ep, address, set, flags, &group, nullptr);
    if (group != nullptr) {
      EXPECT_EQ(fi_close(&group->fid), 0);
    }
    return rc;
  };
  const std::vector<fi_addr_t> both = {net.at(0, 0), net.at(0, 1)};
  EXPECT_EQ(join(make_set(net[0].av, {})), -FI_EINVAL) << "nobody";
  EXPECT_EQ(join(make_set(net[0].av, {both[1]})), -FI_EINVAL) << "it is no member itself";
  EXPECT_EQ(join(make_set(net[1].av, {net.at(1, 0)})), -FI_EINVAL) << "another vector";
  EXPECT_EQ(join(make_set(net[0].av, both), 7), -FI_EINVAL) << "coll_addr";
  EXPECT_EQ(join(make_set(net[0].av, both), FI_ADDR_NOTAVAIL, FI_SEND), -FI_EBADFLAGS);
  EXPECT_EQ(join(make_set(net[0].av, both, nullptr, FI_GATHER_SET)), -FI_EOPNOTSUPP);
  EXPECT_EQ(join(make_set(net[0].av, both, nullptr, FI_BARRIER_SET)), 0);
  cxip_comm_key key{};
  key.keytype = COMM_KEY_MULTICAST;
  EXPECT_EQ(join(make_set(net[0].av, both, &key)), -FI_EOPNOTSUPP) << "no fabric manager";
  key.keytype = COMM_KEY_MAX;
  EXPECT_EQ(join(make_set(net[0].av, both, &key)), -FI_EINVAL);
  key.keytype = COMM_KEY_UNICAST;
  key.ucast.hwroot_idx = 2;
  EXPECT_EQ(join(make_set(net[0].av, both, &key)), -FI_EINVAL) << "no such root";
  fid_mc *group = nullptr;
  EXPECT_EQ(fi_join_collective(net[0].ep, FI_ADDR_NOTAVAIL, nullptr, 0, &group, nullptr),
            -FI_EINVAL);
  Node without((Options()));
  const auto own = make_set(without.av, {without.insert(without.name())});
  EXPECT_EQ(fi_join_collective(without.ep, FI_ADDR_NOTAVAIL, own, 0, &group, nullptr),
            -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_barrier(without.ep, 0, nullptr), -FI_EOPNOTSUPP);
}

TEST(CxiCollective, OperationsAreRefused) {
  Team team(2);
  fid_ep *const ep = team.net[0].ep;
  const fi_addr_t at = team.at(0);
  int64_t data[8] = {}, result[8];
  const auto allreduce = [&](size_t count, int op, enum fi_datatype datatype, uint64_t flags = 0,
                             fi_addr_t group = FI_ADDR_UNSPEC) {
    return fi_allreduce(ep, data, count, nullptr, result, nullptr,
                        group == FI_ADDR_UNSPEC ? at : group, datatype, fi_op(op), flags, nullptr);
  };
  EXPECT_EQ(allreduce(5, FI_SUM, FI_INT64), -FI_EMSGSIZE);
  EXPECT_EQ(allreduce(2, FI_CXI_REPSUM, FI_DOUBLE), -FI_EMSGSIZE);
  EXPECT_EQ(allreduce(SIZE_MAX / 8, FI_SUM, FI_INT64), -FI_EMSGSIZE);
  EXPECT_EQ(allreduce(0, FI_SUM, FI_INT64), -FI_EINVAL);
  EXPECT_EQ(allreduce(1, FI_PROD, FI_INT64), -FI_EOPNOTSUPP);
  EXPECT_EQ(allreduce(1, FI_SUM, FI_INT64, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
  EXPECT_EQ(allreduce(1, FI_SUM, FI_INT64, 0, 0), -FI_EINVAL);
  EXPECT_EQ(allreduce(1, FI_SUM, FI_INT64, 0, at + 1), -FI_EINVAL);
  EXPECT_EQ(fi_allreduce(ep, data, 1, nullptr, nullptr, nullptr, at, FI_INT64, FI_SUM, 0, nullptr),
            -FI_EINVAL);
  EXPECT_EQ(fi_broadcast(ep, data, 1, nullptr, at, 99, FI_INT64, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_broadcast(ep, data, 5, nullptr, at, team.net.at(0, 0), FI_INT64, 0, nullptr),
            -FI_EMSGSIZE);
  EXPECT_EQ(fi_barrier2(ep, at, FI_MORE, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_alltoall(ep, data, 1, nullptr, result, nullptr, at, FI_INT64, 0, nullptr),
            -FI_ENOSYS);
  fid_ep *alias = nullptr;
  ASSERT_EQ(fi_ep_alias(ep, &alias, FI_TRANSMIT), 0);
  EXPECT_EQ(fi_barrier2(alias, at, FI_MORE, nullptr), -FI_EBADFLAGS) << "as its endpoint";
  EXPECT_EQ(fi_close(&alias->fid), 0);
  EXPECT_EQ(fi_close(&ep->fid), -FI_EBUSY) << "it has a group";
}

// For tests of applications: one endpoint is all members (COMM_KEY_RANK).
TEST(CxiCollective, OneEndpointIsAllMembers) {
  constexpr uint32_t kMembers = 5;
  Net net(1, collective_options());
  const std::vector<fi_addr_t> members(kMembers, net[0].insert(net[0].name()));
  std::vector<Handle<fid_mc>> groups(kMembers);
  for (uint32_t i = 0; i < kMembers; ++i) {
    cxip_comm_key key{};
    key.keytype = COMM_KEY_RANK;
    key.rank.hwroot_idx = 3;
    key.rank.rank = i;
    const auto set = make_set(net[0].av, members, &key);
    must(fi_join_collective(net[0].ep, FI_ADDR_NOTAVAIL, set, 0, groups[i].out(), nullptr));
    if (i + 1 < kMembers) {
      EXPECT_EQ(fi_barrier(net[0].ep, fi_mc_addr(groups[i]), nullptr), -FI_EAGAIN);
    }
  }
  for (uint32_t i = 0; i < kMembers; ++i)
    ASSERT_TRUE(net.until([&] { return poll_join(net[0].eq).has_value(); }));
  int64_t results[kMembers];
  for (uint32_t i = 0; i < kMembers; ++i) {
    const int64_t value = i;
    must(fi_allreduce(net[0].ep, &value, 1, nullptr, &results[i], nullptr, fi_mc_addr(groups[i]),
                      FI_INT64, FI_SUM, 0, nullptr));
  }
  for (uint32_t i = 0; i < kMembers; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  for (const int64_t result : results) EXPECT_EQ(result, 10);
}

TEST(CxiCollective, WhoClosesItsGroupCancels) {
  Team team(3);
  for (const size_t i : {size_t{0}, size_t{1}}) must(fi_barrier(team.net[i].ep, team.at(i), &team));
  team.net.settle();
  team.groups[0].reset();
  EXPECT_EQ(team.net.wait(team.net[0].tx_cq).err, FI_ECANCELED);
  const Completion other = team.net.wait(team.net[1].tx_cq);
  EXPECT_EQ(other.err, FI_ENOTCONN);
  EXPECT_EQ(other.prov_errno, FI_CXI_ERRNO_RED_MC_FAILURE);
  EXPECT_EQ(team.net.attempt([&] { return fi_barrier(team.net[1].ep, team.at(1), nullptr); }),
            -FI_ENOTCONN);
}

TEST(CxiCollective, WhoClosesItsGroupWhileOthersJoinIsMissed) {
  Net net(2, collective_options());
  std::vector<Handle<fid_mc>> groups(2);
  const auto join = [&](size_t i) {
    const auto set = make_set(net[i].av, {net.at(i, 0), net.at(i, 1)});
    must(fi_join_collective(net[i].ep, FI_ADDR_NOTAVAIL, set, 0, groups[i].out(), nullptr));
  };
  join(1);
  net.settle();
  groups[1].reset();
  net.settle();
  join(0);
  EXPECT_FALSE(net.until([&] { return poll_join(net[0].eq).has_value(); }, milliseconds(100)))
      << "the other one does not join any more";
  join(1);
  for (size_t i = 0; i < 2; ++i) {
    std::optional<Joined> joined;
    ASSERT_TRUE(net.until([&] { return (joined = poll_join(net[i].eq)).has_value(); }));
    EXPECT_EQ(joined->err, 0);
  }
}

// ---- several processes ----

// A member in a process of its own; it does barriers until it is told to end.
void be_member(int socket, size_t members) {
  Net net(1, collective_options());
  tell_text(socket, net[0].name());
  std::vector<fi_addr_t> addresses;
  for (size_t i = 0; i < members; ++i) addresses.push_back(net[0].insert(hear_text(socket)));
  Handle<fid_mc> group;
  must(fi_join_collective(net[0].ep, FI_ADDR_NOTAVAIL, make_set(net[0].av, addresses), 0,
                          group.out(), nullptr));
  EXPECT_TRUE(net.until([&] { return poll_join(net[0].eq).has_value(); }));
  while (const uint64_t value = hear(socket)) {
    uint64_t result = 0;
    must(fi_allreduce(net[0].ep, &value, 1, nullptr, &result, nullptr, fi_mc_addr(group), FI_UINT64,
                      FI_BOR, 0, nullptr));
    const Completion done = net.wait(net[0].tx_cq);
    tell(socket, done.err == 0 ? result : uint64_t(done.err) << 32);
  }
}

TEST(CxiCollectiveProcesses, FourReduceAndOneDies) {
  if (!in_fresh_process()) return;
  constexpr size_t kMembers = 4;
  std::vector<std::unique_ptr<Child>> children;
  for (size_t i = 0; i < kMembers; ++i)
    children.push_back(std::make_unique<Child>([&](int socket) { be_member(socket, kMembers); }));
  std::vector<std::string> names;
  for (const auto &child : children) names.push_back(hear_text(child->socket()));
  for (const auto &child : children)
    for (const std::string &name : names) tell_text(child->socket(), name);
  for (int round = 1; round <= 50; ++round) {
    for (size_t i = 0; i < kMembers; ++i) tell(children[i]->socket(), uint64_t{1} << i);
    for (const auto &child : children) ASSERT_EQ(hear(child->socket()), 15u);
  }
  // The root waits for two, one of which is killed; nobody waits for ever.
  for (const size_t i : {0, 1, 3}) tell(children[i]->socket(), 1);
  children[2]->kill();
  for (const size_t i : {0, 1, 3}) {
    EXPECT_EQ(hear(children[i]->socket()), uint64_t{FI_ENOTCONN} << 32);
    tell(children[i]->socket(), 0);
    children[i]->join();
  }
}

TEST(CxiCollectiveProcesses, AMemberThatIsGoneIsMissedWhileJoining) {
  if (!in_fresh_process()) return;
  Child child([](int socket) {
    Node node(collective_options());
    tell_text(socket, node.name());
    hear(socket);
  });
  Net net(1, collective_options());
  const fi_addr_t gone = net[0].insert(hear_text(child.socket()));
  const auto set = make_set(net[0].av, {net[0].insert(net[0].name()), gone});
  child.kill();
  Handle<fid_mc> group;
  must(fi_join_collective(net[0].ep, FI_ADDR_NOTAVAIL, set, 0, group.out(), &group));
  std::optional<Joined> joined;
  ASSERT_TRUE(
      net.until([&] { return (joined = poll_join(net[0].eq)).has_value(); }, milliseconds(60'000)));
  EXPECT_EQ(joined->err, FI_ENOTCONN);
  EXPECT_EQ(joined->prov_errno, FI_CXI_ERRNO_JOIN_FAIL_RDMA);
  EXPECT_EQ(joined->context, &group);
  EXPECT_EQ(joined->fid, group.fid());
}

// A member that sleeps in fi_eq_sread and fi_cq_sread goes on when the others do.
TEST(CxiCollectiveProcesses, SleepersAreWoken) {
  if (!in_fresh_process({"FI_CXI_COLL_TIMEOUT_USEC=20000000"})) return;
  constexpr size_t kMembers = 3;
  constexpr int kRounds = 20;
  const auto sleep_in = [&](int socket) {
    Options options = collective_options();
    options.eq = Options::eq_attr(FI_WAIT_UNSPEC);
    options.tx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
    Net net(1, options);
    tell_text(socket, net[0].name());
    std::vector<fi_addr_t> addresses;
    for (size_t i = 0; i < kMembers; ++i) addresses.push_back(net[0].insert(hear_text(socket)));
    Handle<fid_mc> group;
    must(fi_join_collective(net[0].ep, FI_ADDR_NOTAVAIL, make_set(net[0].av, addresses), 0,
                            group.out(), nullptr));
    uint32_t event = 0;
    fi_eq_entry entry{};
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(fi_eq_sread(net[0].eq, &event, &entry, sizeof entry, 20'000, 0),
              ssize_t(sizeof entry));
    for (int i = 0; i < kRounds; ++i) {
      must(fi_barrier(net[0].ep, fi_mc_addr(group), nullptr));
      fi_cq_tagged_entry done{};
      EXPECT_EQ(fi_cq_sread(net[0].tx_cq, &done, 1, nullptr, 20'000), 1);
    }
    const auto took = std::chrono::steady_clock::now() - begin;
    tell(socket, uint64_t(std::chrono::duration_cast<milliseconds>(took).count()));
    hear(socket);
  };
  std::vector<std::unique_ptr<Child>> children;
  for (size_t i = 0; i < kMembers; ++i) children.push_back(std::make_unique<Child>(sleep_in));
  std::vector<std::string> names;
  for (const auto &child : children) names.push_back(hear_text(child->socket()));
  for (const auto &child : children)
    for (const std::string &name : names) tell_text(child->socket(), name);
  for (const auto &child : children)
    EXPECT_LT(hear(child->socket()), 15'000u) << "a timer has woken them";
  for (const auto &child : children) tell(child->socket(), 1);
  for (const auto &child : children) child->join();
}

// The limit that a user may set: all are there, but one does not call.
TEST(CxiCollectiveProcesses, ALimitEndsWaiting) {
  if (!in_fresh_process({"FI_CXI_COLL_LIMIT_USEC=100000"})) return;
  Team team(2);
  must(fi_barrier(team.net[0].ep, team.at(0), nullptr));
  EXPECT_EQ(team.net.wait(team.net[0].tx_cq).err, FI_ETIMEDOUT);
}

}  // namespace
}  // namespace weft::conformance::rdm
