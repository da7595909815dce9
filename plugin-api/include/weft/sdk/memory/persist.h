// SPDX-License-Identifier: BSD-2-Clause
// Persistent memory (FI_RMA_PMEM, FI_COMMIT_COMPLETE): what a peer has written goes to its medium
// before the peer is told so.
//
// Example:
//    // Whether the peer may be told that its bytes are kept.
//    bool end_of_write(const iovec &written) { return make_persistent(written); }
//
// Not for memory of devices.
#ifndef WEFT_SDK_MEMORY_PERSIST_H
#define WEFT_SDK_MEMORY_PERSIST_H

#include <sys/uio.h>

namespace weft::sdk {

// Writes this part of a mapped file to its medium (msync); files of persistent memory that are
// mapped directly (DAX) as well. Other memory has no medium: nothing happens. False: the medium has
// failed, or the memory is not mapped any more.
bool make_persistent(const iovec &memory);

}  // namespace weft::sdk

#endif
