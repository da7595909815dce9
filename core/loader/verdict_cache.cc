// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/verdict_cache.h"

#include <algorithm>
#include <filesystem>

#include "core/loader/index.h"
#include "core/loader/manifest_writer.h"

namespace weft {
namespace {

constexpr size_t kMaxEntries = 512;  // the oldest are dropped beyond

void replace(std::vector<PluginRecord> &records, const PluginRecord &record) {
  std::erase_if(records, [&](const PluginRecord &r) { return r.library == record.library; });
  records.push_back(record);
}

}  // namespace

void VerdictCache::load() {
  loaded_ = true;
  records_.clear();
  if (!path_.empty()) {
    // A cache that cannot be read or trusted is an empty one: everything is probed again.
    const Checked<std::string> text = read_trusted(path_, rules_, kMaxIndexSize);
    if (text)
      if (Result<Index> index = parse_index(*text, "")) records_ = std::move(index->plugins);
  }
  for (const PluginRecord &record : own_) replace(records_, record);
}

Result<void> VerdictCache::store() {
  if (path_.empty())
    return fail(FI_ENOENT, "there is no file to remember verdicts in: set XDG_CACHE_HOME or HOME");
  if (records_.size() > kMaxEntries) records_.erase(records_.begin(), records_.end() - kMaxEntries);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
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
  replace(own_, record);
  load();  // others may have written since
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
