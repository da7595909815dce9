// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/discovery.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/loader/descriptor.h"
#include "core/loader/index.h"
#include "core/loader/manifest_writer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxManifest = size_t{1} << 20;

std::string text_of(const char *text) {
  return text == nullptr ? "" : text;
}

// Keeps the first diagnostics of a file as one line.
struct Diagnostics {
  std::string text;
  size_t errors = 0;

  static void add(void *arg, uint32_t severity, const weft_where *where, const char *text) {
    auto *self = static_cast<Diagnostics *>(arg);
    if (severity != WEFT_DIAG_ERROR || ++self->errors > 3) return;
    if (!self->text.empty()) self->text += "; ";
    if (where != nullptr && where->line != 0)
      self->text += "line " + std::to_string(where->line) + ", column " +
                    std::to_string(where->column) + ": ";
    self->text += text_of(text);
  }
};

UnitInfo to_unit(const weft_manifest_unit &from) {
  UnitInfo unit;
  unit.name = text_of(from.name);
  unit.ofi_name = from.ofi_name == nullptr || *from.ofi_name == '\0' ? unit.name : from.ofi_name;
  unit.summary = text_of(from.summary);
  unit.kind = from.kind;
  unit.version = from.version;
  unit.needs_ep = from.needs_ep;
  unit.inner_min = from.inner_min;
  unit.inner_max = from.inner_max;
  unit.offers_ep = from.offers_ep;
  unit.maturity = from.maturity;
  unit.security = from.security;
  unit.rank = from.rank;
  unit.device_remedy = text_of(from.device_remedy);
  for (size_t i = 0; i < from.device_count; ++i) unit.devices.push_back(text_of(from.devices[i]));
  for (size_t i = 0; i < from.param_count; ++i) {
    const weft_param &param = from.params[i];
    unit.params.push_back({.type = param.type,
                           .name = text_of(param.name),
                           .default_value = text_of(param.default_value),
                           .help = text_of(param.help),
                           .has_default = param.default_value != nullptr,
                           .minimum = param.minimum,
                           .maximum = param.maximum});
  }
  return unit;
}

PluginRecord to_record(const weft_manifest &from, const std::string &manifest) {
  PluginRecord record;
  record.name = text_of(from.name);
  record.vendor = text_of(from.vendor);
  record.version = text_of(from.version);
  record.license = text_of(from.license);
  record.support = text_of(from.support);
  record.abi_major = from.abi_major;
  record.abi_minor = from.abi_minor;
  record.min_core_minor = from.min_core_minor;
  record.manifest = manifest;
  record.library = (fs::path(manifest).parent_path() / text_of(from.library)).lexically_normal();
  for (size_t i = 0; i < from.unit_count; ++i) {
    UnitInfo &unit = record.units.emplace_back(to_unit(from.units[i]));
    unit.plugin = record.name;
    unit.vendor = record.vendor;
    unit.plugin_version = record.version;
    unit.license = record.license;
    unit.support = record.support;
    unit.library = record.library;
    unit.manifest = manifest;
  }
  return record;
}

std::vector<std::string> files_with(const std::string &folder, const char *suffix) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.ends_with(suffix) && name.size() > strlen(suffix) && name[0] != '.')
      files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void add_trouble(DecisionRecord &troubles, const std::string &path, const Rejection &rejection) {
  troubles.add(to_decision(file_name(path), rejection, path));
}

std::vector<PluginRecord> list_folder(const std::string &folder, const Index *index,
                                      ManifestReader &reader, DecisionRecord &troubles) {
  std::vector<PluginRecord> found;
  std::set<std::string> described;
  const auto indexed = [&](auto matches) -> const PluginRecord * {
    if (index == nullptr) return nullptr;
    const auto it = std::find_if(index->plugins.begin(), index->plugins.end(), matches);
    return it == index->plugins.end() ? nullptr : &*it;
  };
  const std::string manifests = folder + "/" + kManifestFolder;
  for (const std::string &manifest : files_with(manifests, ".yaml")) {
    FileStamp stamp;
    if (!stamp_of(manifest, stamp)) continue;  // removed meanwhile
    if (const PluginRecord *known = indexed([&](const PluginRecord &record) {
          return record.manifest == manifest && record.manifest_stamp == stamp;
        })) {
      described.insert(known->library);
      found.push_back(*known);
      continue;
    }
    Checked<PluginRecord> record = reader.read(manifest);
    if (!record) {
      add_trouble(troubles, manifest, record.error());
      continue;
    }
    record->manifest_stamp = stamp;
    // A new manifest does not change the library: an older verdict on the library still holds.
    stamp_of(record->library, record->library_stamp);
    if (const PluginRecord *known = indexed([&](const PluginRecord &old) {
          return old.library == record->library && old.library_stamp == record->library_stamp;
        })) {
      record->verdict = known->verdict;
      record->rejection = known->rejection;
    }
    described.insert(record->library);
    found.push_back(*std::move(record));
  }
  const std::string reader_name = file_name(reader.library());
  for (const std::string &library : files_with(folder, ".so")) {
    if (file_name(library) == reader_name || described.contains(library)) continue;
    PluginRecord bare;
    bare.library = library;
    if (!stamp_of(library, bare.library_stamp)) continue;
    const PluginRecord *known = indexed([&](const PluginRecord &record) {
      return record.library == library && record.manifest.empty() &&
             record.library_stamp == bare.library_stamp;
    });
    found.push_back(known != nullptr ? *known : bare);
  }
  return found;
}

Checked<void> check_folders(const std::string &folder, const TrustRules &rules, int64_t &mtime_ns) {
  if (auto trusted = check_trusted_folder(folder, rules); !trusted) return trusted;
  FileStamp stamp;
  mtime_ns = 0;
  const std::string manifests = folder + "/" + kManifestFolder;
  if (!stamp_of(manifests, stamp)) return {};
  mtime_ns = stamp.mtime_ns;
  return check_trusted_folder(manifests, rules);
}

// A folder that changes twice within one tick of the file system's clock has one modification time
// for both. Waits until the clock has moved on, so that a later change gets another time.
void outwait(int64_t mtime_ns) {
  for (int i = 0; i < 50; ++i) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec > mtime_ns) return;
    poll(nullptr, 0, 1);
  }
}

}  // namespace

std::string file_name(const std::string &path) {
  return fs::path(path).filename();
}

std::string tidy_path(const std::string &path) {
  std::error_code error;
  std::string absolute = fs::absolute(path, error).lexically_normal();
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return error ? path : absolute;
}

Checked<void> ManifestReader::open() {
  if (reader_ != nullptr) return {};
  const auto refuse = [&](const std::string &cause) {
    return with_remedy(reject(Stage::kManifest, "the manifest cannot be read: %s", cause.c_str()),
                       "reinstall weft; %s belongs beside the plugins",
                       library_.empty() ? "weft-config.so" : file_name(library_).c_str());
  };
  if (library_.empty()) return refuse("there is no reader for YAML");
  if (auto trusted = check_trust(library_, rules_); !trusted)
    return refuse(library_ + ": " + trusted.error().cause);
  void *handle = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return refuse(text_of(dlerror()));
  const auto query = reinterpret_cast<weft_config_query_fn>(dlsym(handle, WEFT_CONFIG_SYMBOL));
  if (query == nullptr) return refuse(library_ + " has no symbol " WEFT_CONFIG_SYMBOL);
  const weft_config_reader *reader = query();
  if (reader == nullptr || reader->version != WEFT_CONFIG_VERSION ||
      reader->struct_size < sizeof *reader)
    return refuse(library_ + " belongs to another release of weft");
  reader_ = reader;
  return {};
}

Checked<PluginRecord> ManifestReader::read(const std::string &manifest) {
  const Checked<std::string> text = read_trusted(manifest, rules_, kMaxManifest);
  if (!text) return tl::unexpected<Rejection>(text.error());
  if (auto opened = open(); !opened) return tl::unexpected<Rejection>(opened.error());
  Diagnostics diagnostics;
  weft_manifest *parsed = nullptr;
  const int32_t code = reader_->read_manifest(manifest.c_str(), text->data(), text->size(),
                                              Diagnostics::add, &diagnostics, &parsed);
  if (code != 0 || parsed == nullptr)
    return with_remedy(
        reject(Stage::kManifest, "%s (%zu errors)", diagnostics.text.c_str(), diagnostics.errors),
        "correct the manifest, or write it anew: weft-probe --manifest LIBRARY --output %s",
        manifest.c_str());
  PluginRecord record = to_record(*parsed, manifest);
  const std::string arch = text_of(parsed->arch);
  reader_->free_manifest(parsed);
  if (!arch.empty() && arch != machine_arch())
    return with_remedy(
        reject(Stage::kArchitecture, "the manifest says it was built for %s, this is %s",
               arch.c_str(), std::string(machine_arch()).c_str()),
        "install the plugin for this architecture");
  return record;
}

std::vector<PluginRecord> discover_folder(const std::string &folder, ManifestReader &reader,
                                          const TrustRules &rules, DecisionRecord &troubles) {
  int64_t mtime_ns = 0;
  if (auto trusted = check_folders(folder, rules, mtime_ns); !trusted) {
    add_trouble(troubles, folder, trusted.error());
    return {};
  }
  const std::string path = folder + "/" + kIndexName;
  FileStamp stamp;
  if (!stamp_of(path, stamp)) return list_folder(folder, nullptr, reader, troubles);
  const auto unusable = [&](const std::string &cause) {
    add_trouble(troubles, path,
                {Stage::kManifest, "the index is not used: " + cause,
                 "write it anew: weft plugin refresh " + folder, false});
    return list_folder(folder, nullptr, reader, troubles);
  };
  const Checked<std::string> text = read_trusted(path, rules, kMaxIndexSize);
  if (!text) return unusable(text.error().cause);
  Result<Index> index = parse_index(*text, folder);
  if (!index) return unusable(index.error().text);
  if (index->manifests_mtime_ns == mtime_ns) return std::move(index->plugins);
  return list_folder(folder, &*index, reader, troubles);
}

std::vector<PluginRecord> discover_afresh(const std::string &folder, ManifestReader &reader,
                                          const TrustRules &rules, DecisionRecord &troubles,
                                          int64_t &mtime_ns) {
  if (auto trusted = check_folders(folder, rules, mtime_ns); !trusted) {
    add_trouble(troubles, folder, trusted.error());
    return {};
  }
  outwait(mtime_ns);
  return list_folder(folder, nullptr, reader, troubles);
}

}  // namespace weft
