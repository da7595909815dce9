// SPDX-License-Identifier: BSD-2-Clause
// Room: how many bytes of what peers send a process keeps for them: messages that wait at a
// lossless portal, and long ones that cannot be placed while they come.
//
// Example (statements):
//    Rooms all;
//    Room room(all);
//    const bool is_kept = room.take(100);  // false: this host, or all strangers, have had their share
//    if (is_kept) room.give(100);
//
// All processes of another host have one room, a process of this host has its own. While a room is
// short, who has messages waiting is not read; so most peers never meet the limit. Hosts that this
// process calls by itself are no strangers: others never take their room. All calls are with the
// engine's lock held.
#ifndef WEFT_PLUGINS_CXI_SOFT_ROOM_H
#define WEFT_PLUGINS_CXI_SOFT_ROOM_H

#include <atomic>
#include <cstddef>
#include <utility>

namespace weft::cxi {

// What the rooms of all other hosts have in common.
struct Rooms {
  size_t strangers = 0;                // bytes of theirs
  std::atomic<bool> has_freed{false};  // a room is not short any more
};

class Room {
 public:
  static constexpr size_t kMuch = size_t{8} << 20;  // then it is short
  static constexpr size_t kMost = size_t{32} << 20;
  static constexpr size_t kMostOfStrangers = size_t{128} << 20;

  Room() = default;  // of a process of this host
  explicit Room(Rooms &all) : all_(&all), is_strangers_(true) {}

  bool take(size_t bytes) {
    if (bytes > kMost - used_) return false;
    if (is_strangers_ && bytes > kMostOfStrangers - all_->strangers) return false;
    used_ += bytes;
    if (is_strangers_) all_->strangers += bytes;
    return true;
  }
  void give(size_t bytes) {
    const bool was_short = is_short();
    used_ -= bytes;
    if (is_strangers_) all_->strangers -= bytes;
    if (all_ != nullptr && was_short && !is_short()) all_->has_freed = true;
  }
  bool is_short() const { return used_ > kMuch; }
  // This process calls that host by itself.
  void be_known() {
    if (std::exchange(is_strangers_, false)) all_->strangers -= used_;
  }
  bool is_strangers() const { return is_strangers_; }

 private:
  Rooms *all_ = nullptr;
  bool is_strangers_ = false;
  size_t used_ = 0;
};

}  // namespace weft::cxi

#endif
