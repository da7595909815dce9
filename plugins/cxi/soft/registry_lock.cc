// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/registry_lock.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "plugins/cxi/soft/registry_file.h"

namespace weft::cxi {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::milliseconds kPatienceWithStopped{200}, kLookAfter{50};
constexpr std::chrono::microseconds kFirstWait{20}, kLastWait{5000};

// The process that has the lock, by what the kernel says of all locks; 0: it is not known.
uint32_t holder_of(int fd) {
  struct stat mine = {};
  if (::fstat(fd, &mine) != 0) return 0;
  char wanted[64], place[64];
  std::snprintf(wanted, sizeof wanted, "%02x:%02x:%llu", ::major(mine.st_dev), ::minor(mine.st_dev),
                static_cast<unsigned long long>(mine.st_ino));
  std::ifstream locks("/proc/locks");
  uint32_t process = 0;
  for (std::string line; std::getline(locks, line);)
    if (std::sscanf(line.c_str(), "%*u: FLOCK %*s WRITE %u %63s", &process, place) == 2 &&
        std::strcmp(place, wanted) == 0)
      return process;
  return 0;
}

tl::unexpected<Error> too_long(uint32_t holder, bool is_stopped, uint32_t nid) {
  if (holder == 0)
    return fail(FI_EAGAIN, "cxi: the registry of NIC %u is locked by another process for long",
                nid);
  return fail(FI_EAGAIN, "cxi: process %u%s has the registry of NIC %u locked: %s", holder,
              is_stopped ? ", which is stopped," : "", nid,
              is_stopped ? "continue or end it" : "end it");
}

}  // namespace

Result<void> lock_registry(int fd, uint32_t nid) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point next_look = begin + kLookAfter, stopped_since = begin;
  auto pause = kFirstWait;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      const int code = errno;
      return fail(code, "cxi: the registry of NIC %u: flock: %s", nid, strerror(code));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLastWait);
    const Clock::time_point now = Clock::now();
    if (now < next_look) continue;
    next_look = now + kLookAfter;
    const uint32_t holder = holder_of(fd);
    const bool has_stopped = holder != 0 && is_stopped(holder);
    if (!has_stopped) stopped_since = now;
    if (now - begin > kPatience || now - stopped_since > kPatienceWithStopped)
      return too_long(holder, has_stopped, nid);
  }
  return {};
}

Result<std::unique_ptr<Registry::FileLock>> Registry::FileLock::take(const Registry &registry) {
  std::unique_lock mutex(registry.mutex_);  // who has it waits no longer than this one would
  WEFT_CHECK(lock_registry(registry.fd_.get(), registry.nid_));
  return std::unique_ptr<FileLock>(new FileLock(registry, std::move(mutex)));
}

std::unique_ptr<Registry::FileLock> Registry::FileLock::try_to_take(const Registry &registry) {
  std::unique_lock mutex(registry.mutex_, std::try_to_lock);
  if (!mutex.owns_lock() || ::flock(registry.fd_.get(), LOCK_EX | LOCK_NB) != 0) return nullptr;
  return std::unique_ptr<FileLock>(new FileLock(registry, std::move(mutex)));
}

Registry::FileLock::FileLock(const Registry &registry, std::unique_lock<std::mutex> mutex)
    : registry_(registry), mutex_(std::move(mutex)) {}

Registry::FileLock::~FileLock() {
  ::flock(registry_.fd_.get(), LOCK_UN);
}

}  // namespace weft::cxi
