// SPDX-License-Identifier: BSD-2-Clause
// Saved: a message that came before its receive: its bytes, or where they are in its sender.
//
// Example:
//    inline bool is_lost(const Saved &saved) { return saved.error != 0; }
//
// Endpoint::save() makes them, within the limits of memory.
#ifndef WEFT_PLUGINS_SHM_SAVED_H
#define WEFT_PLUGINS_SHM_SAVED_H

#include <weft/sdk/transfers/receiver.h>

#include "plugins/shm/peer.h"
#include "plugins/shm/wire/record.h"

namespace weft::shm {

struct Saved final : sdk::Unexpected {
  Peer *peer = nullptr;
  Link *link = nullptr;  // null: it is over
  uint64_t id = 0;       // of the sender's operation
  uint64_t cost = 0;     // bytes of memory
  int error = 0;         // FI_E...: its bytes never come
  bool is_far = false, is_awaited = false;
  uint8_t vector_count = 0;
  FarVector vectors[kMostVectors];

  uint8_t *bytes() { return reinterpret_cast<uint8_t *>(this + 1); }
};

}  // namespace weft::shm

#endif
