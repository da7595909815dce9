// SPDX-License-Identifier: BSD-2-Clause
// The carrier of a Side: moves bytes between real memory while operations are in flight.
#include <algorithm>
#include <cstring>

#include "plugins/rxm/protocol/fuzz/side.h"

namespace weft::rxm {

void Side::arrive(Link &from, const sdk::Address &source, const std::vector<uint8_t> &bytes) {
  Request request{&from};
  core_->on_request(request, source, address_of(port_, world_.low), bytes);
  FUZZ_CHECK(request.answered, "a request was not answered");
}

bool Side::take(Link &link, Item &item) {
  switch (item.kind) {
    case Item::Kind::kPacket: {
      if (link.held) return false;
      if (shares_ ? buffers_ >= kSharedBuffers : link.in_use >= kOwnBuffers) return false;
      auto *buffer = new Buffer;
      buffer->bytes = std::make_unique<uint8_t[]>(item.bytes.size());
      buffer->length = item.bytes.size();
      std::copy(item.bytes.begin(), item.bytes.end(), buffer->bytes.get());
      buffer->link = &link;
      ++buffers_;
      ++link.in_use;
      const std::span<const uint8_t> bytes(buffer->bytes.get(), buffer->length);
      bool kept = false;
      if (link.owner != nullptr)
        kept = item.data ? core_->on_bare_message(*link.owner, bytes, *item.data, *buffer)
                         : core_->on_packet(*link.owner, bytes, *buffer);
      if (!kept) release(*buffer);
      return true;
    }
    case Item::Kind::kRead: {
      Item reply{.kind = Item::Kind::kReply, .bytes = {}, .vector = {}, .token = item.token};
      FUZZ_CHECK(peek(link, item.vector, reply.bytes), "an honest read was refused");
      if (link.other->open) link.other->inbox.push_back(std::move(reply));
      return true;
    }
    case Item::Kind::kWrite:
      FUZZ_CHECK(poke(link, item.vector, item.bytes.data()), "an honest write was refused");
      return true;
    case Item::Kind::kReply: {
      const auto it = std::find_if(link.reads.begin(), link.reads.end(),
                                   [&](const Link::Read &r) { return r.token == item.token; });
      if (it == link.reads.end()) return true;
      const Link::Read read = *it;
      link.reads.erase(it);
      size_t at = 0;
      for (const iovec &v : read.into) {
        FUZZ_CHECK(may_be_read_into(v), "a read into memory that was given back");
        const size_t n = std::min(v.iov_len, item.bytes.size() - at);
        if (n != 0) std::memcpy(v.iov_base, item.bytes.data() + at, n);
        at += n;
      }
      core_->on_sent(*read.token, item.err);
      return true;
    }
    case Item::Kind::kClosed:
      link.open = false;
      if (std::exchange(link.mistaken, false)) promised = sent.size();
      if (link.owner != nullptr) core_->on_closed(*link.owner, FI_ECONNRESET);
      return true;
  }
  return true;
}

void Side::come_back(const World::Return &r) {
  for (const iovec &v : r.into) {
    // Until now the carrier could write to this memory.
    FUZZ_CHECK(may_be_read_into(v), "memory of a read was given back too early");
    std::memset(v.iov_base, 0xee, v.iov_len);
  }
  core_->on_sent(*r.token, FI_ECANCELED);
}

Link *Side::connect(Connection &owner, const sdk::Address &to, std::span<const uint8_t> data,
                    int &err) {
  const uint16_t port = to.port();
  const bool attacker = port != kHonest && port != kEndpoint;
  if (attacker && world_.scarce) {
    err = EMFILE;
    return nullptr;
  }
  Link &link = world_.make(this, &owner);
  const bool to_thief = port == kHonest && world_.honest == nullptr && world_.thief_listens;
  if ((port == kRelay && world_.relay_listens) || to_thief) {
    auto &calls = to_thief ? world_.thief_calls : world_.relay_calls;
    calls.push_back({&link, {data.begin(), data.end()}});
    return &link;
  }
  if (attacker && port != kRelay) {
    link.who = uint8_t(port - kAttacker + 1);
    world_.calls.push_back(&link);
    return &link;
  }
  const std::vector<uint8_t> bytes(data.begin(), data.end());
  world_.events.push_back([&world = world_, &link, port, bytes, own = port_] {
    if (!link.open || link.owner == nullptr) return;
    Side *target = port == kHonest ? world.honest : port == kEndpoint ? world.endpoint : nullptr;
    if (target != nullptr) {
      sdk::Address from = address_of(own, world.low);
      from = *from.with_port(uint16_t(40000 + world.links.size()));
      return target->arrive(link, from, bytes);
    }
    link.open = false;
    link.side->core().on_refused(*link.owner, FI_ECONNREFUSED, {});
  });
  return &link;
}

Link *Side::accept(Connection &owner, Request &request, std::span<const uint8_t> data, int &err) {
  Link *from = request.from;
  if (from->side == nullptr && world_.scarce) {
    err = ENOMEM;
    return nullptr;
  }
  request.answered = true;
  Link &link = world_.make(this, &owner);
  link.other = from;
  from->other = &link;
  from->accepted = true;
  from->answer.emplace(data.begin(), data.end());
  link.news.push_back([&link] { link.side->core().on_connected(*link.owner, {}); });
  if (from->side == nullptr) {  // the attacker ignores events
    if (!from->open) link.inbox.push_back({.kind = Item::Kind::kClosed, .bytes = {}, .vector = {}});
    return &link;
  }
  if (!from->open || from->owner == nullptr) {
    link.inbox.push_back({.kind = Item::Kind::kClosed, .bytes = {}, .vector = {}});
  } else {
    const std::vector<uint8_t> bytes(data.begin(), data.end());
    from->news.push_back([from, bytes] { from->side->core().on_connected(*from->owner, bytes); });
  }
  return &link;
}

void Side::reject(Request &request, std::span<const uint8_t> data) {
  if (std::exchange(request.answered, true)) return;
  Link *from = request.from;
  if (from->side == nullptr || from->owner == nullptr) {
    from->open = false;
    from->answer.emplace(data.begin(), data.end());
    return;
  }
  const std::vector<uint8_t> bytes(data.begin(), data.end());
  from->news.push_back([from, bytes] {
    from->open = false;
    from->side->core().on_refused(*from->owner, FI_ECONNREFUSED, bytes);
  });
}

// An earlier process accepted the connection of this side and died, and the present one asked for a
// connection meanwhile. While the end of the dead link does not arrive, nothing tells whose the
// address is, and the dead link replaces the other (sdk::PeerLink). What is under way there fails.
// The peer connects again: what it sends from then on arrives.
void Side::note_end(Link &link) {
  if (std::exchange(link.mistaken, false)) promised = sent.size();
  const uint64_t replaced = core_->counters().replaced.value();
  if (replaced == std::exchange(replaced_, replaced) || !link.open || link.other == nullptr ||
      peer == nullptr || link.other->side != peer || !link.other->open)
    return;
  for (const Link &l : world_.links) {
    const bool dead = l.other != nullptr && l.other->side == nullptr && l.other->who == 0;
    if (&l == &link || l.side != this || !l.open || !dead) continue;
    if (l.owner == nullptr || l.owner->address() != link.owner->address()) continue;
    link.other->mistaken = true;
    promised = peer->promised = SIZE_MAX;
  }
}

void Side::close(Link &link, bool idle) {
  FUZZ_CHECK(link.owner != nullptr && link.side == this, "a link was closed twice");
  note_end(link);
  link.owner = nullptr;
  FUZZ_CHECK(!idle || (link.sent.empty() && link.reads.empty()),
             "closed as idle with operations at the carrier");
  for (Token *token : link.sent) world_.returns.push_back({this, token, {}});
  for (Link::Read &read : link.reads) world_.returns.push_back({this, read.token, read.into});
  link.sent.clear();
  link.reads.clear();
  link.news.clear();
  std::erase_if(world_.asks, [&](const World::Ask &a) { return a.link == &link; });
  std::erase_if(world_.actors_asks, [&](const World::Ask &a) { return a.link == &link; });
  std::erase(world_.calls, &link);
  for (auto *calls : {&world_.thief_calls, &world_.relay_calls})
    std::erase_if(*calls, [&](const World::Call &c) { return c.link == &link; });
  if (!std::exchange(link.open, false) || link.other == nullptr) return;
  if (link.other->side != nullptr && link.other->open)
    link.other->inbox.push_back({.kind = Item::Kind::kClosed, .bytes = {}, .vector = {}});
  if (link.other->side == nullptr) link.other->open = false;
}

ssize_t Side::send(Link &link, const iovec *iov, void *const *, size_t count, uint32_t data,
                   uint64_t flags, Token *token) {
  FUZZ_CHECK(((flags & FI_COMPLETION) != 0) == (token != nullptr),
             "a token without FI_COMPLETION, or FI_COMPLETION without a token");
  FUZZ_CHECK(count <= core_->settings().iov_limit, "too many iov entries");
  FUZZ_CHECK((flags & kLater) == 0 || token == nullptr, "somebody waits for what may wait");
  if (const ssize_t rc = admit(link); rc != 0) return rc;
  Item item{.kind = Item::Kind::kPacket, .bytes = gather(iov, count), .vector = {}};
  const Settings &settings = core_->settings();
  Side *const to = link.other->side;
  if (flags & FI_REMOTE_CQ_DATA) {
    item.data = data;
    FUZZ_CHECK(settings.bare && (to == nullptr || to->core().settings().bare),
               "a bare message to a peer that cannot read it");
  }
  const size_t header_size = item.data ? 0 : kHeaderSize;
  FUZZ_CHECK(
      item.bytes.size() >= header_size && item.bytes.size() <= header_size + settings.eager_limit,
      "a packet of an impossible length");
  if (token != nullptr) link.sent.push_back(token);
  if (to != nullptr) {
    link.other->inbox.push_back(std::move(item));
    return 0;
  }
  if (link.other->is_actors) {
    link.other->inbox.push_back(std::move(item));
    return 0;
  }
  if (item.data) return 0;
  WireHeader header;
  std::memcpy(&header, item.bytes.data(), sizeof header);
  if (world_.ids.size() < 64) world_.ids.push_back(header.message);
  return 0;
}

ssize_t Side::read(Link &link, const iovec *iov, void *const *, size_t count, const RmaVector *from,
                   size_t n, uint64_t, Token *token) {
  FUZZ_CHECK(n == 1 && token != nullptr, "a read with several vectors, or without a token");
  if (const ssize_t rc = admit(link); rc != 0) return rc;
  size_t length = 0;
  for (size_t i = 0; i < count; ++i) {
    FUZZ_CHECK(may_be_read_into(iov[i]), "a read into memory that was given back");
    length += iov[i].iov_len;
  }
  FUZZ_CHECK(length == from->length, "a read of another length");
  link.reads.push_back({token, {iov, iov + count}});
  if (link.other->side != nullptr) {
    link.other->inbox.push_back(
        {.kind = Item::Kind::kRead, .bytes = {}, .vector = *from, .token = token});
  } else {
    (link.other->is_actors ? world_.actors_asks : world_.asks)
        .push_back({&link, token, length, *from});
  }
  return 0;
}

ssize_t Side::write(Link &link, const iovec *iov, void *const *, size_t count, const RmaVector *to,
                    size_t n, uint64_t, uint64_t, Token *token) {
  FUZZ_CHECK(n == 1, "a write with several vectors");
  if (const ssize_t rc = admit(link); rc != 0) return rc;
  Item item{.kind = Item::Kind::kWrite, .bytes = gather(iov, count), .vector = *to};
  FUZZ_CHECK(item.bytes.size() == to->length, "a write of another length");
  if (token != nullptr) link.sent.push_back(token);
  if (link.other->side != nullptr || link.other->is_actors)
    link.other->inbox.push_back(std::move(item));
  return 0;
}

void Side::release(Buffer &buffer) {
  Link *link = buffer.link;
  --buffers_;
  --link->in_use;
  delete &buffer;
  if (!shares_ && link->owner != nullptr)
    world_.events.push_back([link] {
      if (link->owner != nullptr) link->side->core().on_reposted(*link->owner, 1);
    });
}

bool Side::hold(Link &link, bool held) {
  FUZZ_CHECK(link.owner != nullptr && link.held != held, "a link was held twice");
  link.held = held;
  return true;
}

Registration *Side::expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                           int &) {
  FUZZ_CHECK(link.owner != nullptr && link.side == this, "memory for a closed link");
  // Memory of operations with the honest peer must not be exposed to the attacker.
  const bool honest = link.other->side != nullptr;
  for (const Sent &s : sent)
    FUZZ_CHECK(restarted || honest || s.bytes == nullptr || s.bytes != iov.iov_base || s.to != 0,
               "a message to the honest peer is open to another");
  for (const auto &r : received)
    FUZZ_CHECK(
        restarted || honest || r->bytes == nullptr || r->bytes != iov.iov_base || r->source != 0,
        "a receive from the honest peer is open to another");
  const uint64_t key = ++last_key_;
  regions_[key] = {iov, access, &link};
  vector = {0, iov.iov_len, key};
  return reinterpret_cast<Registration *>(key);
}

void Side::conceal(Registration &registration) {
  FUZZ_CHECK(regions_.erase(reinterpret_cast<uint64_t>(&registration)) == 1,
             "a registration ended twice");
}

ssize_t Side::resolve(const RmaVector &v, uint64_t, iovec *iov, size_t room) {
  if (v.key != kCounterKey || v.address != 0 || v.length > sizeof counter || room == 0)
    return -FI_EACCES;
  iov[0] = {&counter, size_t(v.length)};
  return 1;
}

uint8_t *Side::reach(const Link &by, const RmaVector &v, uint64_t access) {
  if (v.key == kRegionKey)
    return v.address <= kRegionSize && v.length <= kRegionSize - v.address ? region + v.address
                                                                           : nullptr;
  const auto it = regions_.find(v.key);
  if (it == regions_.end() || it->second.link != &by || !(it->second.access & access) ||
      v.address > it->second.iov.iov_len || v.length > it->second.iov.iov_len - v.address)
    return nullptr;
  return static_cast<uint8_t *>(it->second.iov.iov_base) + v.address;
}

ssize_t Side::admit(Link &link) {
  FUZZ_CHECK(link.owner != nullptr && link.side == this, "a call with a closed link");
  FUZZ_CHECK(link.other != nullptr, "a call before the link was connected");
  if (!link.open) return -FI_ENOTCONN;
  if (link.other->side == nullptr && (world_.mute || !link.other->open)) return -FI_EAGAIN;
  if (link.sent.size() + link.reads.size() > 8) return -FI_EAGAIN;
  if (world_.stutter != 0 && ++world_.tries % world_.stutter == 0) return -FI_EAGAIN;
  return 0;
}

std::vector<uint8_t> Side::gather(const iovec *iov, size_t count) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < count; ++i) {
    const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
    bytes.insert(bytes.end(), at, at + iov[i].iov_len);
  }
  return bytes;
}

}  // namespace weft::rxm
