// SPDX-License-Identifier: BSD-2-Clause
// Waits for the next event of a queue, as the blocking calls of the libraries do.
//
// Example:
//    // The next event, or -1 with errno: EAGAIN if the descriptor does not block.
//    int next_event(World &world, EventQueue<int> &events, int &event) {
//      return wait_for_event(world, events, [&](int next) { event = next; });
//    }
//
// O_NONBLOCK of the descriptor decides whether the call blocks; a program sets it by fcntl(2).
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_WAITING_H
#define WEFT_PLUGINS_VERBS_DOUBLE_WAITING_H

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "plugins/verbs/double/event_queue.h"
#include "plugins/verbs/double/world.h"

namespace weft::verbs_double {

// Calls `use` with the event, under the lock. Returns 0, or -1 with errno.
template <class T, class Use>
int wait_for_event(World &world, EventQueue<T> &events, Use use) {
  while (true) {
    {
      const Entry entry(world);
      if (std::optional<T> event = events.pop()) {
        use(std::move(*event));
        return 0;
      }
    }
    if ((fcntl(events.fd(), F_GETFL) & O_NONBLOCK) != 0) return failed(EAGAIN);
    pollfd descriptor = {events.fd(), POLLIN, 0};
    if (poll(&descriptor, 1, -1) < 0) return -1;
  }
}

}  // namespace weft::verbs_double

#endif
