// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/fuzz/actors.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::rxm {
namespace {

constexpr size_t kMostLinks = 90;

void refuse(const World::Call &call, std::vector<uint8_t> bytes) {
  call.link->news.push_back([link = call.link, bytes = std::move(bytes)] {
    if (link->owner == nullptr) return;
    link->open = false;
    link->side->core().on_refused(*link->owner, FI_ECONNREFUSED, bytes);
  });
}

// `end` answers the call.
void connect(Link &call, Link &end, std::vector<uint8_t> bytes) {
  end.other = &call;
  call.other = &end;
  call.news.push_back([&call, bytes = std::move(bytes)] {
    if (call.owner != nullptr) call.side->core().on_connected(*call.owner, bytes);
  });
}

bool lives(const Link *end) {
  return end != nullptr && end->open && end->other != nullptr && end->other->owner != nullptr;
}

}  // namespace

// ---- Thief ----

void Thief::answer() {
  const uint8_t how = input_.byte();
  if (world_.thief_calls.empty()) return;
  const size_t which = how / 16 % world_.thief_calls.size();
  const World::Call call = world_.thief_calls[which];
  if (how % 4 == 3) return;
  world_.thief_calls.erase(world_.thief_calls.begin() + ptrdiff_t(which));
  ++thief_tally().attempts;
  if (how % 4 == 2) {
    ++thief_tally().refused;
    return refuse(call, {});
  }
  if (world_.honest != nullptr) {
    world_.late = true;
    world_.endpoint->promised = world_.honest->promised = SIZE_MAX;
  }
  const auto request = parse_connect(call.bytes);
  FUZZ_CHECK(request.has_value(), "a request that is none");
  Link &end = world_.make_actors(kImpostor);
  const AcceptBytes bytes = encode(AcceptData{.process = how / 4 % 4 == 3 ? 101u : 9u,
                                              .index = how,
                                              .receive_count = 8,
                                              .level = uint8_t((how & 1) != 0 ? kLevel : 0),
                                              .flow_control = FlowControl::kOn});
  connect(*call.link, end, {bytes.begin(), bytes.end()});
  ++thief_tally().accepted;
  talks_.push_back({.link = &end, .index = request->index, .counted = true});
}

void Thief::claim() {
  const uint8_t how = input_.byte();
  if (world_.links.size() > kMostLinks || world_.limited) return;
  ++thief_tally().attempts;
  Link &end = world_.make_actors(kImpostor);
  const ConnectBytes bytes =
      encode(ConnectData{.port = kHonest,
                         .flow_control = (how & 1) != 0 ? FlowControl::kOn : FlowControl::kOff,
                         .eager_limit = 512,
                         .receive_count = 8,
                         .level = uint8_t((how & 2) != 0 ? kLevel : 0),
                         // It may give the number of the honest process.
                         .process = (how & 4) != 0 ? 100u + (how >> 4) : 9u,
                         .index = how});
  talks_.push_back({.link = &end, .asked = true});
  world_.events.push_back([&world = world_, &end, bytes] {
    const sdk::Address from = *address_of(kHonest, world.low).with_port(50000);
    world.endpoint->arrive(end, from, {bytes.begin(), bytes.end()});
  });
}

void Thief::speak() {
  const uint8_t which = input_.byte(), how = input_.byte();
  if (talks_.empty()) return;
  const Talk &talk = talks_[which % talks_.size()];
  if (!lives(talk.link)) return;
  const size_t length = how % 3 == 0 ? 0 : how;
  WireHeader h = header_of(PacketType::kEager, talk.index);
  h.message = how;
  h.op = uint8_t((how & 1) != 0 ? PacketOp::kTagged : PacketOp::kMessage);
  h.flags = kFlagRemoteData;
  h.size = length;
  h.data = kStolen | world_.stolen++;
  h.tag = how;
  std::vector<uint8_t> bytes(kHeaderSize + length, mark_of(kImpostor));
  std::memcpy(bytes.data(), &h, sizeof h);
  talk.link->other->inbox.push_back(
      {.kind = Item::Kind::kPacket, .bytes = std::move(bytes), .vector = {}});
}

void Thief::hang_up() {
  const uint8_t how = input_.byte();
  if (talks_.empty()) return;
  Link *link = talks_[how / 2 % talks_.size()].link;
  if (lives(link)) end_link(*link, (how & 1) != 0);
}

bool Thief::was_called() const {
  return std::ranges::any_of(talks_, [](const Talk &t) { return !t.asked && lives(t.link); });
}

void Thief::leave() {
  world_.thief_listens = false;
  for (const World::Call &call : std::exchange(world_.thief_calls, {})) refuse(call, {});
  for (const Talk &talk : talks_)
    if (lives(talk.link)) end_link(*talk.link, false);
}

void Thief::look() {
  for (Talk &talk : talks_) {
    talk.link->inbox.clear();
    if (talk.counted || !talk.link->answer) continue;
    talk.counted = true;
    ++(talk.link->accepted ? thief_tally().accepted : thief_tally().refused);
    if (!talk.link->accepted) continue;
    if (const auto data = parse_accept(*talk.link->answer)) talk.index = data->index;
  }
  std::erase_if(world_.actors_asks, [](const World::Ask &a) {
    return a.link->other != nullptr && a.link->other->who == kImpostor;
  });
}

// ---- Relay ----

void Relay::accept() {
  const uint8_t how = input_.byte();
  if (world_.relay_calls.empty() || world_.links.size() > kMostLinks) return;
  const size_t which = how / 2 % world_.relay_calls.size();
  const World::Call call = world_.relay_calls[which];
  world_.relay_calls.erase(world_.relay_calls.begin() + ptrdiff_t(which));
  ++relay_tally().attempts;
  Link &down = world_.make_actors(kByRelay);
  pipes_.push_back({.caller = call.link, .down = &down});
  const uint16_t hosts[] = {kRelay, kHonest, kEndpoint};
  const uint16_t from = world_.limited ? kRelay : hosts[host_ % 3];
  world_.events.push_back([&world = world_, &down, from, bytes = call.bytes, how] {
    Side *target = (how & 1) != 0 ? world.honest : world.endpoint;
    if (target != nullptr)
      return target->arrive(down, *address_of(from, world.low).with_port(50001), bytes);
    down.open = false;
    down.answer.emplace();
  });
}

// What the target has answered goes back to the caller.
void Relay::answer(Pipe &pipe) {
  if (pipe.answered || !pipe.down->answer || pipe.caller->owner == nullptr || !pipe.caller->open)
    return;
  pipe.answered = true;
  if (!pipe.down->accepted) {
    ++relay_tally().refused;
    return refuse({pipe.caller, {}}, *pipe.down->answer);
  }
  ++relay_tally().accepted;
  pipe.up = &world_.make_actors(kByRelay);
  connect(*pipe.caller, *pipe.up, *pipe.down->answer);
}

void Relay::pass() {
  const uint8_t how = input_.byte();
  if (pipes_.empty()) return;
  Pipe &pipe = pipes_[how / 32 % pipes_.size()];
  answer(pipe);
  if (!lives(pipe.up) || !lives(pipe.down)) return;
  if ((how & 1) != 0) pass(*pipe.up, *pipe.down, how);
  if ((how & 2) != 0) pass(*pipe.down, *pipe.up, how);
}

// What has come over `from` goes on over `to`.
void Relay::pass(Link &from, Link &to, uint8_t how) {
  for (int n = 1 + (how >> 2 & 3); n > 0 && !from.inbox.empty(); --n) {
    Item item = std::move(from.inbox.front());
    from.inbox.pop_front();
    if (item.kind == Item::Kind::kWrite) {
      to.other->side->poke(*to.other, item.vector, item.bytes.data());
      continue;
    }
    if ((how & 16) != 0 && !item.bytes.empty()) item.bytes.resize(item.bytes.size() * 3 / 4);
    to.other->inbox.push_back(std::move(item));
  }
  answer_reads(from, to);
}

void Relay::answer_reads(Link &from, Link &to) {
  for (size_t i = 0; i < world_.actors_asks.size();) {
    const World::Ask ask = world_.actors_asks[i];
    if (ask.link != from.other) {
      ++i;
      continue;
    }
    world_.actors_asks.erase(world_.actors_asks.begin() + ptrdiff_t(i));
    Item reply{.kind = Item::Kind::kReply, .bytes = {}, .vector = {}, .token = ask.token};
    if (!to.other->side->peek(*to.other, ask.vector, reply.bytes)) {
      reply.err = FI_EACCES;
      reply.bytes.resize(ask.length);
    }
    from.other->inbox.push_back(std::move(reply));
  }
}

void Relay::hang_up() {
  const uint8_t how = input_.byte();
  if (pipes_.empty()) return;
  const Pipe &pipe = pipes_[how / 4 % pipes_.size()];
  if ((how & 1) != 0 && lives(pipe.up)) end_link(*pipe.up, false);
  if ((how & 2) != 0 && lives(pipe.down)) end_link(*pipe.down, false);
}

void Relay::leave() {
  world_.relay_listens = false;
  for (const World::Call &call : std::exchange(world_.relay_calls, {})) refuse(call, {});
  for (Pipe &pipe : pipes_) {
    if (lives(pipe.up)) end_link(*pipe.up, false);
    if (lives(pipe.down)) end_link(*pipe.down, false);
    if (!std::exchange(pipe.answered, true) && pipe.caller->owner != nullptr && pipe.caller->open)
      refuse({pipe.caller, {}}, {});
  }
}

void Relay::look() {
  for (Pipe &pipe : pipes_) {
    if (pipe.up == nullptr) continue;
    if (!lives(pipe.up) && lives(pipe.down)) end_link(*pipe.down, false);
    if (!lives(pipe.down) && lives(pipe.up)) end_link(*pipe.up, false);
  }
}

}  // namespace weft::rxm
