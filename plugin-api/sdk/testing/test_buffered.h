// SPDX-License-Identifier: BSD-2-Clause
// The options of a buffered receiver, for tests and fuzz targets that have no endpoint around it.
//
// Example:
//    inline void prepare(Receiver &receiver) {
//      set_buffered(receiver, /*limit=*/512, /*min=*/64);
//    }
#ifndef WEFT_SDK_TEST_BUFFERED_H
#define WEFT_SDK_TEST_BUFFERED_H

#include <weft/sdk/transfers/receiver.h>

#include "plugin-api/sdk/transfers/buffered_receives.h"

namespace weft::sdk {

// FI_OPT_BUFFERED_LIMIT and FI_OPT_BUFFERED_MIN, in bytes. 0 or -FI_EMSGSIZE.
inline int set_buffered(Receiver &receiver, size_t limit, size_t min) {
  const int rc = receiver.buffered()->set_limit(limit);
  return rc != 0 ? rc : receiver.buffered()->set_min(min);
}

}  // namespace weft::sdk

#endif
