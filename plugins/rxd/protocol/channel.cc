// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/channel.h"

#include <algorithm>

namespace weft::rxd {
namespace {

// Transmissions are counted in 32 bits; there are never 2^31 of them in flight.
bool before(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) < 0;
}

constexpr uint64_t kMemoryRetry = 1'000'000;
constexpr uint64_t kStale = 1'000'000'000;

}  // namespace

Channel::Channel(SentPool &pool, uint32_t datagram, uint32_t limit)
    : pool_(pool), peer_limit_(limit), congestion_(datagram) {}

Channel::~Channel() {
  give_all();
}

void Channel::give_all() {
  for (SentChunk *&chunk : chunks_) {
    if (chunk != nullptr) pool_.give(chunk);
    chunk = nullptr;
  }
  base_ = end_;
  arrived_ = Bits();
  arrived_early_ = 0;
  in_flight_ = 0;
  flying_ = lost_ = List();
  loss_at_ = held_until_ = 0;
  timeouts_ = 0;
  urgent_ = 0;
}

// ---- lists ----

void Channel::append(List &list, uint16_t place) {
  SentPacket &sent = at_place(place);
  sent.before = list.last;
  sent.after = kNone;
  (list.last == kNone ? list.first : at_place(list.last).after) = place;
  list.last = place;
}

// Lost packets are retransmitted in the order of numbers: the peer keeps only some early packets.
void Channel::insert_lost(uint16_t place) {
  const uint64_t number = number_at(place);
  uint16_t after = lost_.last;
  while (after != kNone && number_at(after) > number) after = at_place(after).before;
  SentPacket &sent = at_place(place);
  sent.before = after;
  sent.after = after == kNone ? lost_.first : at_place(after).after;
  (after == kNone ? lost_.first : at_place(after).after) = place;
  (sent.after == kNone ? lost_.last : at_place(sent.after).before) = place;
}

void Channel::remove(List &list, uint16_t place) {
  const SentPacket &sent = at_place(place);
  (sent.before == kNone ? list.first : at_place(sent.before).after) = sent.after;
  (sent.after == kNone ? list.last : at_place(sent.after).before) = sent.before;
}

// ---- sending ----

void Channel::raise_limit(uint32_t limit) {
  peer_limit_ = std::max(peer_limit_, wire::extend(limit, base_));
}

bool Channel::may_fly(size_t size) {
  // One packet may always be in flight, whatever its size.
  if (in_flight_ == 0 || in_flight_ + size <= congestion_.window()) return true;
  congestion_.on_limited();
  return false;
}

Channel::Gate Channel::gate(size_t size, uint64_t now) {
  if (end_ - base_ >= kWindow || end_ >= std::max(peer_limit_, base_ + kMinShare)) {
    return Gate::kWindow;
  }
  if (!may_fly(size)) return Gate::kWindow;
  if (congestion_.pace_at() > now) {
    held_until_ = congestion_.pace_at();
    return Gate::kPace;
  }
  SentChunk *&chunk = chunks_[end_ / SentChunk::kCount % chunks_.size()];
  if (chunk == nullptr && (chunk = pool_.take()) == nullptr) {
    held_until_ = now + kMemoryRetry;
    return Gate::kPace;
  }
  return Gate::kOpen;
}

uint64_t Channel::sent(size_t size, uint64_t now, void *packet) {
  if (base_ == end_) waiting_since_ = now;
  const uint64_t number = end_++;
  SentPacket &sent = at(number);
  sent.packet = packet;
  sent.sent_at = now;
  sent.transmission = transmissions_++;
  sent.size = static_cast<uint32_t>(size);
  sent.state = SentPacket::State::kFlying;
  sent.repeated = sent.taken_for_lost = false;
  append(flying_, static_cast<uint16_t>(number % kWindow));
  in_flight_ += size;
  last_sent_at_ = now;
  held_until_ = 0;
  congestion_.on_sent(size, now);
  return number;
}

bool Channel::next_lost(Lost &out, uint64_t now) {
  if (lost_.first == kNone) return false;
  const SentPacket &sent = at_place(lost_.first);
  if (urgent_ == 0) {
    if (!may_fly(sent.size)) return false;
    if (congestion_.pace_at() > now) {
      held_until_ = congestion_.pace_at();
      return false;
    }
  }
  out.number = number_at(lost_.first);
  out.packet = sent.packet;
  out.ask = urgent_ != 0;
  return true;
}

void Channel::sent_again(uint64_t number, uint64_t now) {
  const auto place = static_cast<uint16_t>(number % kWindow);
  SentPacket &sent = at_place(place);
  remove(lost_, place);
  sent.sent_at = now;
  sent.transmission = transmissions_++;
  sent.state = SentPacket::State::kFlying;
  sent.repeated = true;
  append(flying_, place);
  in_flight_ += sent.size;
  last_sent_at_ = now;
  held_until_ = 0;
  if (urgent_ != 0) --urgent_;
  congestion_.on_sent(sent.size, now);
}

bool Channel::sensible(const wire::Acknowledgement &ack, uint64_t next) const {
  if (next > end_) return false;
  for (size_t w = ack.words; w-- > 0;) {
    if (ack.bitmap[w] == 0) continue;
    return next + 1 + 64 * w + static_cast<unsigned>(63 - std::countl_zero(ack.bitmap[w])) < end_;
  }
  return true;
}

Channel::News Channel::begin(const wire::Acknowledgement &ack, Moment moment) const {
  const uint64_t now = moment.now;
  News news{.now = now, .rtt = 0, .delay = 0, .sent_by = 0};
  if (ack.echo == 0) return news;
  const auto us = static_cast<int32_t>(clock(now) - ack.echo);
  // Both clocks are truncated to microseconds, so a very short round trip may appear negative.
  if (us < -2 || uint64_t(std::max(us, 0)) * 1000 > kMaxSample) return news;
  news.rtt = std::min<uint64_t>(uint64_t(std::max(us, 1)) * 1000, now);
  news.sent_by = now - news.rtt;
  const uint64_t unread = (moment.unread / wire::kUnreadUnit + ack.unread) * wire::kUnreadUnit;
  news.delay = news.rtt > unread ? news.rtt - unread : 1;
  return news;
}

void *Channel::settle(SentPacket &sent, uint16_t place, News &news) {
  constexpr uint64_t kResolution = 1000;  // ns, of the clock that is echoed
  const bool flying = sent.state == SentPacket::State::kFlying;
  if (flying) {
    remove(flying_, place);
    in_flight_ -= sent.size;
  } else {
    remove(lost_, place);
  }
  const bool earlier_one =
      !flying || (sent.repeated && news.rtt != 0 && news.sent_by + kResolution < sent.sent_at);
  if (earlier_one) {
    // An earlier transmission has arrived; its serial number is not known any more.
    if (sent.taken_for_lost) ++news.found;
  } else if (before(latest_, sent.transmission + 1)) {
    latest_ = sent.transmission + 1;
  }
  sent.state = SentPacket::State::kArrived;
  news.bytes += sent.size;
  ++news.packets;
  return sent.packet;
}

void Channel::give_chunk(uint64_t number) {
  // The chunk may already hold numbers that are kWindow higher.
  if (number % SentChunk::kCount != SentChunk::kCount - 1) return;
  if (end_ > number - (SentChunk::kCount - 1) + kWindow) return;
  SentChunk *&chunk = chunks_[number / SentChunk::kCount % chunks_.size()];
  pool_.give(chunk);
  chunk = nullptr;
}

void Channel::finish(const News &news) {
  if (news.rtt != 0) trip_.sample(news.rtt, news.now);
  if (news.found != 0) {
    congestion_.on_found(news.found);
    if (reordering_ < kMaxReordering) ++reordering_;
  }
  const size_t were = outstanding();
  const uint32_t lost = find_lost(news.now);
  congestion_.on_acknowledged(news.bytes, news.packets, news.delay, trip_);
  if (timeouts_ != 0) {
    const bool spurious = news.rtt != 0 && news.sent_by < timed_out_at_;
    if (!spurious && lost >= 3 && 2 * size_t{lost} >= were) congestion_.on_collapse();
    timeouts_ = 0;
    urgent_ = 0;
  }
  if (before(round_ends_, latest_)) {
    congestion_.on_round(trip_);
    round_ends_ = transmissions_;
  }
  if (base_ == end_) give_all();
}

uint64_t Channel::patience() const {
  const uint64_t trip = trip_.smoothed();
  return std::max(trip + (trip / 8 << reordering_), kMinPatience << reordering_);
}

uint32_t Channel::find_lost(uint64_t now) {
  loss_at_ = 0;
  uint32_t count = 0;
  const uint32_t places = kPlaces << reordering_;
  const uint64_t patience = this->patience();
  while (flying_.first != kNone) {
    const SentPacket &sent = at_place(flying_.first);
    if (!before(sent.transmission + 1, latest_)) break;  // no later transmission has arrived
    if (latest_ - 1 - sent.transmission < places && sent.sent_at + patience > now) {
      loss_at_ = sent.sent_at + patience;
      break;
    }
    lose(flying_.first);
    ++count;
  }
  congestion_.on_lost(count);
  return count;
}

void Channel::ground(SentPacket &sent, uint16_t place) {
  remove(flying_, place);
  insert_lost(place);
  in_flight_ -= sent.size;
  sent.state = SentPacket::State::kLost;
}

void Channel::lose(uint16_t place) {
  SentPacket &sent = at_place(place);
  ground(sent, place);
  sent.taken_for_lost = true;
}

uint64_t Channel::timeout() const {
  const uint64_t once = trip_.known() ? std::clamp(trip_.smoothed() + 4 * trip_.variation(),
                                                   kMinTimeout, kLongestTrip)
                                      : kFirstTimeout;
  return std::max(once, std::min(once << std::min(timeouts_, 8u), kMaxTimeout));
}

uint64_t Channel::deadline() const {
  uint64_t at = UINT64_MAX;
  if (held_until_ != 0) at = held_until_;
  if (loss_at_ != 0) at = std::min(at, loss_at_);
  if (flying_.first != kNone) at = std::min(at, last_sent_at_ + timeout());
  return at == UINT64_MAX ? 0 : at;
}

bool Channel::on_deadline(uint64_t now) {
  if (held_until_ <= now) held_until_ = 0;
  if (loss_at_ != 0 && loss_at_ <= now) find_lost(now);
  if (flying_.first == kNone || now < last_sent_at_ + timeout()) return false;
  // The two packets with the lowest numbers: the peer waits for them.
  constexpr uint8_t kRepeats = 2;
  urgent_ = 0;
  for (uint64_t number = base_; number < end_ && urgent_ < kRepeats; ++number) {
    SentPacket &sent = at(number);
    if (sent.state == SentPacket::State::kArrived) continue;
    if (sent.state == SentPacket::State::kFlying) {
      ground(sent, static_cast<uint16_t>(number % kWindow));
    }
    ++urgent_;
  }
  if (timeouts_++ == 0) timed_out_at_ = now;
  last_sent_at_ = now;  // even if no packet can leave
  return true;
}

uint64_t Channel::silent_since() const {
  return outstanding() == 0 ? 0 : std::max(waiting_since_, heard_at_);
}

// ---- receiving ----

Channel::Arrival Channel::look(uint64_t number) const {
  if (number < next_) return Arrival::kDuplicate;
  if (number >= limit_) return Arrival::kOutside;
  if (number == next_) return Arrival::kInOrder;
  return received_.has(number) ? Arrival::kDuplicate : Arrival::kEarly;
}

void Channel::note_arrival(const wire::Header &header, Moment moment) {
  // The packet that the peer sent last, not the one that arrived last: late copies do not count.
  if (static_cast<int32_t>(header.time - time_) >= 0 || moment.now - arrived_at_ > kStale) {
    time_ = header.time;
    arrived_at_ = moment.now;
    unread_ = moment.unread;
  }
}

void Channel::accept(uint64_t number, const wire::Header &header, Moment now) {
  note_arrival(header, now);
  Owed owed = Owed::kSome;
  if (number == next_) {
    ++next_;
    if (highest_ > next_) {
      owed = Owed::kSoon;
      for (;;) {
        const int run = std::countr_one(received_.from(next_));
        for (int i = 0; i < run; ++i) received_.clear(next_ + static_cast<unsigned>(i));
        next_ += static_cast<unsigned>(run);
        if (run < 64) break;
      }
    }
    highest_ = std::max(highest_, next_);
  } else {
    owed = Owed::kSoon;
    received_.set(number);
    highest_ = std::max(highest_, number + 1);
  }
  if (header.has(wire::kFlagAsk)) owed = std::max(owed, Owed::kAsked);
  if (++unacknowledged_ >= kAcknowledgeEvery) owed = Owed::kNow;
  owed_ = std::max(owed_, owed);
}

void Channel::duplicate(const wire::Header &header, Moment now) {
  note_arrival(header, now);
  owed_ = std::max(owed_, Owed::kSoon);
}

void Channel::set_share(uint32_t packets) {
  share_ = std::clamp(packets, kMinShare, kWindow);
  limit_ = std::max(limit_, next_ + share_);
}

void Channel::fill(wire::Acknowledgement &ack, uint64_t now) {
  limit_ = std::max(limit_, next_ + share_);
  ack.next = static_cast<uint32_t>(next_);
  ack.echo = 0;
  if (highest_ != 0) {
    ack.echo = time_ + static_cast<uint32_t>((now - arrived_at_) / 1000);
    if (ack.echo == 0) ack.echo = 1;
  }
  ack.unread = static_cast<uint32_t>(std::min<uint64_t>(unread_ / wire::kUnreadUnit, UINT16_MAX));
  ack.limit = static_cast<uint32_t>(limit_);
  ack.words = highest_ > next_ + 1 ? static_cast<uint32_t>((highest_ - next_ - 1 + 63) / 64) : 0;
  for (uint32_t w = 0; w < ack.words; ++w)
    ack.bitmap[w] = received_.from(next_ + 1 + uint64_t{64} * w);
}

}  // namespace weft::rxd
