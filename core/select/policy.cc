// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/policy.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace weft {
namespace {

constexpr size_t kMaxFile = size_t{1} << 20;

bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool is_named(const UnitInfo &unit, std::string_view name) {
  return same_word(unit.name, name) || (!unit.ofi_name.empty() && same_word(unit.ofi_name, name));
}

std::string text_of(const weft_where &where) {
  if (where.file == nullptr) return "unknown place";
  std::string text = where.file;
  if (where.line != 0) text += ":" + std::to_string(where.line);
  if (where.line != 0 && where.column != 0) text += ":" + std::to_string(where.column);
  return text;
}

std::string string_of(const char *text) {
  return text != nullptr ? text : "";
}

// ---- files
// ----------------------------------------------------------------------------------------

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// The text of a regular file; FI_ENOENT if there is none. A pipe or a device in its place cannot
// make us wait.
Result<std::string> read_file(const std::string &path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) return fail(errno, "%s", std::strerror(errno));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) return fail(errno, "%s", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return fail(FI_EINVAL, "it is no regular file");
  if (static_cast<uint64_t>(status.st_size) > kMaxFile)
    return fail(FI_EINVAL, "it has %lld bytes, more than 1 MiB",
                static_cast<long long>(status.st_size));
  std::string text;
  char chunk[16384];
  while (true) {
    const ssize_t got = ::read(file.fd, chunk, sizeof chunk);
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno, "%s", std::strerror(errno));
    text.append(chunk, static_cast<size_t>(got));
    if (text.size() > kMaxFile) return fail(FI_EINVAL, "it has more than 1 MiB");
  }
}

// The *.yaml files of a folder, in order of names. None if there is no such folder.
std::vector<std::string> drop_ins(const std::string &folder, std::vector<Diagnostic> &diagnostics) {
  std::vector<std::string> files;
  DIR *dir = ::opendir(folder.c_str());
  if (dir == nullptr) {
    if (errno != ENOENT && errno != ENOTDIR)
      diagnostics.push_back(
          {true, folder, std::string(std::strerror(errno)) + ": nothing in it is read"});
    return files;
  }
  while (const dirent *entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name.size() > 5 && name.front() != '.' && name.substr(name.size() - 5) == ".yaml")
      files.push_back(folder + "/" + std::string(name));
  }
  ::closedir(dir);
  std::sort(files.begin(), files.end());
  return files;
}

Result<const weft_config_reader *> open_reader(const PolicySources &sources) {
  const std::string &library = sources.reader_library;
  WEFT_CHECK(check_trusted_code(library, sources.secure, sources.library_folder));
  // Never closed: what it allocated may still be in use.
  void *handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return fail(FI_ENOENT, "%s", ::dlerror());
  const auto query = reinterpret_cast<weft_config_query_fn>(::dlsym(handle, WEFT_CONFIG_SYMBOL));
  if (query == nullptr)
    return fail(FI_EINVAL, "%s has no %s: it is not weft's", library.c_str(), WEFT_CONFIG_SYMBOL);
  const weft_config_reader *reader = query();
  if (reader == nullptr || reader->version != WEFT_CONFIG_VERSION ||
      reader->struct_size < sizeof *reader)
    return fail(FI_EINVAL, "%s is of another release: install both from one package",
                library.c_str());
  return reader;
}

// ---- merging
// --------------------------------------------------------------------------------------

bool covers(std::string_view final, std::string_view key) {
  return key.substr(0, final.size()) == final &&
         (key.size() == final.size() || key[final.size()] == '.');
}

class Merger {
 public:
  Merger(Policy &policy, const PolicySources &sources)
      : policy_(policy), sources_(sources), reader_(sources.reader) {}

  // False: there is no such file.
  bool file(const std::string &path, bool system) {
    Result<std::string> text = read_file(path);
    if (!text) {
      if (text.error().code == FI_ENOENT) return false;
      error(path, text.error().text + ": the file is left out");
      policy_.files.push_back({path, system, false});
      return true;
    }
    policy_.files.push_back({path, system, false});
    if (reader_ == nullptr && reader_error_.empty()) {
      Result<const weft_config_reader *> opened = open_reader(sources_);
      if (opened)
        reader_ = *opened;
      else
        reader_error_ = opened.error().text;
    }
    if (reader_ == nullptr) {
      error(path, "cannot be read, since the YAML reader cannot be loaded (" + reader_error_ +
                      "): the file is left out");
      return true;
    }
    weft_policy *read = nullptr;
    const size_t before = policy_.diagnostics.size();
    const int32_t rc = reader_->read_policy(
        path.c_str(), text->data(), text->size(),
        [](void *arg, uint32_t severity, const weft_where *where, const char *what) {
          static_cast<Policy *>(arg)->diagnostics.push_back(
              {severity == WEFT_DIAG_ERROR, where != nullptr ? text_of(*where) : "",
               string_of(what)});
        },
        &policy_, &read);
    const std::unique_ptr<weft_policy, void (*)(weft_policy *)> owned(read, reader_->free_policy);
    if (rc != 0 || read == nullptr) {
      if (policy_.diagnostics.size() == before) error(path, "cannot be read");
      error(path, "has errors: the file is left out");
      if (read != nullptr) keep_names(*read, system);
      return true;
    }
    policy_.files.back().used = true;
    merge(*read, system);
    return true;
  }

  void environment() {
    const auto value = [&](const char *name) -> const std::string * {
      const auto found = sources_.environment.find(name);
      return found != sources_.environment.end() ? &found->second : nullptr;
    };
    if (const std::string *text = value("FI_PROVIDER")) {
      Result<ProviderFilter> filter = parse_provider_filter(*text);
      if (filter) {
        policy_.filter = *std::move(filter);
      } else {
        refuse("FI_PROVIDER=" + *text + ": " + filter.error().text);
      }
    }
    if (const std::string *text = value("FI_HOOK"); text != nullptr && !text->empty()) {
      Result<std::vector<Word>> hooks = parse_hooks(*text);
      if (hooks) {
        policy_.hooks = *std::move(hooks);
      } else {
        refuse("FI_HOOK=" + *text + ": " + hooks.error().text);
      }
    }
    if (const std::string *text = value("FI_PROVIDER_PATH")) {
      Result<std::vector<std::string>> folders = parse_provider_path(*text);
      if (!folders) {
        error("environment FI_PROVIDER_PATH", folders.error().text + ": the variable is ignored");
      } else if (!folders->empty() && may_set("plugins.path", "environment FI_PROVIDER_PATH")) {
        std::vector<Sourced<std::string>> path;
        for (std::string &folder : *folders)
          path.push_back({std::move(folder), {"environment FI_PROVIDER_PATH"}});
        policy_.plugin_path.insert(policy_.plugin_path.begin(), path.begin(), path.end());
      }
    }
    if (const std::string *text = value("FI_CONTROL")) {
      if (*text != "allow" && *text != "deny")
        error("environment FI_CONTROL",
              "FI_CONTROL=" + *text + ": write allow or deny: the variable is ignored");
      else if (may_set("control", "environment FI_CONTROL"))
        policy_.control_allow = {*text == "allow", {"environment FI_CONTROL"}};
    }
    policy_.variables = sources_.environment;
  }

  // A value is final if a key says so, whoever set it.
  void mark_finals() {
    const auto mark = [&](Origin &origin, const std::string &key) {
      origin.final = final_key(policy_, key) != nullptr;
    };
    if (policy_.enable) mark(policy_.enable->origin, "providers.enable");
    for (auto &one : policy_.disable) mark(one.origin, "providers.disable");
    for (auto &one : policy_.ranks) mark(one.origin, "providers.rank");
    for (auto &one : policy_.stacks) mark(one.origin, "stacks." + one.name);
    if (policy_.use) mark(policy_.use->origin, "use");
    for (auto &[key, one] : policy_.params)
      mark(one.origin, "params." + key.first + "." + key.second);
    for (auto &one : policy_.plugin_path) mark(one.origin, "plugins.path");
    mark(policy_.unprobed_allow.origin, "plugins.unprobed");
    mark(policy_.control_allow.origin, "control");
    mark(policy_.probe_budget_ms.origin, "plugins.probe_budget_ms");
  }

 private:
  void error(const std::string &where, const std::string &text) {
    policy_.diagnostics.push_back({true, where, text});
  }
  void refuse(const std::string &text) {
    if (policy_.refusal.empty()) policy_.refusal = text;
    error(text.substr(0, 7) == "FI_HOOK" ? "environment FI_HOOK" : "environment FI_PROVIDER", text);
  }

  bool may_set(const std::string &key, const std::string &where) {
    const Sourced<std::string> *final = final_key(policy_, key);
    if (final == nullptr) return true;
    policy_.diagnostics.push_back(
        {false, where,
         key + " is final in " + final->origin.where + ": what stands here is ignored"});
    return false;
  }

  // Of a file that is left out: who asks for all that is wrong with it is told of its names too.
  void keep_names(const weft_policy &read, bool system) {
    Policy &part = policy_.flawed.emplace_back();
    part.stacks = policy_.stacks;  // `use` may name those of weaker files
    part.files.push_back(policy_.files.back());
    Merger(part, sources_).merge(read, system);
  }

  static std::vector<Sourced<std::string>> names(const weft_name *list, size_t count) {
    std::vector<Sourced<std::string>> out;
    for (size_t i = 0; i < count; ++i)
      out.push_back({string_of(list[i].name), {text_of(list[i].where)}});
    return out;
  }

  static std::vector<Setting> settings(const weft_setting *list, size_t count) {
    std::vector<Setting> out;
    for (size_t i = 0; i < count; ++i)
      out.push_back({string_of(list[i].key), string_of(list[i].value), text_of(list[i].where)});
    return out;
  }

  void merge(const weft_policy &read, bool system) {
    const std::string path = policy_.files.back().path;
    if (read.has_enable != 0) {
      const Origin origin{read.enable_count > 0 ? text_of(read.enable[0].where) : path};
      if (may_set("providers.enable", origin.where)) {
        policy_.enable = {names(read.enable, read.enable_count), origin};
        // Who allows a unit in a stronger place means it.
        if (final_key(policy_, "providers.disable") == nullptr) {
          for (const auto &enabled : policy_.enable->value) {
            std::erase_if(policy_.disable, [&](const Sourced<std::string> &disabled) {
              return same_word(disabled.value, enabled.value);
            });
          }
        }
      }
    }
    if (read.disable_count > 0 && may_set("providers.disable", text_of(read.disable[0].where))) {
      const auto more = names(read.disable, read.disable_count);
      policy_.disable.insert(policy_.disable.end(), more.begin(), more.end());
    }
    if (read.rank_count > 0 && may_set("providers.rank", text_of(read.ranks[0].where))) {
      for (size_t i = 0; i < read.rank_count; ++i) {
        const weft_rank_rule &from = read.ranks[i];
        RankRule rule{string_of(from.provider),
                      string_of(from.netdev),
                      string_of(from.subnet),
                      string_of(from.ep_type),
                      string_of(from.hostname),
                      string_of(from.executable),
                      {},
                      {},
                      {text_of(from.where)}};
        if (from.has_rank != 0) rule.rank = from.rank;
        if (from.has_enable != 0) rule.enable = from.enable != 0;
        policy_.ranks.push_back(std::move(rule));
      }
    }
    for (size_t i = 0; i < read.stack_count; ++i) {
      const weft_stack &from = read.stacks[i];
      StackSpec spec{string_of(from.name), {}, {text_of(from.where)}};
      if (!may_set("stacks." + spec.name, spec.origin.where)) continue;
      for (size_t e = 0; e < from.element_count; ++e) {
        const weft_stack_element &element = from.elements[e];
        spec.elements.push_back(
            {element.kind, string_of(element.name), element.skip_if_unavailable != 0,
             settings(element.params, element.param_count), text_of(element.where)});
      }
      std::erase_if(policy_.stacks, [&](const StackSpec &old) { return old.name == spec.name; });
      policy_.stacks.push_back(std::move(spec));
    }
    if (read.has_use != 0) {
      const Origin origin{text_of(read.use_count > 0 ? read.use[0].where : read.use_where)};
      if (may_set("use", origin.where)) policy_.use = {names(read.use, read.use_count), origin};
    }
    for (size_t i = 0; i < read.param_count; ++i) {
      const weft_setting &from = read.params[i];
      const std::string unit = string_of(from.unit), key = string_of(from.key);
      if (may_set("params." + unit + "." + key, text_of(from.where)))
        policy_.params[{unit, key}] = {string_of(from.value), {text_of(from.where)}};
    }
    if (read.plugin_path_count > 0 && may_set("plugins.path", text_of(read.plugin_path[0].where))) {
      const auto path_entries = names(read.plugin_path, read.plugin_path_count);
      policy_.plugin_path.insert(policy_.plugin_path.begin(), path_entries.begin(),
                                 path_entries.end());
    }
    if (read.has_unprobed != 0 && may_set("plugins.unprobed", text_of(read.unprobed_where)))
      policy_.unprobed_allow = {read.unprobed_allow != 0, {text_of(read.unprobed_where)}};
    if (read.has_control != 0 && may_set("control", text_of(read.control_where)))
      policy_.control_allow = {read.control_allow != 0, {text_of(read.control_where)}};
    if (read.has_probe_budget_ms != 0 &&
        may_set("plugins.probe_budget_ms", text_of(read.probe_budget_where)))
      policy_.probe_budget_ms = {read.probe_budget_ms, {text_of(read.probe_budget_where)}};
    for (size_t i = 0; i < read.final_key_count; ++i) {
      const std::string where = text_of(read.final_keys[i].where);
      if (system) {
        policy_.final_keys.push_back({string_of(read.final_keys[i].name), {where, true}});
      } else {
        policy_.diagnostics.push_back(
            {false, where, "`final` counts only in files of the system: it is ignored here"});
      }
    }
  }

  Policy &policy_;
  const PolicySources &sources_;
  const weft_config_reader *reader_;
  std::string reader_error_;
};

// Whether an entry of FI_PROVIDER means a stack; units from the wire up.
bool item_admits(const FilterItem &item, const std::vector<const UnitInfo *> &units) {
  const auto same = [](const Word &word, const UnitInfo *unit) {
    return is_named(*unit, word.text);
  };
  if (item.units.size() == 1)
    return std::any_of(units.begin(), units.end(),
                       [&](const UnitInfo *unit) { return is_named(*unit, item.units[0].text); });
  return std::equal(item.units.begin(), item.units.end(), units.begin(), units.end(), same) ||
         std::equal(item.units.rbegin(), item.units.rend(), units.begin(), units.end(), same);
}

bool lifts(const std::optional<ProviderFilter> &filter, const UnitInfo &unit) {
  if (!filter || filter->exclude) return false;
  for (const FilterItem &item : filter->items) {
    for (const Word &word : item.units) {
      if (is_named(unit, word.text)) return true;
    }
  }
  return false;
}

}  // namespace

const Sourced<std::string> *final_key(const Policy &policy, std::string_view key) {
  for (const auto &final : policy.final_keys) {
    if (covers(final.value, key)) return &final;
  }
  return nullptr;
}

Policy load_policy(const PolicySources &sources) {
  Policy policy;
  // A provider that stock libfabric dropped; programs still ask for it.
  policy.stacks.push_back(
      {"sockets", {{WEFT_KIND_PROVIDER, "tcp", false, {}, "built-in"}}, {"built-in"}});
  Merger merger(policy, sources);
  for (const std::string &folder : sources.system_folders) {
    for (const std::string &path : drop_ins(folder, policy.diagnostics))
      (void)merger.file(path, true);
  }
  if (!sources.secure) {
    if (!sources.user_file.empty()) (void)merger.file(sources.user_file, false);
    if (const auto named = sources.environment.find("FI_CONFIG");
        named != sources.environment.end() && !named->second.empty()) {
      if (!merger.file(named->second, false)) {
        policy.diagnostics.push_back(
            {true, "environment FI_CONFIG", "there is no file " + named->second});
        policy.files.push_back({named->second, false, false});
      }
    }
    merger.environment();
  }
  merger.mark_finals();
  return policy;
}

Verdict judge_unit(const Policy &policy, const UnitInfo &unit) {
  const bool lifted = lifts(policy.filter, unit);
  for (const auto &disabled : policy.disable) {
    if (!is_named(unit, disabled.value)) continue;
    if (lifted && !disabled.origin.final) continue;
    return {false, unit.name + " is disabled",
            disabled.origin.final ? "the key is final: ask who administers this host"
                                  : "take it out of providers.disable, or name it in FI_PROVIDER",
            disabled.origin.where};
  }
  if (policy.enable && unit.kind == WEFT_KIND_PROVIDER &&
      !(lifted && !policy.enable->origin.final)) {
    const auto &list = policy.enable->value;
    const bool enabled =
        std::any_of(list.begin(), list.end(),
                    [&](const Sourced<std::string> &one) { return is_named(unit, one.value); });
    if (!enabled)
      return {false, unit.name + " is not in providers.enable",
              policy.enable->origin.final ? "the key is final: ask who administers this host"
                                          : "add it to providers.enable, or name it in FI_PROVIDER",
              policy.enable->origin.where};
  }
  return {};
}

Verdict judge_filter(const Policy &policy, const std::vector<const UnitInfo *> &units) {
  if (!policy.filter) return {};
  const ProviderFilter &filter = *policy.filter;
  const bool named = std::any_of(filter.items.begin(), filter.items.end(),
                                 [&](const FilterItem &item) { return item_admits(item, units); });
  if (named != filter.exclude) return {};
  const std::string given = "FI_PROVIDER=" + filter.text;
  return {false, filter.exclude ? given + " excludes it" : given + " does not name it",
          filter.exclude ? "take it out of the list" : "add it to the list, or unset the variable",
          "environment FI_PROVIDER"};
}

std::string in_capitals(std::string_view name) {
  std::string out;
  for (const char c : name) {
    out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c == '-' ? '_' : c;
  }
  return out;
}

std::vector<std::string> prefixes_of(const UnitInfo &unit) {
  std::vector<std::string> prefixes = {"FI_" + in_capitals(unit.name) + "_"};
  if (!unit.ofi_name.empty() && unit.ofi_name != unit.name)
    prefixes.push_back("FI_" + in_capitals(unit.ofi_name) + "_");
  return prefixes;
}

std::vector<std::string> variables_of(const UnitInfo &unit, std::string_view param) {
  std::vector<std::string> names;
  for (const std::string &prefix : prefixes_of(unit)) names.push_back(prefix + in_capitals(param));
  return names;
}

std::vector<Setting> settings_of(const Policy &policy, const UnitInfo &unit,
                                 std::vector<Diagnostic> *diagnostics) {
  std::vector<Setting> settings;
  for (const auto &[key, value] : policy.params) {
    if (is_named(unit, key.first))
      settings.push_back({key.second, value.value, value.origin.where});
  }
  if (policy.variables.empty()) return settings;
  for (const ParamInfo &param : unit.params) {
    for (const std::string &variable : variables_of(unit, param.name)) {
      const auto found = policy.variables.find(variable);
      if (found == policy.variables.end()) continue;
      const std::string key = "params." + unit.name + "." + param.name;
      if (const Sourced<std::string> *final = final_key(policy, key)) {
        if (diagnostics != nullptr)
          diagnostics->push_back(
              {false, "environment " + variable,
               key + " is final in " + final->origin.where + ": the variable is ignored"});
        continue;
      }
      settings.push_back({param.name, found->second, "environment " + variable});
    }
  }
  return settings;
}

}  // namespace weft
