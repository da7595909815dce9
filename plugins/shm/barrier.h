// SPDX-License-Identifier: BSD-2-Clause
// A barrier that who sleeps pays for, in place of all that send (membarrier(2)): a store of this
// process comes before what it reads afterwards, also as other processes see it, though these have
// no fence between their own store and read.
//
// Example:
//    // Whether the other end may leave its fences out.
//    inline bool may_rely_on_us() { return can_do_barriers(); }
//
// It works between processes that both can_do_barriers(), which they tell each other
// (wire/hello.h). Not for threads of one process: those have atomics.
#ifndef WEFT_PLUGINS_SHM_BARRIER_H
#define WEFT_PLUGINS_SHM_BARRIER_H

namespace weft::shm {

// Whether the kernel does it for this process; the first call registers the process. Under
// ThreadSanitizer nothing does, because it knows of no such thing.
bool can_do_barriers();
void do_barrier();

}  // namespace weft::shm

#endif
