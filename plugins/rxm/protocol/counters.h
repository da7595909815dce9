// SPDX-License-Identifier: BSD-2-Clause
// The counters of rxm. Each endpoint's Core has a set, raised with its lock held; the fabric tells
// their sum.
//
// Example:
//    inline void on_lost(Counters &counters) { counters.lost.add_alone(); }
//
// Not for values per operation or per peer: the hook profile counts the former.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_COUNTERS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_COUNTERS_H

#include <weft/sdk/unit/counters.h>

namespace weft::rxm {

struct Counters : sdk::CounterSet {
  using Counter = sdk::Counter;

  // ---- connections ----
  Counter made{*this, "connections_made", "connections that were made, asked for by either side"};
  Counter lost{*this, "connections_lost",
               "connections that ended without an agreement with the peer, before fi_close"};
  Counter parted{*this, "connections_parted",
                 "idle connections that ended by agreement (max_connections, max_unnamed_peers)"};
  Counter retries{*this, "connect_retries",
                  "requests that were sent again because the peer put them off or hung up"};
  Counter timeouts{*this, "connect_timeouts",
                   "peers that put off our requests until connect_timeout_ms was over"};
  Counter failures{*this, "connect_failures", "requests of ours that were refused or failed"};
  Counter refused{*this, "requests_refused",
                  "requests of peers that were refused: not valid, or another buffer_size"};
  Counter put_off{*this, "requests_put_off",
                  "requests of peers that were told to come again: another connection counts, or "
                  "there was no room"};
  Counter crossed{*this, "connects_crossed",
                  "times when both sides asked at once, and the peer's request counted"};
  Counter contested{*this, "addresses_contested",
                    "times when another process claimed the address of a connected peer"};
  Counter replaced{*this, "connections_replaced",
                   "connections that a newer one to the owner of the address replaced"};
  Counter violations{*this, "protocol_violations",
                     "connections that were closed because the peer broke the protocol or its "
                     "limits"};
  Counter strangers_closed{*this, "strangers_closed",
                           "silent strangers that were closed at max_unnamed_peers"};

  // ---- operations ----
  Counter tx_full{*this, "operations_refused",
                  "operations that returned FI_EAGAIN because tx_size were in flight"};
  Counter queued{*this, "operations_queued",
                 "operations that had to wait for a connection, room, or credits"};
  Counter waited_for_credits{*this, "credit_waits", "of these: those that waited for credits"};
  Counter failed{*this, "operations_failed", "operations that ended with an error"};
  Counter bare{*this, "messages_bare", "messages that were sent without a header, to weft peers"};
  Counter segmented{*this, "messages_segmented", "messages that were sent in several packets"};
  Counter rendezvous{*this, "rendezvous_sent",
                     "large messages that were announced to their receiver"};

  // ---- arriving messages ----
  Counter rendezvous_taken{*this, "rendezvous_received", "large messages that a peer announced"};
  Counter saved{*this, "messages_saved", "messages that came before a receive was posted"};
  Counter saved_bytes{*this, "bytes_saved", "bytes of packets that were kept for such messages"};
  Counter copied{*this, "packets_copied",
                 "packets that were kept as copies, because few receive buffers were free or the "
                 "peer held too many"};
  Counter held{*this, "connections_held",
               "times when a connection was not read for a while, because the memory or buffers "
               "for its unexpected messages were used up"};

  // ---- threads ----
  Counter locks_contended{
      *this, "locks_contended",
      "times when a thread waited for the lock of a domain, or of a context of a "
      "scalable endpoint"};
};

}  // namespace weft::rxm

#endif
