// SPDX-License-Identifier: BSD-2-Clause
// A stateful fuzz target for groups. Honest endpoints join groups, start operations and leave, in
// simulated time (test_network.h). Among them are a liar, which is a member of some of the groups,
// and a stranger, which is a member of none. The liar's own messages are changed on their way, and
// both send packets and data of any group, in any state. The liar may die, or stop to read.
//
// For every input:
// * groups without the liar join, and their operations end well, with the right results;
// * each operation ends once, and its buffers are left alone afterwards;
// * when a member leaves a group of the liar, its receives end, and so does the group, unless the
//   liar does not read what was sent to it;
// * what is kept of the liar's and the stranger's packets is bounded, and so are the answers to
//   them.
#include <weft/sdk/transfers/atomic.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "plugins/coll/group/test_network.h"
#include "plugins/coll/schedule/test_reference.h"
#include "tests/fuzz/world.h"

namespace weft::coll {
namespace {

using sdk::kMicrosecond, sdk::kMillisecond;

constexpr uint32_t kHonest = 4, kLiar = 4, kStranger = 5, kEndpoints = 6;
constexpr size_t kMaxTeams = 16, kMaxCalls = 60, kMaxActions = 400;
constexpr size_t kHello = 28, kNumberAt = 16;

// Who may be in a group: the first three without the liar.
const std::array<std::vector<uint32_t>, 6> kMembers = {
    {{0, 1}, {0, 1, 2}, {3, 1, 2, 0}, {0, 1, kLiar}, {kLiar, 0, 1, 2}, {2, kLiar, 1, 3, 0}}};
constexpr size_t kHonestMembers = 3;

// A group, at all of its members.
struct Team {
  size_t kind = 0;  // of kMembers
  std::vector<Group *> groups;
  std::vector<uint64_t> last;  // when the member makes the last call that is planned
  bool is_closed = false;

  const std::vector<uint32_t> &members() const { return kMembers[kind]; }
  bool is_honest() const { return kind < kHonestMembers; }
};

// An operation of a team. At each member it has buffers, until it has ended there.
struct Asked {
  struct Place {
    enum { kPlanned, kRefused, kStarted, kEnded } state = kPlanned;
    uint8_t *operand = nullptr, *result = nullptr;
  };
  Team *team;
  Task task;
  std::vector<Place> places;
};

class Play {
 public:
  explicit Play(fuzz::Input &input) : input_(input), network_(input.number(2), kEndpoints) {
    network_.tamper(kLiar, [this](uint32_t, uint64_t &tag, std::vector<uint8_t> &bytes) {
      tamper(tag, bytes);
    });
  }

  void run() {
    for (size_t i = 0; i < kMaxActions && !input_.empty(); ++i) {
      act();
      reap();
      check_bounds();
    }
    finish();
  }

 private:
  using Place = Asked::Place;

  void act() {
    const uint8_t what = input_.byte();
    switch (what % 12) {
      case 0:
      case 1:
        return network_.run(input_.byte() * kMicrosecond);
      case 2:  // members ask those that they wait for
        return network_.run((what & 32) != 0 ? network_.limits().probe : 5 * kMillisecond);
      case 3:
        return join();
      case 4:
      case 5:
        return start();
      case 6:
        return leave();
      case 7:
      case 8:
        return say_packet(what);
      case 9:
        return say_data(what);
      case 10:
        return change_lie();
      default:
        return fall_silent();
    }
  }

  // ---- members ----

  uint64_t some_time() { return input_.byte() % 32 * kMicrosecond; }
  // A call of a member. Those of one member keep their order.
  template <class F>
  void plan(uint64_t &last, F call) {
    last = std::max(last + 1, network_.time().now + some_time());
    network_.time().after(last - network_.time().now, std::move(call));
  }

  void join() {
    if (teams_.size() >= kMaxTeams) return;
    Team &team = teams_.emplace_back();
    team.kind = input_.byte() % kMembers.size();
    team.groups.resize(team.members().size());
    team.last.resize(team.members().size());
    for (uint32_t rank = 0; rank < team.groups.size(); ++rank)
      plan(joins_[team.kind][rank],
           [this, &team, rank] { team.groups[rank] = network_.join(team.members(), rank); });
  }
  Team *some_team() { return teams_.empty() ? nullptr : &teams_[input_.byte() % teams_.size()]; }
  static bool has_joined(const Team &team) {
    return std::ranges::all_of(team.groups, [](const Group *one) {
      return one != nullptr && one->state() == Group::State::kJoined;
    });
  }

  void start() {
    Team *const team = some_team();
    const uint8_t what = input_.byte(), how = input_.byte();
    if (team == nullptr || team->is_closed || asked_.size() >= kMaxCalls) return;
    if (team->is_honest() && !has_joined(*team)) return;
    static constexpr uint64_t kCounts[] = {1, 2, 3, 20, 600, 3000};
    const auto size = uint32_t(team->groups.size());
    Task task{
        .coll = static_cast<fi_collective_op>(what % (FI_GATHER + 1)), .size = size, .unit = 8};
    if (task.coll != FI_BARRIER) task.count = kCounts[how / 8 % std::size(kCounts)];
    if (task.has_root()) task.root = how % size;
    const size_t index = asked_.size();
    asked_.push_back({team, task, std::vector<Place>(size)});
    for (uint32_t rank = 0; rank < size; ++rank)
      plan(team->last[rank], [this, index, rank] { start_at(index, rank); });
  }
  void start_at(size_t index, uint32_t rank) {
    Asked &asked = asked_[index];
    Place &place = asked.places[rank];
    Group *const group = asked.team->groups[rank];
    place.state = Place::kRefused;
    TestEndpoint &endpoint = network_[asked.team->members()[rank]];
    if (group == nullptr || !endpoint.alive) return;  // it has left, or has not joined
    const Reference reference(asked.task, FI_SUM, FI_UINT64);
    const std::vector<uint8_t> operand = reference.operand(rank);
    const std::vector<uint8_t> result = reference.result_before(rank);
    place.operand = lend(operand);
    place.result = lend(result);
    const int rc = endpoint.start(*group, {.task = asked.task,
                                           .op = FI_SUM,
                                           .datatype = FI_UINT64,
                                           .operand = place.operand,
                                           .result = place.result,
                                           .token = index + 1});
    FUZZ_CHECK(rc == 0 || !asked.team->is_honest(), "an honest member cannot start");
    if (rc == 0)
      place.state = Place::kStarted;
    else
      take_back(place);
  }
  uint8_t *lend(const std::vector<uint8_t> &bytes) {
    uint8_t *const at = memory_.lend(bytes.size(), 0);
    std::ranges::copy(bytes, at);
    return at;
  }
  void take_back(Place &place) {
    memory_.take_back(place.operand);
    memory_.take_back(place.result);
  }

  // What has ended.
  void reap() {
    for (size_t index = 0; index < asked_.size(); ++index)
      for (uint32_t rank = 0; rank < asked_[index].places.size(); ++rank) reap(index, rank);
  }
  void reap(size_t index, uint32_t rank) {
    const Asked &asked = asked_[index];
    Place &place = asked_[index].places[rank];
    const auto &finished = network_[asked.team->members()[rank]].finished;
    const auto found = finished.find(index + 1);
    if (found == finished.end()) return;
    FUZZ_CHECK(found->second.size() == 1, "an operation has ended twice");
    if (place.state == Place::kEnded) return;
    FUZZ_CHECK(place.state == Place::kStarted, "an operation has ended that was not started");
    place.state = Place::kEnded;
    if (asked.team->is_honest()) {
      const std::vector<uint8_t> right =
          Reference(asked.task, FI_SUM, FI_UINT64).result_after(rank);
      FUZZ_CHECK(found->second[0].failure == Failure::kNone, "an honest group has failed");
      FUZZ_CHECK(std::equal(right.begin(), right.end(), place.result), "a result is wrong");
    }
    take_back(place);
  }

  // Honest teams leave when all is done. Of the others, members leave as they like.
  void leave() {
    Team *const team = some_team();
    const uint8_t rank = input_.byte();
    if (team == nullptr || team->is_closed) return;
    if (!team->is_honest()) return leave(*team, rank % uint32_t(team->groups.size()));
    if (!has_joined(*team) || !std::ranges::all_of(asked_, [&](const Asked &one) {
          return one.team != team || has_ended(one);
        }))
      return;
    close(*team);
  }
  static bool has_ended(const Asked &asked) {
    return std::ranges::all_of(asked.places,
                               [](const Place &one) { return one.state == Place::kEnded; });
  }
  void leave(Team &team, uint32_t rank) {
    TestEndpoint &endpoint = network_[team.members()[rank]];
    if (team.groups[rank] == nullptr || !endpoint.alive) return;
    endpoint.leave(*std::exchange(team.groups[rank], nullptr));
  }
  void close(Team &team) {
    team.is_closed = true;
    for (uint32_t rank = 0; rank < team.groups.size(); ++rank) leave(team, rank);
  }

  // ---- the liar and the stranger ----

  static uint64_t membership_of(uint8_t kind) {
    return TestNetwork::place(kMembers[kind % kMembers.size()], 0).membership;
  }
  void say_packet(uint8_t what) {
    const uint32_t to = input_.byte() % kHonest;
    const uint8_t how = input_.byte();
    const Packet packet{.type = PacketType(1 + how % 3),
                        .why = Failure(how / 4 % 5),
                        .from_rank = input_.byte() % 6u,
                        .culprit = input_.byte() % 6u,
                        .from = input_.byte() % 20u,
                        .to = input_.byte() % 20u,
                        .membership = membership_of(input_.byte())};
    const Packet::Bytes bytes = packet.bytes();
    std::vector<uint8_t> sent(bytes.begin(), bytes.end());
    if (what >= 200) sent.resize(input_.byte());
    for (int i = (what & 64) != 0 ? 40 : 1; i > 0; --i)
      network_.send((what & 32) != 0 ? kLiar : kStranger, to, kPacketTag, sent);
  }
  void say_data(uint8_t what) {
    static constexpr size_t kLengths[] = {0, 1, 8, 16, 28, 56, 84, 160, 4800};
    const uint32_t to = input_.byte() % kHonest;
    const uint8_t receivers = input_.byte(), senders = input_.byte(), label = input_.byte();
    const uint64_t tag = (what & 16) != 0
                             ? join_tag(membership_of(receivers), senders % 6u, label % 4u)
                             : data_tag(receivers % 20u, senders % 20u, label / 8 % 8u, label % 8u);
    std::vector<uint8_t> bytes(kLengths[input_.byte() % std::size(kLengths)], input_.byte());
    network_.send((what & 32) != 0 ? kLiar : kStranger, to, tag, std::move(bytes));
  }
  void change_lie() {
    lie_ = {.how = input_.byte(), .at = input_.byte(), .value = input_.byte()};
    lie_.messages = input_.byte();
  }
  void tamper(uint64_t &tag, std::vector<uint8_t> &bytes) {
    if (lie_.messages == 0) return;
    --lie_.messages;
    switch (lie_.how % 6) {
      case 0:
        if (!bytes.empty()) bytes[lie_.at % bytes.size()] = lie_.value;
        return;
      case 1:  // of a joining member, its own or another's: which number the group has there
        if (const size_t members = bytes.size() / kHello; members != 0)
          bytes[lie_.at % members * kHello + kNumberAt] = lie_.value % 20;
        return;
      case 2:
        tag ^= UINT64_C(1) << lie_.value % 61;
        return;
      case 3:
        bytes.resize(bytes.size() / 2);
        return;
      case 4:
        bytes.resize(bytes.size() + lie_.at);
        return;
      default:
        tag = data_tag(lie_.at % 20u, lie_.value % 20u, 0, lie_.value / 32u);
        return;
    }
  }
  void fall_silent() {
    const uint8_t how = input_.byte();
    if (how >= 240) network_.kill(kLiar);
    if (how < 16) network_.deafen(kLiar);
    is_deaf_ |= how < 16;
  }

  // ---- checks ----

  void check_bounds() {
    size_t members = 0;
    for (const Team &team : teams_) members += team.members().size();
    for (uint32_t i = 0; i < kHonest; ++i) {
      FUZZ_CHECK(network_[i].groups.early() <= (kEndpoints - 1) * Groups::kMaxEarlyOfOne,
                 "too many early packets are kept");
      FUZZ_CHECK(network_[i].telling <= 3 * members, "too many answers are under way");
    }
  }

  void finish() {
    lie_ = {};
    network_.run(3 * network_.limits().probe);
    reap();
    for (const Team &team : teams_)
      FUZZ_CHECK(!team.is_honest() || team.is_closed || has_joined(team),
                 "an honest group has not joined");
    for (const Asked &asked : asked_)
      FUZZ_CHECK(!asked.team->is_honest() || has_ended(asked), "an honest operation has not ended");
    for (Team &team : teams_) close(team);
    network_.run(3 * network_.limits().probe);
    reap();
    for (uint32_t i = 0; i < kHonest; ++i) {
      FUZZ_CHECK(network_[i].posted() == 0, "receives are left over");
      FUZZ_CHECK(is_deaf_ || (network_[i].groups.empty() && network_[i].in_flight == 0),
                 "a group has not ended");
    }
  }

  fuzz::Input &input_;
  fuzz::Memory memory_;
  TestNetwork network_;
  std::deque<Team> teams_;
  std::deque<Asked> asked_;  // by token - 1
  std::array<std::array<uint64_t, 5>, kMembers.size()> joins_{};
  struct {
    uint8_t how = 0, at = 0, value = 0;
    uint32_t messages = 0;  // so many more
  } lie_;
  bool is_deaf_ = false;
};

}  // namespace
}  // namespace weft::coll

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  weft::fuzz::Input input(data, size);
  weft::coll::Play(input).run();
  return 0;
}
