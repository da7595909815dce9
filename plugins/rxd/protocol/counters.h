// SPDX-License-Identifier: BSD-2-Clause
// The counters of rxd. Each endpoint's Core has a set, raised with its lock held; the fabric tells
// their sum.
//
// Example:
//    inline void on_duplicate(Counters &counters) { counters.duplicates.add_alone(); }
//
// Not for values per operation or per peer: the hook profile counts the former.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_COUNTERS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_COUNTERS_H

#include <weft/sdk/unit/counters.h>

namespace weft::rxd {

struct Counters : sdk::CounterSet {
  using Counter = sdk::Counter;

  // ---- packets ----
  Counter packets_sent{*this, "packets_sent", "datagrams given to the provider beneath"};
  Counter packets_received{*this, "packets_received", "datagrams that came, of any kind"};
  Counter repeated{*this, "packets_repeated", "packets sent again after a loss or a timeout"};
  Counter duplicates{*this, "packets_duplicate", "packets that came more than once"};
  Counter early{*this, "packets_early",
                "packets that came before an earlier one, or before the program read its "
                "completions, and were kept"};
  Counter dropped{*this, "packets_dropped",
                  "packets that came when there was no room for them: the peer sends them again"};
  Counter rejected{*this, "packets_rejected",
                   "datagrams that do not parse, or whose checksum or MAC is wrong"};
  Counter strangers{*this, "packets_of_strangers", "packets of no connection"};
  Counter provider_full{*this, "provider_full",
                        "datagrams for which the provider beneath had no room at that time"};

  // ---- loss and congestion ----
  Counter timeouts{*this, "timeouts", "times when no acknowledgement came in time"};
  Counter cut_for_loss{*this, "windows_cut_for_loss",
                       "times when less was allowed in flight because packets were lost"};
  Counter cut_for_delay{*this, "windows_cut_for_delay",
                        "times when less was allowed in flight because packets were delayed"};
  Counter collapses{*this, "windows_collapsed",
                    "times when half of the packets in flight were lost after a timeout"};
  Counter waited_for_credit{*this, "credit_waits",
                            "times when a message began to wait for the receiver's credit"};

  // ---- connections ----
  Counter connected{*this, "connections_made", "connections that were made with weft peers"};
  Counter stock_peers{*this, "stock_peers",
                      "conversations that began with peers that speak stock libfabric's protocol"};
  Counter ended{*this, "connections_ended",
                "connections and conversations that ended before fi_close, for any reason"};
  Counter closed_by_peer{*this, "connections_closed", "of these: the peer closed its endpoint"};
  Counter timed_out{*this, "connections_timed_out",
                    "peers with a connection that did not answer for peer_timeout_ms"};
  Counter violations{*this, "protocol_violations", "of these: the peer broke the protocol"};
  Counter dismissed{*this, "peers_dismissed",
                    "of these: an idle peer made room for a new one at max_unnamed_peers"};
  Counter unanswered{*this, "handshakes_timed_out",
                     "peers that did not answer the handshake for peer_timeout_ms"};
  Counter refused{*this, "peers_refused",
                  "handshakes refused because max_unnamed_peers had something outstanding"};
  Counter limited{*this, "handshakes_limited",
                  "handshake packets without an answer, because handshake_rate was reached"};
  Counter doubts{*this, "peers_doubted",
                 "times when a silent peer was asked whether it is still the same process"};

  // ---- messages ----
  Counter announced{*this, "messages_announced",
                    "large messages that were sent as fast as their receiver asked for them"};
  Counter saved{*this, "messages_saved", "messages that came before a receive was posted"};
  Counter saved_bytes{*this, "bytes_saved", "bytes of messages that were copied to be kept"};
  Counter tx_full{*this, "operations_refused",
                  "operations that returned FI_EAGAIN because tx_size were in flight"};
  Counter failed{*this, "operations_failed", "operations that ended with an error"};

  // ---- threads ----
  Counter locks_contended{
      *this, "locks_contended",
      "times when a thread waited for the lock of a domain, or of a context of a "
      "scalable endpoint"};
};

}  // namespace weft::rxd

#endif
