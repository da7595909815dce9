// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/peer_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::cxi {
namespace {

constexpr size_t kSpare = 64, kSpareSmall = 1024, kSmallCopy = 256;  // copies, and their bytes
constexpr size_t kFewAcks = 64, kMostBeforeAcks = 256;
// Frames that have left, before the others move up; places that a stream without any may have.
constexpr size_t kMostGone = 1024, kMostIdle = 4096;

// A process of another host reaches the NIC that it has called, and speaks for its own.
bool is_within(const PeerStream::Ends &ends, const Packet &packet) {
  return ends.may_ask && packet.to.nid == ends.here && packet.source == ends.there &&
         is_of(packet.initiator, ends.there);
}

}  // namespace

// ---- out ----

void PeerStream::push(Item item) {
  if (item.is_reply) reply_bytes_ += size_of(item);
  if (item.is_ack) ++acks_;
  items_.push_back(std::move(item));
}

void PeerStream::send(const Packet &packet) {
  Item item;
  write_head(packet, item.head);
  item.bytes = bytes_behind(packet);
  if (item.bytes <= kShort && item.bytes != 0) {
    if (!spare_.empty()) {
      item.copy = std::move(spare_.back());
      spare_.pop_back();
    }
    const auto *const bytes = static_cast<const uint8_t *>(packet.bytes);
    if (packet.place == nullptr) {
      item.copy.assign(bytes, bytes + item.bytes);
    } else {
      item.copy.resize(item.bytes);
      item.good = sdk::hmem_copy(item.copy.data(), nullptr, bytes, packet.place, item.bytes);
    }
  } else {
    item.token = packet.token;
  }
  note(packet.token);
  push(std::move(item));
}

// Whose question it is; null: nobody's.
PeerStream *PeerStream::asker(uint64_t token) {
  if (has_asked(token)) return this;
  return partner_ != nullptr && partner_->has_asked(token) ? partner_ : nullptr;
}

void PeerStream::note(uint64_t token) {
  const size_t slot = Engine::slot_of(token);
  if (slot >= asked_.size()) asked_.resize(std::max(slot + 1, 2 * asked_.size()));
  // Of two, the older one was given up. It comes as the second where a stream is handed over.
  if (asked_[slot] != 0)
    overtaken_.push_back(std::min(asked_[slot], token));
  else
    ++asking_;
  asked_[slot] = std::max(asked_[slot], token);
}

// With the engine's lock held. Another question may have got the place while the answer came.
void PeerStream::note_answer(uint64_t token) {
  uint64_t &asked = asked_[Engine::slot_of(token)];
  if (asked != token) {
    take_overtaken(token);
    return;
  }
  asked = 0;
  --asking_;
}

// With the engine's lock held.
bool PeerStream::take_overtaken(uint64_t token) {
  const auto found = std::ranges::find(overtaken_, token);
  if (found == overtaken_.end()) return false;
  overtaken_.erase(found);
  return true;
}

void PeerStream::hand_over(PeerStream &to) {
  for (size_t i = first_; i != items_.size(); ++i) to.push(std::move(items_[i]));
  items_.clear();
  first_ = acks_ = 0;
  for (uint64_t &token : asked_)
    if (token != 0) to.note(std::exchange(token, 0));
  asking_ = 0;
  to.overtaken_.insert(to.overtaken_.end(), overtaken_.begin(), overtaken_.end());
  overtaken_.clear();
}

bool PeerStream::has_asked(uint64_t token) const {
  const size_t slot = Engine::slot_of(token);
  return token != 0 && slot < asked_.size() && asked_[slot] == token;
}

// With the engine's lock held.
void PeerStream::push_answer(const Reply &reply) {
  Item item;
  write_head(reply, false, item.head);
  item.is_reply = true;
  item.is_ack = reply.rc == Rc::kOk;
  push(std::move(item));
}

void PeerStream::answer(const Reply &reply) {
  if (reply.rc == Rc::kNone) return;  // it comes by on_late()
  const EngineGuard guard(engine_.lock);
  push_answer(reply);
}

void PeerStream::on_late(const Reply &reply) {
  push_answer(reply);
  if (on_output_) on_output_();
}

void PeerStream::answer_get(const Packet &packet) {
  uint64_t loan = 0;
  const Reply reply = engine_.on_get(packet, loan);
  if (loan == 0) return answer(reply);
  Item item;
  write_head(reply, true, item.head);
  item.is_reply = true;
  item.bytes = reply.mlength;
  if (item.bytes <= kShort) {
    item.copy.resize(item.bytes);
    item.good = engine_.read_loan(loan, 0, item.copy);
    engine_.end_loan(loan, item.good);
  } else {
    item.loan = loan;
  }
  const EngineGuard guard(engine_.lock);
  push(std::move(item));
}

// The bytes of a frame from `offset` on. Where they are gone, others take their place, and the last
// byte of the frame says so.
void PeerStream::fill(Item &item, size_t offset, std::span<uint8_t> out) {
  const auto at = uint32_t(offset);
  if (!item.copy.empty()) {
    std::memcpy(out.data(), item.copy.data() + at, out.size());
    return;
  }
  if (item.good)
    item.good = item.loan != 0 ? engine_.read_loan(item.loan, at, out)
                               : engine_.read_source(item.token, at, out);
  if (!item.good) std::memset(out.data(), 0, out.size());
}

// A piece of the frame: of its head, its bytes, or the last one.
size_t PeerStream::put_out(Item &item, std::span<uint8_t> room) {
  const size_t bytes_end = kHeadSize + item.bytes;
  const size_t end = written_ < kHeadSize   ? kHeadSize
                     : written_ < bytes_end ? bytes_end
                                            : size_of(item);
  const std::span<uint8_t> out = room.first(std::min(room.size(), end - written_));
  if (written_ < kHeadSize) {
    std::memcpy(out.data(), item.head.data() + written_, out.size());
  } else if (written_ < bytes_end) {
    fill(item, written_ - kHeadSize, out);
  } else {
    out[0] = item.good ? 1 : 0;
  }
  written_ += out.size();
  return out.size();
}

// Frames that need nothing but what is here, until a long one is the first.
size_t PeerStream::output_short(std::span<uint8_t> room) {
  size_t made = 0;
  while (made != room.size() && first_ != items_.size() && !items_[first_].is_long()) {
    Item &item = items_[first_];
    made += put_out(item, room.subspan(made));
    if (written_ == size_of(item)) pop();
  }
  return made;
}

// The first one has left.
void PeerStream::pop() {
  Item &item = items_[first_++];
  if (item.is_reply) reply_bytes_ -= size_of(item);
  if (item.is_ack) --acks_;
  const size_t most = item.copy.capacity() <= kSmallCopy ? kSpareSmall : kSpare;
  if (item.copy.capacity() != 0 && spare_.size() < most) {
    item.copy.clear();
    spare_.push_back(std::move(item.copy));
  }
  written_ = 0;
  if (first_ != items_.size() && first_ < kMostGone) return;
  items_.erase(items_.begin(), items_.begin() + ptrdiff_t(first_));
  if (items_.empty() && items_.capacity() > kMostIdle) items_.shrink_to_fit();
  first_ = 0;
}

size_t PeerStream::output(std::span<uint8_t> room) {
  size_t made = 0;
  while (made != room.size()) {
    Item item;
    {
      const EngineGuard guard(engine_.lock);
      made += output_short(room.subspan(made));
      if (made == room.size() || first_ == items_.size()) return made;
      item = items_[first_];  // others append, and it may move
    }
    made += put_out(item, room.subspan(made));
    const bool is_over = written_ == size_of(item);
    if (is_over && item.loan != 0) engine_.end_loan(item.loan, item.good);
    const EngineGuard guard(engine_.lock);
    items_[first_].good = item.good;
    if (is_over) pop();
  }
  return made;
}

bool PeerStream::has_only_acks() const {
  const EngineGuard guard(engine_.lock);
  return acks_ != 0 && acks_ <= kFewAcks && acks_ == items_.size() - first_ && written_ == 0;
}

// They do not count as replies of the other one: whoever asks is always read.
bool PeerStream::move_acks(PeerStream &to) {
  const EngineGuard guard(engine_.lock);
  if (to.items_.size() - to.first_ > kMostBeforeAcks) return false;
  while (acks_ != 0) {
    to.items_.push_back(items_[first_]);
    to.items_.back().is_reply = to.items_.back().is_ack = false;
    pop();
  }
  return true;
}

bool PeerStream::wants_input() const {
  const EngineGuard guard(engine_.lock);
  return reply_bytes_ <= kMaxReplies && (waiting_ == 0 || !room_->is_short());
}

bool PeerStream::is_idle() const {
  return first_ == items_.size() && asking_ == 0 && overtaken_.empty() && waiting_ == 0;
}

// ---- room, with the engine's lock held ----

bool PeerStream::take_room(size_t bytes) {
  if (!room_->take(bytes)) return false;
  waiting_ += bytes;
  return true;
}

void PeerStream::give_room(size_t bytes) {
  room_->give(bytes);
  waiting_ -= bytes;
}

// ---- in ----

std::optional<Refusal> PeerStream::on_bytes(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (taking_ == Taking::kHead) {
      const size_t count = std::min(bytes.size(), kHeadSize - have_);
      std::memcpy(head_.data() + have_, bytes.data(), count);
      have_ += count;
      bytes = bytes.subspan(count);
      if (have_ != kHeadSize) return std::nullopt;
      if (const auto refused = on_head()) return refused;
      continue;
    }
    if (taken_ == frame_.bytes) {
      on_frame(bytes[0] == 1);
      bytes = bytes.subspan(1);
      continue;
    }
    const size_t count = std::min<size_t>(bytes.size(), frame_.bytes - taken_);
    take(bytes.first(count));
    taken_ += uint32_t(count);
    bytes = bytes.subspan(count);
  }
  return std::nullopt;
}

std::optional<Refusal> PeerStream::on_head() {
  const auto frame = parse_head(head_);
  have_ = 0;
  if (!frame) return frame.error();
  frame_ = *frame;
  taken_ = 0;
  if (frame_.kind == Frame::Kind::kPacket) return on_packet_head();
  bool is_overtaken = false;
  {
    const EngineGuard guard(engine_.lock);
    const uint64_t token = frame_.reply.token;
    asker_ = asker(token);
    if (asker_ == nullptr)
      is_overtaken =
          take_overtaken(token) || (partner_ != nullptr && partner_->take_overtaken(token));
  }
  if (is_overtaken) {
    taking_ = Taking::kNothing;
    if (frame_.bytes == 0) taking_ = Taking::kHead;
    return std::nullopt;
  }
  if (asker_ != this && (partner_ == nullptr || frame_.bytes != 0)) return Refusal::kAnswer;
  taking_ = Taking::kReplyBytes;
  if (frame_.bytes == 0) on_frame(true);
  return std::nullopt;
}

std::optional<Refusal> PeerStream::on_packet_head() {
  const Packet &packet = frame_.packet;
  if (ends_ && !is_within(*ends_, packet)) return Refusal::kAddress;
  if (packet.op == Op::kGet) {
    answer_get(packet);
    return std::nullopt;
  }
  if (frame_.bytes <= kShort) {
    taking_ = Taking::kWhole;
    if (frame_.bytes == 0) on_frame(true);
    return std::nullopt;
  }
  const Engine::Begun begun = engine_.on_head(packet);
  landing_ = begun.landing;
  taking_ = begun.landing != 0 ? Taking::kLanding : Taking::kWhole;
  if (begun.reply) {
    answer(*begun.reply);
    taking_ = Taking::kNothing;
  } else if (taking_ == Taking::kWhole && !may_collect()) {
    answer({.token = packet.token, .rc = Rc::kDropped});
    taking_ = Taking::kNothing;
  }
  return std::nullopt;
}

bool PeerStream::may_collect() {
  const EngineGuard guard(engine_.lock);
  if (frame_.bytes > kMaxWhole || !room_->take(frame_.bytes)) return false;
  collected_ = frame_.bytes;
  return true;
}

// With the engine's lock held.
void PeerStream::stop_collecting() {
  room_->give(std::exchange(collected_, 0));
}

void PeerStream::take(std::span<const uint8_t> bytes) {
  switch (taking_) {
    case Taking::kWhole:
      whole_.insert(whole_.end(), bytes.begin(), bytes.end());
      return;
    case Taking::kLanding:
      return engine_.on_bytes(landing_, bytes);
    case Taking::kReplyBytes:
      return engine_.on_reply_bytes(frame_.reply.token, taken_, bytes);
    default:
      return;
  }
}

void PeerStream::on_frame(bool good) {
  switch (std::exchange(taking_, Taking::kHead)) {
    case Taking::kWhole: {
      Packet &packet = frame_.packet;
      packet.bytes = whole_.data();
      packet.asker = this;
      if (collected_ != 0) {
        const EngineGuard guard(engine_.lock);
        stop_collecting();  // the bytes that wait count as such
      }
      answer(good ? engine_.on_packet(packet)
                  : Reply{.token = packet.token, .rc = Rc::kMstCancelled});
      whole_.clear();
      if (whole_.capacity() > kShort) whole_.shrink_to_fit();
      return;
    }
    case Taking::kLanding:
      return answer(engine_.on_end(std::exchange(landing_, 0), good));
    case Taking::kReplyBytes: {
      Reply &reply = frame_.reply;
      if (asker_ == nullptr) return;
      if (!good) reply.rc = Rc::kMstCancelled;
      misses_ |= reply.rc == Rc::kPtlteNotFound || reply.rc == Rc::kVniNotFound;
      {
        const EngineGuard guard(engine_.lock);
        asker_->note_answer(reply.token);
      }
      return engine_.on_reply(reply);
    }
    default:
      return;
  }
}

void PeerStream::end(Rc why) {
  if (landing_ != 0) (void)engine_.on_end(std::exchange(landing_, 0), false);
  taking_ = Taking::kHead;
  have_ = 0;
  whole_.clear();
  std::vector<uint64_t> asked;
  std::vector<Item> items;
  {
    const EngineGuard guard(engine_.lock);
    engine_.forget(static_cast<const Asker &>(*this));
    stop_collecting();
    asked.swap(asked_);
    asking_ = 0;
    overtaken_.clear();
    items_.erase(items_.begin(), items_.begin() + ptrdiff_t(first_));
    items.swap(items_);
    first_ = written_ = reply_bytes_ = acks_ = 0;
  }
  for (const Item &item : items)
    if (item.loan != 0) engine_.end_loan(item.loan, false);
  for (const uint64_t token : asked)
    if (token != 0) engine_.on_reply({.token = token, .rc = why});
}

}  // namespace weft::cxi
