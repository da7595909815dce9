// SPDX-License-Identifier: BSD-2-Clause
// Copies between this process and another one by one system call (process_vm_readv(2)).
//
// Example:
//    // Whether the kernel lets this process read the other one's memory. errno says why not.
//    inline bool may_read(pid_t pid, uint64_t address, uint64_t value) {
//      uint64_t read = 0;
//      const iovec own{&read, sizeof read};
//      const FarVector far{address, sizeof read};
//      return read_far(pid, &own, 1, &far, 1, sizeof read) == 0 && read == value;
//    }
//
// The addresses are the other process's own; a wrong one is an error. Not for who the process is:
// its number may have become another's, so the caller looks at its socket afterwards.
#ifndef WEFT_PLUGINS_SHM_FAR_MEMORY_H
#define WEFT_PLUGINS_SHM_FAR_MEMORY_H

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "plugins/shm/wire/record.h"

namespace weft::shm {

// Copies `n` bytes, of which both have as many; up to kMostVectors vectors each. 0 or errno: some
// bytes may have been copied.
int read_far(pid_t pid, const iovec *own, size_t own_count, const FarVector *far, size_t far_count,
             uint64_t n);
int write_far(pid_t pid, const iovec *own, size_t own_count, const FarVector *far, size_t far_count,
              uint64_t n);

}  // namespace weft::shm

#endif
