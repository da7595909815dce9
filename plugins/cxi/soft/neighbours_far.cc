// SPDX-License-Identifier: BSD-2-Clause
// Neighbours on other hosts.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/cxi/soft/neighbours.h"
#include "plugins/cxi/soft/network.h"

namespace weft::cxi {
namespace {

uint64_t ends_of(Nid here, Nid there) {
  return uint64_t{here} << 32 | there;
}

}  // namespace

Result<void> Neighbours::watch_hosts() {
  if (watches_hosts_) return {};
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &hosts_}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, hosts_.wait_fd(), &event) != 0)
    return fail(errno, "cxi: epoll_ctl: %s", strerror(errno));
  watches_hosts_ = true;
  return {};
}

// Null: the NIC is of this host. A registry alone does not say so: the host may have had another
// address once.
Link *Neighbours::far_link(uint32_t own, const Packet &packet) {
  const auto place = std::pair(packet.source, key_of(packet.to.nid, packet.vni, packet.to.pid));
  if (const auto known = far_.find(place); known != far_.end()) {
    if (!packet.is_answer) be_own(*known->second);
    return known->second;
  }
  if (Registry::exists(folder_, packet.to.nid) &&
      is_own_address(weft::cxi::address_of(own, packet.to.nid)))
    return nullptr;
  auto link = std::make_unique<Link>(engine_);
  link->is_far = true;
  link->stream.set_on_output([this, link = link.get()] { mark(*link); });
  link->target = {.from = own, .door = hosts_.options().port, .vni = packet.vni, .to = packet.to};
  link->stream.set_ends({.here = packet.source, .there = packet.to.nid});
  link->ends = ends_of(packet.source, packet.to.nid);
  link->there = packet.to.nid;
  if (!packet.is_answer) be_own(*link);
  links_.push_back(std::move(link));
  return far_[place] = links_.back().get();
}

void Neighbours::be_own(Link &link) {
  if (std::exchange(link.is_own, true)) return;
  link.turn = Link::Turn::kHas;
  if (const auto room = room_of_.find(link.there); room != room_of_.end())
    if (const auto living = room->second.lock()) living->be_known();
}

void Neighbours::forget_far(const Link &link, Link *other) {
  if (other == nullptr) {
    std::erase_if(far_, [&](const auto &one) { return one.second == &link; });
    return;
  }
  for (auto &[place, one] : far_)
    if (one == &link) one = other;
}

// ---- Hosts::User ----

std::optional<Hello> Neighbours::find(const Hello &call, Nid there) {
  Hello answer{.kind = Hello::Kind::kRefused, .rc = Rc::kUndeliverable};
  const EngineGuard guard(engine_.lock);
  const auto registry = registries_.find(call.to.nid);
  if (registry == registries_.end()) return answer;
  const auto owner = registry->second->find(call.vni, call.to.pid);
  if (!owner) {  // R1
    answer.rc = registry->second->has_vni(call.vni) ? Rc::kPtlteNotFound : Rc::kVniNotFound;
    return answer;
  }
  answer.port = uint16_t(owner->door >> kDoorBits);
  if (answer.port == 0) return answer;
  const bool is_ours = owner->process == uint32_t(::getpid()) && (owner->door & kDoorMask) == door_;
  if (is_ours && !may_ask(there)) return std::nullopt;
  answer.kind = is_ours ? Hello::Kind::kWelcome : Hello::Kind::kElsewhere;
  answer.rc = Rc::kOk;
  return answer;
}

void Neighbours::on_asker(sdk::UniqueFd fd, Nid here, Nid there, uint64_t key) {
  keep_alive(fd.get(), hosts_.options().timeout_ms);
  const EngineGuard guard(engine_.lock);
  Link *const link = add(std::move(fd), "");
  if (link == nullptr) return;
  link->is_far = link->has_moved = true;
  link->there = there;
  link->stream.set_ends({.here = here, .there = there, .may_ask = true});
  link->stream.set_room(room_of(there));
  link->key = key;
  link->ends = ends_of(here, there);
  find_partner(*link);
  hosts_.watch_links(++far_links_ != 0);
}

// The process may be known already, by another of its addresses.
void Neighbours::on_welcome(Link &link, sdk::UniqueFd fd, const std::string &name, uint64_t key) {
  const EngineGuard guard(engine_.lock);
  const auto [at, is_new] = by_name_.try_emplace(name, &link);
  if (!is_new) {
    if (link.is_own) be_own(*at->second);
    link.stream.hand_over(at->second->stream);
    forget_far(link, at->second);
    mark(*at->second);
    return end(link);
  }
  link.name = name;
  keep_alive(fd.get(), hosts_.options().timeout_ms);
  if (!link.open(std::move(fd), epoll_.get())) return end(link);
  link.key = key;
  find_partner(link);
  hosts_.watch_links(++far_links_ != 0);
  mark(link);
}

void Neighbours::on_failure(Link &link, Rc why) {
  link.why = why;
  end(link);
}

void Neighbours::on_time(unsigned timeout_ms, bool is_tick) {
  const EngineGuard guard(engine_.lock);
  for (const std::unique_ptr<Link> &link : links_) {
    if (!is_tick || !link->is_far || !link->is_open()) continue;
    link->quiet_ticks = std::exchange(link->has_moved, false) ? 0 : link->quiet_ticks + 1;
    if (is_silent(link->fd(), timeout_ms) || is_left_alone(*link)) end(*link);
  }
  give_turns();
}

}  // namespace weft::cxi
