// SPDX-License-Identifier: BSD-2-Clause
// The network of the double that a test program of whole stacks runs on, from its start to its end,
// as a host keeps its devices. WEFT_TEST_PROGRESS says when the hardware works: at_once (the
// default), or thread. WEFT_TEST_TRANSPORT=iwarp: all devices are of iWARP.
//
// Example:
//    // In a test, which opens stacks with kAddress as node. All is closed again at its end, and
//    // the faults are forgotten.
//    inline void spoil_the_network() {
//      network().fail({.call = "ibv_reg_mr", .error = ENOMEM});
//      device(kMortal).remove();
//    }
//
// Not for tests of the provider's own classes: plugins/verbs/test_node.h.
#ifndef WEFT_TESTS_VERBS_NETWORK_H
#define WEFT_TESTS_VERBS_NETWORK_H

#include <string>

#include "plugins/verbs/double/double.h"

namespace weft::conformance {

// Addresses of devices. Each has one, and the name of the first is dbl0.
inline constexpr const char *kAddress = "10.99.0.1";  // also fd99::1
inline constexpr const char *kOther = "10.99.0.2";    // like it
inline constexpr const char *kPlain = "10.99.0.3";    // no shared receives, no inline data
inline constexpr const char *kSmall = "10.99.0.4";    // small queues
inline constexpr const char *kMortal = "10.99.0.5";   // for a test that removes it
inline constexpr const char *kNarrow = "10.99.0.6";   // packets of 1024 bytes

verbs_double::Network &network();
verbs_double::Device &device(const char *address);

// After a test: what is still open, and what was done against the rules of the libraries since the
// last call. Empty where all is well. Faults that did not happen are forgotten.
std::string network_trouble();

}  // namespace weft::conformance

#endif
