// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::shm {
namespace {

bool call(int command) {
  return syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

bool can_do_barriers() {
#ifdef __SANITIZE_THREAD__
  return false;
#else
  // In a child after fork() it still holds: the kernel copies the registration.
  static const bool can =
      call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  return can;
#endif
}

void do_barrier() {
  if (can_do_barriers()) call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace weft::shm
