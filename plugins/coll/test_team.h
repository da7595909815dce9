// SPDX-License-Identifier: BSD-2-Clause
// What tests of the layer share: endpoints that are all in one group.
//
// Example:
//     TEST(CollExample, ABarrier) {
//       CollTeam team(4);
//       for (size_t i = 0; i < 4; ++i) must(fi_barrier(team.net[i].ep, team.at(i), &team));
//       for (size_t i = 0; i < 4; ++i) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, 0);
//     }
//
// Not for groups without endpoints: group/test_network.h.
#ifndef WEFT_PLUGINS_COLL_TEST_TEAM_H
#define WEFT_PLUGINS_COLL_TEST_TEAM_H

#include <rdma/fi_collective.h>

#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {

inline Options options_of_coll() {
  Options options;
  options.caps |= FI_COLLECTIVE;
  options.event_queue = true;
  return options;
}

struct CollTeam {
  // The first ones share their receives (fi_srx_context) and their domain.
  explicit CollTeam(size_t members, const Options &options = options_of_coll(), size_t sharing = 0)
      : net(0), groups(members) {
    Options shared = options;
    shared.shared_receive = sharing != 0;
    for (size_t i = 0; i < members; ++i) {
      const bool is_another = i != 0 && i < sharing;
      net.add(
          i < sharing ? shared : options, is_another ? open_events : [](Node &) {},
          is_another ? &net[0] : nullptr);
    }
    join_all();
  }
  explicit CollTeam(const std::vector<Options> &members) : net(0), groups(members.size()) {
    for (const Options &options : members) net.add(options);
    join_all();
  }
  void join_all() {
    const size_t members = groups.size();
    for (size_t i = 0; i < members; ++i) join(i, members);
    for (size_t i = 0; i < members; ++i) {
      fi_eq_entry entry{};
      uint32_t event = 0;
      EXPECT_TRUE(
          net.until([&] { return fi_eq_read(net[i].eq, &event, &entry, sizeof entry, 0) > 0; }));
      EXPECT_EQ(event, uint32_t(FI_JOIN_COMPLETE));
    }
  }
  static void open_events(Node &node) {
    fi_eq_attr attr{};
    must(fi_eq_open(node.fabric, &attr, node.eq.out(), nullptr));
    must(fi_ep_bind(node.ep, node.eq.fid(), 0));
  }
  void join(size_t i, size_t members) {
    fi_av_set_attr attr{};
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    Handle<fid_av_set> set;
    must(fi_av_set(net[i].av, &attr, set.out(), nullptr));
    for (size_t k = 0; k < members; ++k) must(fi_av_set_insert(set, net.at(i, k)));
    must(fi_join_collective(net[i].ep, FI_ADDR_NOTAVAIL, set, 0, groups[i].out(), nullptr));
  }
  fi_addr_t at(size_t i) { return fi_mc_addr(groups[i]); }

  Net net;
  std::vector<Handle<fid_mc>> groups;
};

}  // namespace weft::conformance::rdm

#endif
