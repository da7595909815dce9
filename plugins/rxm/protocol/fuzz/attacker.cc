// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/fuzz/attacker.h"

#include <cstring>

namespace weft::rxm {

size_t some_length(fuzz::Input &input) {
  static constexpr size_t kSizes[] = {0, 1, 64, 65, 448, 449, 512, 513, 1024, 2048, 2049, 5000};
  return kSizes[input.byte() % std::size(kSizes)];
}

Link *Attacker::an_end(uint8_t which) {
  size_t n = 0;
  const auto lives = [](const Link &l) {
    return l.side == nullptr && l.who != 0 && !l.is_actors && l.open && l.other != nullptr &&
           l.other->owner != nullptr;
  };
  for (const Link &l : world_.links) n += lives(l);
  if (n == 0) return nullptr;
  n = which % n;
  for (Link &l : world_.links)
    if (lives(l) && n-- == 0) return &l;
  return nullptr;
}

void Attacker::connect() {
  if (world_.links.size() > 60) return;
  const uint8_t how = input_.byte();
  // With max_connections the honest peer's idle connection may end, and then its address is free.
  const bool impostor = how % 4 == 3 && settings_.max_connections == 0;
  const uint8_t who = impostor ? kImpostor : uint8_t(1 + how % 3);
  Link &link = world_.make(nullptr, nullptr);
  link.who = who;
  const uint16_t port = who == kImpostor ? kHonest : uint16_t(kAttacker + who - 1);
  ConnectData data{.port = port,
                   .flow_control = (how & 4) != 0 ? FlowControl::kOn : FlowControl::kOff,
                   .eager_limit = 512,
                   .receive_count = 8,
                   .level = uint8_t((how & 8) != 0 ? kLevel : 0),
                   // It is a context of the honest peer, it says, which has none.
                   .place = uint8_t(!impostor && (how & 32) != 0 ? port - kHonest : 0),
                   .process = uint32_t(how / 32),
                   .index = how};
  ConnectBytes bytes = encode(data);
  if ((how & 16) != 0) {
    const uint8_t at = input_.byte();
    bytes[at % bytes.size()] = input_.byte();
    // Keep the port: `who` depends on it.
    std::memcpy(bytes.data() + 4, &port, sizeof port);
  }
  world_.events.push_back([this, &link, bytes] {
    sdk::Address from = address_of(kAttacker, world_.low);
    from = *from.with_port(50000);
    endpoint().arrive(link, from, {bytes.begin(), bytes.end()});
  });
}

void Attacker::answer_call() {
  const uint8_t how = input_.byte();
  if (world_.calls.empty()) return;
  Link *call = world_.calls[how / 8 % world_.calls.size()];
  std::erase(world_.calls, call);
  if (how % 8 < 5) {
    Link &link = world_.make(nullptr, nullptr);
    link.who = call->who;
    link.other = call;
    call->other = &link;
    AcceptBytes bytes = encode(AcceptData{.process = 1,
                                          .index = how,
                                          .receive_count = 8,
                                          .level = uint8_t(how % 2 != 0 ? kLevel : 0),
                                          .flow_control = FlowControl::kOn});
    if (how % 8 == 4) bytes[input_.byte() % bytes.size()] = input_.byte();
    call->news.push_back([call, bytes] { call->side->core().on_connected(*call->owner, bytes); });
    return;
  }
  const RejectBytes bytes = encode(static_cast<RejectReason>(how % 8 - 5));
  call->news.push_back([call, bytes] {
    call->open = false;
    const bool passes = parse_reject(bytes) == RejectReason::kUnspecified;
    call->side->core().on_refused(*call->owner, FI_ECONNREFUSED, bytes, passes);
  });
}

void Attacker::deliver(Link &link, std::vector<uint8_t> bytes) {
  if (bytes.size() > kHeaderSize + settings_.eager_limit)
    bytes.resize(kHeaderSize + settings_.eager_limit);
  // Mark the payload with the sender.
  if (bytes.size() > kHeaderSize && bytes[1] <= 1)
    for (size_t i = kHeaderSize; i < bytes.size(); ++i) bytes[i] = mark_of(link.who);
  link.other->inbox.push_back(
      {.kind = Item::Kind::kPacket, .bytes = std::move(bytes), .vector = {}});
}

uint64_t Attacker::id() {
  const uint8_t which = input_.byte();
  if (which < 64 || world_.ids.empty()) return which % 8;
  return world_.ids[which % world_.ids.size()];
}

std::vector<uint8_t> Attacker::fill(PacketType type, uint8_t how, WireHeader &h) {
  std::vector<uint8_t> data;
  const auto append = [&data](const void *at, size_t n) {
    data.resize(data.size() + n);
    std::memcpy(data.data() + data.size() - n, at, n);
  };
  switch (type) {
    case PacketType::kEager:
      data.resize(some_length(input_) % 513);
      h.size = data.size();
      break;
    case PacketType::kSegment:
      h.control_data = how >> 2 & 3;
      h.segment_number = how >> 4;
      data.resize(some_length(input_) % 513);
      h.segment_size = uint16_t(data.size());
      h.size = some_length(input_);
      break;
    case PacketType::kRendezvous:
    case PacketType::kWriteTarget: {
      WireVectors vectors{};
      vectors.count = uint8_t(1 + (how >> 2 & 3));
      for (size_t i = 0; i < vectors.count && i < kMaxVectors; ++i) {
        vectors.vector[i] = {0, some_length(input_), how};
        h.size += vectors.vector[i].length;
      }
      append(&vectors, sizeof vectors);
      break;
    }
    case PacketType::kAtomic: {
      h.op = uint8_t(6 + how % 3);
      h.atomic.datatype = FI_UINT64;
      h.atomic.operation = uint8_t(h.op == 8 ? FI_CSWAP : (how & 8) != 0 ? FI_ATOMIC_READ : FI_SUM);
      h.atomic.vectors = 1;
      RmaVector vectors[kMaxVectors] = {{0, 1, (how & 16) != 0 ? kCounterKey : 3}};
      append(vectors, sizeof vectors);
      data.resize(data.size() + 8 * ((h.op == 8 ? 2 : 1) - ((how & 8) != 0 ? 1 : 0)));
      h.size = data.size();
      break;
    }
    case PacketType::kAtomicResponse: {
      uint8_t status[kAtomicStatusSize];
      const uint32_t n = (how & 4) != 0 ? 8 : how >> 4;
      encode_status((how & 8) != 0 ? -FI_EACCES : 0, n, status);
      append(status, sizeof status);
      data.resize(data.size() + n);
      break;
    }
    case PacketType::kCredit:
    case PacketType::kPart:
      h.control_data = how >> 2;
      break;
    default:
      break;
  }
  return data;
}

void Attacker::say() {
  Link *link = an_end(input_.byte());
  const uint8_t what = input_.byte();
  if (what == 255) {  // raw bytes
    const auto raw = input_.take(input_.byte());
    if (link != nullptr && !raw.empty()) deliver(*link, {raw.begin(), raw.end()});
    return;
  }
  static constexpr PacketType kTypes[] = {PacketType::kEager,      PacketType::kSegment,
                                          PacketType::kRendezvous, PacketType::kReadDone,
                                          PacketType::kAtomic,     PacketType::kAtomicResponse,
                                          PacketType::kCredit,     PacketType::kWriteTarget,
                                          PacketType::kWriteDone,  PacketType::kPart};
  const PacketType type = kTypes[what % std::size(kTypes)];
  const uint8_t how = input_.byte();
  WireHeader h = header_of(type, how);
  h.message = id();
  h.op = uint8_t((how & 1) != 0 ? PacketOp::kTagged : PacketOp::kMessage);
  h.flags = (how & 2) != 0 ? kFlagRemoteData : 0;
  h.tag = uint64_t(how / 16) << 29 | how;
  const std::vector<uint8_t> data = fill(type, how, h);
  std::vector<uint8_t> bytes(kHeaderSize);
  std::memcpy(bytes.data(), &h, sizeof h);
  bytes.insert(bytes.end(), data.begin(), data.end());
  if (what >= 200) {
    const uint8_t at = input_.byte();
    bytes[at % bytes.size()] = input_.byte();
  }
  if (link != nullptr) deliver(*link, std::move(bytes));
}

void Attacker::say_bare() {
  Link *link = an_end(input_.byte());
  const uint8_t how = input_.byte();
  uint32_t data = kBareUntagged;
  if (how >= 240) {
    const auto any = input_.take(sizeof data);
    if (!any.empty()) std::memcpy(&data, any.data(), any.size());
    data &= ~kHonestTag;
  } else if (how % 4 != 0) {
    data = UINT32_C(1) << 31 | uint32_t(how / 4 % 4) << 29 | how;
  }
  size_t length = some_length(input_);
  if (length > settings_.eager_limit) length = settings_.eager_limit + length % (kHeaderSize + 1);
  if (link == nullptr) return;
  link->other->inbox.push_back({.kind = Item::Kind::kPacket,
                                .bytes = std::vector<uint8_t>(length, mark_of(link->who)),
                                .vector = {},
                                .data = data});
}

void Attacker::say_segment() {
  const uint8_t how = input_.byte();
  Link *link = an_end(how / 16);
  if (link == nullptr) return;
  Run &run = runs_[link];
  if (run.at == run.length) run = {++run.id, 600 + some_length(input_) % 2000, 0, 0};
  WireHeader h = header_of(PacketType::kSegment, 0);
  const size_t n = std::min<size_t>(run.length - run.at, 512);
  h.message = run.id;
  h.op = uint8_t((how & 1) != 0 ? PacketOp::kTagged : PacketOp::kMessage);
  h.size = run.length;
  h.segment_size = uint16_t(n);
  h.segment_number = run.number++;
  h.control_data = uint64_t(run.at == 0                ? SegmentKind::kFirst
                            : run.at + n == run.length ? SegmentKind::kLast
                                                       : SegmentKind::kMiddle);
  run.at += n;
  std::vector<uint8_t> bytes(kHeaderSize + n);
  std::memcpy(bytes.data(), &h, sizeof h);
  deliver(*link, std::move(bytes));
}

void Attacker::answer_read() {
  const uint8_t how = input_.byte();
  if (world_.asks.empty()) return;
  const World::Ask ask = world_.asks[how / 4 % world_.asks.size()];
  std::erase_if(world_.asks, [&](const World::Ask &a) { return a.token == ask.token; });
  Item reply{.kind = Item::Kind::kReply,
             .bytes = std::vector<uint8_t>(ask.length, mark_of(ask.link->other->who)),
             .vector = {},
             .token = ask.token,
             .err = how % 4 == 3 ? FI_EIO : 0};
  ask.link->inbox.push_back(std::move(reply));
}

void Attacker::reach() {
  Link *link = an_end(input_.byte());
  const std::vector<uint64_t> keys = endpoint().keys();
  const uint8_t how = input_.byte();
  if (link == nullptr || keys.empty()) return;
  std::vector<uint8_t> bytes(size_t(how), mark_of(link->who));
  const RmaVector vector{0, how, keys[input_.byte() % keys.size()]};
  if ((how & 1) != 0) {
    endpoint().peek(*link->other, vector, bytes);
  } else {
    endpoint().poke(*link->other, vector, bytes.data());
  }
}

void Attacker::hang_up() {
  const uint8_t how = input_.byte();
  if (Link *link = an_end(how / 2)) end_link(*link, (how & 1) != 0);
}

void Attacker::change_names() {
  const uint8_t how = input_.byte();
  if ((how & 1) != 0) return endpoint().remove(1 + how / 2 % 4);
  const uint8_t who = uint8_t(1 + how / 2 % kNames);
  for (fi_addr_t i = 0; i < endpoint().names(); ++i)
    if (endpoint().name(i) == who) return;  // inserting an address twice is not tested here
  endpoint().insert(uint16_t(kAttacker + who - 1), who);
}

}  // namespace weft::rxm
