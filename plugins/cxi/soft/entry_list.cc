// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/entry_list.h"

namespace weft::cxi {

bool EntryList::takes(const LinkedEntry &entry, const Envelope &request) {
  if (!accepts(entry.entry.match_id, request.initiator)) return false;
  return !entry.entry.no_truncate || request.length <= entry.room();
}

void EntryList::append(LinkedEntry &entry) {
  entry.number = next_number_++;
  entry.in = this;
  entry.next = nullptr;
  entry.before = back_;
  (back_ != nullptr ? back_->next : front_) = &entry;
  back_ = &entry;
  if (++size_ > kFew && !indexed_) {
    indexed_ = true;
    for (LinkedEntry *one = front_; one != nullptr; one = one->next) index(*one);
  } else if (indexed_) {
    index(entry);
  }
}

void EntryList::index(LinkedEntry &entry) {
  const uint64_t ignore = entry.entry.ignore_bits;
  for (Group &group : groups_)
    if (group.ignore == ignore) return group.index.insert(entry, entry.entry.match_bits & ~ignore);
  groups_.push_back({ignore, KeyIndex<LinkedEntry>(seed_, 0)});
  groups_.back().index.insert(entry, entry.entry.match_bits & ~ignore);
}

void EntryList::remove(LinkedEntry &entry) {
  entry.in = nullptr;
  (entry.before != nullptr ? entry.before->next : front_) = entry.next;
  (entry.next != nullptr ? entry.next->before : back_) = entry.before;
  --size_;
  if (!indexed_) return;
  for (auto group = groups_.begin(); group != groups_.end(); ++group) {
    if (group->ignore != entry.entry.ignore_bits) continue;
    group->index.remove(entry);
    // Each group costs every search, so few of them are kept.
    if (group->index.empty() && groups_.size() > kFew) groups_.erase(group);
    break;
  }
  if (size_ == 0) indexed_ = false;
}

LinkedEntry *EntryList::find(const Envelope &request) const {
  if (!indexed_) {
    LinkedEntry *one = front_;
    for (; one != nullptr; one = one->next) {
      const uint64_t differs = one->entry.match_bits ^ request.match_bits;
      if ((differs & ~one->entry.ignore_bits) == 0 && takes(*one, request)) break;
    }
    return one;
  }
  LinkedEntry *best = nullptr;
  for (const Group &group : groups_) {
    LinkedEntry *one = group.index.first(request.match_bits & ~group.ignore);
    while (one != nullptr && !takes(*one, request)) one = group.index.next(*one);
    if (one != nullptr && (best == nullptr || one->number < best->number)) best = one;
  }
  return best;
}

LinkedEntry *EntryList::find_buffer(uint16_t buffer_id) const {
  LinkedEntry *one = front_;
  while (one != nullptr && one->entry.buffer_id != buffer_id) one = one->next;
  return one;
}

}  // namespace weft::cxi
