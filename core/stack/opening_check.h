// SPDX-License-Identifier: BSD-2-Clause
// OpeningCheck: whether an object may be opened with an fi_info, by the function that fi_getinfo
// uses: the provider is asked with this info as hints, and one of its offers has to fit.
//
// Example:
//    Result<void> may_open(OpeningCheck &checks, fi_info *(*offers)(const fi_info &hints),
//                          uint32_t api_version, const fi_info &info) {
//      return checks.check(api_version, info, 0, [&](const fi_info &hints, uint64_t) {
//        return Result<InfoPtr>(offers(hints));  // unfiltered
//      });
//    }
//
// What one process opens it opens many times, so an info that fits is remembered: the next one with
// the same attributes costs no question. A device that has gone since then is the provider's to
// find.
//
// Addresses, the handle, the nic and the fabric are not looked at. The name of the domain only says
// which offers count, because that of a wildcard address is in no list.
#ifndef WEFT_CORE_STACK_OPENING_CHECK_H
#define WEFT_CORE_STACK_OPENING_CHECK_H

#include <rdma/fabric.h>
#include <weft/result.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "core/base/info.h"

namespace weft {

class OpeningCheck {
 public:
  // What the provider offers for these hints and flags of fi_getinfo, without a filter.
  using Ask = std::function<Result<InfoPtr>(const fi_info &hints, uint64_t flags)>;

  // An error is FI_EINVAL with each attribute that does not fit, or what `ask` said.
  // `replaced_protocol`: what fi_getinfo says in place of the provider's own; 0: nothing.
  Result<void> check(uint32_t api_version, const fi_info &info, uint32_t replaced_protocol,
                     const Ask &ask);

 private:
  static constexpr size_t kMost = 256;  // of a program that opens with ever other attributes

  std::mutex mutex_;
  std::set<std::string> fitting_;
};

}  // namespace weft

#endif
