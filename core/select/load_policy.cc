// SPDX-License-Identifier: BSD-2-Clause
// Reads the files and the environment, and merges them into one policy (policy.h).
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <type_traits>

#include "config/policy_keys.h"
#include "core/base/render.h"
#include "core/base/same_word.h"
#include "core/select/merging.h"
#include "core/select/policy.h"

namespace weft {
namespace {

constexpr size_t kMaxFile = size_t{1} << 20;

Rule rule_of(const weft_where *where) {
  if (where == nullptr || where->file == nullptr) return {};
  return Rule::file(where->file, where->line, where->column);
}

std::string string_of(const char *text) {
  return text != nullptr ? text : "";
}

// ---- files ----

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// The text of a regular file; FI_ENOENT if there is none. Never waits for a pipe or a device.
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

bool is_drop_in(std::string_view name) {
  return name.size() > 5 && name.front() != '.' && name.substr(name.size() - 5) == ".yaml";
}

std::string_view folder_of(std::string_view path) {
  return path.substr(0, path.rfind('/'));
}

// The *.yaml files of a folder, in order of names. None if there is no such folder.
std::vector<std::string> drop_ins(const std::string &folder, std::vector<Diagnostic> &diagnostics) {
  std::vector<std::string> files;
  DIR *dir = ::opendir(folder.c_str());
  if (dir == nullptr) {
    if (errno != ENOENT && errno != ENOTDIR)
      diagnostics.push_back({true, Rule::file(folder),
                             std::string(std::strerror(errno)) + ": nothing in it is read"});
    return files;
  }
  while (const dirent *entry = ::readdir(dir)) {
    if (is_drop_in(entry->d_name)) files.push_back(folder + "/" + entry->d_name);
  }
  ::closedir(dir);
  std::sort(files.begin(), files.end());
  return files;
}

// The same, with the files that others stand in for, whether they are there or not.
std::vector<std::string> drop_ins(const std::string &folder, const PolicySources &sources,
                                  std::vector<Diagnostic> &diagnostics) {
  std::vector<std::string> files = drop_ins(folder, diagnostics);
  for (const auto &[path, file] : sources.stand_ins) {
    if (folder_of(path) != folder) continue;
    if (!std::ranges::binary_search(files, path))
      files.insert(std::ranges::upper_bound(files, path), path);
  }
  return files;
}

Result<const weft_config_reader *> open_reader(const PolicySources &sources) {
  const std::string &library = sources.reader_library;
  WEFT_CHECK(check_trusted_code(library, sources.secure, sources.library_folder));
  // Never closed: the table and its functions stay in use.
  void *handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return fail(FI_ENOENT, "%s", ::dlerror());
  const auto query = reinterpret_cast<weft_config_query_fn>(::dlsym(handle, WEFT_CONFIG_SYMBOL));
  if (query == nullptr)
    return fail(FI_EINVAL, "%s has no %s: it is not weft's", library.c_str(), WEFT_CONFIG_SYMBOL);
  const weft_config_reader *reader = query();
  if (reader == nullptr || reader->version != WEFT_CONFIG_VERSION ||
      reader->struct_size < sizeof *reader || reader->policy_size != sizeof(weft_policy))
    return fail(FI_EINVAL, "%s is of another release: install both from one package",
                library.c_str());
  return reader;
}

// ---- merging ----

class Merger {
 public:
  Merger(Policy &policy, const PolicySources &sources)
      : policy_(policy), sources_(sources), reader_(sources.reader) {}

  // Reads and merges one file. False: there is no such file.
  bool file(const std::string &place, bool system) {
    const auto stand_in = sources_.stand_ins.find(place);
    const bool supposed = stand_in != sources_.stand_ins.end();
    const std::string &path = supposed ? stand_in->second : place;
    Result<std::string> text = read_file(path);
    if (!text && text.error().code == FI_ENOENT && !supposed) return false;
    policy_.files.push_back({path, system, false, supposed ? place : ""});
    if (!text) {
      error(Rule::file(path), text.error().text + ": the file is left out");
      return true;
    }
    if (reader_ == nullptr && reader_error_.empty()) {
      Result<const weft_config_reader *> opened = open_reader(sources_);
      if (opened)
        reader_ = *opened;
      else
        reader_error_ = opened.error().text;
    }
    if (reader_ == nullptr) {
      error(Rule::file(path), "cannot be read, since the YAML reader cannot be loaded (" +
                                  reader_error_ + "): the file is left out");
      return true;
    }
    weft_policy *read = nullptr;
    const size_t before = policy_.diagnostics.size();
    const int32_t rc = reader_->read_policy(
        path.c_str(), text->data(), text->size(),
        [](void *arg, uint32_t severity, const weft_where *where, const char *what) {
          static_cast<Policy *>(arg)->diagnostics.push_back({.error = severity == WEFT_DIAG_ERROR,
                                                             .where = rule_of(where),
                                                             .text = string_of(what),
                                                             .tells_line = true});
        },
        &policy_, &read);
    const std::unique_ptr<weft_policy, void (*)(weft_policy *)> owned(read, reader_->free_policy);
    if (rc != 0 || read == nullptr) {
      if (policy_.diagnostics.size() == before) error(Rule::file(path), "cannot be read");
      error(Rule::file(path), "has errors: the file is left out");
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
        refuse("FI_PROVIDER", *text, filter.error().text);
      }
    }
    if (const std::string *text = value("FI_HOOK"); text != nullptr && !text->empty()) {
      Result<std::vector<Word>> hooks = parse_hooks(*text);
      if (hooks) {
        policy_.hooks = *std::move(hooks);
      } else {
        refuse("FI_HOOK", *text, hooks.error().text);
      }
    }
    if (const std::string *text = value("FI_PROVIDER_PATH")) {
      Result<std::vector<std::string>> folders = parse_provider_path(*text);
      if (!folders) {
        error(Rule::environment("FI_PROVIDER_PATH"),
              folders.error().text + ": the variable is ignored");
      } else {
        PolicyContent given;
        for (std::string &folder : *folders)
          given.plugin_path.push_back({std::move(folder), {Rule::environment("FI_PROVIDER_PATH")}});
        merge(*find_policy_key("plugins", "path"), &PolicyContent::plugin_path, given);
      }
    }
    const auto word = [&](const char *variable, const char *key,
                          std::optional<Sourced<bool>> PolicyContent::*member) {
      if (const std::string *text = value(variable))
        set_word(variable, *text, *find_policy_key("", key), member);
    };
    word("FI_CONTROL", "control", &PolicyContent::control_allow);
    word("FI_LINK", "local", &PolicyContent::local_shm);
    policy_.variables = sources_.environment;
  }

  // A value is final if a final key covers it, whichever source set it.
  void mark_finals() {
    for_each_key<PolicyContent>(
        [&](const PolicyKey &key, auto member) { mark(key, policy_.*member); });
  }

 private:
  void error(const Rule &where, const std::string &text) {
    policy_.diagnostics.push_back({true, where, text});
  }
  void refuse(const std::string &variable, const std::string &value, const std::string &reason) {
    error(Rule::environment(variable), as_given(variable, value) + ": " + reason);
    if (!policy_.refusal) policy_.refusal = policy_.diagnostics.back();
  }

  // One of the two words of a key.
  void set_word(const char *variable, const std::string &text, const PolicyKey &key,
                std::optional<Sourced<bool>> PolicyContent::*member) {
    const auto words = words_of(key.form);
    if (text != words[0] && text != words[1])
      return error(Rule::environment(variable),
                   as_given(variable, text) + ": write " + std::string(words[0]) + " or " +
                       std::string(words[1]) + ": the variable is ignored");
    PolicyContent given;
    given.*member = {text == words[0], {Rule::environment(variable)}};
    merge(key, member, given);
  }

  // Keeps the names of a file that is left out, so that policy_json can report the wrong ones.
  void keep_names(const PolicyContent &read, bool system) {
    Policy &part = policy_.flawed.emplace_back();
    part.stacks = policy_.stacks;  // `use` may name those of weaker files
    part.files.push_back(policy_.files.back());
    Merger(part, sources_).merge(read, system);
  }

  void merge(const PolicyContent &read, bool system) {
    for_each_key<PolicyContent>([&](const PolicyKey &key, auto member) {
      if (key.merge == KeyMerge::kSystem && !system)
        ignore(key, member, read);
      else
        merge(key, member, read);
    });
    for (size_t i = policy_.finals.size(); i < policy_.final_keys.size(); ++i)
      policy_.finals.emplace(policy_.final_keys[i].value, i);
  }

  // Notes values that do not count.
  template <class T>
  void note(T PolicyContent::*member, T values, Override how, const Rule &by) {
    Overridden &one = policy_.overridden.emplace_back();
    one.values.*member = std::move(values);
    one.how = how;
    one.by = by;
  }

  // Whether values may be set that stand at `where`; else they are noted.
  template <class T>
  bool may_set(std::string_view key, const Rule &where, T PolicyContent::*member, const T &values) {
    const Sourced<std::string> *final = final_key(policy_, key);
    if (final == nullptr) return true;
    policy_.diagnostics.push_back({false, where,
                                   std::string(key) + " is final in " +
                                       text_of(final->origin.where) +
                                       ": what stands here is ignored"});
    note(member, values, Override::kFinal, final->origin.where);
    return false;
  }

  // ---- merging the values of one key, by their type

  template <class T>
  void merge(const PolicyKey &key, std::optional<Sourced<T>> PolicyContent::*member,
             const PolicyContent &given) {
    const std::optional<Sourced<T>> &read = given.*member;
    if (!read || !may_set(key.path, read->origin.where, member, read)) return;
    std::optional<Sourced<T>> &merged = policy_.*member;
    if (merged) note(member, merged, Override::kReplaced, read->origin.where);
    merged = read;
    if constexpr (std::is_same_v<T, NameList>)
      if (key.merge == KeyMerge::kLift) lift(read->value);
  }

  // A stronger enable lifts a weaker disable, unless that is final.
  void lift(const NameList &enabled) {
    const Sourced<std::string> *final = final_key(policy_, "providers.disable");
    std::map<std::string, Sourced<std::string>, LessWord> disabled;
    for (const auto &one : policy_.disable) disabled.emplace(one.value, one);
    WordSet lifted;
    for (const auto &name : enabled) {
      const auto found = disabled.find(name.value);
      if (found == disabled.end()) continue;
      const Sourced<std::string> &weaker = found->second;
      if (final != nullptr) {
        policy_.diagnostics.push_back(stays_disabled(name, weaker, *final));
      } else if (lifted.insert(name.value).second) {
        note(&PolicyContent::disable, {weaker}, Override::kLifted, name.origin.where);
      }
    }
    std::erase_if(policy_.disable, [&](const auto &one) { return lifted.contains(one.value); });
  }

  template <class T>
  void merge(const PolicyKey &key, std::vector<T> PolicyContent::*member,
             const PolicyContent &given) {
    const std::vector<T> &read = given.*member;
    if (read.empty() || !may_set(key.path, read[0].origin.where, member, read)) return;
    std::vector<T> &merged = policy_.*member;
    merged.insert(key.merge == KeyMerge::kInFront ? merged.begin() : merged.end(), read.begin(),
                  read.end());
  }

  void merge(const PolicyKey &key, std::vector<StackSpec> PolicyContent::*member,
             const PolicyContent &given) {
    std::vector<StackSpec> &merged = policy_.*member;
    std::vector<StackSpec> set;
    for (const StackSpec &spec : given.*member)
      if (may_set(path_of(key, spec), spec.origin.where, member, {spec})) set.push_back(spec);
    std::map<std::string_view, Rule> by_name;
    for (const StackSpec &spec : set) by_name.emplace(spec.name, spec.origin.where);
    std::erase_if(merged, [&](const StackSpec &old) {
      const auto stronger = by_name.find(old.name);
      if (stronger == by_name.end()) return false;
      note(member, {old}, Override::kReplaced, stronger->second);
      return true;
    });
    std::ranges::move(set, std::back_inserter(merged));
  }

  void merge(const PolicyKey &key, std::vector<UnitParam> PolicyContent::*member,
             const PolicyContent &given) {
    std::vector<UnitParam> &merged = policy_.*member;
    for (const UnitParam &param : given.*member) {
      if (may_set(path_of(key, param), param.value.origin.where, member, {param}))
        merged.push_back(param);
    }
    // The last entry of a parameter, which is the strongest, stays.
    const auto name = [](const UnitParam &param) { return std::tie(param.unit, param.key); };
    std::reverse(merged.begin(), merged.end());
    std::stable_sort(merged.begin(), merged.end(),
                     [&](const UnitParam &a, const UnitParam &b) { return name(a) < name(b); });
    std::vector<UnitParam> strongest;
    for (UnitParam &param : merged) {
      if (strongest.empty() || name(strongest.back()) != name(param))
        strongest.push_back(std::move(param));
      else
        note(member, {std::move(param)}, Override::kReplaced, strongest.back().value.origin.where);
    }
    merged = std::move(strongest);
  }

  // A key that counts only in files of the system, in another file.
  template <class T>
  void ignore(const PolicyKey &key, T PolicyContent::*member, const PolicyContent &given) {
    if constexpr (std::is_same_v<T, NameList>) {
      const NameList &read = given.*member;
      for (const auto &one : read)
        policy_.diagnostics.push_back(
            {false, one.origin.where,
             "`" + std::string(key.path) +
                 "` counts only in files of the system: it is ignored here"});
      if (!read.empty()) note(member, read, Override::kNotSystem, {});
    }
  }

  // ---- marking values as final

  template <class T>
  void mark(const PolicyKey &key, std::optional<Sourced<T>> &value) {
    if (value) value->origin.final = final_key(policy_, key.path) != nullptr;
  }
  template <class T>
  void mark(const PolicyKey &key, std::vector<T> &values) {
    for (T &one : values) {
      const bool final = key.merge == KeyMerge::kSystem || final_key(policy_, path_of(key, one));
      if constexpr (std::is_same_v<T, UnitParam>)
        one.value.origin.final = final;
      else
        one.origin.final = final;
    }
  }

  Policy &policy_;
  const PolicySources &sources_;
  const weft_config_reader *reader_;
  std::string reader_error_;
};

}  // namespace

Diagnostic stays_disabled(const Sourced<std::string> &enabled, const Sourced<std::string> &disabled,
                          const Sourced<std::string> &final) {
  return {false, enabled.origin.where,
          enabled.value + " stays disabled: " + text_of(disabled.origin.where) +
              " disables it, and providers.disable is final in " + text_of(final.origin.where)};
}

void note_shadowed_rules(Policy &policy,
                         const std::function<std::string(const std::string &)> &name_of) {
  struct Later {
    Rule rank, enable;
  };
  const auto place_of = [](const Rule &where) {
    return std::tuple(where.name, where.line, where.column);
  };
  std::set<std::tuple<std::string, uint32_t, uint32_t>> noted;
  for (const Overridden &one : policy.overridden)
    if (one.how == Override::kShadowed) noted.insert(place_of(one.values.ranks[0].origin.where));
  std::map<std::array<std::string, 6>, Later> later;
  for (auto rule = policy.ranks.rbegin(); rule != policy.ranks.rend(); ++rule) {
    Later &found = later[{name_of(rule->provider), rule->netdev, rule->subnet, rule->ep_type,
                          rule->hostname, rule->executable}];
    const Rule &where = rule->origin.where;
    const bool is_shadowed =
        (!rule->rank || !found.rank.empty()) && (!rule->enable || !found.enable.empty());
    if (is_shadowed && noted.insert(place_of(where)).second)
      policy.overridden.push_back(
          {{.ranks = {*rule}}, Override::kShadowed, rule->rank ? found.rank : found.enable});
    if (rule->rank) found.rank = where;
    if (rule->enable) found.enable = where;
  }
}

bool is_read(const PolicySources &sources, const std::string &path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return false;
  if (std::ranges::find(sources.system_folders, folder_of(path)) != sources.system_folders.end())
    return is_drop_in(std::string_view(path).substr(slash + 1));
  if (sources.secure) return false;
  const auto named = sources.environment.find("FI_CONFIG");
  return path == sources.user_file || (named != sources.environment.end() && path == named->second);
}

Policy load_policy(const PolicySources &sources) {
  Policy policy;
  // A provider that stock libfabric dropped; programs still ask for it, some of them by its
  // protocol. It had connections and datagrams, and atomics.
  const StackElement rxm = {WEFT_KIND_LAYER, "rxm", false, {}, Rule::built_in()},
                     tcp = {WEFT_KIND_PROVIDER, "tcp", false, {}, Rule::built_in()},
                     udp = {WEFT_KIND_PROVIDER, "udp", false, {}, Rule::built_in()};
  const std::vector<std::pair<std::vector<StackElement>, uint64_t>> parts = {
      {{tcp}, 0}, {{udp}, 0}, {{rxm, tcp}, FI_ATOMIC}};
  for (size_t i = 0; i < parts.size(); ++i)
    policy.stacks.push_back({.name = "sockets",
                             .elements = parts[i].first,
                             .origin = {Rule::built_in()},
                             .protocol = FI_PROTO_SOCK_TCP,
                             .version = uint32_t(FI_VERSION(1, i)),
                             .auto_progress = true,
                             .only_for_caps = parts[i].second});
  Merger merger(policy, sources);
  for (const std::string &folder : sources.system_folders) {
    for (const std::string &path : drop_ins(folder, sources, policy.diagnostics))
      (void)merger.file(path, true);
  }
  if (!sources.secure) {
    if (!sources.user_file.empty()) (void)merger.file(sources.user_file, false);
    if (const auto named = sources.environment.find("FI_CONFIG");
        named != sources.environment.end() && !named->second.empty()) {
      if (!merger.file(named->second, false)) {
        policy.diagnostics.push_back(
            {true, Rule::environment("FI_CONFIG"), "there is no file " + named->second});
        policy.files.push_back({named->second, false, false});
      }
    }
    merger.environment();
  }
  note_shadowed_rules(policy, [](const std::string &provider) { return provider; });
  merger.mark_finals();
  return policy;
}

}  // namespace weft
