// SPDX-License-Identifier: BSD-2-Clause
// Reads the files and the environment, and merges them into one policy (policy.h).
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>
#include <type_traits>

#include "config/policy_keys.h"
#include "core/base/render.h"
#include "core/base/same_word.h"
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

// ---- files

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

// ---- merging

class Merger {
 public:
  Merger(Policy &policy, const PolicySources &sources)
      : policy_(policy), sources_(sources), reader_(sources.reader) {}

  // Reads and merges one file. False: there is no such file.
  bool file(const std::string &path, bool system) {
    Result<std::string> text = read_file(path);
    if (!text) {
      if (text.error().code == FI_ENOENT) return false;
      error(Rule::file(path), text.error().text + ": the file is left out");
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
        refuse("FI_PROVIDER", *text + ": " + filter.error().text);
      }
    }
    if (const std::string *text = value("FI_HOOK"); text != nullptr && !text->empty()) {
      Result<std::vector<Word>> hooks = parse_hooks(*text);
      if (hooks) {
        policy_.hooks = *std::move(hooks);
      } else {
        refuse("FI_HOOK", *text + ": " + hooks.error().text);
      }
    }
    if (const std::string *text = value("FI_PROVIDER_PATH")) {
      Result<std::vector<std::string>> folders = parse_provider_path(*text);
      if (!folders) {
        error(Rule::environment("FI_PROVIDER_PATH"),
              folders.error().text + ": the variable is ignored");
      } else if (!folders->empty() &&
                 may_set("plugins.path", Rule::environment("FI_PROVIDER_PATH"))) {
        std::vector<Sourced<std::string>> path;
        for (std::string &folder : *folders)
          path.push_back({std::move(folder), {Rule::environment("FI_PROVIDER_PATH")}});
        policy_.plugin_path.insert(policy_.plugin_path.begin(), path.begin(), path.end());
      }
    }
    if (const std::string *text = value("FI_CONTROL")) {
      if (*text != "allow" && *text != "deny")
        error(Rule::environment("FI_CONTROL"),
              "FI_CONTROL=" + *text + ": write allow or deny: the variable is ignored");
      else if (may_set("control", Rule::environment("FI_CONTROL")))
        policy_.control_allow = {*text == "allow", {Rule::environment("FI_CONTROL")}};
    }
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
  void refuse(const std::string &variable, const std::string &text) {
    error(Rule::environment(variable), variable + "=" + text);
    if (!policy_.refusal) policy_.refusal = policy_.diagnostics.back();
  }

  bool may_set(std::string_view key, const Rule &where) {
    const Sourced<std::string> *final = final_key(policy_, key);
    if (final == nullptr) return true;
    policy_.diagnostics.push_back({false, where,
                                   std::string(key) + " is final in " +
                                       text_of(final->origin.where) +
                                       ": what stands here is ignored"});
    return false;
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
        ignore(key, read.*member);
      else
        merge(key, policy_.*member, read.*member);
    });
  }

  // ---- merging the values of one key, by their type

  template <class T>
  void merge(const PolicyKey &key, std::optional<Sourced<T>> &merged,
             const std::optional<Sourced<T>> &read) {
    if (!read || !may_set(key.path, read->origin.where)) return;
    merged = read;
    if constexpr (std::is_same_v<T, NameList>)
      if (key.merge == KeyMerge::kLift) lift(read->value);
  }

  // A stronger enable lifts a weaker disable.
  void lift(const NameList &enabled) {
    if (final_key(policy_, "providers.disable") != nullptr) return;
    for (const auto &name : enabled) {
      std::erase_if(policy_.disable, [&](const Sourced<std::string> &disabled) {
        return same_word(disabled.value, name.value);
      });
    }
  }

  template <class T>
  void merge(const PolicyKey &key, std::vector<T> &merged, const std::vector<T> &read) {
    if (read.empty() || !may_set(key.path, read[0].origin.where)) return;
    merged.insert(key.merge == KeyMerge::kInFront ? merged.begin() : merged.end(), read.begin(),
                  read.end());
  }

  void merge(const PolicyKey &key, std::vector<StackSpec> &merged,
             const std::vector<StackSpec> &read) {
    for (const StackSpec &spec : read) {
      if (!may_set(path_of(key, spec), spec.origin.where)) continue;
      std::erase_if(merged, [&](const StackSpec &old) { return old.name == spec.name; });
      merged.push_back(spec);
    }
  }

  void merge(const PolicyKey &key, std::vector<UnitParam> &merged,
             const std::vector<UnitParam> &read) {
    for (const UnitParam &param : read) {
      if (may_set(path_of(key, param), param.value.origin.where)) merged.push_back(param);
    }
    // The last entry of a parameter, which is the strongest, stays.
    const auto name = [](const UnitParam &param) { return std::tie(param.unit, param.key); };
    std::reverse(merged.begin(), merged.end());
    std::stable_sort(merged.begin(), merged.end(),
                     [&](const UnitParam &a, const UnitParam &b) { return name(a) < name(b); });
    merged.erase(
        std::unique(merged.begin(), merged.end(),
                    [&](const UnitParam &a, const UnitParam &b) { return name(a) == name(b); }),
        merged.end());
  }

  // A key that counts only in files of the system, in another file.
  template <class T>
  void ignore(const PolicyKey &key, const T &read) {
    if constexpr (std::is_same_v<T, NameList>)
      for (const auto &one : read)
        policy_.diagnostics.push_back(
            {false, one.origin.where,
             "`" + std::string(key.path) +
                 "` counts only in files of the system: it is ignored here"});
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

Policy load_policy(const PolicySources &sources) {
  Policy policy;
  // A provider that stock libfabric dropped; programs still ask for it, some of them by its protocol.
  // It had connections and datagrams, and atomics.
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
    for (const std::string &path : drop_ins(folder, policy.diagnostics))
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
  merger.mark_finals();
  return policy;
}

}  // namespace weft
