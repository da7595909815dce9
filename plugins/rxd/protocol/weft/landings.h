// SPDX-License-Identifier: BSD-2-Clause
// Landings: messages, reads and writes of a conversation that have come whole, while copies of them
// to memory of devices are under way (device_copies.h). They end together, later.
//
// Example:
//    // All of a read has come. False: it waits, and ends by take().
//    inline bool end(Landings &landings, DeviceCopies &copies, TxOp &read) {
//      if (landings.waits(copies, *read.landing)) return false;
//      read.status = landings.end(copies, read.landing);
//      return true;
//    }
//
// Empty without FI_HMEM. Not for the copies themselves.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_LANDINGS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_LANDINGS_H

#include <cstdint>
#include <utility>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/operation.h"

namespace weft::rxd {

class Landings {
 public:
  bool empty() const { return last_ == nullptr; }
  // All of it has come. True: copies are under way, and it waits here.
  bool waits(DeviceCopies &copies, Landing &landing) {
    if (!copies.lands(landing)) return false;
    if (std::exchange(landing.waits, true)) return true;
    landing.next = last_;
    last_ = &landing;
    return true;
  }
  // Nothing of it is under way any more when this returns its status.
  uint16_t end(DeviceCopies &copies, Landing *&landing) {
    if (landing->waits) {
      Landing **at = &last_;
      while (*at != landing) at = &(*at)->next;
      *at = landing->next;
    }
    return copies.end(landing);
  }
  // Waits for all copies. Hands what they were for to `each`, in the order in which it came.
  template <class F>
  void take(DeviceCopies &copies, F each) {
    copies.settle();
    Landing *all = nullptr;
    while (Landing *l = last_) {
      last_ = l->next;
      l->next = std::exchange(all, l);
      l->waits = false;
    }
    while (Landing *l = all) {
      all = l->next;
      each(*l);
    }
  }

 private:
  Landing *last_ = nullptr;  // the others by Landing::next
};

}  // namespace weft::rxd

#endif
