// SPDX-License-Identifier: BSD-2-Clause
// Layout: where things are in the memory that two endpoints share. It has two directions, each with
// a control line, a ring of lines for records, and a ring of bytes for payloads.
//
// Example:
//    inline Direction to_the_maker(void *memory, const Geometry &geometry) {
//      return direction_of(memory, geometry, 1);
//    }
//
// The end that made the memory produces in direction 0 and consumes in direction 1. Each field has
// one writer. Not for what is in a record (record.h), nor for who may read what when (ring.h).
#ifndef WEFT_PLUGINS_SHM_WIRE_LAYOUT_H
#define WEFT_PLUGINS_SHM_WIRE_LAYOUT_H

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::shm {

inline constexpr size_t kLine = 64;  // bytes of a cache line

struct alignas(kLine) Line {
  std::atomic<uint64_t> word;  // of the first line of a record: Word; else it has no meaning
  uint8_t bytes[kLine - sizeof(uint64_t)];
};
static_assert(sizeof(Line) == kLine && std::atomic<uint64_t>::is_always_lock_free);

// The consumer alone writes it.
struct alignas(kLine) Control {
  std::atomic<uint64_t> lines_taken, bytes_taken;  // since the beginning
  // Counts up when the consumer wants to be woken for the next record.
  std::atomic<uint64_t> sleeps;
  static constexpr uint64_t kTakesNoMore = UINT64_MAX;  // in `sleeps`: the consumer has closed
  // Not 0: the consumer has no memory for messages without a receive, and awaits parts or answers
  // that come behind them. The producer puts no message.
  std::atomic<uint64_t> refuses_messages;
};

// How large the rings of either direction are.
struct Geometry {
  uint32_t lines = 0, bytes = 0;

  static constexpr uint32_t kLeastLines = 64, kMostLines = 1 << 14;
  static constexpr uint32_t kLeastBytes = 1 << 14, kMostBytes = 1 << 24;
  // Both are powers of two.
  constexpr bool valid() const {
    return std::has_single_bit(lines) && lines >= kLeastLines && lines <= kMostLines &&
           std::has_single_bit(bytes) && bytes >= kLeastBytes && bytes <= kMostBytes;
  }
  constexpr size_t direction_size() const { return sizeof(Control) + lines * kLine + bytes; }
  constexpr size_t size() const { return 2 * direction_size(); }
  // The payload of one record. Four of them fit, so that a consumer may tell late what it has
  // taken.
  constexpr size_t most_payload() const { return bytes / 4 < (16 << 10) ? bytes / 4 : 16 << 10; }
  friend bool operator==(const Geometry &, const Geometry &) = default;
};

struct Direction {
  Control *control;
  Line *lines;
  uint8_t *bytes;
};

inline Direction direction_of(void *memory, const Geometry &geometry, unsigned which) {
  auto *const at = static_cast<uint8_t *>(memory) + which * geometry.direction_size();
  auto *const lines = reinterpret_cast<Line *>(at + sizeof(Control));
  return {reinterpret_cast<Control *>(at), lines,
          reinterpret_cast<uint8_t *>(lines + geometry.lines)};
}

}  // namespace weft::shm

#endif
