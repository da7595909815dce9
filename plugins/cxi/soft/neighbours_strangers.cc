// SPDX-License-Identifier: BSD-2-Clause
// What hosts get that this process does not call by itself: strangers. They ask, and have it
// answer: so they would make it open connections, and keep bytes. Who has had its share waits for a
// connection, until one that rests makes room.
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "plugins/cxi/soft/neighbours.h"

namespace weft::cxi {
namespace {

// How many connections there may be: half of what may be open is for those who ask.
struct Shares {
  size_t askers, askers_of_strangers, askers_of_one;
  size_t answers, answers_to_one;  // to strangers; to one host, without those of our own
};

Shares shares() {
  rlimit limit{};
  const size_t files = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? size_t(limit.rlim_cur) : 1024;
  const size_t askers = std::max<size_t>(16, files / 2), strangers = askers / 4 * 3;
  const size_t answers = std::max<size_t>(8, files / 8);
  return {.askers = askers,
          .askers_of_strangers = strangers,
          .askers_of_one = strangers / 2,
          .answers = answers,
          .answers_to_one = answers / 2};
}

bool is_asker(const Link &link) {
  return link.is_far && link.is_open() && link.name.empty();
}
// On its way, or there.
bool is_answering(const Link &link) {
  return link.turn == Link::Turn::kHas && !link.is_own;
}
// What went along with messages on it may be missed.
bool is_carried(const Link &link) {
  return link.is_carried && link.partner != nullptr;
}
// Nothing has moved for as long as this host waits for another one.
bool is_stuck(const Link &link) {
  return link.quiet_ticks >= Hosts::kTicks;
}

}  // namespace

bool Neighbours::is_over(const Link &link) const {
  return std::ranges::find(over_, &link) != over_.end();
}

// Hosts that are no strangers.
std::set<Nid> Neighbours::called() const {
  std::set<Nid> all;
  for (const auto &link : links_)
    if (link->is_own) all.insert(link->there);
  return all;
}

std::shared_ptr<Room> Neighbours::room_of(Nid there) {
  std::erase_if(room_of_, [](const auto &one) { return one.second.expired(); });
  std::weak_ptr<Room> &known = room_of_[there];
  std::shared_ptr<Room> room = known.lock();
  if (room != nullptr) return room;
  known = room = std::make_shared<Room>(rooms_);
  if (called().contains(there)) room->be_known();
  return room;
}

// One that is silent makes room, of the host that has the most of them; if it must be, one that
// waits for something from here, too.
bool Neighbours::may_ask(Nid there) {
  const Shares most = shares();
  const std::set<Nid> known = called();
  const bool is_known = known.contains(there);
  size_t all = 0, of_strangers = 0;
  std::map<Nid, size_t> counts;  // of strangers
  for (const auto &link : links_) {
    if (!is_asker(*link) || is_over(*link)) continue;
    ++all;
    if (known.contains(link->there)) continue;
    ++of_strangers;
    ++counts[link->there];
  }
  const bool has_had_its_share = !is_known && counts[there] >= most.askers_of_one;
  const bool is_full =
      all >= most.askers || (!is_known && of_strangers >= most.askers_of_strangers);
  if (!has_had_its_share && !is_full) return true;
  Link *worst = nullptr;
  const auto waits = [](const Link &link) { return link.stream.has_waiting() || is_carried(link); };
  const auto badness = [&](const Link &link) {
    return std::tuple(counts[link.there], !waits(link), link.quiet_ticks);
  };
  for (const auto &link : links_) {
    if (!is_asker(*link) || is_over(*link) || !counts.contains(link->there)) continue;
    if (has_had_its_share && link->there != there) continue;
    if (link->quiet_ticks == 0 || (waits(*link) && !is_stuck(*link))) continue;
    if (worst == nullptr || badness(*link) > badness(*worst)) worst = link.get();
  }
  if (worst != nullptr) end(*worst);
  return worst != nullptr;
}

// Whether there is a descriptor for what is to be said to a peer that has caused it. An idle
// connection makes room, or one that is stuck.
bool Neighbours::may_answer(const Link &link) {
  const Shares most = shares();
  const std::set<Nid> known = called();
  const auto count = [&](auto wanted) {
    return size_t(std::ranges::count_if(links_, [&](const auto &one) {
      return is_answering(*one) && !is_over(*one) && wanted(*one);
    }));
  };
  const auto is_of_it = [&](const Link &one) { return one.there == link.there; };
  const auto is_strangers = [&](const Link &one) { return !known.contains(one.there); };
  const bool has_had_its_share = count(is_of_it) >= most.answers_to_one;
  if (!has_had_its_share && (!is_strangers(link) || count(is_strangers) < most.answers))
    return true;
  const auto makes_room = [&](const auto &one) {
    if (!is_answering(*one) || !one->is_open() || is_over(*one)) return false;
    if (has_had_its_share ? !is_of_it(*one) : !is_strangers(*one)) return false;
    return is_stuck(*one) || (one->is_idle() && !is_carried(*one));
  };
  const auto found = std::ranges::find_if(links_, makes_room);
  if (found == links_.end()) return false;
  end(**found);
  return true;
}

// To those who wait for it.
void Neighbours::give_turns() {
  bool any_waits = false;
  std::set<Nid> refused;
  for (const auto &link : links_) {
    if (link->turn != Link::Turn::kWaits) continue;
    if (!refused.contains(link->there) && may_answer(*link)) {
      link->turn = Link::Turn::kHas;
      mark(*link);
    } else {
      refused.insert(link->there);
      any_waits = true;
    }
  }
  hosts_.be_hasty(any_waits);
}

// Those of a host are read again when it has room again, whoever of them has made it.
void Neighbours::mark_stopped() {
  const EngineGuard guard(engine_.lock);
  rooms_.has_freed = false;
  for (const auto &link : links_)
    if (link->is_far && link->is_open() && link->is_stopped()) mark(*link);
}

}  // namespace weft::cxi
