// SPDX-License-Identifier: BSD-2-Clause
// HeaderList: the headers of messages that came before their receive, in order of arrival.
//
// Example:
//    // The oldest message for a receive, taken off the list.
//    inline Header *take(HeaderList &unexpected, const Entry &receive) {
//      Header *const header = unexpected.find(receive.match_bits, receive.ignore_bits,
//                                             receive.match_id, nullptr);
//      if (header != nullptr) unexpected.remove(*header);
//      return header;
//    }
//
// A hundred thousand headers slow down no search: those for the sets of ignored bits that were last
// asked for are found by hash. Headers are the caller's. Not for receives (entry_list.h).
#ifndef WEFT_PLUGINS_CXI_SOFT_HEADER_LIST_H
#define WEFT_PLUGINS_CXI_SOFT_HEADER_LIST_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "plugins/cxi/nic/words.h"
#include "plugins/cxi/soft/key_index.h"

namespace weft::cxi {

struct LinkedEntry;

struct Header {
  static constexpr size_t kIndices = 4;

  uint64_t match_bits = 0, header_data = 0, remote_offset = 0;
  uint64_t start = 0;  // where the overflow buffer has the bytes
  uint32_t initiator = 0;
  uint32_t mlength = 0, rlength = 0;
  Nid source = 0;
  Vni vni = 0;
  uint16_t buffer_id = 0;  // of the overflow entry
  bool rendezvous = false;
  uint8_t rendezvous_id = 0;

  // ---- of the list ----
  Header *next = nullptr, *before = nullptr;
  uint64_t number = 0;
  KeyHook<Header> hooks[kIndices];
};

class HeaderList {
 public:
  explicit HeaderList(uint64_t seed) : seed_(seed) {}

  void append(Header &header);
  void remove(Header &header);
  // The oldest that matches and is behind `after` (null: of all).
  Header *find(uint64_t match_bits, uint64_t ignore_bits, uint32_t match_id, const Header *after);
  Header *front() const { return front_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kFew = 4;
  struct Group {
    uint64_t ignore;
    uint64_t last_used;
    KeyIndex<Header> index;
  };

  Group &group_of(uint64_t ignore);

  const uint64_t seed_;
  Header *front_ = nullptr, *back_ = nullptr;
  size_t size_ = 0;
  uint64_t next_number_ = 0, uses_ = 0;
  std::array<std::optional<Group>, Header::kIndices> groups_;
};

}  // namespace weft::cxi

#endif
