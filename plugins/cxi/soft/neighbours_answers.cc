// SPDX-License-Identifier: BSD-2-Clause
// Acknowledgements of Neighbours that wait, and go along with messages to the same process.
#include <weft/sdk/progress/engine.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "plugins/cxi/soft/neighbours.h"

namespace weft::cxi {
namespace {

constexpr unsigned kTicksAlone = 5;  // about the timeout

}  // namespace

// ---- the two connections with the same ends ----

void Neighbours::find_partner(Link &link) {
  if (link.key == 0) return;
  const auto [begin, end] = single_.equal_range({link.key, link.ends});
  const auto found = std::find_if(
      begin, end, [&](const auto &one) { return one.second->name.empty() != link.name.empty(); });
  if (found == end) {
    single_.emplace(std::pair(link.key, link.ends), &link);
    return;
  }
  link.partner = found->second;
  link.partner->partner = &link;
  single_.erase(found);
  Link &asks = link.name.empty() ? *link.partner : link;
  asks.partner->stream.set_partner(&asks.stream);
}

// Where answers have gone along, the other connection waits for some that are lost, if it does not
// end by itself; and what it has brought until then is good. Else it was one too many.
void Neighbours::lose_partner(Link &link) {
  std::erase_if(single_, [&](const auto &one) { return one.second == &link; });
  Link *const partner = std::exchange(link.partner, nullptr);
  if (partner == nullptr) return;
  partner->partner = nullptr;
  partner->stream.set_partner(nullptr);
  if (partner->is_carried)
    partner->ticks_alone = 1;
  else
    find_partner(*partner);
}

bool Neighbours::is_left_alone(Link &link) {
  return link.ticks_alone != 0 && ++link.ticks_alone > kTicksAlone;
}

// ---- what waits ----

bool Neighbours::answer(Link &link) {
  if (!link.has_input) return true;
  if (answers_ == Answers::kAtOnce || link.partner == nullptr || !link.has_only_acks())
    return write_to(link);
  const bool may_wait = answers_ == Answers::kWait || patience_.may_wait();
  if (patience_.wants_time()) patience_.posted(sdk::now_ns());
  if (!may_wait) return write_to(link);
  if (!std::exchange(link.is_late, true)) late_.push_back(&link);
  has_late_.store(true, std::memory_order_release);
  return true;
}

void Neighbours::note_progress() {
  if (!patience_.pending()) return;
  const uint64_t now = sdk::now_ns();
  patience_.progressed(now, patience_.is_late(now) && interruptions_.any());
}

void Neighbours::write_late() {
  has_late_.store(false, std::memory_order_release);
  for (Link *const link : late_) {
    link->is_late = false;
    if (std::ranges::find(over_, link) == over_.end() && !write_to(*link)) end(*link);
  }
  late_.clear();
}

// What answers the same process.
void Neighbours::take_along(Link &link) {
  Link *const answers = link.partner;
  if (answers == nullptr || !answers->is_late || !answers->has_only_acks()) return;
  if (!answers->stream.move_acks(link.stream)) return;
  link.is_carried = answers->is_carried = true;
  ++taken_along_;
}

void Neighbours::settle() {
  if (!has_late_.load(std::memory_order_acquire) || mark_.is_child()) return;
  const std::unique_lock polling(polling_, std::try_to_lock);
  if (!polling.owns_lock()) return;  // whoever is inside has just begun, or writes them
  over_.clear();
  note_progress();
  write_late();
  remove_ended();
}

}  // namespace weft::cxi
