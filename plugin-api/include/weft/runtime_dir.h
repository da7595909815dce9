// SPDX-License-Identifier: BSD-2-Clause
// runtime_directory: the one folder in which processes of a user leave what other processes of the
// same user look up: control sockets (PID.sock), traces (PID.trace), counters (PID.profile).
//
// Example:
//    #include <fcntl.h>
//    weft::Result<int> make_trace_file() {
//      WEFT_TRY(const std::string folder, weft::runtime_directory());
//      const std::string path = folder + "/" + std::to_string(getpid()) + ".trace";
//      return open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
//    }
//
// It is /dev/shm/weft-UID, in memory and gone with the machine, or what WEFT_RUNTIME_DIR says (not
// for a program with more rights than its user, AT_SECURE). Made with mode 0700; one that is not
// ours alone is refused. Not for what must survive a reboot, nor for what other users may read.
#ifndef WEFT_RUNTIME_DIR_H
#define WEFT_RUNTIME_DIR_H

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/result.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace weft {

// The folder's path, made if it is missing. Errors: what stands there is no folder of this user
// alone (-FI_EACCES), or it can't be made.
inline Result<std::string> runtime_directory() {
  const char *chosen = secure_getenv("WEFT_RUNTIME_DIR");
  const std::string path = chosen != nullptr && chosen[0] != '\0'
                               ? std::string(chosen)
                               : "/dev/shm/weft-" + std::to_string(geteuid());
  if (path[0] != '/')
    return fail(FI_EINVAL, "WEFT_RUNTIME_DIR is \"%s\": give an absolute path", path.c_str());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    const int code = errno;
    return fail(code, "the runtime folder %s cannot be made (%s): set WEFT_RUNTIME_DIR",
                path.c_str(), strerror(code));
  }
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0) {
    const int code = errno;
    return fail(code, "the runtime folder %s: %s", path.c_str(), strerror(code));
  }
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077) != 0)
    return fail(FI_EACCES,
                "%s is no folder of user %u alone (mode 0700): remove it or set WEFT_RUNTIME_DIR",
                path.c_str(), unsigned(geteuid()));
  return path;
}

}  // namespace weft

#endif
