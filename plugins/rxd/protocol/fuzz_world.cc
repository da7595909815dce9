// SPDX-License-Identifier: BSD-2-Clause
// The application of a fuzzed endpoint, its checks, and the network between endpoints.
#include "plugins/rxd/protocol/fuzz_world.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::rxd::fuzz {

weft::fuzz::Tally &thief_tally() {
  static weft::fuzz::Tally tally("thief");
  return tally;
}

weft::fuzz::Tally &relay_tally() {
  static weft::fuzz::Tally tally("relay");
  return tally;
}

Node::~Node() {
  core_->shut_down(FI_ECANCELED);
  receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
    receiver_.forget(m);
    core_->discard(static_cast<Incoming &>(m));
  });
  reap();
  FUZZ_CHECK(core_->inbox().in_use() == 0, "messages are left over");
  FUZZ_CHECK(core_->inbox().bytes() == 0, "bytes of messages are left over");
  FUZZ_CHECK(core_->in_flight() == 0, "operations are left over");
  FUZZ_CHECK(core_->notes() == 0, "notes about packets or answers are left over");
  FUZZ_CHECK(operations_.empty(), "operations have not ended");
  FUZZ_CHECK(buffers_.empty(), "datagrams are left over");
  FUZZ_CHECK(receives_.size() == receiver_.posted(), "receives are lost");
  core_.reset();
  FUZZ_CHECK(paths_ == 0, "paths are left over");
  for (auto &[id, receive] : receives_) memory_.take_back(receive.memory);
  while (!regions_.empty()) close_region(regions_.begin()->first);
  FUZZ_CHECK(memory_.lent() == 0, "memory is left over");
  av_->remove_user(*this);
  fi_close(av_->base());
  fi_close(cq_->base());
}

void Node::start(const Start &s) {
  if (memory_.blocks() > most_blocks) return;
  TxOp *op = core_->take();
  if (op == nullptr) return;
  const uint64_t id = ++ids_;
  Operation made{
      .start = s, .memory = memory_.lend(s.length, uint8_t(id)), .promise = world_.pair.now()};
  op->kind = s.kind;
  op->context = context_of(id);
  op->length = s.length;
  op->tagged = s.tagged;
  op->tag = s.tag;
  op->delivery = s.delivery;
  op->transmit = s.transmit;
  op->fence = s.fence;
  op->more = s.more;
  const size_t half = s.length / 3;
  op->iov[0] = {made.memory, half};
  op->iov[1] = {made.memory + half, s.length - half};
  op->count = 2;
  switch (s.kind) {
    case TxOp::Kind::kMessage:
      if (s.mark != 0) {
        op->has_data = true;
        op->data = s.mark;
      }
      if (is_thief || !World::honest(s.to)) break;
      made.letter = world_.letters.size();
      op->has_data = true;
      op->data = op->tag = made.letter;
      op->tagged = true;
      for (size_t i = 0; i < s.length; ++i) made.memory[i] = pattern(made.letter, i);
      break;
    case TxOp::Kind::kRead:
    case TxOp::Kind::kWrite:
      op->vectors[0] = {s.at, half, s.key};
      op->vectors[1] = {s.at + half, s.length - half, s.key};
      op->vector_count = 2;
      break;
    case TxOp::Kind::kAtomic:
      op->atomic = s.fetches ? sdk::AtomicKind::kFetch : sdk::AtomicKind::kWrite;
      op->datatype = FI_UINT64;
      op->op = FI_SUM;
      op->length = 8;
      std::memset(op->bytes, 1, 8);
      op->iov[0] = {op->bytes, 8};
      op->count = 1;
      op->vectors[0] = {s.at, 8, s.key};
      op->vector_count = 1;
      if (s.fetches) {
        made.results = memory_.lend(8, 0);
        op->results[0] = {made.results, 1};
        op->result_count = 1;
      }
      break;
  }
  if (s.inject && s.kind != TxOp::Kind::kRead && s.length <= 4096) core_->own_data(*op);
  if (made.letter != UINT64_MAX)
    world_.letters.push_back(
        {.from = number_, .to = s.to, .length = s.length, .promise = made.promise});
  // The operation may end before start() returns.
  operations_.emplace(id, made);
  const sdk::Address address = address_of(s.to);
  name(s.to, true);
  const int rc = core_->start(*op, av_->find(address), &address);
  settle();
  wake();
  idle_ = 0;
  if (rc == 0) return;
  FUZZ_CHECK(is_thief || !World::honest(s.to),
             "an operation to an honest peer could not be started");
  core_->give(*op);
  operations_.erase(id);
  memory_.take_back(made.memory);
  if (made.results != nullptr) memory_.take_back(made.results);
}

void Node::on_done(TxOp &op, int err) {
  const auto it = operations_.find(id_of(op.context));
  FUZZ_CHECK(it != operations_.end(), "an operation ended that was not under way");
  const Operation &o = it->second;
  if (is_thief) ++(err == 0 ? thief_tally().accepted : thief_tally().refused);
  if (o.start.to == World::kRelay) ++(err == 0 ? relay_tally().accepted : relay_tally().refused);
  FUZZ_CHECK(err != 0 || o.start.to != World::kRelay || !world_.pair.keyed || is_thief,
             "an operation to a process without the key succeeds");
  if (is_promised(o)) {
    // An operation may time out if the network took no datagrams for long.
    const bool excused = err == FI_ETIMEDOUT && world_.now - refused_at_ < 500'000'000;
    FUZZ_CHECK(err == 0 || err == FI_ECANCELED || excused || o.start.key == kWritable,
               "an operation between honest peers failed");
    if (excused && o.letter != UINT64_MAX) world_.letters[o.letter].failed = true;
    if (o.start.kind == TxOp::Kind::kRead && o.start.key == kReadable && err == 0)
      for (size_t i = 0; i < o.start.length; ++i)
        FUZZ_CHECK(o.memory[i] == pattern(o.start.to, o.start.at + i),
                   "a read brought other bytes");
    if (o.letter != UINT64_MAX && o.start.delivery && err == 0)
      FUZZ_CHECK(op.length == o.start.length, "a message has another length");
  } else if (err != 0 && o.letter != UINT64_MAX) {
    world_.letters[o.letter].failed = true;
  }
  memory_.take_back(o.memory);
  if (o.results != nullptr) memory_.take_back(o.results);
  operations_.erase(it);
}

void Node::post(const Post &wanted) {
  if (memory_.blocks() > most_blocks) return;
  Post p = wanted;
  if (buffered_.on) {
    if (!p.tagged) return;  // such messages need no receives, and others no memory
    p.length = 0;
    p.multi = p.split = false;
  }
  if (p.from != 0) name(p.from, true);
  const fi_addr_t from = p.from == 0 ? FI_ADDR_UNSPEC : fi_addr_t(av_->find(address_of(p.from)));
  const uint64_t id = ++ids_;
  Receive made{.post = p, .memory = memory_.lend(p.length, 0x5c)};
  const size_t half = p.split ? p.length / 2 : p.length;
  const iovec iov[] = {{made.memory, half}, {made.memory + half, p.length - half}};
  receives_.emplace(id, made);
  const ssize_t rc = receiver_.post({.tagged = p.tagged,
                                     .iov = iov,
                                     .count = size_t(p.split ? 2 : 1),
                                     .src = from,
                                     .tag = p.tag,
                                     .ignore = p.ignore,
                                     .flags = p.multi ? uint64_t(FI_MULTI_RECV) : 0,
                                     .context = context_of(id)});
  if (rc != 0) end_receive(id);
  settle();
  wake();
  if (reads) reap();
}

void Node::look(uint64_t flags) {
  const uint64_t id = ++ids_;
  const ssize_t rc = receiver_.post({.flags = FI_PEEK | flags, .context = context_of(id)});
  if (rc == 0) looks_[id] = flags;
  settle();
  if (reads) reap();
}

void Node::claim(size_t length) {
  if (claims_.empty()) return;
  const uint64_t id = claims_.front();
  if (length == 0) {
    const ssize_t rc = receiver_.post({.flags = FI_CLAIM | FI_DISCARD, .context = context_of(id)});
    if (rc == -FI_EAGAIN) return;  // the completion queue has no room
    FUZZ_CHECK(rc == 0, "a message that was claimed is not there");
    looks_[id] = FI_DISCARD;
  } else {
    Receive made{.post = {.length = length}, .memory = memory_.lend(length, 0x5c)};
    const iovec iov{made.memory, length};
    receives_.emplace(id, made);
    const ssize_t rc =
        receiver_.post({.iov = &iov, .count = 1, .flags = FI_CLAIM, .context = context_of(id)});
    if (rc != 0) return end_receive(id);
  }
  claims_.pop_front();
  settle();
  if (reads) reap();
}

void Node::cancel(size_t which) {
  std::vector<uint64_t> all;
  for (const auto &[id, r] : receives_)
    if (r.post.from == 0 || !World::honest(r.post.from)) all.push_back(id);
  if (all.empty()) return;
  receiver_.cancel(context_of(all[which % all.size()]));
  settle();
  if (reads) reap();
}

bool Node::settle_told(size_t which, size_t length, bool discard) {
  if (notices_.empty()) return false;
  weft::fuzz::Notice n = notices_.take(which);
  const uint64_t id = ++ids_;
  Receive made{.post = {.from = n.who, .length = length, .tagged = n.tagged},
               .memory = memory_.lend(length, 0x5c)};
  if (World::honest(n.who) && n.who != 0) made.letter = n.data;
  const iovec iov{made.memory, length};
  receives_.emplace(id, made);
  void *const before = std::exchange(n.context->context, context_of(id));
  const ssize_t rc = receiver_.post({.tagged = n.tagged,
                                     .iov = &iov,
                                     .count = 1,
                                     .flags = discard ? FI_DISCARD : FI_CLAIM,
                                     .context = n.context});
  if (rc == 0 && discard && made.letter != UINT64_MAX)
    if (Letter *letter = letter_of(made.letter, made.post.from))
      FUZZ_CHECK(++letter->arrived == 1, "a message came twice");
  if (rc != 0 || discard) end_receive(id);
  if (rc != 0) {
    FUZZ_CHECK(rc == -FI_EAGAIN, "a message could not be claimed or discarded");
    n.context->context = before;
    notices_.put_back(std::move(n));
    return false;
  }
  settle();
  if (reads) reap();
  return true;
}

// The receiver tells of a message that it has.
void Node::noticed(const fi_cq_tagged_entry &e, fi_addr_t from) {
  weft::fuzz::Notice &n = notices_.add(e, from, buffered_.min);
  FUZZ_CHECK(n.more == (n.length > buffered_.limit), "a message is not where it should be");
  if (!n.tagged) return;
  const auto tag = receives_.find(id_of(n.context->context));
  FUZZ_CHECK(tag != receives_.end(), "a notice without a tag");
  n.who =
      uint8_t(tag->second.post.from != 0 && !world_.pair.acted ? tag->second.post.from
                                                               : sender_of(e.flags, e.data, from));
  if (Letter *letter =
          World::honest(n.who) && n.who != 0 ? letter_of(n.data, uint8_t(n.who)) : nullptr) {
    FUZZ_CHECK(++letter->told == 1, "a message came twice");
    FUZZ_CHECK(n.length == letter->length, "a message of another length");
    for (size_t i = 0; i < n.bytes.size(); ++i)
      FUZZ_CHECK(n.bytes[i] == pattern(n.data, i), "a message of other bytes");
  }
  end_receive(tag->first);
}

void Node::end_receive(uint64_t id) {
  const auto it = receives_.find(id);
  memory_.take_back(it->second.memory);
  receives_.erase(it);
}

void Node::received(const fi_cq_tagged_entry &e, fi_addr_t from) {
  const uint64_t id = id_of(e.op_context);
  if (buffered_.on && !looks_.contains(id) && !receives_.contains(id)) return noticed(e, from);
  if (const auto look = looks_.find(id); look != looks_.end()) {
    if ((look->second & FI_CLAIM) != 0) claims_.push_back(id);
    looks_.erase(look);
    return;
  }
  const auto it = receives_.find(id);
  FUZZ_CHECK(it != receives_.end(), "a receive was reported that was not posted");
  Receive &r = it->second;
  FUZZ_CHECK(e.len <= r.post.length - r.at, "more was received than there is room");
  const uint8_t *at = r.memory + r.at;
  if (e.buf != nullptr && r.post.multi) at = static_cast<const uint8_t *>(e.buf);
  FUZZ_CHECK(e.len == 0 || (at >= r.memory && at + e.len <= r.memory + r.post.length),
             "a message lies outside of its buffer");
  const bool directed = World::honest(r.post.from) && r.post.from != 0;
  const bool by_source = world_.pair.acted && (directed || e.flags & FI_TAGGED);
  arrived(r, by_source ? sender_of(e.flags, e.data, from) : r.post.from, e.data, at, e.len);
  if (!r.post.multi || (e.flags & FI_MULTI_RECV) != 0) end_receive(id);
}

uint16_t Node::sender_of(uint64_t flags, uint64_t data, fi_addr_t from) const {
  const Pair &pair = world_.pair;
  const uint16_t number = number_of(from);
  const bool is_honest = number != 0 && World::honest(number);
  const uint64_t mark = (flags & FI_REMOTE_CQ_DATA) != 0 ? data >> 32 << 32 : 0;
  if (is_thief) return 0;
  FUZZ_CHECK(is_honest || !pair.keyed, "a message of a process without the key");
  if (mark == kStolen) {
    ++thief_tally().told;
    FUZZ_CHECK(!is_honest ||
                   (number == World::kMortal && (pair.apart || uint32_t(data) < pair.old_stolen)),
               "a message of the thief under another's name");
    return 0;
  }
  if (mark == kRelayed) {
    ++relay_tally().told;
    FUZZ_CHECK(!pair.keyed, "a message by way of a process without the key");
    FUZZ_CHECK(!is_honest || number == uint32_t(data), "a message under another's name");
    return 0;
  }
  return is_honest ? number : uint16_t{0};
}

Letter *Node::letter_of(uint64_t data, uint16_t from) {
  FUZZ_CHECK(data < world_.letters.size(), "a message that was never sent");
  Letter &letter = world_.letters[data];
  FUZZ_CHECK(letter.from == from && letter.to == number_, "a message of another sender");
  const bool is_mortals = from == World::kMortal || number_ == World::kMortal;
  if (is_mortals && letter.promise.life == world_.pair.life) world_.pair.meet();
  return world_.promises(from, number_, letter.promise) ? &letter : nullptr;
}

void Node::arrived(const Receive &r, uint16_t from, uint64_t data, const uint8_t *at, size_t n) {
  if (!World::honest(from) || from == 0 || is_thief) return;
  FUZZ_CHECK(r.letter == UINT64_MAX || r.letter == data, "another message was claimed");
  Letter *letter = letter_of(data, from);
  if (letter == nullptr) return;
  FUZZ_CHECK(++letter->arrived == 1, "a message came twice");
  FUZZ_CHECK(n == std::min(letter->length, r.post.length), "a message of another length");
  for (size_t i = 0; i < n; ++i) FUZZ_CHECK(at[i] == pattern(data, i), "a message of other bytes");
}

void Node::reap() {
  fi_cq_tagged_entry e{};
  fi_addr_t from = 0;
  for (;;) {
    const ssize_t n = cq_->readfrom(&e, 1, &from);
    if (n == 1) {
      received(e, from);
      continue;
    }
    if (n != -FI_EAVAIL) return;
    fi_cq_err_entry err{};
    FUZZ_CHECK(cq_->readerr(&err, 0) == 1, "an error that is not there");
    const uint64_t id = id_of(err.op_context);
    if (looks_.erase(id) != 0) continue;
    const auto it = receives_.find(id);
    FUZZ_CHECK(it != receives_.end(), "a receive failed that was not posted");
    FUZZ_CHECK(!World::honest(it->second.post.from) || it->second.post.from == 0 ||
                   err.err == FI_ECANCELED || err.err == FI_ETRUNC || is_thief ||
                   (it->second.post.from == World::kMortal && world_.pair.life != 0),
               "a receive from an honest peer failed");
    if (buffered_.on && err.err == FI_ETRUNC)
      arrived(it->second, it->second.post.from, err.data, it->second.memory, err.len);
    if (!it->second.post.multi || (err.flags & FI_MULTI_RECV) != 0) end_receive(id);
  }
}

void Node::progress() {
  woken_ = false;
  core_->set_full(cq_->full());
  const bool came = !inbox_.empty();
  const bool named = named_;  // all of this was read at once
  while (!inbox_.empty()) {
    auto buffer = std::make_unique<Buffer>();
    const uint16_t from = inbox_.front().first;
    buffer->bytes = std::move(inbox_.front().second);
    inbox_.pop_front();
    Buffer *b = buffer.get();
    buffers_[b] = std::move(buffer);
    if (!core_->on_datagram(b->bytes, *b, named ? path_to(from) : nullptr)) buffers_.erase(b);
    settle();
  }
  if (!came) core_->on_idle();
  core_->poll();
  settle();
  if (reads) reap();
  idle_ = came || cq_->full() || full ? 0 : idle_ + 1;
  if (idle_ < 5) wake();
}

void Node::check_rest() {
  FUZZ_CHECK(operations_.empty(), "an operation never ends");
}

World::~World() {
  strangers.clear();  // they are gone, and the nodes still send
  nodes.clear();
}

Node &World::add(uint16_t number, const Settings &settings, const Buffered &buffered) {
  return *(nodes[number] = std::make_unique<Node>(*this, number, settings, buffered));
}

// Stock does not take an RTS for a restart: it answers and goes on. Nor does it send an RTS to a
// peer that it talks with. The weft endpoint that plays stock does both, so the network answers
// such an RTS in its place. True: it was such an RTS.
bool World::goes_on(uint16_t from, uint16_t to, std::span<const uint8_t> bytes) {
  const stock::Parsed parsed = stock::parse(bytes, FI_SOCKADDR_IP);
  if (parsed.reject != stock::Reject::kNone) return false;
  const stock::Packet &p = parsed.packet;
  uint32_t &own = from == kStock ? stock_number_ : number_there_;
  const uint32_t others = from == kStock ? number_there_ : stock_number_;
  if (p.type == stock::Type::kRts || p.type == stock::Type::kCts) own = uint32_t(p.index);
  if (p.type != stock::Type::kRts || others == 0) return false;
  std::vector<uint8_t> answer(stock::kMaxHeader);
  answer.resize(stock::encode(
      {.type = stock::Type::kCts, .peer = uint32_t(p.index), .index = others, .rts_index = p.index},
      std::span<uint8_t, stock::kMaxHeader>(answer)));
  carry(to, from, std::move(answer));
  return true;
}

void World::carry(uint16_t from, uint16_t to, std::vector<uint8_t> bytes) {
  if (std::getenv("TRACE") != nullptr)
    std::fprintf(stderr, "%.3f ms: %d to %d: %zu bytes, %02x %02x %02x %02x\n", double(now) / 1e6,
                 from, to, bytes.size(), bytes[0], bytes.size() > 1 ? bytes[1] : 0,
                 bytes.size() > 2 ? bytes[2] : 0, bytes.size() > 3 ? bytes[3] : 0);
  // Remove the mark, so that no receiver takes the RTS for a weft endpoint's.
  if ((from == kStock || to == kStock) && bytes.size() >= 16 && bytes[0] == stock::kVersion &&
      bytes[1] == uint8_t(stock::Type::kRts))
    std::fill_n(bytes.begin() + 8, 8, uint8_t{0});
  if (const auto stranger = strangers.find(to); stranger != strangers.end())
    return stranger->second->hear(from, std::move(bytes));
  if ((from == kStock || to == kStock) && goes_on(from, to, bytes)) return;
  if (honest(from) && honest(to) && losses != 0) {
    --losses;
    return;
  }
  after(honest(from) ? 10'000 : 1000, [this, from, to, bytes = std::move(bytes)]() mutable {
    // Who has no key cannot tell whether a relay has passed on a request for another connection.
    if (from == kRelay && !pair.keyed) pair.part();
    if (Node *n = node(to)) n->arrive(from, std::move(bytes));
  });
}

}  // namespace weft::rxd::fuzz
