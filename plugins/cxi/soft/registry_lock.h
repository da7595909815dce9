// SPDX-License-Identifier: BSD-2-Clause
// The lock of a registry's file, for the sources of Registry alone. The kernel releases it when its
// holder dies. One that is stopped keeps it: then nobody waits for long, and is told who it is.
#ifndef WEFT_PLUGINS_CXI_SOFT_REGISTRY_LOCK_H
#define WEFT_PLUGINS_CXI_SOFT_REGISTRY_LOCK_H

#include <weft/result.h>

#include <mutex>

#include "plugins/cxi/soft/registry.h"

namespace weft::cxi {

// Locks the file for this descriptor. FI_EAGAIN: a process that is stopped has it, or any for long.
Result<void> lock_registry(int fd, uint32_t nid);

class Registry::FileLock {
 public:
  static Result<std::unique_ptr<FileLock>> take(const Registry &registry);
  // Null: another process or thread has it just now.
  static std::unique_ptr<FileLock> try_to_take(const Registry &registry);
  ~FileLock();
  FileLock(const FileLock &) = delete;
  FileLock &operator=(const FileLock &) = delete;

 private:
  FileLock(const Registry &registry, std::unique_lock<std::mutex> mutex);

  const Registry &registry_;
  const std::unique_lock<std::mutex> mutex_;
};

}  // namespace weft::cxi

#endif
