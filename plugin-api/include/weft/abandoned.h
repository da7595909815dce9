// SPDX-License-Identifier: BSD-2-Clause
// What killed processes left in a folder of their user (weft/runtime_dir.h), and how the next
// process removes it.
//
// Example:
//    // In a process that makes such a file: it holds the lock as long as it lives.
//    bool make_ours(int file) { return flock(file, LOCK_EX | LOCK_NB) == 0; }
//    // In any other process:
//    void sweep(int folder) {
//      weft::remove_abandoned(folder, "4711.profile", [](int) { return true; });
//      weft::remove_abandoned_socket(folder, "/dev/shm/weft-0", "4711.sock");
//    }
//
// The kernel says whether the owner lives: it frees a lock (flock) and closes a listening socket
// when the last process that has it ends. A process number alone does not: it is used again, and
// means nothing in another PID namespace. Links are not followed. Not for files that were never
// locked.
#ifndef WEFT_ABANDONED_H
#define WEFT_ABANDONED_H

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>

namespace weft {

namespace internal {

inline bool is_still_named(int folder, const char *name, const struct stat &file) {
  struct stat now = {};
  return fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_dev == file.st_dev &&
         now.st_ino == file.st_ino;
}

}  // namespace internal

// Removes a file of this user whose owner is gone, if `may_go` says so of its descriptor. It is
// asked under the lock, so a file is removed by one process, and not one that has the name by now.
template <class F>
bool remove_abandoned(int folder, const char *name, F may_go) {
  const int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  struct stat found = {};
  const bool removed = fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                       found.st_uid == geteuid() && flock(file, LOCK_EX | LOCK_NB) == 0 &&
                       may_go(file) && internal::is_still_named(folder, name, found) &&
                       unlinkat(folder, name, 0) == 0;
  close(file);
  return removed;
}

// Removes NUMBER.sock if there is no process of this number, and nobody listens. `path` is that of
// the folder.
inline bool remove_abandoned_socket(int folder, const std::string &path, const char *name) {
  pid_t process = 0;
  const auto [rest, bad] = std::from_chars(name, name + std::strlen(name), process);
  if (bad != std::errc() || process <= 0 || std::strcmp(rest, ".sock") != 0) return false;
  if (kill(process, 0) == 0 || errno != ESRCH) return false;
  struct stat found = {};
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string whole = path + "/" + name;
  if (whole.size() >= sizeof address.sun_path ||
      fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(found.st_mode))
    return false;
  std::memcpy(address.sun_path, whole.c_str(), whole.size() + 1);
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  const bool refused =
      connect(probe, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  close(probe);
  return refused && internal::is_still_named(folder, name, found) && unlinkat(folder, name, 0) == 0;
}

}  // namespace weft

#endif
