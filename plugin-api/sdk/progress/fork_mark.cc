// SPDX-License-Identifier: BSD-2-Clause
#include <sys/mman.h>
#include <weft/sdk/progress/fork_mark.h>

#include <new>

namespace weft::sdk {

std::atomic<pid_t> *ForkMark::make_page() {
  constexpr size_t kBytes = 4096;
  void *const page =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (::madvise(page, kBytes, MADV_WIPEONFORK) != 0) {
    ::munmap(page, kBytes);
    return nullptr;
  }
  return new (page) std::atomic<pid_t>(0);
}

pid_t ForkMark::current() {
  std::atomic<pid_t> *const known = process();
  if (known == nullptr) return ::getpid();
  pid_t id = known->load(std::memory_order_relaxed);
  if (id == 0) {
    id = ::getpid();
    known->store(id, std::memory_order_relaxed);
  }
  return id;
}

}  // namespace weft::sdk
