// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/verdict_cache.h"

#include <algorithm>
#include <ctime>
#include <filesystem>

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

Result<void> VerdictCache::store() {
  if (path_.empty())
    return fail(FI_ENOENT, "there is no file to remember verdicts in: set XDG_CACHE_HOME or HOME");
  if (records_.size() > kMaxEntries) records_.erase(records_.begin(), records_.end() - kMaxEntries);
  std::error_code error;
  const std::string folder = std::filesystem::path(path_).parent_path();
  std::filesystem::create_directories(folder, error);
  // load() would not read a file in an untrusted folder. And somebody who can put a link in its
  // place would make this process write where the link leads (root with another user's HOME).
  if (const Checked<void> trusted = check_trusted_folder(folder, rules_); !trusted)
    return fail(FI_EPERM, "%s: verdicts are not remembered there", trusted.error().cause.c_str());
  Index index;
  index.plugins = records_;
  return write_atomically(path_, write_index(index, ""));
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

Result<void> VerdictCache::remember(PluginRecord record) {
  record.manifest.clear();
  record.manifest_stamp = {};
  for (UnitInfo &unit : record.units) unit.manifest.clear();
  load();  // others may have written since
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
  return store();
}

Result<void> VerdictCache::forget(const std::string &library) {
  const auto is_it = [&](const PluginRecord &record) { return record.library == library; };
  std::erase_if(own_, is_it);
  load();
  if (std::erase_if(records_, is_it) == 0)
    return fail(FI_ENOENT, "%s is not in %s", library.c_str(), path_.c_str());
  return store();
}

}  // namespace weft
