// SPDX-License-Identifier: BSD-2-Clause
// The carrier of a simulated peer: delivers bytes to the other end of a link after simulated
// delays.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "plugins/rxm/protocol/test_node.h"

namespace weft::rxm {

Link *Node::connect(Connection &owner, const sdk::Address &peer, std::span<const uint8_t> data,
                    int &err) {
  if (world_.chance(world_.faults)) {
    err = EMFILE;
    return nullptr;
  }
  Link *link = make(owner);
  const std::vector<uint8_t> bytes = said(data, 12);
  world_.after(1 + world_.some(50), [link, peer, bytes] {
    if (link->node != nullptr) link->node->arrive(*link, peer, bytes);
  });
  return link;
}

Link *Node::accept(Connection &owner, Request &request, std::span<const uint8_t> data, int &err) {
  if (world_.chance(world_.faults)) {
    err = ENOMEM;
    return nullptr;
  }
  request.answered = true;
  Link *link = make(owner), *from = request.from;
  link->is_quiet = core_->settings().asker_first;
  link->other = from;
  from->other = link;
  if (!from->open) {  // the requester gave up meanwhile
    link->inbox.clear();
    tell_closed(*from, false);
  }
  const std::vector<uint8_t> bytes = said(data, 8);
  const auto connected = [from, bytes] {
    if (from->owner != nullptr) from->node->core().on_connected(*from->owner, bytes);
    return true;
  };
  if (world_.slow_news != 0) {
    world_.after(1 + world_.some(world_.slow_news), connected);
  } else {
    deliver_to(*from, connected);
  }
  world_.after(1 + world_.some(20), [link] {
    if (link->owner != nullptr) link->node->core().on_connected(*link->owner, {});
  });
  return link;
}

void Node::reject(Request &request, std::span<const uint8_t> data) {
  if (std::exchange(request.answered, true)) return;
  Link *from = request.from;
  const std::vector<uint8_t> bytes(data.begin(), data.end());
  world_.after(1 + world_.some(20), [from, bytes] {
    if (from->owner != nullptr && std::exchange(from->open, false))
      from->node->core().on_refused(*from->owner, FI_ECONNREFUSED, bytes);
  });
}

void Node::close(Link &link, bool idle) {
  link.owner = nullptr;
  std::multiset<Token *> pending;
  pending.swap(link.pending);
  for (Token *token : pending)
    world_.after(1 + world_.some(10), [this, alive = alive_, token] {
      if (*alive) core_->on_sent(*token, FI_ECANCELED);
    });
  if (std::exchange(link.open, false)) tell_closed(link, !idle);
}

ssize_t Node::send(Link &link, const iovec *iov, void *const *, size_t count, uint32_t data,
                   uint64_t flags, Token *token) {
  if (const ssize_t rc = admit(link); rc != 0) return rc;
  EXPECT_LE(count, core_->settings().iov_limit);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < count; ++i) {
    const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
    bytes.insert(bytes.end(), at, at + iov[i].iov_len);
  }
  const bool bare = (flags & FI_REMOTE_CQ_DATA) != 0;
  EXPECT_LE(bytes.size(), (bare ? 0 : kHeaderSize) + core_->settings().eager_limit);
  EXPECT_EQ((flags & FI_COMPLETION) != 0, token != nullptr);
  if (flags & FI_DELIVERY_COMPLETE) ++world_.acknowledged;
  if (flags & kLater) {
    ++world_.later;
    EXPECT_TRUE(flags & FI_INJECT && token == nullptr);
  }
  const Node *peer = link.other->node;
  if (bare) {
    ++world_.bare;
    EXPECT_EQ(flags & kMarks, data == kBareUntagged ? FI_MSG : FI_TAGGED);
    EXPECT_TRUE(core_->settings().bare);
    EXPECT_TRUE(peer == nullptr || peer->core_->settings().bare) << "a peer that cannot read it";
  } else {
    note_packet(link, bytes, flags & kMarks);
  }
  if (token != nullptr) {
    link.pending.insert(token);
    const auto sent = [&link, token] { give_back(link, *token); };
    if (world_.slow != nullptr && world_.slow == link.other->node) {
      world_.put_off.push_back(sent);
    } else {
      world_.after(1 + world_.some(10), sent);
    }
  }
  Link *to = link.other;
  std::optional<uint32_t> said;
  if (bare) said = data;
  deliver_to(*to, [to, bytes = std::move(bytes), said] {
    return to->owner == nullptr || to->node->take(*to, bytes, said);
  });
  return 0;
}

// A packet with a header is about to leave.
void Node::note_packet(Link &link, std::vector<uint8_t> &bytes, uint64_t mark) {
  WireHeader header;
  ASSERT_GE(bytes.size(), sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto type = static_cast<PacketType>(header.type);
  const bool ends_message =
      type == PacketType::kEager ||
      (type == PacketType::kSegment && header.control_data == uint64_t(SegmentKind::kLast));
  const bool tagged = header.op == uint8_t(PacketOp::kTagged);
  const bool awaited = ends_message && header.flags & (kFlagTellDelivered | kFlagTellMatched);
  EXPECT_EQ(mark, !ends_message || awaited ? 0 : tagged ? FI_TAGGED : FI_MSG);
  const bool to_stock = link.other->node != nullptr && link.other->node->stock_;
  EXPECT_FALSE(to_stock && awaited);
  if (type == PacketType::kSegment) ++world_.segments;
  if (type == PacketType::kPart) ++world_.partings;
  EXPECT_FALSE(to_stock && (type == PacketType::kSegment || type == PacketType::kPart));
  if (to_stock) expect_understood(bytes);
  if (stock_ && type == PacketType::kSegment) reuse_ids(link, bytes);
}

ssize_t Node::read(Link &link, const iovec *iov, void *const *, size_t count, const RmaVector *from,
                   size_t n, uint64_t, Token *token) {
  EXPECT_EQ(n, 1u);
  if (const ssize_t rc = admit(link); rc != 0) return rc;
  link.pending.insert(token);
  const std::vector<iovec> into(iov, iov + count);
  Link *to = link.other;
  deliver_to(*to, [to, &link, into, vector = *from, token] {
    if (to->owner == nullptr) return true;
    std::vector<uint8_t> bytes;
    if (!to->node->peek(*to, vector, FI_REMOTE_READ, bytes)) {
      ADD_FAILURE() << "a read of memory that is not registered";
      return true;
    }
    to->node->deliver_to(link, [&link, into, bytes, token] {
      if (link.pending.count(token) == 0) return true;
      size_t at = 0;
      for (const iovec &v : into) {
        std::memcpy(v.iov_base, bytes.data() + at, v.iov_len);
        at += v.iov_len;
      }
      give_back(link, *token);
      return true;
    });
    return true;
  });
  return 0;
}

ssize_t Node::write(Link &link, const iovec *iov, void *const *, size_t count,
                    const RmaVector *to_vector, size_t n, uint64_t, uint64_t flags, Token *token) {
  EXPECT_EQ(n, 1u);
  if (const ssize_t rc = admit(link); rc != 0) return rc;
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < count; ++i) {
    const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
    bytes.insert(bytes.end(), at, at + iov[i].iov_len);
  }
  if ((flags & kMarks) != 0) ++world_.marked_writes;
  link.pending.insert(token);
  world_.after(1 + world_.some(10), [&link, token] { give_back(link, *token); });
  Link *to = link.other;
  deliver_to(*to, [to, bytes, vector = *to_vector] {
    if (to->owner == nullptr) return true;
    EXPECT_TRUE(to->node->poke(*to, vector, bytes));
    return true;
  });
  return 0;
}

void Node::release(Buffer &buffer) {
  buffer.bytes.clear();
  if (Link *link = buffer.link; link != nullptr) {
    --link->in_use;
    delete &buffer;
    world_.after(0, [link] {
      if (link->owner != nullptr) link->node->core().on_reposted(*link->owner, 1);
    });
    return;
  }
  free_.push_back(&buffer);
  // Waiting packets can be delivered now, but not from within a call of the Core.
  world_.after(0, [this, alive = alive_] {
    if (!*alive) return;
    for (size_t i = 0; i < world_.links.size(); ++i)
      if (world_.links[i]->node == this) pump(*world_.links[i]);
  });
}

bool Node::hold(Link &link, bool held) {
  if (!world_.holds) return false;
  link.held = held;
  if (held) return true;
  world_.after(0, [&link] {
    if (link.node != nullptr) pump(link);
  });
  return true;
}

Registration *Node::expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                           int &err) {
  if (world_.chance(world_.faults)) {
    err = ENOMEM;
    return nullptr;
  }
  const uint64_t key = ++last_key_;
  regions_[key] = {iov, access, &link};
  vector = {0, iov.iov_len, key};
  return reinterpret_cast<Registration *>(key);
}

ssize_t Node::resolve(const RmaVector &vector, uint64_t, iovec *iov, size_t) {
  if (vector.key == kWideKey && vector.address == 0 && vector.length == sizeof wide) {
    iov[0] = {wide, sizeof wide};
    return 1;
  }
  if (vector.key != kCounterKey || vector.address + vector.length > sizeof counter)
    return -FI_EACCES;
  iov[0] = {&counter, size_t(vector.length)};
  return 1;
}

void Node::set_deadline(uint64_t at) {
  const uint64_t mine = ++deadline_;
  if (at == 0) return;
  const uint64_t ticks = at / 1000 + 1;
  world_.after(ticks > world_.now ? ticks - world_.now : 1, [this, alive = alive_, mine] {
    if (*alive && mine == deadline_) core_->on_deadline();
  });
}

void Node::expect_understood(const std::vector<uint8_t> &bytes) {
  WireHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.type == uint8_t(PacketType::kRendezvous)) {
    EXPECT_NE(header.size, 0u);
  }
  if (header.type == uint8_t(PacketType::kAtomic)) {
    EXPECT_TRUE(sdk::stock_executes(header.atomic.operation, header.atomic.datatype));
  }
}

void Node::reuse_ids(Link &link, std::vector<uint8_t> &bytes) {
  WireHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto kind = SegmentKind(header.control_data & 3);
  const uint64_t id = header.message;
  if (kind == SegmentKind::kFirst) {
    uint64_t lowest = 0;
    while (std::ranges::any_of(link.segmented,
                               [&](const auto &used) { return used.second == lowest; }))
      ++lowest;
    link.segmented[id] = lowest;
  }
  header.message = link.segmented.at(id);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (kind == SegmentKind::kLast) link.segmented.erase(id);
}

std::vector<uint8_t> Node::said(std::span<const uint8_t> data, size_t at) const {
  std::vector<uint8_t> bytes(data.begin(), data.end());
  const uint32_t count = 4096;
  if (stock_) std::memcpy(bytes.data() + at, &count, sizeof count);
  return bytes;
}

Link *Node::make(Connection &owner) {
  world_.links.push_back(std::make_unique<Link>());
  Link *link = world_.links.back().get();
  link->node = this;
  link->owner = &owner;
  return link;
}

void Node::arrive(Link &link, const sdk::Address &peer, const std::vector<uint8_t> &bytes) {
  if (!link.open) return;
  const auto it = world_.listening.find(peer.port());
  if (it == world_.listening.end()) {
    if (std::exchange(link.open, false)) core_->on_refused(*link.owner, FI_ECONNREFUSED, {});
    return;
  }
  if (world_.chance(world_.crowd)) {
    if (std::exchange(link.open, false))
      core_->on_refused(*link.owner, FI_ECONNRESET, {}, /*passes=*/true);
    return;
  }
  Request request{it->second, &link, false};
  sdk::Address from = world_.address_of(number_);
  from = *from.with_port(uint16_t(40000 + world_.some(1000)));
  it->second->core().on_request(request, from, peer, bytes);
  EXPECT_TRUE(request.answered);
}

ssize_t Node::admit(Link &link) {
  EXPECT_FALSE(link.is_quiet) << "the side that accepted has sent first";
  EXPECT_NE(link.other, nullptr);
  if (!link.open) return -FI_ENOTCONN;
  if (world_.mute == this || world_.chance(world_.eagain) || link.pending.size() > 8)
    return -FI_EAGAIN;
  return 0;
}

void Node::give_back(Link &link, Token &token) {
  const auto it = link.pending.find(&token);
  if (it == link.pending.end() || link.node == nullptr) return;
  link.pending.erase(it);
  link.node->core().on_sent(token, 0);
}

void Node::deliver_to(Link &to, std::function<bool()> what) {
  to.last_arrival = std::max(to.last_arrival, world_.now + world_.some(30)) + 1;
  world_.after(to.last_arrival - world_.now, [&to, what = std::move(what)] {
    to.inbox.push_back(what);
    pump(to);
  });
}

void Node::pump(Link &link) {
  if (link.busy) return;
  link.busy = true;
  while (!link.inbox.empty() && link.inbox.front()()) link.inbox.pop_front();
  link.busy = false;
}

void Node::tell_closed(Link &link, bool reset) {
  Link *other = link.other;
  if (other == nullptr || world_.silent) return;
  const auto closed = [other] {
    if (other->owner != nullptr && std::exchange(other->open, false))
      other->node->core().on_closed(*other->owner, FI_ECONNRESET);
    return true;
  };
  if (reset && world_.chance(50)) {  // the reset overtakes sent packets
    world_.after(1, [other, closed] {
      if (!other->busy) other->inbox.clear();
      closed();
    });
  } else {
    deliver_to(*other, closed);
  }
}

bool Node::take(Link &link, const std::vector<uint8_t> &bytes, std::optional<uint32_t> data) {
  const auto is_kept = [&](Buffer &buffer) {
    return data ? core_->on_bare_message(*link.owner, buffer.bytes, *data, buffer)
                : core_->on_packet(*link.owner, buffer.bytes, buffer);
  };
  link.is_quiet = false;
  if (core_->settings().credits) {
    EXPECT_LE(++link.in_use, core_->settings().receive_count) << "more packets than credits";
    auto *own = new Buffer{bytes, &link};
    if (!is_kept(*own)) release(*own);
    return true;
  }
  if (free_.empty() || link.held) return false;
  Buffer *buffer = free_.back();
  free_.pop_back();
  buffer->bytes = bytes;
  if (!is_kept(*buffer)) release(*buffer);
  return true;
}

bool Node::peek(const Link &by, const RmaVector &v, uint64_t access, std::vector<uint8_t> &out) {
  const auto it = regions_.find(v.key);
  if (it == regions_.end() || it->second.link != &by || !(it->second.access & access) ||
      v.address + v.length > it->second.iov.iov_len)
    return false;
  const auto *at = static_cast<const uint8_t *>(it->second.iov.iov_base) + v.address;
  out.assign(at, at + v.length);
  return true;
}

bool Node::poke(const Link &by, const RmaVector &v, const std::vector<uint8_t> &bytes) {
  const auto it = regions_.find(v.key);
  if (it == regions_.end() || it->second.link != &by || !(it->second.access & FI_REMOTE_WRITE) ||
      v.address + v.length > it->second.iov.iov_len)
    return false;
  std::memcpy(static_cast<uint8_t *>(it->second.iov.iov_base) + v.address, bytes.data(),
              bytes.size());
  return true;
}

}  // namespace weft::rxm
