// SPDX-License-Identifier: BSD-2-Clause
// have_room: memory that a list will need, now, so that a later push_back cannot fail. reserve()
// alone moves the list each time that it grows by one.
//
// Example:
//    inline void add(std::vector<int *> &all, std::vector<int *> &free, int &one) {
//      sdk::have_room(free, all.size() + 1);
//      all.push_back(&one);
//    }
#ifndef WEFT_SDK_MEMORY_ROOM_H
#define WEFT_SDK_MEMORY_ROOM_H

#include <cstddef>

namespace weft::sdk {

// Room for `n` in all. std::bad_alloc: there is no memory.
template <class List>
void have_room(List &list, size_t n) {
  if (list.capacity() < n) list.reserve(2 * n);
}

}  // namespace weft::sdk

#endif
