// SPDX-License-Identifier: BSD-2-Clause
// The layer over another provider: what it says of tags, members that are gone, and strangers.
#include <sched.h>
#include <weft/sdk/addresses/address.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "plugins/coll/group/groups.h"
#include "plugins/coll/test_team.h"

namespace weft::conformance::rdm {
namespace {

TEST(Coll, ItsBitOfTheTagsIsNotTheApplications) {
  const Info info = find_info(options_of_coll());
  EXPECT_EQ(info->ep_attr->mem_tag_format & (UINT64_C(1) << 63), 0u);
  EXPECT_NE(info->ep_attr->mem_tag_format & (UINT64_C(1) << 62), 0u);
  Net net(2, options_of_coll());
  char byte = 1;
  EXPECT_EQ(fi_tsend(net[0].ep, &byte, 1, nullptr, net.at(0, 1), UINT64_C(1) << 63, nullptr),
            -FI_EINVAL);
  EXPECT_EQ(fi_trecv(net[0].ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, UINT64_C(1) << 63, 0, nullptr),
            -FI_EINVAL);
  net.exchange(0, 1, 100, (UINT64_C(1) << 63) - 1);
}

TEST(Coll, AMemberThatHasLeftEndsWhatOthersStart) {
  CollTeam team(4);
  team.groups[2].reset();
  for (const size_t i : {0u, 1u, 3u}) must(fi_barrier(team.net[i].ep, team.at(i), &team));
  for (const size_t i : {0u, 1u, 3u}) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, FI_ENOTCONN);
  EXPECT_EQ(fi_barrier(team.net[0].ep, team.at(0), &team), -FI_ENOTCONN);
}

TEST(Coll, AnEndpointThatIsGoneEndsWhatOthersStart) {
  CollTeam team(4);
  team.groups[2].reset();
  team.net[2].ep.reset();
  std::vector<uint64_t> in(1000, 1), out(1000);
  for (const size_t i : {0u, 1u, 3u})
    must(fi_allreduce(team.net[i].ep, in.data(), in.size(), nullptr, out.data(), nullptr,
                      team.at(i), FI_UINT64, FI_SUM, 0, &team));
  for (const size_t i : {0u, 1u, 3u}) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, FI_ENOTCONN);
}

TEST(Coll, AGroupOfAGroupHasTheSameMembers) {
  CollTeam team(3);
  std::vector<Handle<fid_mc>> again(3);
  for (size_t i = 0; i < 3; ++i) {
    fi_collective_addr address{};
    address.coll_addr = team.at(i);
    must(fi_join(team.net[i].ep, &address, FI_COLLECTIVE, again[i].out(), nullptr));
  }
  for (size_t i = 0; i < 3; ++i) {
    fi_eq_entry entry{};
    uint32_t event = 0;
    EXPECT_TRUE(team.net.until(
        [&] { return fi_eq_read(team.net[i].eq, &event, &entry, sizeof entry, 0) > 0; }));
  }
  for (size_t i = 0; i < 3; ++i) must(fi_barrier(team.net[i].ep, fi_mc_addr(again[i]), &team));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, 0);
}

// Counters, remote data and groups use the same queue beneath.
TEST(Coll, AccessesAndGroupsGoOnTogether) {
  Options options = options_of_coll();
  options.caps |= FI_RMA | FI_RMA_EVENT;
  CollTeam team(2, options);
  std::vector<uint64_t> window(1), out{7}, sums(2), ones{1};
  fid_mr *const region = team.net[1].expose(window.data(), sizeof window[0], FI_REMOTE_WRITE, 1);
  for (size_t i = 0; i < 2; ++i)
    must(fi_allreduce(team.net[i].ep, ones.data(), 1, nullptr, &sums[i], nullptr, team.at(i),
                      FI_UINT64, FI_SUM, 0, &sums[i]));
  must(fi_writedata(team.net[0].ep, out.data(), sizeof out[0], nullptr, 99, team.net.at(0, 1),
                    team.net[1].base_of(window.data()), fi_mr_key(region), &out));
  for (size_t i = 0; i < 2; ++i) {
    const Completion done = team.net.wait(team.net[0].tx_cq);
    EXPECT_EQ(done.err, 0);
    EXPECT_TRUE(done.context == &out || done.context == &sums[0]);
  }
  EXPECT_EQ(team.net.wait(team.net[1].tx_cq).context, &sums[1]);
  const Completion written = team.net.wait(team.net[1].receive_cq());
  EXPECT_EQ(written.data, 99u);
  EXPECT_TRUE(written.flags & FI_REMOTE_WRITE);
  EXPECT_EQ(window, out);
  EXPECT_EQ(sums, std::vector<uint64_t>(2, 2));
}

// Two endpoints with common receives are in the same groups, so they get messages of the same peers
// at the same time.
TEST(Coll, EndpointsThatShareReceivesAreInOneGroup) {
  if (!ask([](fi_info &hints) { hints.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; }))
    GTEST_SKIP() << stack() << " has no shared receive contexts";
  CollTeam team(5, options_of_coll(), 3);
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<std::vector<uint64_t>> in(5), out(5);
    for (size_t i = 0; i < 5; ++i) {
      in[i] = std::vector<uint64_t>(round * round * 10 + 1, 1000 * i + round);
      out[i].resize(in[i].size());
      must(fi_allreduce(team.net[i].ep, in[i].data(), in[i].size(), nullptr, out[i].data(), nullptr,
                        team.at(i), FI_UINT64, FI_SUM, 0, &team));
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, 0);
    for (size_t i = 0; i < 5; ++i)
      EXPECT_EQ(out[i], std::vector<uint64_t>(in[i].size(), 10000 + 5 * round)) << i;
  }
  // Messages of the application beside them, and members that leave.
  std::vector<uint8_t> in(100), out(100, 7);
  must(fi_trecv(team.net[0].srx, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, &in));
  must(fi_tsend(team.net[4].ep, out.data(), out.size(), nullptr, team.net.at(4, 1), 5, &out));
  EXPECT_EQ(team.net.wait(team.net[1].rx_cq).context, &in);
  EXPECT_EQ(in, out);
  EXPECT_EQ(team.net.wait(team.net[4].tx_cq).context, &out);
  team.groups[1].reset();
  for (const size_t i : {0u, 2u, 3u, 4u}) must(fi_barrier(team.net[i].ep, team.at(i), &team));
  for (const size_t i : {0u, 2u, 3u, 4u})
    EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, FI_ENOTCONN);
}

// Two leaders add up even and odd ranks, which loses nothing here; in other orders the sum is 4.
void expect_two_leaders(CollTeam &team) {
  const double given[] = {1e16, 1, -1e16, 3.5};
  std::vector<std::vector<double>> in(4), out(4, std::vector<double>(4096));
  for (size_t i = 0; i < 4; ++i) {
    in[i].assign(4096, given[i]);
    must(fi_allreduce(team.net[i].ep, in[i].data(), 4096, nullptr, out[i].data(), nullptr,
                      team.at(i), FI_DOUBLE, FI_SUM, 0, &team));
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, 0);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(out[i], std::vector<double>(4096, 4.5)) << i;
}

// The thread may use the one that it runs on, and no other.
class OneCpu {
 public:
  OneCpu() {
    must(sched_getaffinity(0, sizeof before_, &before_));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    must(sched_setaffinity(0, sizeof one, &one));
  }
  ~OneCpu() { must(sched_setaffinity(0, sizeof before_, &before_)); }

 private:
  cpu_set_t before_;
};

TEST(Coll, ACrowdTakesTwoLeadersForLongData) {
  const OneCpu one;
  CollTeam team(4);
  expect_two_leaders(team);
}

TEST(Coll, MembersWithOtherAddressesOfTheHostAreOnOneHost) {
  const OneCpu one;
  Options another = options_of_coll();
  another.node = "127.0.0.2";
  CollTeam team({options_of_coll(), another, another, options_of_coll()});
  ASSERT_NE(team.net[0].name().substr(4, 4), team.net[1].name().substr(4, 4)) << "sin_addr";
  expect_two_leaders(team);
}

// The provider beneath, whose applications may send what they like to a group.
class Beneath {
 public:
  Beneath() : stack_(stack()) {
    setenv("WEFT_TEST_STACK", stack_.substr(0, stack_.rfind(';')).c_str(), 1);
  }
  ~Beneath() { setenv("WEFT_TEST_STACK", stack_.c_str(), 1); }

 private:
  const std::string stack_;
};

// An application that is in no group, at the end of `net` or known to nobody.
class Stranger {
 public:
  explicit Stranger(Net &net, bool is_known) : net_(net) {
    const Beneath beneath;
    if (is_known)
      node_ = &net.add(Options());
    else
      node_ = (own_ = std::make_unique<Node>(Options())).get();
    for (size_t i = 0; i < net.size(); ++i) members_.push_back(node_->insert(net[i].name()));
  }
  // To the first application: that the second one is gone, and all else that ends a group. `to`: of
  // the group there; 0: it has not joined.
  void lie(uint64_t membership, uint32_t to) {
    for (const coll::PacketType type : {coll::PacketType::kGone, coll::PacketType::kAbort}) {
      const coll::Packet::Bytes packet = coll::Packet{.type = type,
                                                      .why = coll::Failure::kGone,
                                                      .from_rank = 1,
                                                      .culprit = 1,
                                                      .from = 1,
                                                      .to = to,
                                                      .membership = membership}
                                             .bytes();
      send([&] {
        return fi_tinject(node_->ep, packet.data(), packet.size(), members_[0], coll::kPacketTag);
      });
    }
  }
  // What it has sent before has arrived.
  void wait_until_heard() {
    char byte = 0;
    must(fi_recv(net_[0].ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, &byte));
    send([&] { return fi_inject(node_->ep, "x", 1, members_[0]); });
    std::optional<Completion> done;
    EXPECT_TRUE(until([&] { return (done = poll(net_[0].rx_cq)).has_value(); }));
  }

 private:
  bool until(const std::function<bool()> &holds) {
    return net_.until([&] {
      if (own_ != nullptr) own_->progress();
      return holds();
    });
  }
  void send(const std::function<ssize_t()> &call) {
    ssize_t rc = -FI_EAGAIN;
    EXPECT_TRUE(until([&] { return (rc = call()) != -FI_EAGAIN; }));
    must(int(rc));
  }

  Net &net_;
  std::unique_ptr<Node> own_;
  Node *node_ = nullptr;
  std::vector<fi_addr_t> members_;
};

// As the members know themselves.
uint64_t membership_of(Net &net, size_t members) {
  coll::Groups::Membership membership;
  for (size_t i = 0; i < members; ++i) {
    const std::string name = net[i].name();
    const auto address = sdk::read_address(net[i].info->addr_format, name.data(), name.size());
    const std::string text = sdk::format_address_string(*address);
    membership.add(text.data(), text.size());
  }
  return membership.value();
}

void expect_sum(CollTeam &team) {
  const size_t members = team.groups.size();
  const std::vector<uint64_t> in(1000, 7);
  std::vector<std::vector<uint64_t>> out(members, std::vector<uint64_t>(in.size()));
  for (size_t i = 0; i < members; ++i)
    must(fi_allreduce(team.net[i].ep, in.data(), in.size(), nullptr, out[i].data(), nullptr,
                      team.at(i), FI_UINT64, FI_SUM, 0, &team));
  for (size_t i = 0; i < members; ++i) {
    EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, 0);
    EXPECT_EQ(out[i], std::vector<uint64_t>(in.size(), 7 * members));
  }
}

TEST(Coll, StrangersEndNoGroup) {
  for (const bool is_known : {false, true}) {
    CollTeam team(3);
    const uint64_t membership = membership_of(team.net, 3);
    Stranger stranger(team.net, is_known);
    for (const uint32_t to : {0u, 1u}) stranger.lie(membership, to);
    stranger.wait_until_heard();
    expect_sum(team);
    // A group that is not there yet.
    team.groups = std::vector<Handle<fid_mc>>(2);
    stranger.lie(membership_of(team.net, 2), 0);
    stranger.wait_until_heard();
    team.join_all();
    expect_sum(team);
  }
}

// Each member of the group has a peer with two names.
TEST(Coll, AMemberThatWasInsertedTwiceIsAMember) {
  CollTeam team(3);
  for (size_t i = 0; i < 3; ++i) {
    team.groups[i].reset();
    fi_addr_t again = team.net[i].insert(team.net[2].name());
    fi_av_set_attr attr{};
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    Handle<fid_av_set> set;
    must(fi_av_set(team.net[i].av, &attr, set.out(), nullptr));
    for (const fi_addr_t member : {team.net.at(i, 0), team.net.at(i, 1), again})
      must(fi_av_set_insert(set, member));
    must(fi_join_collective(team.net[i].ep, FI_ADDR_NOTAVAIL, set, 0, team.groups[i].out(),
                            nullptr));
  }
  for (size_t i = 0; i < 3; ++i) {
    fi_eq_entry entry{};
    uint32_t event = 0;
    EXPECT_TRUE(team.net.until(
        [&] { return fi_eq_read(team.net[i].eq, &event, &entry, sizeof entry, 0) > 0; }));
  }
  team.groups[2].reset();
  for (const size_t i : {0u, 1u}) must(fi_barrier(team.net[i].ep, team.at(i), &team));
  for (const size_t i : {0u, 1u}) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, FI_ENOTCONN);
}

// What a member says counts, though the application has removed it from the address vector.
TEST(Coll, AMemberThatWasRemovedIsAMember) {
  CollTeam team(3);
  for (const size_t i : {0u, 1u}) {
    fi_addr_t removed = team.net.at(i, 2);
    must(fi_av_remove(team.net[i].av, &removed, 1, 0));
  }
  expect_sum(team);
  team.groups[2].reset();
  for (const size_t i : {0u, 1u}) must(fi_barrier(team.net[i].ep, team.at(i), &team));
  for (const size_t i : {0u, 1u}) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, FI_ENOTCONN);
}

TEST(Coll, AMemberThatIsInsertedAgainHasItsSource) {
  Options options = options_of_coll();
  options.caps |= FI_SOURCE;
  CollTeam team(2, options);
  fi_addr_t member = team.net.at(0, 1);
  must(fi_av_remove(team.net[0].av, &member, 1, 0));
  member = team.net[0].insert(team.net[1].name());
  uint8_t in = 0, out = 7;
  must(fi_recv(team.net[0].ep, &in, 1, nullptr, member, &in));
  must(fi_send(team.net[1].ep, &out, 1, nullptr, team.net.at(1, 0), &out));
  const Completion done = team.net.wait(team.net[0].rx_cq);
  EXPECT_EQ(done.context, &in);
  EXPECT_EQ(done.source, member);
}

// It keeps a message in flight, and so the group. The endpoint can be closed.
TEST(Coll, AMemberThatDoesNotReadKeepsNoEndpointOpen) {
  std::vector<uint8_t> data(64 << 20, 1);
  CollTeam team(2);
  team.net.set_asleep(1, true);
  must(fi_broadcast(team.net[0].ep, data.data(), data.size(), nullptr, team.at(0),
                    team.net.at(0, 0), FI_UINT8, 0, &team));
  for (int i = 0; i < 100; ++i) team.net.progress();
  fid_mc *const group = team.groups[0].release();
  EXPECT_EQ(fi_close(team.net[0].ep.fid()), -FI_EBUSY) << "the group was not closed";
  EXPECT_EQ(fi_close(&group->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&team.net[0].ep.release()->fid), 0);
}

TEST(Coll, AnEndpointWithGroupsIsBusy) {
  CollTeam team(2);
  EXPECT_EQ(fi_close(team.net[0].ep.fid()), -FI_EBUSY);
}

}  // namespace
}  // namespace weft::conformance::rdm
