// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/find_units.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/loader/discovery.h"

namespace weft {
namespace {

class Finder {
 public:
  Finder(const LoaderOptions &options, const TrustRules &rules, const weft_offer &offer,
         Verdicts &verdicts)
      : options_(options), rules_(rules), offer_(offer), verdicts_(verdicts) {}

  FoundUnits run() {
    read_folders();
    add_units_of([](const PluginFile &plugin) { return !plugin.unknown && !plugin.failed; });
    // Policy comes before the code of a plugin: a choice that is met without an unknown library
    // does not run it.
    const bool needed = !choice_is_met();
    for (PluginFile &plugin : found_.plugins)
      if (plugin.unknown) explore(plugin, needed);
    add_units_of([](const PluginFile &plugin) { return plugin.unknown && !plugin.failed; });
    // A refused file keeps its units, so that load() can tell why. They come last and so take no
    // name from a file that works.
    add_units_of([](const PluginFile &plugin) { return plugin.failed.has_value(); });
    sort_units();
    return std::move(found_);
  }

 private:
  // All folders once, our own first: its units have their names before all others.
  std::vector<std::string> folders() const {
    std::vector<std::string> folders;
    for (const std::string &folder : options_.folders) {
      const std::string path = tidy_path(folder);
      if (!path.empty() && std::find(folders.begin(), folders.end(), path) == folders.end())
        folders.push_back(path);
    }
    if (!folders.empty()) std::rotate(folders.begin(), folders.end() - 1, folders.end());
    return folders;
  }

  void read_folders() {
    ManifestReader reader(
        options_.reader_library.empty() ? std::string() : tidy_path(options_.reader_library),
        rules_);
    std::map<std::string, std::string> libraries;  // to the manifest that describes it
    for (const std::string &folder : folders())
      for (PluginRecord &record : discover_folder(folder, reader, rules_, found_.troubles)) {
        const auto [first, is_new] = libraries.emplace(record.library, record.manifest);
        if (is_new)
          add_file(std::move(record));
        else if (!record.manifest.empty())
          add_second_manifest(record, first->second);
      }
  }

  void add_second_manifest(const PluginRecord &record, const std::string &first) {
    found_.troubles.add({.candidate = file_name(record.manifest),
                         .stage = Stage::kManifest,
                         .accepted = false,
                         .reason = "it describes " + record.library + ", which " +
                                   (first.empty() ? "was found" : first + " does") + " already",
                         .remedy = "remove one of the two manifests",
                         .rule = Rule::plugin(record.manifest)});
  }

  void add_file(PluginRecord record) {
    PluginFile &plugin = found_.plugins.emplace_back();
    plugin.record = std::move(record);
    if (!plugin.record.name.empty()) return;
    // No manifest describes it. An index or an earlier probe may.
    Checked<FileStamp> file = check_file(plugin.record.library, rules_);
    if (!file) return refuse(plugin, file.error());
    plugin.record.library_stamp = *file;
    if (Checked<void> verdict = verdicts_.recall(plugin.record); !verdict)
      return refuse(plugin, verdict.error());
    plugin.unknown = plugin.record.name.empty();
  }

  void refuse(PluginFile &plugin, const Rejection &rejection) {
    plugin.failed = rejection;
    found_.troubles.add(
        to_decision(file_name(plugin.record.library), rejection, plugin.record.library));
  }

  // Whether every unit that was chosen to the exclusion of others is known.
  bool choice_is_met() const {
    for (const std::string &stack : options_.chosen)
      for (size_t from = 0; from <= stack.size();) {
        const size_t to = std::min(stack.find(';', from), stack.size());
        const std::string name = stack.substr(from, to - from);
        const auto known = [&](const UnitInfo &unit) {
          return unit.name == name || unit.ofi_name == name;
        };
        if (!name.empty() && std::none_of(found_.units.begin(), found_.units.end(), known))
          return false;
        from = to + 1;
      }
    return !options_.chosen.empty();
  }

  // Finds out what an unknown library is: in a child process, or here if a child is not possible
  // and the policy allows it. Here, only its descriptor is read. Its init() runs when somebody
  // chooses a unit.
  void explore(PluginFile &plugin, bool needed) {
    const std::string library = plugin.record.library;
    if (!needed) {
      found_.troubles.add({.candidate = file_name(library),
                           .stage = Stage::kPolicy,
                           .accepted = false,
                           .reason = "not opened: it has no manifest and was never probed, and "
                                     "what was chosen is there without it",
                           .remedy = "`weft plugin check " + library + "` probes it",
                           .rule = Rule::plugin(library)});
      return;
    }
    if (Checked<void> verdict = verdicts_.settle(plugin.record); !verdict)
      return refuse(plugin, verdict.error());
    if (!plugin.record.name.empty()) return;
    const PluginCalls::Inside inside(options_.calls.get(), file_name(library), library, "dlopen");
    if (Checked<void> described = describe_plugin(library, offer_, plugin.running); !described) {
      verdicts_.remember_misbehaviour(plugin.record, described.error());
      return refuse(plugin, described.error());
    }
    const FileStamp stamp = plugin.record.library_stamp;
    plugin.record = plugin.running.described;
    plugin.record.library = library;
    plugin.record.library_stamp = stamp;
  }

  template <class Wanted>
  void add_units_of(Wanted wanted) {
    for (size_t i = 0; i < found_.plugins.size(); ++i)
      if (wanted(found_.plugins[i])) add_units(i);
  }

  void add_units(size_t index) {
    const PluginFile &plugin = found_.plugins[index];
    std::vector<UnitInfo> &units = found_.units;
    for (const UnitInfo &unit : plugin.record.units) {
      const auto taken = [&](const std::string &name) {
        return std::find_if(units.begin(), units.end(), [&](const UnitInfo &other) {
          return other.name == name || other.ofi_name == name;
        });
      };
      auto other = taken(unit.name);
      if (other == units.end()) other = taken(unit.ofi_name);
      if (other != units.end()) {
        found_.troubles.add(
            {.candidate = file_name(plugin.record.library),
             .stage = Stage::kNegotiate,
             .accepted = false,
             .reason = "its unit '" + unit.name + "' has a name that is taken by unit '" +
                       other->name + "' of " + other->library,
             .remedy = "remove one of the two files; the other one stays in use until then",
             .rule = Rule::plugin(plugin.record.library)});
        continue;
      }
      units.push_back(unit);
      units.back().library = plugin.record.library;
      units.back().manifest = plugin.record.manifest;
      owner_.emplace(unit.name, index);
    }
  }

  void sort_units() {
    std::stable_sort(found_.units.begin(), found_.units.end(),
                     [](const UnitInfo &a, const UnitInfo &b) {
                       if (a.rank != b.rank) return a.rank > b.rank;
                       if (a.maturity != b.maturity) return a.maturity < b.maturity;
                       return a.name < b.name;
                     });
    for (const UnitInfo &unit : found_.units) found_.owners.push_back(owner_.at(unit.name));
  }

  const LoaderOptions &options_;
  const TrustRules &rules_;
  const weft_offer &offer_;
  Verdicts &verdicts_;
  FoundUnits found_;
  std::map<std::string, size_t> owner_;  // of a unit's name: its file's place
};

}  // namespace

FoundUnits find_units(const LoaderOptions &options, const TrustRules &rules,
                      const weft_offer &offer, Verdicts &verdicts) {
  return Finder(options, rules, offer, verdicts).run();
}

}  // namespace weft
