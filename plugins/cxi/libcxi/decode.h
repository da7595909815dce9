// SPDX-License-Identifier: BSD-2-Clause
// An event of the hardware as an Event.
//
// Example:
//    // Whether the bytes of a ring say that a receive has got its message.
//    inline bool is_arrival(const uint8_t *bytes, const ObjectTable &objects) {
//      const Event event = decode_event(bytes, objects);
//      return event.type == EventType::kPut && event.rc == Rc::kOk;
//    }
//
// Not for rings: event_bytes.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_DECODE_H
#define WEFT_PLUGINS_CXI_LIBCXI_DECODE_H

#include <cstdint>

#include "plugins/cxi/libcxi/words.h"
#include "plugins/cxi/nic/event.h"

namespace weft::cxi {

// What the numbers of the hardware stand for in this process; null where they name nothing (more).
class ObjectTable {
 public:
  virtual Portal *portal(unsigned number) const = 0;
  virtual Counter *counter(unsigned number) const = 0;

 protected:
  ~ObjectTable() = default;
};

// Event::start is an address in a LAC still. kError: an event that says nothing to a provider.
Event decode_event(const uint8_t *bytes, const ObjectTable &objects);

}  // namespace weft::cxi

#endif
