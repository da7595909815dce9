// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/verdict_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <optional>

#include "core/loader/index.h"
#include "core/loader/manifest_writer.h"

namespace weft {
namespace {

constexpr size_t kMaxEntries = 512;                      // the oldest are dropped beyond
constexpr int64_t kFirstRetry = 60, kLastRetry = 86400;  // seconds

// A missing file does not count as changed: its file system may be mounted again.
bool has_changed(const PluginRecord &record) {
  FileStamp now;
  return stamp_of(record.library, now) && now != record.library_stamp;
}

void replace(std::vector<PluginRecord> &records, const PluginRecord &record) {
  std::erase_if(records, [&](const PluginRecord &r) { return r.library == record.library; });
  records.push_back(record);
}

// Other processes that want it wait while it exists. Without it the caller goes on: a file system
// may have no locks, and a stopped process must not stop all others.
class WriterLock {
 public:
  explicit WriterLock(const std::string &path) {
    constexpr int kTries = 3000, kPauseMs = 1;  // the lock is not fair: few tries starve
    fd_ = open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) return;
    (void)fchmod(fd_, 0600);  // other users who could open it could hold the lock
    for (int i = 0; i < kTries && flock(fd_, LOCK_EX | LOCK_NB) != 0; ++i) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      const timespec pause{0, kPauseMs * 1000 * 1000};
      nanosleep(&pause, nullptr);
    }
  }
  ~WriterLock() {
    if (fd_ >= 0) close(fd_);
  }
  WriterLock(const WriterLock &) = delete;
  WriterLock &operator=(const WriterLock &) = delete;

 private:
  int fd_;
};

}  // namespace

VerdictCache::VerdictCache(std::string path, TrustRules rules, Clock clock)
    : path_(std::move(path)),
      rules_(std::move(rules)),
      clock_(clock ? std::move(clock) : Clock([] { return int64_t{std::time(nullptr)}; })) {}

bool VerdictCache::is_due(const PluginRecord &record) const {
  if (record.verdict != Verdict::kQuarantined || record.retry_at <= 0) return false;
  const int64_t now = clock_();
  // A time that is too far away was set by a wrong clock.
  return now >= record.retry_at || record.retry_at - now > kLastRetry;
}

void VerdictCache::load() {
  loaded_ = true;
  records_.clear();
  if (!path_.empty()) {
    // A file that cannot be read or is not trusted counts as empty: everything is probed again.
    const Checked<std::string> text = read_trusted(path_, rules_, kMaxIndexSize);
    if (text)
      if (Result<Index> index = parse_index(*text, "")) records_ = std::move(index->plugins);
    std::erase_if(records_, has_changed);
  }
  for (const PluginRecord &record : own_) replace(records_, record);
}

Result<void> VerdictCache::prepare() const {
  if (path_.empty())
    return fail(FI_ENOENT, "there is no file to remember verdicts in: set XDG_CACHE_HOME or HOME");
  std::error_code error;
  const std::string folder = std::filesystem::path(path_).parent_path();
  std::filesystem::create_directories(folder, error);
  // load() would not read a file in an untrusted folder. And somebody who can put a link in its
  // place would make this process write where the link leads (root with another user's HOME).
  if (const Checked<void> trusted = check_trusted_folder(folder, rules_); !trusted)
    return fail(FI_EPERM, "%s: verdicts are not remembered there", trusted.error().cause.c_str());
  return {};
}

// Reads the file, edits what it says, and replaces it, if `edit` does not return an error.
template <class F>
Result<void> VerdictCache::change(F edit) {
  const Result<void> prepared = prepare();
  std::optional<WriterLock> lock;
  if (prepared) lock.emplace(path_);
  load();
  WEFT_CHECK(edit());
  WEFT_CHECK(prepared);
  if (records_.size() > kMaxEntries) records_.erase(records_.begin(), records_.end() - kMaxEntries);
  Index index;
  index.plugins = records_;
  WEFT_CHECK(write_atomically(path_, write_index(index, "")));
  own_.clear();  // what others write from now on stands
  return {};
}

const PluginRecord *VerdictCache::find(const std::string &library, const FileStamp &stamp) {
  if (!loaded_) load();
  const auto it = std::find_if(records_.begin(), records_.end(), [&](const PluginRecord &record) {
    return record.library == library && record.library_stamp == stamp;
  });
  return it == records_.end() ? nullptr : &*it;
}

std::vector<PluginRecord> VerdictCache::all() {
  if (!loaded_) load();
  return records_;
}

bool VerdictCache::holds(const PluginRecord *known) const {
  return known != nullptr && known->verdict == Verdict::kQuarantined && !is_due(*known);
}

void VerdictCache::add(PluginRecord record) {
  record.manifest.clear();
  record.manifest_stamp = {};
  for (UnitInfo &unit : record.units) unit.manifest.clear();
  record.failures = 0;
  record.retry_at = 0;
  if (record.verdict == Verdict::kQuarantined && record.rejection.passing) {
    const PluginRecord *known = find(record.library, record.library_stamp);
    const uint32_t before = known != nullptr && known->retry_at > 0 ? known->failures : 0;
    record.failures = std::min(before, 30u) + 1;
    record.retry_at = clock_() + std::min(kFirstRetry << (record.failures - 1), kLastRetry);
  }
  replace(own_, record);
  replace(records_, record);
}

Result<void> VerdictCache::remember(PluginRecord record) {
  return change([&]() -> Result<void> {
    add(std::move(record));
    return {};
  });
}

Result<void> VerdictCache::remember_unless_quarantined(PluginRecord record) {
  return change([&]() -> Result<void> {
    if (!holds(find(record.library, record.library_stamp))) add(std::move(record));
    return {};
  });
}

Result<void> VerdictCache::forget(const std::string &library) {
  const auto is_it = [&](const PluginRecord &record) { return record.library == library; };
  std::erase_if(own_, is_it);
  return change([&]() -> Result<void> {
    if (std::erase_if(records_, is_it) == 0)
      return fail(FI_ENOENT, "%s is not in %s", library.c_str(), path_.c_str());
    return {};
  });
}

}  // namespace weft
