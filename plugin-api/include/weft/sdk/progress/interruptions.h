// SPDX-License-Identifier: BSD-2-Clause
// Interruptions: whether the scheduler took the CPU from the calling thread, so that what came late
// says nothing about the program.
//
// Example:
//    inline void progress(Patience &patience, Interruptions &interruptions, uint64_t now) {
//      if (patience.pending())
//        patience.progressed(now, patience.is_late(now) && interruptions.any());
//    }
//
// A question costs a system call: ask only where something was late. A thread that slept by itself
// was not interrupted. Not exact: where several threads ask one object, it answers yes too often.
#ifndef WEFT_SDK_PROGRESS_INTERRUPTIONS_H
#define WEFT_SDK_PROGRESS_INTERRUPTIONS_H

#include <sys/resource.h>

#include <utility>

namespace weft::sdk {

class Interruptions {
 public:
  // Since the last question.
  bool any() {
    rusage usage{};
    if (::getrusage(RUSAGE_THREAD, &usage) != 0) return false;
    return std::exchange(seen_, usage.ru_nivcsw) != usage.ru_nivcsw;
  }

 private:
  long seen_ = 0;
};

}  // namespace weft::sdk

#endif
