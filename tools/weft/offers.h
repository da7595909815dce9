// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo() gives, as people and scripts read it: one offer for each domain of a stack.
//
// Example (statements):
//     const Offers found = *ask(HintOptions());
//     const std::vector<Offer> offers = offers_of(found.list.get());  // best first
//     if (!offers.empty()) print_field("chosen", summary(offers.front()), 8);
//     print_offers(offers);
//
// Not for why something is no offer: decisions.h.
#ifndef WEFT_TOOLS_WEFT_OFFERS_H
#define WEFT_TOOLS_WEFT_OFFERS_H

#include <rdma/fabric.h>

#include <string>
#include <vector>

#include "tools/weft/text.h"

namespace weft::cli {

// One domain of one stack, with its source addresses.
struct Offer {
  std::string stack, type, domain, fabric, protocol, version;
  std::vector<std::string> addresses;
};

std::vector<Offer> offers_of(const fi_info *list);

// "tcp (msg) on eth0, 10.0.0.2"
std::string summary(const Offer &offer);
Json offer_json(const Offer &offer);
Json offers_json(const std::vector<Offer> &offers);
// A table; the first is what most programs take.
void print_offers(const std::vector<Offer> &offers);

}  // namespace weft::cli

#endif
