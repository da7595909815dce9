// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/file_trust.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "core/loader/elf.h"

namespace weft {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

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

bool in_group(gid_t group) {
  if (group == getegid()) return true;
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  return std::find(groups.begin(), groups.begin() + std::max(0, count), group) !=
         groups.begin() + std::max(0, count);
}

// Opens a file or folder, and judges every folder and link on the way to it.
class Walk {
 public:
  explicit Walk(const TrustRules &rules) : rules_(rules) {}

  // `folder`: the path must name a folder, else a file. `status` is that of the opened one.
  Checked<Descriptor> open(const std::string &path, bool folder, struct stat &status) {
    std::error_code error;
    const std::string absolute = std::filesystem::absolute(path, error);
    if (error)
      return with_remedy(
          reject(Stage::kTrust, "cannot resolve the path: %s", error.message().c_str()),
          "check the path");
    push(absolute);
    if (auto root = enter_root(); !root) return tl::unexpected<Rejection>(root.error());
    while (true) {
      if (todo_.empty()) return whole(path, folder, status);
      const std::string name = std::move(todo_.front());
      todo_.pop_front();
      const std::string at = (at_ == "/" ? "" : at_) + "/" + name;
      if (todo_.empty() && !folder && name != "..") {
        // The file is opened first and judged afterwards, by its descriptor: the file that is
        // judged is the file that will be read.
        Descriptor file(openat(folder_.get(), name.c_str(),
                               O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        if (file.get() >= 0) {
          if (auto good = judge_file(file.get(), at, status); !good)
            return tl::unexpected<Rejection>(good.error());
          return file;
        }
        if (errno != ELOOP) return unreadable(errno, at);
      }
      if (auto good = step(name, at, folder); !good) return tl::unexpected<Rejection>(good.error());
    }
  }

 private:
  enum class Place { kPlugins, kAbove };  // the plugin and its folder, or a folder above

  // The place of the folder that is entered next.
  Place place_next(bool folder_wanted) const {
    return todo_.size() <= (folder_wanted ? 0u : 1u) ? Place::kPlugins : Place::kAbove;
  }

  // Puts the components of a path in front of those that are left.
  void push(std::string_view path) {
    std::vector<std::string> names;
    while (!path.empty()) {
      const size_t end = std::min(path.find('/'), path.size());
      if (end != 0 && path.substr(0, end) != ".") names.emplace_back(path.substr(0, end));
      path.remove_prefix(std::min(end + 1, path.size()));
    }
    todo_.insert(todo_.begin(), names.begin(), names.end());
  }

  Checked<void> enter_root() {
    at_ = "/";
    return enter(Descriptor(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)), Place::kAbove);
  }

  // Goes on in this folder. `at_` is its path already.
  Checked<void> enter(Descriptor folder, Place place) {
    struct stat status;
    if (folder.get() < 0 || fstat(folder.get(), &status) != 0)
      return with_remedy(
          reject(Stage::kTrust, "cannot look at the folder %s: %s", at_.c_str(), strerror(errno)),
          "check the path and its permissions");
    const bool was_shared = std::exchange(shared_, is_shared(status));
    folder_ = std::move(folder);
    status_ = status;
    if (!rules_.secure && is_above_library()) return {};
    return judge(status, at_, was_shared, place);
  }

  static bool is_shared(const struct stat &status) {
    const mode_t mode = status.st_mode;
    return (mode & S_IWOTH) != 0 || ((mode & S_IWGRP) != 0 && (mode & S_ISVTX) != 0);
  }

  bool is_above_library() const {
    const std::string &folder = rules_.library_folder;
    if (folder.empty() || folder.compare(0, at_.size(), at_) != 0) return false;
    return at_ == "/" || folder.size() == at_.size() || folder[at_.size()] == '/';
  }

  Checked<void> step(const std::string &name, const std::string &at, bool folder) {
    if (name == "..") {
      at_ = std::filesystem::path(at_).parent_path();
      return enter(Descriptor(openat(folder_.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC)),
                   place_next(folder));
    }
    Descriptor next(openat(folder_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status;
    if (next.get() < 0 || fstat(next.get(), &status) != 0) {
      if (errno == ENOENT && !folder) return absent();
      return with_remedy(reject(Stage::kTrust, "cannot look at the %s %s: %s",
                                folder ? "folder" : "file", at.c_str(), strerror(errno)),
                         "check the path and its permissions");
    }
    if (S_ISLNK(status.st_mode)) return follow(next.get(), status, at);
    if (S_ISDIR(status.st_mode)) {
      at_ = at;
      return enter(std::move(next), place_next(folder));
    }
    if (!todo_.empty() || folder)
      return with_remedy(
          reject(Stage::kTrust, "%s is %s, not a folder", at.c_str(), type_name(status.st_mode)),
          "check the path");
    return with_remedy(reject(Stage::kTrust, "%s was exchanged while it was opened", at.c_str()),
                       "try again");
  }

  Checked<void> follow(int link, const struct stat &status, const std::string &at) {
    if (++links_ > kMaxLinks)
      return with_remedy(reject(Stage::kTrust, "%s: too many links", at.c_str()),
                         "check where the links lead");
    if (auto good = judge_owner(status, at, "link", shared_); !good) return good;
    char target[PATH_MAX];
    const ssize_t length = readlinkat(link, "", target, sizeof target);
    if (length <= 0 || static_cast<size_t>(length) == sizeof target)
      return with_remedy(reject(Stage::kTrust, "cannot follow the link %s: %s", at.c_str(),
                                length < 0 ? strerror(errno) : "it is too long"),
                         "check where the link leads");
    push({target, static_cast<size_t>(length)});
    return target[0] == '/' ? enter_root() : Checked<void>();
  }

  static tl::unexpected<Rejection> absent() {
    return with_remedy(reject(Stage::kTrust, "there is no such file"),
                       "install the plugin, or remove its manifest");
  }

  static tl::unexpected<Rejection> unreadable(int error, const std::string &at) {
    if (error == ENOENT) return absent();
    return with_remedy(reject(Stage::kTrust, "cannot open the file: %s", strerror(error)),
                       "make it readable: chmod a+r %s", at.c_str());
  }

  // The whole path is walked, and it names a folder.
  Checked<Descriptor> whole(const std::string &path, bool folder, struct stat &status) {
    status = status_;
    if (folder) return std::move(folder_);
    return with_remedy(reject(Stage::kTrust, "it is a folder, not a regular file"),
                       "move %s elsewhere", path.c_str());
  }

  Checked<void> judge_file(int fd, const std::string &at, struct stat &status) const {
    if (fstat(fd, &status) != 0)
      return with_remedy(reject(Stage::kTrust, "cannot look at the file: %s", strerror(errno)),
                         "check the file system");
    if (!S_ISREG(status.st_mode))
      return with_remedy(
          reject(Stage::kTrust, "it is %s, not a regular file", type_name(status.st_mode)),
          "move %s elsewhere", at.c_str());
    if (shared_ && status.st_nlink > 1)
      return with_remedy(
          reject(Stage::kTrust,
                 "the file has %lu names and lies in a folder where others can give it one more",
                 static_cast<unsigned long>(status.st_nlink)),
          "move the plugin to a folder of your own");
    return judge(status, at, shared_, Place::kPlugins);
  }

  Checked<void> judge(const struct stat &status, const std::string &at, bool in_shared,
                      Place place) const {
    const mode_t mode = status.st_mode;
    const char *what = S_ISDIR(mode) ? "folder" : "file";
    const bool sticky = S_ISDIR(mode) && (mode & S_ISVTX) != 0;
    if (auto good = judge_owner(status, at, what, in_shared); !good) return good;
    if ((mode & S_IWOTH) != 0 && !sticky)
      return with_remedy(reject(Stage::kTrust, "everybody can write to the %s %s (mode %04o)", what,
                                at.c_str(), mode & 07777),
                         "chmod o-w %s", at.c_str());
    const bool of_colleagues = place == Place::kAbove && geteuid() != 0 && in_group(status.st_gid);
    if ((mode & S_IWGRP) != 0 && !sticky &&
        (rules_.secure || (status.st_uid != geteuid() && !of_colleagues)))
      return with_remedy(
          reject(Stage::kTrust, "group %u can write to the %s %s (mode %04o, owner %u)",
                 status.st_gid, what, at.c_str(), mode & 07777, status.st_uid),
          "chmod g-w %s", at.c_str());
    return {};
  }

  Checked<void> judge_owner(const struct stat &status, const std::string &at, const char *what,
                            bool in_shared) const {
    const uid_t owner = status.st_uid;
    if (owner == 0) return {};
    if (rules_.secure)
      return with_remedy(reject(Stage::kTrust,
                                "this process runs with raised privileges, and the %s %s belongs "
                                "to user %u, not root",
                                what, at.c_str(), owner),
                         "install the plugin as root, or `chown root %s`", at.c_str());
    if (owner == geteuid() || (owner == rules_.library_owner && !in_shared)) return {};
    return with_remedy(reject(Stage::kTrust,
                              "the %s %s belongs to user %u, not to root or the user of this "
                              "process (%u)",
                              what, at.c_str(), owner, geteuid()),
                       "install a copy of your own, or have it installed by root");
  }

  const TrustRules &rules_;
  std::deque<std::string> todo_;
  Descriptor folder_;  // the current folder; its path and status
  std::string at_;
  struct stat status_ {};
  bool shared_ = false;  // others can add files to this folder, but not remove those of others
  int links_ = 0;
};

}  // namespace

TrustRules trust_rules(bool secure, const std::string &library_folder) {
  TrustRules rules{.secure = secure};
  struct stat status;
  if (library_folder.empty() || stat(library_folder.c_str(), &status) != 0) return rules;
  rules.library_folder = library_folder;
  rules.library_owner = status.st_uid;
  return rules;
}

Checked<FileStamp> check_trust(const std::string &path, const TrustRules &rules) {
  struct stat status;
  Checked<Descriptor> file = Walk(rules).open(path, false, status);
  if (!file) return tl::unexpected<Rejection>(file.error());
  return to_stamp(status);
}

Checked<FileStamp> check_file(const std::string &path, const TrustRules &rules) {
  struct stat status;
  Checked<Descriptor> file = Walk(rules).open(path, false, status);
  if (!file) return tl::unexpected<Rejection>(file.error());
  if (Checked<void> elf = check_elf(file->get(), static_cast<uint64_t>(status.st_size)); !elf)
    return tl::unexpected<Rejection>(elf.error());
  return to_stamp(status);
}

Checked<void> check_trusted_folder(const std::string &folder, const TrustRules &rules) {
  struct stat status;
  Checked<Descriptor> opened = Walk(rules).open(folder, true, status);
  if (!opened) return tl::unexpected<Rejection>(opened.error());
  return {};
}

Checked<std::string> read_trusted(const std::string &path, const TrustRules &rules, size_t limit) {
  struct stat status;
  Checked<Descriptor> file = Walk(rules).open(path, false, status);
  if (!file) return tl::unexpected<Rejection>(file.error());
  std::string text;
  if (static_cast<uint64_t>(status.st_size) > limit)
    return with_remedy(reject(Stage::kManifest, "%s has %lld bytes, at most %zu are read",
                              path.c_str(), static_cast<long long>(status.st_size), limit),
                       "replace the file");
  text.resize(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = read(file->get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // it shrank meanwhile
    done += static_cast<size_t>(n);
  }
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
