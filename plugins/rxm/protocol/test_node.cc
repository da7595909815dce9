// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/test_node.h"

#include <gtest/gtest.h>

#include <cstring>

#include "plugins/rxm/protocol/test_atomic.h"

namespace weft::rxm {

Node::Node(World &world, size_t number, uint32_t process, const Settings &base,
           std::vector<Sent> &sent, bool stock)
    : world_(world), number_(number), stock_(stock), sent_(sent), receiver_(*this, {.size = 4096}) {
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.size = 64;
  cq_ = *sdk::Cq::open(domain_.context, &attr, nullptr);
  receiver_.cq = cq_;
  Settings settings = base;
  settings.process = process;
  if (stock) {
    settings.max_connections = 0;
    settings.bare = false;
  }
  core_ = std::make_unique<Core>(*this, *this, settings);
  core_->set_own_address(world.address_of(number));
  buffers_.resize(12);
  for (Buffer &b : buffers_) free_.push_back(&b);
  world.listening[world.address_of(number).port()] = this;
}

Node::~Node() {
  world_.listening.erase(world_.address_of(number_).port());
  core_->abandon();
  receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
    receiver_.forget(m);
    core_->discard(static_cast<RxMessage &>(m));
  });
  for (auto &link : world_.links) {
    if (link->node != this) continue;
    link->node = nullptr;
    link->owner = nullptr;
    link->pending.clear();
    if (std::exchange(link->open, false)) tell_closed(*link, true);
  }
  EXPECT_EQ(core_->unexpected_bytes(), 0u);
  EXPECT_EQ(core_->counters().violations.value(), violations);
  core_.reset();
  EXPECT_TRUE(regions_.empty()) << "registrations left over";
  fi_close(cq_->base());
}

void Node::send(size_t to, size_t length, bool tagged, unsigned kind) {
  TxOp *op = core_->take();
  if (op == nullptr) return;
  const uint64_t id = sent_.size();
  const bool has_data = (!tagged && length < kIdSize) || !world_.chance(world_.without_data);
  Sent record{.from = number_,
              .to = to,
              .tagged = tagged,
              .has_data = has_data,
              .length = length,
              .bytes = {}};
  record.bytes.resize(length);
  for (size_t i = 0; i < length; ++i) record.bytes[i] = pattern(id, i);
  sent_.push_back(std::move(record));
  op->context = reinterpret_cast<void *>(id + 1);
  op->length = length;
  op->tag = tag_of(id);
  op->data = id;
  op->inject = kind == kInjected && length <= 64;
  op->fence = kind == kFenced;
  uint8_t *bytes = sent_[id].bytes.data();
  op->iov[0] = {bytes, length};
  op->count = 1;
  if (kind == kThreeVectors) {
    const size_t third = length / 3;
    op->iov[0] = {bytes, third};
    op->iov[1] = {bytes + third, third};
    op->iov[2] = {bytes + 2 * third, length - 2 * third};
    op->count = 3;
  }
  core_->prepare_message(*op, tagged, has_data,
                         kind == kUntilDelivered ? Tell::kDelivered
                         : kind == kUntilMatched ? Tell::kMatched
                                                 : Tell::kNothing);
  go(*op, to, id);
}

void Node::add(size_t to, uint64_t *result, uint64_t key) {
  TxOp *op = core_->take();
  if (op == nullptr) return;
  const uint64_t id = sent_.size();
  sent_.push_back({.from = number_, .to = to, .message = false, .bytes = {}});
  op->context = reinterpret_cast<void *>(id + 1);
  prepare_fetch_add(*core_, *op, result, key);
  go(*op, to, id);
}

void Node::add_wide(size_t to, uint64_t key) {
  TxOp *op = core_->take();
  if (op == nullptr) return;
  const uint64_t id = sent_.size();
  sent_.push_back({.from = number_, .to = to, .message = false, .bytes = {}});
  op->context = reinterpret_cast<void *>(id + 1);
  uint8_t one[16] = {1};
  const fi_ioc operand{one, 1};
  const fi_rma_ioc target{0, 1, key};
  core_->prepare_atomic(*op,
                        {.kind = sdk::AtomicKind::kWrite,
                         .datatype = FI_UINT128,
                         .op = FI_SUM,
                         .operands = &operand,
                         .operand_count = 1,
                         .rma = &target,
                         .rma_count = 1,
                         .elements = 1},
                        16);
  go(*op, to, id);
}

void Node::post(size_t length, bool tagged, std::optional<uint64_t> only) {
  memory_.push_back(std::make_unique<std::vector<uint8_t>>(length));
  const iovec iov{memory_.back()->data(), length};
  const size_t context = memory_.size();
  ASSERT_EQ(receiver_.post({.tagged = tagged,
                            .iov = &iov,
                            .count = 1,
                            .tag = only ? tag_of(*only) : 0,
                            .ignore = only ? 0 : ~UINT64_C(0),
                            .context = reinterpret_cast<void *>(context)}),
            0);
}

void Node::say(const std::vector<uint8_t> &bytes, std::optional<uint32_t> data) {
  for (const auto &link : world_.links) {
    if (link->node != this || link->owner == nullptr || !link->open) continue;
    Link *to = link->other;
    deliver_to(*to, [to, bytes, data] {
      return to->owner == nullptr || to->node->take(*to, bytes, data);
    });
    return;
  }
  FAIL() << "no link is open";
}

void Node::discard_saved() {
  receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
    receiver_.forget(m);
    discard(m);
  });
}

size_t Node::memory_of_saved() {
  size_t n = 0;
  receiver_.visit_unexpected(sdk::Matcher::kAnySource, [&n](sdk::Unexpected &m) {
    n += static_cast<RxMessage &>(m).parts.capacity();
  });
  return n;
}

void Node::expect_named() {
  receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
    EXPECT_EQ(m.message.source, core_->source_of(*static_cast<RxMessage &>(m).from));
  });
}

void Node::knock(uint16_t port, uint32_t process) {
  world_.links.push_back(std::make_unique<Link>());
  Link &link = *world_.links.back();
  const ConnectBytes bytes = encode(
      ConnectData{.port = port, .eager_limit = core_->settings().eager_limit, .process = process});
  Request request{this, &link, false};
  core_->on_request(request, world_.address_of(number_), world_.address_of(number_), bytes);
  EXPECT_TRUE(request.answered);
}

void Node::reap() {
  fi_cq_tagged_entry e{};
  for (;;) {
    const ssize_t n = cq_->read(&e, 1);
    if (n == 1) {
      note(e);
    } else if (n == -FI_EAVAIL) {
      fi_cq_err_entry err{};
      ASSERT_EQ(cq_->readerr(&err, 0), 1);
      if (err.err == FI_ETRUNC) {
        const uint64_t id = note({err.op_context, err.flags, err.len, err.buf, err.data, err.tag});
        EXPECT_EQ(err.len + err.olen, sent_[id].length);
      } else {
        ++broken;
      }
    } else {
      return;
    }
  }
}

void Node::on_done(TxOp &op, int err) {
  Sent &record = sent_[reinterpret_cast<uint64_t>(op.context) - 1];
  EXPECT_EQ(++record.ended, 1);
  record.err = err;
}

uint32_t Node::index_of(const sdk::Address &address) {
  const size_t n = address.port() - 5000u;
  return knows(n) ? uint32_t(n) : kNoIndex;
}

void Node::go(TxOp &op, size_t to, uint64_t id) {
  introduce(to);
  const sdk::Address address = world_.address_of(to);
  const int rc = core_->start(op, uint32_t(to), &address);
  if (rc == 0) return;
  sent_[id].ended = 1;
  sent_[id].err = -rc;
  core_->give(op);
}

uint64_t Node::note(const fi_cq_tagged_entry &e) {
  const auto receive = size_t(e.op_context);
  const std::vector<uint8_t> &bytes = *memory_[receive - 1];
  const bool has_data = (e.flags & FI_REMOTE_CQ_DATA) != 0;
  uint64_t id = has_data ? e.data : id_of_tag(e.tag);
  if (!has_data && (e.flags & FI_TAGGED) == 0) std::memcpy(&id, bytes.data(), kIdSize);
  Sent &s = sent_.at(id);
  EXPECT_EQ(s.to, number_);
  EXPECT_EQ(++s.arrived, 1);
  EXPECT_EQ((e.flags & FI_TAGGED) != 0, s.tagged) << id;
  EXPECT_EQ(e.tag, s.tagged ? tag_of(id) : 0) << id;
  EXPECT_EQ(has_data, s.has_data) << id;
  EXPECT_EQ(e.data, has_data ? id : 0) << id;
  received.emplace_back(receive, id);
  for (size_t i = 0; i < e.len; ++i) {
    if (bytes[i] == pattern(id, i)) continue;
    ADD_FAILURE() << "message " << id << " is another one at byte " << i;
    break;
  }
  return id;
}

}  // namespace weft::rxm
