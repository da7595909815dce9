// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/header_list.h"

namespace weft::cxi {

void HeaderList::append(Header &header) {
  header.number = next_number_++;
  header.next = nullptr;
  header.before = back_;
  (back_ != nullptr ? back_->next : front_) = &header;
  back_ = &header;
  ++size_;
  for (std::optional<Group> &group : groups_)
    if (group) group->index.insert(header, header.match_bits & ~group->ignore);
}

void HeaderList::remove(Header &header) {
  (header.before != nullptr ? header.before->next : front_) = header.next;
  (header.next != nullptr ? header.next->before : back_) = header.before;
  --size_;
  for (std::optional<Group> &group : groups_)
    if (group) group->index.remove(header);
}

// Made when it is first asked for, in place of the one that was not for the longest time.
HeaderList::Group &HeaderList::group_of(uint64_t ignore) {
  std::optional<Group> *place = &groups_[0];
  for (std::optional<Group> &group : groups_) {
    if (group && group->ignore == ignore) {
      group->last_used = ++uses_;
      return *group;
    }
    if (!*place) continue;
    if (!group || group->last_used < (*place)->last_used) place = &group;
  }
  place->reset();
  place->emplace(Group{ignore, ++uses_, KeyIndex<Header>(seed_, size_t(place - &groups_[0]))});
  for (Header *one = front_; one != nullptr; one = one->next)
    (*place)->index.insert(*one, one->match_bits & ~ignore);
  return **place;
}

Header *HeaderList::find(uint64_t match_bits, uint64_t ignore_bits, uint32_t match_id,
                         const Header *after) {
  if (size_ <= kFew) {
    Header *one = after != nullptr ? after->next : front_;
    for (; one != nullptr; one = one->next)
      if (((one->match_bits ^ match_bits) & ~ignore_bits) == 0 && accepts(match_id, one->initiator))
        break;
    return one;
  }
  Group &group = group_of(ignore_bits);
  const uint64_t key = match_bits & ~ignore_bits;
  // What is found first has the key already, so what follows it stands in the same row.
  const bool goes_on = after != nullptr && (after->match_bits & ~ignore_bits) == key;
  Header *one = goes_on ? group.index.next(*after) : group.index.first(key);
  while (one != nullptr &&
         (!accepts(match_id, one->initiator) || (after != nullptr && one->number <= after->number)))
    one = group.index.next(*one);
  return one;
}

}  // namespace weft::cxi
