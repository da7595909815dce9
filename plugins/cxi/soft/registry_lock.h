// SPDX-License-Identifier: BSD-2-Clause
// The lock of a registry's file, for the sources of Registry alone. The kernel releases it when its
// holder dies.
#ifndef WEFT_PLUGINS_CXI_SOFT_REGISTRY_LOCK_H
#define WEFT_PLUGINS_CXI_SOFT_REGISTRY_LOCK_H

#include <sys/file.h>

#include <cerrno>
#include <mutex>

#include "plugins/cxi/soft/registry.h"

namespace weft::cxi {

class Registry::FileLock {
 public:
  explicit FileLock(const Registry &registry) : guard_(registry.mutex_), fd_(registry.fd_.get()) {
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { ::flock(fd_, LOCK_UN); }
  FileLock(const FileLock &) = delete;
  FileLock &operator=(const FileLock &) = delete;

 private:
  const std::lock_guard<std::mutex> guard_;
  const int fd_;
};

}  // namespace weft::cxi

#endif
