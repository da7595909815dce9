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
// ours alone is refused. Anybody may make a folder with that name first: then it is the first of
// weft-UID.1, weft-UID.2 and so on that nobody else has, and all processes of the user find that.
// /dev/shm is sticky, so no other user replaces what is ours. Not for what must survive a reboot,
// nor for what other users may read.
#ifndef WEFT_RUNTIME_DIR_H
#define WEFT_RUNTIME_DIR_H

#include <dirent.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/result.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace weft {

namespace detail {

inline constexpr unsigned kMostRuntimeDirectories = 65536;  // of others, before ours

// Made if it is missing. Errors: what stands there is no folder of this user alone (-FI_EACCES), or
// it can't be made.
inline Result<void> own_directory(const std::string &path) {
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
  return {};
}

enum class Owner { kNobody, kThisUser, kAnotherUser };
inline Owner owner_of(const std::string &path) {
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0) return Owner::kNobody;
  return found.st_uid == geteuid() ? Owner::kThisUser : Owner::kAnotherUser;
}

// The first of `path`.1 and so on that is a folder of this user; 0: there is none.
inline unsigned numbered_directory(const std::string &path) {
  const size_t slash = path.rfind('/');
  const std::string prefix = path.substr(slash + 1) + ".";
  DIR *const names = opendir(path.substr(0, slash + 1).c_str());
  if (names == nullptr) return 0;
  unsigned least = 0;
  while (const dirent *const name = readdir(names)) {
    if (strncmp(name->d_name, prefix.c_str(), prefix.size()) != 0) continue;
    char *end = nullptr;
    const unsigned long number = strtoul(name->d_name + prefix.size(), &end, 10);
    if (number == 0 || number > kMostRuntimeDirectories || *end != '\0') continue;
    const std::string numbered = path + "." + std::to_string(number);
    if ((least == 0 || number < least) && owner_of(numbered) == Owner::kThisUser)
      least = unsigned(number);
  }
  closedir(names);
  return least;
}

// `path`, or where another user has that, one with a number. One that was found once stays, though
// the other user gives `path` back.
inline Result<std::string> usual_directory(const std::string &path) {
  unsigned number = 0;
  if (owner_of(path) != Owner::kThisUser) {
    number = numbered_directory(path);
    if (number == 0 && owner_of(path) == Owner::kAnotherUser) number = 1;
  }
  while (number <= kMostRuntimeDirectories) {
    const std::string one = number == 0 ? path : path + "." + std::to_string(number);
    const Result<void> made = own_directory(one);
    if (made) return one;
    if (owner_of(one) != Owner::kAnotherUser) return tl::unexpected(made.error());
    ++number;
  }
  return fail(FI_EACCES, "other users have %s and %u names like it: set WEFT_RUNTIME_DIR",
              path.c_str(), kMostRuntimeDirectories);
}

}  // namespace detail

// The folder's path, made if it is missing. Errors: what stands there is no folder of this user
// alone (-FI_EACCES), or it can't be made.
inline Result<std::string> runtime_directory() {
  const char *chosen = secure_getenv("WEFT_RUNTIME_DIR");
  if (chosen == nullptr || chosen[0] == '\0')
    return detail::usual_directory("/dev/shm/weft-" + std::to_string(geteuid()));
  if (chosen[0] != '/')
    return fail(FI_EINVAL, "WEFT_RUNTIME_DIR is \"%s\": give an absolute path", chosen);
  WEFT_CHECK(detail::own_directory(chosen));
  return std::string(chosen);
}

}  // namespace weft

#endif
