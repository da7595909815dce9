// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/file_trust.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/loader/elf.h"

namespace weft {
namespace {

FileStamp to_stamp(const struct stat &status) {
  return {static_cast<uint64_t>(status.st_size),
          int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

const char *type_name(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
         : S_ISREG(mode)  ? "a file"
                          : "a device";
}

// Who else could change what lies at `path`. In a sticky folder (/tmp) others cannot replace a file
// that is not theirs.
Checked<void> check_mode(const std::string &path, const struct stat &status, bool secure) {
  const mode_t mode = status.st_mode;
  const char *what = S_ISDIR(mode) ? "folder" : "file";
  const bool sticky = S_ISDIR(mode) && (mode & S_ISVTX) != 0;
  if (secure && status.st_uid != 0)
    return with_remedy(
        reject(
            Stage::kTrust,
            "this process runs with raised privileges, and the %s %s belongs to user %u, not root",
            what, path.c_str(), status.st_uid),
        "install the plugin as root, or `chown root %s`", path.c_str());
  if ((mode & S_IWOTH) != 0 && !sticky)
    return with_remedy(reject(Stage::kTrust, "everybody can write to the %s %s (mode %04o)", what,
                              path.c_str(), mode & 07777),
                       "chmod o-w %s", path.c_str());
  if ((mode & S_IWGRP) != 0 && !sticky && (secure || status.st_uid != geteuid()))
    return with_remedy(
        reject(Stage::kTrust, "group %u can write to the %s %s (mode %04o, owner %u)",
               status.st_gid, what, path.c_str(), mode & 07777, status.st_uid),
        "chmod g-w %s", path.c_str());
  return {};
}

Checked<void> check_folder(const std::string &folder, bool secure) {
  struct stat status;
  if (stat(folder.c_str(), &status) != 0)
    return with_remedy(
        reject(Stage::kTrust, "cannot look at the folder %s: %s", folder.c_str(), strerror(errno)),
        "check the path and its permissions");
  return check_mode(folder, status, secure);
}

// The file is not /dev/zero or a pipe that nobody writes to: opening and reading it comes to an
// end.
Checked<int> open_trusted(const std::string &path, const TrustRules &rules, struct stat &status) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT)
    return with_remedy(reject(Stage::kTrust, "there is no such file"),
                       "install the plugin, or remove its manifest");
  if (fd < 0)
    return with_remedy(reject(Stage::kTrust, "cannot open the file: %s", strerror(errno)),
                       "make it readable: chmod a+r %s", path.c_str());
  const auto judge = [&]() -> Checked<void> {
    if (fstat(fd, &status) != 0)
      return with_remedy(reject(Stage::kTrust, "cannot look at the file: %s", strerror(errno)),
                         "check the file system");
    if (!S_ISREG(status.st_mode))
      return with_remedy(
          reject(Stage::kTrust, "it is %s, not a regular file", type_name(status.st_mode)),
          "move %s elsewhere", path.c_str());
    if (auto mode = check_mode(path, status, rules.secure); !mode) return mode;
    std::error_code error;
    std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!rules.secure) return check_folder(folder, false);
    folder = std::filesystem::canonical(path, error).parent_path();
    if (error)
      return with_remedy(
          reject(Stage::kTrust, "cannot resolve the path: %s", error.message().c_str()),
          "check the path");
    for (;; folder = folder.parent_path()) {
      if (auto mode = check_folder(folder, true); !mode) return mode;
      if (folder == folder.root_path()) return {};
    }
  };
  if (auto verdict = judge(); !verdict) {
    close(fd);
    return tl::unexpected<Rejection>(verdict.error());
  }
  return fd;
}

}  // namespace

Checked<FileStamp> check_trust(const std::string &path, const TrustRules &rules) {
  struct stat status;
  Checked<int> fd = open_trusted(path, rules, status);
  if (!fd) return tl::unexpected<Rejection>(fd.error());
  close(*fd);
  return to_stamp(status);
}

Checked<FileStamp> check_file(const std::string &path, const TrustRules &rules) {
  struct stat status;
  Checked<int> fd = open_trusted(path, rules, status);
  if (!fd) return tl::unexpected<Rejection>(fd.error());
  Checked<void> elf = check_elf(*fd, static_cast<uint64_t>(status.st_size));
  close(*fd);
  if (!elf) return tl::unexpected<Rejection>(elf.error());
  return to_stamp(status);
}

Checked<void> check_trusted_folder(const std::string &folder, const TrustRules &rules) {
  return check_folder(folder, rules.secure);
}

Checked<std::string> read_trusted(const std::string &path, const TrustRules &rules, size_t limit) {
  struct stat status;
  Checked<int> fd = open_trusted(path, rules, status);
  if (!fd) return tl::unexpected<Rejection>(fd.error());
  std::string text;
  if (static_cast<uint64_t>(status.st_size) > limit) {
    close(*fd);
    return with_remedy(reject(Stage::kManifest, "%s has %lld bytes, at most %zu are read",
                              path.c_str(), static_cast<long long>(status.st_size), limit),
                       "replace the file");
  }
  text.resize(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = read(*fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // it shrank meanwhile
    done += static_cast<size_t>(n);
  }
  close(*fd);
  text.resize(done);
  return text;
}

bool stamp_of(const std::string &path, FileStamp &stamp) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return false;
  stamp = to_stamp(status);
  return true;
}

}  // namespace weft
