// SPDX-License-Identifier: BSD-2-Clause
// What shm counts, for `weft stats` (weft/sdk/unit/stats.h).
//
// Example:
//    void refuse(Counters &counters) { counters.strangers_refused.add(); }
#ifndef WEFT_PLUGINS_SHM_COUNTERS_H
#define WEFT_PLUGINS_SHM_COUNTERS_H

#include <weft/sdk/unit/counters.h>

namespace weft::shm {

using sdk::Counter;

struct Counters : sdk::CounterSet {
  Counter links_made{*this, "links_made", "links that an endpoint of this process asked for"};
  Counter links_accepted{*this, "links_accepted", "links that a peer asked for and got"};
  Counter links_lost{*this, "links_lost", "links whose peer closed its endpoint or died"};
  Counter links_rejected{*this, "links_rejected",
                         "links that ended because the peer wrote nonsense"};
  Counter strangers_refused{*this, "strangers_refused",
                            "processes that asked for a link and did not get one: of another user, "
                            "at a limit, or with another protocol"};
  Counter rma_rejected{*this, "rma_rejected",
                       "reads, writes and atomics of peers without a right to that memory"};
  Counter locks_contended{*this, "locks_contended",
                          "times when a thread waited for the lock of a domain"};
};

}  // namespace weft::shm

#endif
