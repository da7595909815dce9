// SPDX-License-Identifier: BSD-2-Clause
// EntryList: a portal's entries in the order of their appending, and which of them takes a request.
//
// Example:
//    inline LinkedEntry *who_takes(EntryList &receives, const Envelope &message) {
//      LinkedEntry *const entry = receives.find(message);
//      if (entry != nullptr && entry->entry.use_once) receives.remove(*entry);
//      return entry;  // null: nobody
//    }
//
// A request finds the oldest entry that accepts its match bits and its initiator, whatever the
// number of entries: those that ignore the same bits are found by hash. Entries are the caller's.
// Not for unexpected messages (header_list.h), nor for portals without matching, which use front().
#ifndef WEFT_PLUGINS_CXI_SOFT_ENTRY_LIST_H
#define WEFT_PLUGINS_CXI_SOFT_ENTRY_LIST_H

#include <cstddef>
#include <cstdint>
#include <list>

#include "plugins/cxi/nic/command.h"
#include "plugins/cxi/soft/key_index.h"

namespace weft::cxi {

// What of a request decides where it goes.
struct Envelope {
  uint64_t match_bits = 0;
  uint32_t initiator = 0;
  uint64_t length = 0;
};

class EntryList;

struct LinkedEntry {
  Entry entry;
  uint64_t used = 0;        // bytes, of manage_local
  EntryList *in = nullptr;  // null: it is in no list
  uint64_t room() const { return entry.length - used; }

  // ---- of the list ----
  LinkedEntry *next = nullptr, *before = nullptr;
  uint64_t number = 0;  // the order
  KeyHook<LinkedEntry> hooks[1];
};

class EntryList {
 public:
  explicit EntryList(uint64_t seed) : seed_(seed) {}

  void append(LinkedEntry &entry);
  void remove(LinkedEntry &entry);
  LinkedEntry *find(const Envelope &request) const;
  LinkedEntry *find_buffer(uint16_t buffer_id) const;  // the oldest; linear
  LinkedEntry *front() const { return front_; }
  size_t size() const { return size_; }

 private:
  // Up to this many are looked at one by one, which is faster than a hash.
  static constexpr size_t kFew = 4;
  struct Group {
    uint64_t ignore;
    KeyIndex<LinkedEntry> index;
  };

  static bool takes(const LinkedEntry &entry, const Envelope &request);
  void index(LinkedEntry &entry);

  const uint64_t seed_;
  LinkedEntry *front_ = nullptr, *back_ = nullptr;
  size_t size_ = 0;
  uint64_t next_number_ = 0;
  bool indexed_ = false;     // until the list is empty
  std::list<Group> groups_;  // by the bits that entries ignore
};

}  // namespace weft::cxi

#endif
