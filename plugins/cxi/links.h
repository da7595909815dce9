// SPDX-License-Identifier: BSD-2-Clause
// Links: entries that an object cannot do without. The pool of list entries is shared by all that
// use the NIC, so there may be no place for one: its owner is told, and not its peers later.
//
// Example:
//    inline Result<void> open_window(Links &links, Portal &portal, EventQueue &events) {
//      links.append(portal, Entry{.op_put = true});
//      return links.wait("a window", portal, [&] {  // every kLink event of this queue is one of ours
//        const Event *const event = events.peek(0);
//        if (event == nullptr) return false;
//        if (event->type == EventType::kLink) links.on_link(*event);
//        events.ack(1);
//        return true;
//      });
//    }
//
// Not for receives and buffers, which try again: inbox_flow.cc.
#ifndef WEFT_PLUGINS_CXI_LINKS_H
#define WEFT_PLUGINS_CXI_LINKS_H

#include <rdma/fi_errno.h>
#include <weft/sdk/progress/engine.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class Links {
 public:
  // A kLink event follows. One that was refused before stands in nobody's way.
  void append(Portal &portal, Entry entry, List list = List::kPriority) {
    entry.link_disable = false;
    entry.restart_sequence = true;
    ++pending_;
    portal.append(list, entry);
  }
  void on_link(const Event &event) {
    if (pending_ != 0) --pending_;
    if (event.rc != Rc::kOk) ++refused_;
  }
  // Whether the NIC has taken all since the last call. `read` reads events; false: there are none.
  template <class F>
  Result<void> wait(const char *what, const Portal &portal, F &&read) {
    const uint64_t end = sdk::now_ns() + kPatienceNs;
    while (pending_ != 0) {
      if (read()) continue;
      if (sdk::now_ns() >= end) {
        pending_ = refused_ = 0;
        return fail(FI_EIO, "the NIC does not say whether it has taken %s", what);
      }
      std::this_thread::yield();
    }
    // Messages and receives of all need some, too.
    const PortalStatus pool = portal.status();
    const bool is_short = pool.entries_max != 0 && pool.entries_used + kSpare > pool.entries_max;
    if (std::exchange(refused_, 0) == 0 && !is_short) return {};
    return fail(FI_ENOSPC,
                "the NIC has no list entry left for %s: close endpoints, regions or receives of "
                "the processes that use it, or raise the limit of its service (in software: "
                "FI_CXI_SOFT_LIST_ENTRIES)",
                what);
  }

 private:
  static constexpr size_t kSpare = 4;
  static constexpr uint64_t kPatienceNs = 1'000'000'000;
  size_t pending_ = 0, refused_ = 0;
};

}  // namespace weft::cxi

#endif
