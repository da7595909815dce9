// SPDX-License-Identifier: BSD-2-Clause
// Producer and Consumer: the two ends of one direction (layout.h). A record is some lines of
// content, of which the first begins with its Head, and perhaps a payload among the bytes. Records
// and payloads are taken in the order in which they were put, so the ends count what they have
// used, and no position is ever read out of the memory.
//
// Example:
//    inline bool say(Producer &out, uint64_t tag, const void *text, size_t n) {
//      if (n > kMostContent || !out.has_room(lines_of(n), 0)) return false;
//      out.put({.type = 1, .size = uint16_t(n), .tag = tag}, text);
//      return true;
//    }
//    inline bool hear(Consumer &in, Head &head, uint8_t (&content)[kMostContent]) {
//      if (!in.peek(head) || head.size > kMostContent) return false;
//      in.read(head.size, content);
//      in.take(lines_of(head.size), 0);
//      return true;
//    }
//
// The other end may write anything anywhere at any time. What it can do is send nonsense, and say
// that it has taken what it cannot have taken (Producer::broken). Each end is used by one thread at
// a time. Not for what records mean: record.h.
#ifndef WEFT_PLUGINS_SHM_WIRE_RING_H
#define WEFT_PLUGINS_SHM_WIRE_RING_H

#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "plugins/shm/wire/layout.h"

namespace weft::shm {

// Content of the first line, and of each other one.
inline constexpr size_t kFirstContent = kLine - 2 * sizeof(uint64_t);
inline constexpr size_t kNextContent = kLine - sizeof(uint64_t);
inline constexpr size_t kMostContent = kFirstContent + 3 * kNextContent;

struct Head {
  uint8_t type = 0, flags = 0;
  uint16_t size = 0;  // bytes of content
  uint64_t tag = 0;
};

constexpr size_t lines_of(size_t content) {
  if (content <= kFirstContent) return 1;
  return 1 + (content - kFirstContent + kNextContent - 1) / kNextContent;
}
// What a payload takes of the bytes.
constexpr size_t place_of(size_t payload) {
  return (payload + kLine - 1) & ~(kLine - 1);
}

namespace ring_detail {

// The lap that a line is in. It has a mark, so that unused memory is no record.
inline uint32_t lap_of(uint64_t line, uint32_t lines) {
  return uint32_t(line / lines) | UINT32_C(1) << 31;
}
inline uint64_t word_of(const Head &head, uint32_t lap) {
  return uint64_t(lap) | uint64_t(head.type) << 32 | uint64_t(head.flags) << 40 |
         uint64_t(head.size) << 48;
}

}  // namespace ring_detail

class Producer {
 public:
  Producer(const Direction &direction, const Geometry &geometry)
      : to_(direction), geometry_(geometry) {}

  // Whether a record of so many lines, and so many bytes of payload, can be put now.
  bool has_room(size_t lines, size_t payload) {
    if (fits(lines, payload)) [[likely]]
      return true;
    look();
    return fits(lines, payload);
  }
  // The consumer says that it has taken what was never put. There is never room again.
  bool broken() const { return broken_; }

  // Payload of the next record, which has room; piece by piece.
  void put_bytes(const void *from, size_t n) {
    const size_t at = size_t(put_bytes_ + staged_) & (geometry_.bytes - 1);
    const size_t first = std::min<size_t>(n, geometry_.bytes - at);
    if (first != 0) std::memcpy(to_.bytes + at, from, first);
    if (first != n) std::memcpy(to_.bytes, static_cast<const uint8_t *>(from) + first, n - first);
    staged_ += n;
  }
  // The record, with its payload. There is room for it.
  void put(const Head &head, const void *content) {
    Line &line = line_at(put_lines_);
    const size_t first = std::min<size_t>(head.size, kFirstContent);
    std::memcpy(line.bytes, &head.tag, sizeof head.tag);
    if (head.size == sizeof(uint64_t)) {  // the length that is asked for most, without a call
      std::memcpy(line.bytes + sizeof head.tag, content, sizeof(uint64_t));
    } else if (first != 0) {
      std::memcpy(line.bytes + sizeof head.tag, content, first);
    }
    uint64_t next = put_lines_ + 1;
    for (size_t done = first; done < head.size; ++next) {
      const size_t n = std::min<size_t>(head.size - done, kNextContent);
      std::memcpy(line_at(next).bytes, static_cast<const uint8_t *>(content) + done, n);
      done += n;
    }
    const uint32_t lap = ring_detail::lap_of(put_lines_, geometry_.lines);
    put_lines_ = next;
    put_bytes_ += place_of(staged_);
    staged_ = 0;
    const uint64_t word = ring_detail::word_of(head, lap);
    if (fences_) {
      line.word.store(word, std::memory_order_seq_cst);
    } else {
      line.word.store(word, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }
  // The consumer has a barrier (barrier.h) between sleep() and is_empty(), so this end has no fence
  // between the record and what it reads of the consumer.
  void spare_fences() { fences_ = false; }
  // After put(): whether the consumer sleeps and nobody has woken it since. The caller wakes it.
  bool must_wake() {
    const uint64_t sleeps = to_.control->sleeps.load(std::memory_order_seq_cst);
    if (sleeps == woken_) [[likely]]
      return false;
    woken_ = sleeps;
    return true;
  }
  // The consumer has said that it takes no more.
  bool is_closed() const {
    return to_.control->sleeps.load(std::memory_order_relaxed) == Control::kTakesNoMore;
  }
  // The consumer wants no messages now, but all else. In one order with what wakes this end.
  bool may_put_message() const {
    return to_.control->refuses_messages.load(std::memory_order_seq_cst) == 0;
  }
  // Nothing is there that the consumer has not said to have taken.
  bool drained() {
    look();
    return taken_lines_ == put_lines_;
  }
  const Geometry &geometry() const { return geometry_; }

 private:
  Line &line_at(uint64_t line) { return to_.lines[line & (geometry_.lines - 1)]; }
  bool fits(size_t lines, size_t payload) const {
    return put_lines_ - taken_lines_ + lines <= geometry_.lines &&
           put_bytes_ - taken_bytes_ + place_of(payload) <= geometry_.bytes && !broken_;
  }
  void look() {
    const uint64_t lines = to_.control->lines_taken.load(std::memory_order_seq_cst);
    const uint64_t bytes = to_.control->bytes_taken.load(std::memory_order_seq_cst);
    // Between what it said before and what was put.
    if (lines - taken_lines_ > put_lines_ - taken_lines_ ||
        bytes - taken_bytes_ > put_bytes_ - taken_bytes_) {
      broken_ = true;
      return;
    }
    taken_lines_ = lines;
    taken_bytes_ = bytes;
  }

  const Direction to_;
  const Geometry geometry_;
  uint64_t put_lines_ = 0, put_bytes_ = 0, taken_lines_ = 0, taken_bytes_ = 0;
  size_t staged_ = 0;
  uint64_t woken_ = 0;
  bool broken_ = false, fences_ = true;
};

class Consumer {
 public:
  Consumer(const Direction &direction, const Geometry &geometry)
      : from_(direction), geometry_(geometry) {}

  // The head of the next record. It is read once: what it says is the other end's word.
  bool peek(Head &head) const {
    const Line &line = line_at(lines_);
    const uint64_t word = line.word.load(std::memory_order_acquire);
    if (uint32_t(word) != ring_detail::lap_of(lines_, geometry_.lines)) [[likely]]
      return false;
    head.type = uint8_t(word >> 32);
    head.flags = uint8_t(word >> 40);
    head.size = uint16_t(word >> 48);
    std::memcpy(&head.tag, line.bytes, sizeof head.tag);
    return true;
  }
  // The same in one order with what the other end does when it wakes: after sleep().
  bool is_empty() const {
    return uint32_t(line_at(lines_).word.load(std::memory_order_seq_cst)) !=
           ring_detail::lap_of(lines_, geometry_.lines);
  }
  // The first `n` bytes of its content; at most kMostContent.
  void read(size_t n, uint8_t *content) const {
    const uint8_t *const from = line_at(lines_).bytes + sizeof(uint64_t);
    if (n == sizeof(uint64_t)) {  // the length that is asked for most, without a call
      std::memcpy(content, from, sizeof(uint64_t));
      return;
    }
    const size_t first = std::min(n, kFirstContent);
    if (first != 0) std::memcpy(content, from, first);
    for (size_t done = first, at = 1; done < n; ++at) {
      const size_t k = std::min(n - done, kNextContent);
      std::memcpy(content + done, line_at(lines_ + at).bytes, k);
      done += k;
    }
  }
  // Calls visit(const uint8_t *, size_t) for the pieces of [at, at + n) of the next payload.
  template <class F>
  void visit_bytes(size_t at, size_t n, F visit) const {
    const size_t begin = size_t(bytes_ + at) & (geometry_.bytes - 1);
    const size_t first = std::min<size_t>(n, geometry_.bytes - begin);
    if (first != 0) visit(static_cast<const uint8_t *>(from_.bytes + begin), first);
    if (first != n) visit(static_cast<const uint8_t *>(from_.bytes), n - first);
  }
  // The record is done with. True: the other end was told so, and may wait for it.
  bool take(size_t lines, size_t payload) {
    lines_ += lines;
    bytes_ += place_of(payload);
    if (lines_ - told_lines_ < geometry_.lines / 4 && bytes_ - told_bytes_ < geometry_.bytes / 4)
        [[likely]]
      return false;
    tell();
    return true;
  }
  void tell() {
    told_lines_ = lines_;
    told_bytes_ = bytes_;
    from_.control->lines_taken.store(lines_, std::memory_order_seq_cst);
    from_.control->bytes_taken.store(bytes_, std::memory_order_seq_cst);
  }
  bool owes_news() const { return told_lines_ != lines_; }
  // From now on the next record wakes this end, once. What is_empty() says afterwards counts.
  void sleep() { from_.control->sleeps.store(++sleeps_, std::memory_order_seq_cst); }
  // Messages that are in the ring, or being put, still come. The caller wakes the other end when it
  // wants them again.
  void refuse_messages(bool refuse) {
    from_.control->refuses_messages.store(refuse, std::memory_order_seq_cst);
  }
  // The other end is told that this one takes no more.
  void close() { from_.control->sleeps.store(Control::kTakesNoMore, std::memory_order_release); }
  const Geometry &geometry() const { return geometry_; }

 private:
  const Line &line_at(uint64_t line) const { return from_.lines[line & (geometry_.lines - 1)]; }

  const Direction from_;
  const Geometry geometry_;
  uint64_t lines_ = 0, bytes_ = 0, told_lines_ = 0, told_bytes_ = 0;
  uint64_t sleeps_ = 0;
};

}  // namespace weft::shm

#endif
