// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/why_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/json.h"

namespace weft {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "host";
}

}  // namespace

WhyFile::WhyFile(std::string folder, std::string library_folder)
    : folder_(std::move(folder)), library_folder_(std::move(library_folder)) {}

void WhyFile::begin() noexcept {
  write({});
}

void WhyFile::write(std::string_view line) noexcept try {
  const std::lock_guard lock(mutex_);
  std::string text;
  const pid_t pid = getpid();
  if (begun_ != pid) text = process_line(pid) + "\n";
  if (!line.empty()) text.append(line).append("\n");
  if (!text.empty() && append(pid, text)) begun_ = pid;
} catch (...) {  // no memory: the line is lost
}

bool WhyFile::append(pid_t pid, std::string_view text) const {
  if (folder_.empty() || folder_.front() != '/') return false;
  const std::string path = folder_ + "/" + host_name() + "." + std::to_string(pid) + ".calls";
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd < 0) return false;
  // Who can make files in the folder may have made this one, or linked another of ours here.
  struct stat found = {};
  const bool ours = fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
                    found.st_nlink == 1;
  while (ours && !text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    text.remove_prefix(static_cast<size_t>(written));
  }
  close(fd);
  return text.empty();
}

std::string WhyFile::process_line(pid_t pid) const {
  char program[PATH_MAX] = "";
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  nlohmann::ordered_json arguments = nlohmann::ordered_json::array();
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (size_t from = 0; from < all.size() && arguments.size() < 256;) {
    const size_t end = std::min(all.find('\0', from), all.size());
    arguments.push_back(all.substr(from, end - from));
    from = end + 1;
  }
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const nlohmann::ordered_json json = {
      {"call", "process"},
      {"pid", static_cast<int64_t>(pid)},
      {"parent", static_cast<int64_t>(getppid())},
      {"host", host_name()},
      {"time", static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9},
      {"program", std::string(program, length > 0 ? static_cast<size_t>(length) : 0)},
      {"arguments", std::move(arguments)},
      {"library_folder", library_folder_}};
  return dump(json);
}

}  // namespace weft
