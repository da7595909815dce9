// SPDX-License-Identifier: BSD-2-Clause
// The groups of an endpoint: joining and leaving them, and what has ended.
#include "plugins/coll/collectives.h"

#include <rdma/fi_eq.h>
#include <time.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "plugins/coll/endpoint.h"
#include "plugins/coll/one_host.h"

namespace weft::coll {
namespace {

int error_of(Failure failure) {
  switch (failure) {
    case Failure::kNone:
      return 0;
    case Failure::kMismatch:
      return FI_EINVAL;
    case Failure::kGone:
      return FI_ENOTCONN;
    case Failure::kTimeout:
      return FI_ETIMEDOUT;
    default:
      return FI_ECANCELED;
  }
}

const char *text_of(Failure failure) {
  switch (failure) {
    case Failure::kMismatch:
      return "members disagree: on the operation, or on the parameter algorithms";
    case Failure::kGone:
      return "a member is gone, or has left the group";
    case Failure::kTimeout:
      return "members are late: deadline_ms has passed";
    default:
      return "the group was left";
  }
}

}  // namespace

// ---- a group as applications know it ----

CollectiveGroup::CollectiveGroup(Endpoint &endpoint, std::vector<fi_addr_t> members, uint64_t sets,
                                 void *context)
    : Object(endpoint.instance(), FI_CLASS_MC, context),
      endpoint(endpoint),
      members(std::move(members)),
      sets(sets) {
  sdk::fill_tables(*this);
}

std::optional<uint32_t> CollectiveGroup::rank_of(fi_addr_t member) const {
  if (member < members.size() && members[member] == member) return uint32_t(member);
  const auto found = std::ranges::find(members, member);
  if (found == members.end()) return std::nullopt;
  return uint32_t(found - members.begin());
}

bool CollectiveGroup::is_for(fi_collective_op coll) const {
  return sets == 0 || (sets & sdk::collective_set(coll)) != 0;
}

int CollectiveGroup::close() {
  {
    const sdk::Guard guard(endpoint.lock());
    if (!endpoint.collectives().leave(*this)) return -FI_EBUSY;
  }
  end();
  return 0;
}

void CollectiveGroup::end() {
  retire();
  {
    const sdk::Guard guard(endpoint.lock());
    endpoint.eq()->forget(base());
  }
  delete this;
}

Collectives::Collectives(Endpoint &endpoint, Fabric &fabric, sdk::Engine &engine,
                         sdk::TxContext &tx)
    : endpoint_(endpoint),
      fabric_(fabric),
      engine_(engine),
      tx_(tx),
      groups_(fabric.layer().options().limits, fabric.layer().choice(), *this) {}

Collectives::~Collectives() = default;

bool Collectives::has_groups() const {
  return std::ranges::any_of(objects_, [](const auto &one) { return !one.second->is_left; });
}

// What they have in flight ends with the endpoint beneath. A member that does not read cannot keep
// the endpoint open.
void Collectives::end_groups() {
  std::map<uint32_t, CollectiveGroup *> left;
  {
    const sdk::Guard guard(endpoint_.lock());
    left = std::exchange(objects_, {});
  }
  for (const auto &[number, object] : left) object->end();
}

void Collectives::close() {
  engine_.set_deadline(*this, 0);
}

// ---- joining ----

Result<fid_mc *> Collectives::join(sdk::Av &av, const fi_collective_addr &address, void *context) {
  uint64_t sets = 0;
  WEFT_TRY(std::vector<fi_addr_t> members, members_of(av, address, sets));
  WEFT_TRY(GroupPlace place, place_of(av, members));
  WEFT_TRY(CollectiveGroup *const object, make_group(std::move(members), sets, context));
  open_packets();
  const uint64_t now = sdk::now_ns();
  Group *const group = groups_.join(now, std::move(place));
  if (group == nullptr) {
    object->retire();
    object->discard();
    return fail(FI_ENOSPC, "the endpoint has too many groups: close some");
  }
  object->number = group->number();
  object->c()->fi_addr = kGroupBase + group->number();
  objects_[group->number()] = object;
  arm(now);
  look();
  return object->c();
}

// Of a set, or of a group that there is already, which then has the same members.
Result<std::vector<fi_addr_t>> Collectives::members_of(sdk::Av &av,
                                                       const fi_collective_addr &address,
                                                       uint64_t &sets) const {
  const CollectiveGroup *const parent = find(address.coll_addr);
  if (address.set == nullptr) {
    if (parent == nullptr)
      return fail(FI_EINVAL, "it has neither a set nor the address of a group that was joined");
    sets = parent->sets;
    return parent->members;
  }
  WEFT_TRY(sdk::AvSet *const set, sdk::AvSet::find(av, address.set));
  fi_addr_t of_set = FI_ADDR_NOTAVAIL;
  set->addr(&of_set);
  if (address.coll_addr != FI_ADDR_NOTAVAIL && address.coll_addr != of_set && parent == nullptr)
    return fail(FI_EINVAL,
                "coll_addr is 0x%llx: coll takes FI_ADDR_NOTAVAIL, what fi_av_set_addr says of the "
                "set, or the address of a group",
                (unsigned long long)address.coll_addr);
  if (!set->communication_key().empty())
    return fail(FI_EOPNOTSUPP,
                "the set has a comm_key: coll has no use for one, its groups are made of members");
  sets = set->flags() & sdk::AvSet::kCollectives;
  return set->members();
}

Result<GroupPlace> Collectives::place_of(sdk::Av &av, const std::vector<fi_addr_t> &members) const {
  if (members.empty() || members.size() > Schedule::kMaxMembers)
    return fail(FI_EINVAL, "the set has %zu members: a group has 1 to %u", members.size(),
                Schedule::kMaxMembers);
  WEFT_TRY(const sdk::Address own, endpoint_.own_address());
  GroupPlace place{.one_host = true, .cpus = own_cpus()};
  OneHost host(own);
  Groups::Membership membership;
  bool found = false;
  for (const fi_addr_t member : members) {
    const uint32_t index = av.index_of(member);
    const auto known = av.address(index);
    if (!known)
      return fail(FI_EINVAL, "member %llu of the set is not in the address vector any more",
                  (unsigned long long)member);
    place.one_host = place.one_host && host.has(*known);
    if (*known == own) {
      if (found) return fail(FI_EINVAL, "two members of the set have the endpoint's own address");
      found = true;
      place.rank = uint32_t(place.peers.size());
    }
    const std::string text = sdk::format_address_string(*known);
    membership.add(text.data(), text.size());
    const fi_addr_t name = endpoint_.names().keep(index);
    if (name == FI_ADDR_NOTAVAIL)
      return fail(FI_EINVAL, "the provider beneath does not take the address %s", text.c_str());
    place.peers.push_back(name);
  }
  if (!found) return fail(FI_EINVAL, "the endpoint's own address is not in the set");
  place.membership = membership.value();
  return place;
}

Result<CollectiveGroup *> Collectives::make_group(std::vector<fi_addr_t> members, uint64_t sets,
                                                  void *context) {
  auto *const group =
      new (std::nothrow) CollectiveGroup(endpoint_, std::move(members), sets, context);
  if (group == nullptr) return fail(FI_ENOMEM, "no memory for a group");
  std::unique_ptr<CollectiveGroup, void (*)(CollectiveGroup *)> owner(
      group, [](CollectiveGroup *one) { one->discard(); });
  WEFT_CHECK(group->publish(endpoint_.base()));
  return owner.release();
}

CollectiveGroup *Collectives::find(fi_addr_t address) const {
  if (address < kGroupBase || address - kGroupBase > kNumbers) return nullptr;
  const auto found = objects_.find(uint32_t(address - kGroupBase));
  return found != objects_.end() ? found->second : nullptr;
}

bool Collectives::leave(CollectiveGroup &object) {
  const uint64_t now = sdk::now_ns();
  const uint32_t number = object.number;
  object.is_left = true;
  if (Group *const group = groups_.find(number)) groups_.leave(now, *group);
  look();
  endpoint_.poll_all_beneath();
  if (Group *const group = groups_.find(number)) {
    if (!group->is_idle()) return false;
    groups_.on_idle(now, *group);
  }
  objects_.erase(number);
  return true;
}

// ---- what the groups have to say ----

void Collectives::ended(Group &group, const Ended &one) {
  ended_.push_back({group.number(), one});
}

// Reports, and goes on with what follows from it.
void Collectives::look() {
  if (looks_) return;
  looks_ = true;
  while (!ended_.empty() || !lost_.empty()) {
    while (!lost_.empty()) {
      const Lost lost = lost_.front();
      lost_.pop_front();
      on_done(*lost.wire, lost.err, 0);
    }
    while (!ended_.empty()) {
      const Noted noted = ended_.front();
      ended_.pop_front();
      report(noted);
    }
  }
  looks_ = false;
}

void Collectives::report(const Noted &noted) {
  const Ended &one = noted.one;
  int err = error_of(one.failure);
  if (one.is_join) {
    const auto object = objects_.find(noted.number);
    if (object != objects_.end()) report_join(*object->second, one);
    return groups_.on_joined(sdk::now_ns(), noted.number);
  }
  auto *const asked = reinterpret_cast<Report *>(one.token);
  const Report wanted = std::exchange(*asked, {});
  reports_.give(asked);
  if (err == 0 && wanted.staging != nullptr && !wanted.staging->finish()) err = FI_EIO;
  if (err == 0) {
    fabric_.stats()->collectives.add();
    if (tx_.write != nullptr) tx_.write->add_events(1, one.bytes);
    if (wanted.wanted && tx_.cq != nullptr)
      tx_.cq->push({.context = wanted.context, .flags = FI_COLLECTIVE, .len = one.bytes});
    return;
  }
  fabric_.stats()->collectives_failed.add();
  if (tx_.write != nullptr) tx_.write->add_error();
  if (tx_.cq != nullptr)
    tx_.cq->push_error(
        {.context = wanted.context, .flags = FI_COLLECTIVE, .len = one.bytes, .err = err});
}

void Collectives::report_join(CollectiveGroup &object, const Ended &one) {
  if (one.failure == Failure::kNone) {
    fabric_.stats()->groups_joined.add();
    return endpoint_.eq()->push(FI_JOIN_COMPLETE, object.base(), 0);
  }
  WEFT_WARN(endpoint_.instance(), FI_LOG_EP_CTRL,
            "fi_join_collective: a group of %zu members: %s (member %u)", object.members.size(),
            text_of(one.failure), one.culprit);
  endpoint_.eq()->push_error(
      {.fid = object.base(), .context = object.context(), .err = error_of(one.failure)});
}

// ---- operations ----

int Collectives::fill_call(const sdk::CollectiveRequest &call, const CollectiveGroup &group,
                           Call &wanted) const {
  wanted.task = {.coll = call.coll, .count = call.count};
  wanted.op = call.op;
  wanted.datatype = call.datatype;
  wanted.operand = call.operand;
  wanted.result = call.result;
  if (call.coll != FI_BARRIER) {
    wanted.task.unit = uint32_t(sdk::datatype_size(call.datatype));
    if (wanted.task.unit == 0) return -FI_EOPNOTSUPP;
  }
  if (wanted.task.has_root()) {
    const auto root = group.rank_of(call.root);
    if (!root) return -FI_EINVAL;
    wanted.task.root = *root;
  }
  // No message has more than what all members together give or get.
  uint64_t all = 0;
  if (__builtin_mul_overflow(uint64_t{call.count}, uint64_t{wanted.task.unit}, &all) ||
      __builtin_mul_overflow(all, uint64_t{group.members.size()}, &all) ||
      all > endpoint_.limits().max_msg_size)
    return -FI_EMSGSIZE;
  return 0;
}

int Collectives::start_in(Group &group, Call &wanted, uint64_t now, Report &asked) {
  if (const sdk::Hmem *const hmem = endpoint_.hmem()) {
    Task task = wanted.task;
    task.rank = group.rank();
    task.size = group.size();
    if (const int rc = Staging::make(*hmem, task, wanted, asked.staging); rc != 0) return rc;
  }
  return group.start(now, wanted);
}

ssize_t Collectives::start(const sdk::CollectiveRequest &call) {
  CollectiveGroup *const object = find(call.group);
  Group *const group = object != nullptr ? groups_.find(object->number) : nullptr;
  if (group == nullptr) return -FI_EINVAL;
  if (!object->is_for(call.coll)) return -FI_EOPNOTSUPP;
  Call wanted;
  if (const int rc = fill_call(call, *object, wanted); rc != 0) return rc;
  if (tx_.is_full()) return -FI_EAGAIN;
  Report *const asked = reports_.take();
  if (asked == nullptr) return -FI_EAGAIN;
  *asked = {.context = call.context, .wanted = call.report};
  wanted.token = reinterpret_cast<uint64_t>(asked);
  const uint64_t at = now();
  const int rc = start_in(*group, wanted, at, *asked);
  if (rc != 0) {
    *asked = {};
    reports_.give(asked);
  } else {
    arm(at);
  }
  look();
  return rc;
}

// ---- time ----

// A question to a member may come a few milliseconds early, so a cheap clock will do. A deadline
// may not, so with one the clock is precise.
uint64_t Collectives::now() const {
  if (fabric_.layer().options().limits.deadline != 0) return sdk::now_ns();
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}

// While something is under way, somebody looks after it. Not each operation moves the deadline.
void Collectives::arm(uint64_t now) {
  if (armed_ != 0) return;
  armed_ = now + fabric_.layer().options().limits.probe;
  engine_.set_deadline(*this, armed_);
}

void Collectives::on_deadline() {
  groups_.on_time(sdk::now_ns());
  look();
  armed_ = groups_.deadline();
  engine_.set_deadline(*this, armed_);
}

}  // namespace weft::coll
