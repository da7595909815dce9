// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/wire/pair_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft::shm {
namespace {

constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW;

size_t page_size() {
  static const size_t size = size_t(sysconf(_SC_PAGESIZE));
  return size;
}
size_t whole_pages(size_t size) {
  return (size + page_size() - 1) & ~(page_size() - 1);
}

}  // namespace

PairMemory::~PairMemory() {
  if (base_ != nullptr) munmap(base_, size_);
}

Result<sdk::UniqueFd> PairMemory::make(const Geometry &geometry) {
  sdk::UniqueFd fd(memfd_create("weft-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return fail(errno, "memfd_create: %s: see `ulimit -n`", strerror(errno));
  const size_t size = whole_pages(geometry.size());
  rlimit most{};  // beyond it the kernel ends the process
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < size)
    return fail(EFBIG, "no shared memory of %zu bytes: a file may have %llu: see `ulimit -f`", size,
                (unsigned long long)most.rlim_cur);
  if (ftruncate(fd.get(), off_t(size)) != 0)
    return fail(errno, "no shared memory of %zu bytes: %s", size, strerror(errno));
  if (fcntl(fd.get(), F_ADD_SEALS, kSize | F_SEAL_SEAL) != 0)
    return fail(errno, "fcntl(F_ADD_SEALS): %s", strerror(errno));
  return fd;
}

Result<PairMemory> PairMemory::map(int fd, const Geometry &geometry) {
  if (!geometry.valid())
    return fail(FI_EINVAL, "rings of %u lines and %u bytes are not possible", geometry.lines,
                geometry.bytes);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return fail(FI_EINVAL, "the descriptor is not of memory (memfd_create)");
  // Else a peer could take the pages away, and who touches them gets a signal.
  if ((seals & kSize) != kSize)
    return fail(FI_EINVAL, "the memory's size can still be changed (seals %#x)", unsigned(seals));
  struct stat facts;
  if (fstat(fd, &facts) != 0) return fail(errno, "fstat: %s", strerror(errno));
  const size_t size = whole_pages(geometry.size());
  if (!S_ISREG(facts.st_mode) || size_t(facts.st_size) != size)
    return fail(FI_EINVAL, "the memory has %lld bytes and should have %zu",
                (long long)facts.st_size, size);
  if (size_t(facts.st_blksize) != page_size())
    return fail(FI_EINVAL, "the memory has pages of %lld bytes", (long long)facts.st_blksize);
  void *const base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED)
    return fail(errno, "mmap of %zu bytes of shared memory: %s", size, strerror(errno));
  madvise(base, size, MADV_DONTFORK);
  PairMemory memory;
  memory.base_ = base;
  memory.size_ = size;
  return memory;
}

}  // namespace weft::shm
