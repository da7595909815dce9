// SPDX-License-Identifier: BSD-2-Clause
// Whether what a provider offers fits what an application asked for, and the answer that the
// application then gets.
//
// Example:
//    #include <string>
//    bool answer(uint32_t version, uint64_t flags, const fi_info *hints, fi_info &offer,
//                std::string &reason) {
//      const Match match = match_info(version, flags, hints, offer);
//      reason = match.reason();  // "hints.tx_attr.size 4096 is above 1024"
//      return match.accepted && narrow_info(version, flags, hints, offer);  // now as returned
//    }
//
// Pure functions of their arguments, after fi_getinfo(3), fi_endpoint(3), fi_domain(3), fi_mr(3).
// An offer states the most that a provider can do, so: caps, op_flags, orders, limits and counts
// are upper bounds; `mode`, `mr_mode` and `threading` are what it needs of the application. Some
// things (automatic progress, long queues) are returned only if the hints ask for them.
// FI_MR_BASIC and FI_MR_SCALABLE in an offered mr_mode say "these old forms work too"; the other
// bits stay requirements.
//
// The provider has resolved the addresses before. Which stacks may be used at all is decided in
// core/select/candidates.h.
#ifndef WEFT_CORE_MATCH_MATCH_H
#define WEFT_CORE_MATCH_MATCH_H

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/refusal.h"

namespace weft {

struct Match {
  bool accepted = false;
  std::vector<Refusal> refusals;  // every hint that does not fit

  uint32_t distance() const;  // the sum of theirs
  // The refusals in words, joined by "; ". `whose` stands before each attribute.
  std::string reason(std::string_view whose = "hints.") const;
};

// `version` is the API version of the application, `flags` are those of fi_getinfo(), `hints` may
// be null. If the offer has a prov_name, hints.fabric_attr.prov_name is held against it.
Match match_info(uint32_t version, uint64_t flags, const fi_info *hints, const fi_info &offer);

// Turns an accepted offer into what is returned. Changes values only; allocates nothing but a copy
// of an authorization key. false: no memory.
bool narrow_info(uint32_t version, uint64_t flags, const fi_info *hints, fi_info &offer);

// The capabilities that an answer may have although the hints, which name others, leave them out
// (fi_getinfo.3, secondary capabilities).
uint64_t unasked_caps(const fi_info *hints);

// Whether hints.fabric_attr.prov_name admits a stack: "tcp" every stack with such an element,
// "tcp;ofi_rxm" (in either order) exactly that one, "(shm+tcp);link" exactly that one, "^tcp" and
// "^tcp,udp" every stack without them. Upper and lower case are the same.
bool prov_name_admits(std::string_view wanted, std::string_view stack);

// The name of a provider (over nothing) or of a layer with what is beneath it: "tcp",
// "tcp;ofi_rxm", "(shm+tcp;ofi_rxm);link". weft/plugin.h, weft_instance, has the rules.
std::string prov_name_over(std::span<const std::string> inner, std::string_view name);

// How many units a name of this form has.
size_t prov_name_units(std::string_view name);

}  // namespace weft

#endif
