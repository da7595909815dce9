// SPDX-License-Identifier: BSD-2-Clause
#include "mappings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

namespace weft::sdk {
namespace {

// The lines of a file, one after the other. A line that does not fit is cut.
class Lines {
 public:
  explicit Lines(const char *path) : fd_(::open(path, O_RDONLY | O_CLOEXEC)) {}

  std::optional<std::string_view> next() {
    while (true) {
      const char *const end = std::find(buffer_ + at_, buffer_ + filled_, '\n');
      if (end != buffer_ + filled_ || (at_ == 0 && filled_ == sizeof buffer_)) {
        const std::string_view line(buffer_ + at_, size_t(end - buffer_) - at_);
        at_ = std::min(size_t(end - buffer_) + 1, filled_);
        return line;
      }
      std::memmove(buffer_, buffer_ + at_, filled_ - at_);
      filled_ -= at_;
      at_ = 0;
      const ssize_t got = ::read(fd_.get(), buffer_ + filled_, sizeof buffer_ - filled_);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      filled_ += size_t(got);
    }
  }

 private:
  UniqueFd fd_;
  char buffer_[8192];
  size_t at_ = 0, filled_ = 0;
};

std::string_view next_word(std::string_view &line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

// "7f1c9a000000-7f1c9a021000 rw-p 00000000 00:00 0    [heap]": proc_pid_maps(5).
struct Mapping {
  MemoryRange range;
  bool private_anonymous;

  static std::optional<Mapping> parse(std::string_view line) {
    const std::string_view addresses = next_word(line);
    const char *const end = addresses.data() + addresses.size();
    Mapping mapping{};
    const auto low = std::from_chars(addresses.data(), end, mapping.range.start, 16);
    if (low.ec != std::errc() || low.ptr == end || *low.ptr != '-') return std::nullopt;
    const auto high = std::from_chars(low.ptr + 1, end, mapping.range.end, 16);
    if (high.ec != std::errc() || high.ptr != end) return std::nullopt;
    const std::string_view access = next_word(line);
    (void)next_word(line);  // offset
    (void)next_word(line);  // device
    const std::string_view inode = next_word(line);
    mapping.private_anonymous = access.size() == 4 && access[3] == 'p' && inode == "0";
    return mapping;
  }
};

bool has_flag(std::string_view flags, std::string_view flag) {
  while (!flags.empty())
    if (next_word(flags) == flag) return true;
  return false;
}

}  // namespace

bool is_private_anonymous(uintptr_t start, uintptr_t end) {
  Lines lines("/proc/self/maps");
  while (const auto line = lines.next()) {
    const auto mapping = Mapping::parse(*line);
    if (!mapping || mapping->range.end <= start) continue;
    if (mapping->range.start > start || !mapping->private_anonymous) return false;
    start = mapping->range.end;
    if (start >= end) return true;
  }
  return false;
}

std::optional<MemoryRange> next_watched() {
  constexpr std::string_view kFlags = "VmFlags:";
  Lines lines("/proc/self/smaps");
  MemoryRange range;
  while (const auto line = lines.next()) {
    if (const auto mapping = Mapping::parse(*line)) range = mapping->range;
    if (!line->starts_with(kFlags)) continue;
    const std::string_view flags = line->substr(kFlags.size());
    if (has_flag(flags, "uw") && !has_flag(flags, "um")) return range;
  }
  return std::nullopt;
}

}  // namespace weft::sdk
