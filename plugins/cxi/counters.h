// SPDX-License-Identifier: BSD-2-Clause
// The counters of the cxi provider, one set per fabric, for `weft stats`.
//
// Example:
//    inline void on_drop(sdk::Stats<Counters> &stats) { stats->flow_controls.add(); }
//
// They tell what went another way than straight through the NIC. Not for values per operation: the
// hook profile counts those.
#ifndef WEFT_PLUGINS_CXI_COUNTERS_H
#define WEFT_PLUGINS_CXI_COUNTERS_H

#include <weft/sdk/unit/stats.h>

namespace weft::cxi {

struct Counters : sdk::CounterSet {
  using Counter = sdk::Counter;

  Counter messages_saved{*this, "messages_saved",
                         "messages that came before their receive, into an overflow buffer"};
  Counter messages_collected{
      *this, "messages_collected",
      "of those, messages that software has taken from the NIC: it was short, or asked for them"};
  Counter messages_requested{*this, "messages_requested",
                             "messages that the NIC has left to software to match"};
  Counter long_messages{*this, "long_messages", "messages whose rest the receiver reads"};
  Counter receives_given{*this, "receives_given", "receives that were given to the NIC"};
  Counter receives_taken_back{*this, "receives_taken_back",
                              "receives that the NIC gave back for want of list entries"};
  Counter flow_controls{*this, "flow_controls",
                        "times that an endpoint here could take no message, and dropped some"};
  Counter messages_refused{*this, "messages_refused",
                           "messages that a peer dropped, and that were sent again"};
  Counter messages_retried{*this, "messages_retried",
                           "messages that were sent again since they found no receive (RNR)"};
  Counter senders_given_up{*this, "senders_given_up",
                           "times that a sender did not say how many of its messages were dropped"};
  Counter software_matching{*this, "software_matching",
                            "endpoints whose matching went from the NIC to software (hybrid)"};
  Counter deferred{*this, "deferred",
                   "operations and counters that wait, or waited, for a counter"};
  Counter groups_joined{*this, "groups_joined", "groups for collective operations, joined here"};
  Counter groups_with_addresses{*this, "groups_with_addresses",
                                "of those, the ones with a multicast address of a fabric manager"};
  Counter collectives{*this, "collectives", "collective operations that have ended well here"};
  Counter collectives_failed{*this, "collectives_failed",
                             "collective operations that have failed here"};
  Counter collective_packets{*this, "collective_packets",
                             "packets to other members of groups, also those that ask for them"};
};

}  // namespace weft::cxi

#endif
