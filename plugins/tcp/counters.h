// SPDX-License-Identifier: BSD-2-Clause
// The counters of the tcp provider, one set per fabric. All of them count what happens rarely.
//
// Example:
//    inline void refuse_frame(sdk::Stats<Counters> &stats) { stats->frames_rejected.add(); }
//
// Not for values per operation: the hook profile counts those.
#ifndef WEFT_PLUGINS_TCP_COUNTERS_H
#define WEFT_PLUGINS_TCP_COUNTERS_H

#include <weft/sdk/unit/stats.h>

namespace weft::tcp {

struct Counters : sdk::CounterSet {
  using Counter = sdk::Counter;

  Counter connections_accepted{*this, "connections_accepted",
                               "connections that a peer asked for and got"};
  Counter refused_version{
      *this, "connections_refused_version",
      "strangers without a connection message of ours: a port scan, another protocol"};
  Counter refused_timeout{*this, "connections_refused_timeout",
                          "strangers that did not finish their request in handshake_timeout_ms"};
  Counter refused_silent{*this, "connections_refused_silent",
                         "strangers without a request that made room at max_handshakes"};
  Counter refused_key{*this, "connections_refused_key", "strangers without our auth_key"};
  Counter accepts_held{*this, "accepts_held",
                       "times when the limit of unfinished requests was reached, so that further "
                       "ones waited in the kernel"};
  Counter accept_failures{*this, "accept_failures",
                          "connections that could not be accepted: no descriptors, no memory"};
  Counter frames_rejected{*this, "frames_rejected",
                          "connections closed because the peer violated the protocol"};
  Counter rma_rejected{*this, "rma_rejected",
                       "reads and writes of peers without a right to that memory"};
  Counter connections_lost{*this, "connections_lost",
                           "connections that ended without fi_close or fi_shutdown of this side"};
  Counter identities_disputed{*this, "identities_disputed",
                              "times when a process claimed to be a connected peer"};
  Counter locks_contended{*this, "locks_contended",
                          "times when a thread waited for the lock of a domain, or of a context of "
                          "a scalable endpoint"};
  Counter long_saved{*this, "long_saved",
                     "messages of 16 KiB and more that came before their receive, and are copied"};
  Counter peers_refused{*this, "peers_refused",
                        "requests of strangers that were put off at max_unnamed_peers"};
};

}  // namespace weft::tcp

#endif
