// SPDX-License-Identifier: BSD-2-Clause
// For tests: applications that have joined a group for collective operations, in this process.
//
// Example:
//    inline void barrier(Team &team) {
//      team.all([&](size_t i) { return fi_barrier(team.net[i].ep, team.at(i), nullptr); });
//    }
//
// Not for members in processes of their own.
#ifndef WEFT_PLUGINS_CXI_TEST_TEAM_H
#define WEFT_PLUGINS_CXI_TEST_TEAM_H

#include <rdma/fi_collective.h>
#include <rdma/fi_cxi_ext.h>

#include <functional>
#include <optional>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {

inline Options collective_options() {
  Options options;
  options.caps |= FI_COLLECTIVE;
  options.event_queue = true;
  return options;
}

// A set of addresses, in this order.
inline Handle<fid_av_set> make_set(fid_av *av, const std::vector<fi_addr_t> &members,
                                   const cxip_comm_key *key = nullptr, uint64_t flags = 0) {
  fi_av_set_attr attr{};
  attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
  attr.flags = flags;
  cxip_comm_key own{};
  if (key != nullptr) {
    own = *key;
    attr.comm_key = reinterpret_cast<uint8_t *>(&own);
    attr.comm_key_size = sizeof own;
  }
  Handle<fid_av_set> set;
  must(fi_av_set(av, &attr, set.out(), nullptr));
  for (const fi_addr_t member : members) must(fi_av_set_insert(set, member));
  return set;
}

// What joining has led to.
struct Joined {
  uint32_t event = 0;
  int err = 0, prov_errno = 0;
  struct fid *fid = nullptr;
  void *context = nullptr;
};
inline std::optional<Joined> poll_join(fid_eq *eq) {
  Joined joined;
  fi_eq_entry entry{};
  const ssize_t rc = fi_eq_read(eq, &joined.event, &entry, sizeof entry, 0);
  if (rc == -FI_EAGAIN) return std::nullopt;
  if (rc == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    must(fi_eq_readerr(eq, &error, 0));
    return Joined{0, error.err, error.prov_errno, error.fid, error.context};
  }
  must(rc);
  joined.fid = entry.fid;
  joined.context = entry.context;
  return joined;
}

// Applications that have joined one group: member i is application i, unless told otherwise.
class Team {
 public:
  explicit Team(size_t members, const cxip_comm_key *key = nullptr)
      : net(members, collective_options()), groups(members) {
    for (size_t i = 0; i < members; ++i) groups[i] = join(i, key);
    for (size_t i = 0; i < members; ++i) EXPECT_EQ(wait_joined(i).err, 0);
  }
  std::vector<fi_addr_t> addresses(size_t of) {
    std::vector<fi_addr_t> all;
    for (size_t i = 0; i < net.size(); ++i) all.push_back(net.at(of, i));
    return all;
  }
  Handle<fid_mc> join(size_t i, const cxip_comm_key *key = nullptr) {
    const auto set = make_set(net[i].av, addresses(i), key);
    Handle<fid_mc> group;
    must(fi_join_collective(net[i].ep, FI_ADDR_NOTAVAIL, set, 0, group.out(), this));
    return group;
  }
  Joined wait_joined(size_t i) {
    std::optional<Joined> joined;
    EXPECT_TRUE(net.until([&] { return (joined = poll_join(net[i].eq)).has_value(); }));
    return joined.value_or(Joined{});
  }
  fi_addr_t at(size_t i) { return fi_mc_addr(groups[i]); }
  // All members do it; the completions.
  std::vector<Completion> all(const std::function<ssize_t(size_t)> &call) {
    for (size_t i = 0; i < net.size(); ++i) net.post([&] { return call(i); });
    std::vector<Completion> done;
    for (size_t i = 0; i < net.size(); ++i) done.push_back(net.wait(net[i].tx_cq));
    return done;
  }
  template <class T>
  std::vector<std::vector<T>> allreduce(const std::vector<std::vector<T>> &operands,
                                        enum fi_datatype datatype, int op, int err = 0) {
    std::vector<std::vector<T>> results(net.size(), std::vector<T>(operands[0].size()));
    const auto done = all([&](size_t i) {
      return fi_allreduce(net[i].ep, operands[i].data(), operands[i].size(), nullptr,
                          results[i].data(), nullptr, at(i), datatype, fi_op(op), 0, &results[i]);
    });
    for (size_t i = 0; i < net.size(); ++i) {
      EXPECT_EQ(done[i].err, err);
      EXPECT_EQ(done[i].context, &results[i]);
      EXPECT_EQ(done[i].flags, uint64_t(FI_COLLECTIVE));
    }
    return results;
  }

  Net net;
  std::vector<Handle<fid_mc>> groups;
};

}  // namespace weft::conformance::rdm

#endif
