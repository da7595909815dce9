// SPDX-License-Identifier: BSD-2-Clause
// Staging: memory of the host that stands for buffers of a device in a collective operation, whose
// reductions are the processor's. What goes in is copied when the operation starts, and the result
// when it has ended.
//
// Example:
//    // fi_allreduce: what the group gets as its call, and what is done at its end.
//    inline int stage(const sdk::Hmem &hmem, const Task &task, Call &call,
//                     std::unique_ptr<Staging> &staging) {
//      return Staging::make(hmem, task, call, staging);
//    }
//    inline bool end(const Staging *staging) { return staging == nullptr || staging->finish(); }
//
// Not for messages of the application, which the endpoint beneath takes from anywhere.
#ifndef WEFT_PLUGINS_COLL_STAGING_H
#define WEFT_PLUGINS_COLL_STAGING_H

#include <weft/sdk/memory/hmem.h>

#include <cstdint>
#include <memory>

#include "plugins/coll/group/operation.h"

namespace weft::coll {

class Staging {
 public:
  // `call` names memory of the host from now on, and `staging` has it: null where there was no
  // other. `task` is the member's own. 0, or -FI_E...
  static int make(const sdk::Hmem &hmem, const Task &task, Call &call,
                  std::unique_ptr<Staging> &staging);
  // The operation has ended well. False: the device has failed.
  bool finish() const;

 private:
  struct Buffer {
    std::unique_ptr<uint8_t[]> bytes;
    uint64_t length = 0;
    void *at = nullptr;  // the device's
    sdk::HmemPlace place;

    // Whether `memory` is a device's: 1; 0: it is the host's. Or -FI_E...
    int open(const sdk::Hmem &hmem, const void *memory, uint64_t size);
    int fill();
  };
  Buffer operand_, result_;
};

}  // namespace weft::coll

#endif
