// SPDX-License-Identifier: BSD-2-Clause
// A whole endpoint, and a hostile process of the same user that connects to it, is connected to,
// and writes whatever it likes into the memory that they share, at any moment. The endpoint neither
// crashes nor leaks, writes nowhere but where it may, and still talks to its friend.
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "plugins/shm/fuzz/world.h"

using namespace weft::shm;

extern "C" ssize_t __real_process_vm_writev(pid_t pid, const iovec *own, unsigned long own_count,
                                            const iovec *far, unsigned long far_count,
                                            unsigned long flags);

// The hostile process is this one. What it lets the victim write to is its own business: here it is
// the arena.
extern "C" ssize_t __wrap_process_vm_writev(pid_t pid, const iovec *own, unsigned long own_count,
                                            const iovec *far, unsigned long far_count,
                                            unsigned long flags) {
  const auto begin = reinterpret_cast<uintptr_t>(fuzz::arena());
  for (unsigned long i = 0; i < far_count; ++i) {
    const auto at = reinterpret_cast<uintptr_t>(far[i].iov_base);
    if (at < begin || at - begin > fuzz::kArena || far[i].iov_len > fuzz::kArena - (at - begin)) {
      errno = EFAULT;
      return -1;
    }
  }
  return __real_process_vm_writev(pid, own, own_count, far, far_count, flags);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Bytes input(data, size);
  fuzz::Application application;
  fuzz::Hostile hostile(application.name());
  const uint8_t world = input.byte();
  application.introduce(hostile.name());
  if (world & 1) hostile.connect(input);
  for (int steps = 0; steps < 400 && !input.empty(); ++steps) {
    switch (input.byte() % 16) {
      case 0:
        hostile.connect(input);
        break;
      case 1:
        hostile.accept();
        break;
      case 2:
        hostile.say(input);
        break;
      case 3:
        hostile.scribble(input);
        break;
      case 4:
        hostile.lie(input);
        break;
      case 5:
        hostile.leave(input);
        break;
      case 6:
        hostile.take();
        break;
      case 7:
        application.post(input);
        break;
      case 8:
        application.send(input);
        break;
      case 9:
        application.access(input);
        break;
      case 10:
        application.cancel(input);
        break;
      case 11:
        application.poll(40);
        hostile.accept();
        break;
      case 12:
        application.poll();
        break;
      default:
        hostile.put(input);
    }
  }
  application.check_friends();
  return 0;
}
