// SPDX-License-Identifier: BSD-2-Clause
// Channel: the packets of one connection between weft peers, as numbers and times: which ones are
// acknowledged or lost, how many may be in flight, when to retransmit, what to acknowledge
// (docs/rxd-protocol.md, sections 5, 6 and 8). It does not know the content of packets.
//
// Example:
//    using Bytes = std::vector<uint8_t>;
//    // Writes the number and the time Channel::clock(now) into the packet's header, and sends it.
//    void put(Bytes &packet, uint64_t number, uint64_t now);
//
//    // ---- the sending half ----
//    // False: later, after an acknowledgement or at channel.deadline().
//    inline bool send(Channel &channel, Bytes &packet, uint64_t now) {
//      if (channel.gate(packet.size(), now) != Channel::Gate::kOpen) return false;
//      put(packet, channel.next_number(), now);
//      channel.sent(packet.size(), now, &packet);
//      return true;
//    }
//    inline void acknowledged(Channel &channel, const wire::Acknowledgement &ack, uint64_t now) {
//      channel.on_acknowledgement(ack, now, [](void *p) { delete static_cast<Bytes *>(p); });
//      for (Channel::Lost lost; channel.next_lost(lost, now);) {
//        put(*static_cast<Bytes *>(lost.packet), lost.number, now);
//        channel.sent_again(lost.number, now);
//      }
//    }
//
//    // ---- the receiving half ----
//    // True: the packet is the next one; its content is processed now, and only now.
//    inline bool receive(Channel &channel, const wire::Header &header, uint64_t now) {
//      const uint64_t number = channel.number_of(header.sequence);
//      const Channel::Arrival arrival = channel.look(number);
//      if (arrival == Channel::Arrival::kDuplicate) channel.duplicate(header, now);
//      if (arrival != Channel::Arrival::kInOrder) return false;  // an early one will come again
//      channel.accept(number, header, now);
//      return true;
//    }
//    // True: `ack` is to be sent, with a packet or alone.
//    inline bool acknowledge(Channel &channel, wire::Acknowledgement &ack, uint64_t now) {
//      if (channel.owed() == Channel::Owed::kNothing) return false;
//      channel.fill(ack, now);
//      channel.acknowledged();
//      return true;
//    }
//
// No socket, no clock; all times in ns. The memory for packets in flight comes from a pool that all
// channels share, and goes back at once, so an idle channel has none. Not for messages and credits:
// the caller fills these two fields of the acknowledgement.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CHANNEL_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CHANNEL_H

#include <weft/sdk/memory/pool.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "plugins/rxd/protocol/congestion.h"
#include "plugins/rxd/wire/packet.h"

namespace weft::rxd {

inline constexpr uint32_t kWindow = 1024;  // packets
inline constexpr uint32_t kMinShare = 4;   // packets above next() that are accepted at least

// Channel's record of a packet that was sent.
struct SentPacket {
  enum class State : uint8_t { kFlying, kLost, kArrived };
  void *packet;
  uint64_t sent_at;        // time of the last transmission
  uint32_t transmission;   // serial number of the last transmission in this channel
  uint32_t size;           // bytes of the datagram
  uint16_t before, after;  // neighbours in the list of its state
  State state;
  bool repeated;
  bool taken_for_lost;  // at least once, and not by a timeout
};
struct SentChunk {
  static constexpr uint32_t kCount = 32;
  std::array<SentPacket, kCount> packets;
};
using SentPool = sdk::Pool<SentChunk>;

// When a packet was read, and how long it may have waited for that: as long as this end had not
// looked, 0 if it was blocked until something came. ns.
struct Moment {
  uint64_t now;
  uint64_t unread;
  Moment(uint64_t read_at, uint64_t may_have_waited = 0)  // NOLINT(google-explicit-constructor)
      : now(read_at), unread(may_have_waited) {}
};

class Channel {
 public:
  // `limit`: the peer takes numbers below this at first, from its part of the handshake.
  Channel(SentPool &pool, uint32_t datagram, uint32_t limit = 4);
  ~Channel();
  Channel(const Channel &) = delete;
  Channel &operator=(const Channel &) = delete;

  // The time field of a packet that leaves now; never 0.
  static uint32_t clock(uint64_t now) {
    const auto us = static_cast<uint32_t>(now / 1000);
    return us != 0 ? us : 1;
  }

  // ---- sending ----
  // The largest datagram from now on.
  void set_datagram(uint32_t bytes) { congestion_.set_datagram(bytes); }
  // The peer is on this host: only its limit and loss hold packets back. Delay is ignored, because
  // it depends on which processes run.
  void set_direct() { congestion_.set_direct(); }
  bool direct() const { return congestion_.direct(); }
  void raise_limit(uint32_t limit);

  enum class Gate : uint8_t {
    kOpen,
    kPace,    // later: deadline() says when
    kWindow,  // after an acknowledgement
  };
  // Whether a new datagram of that size may leave. Lost packets go first: call next_lost() before.
  Gate gate(size_t size, uint64_t now);
  uint64_t next_number() const { return end_; }
  // The datagram has left, or counts as lost; after gate() returned kOpen. Returns its number.
  // `packet` is handed back once.
  uint64_t sent(size_t size, uint64_t now, void *packet);

  // The next packet to retransmit. True: `out` may leave now. It stays the next one until
  // sent_again(), or until its acknowledgement arrives.
  struct Lost {
    uint64_t number = 0;
    void *packet = nullptr;
    bool ask = false;  // with kFlagAsk
  };
  bool next_lost(Lost &out, uint64_t now);
  bool has_lost() const { return lost_.first != kNone; }
  void sent_again(uint64_t number, uint64_t now);

  // Hands the packets that have arrived to `each(void *packet)`, in the order of numbers, once;
  // `each` must not call the channel. False: the acknowledgement names packets that were never
  // sent, and nothing was done.
  template <class F>
  bool on_acknowledgement(const wire::Acknowledgement &ack, Moment now, F each);
  // When on_deadline() should be called; 0: never. Includes the time when the pace permits packets.
  uint64_t deadline() const;
  // True: a timeout; next_lost() now names one or two packets regardless of the window.
  bool on_deadline(uint64_t now);
  // Hands back the packets that were not acknowledged, in the order of numbers, and forgets them.
  template <class F>
  void abandon(F each);

  size_t outstanding() const { return end_ - base_ - arrived_early_; }  // packets
  // Every number below has arrived at the peer.
  uint64_t settled() const { return base_; }
  uint64_t in_flight() const { return in_flight_; }  // bytes, without lost packets
  uint64_t window() const { return congestion_.window(); }
  uint8_t take_cuts() { return congestion_.take_cuts(); }
  const RoundTrip &round_trip() const { return trip_; }
  uint32_t timeouts() const { return timeouts_; }  // in a row, without an acknowledgement
  // Since when the peer owes an acknowledgement and has sent nothing; 0: it owes none. heard()
  // reports a valid packet of the peer.
  uint64_t silent_since() const;
  void heard(uint64_t now) { heard_at_ = now; }

  // ---- receiving ----
  enum class Arrival : uint8_t {
    kInOrder,    // the next number
    kEarly,      // numbers before it are missing
    kDuplicate,  // call duplicate()
    kOutside,    // at or above the limit: drop it
  };
  uint64_t number_of(uint32_t sequence) const { return wire::extend(sequence, next_); }
  Arrival look(uint64_t number) const;
  // Accepts a packet that is kInOrder or kEarly, and that the caller processes or keeps. Not called
  // if the caller has no room for it: the sender will retransmit it.
  void accept(uint64_t number, const wire::Header &header, Moment now);
  void duplicate(const wire::Header &header, Moment now);
  // All numbers below were accepted.
  uint64_t next() const { return next_; }

  // How many packets above next() are accepted: kMinShare to kWindow. A limit that was sent is not
  // reduced.
  void set_share(uint32_t packets);
  uint32_t limit() const { return static_cast<uint32_t>(limit_); }  // the last one

  enum class Owed : uint8_t {
    kNothing,
    kSome,   // with the next packet, or when there is nothing more to read
    kAsked,  // at the end of the batch that is being read, or with a reply that is expected
    kSoon,   // at the end of the batch that is being read
    kNow,
  };
  Owed owed() const { return owed_; }
  // Fills in all fields except messages and credit.
  void fill(wire::Acknowledgement &ack, uint64_t now);
  // The acknowledgement that was filled last has left.
  void acknowledged() {
    owed_ = Owed::kNothing;
    unacknowledged_ = 0;
  }

 private:
  static constexpr uint16_t kNone = UINT16_MAX;
  static constexpr uint32_t kAcknowledgeEvery = 16;  // packets
  static constexpr uint64_t kMinTimeout = 1'000'000, kFirstTimeout = 10'000'000,
                            kMaxTimeout = 200'000'000;
  // Limit of the timeout's base: a measured round trip may be wrong, because a process did not run
  // or because the peer lies.
  static constexpr uint64_t kLongestTrip = 2'000'000'000;
  static constexpr uint64_t kMinPatience = 50'000;
  static constexpr uint64_t kMaxSample = 60'000'000'000;
  static constexpr uint32_t kPlaces = 3;
  static constexpr uint8_t kMaxReordering = 4;
  static_assert(kWindow % 64 == 0 && kWindow / 64 == wire::kMaxWords);

  struct List {
    uint16_t first = kNone, last = kNone;
  };
  // One bit per number, at number % kWindow.
  class Bits {
   public:
    bool has(uint64_t number) const { return (words_[word(number)] >> (number % 64) & 1) != 0; }
    void set(uint64_t number) { words_[word(number)] |= uint64_t{1} << (number % 64); }
    void clear(uint64_t number) { words_[word(number)] &= ~(uint64_t{1} << (number % 64)); }
    // The bits of number to number + 63.
    uint64_t from(uint64_t number) const {
      const unsigned shift = number % 64;
      const uint64_t low = words_[word(number)] >> shift;
      return shift == 0 ? low : low | words_[word(number + 64)] << (64 - shift);
    }

   private:
    static size_t word(uint64_t number) { return number % kWindow / 64; }
    std::array<uint64_t, kWindow / 64> words_{};
  };
  // What one acknowledgement has brought so far.
  struct News {
    uint64_t now;
    uint64_t rtt;      // 0: unknown
    uint64_t delay;    // of it at least so much was not spent waiting at an end that did not look
    uint64_t sent_by;  // when the packet that caused it had left; if rtt is known
    uint64_t bytes = 0;
    uint32_t packets = 0;
    uint32_t found = 0;  // packets that had been declared lost
  };

  SentPacket &at(uint64_t number) {
    return chunks_[number / SentChunk::kCount % chunks_.size()]
        ->packets[number % SentChunk::kCount];
  }
  SentPacket &at_place(uint16_t place) { return at(place); }
  uint64_t number_at(uint16_t place) const { return base_ + (place - base_) % kWindow; }
  bool may_fly(size_t size);
  void append(List &list, uint16_t place);
  void remove(List &list, uint16_t place);
  void insert_lost(uint16_t place);
  void ground(SentPacket &sent, uint16_t place);
  void give_chunk(uint64_t number);
  void give_all();
  void *settle(SentPacket &sent, uint16_t place, News &news);
  bool sensible(const wire::Acknowledgement &ack, uint64_t next) const;
  News begin(const wire::Acknowledgement &ack, Moment now) const;
  void finish(const News &news);
  uint32_t find_lost(uint64_t now);
  void lose(uint16_t place);
  uint64_t patience() const;
  uint64_t timeout() const;
  void note_arrival(const wire::Header &header, Moment now);

  // ---- sending ----
  SentPool &pool_;
  std::array<SentChunk *, kWindow / SentChunk::kCount> chunks_{};
  Bits arrived_;  // at or above base_
  uint64_t base_ = 0, end_ = 0;
  uint64_t peer_limit_;
  uint64_t in_flight_ = 0;
  uint64_t last_sent_at_ = 0;
  uint64_t waiting_since_ = 0;  // since when packets are outstanding
  uint64_t heard_at_ = 0;
  uint64_t loss_at_ = 0;       // when the next packet is declared lost; 0: none
  uint64_t timed_out_at_ = 0;  // the first of a row of timeouts
  RoundTrip trip_;
  Congestion congestion_;
  List flying_, lost_;          // in the order of transmissions; in the order of numbers
  uint32_t arrived_early_ = 0;  // packets at or above base_ that have arrived
  uint32_t transmissions_ = 0;
  uint32_t latest_ = 0;      // one more than the latest transmission that is known to have arrived
  uint32_t round_ends_ = 0;  // the round ends when this transmission is acknowledged
  uint32_t timeouts_ = 0;
  uint8_t urgent_ = 0;       // retransmissions that ignore the window
  uint8_t reordering_ = 0;   // how often the thresholds for loss were doubled
  uint64_t held_until_ = 0;  // the pace, or lack of memory, holds packets until then; 0: nothing

  // ---- receiving ----
  Bits received_;  // above next_
  uint64_t next_ = 0;
  uint64_t highest_ = 0;  // one more than the highest number that came
  uint64_t limit_ = 4;    // the last one that was set; numbers below it are accepted
  uint64_t arrived_at_ = 0;
  uint64_t unread_ = 0;  // of the packet that arrived then
  uint32_t time_ = 0;    // time field of the packet that was sent last, of those that arrived
  uint32_t share_ = 4;
  uint32_t unacknowledged_ = 0;  // packets
  Owed owed_ = Owed::kNothing;
};

template <class F>
bool Channel::on_acknowledgement(const wire::Acknowledgement &ack, Moment now, F each) {
  const uint64_t next = wire::extend(ack.next, base_);
  if (!sensible(ack, next)) return false;
  News news = begin(ack, now);
  while (base_ < next) {
    SentPacket &sent = at(base_);
    if (sent.state == SentPacket::State::kArrived) {
      arrived_.clear(base_);
      --arrived_early_;
    } else {
      each(settle(sent, static_cast<uint16_t>(base_ % kWindow), news));
    }
    give_chunk(base_++);
  }
  for (size_t w = 0; w < ack.words; ++w) {
    const uint64_t start = next + 1 + 64 * w;
    if (start + 64 <= base_) continue;
    uint64_t news_bits = ack.bitmap[w] & ~arrived_.from(start);
    if (start < base_) news_bits &= ~uint64_t{0} << (base_ - start);  // an old acknowledgement
    for (; news_bits != 0; news_bits &= news_bits - 1) {
      const uint64_t number = start + static_cast<unsigned>(std::countr_zero(news_bits));
      arrived_.set(number);
      ++arrived_early_;
      each(settle(at(number), static_cast<uint16_t>(number % kWindow), news));
    }
  }
  raise_limit(ack.limit);
  if (news.packets != 0) finish(news);
  return true;
}

template <class F>
void Channel::abandon(F each) {
  for (uint64_t number = base_; number < end_; ++number) {
    SentPacket &sent = at(number);
    if (sent.state != SentPacket::State::kArrived) each(sent.packet);
  }
  give_all();
}

}  // namespace weft::rxd

#endif
