// SPDX-License-Identifier: BSD-2-Clause
// weft plugin new: writes a project that makes a plugin, from the templates of the SDK. These are
// the examples (examples/), in which the words of a table stand for the new names, and the files
// that a project has besides (examples/templates/common).
#include <absl/cleanup/cleanup.h>
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <signal.h>
#include <weft/printable.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/weft/command.h"
#include "tools/weft/library.h"
#include "tools/weft/plugin.h"
#include "tools/weft/template.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

const std::vector<std::string> kKinds = {"provider", "layer", "hook"};

struct ProjectFile {
  std::string name;  // below the folder of the project
  std::string text;
  fs::perms mode = fs::perms::none;
};

Result<std::string> read_file(const fs::path &path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!(file && text << file.rdbuf()))
    return fail(FI_ENOENT, "%s cannot be read: %s: reinstall the SDK", path.c_str(),
                strerror(errno != 0 ? errno : EIO));
  return text.str();
}

// The templates of the installed SDK, which lies below the prefix of this program.
Result<fs::path> template_folder(const std::string &chosen) {
  if (!chosen.empty()) return fs::path(tidy_path(chosen));
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  if (failed)
    return fail(FI_ENOENT, "/proc/self/exe: %s: is /proc mounted?", failed.message().c_str());
  return (self.parent_path() / WEFT_TEMPLATES_FROM_BIN).lexically_normal();
}

Result<Json> read_template(const fs::path &folder, const std::string &kind) {
  const fs::path path = folder / (kind + ".json");
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    return fail(FI_ENOENT,
                "there is no %s: install the SDK (the component plugin-sdk, the package "
                "weft-plugin-sdk) in the prefix of this program",
                path.c_str());
  WEFT_TRY(const std::string text, read_file(path));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object())
    return fail(FI_EINVAL, "%s is no object in JSON: reinstall the SDK", path.c_str());
  return json;
}

// Pairs of texts, with the placeholders filled in.
Result<Words> words_of(const Json &object, const char *key, const Words &values) {
  Words words;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_object())
    return fail(FI_EINVAL, "the template has no \"%s\": reinstall the SDK", key);
  for (const auto &[from, to] : found->items()) {
    if (!to.is_string())
      return fail(FI_EINVAL, "\"%s\" of the template has \"%s\", which is no text", key,
                  from.c_str());
    WEFT_TRY(words[from], fill(to.get<std::string>(), values));
  }
  return words;
}

// Whether `name` stays below the folder that it is added to.
bool stays_below(const fs::path &name) {
  return !name.empty() && name.is_relative() &&
         std::none_of(name.begin(), name.end(), [](const fs::path &part) { return part == ".."; });
}

Words names_of(const PluginOptions &options) {
  const std::string ident = absl::StrReplaceAll(options.name, {{"-", "_"}});
  return {{"name", options.name},
          {"Name", class_name(options.name)},
          {"ident", ident},
          {"IDENT", absl::AsciiStrToUpper(ident)},
          {"kind", options.kind},
          {"vendor", options.vendor.empty() ? absl::StrCat("the authors of ", options.name)
                                            : options.vendor}};
}

// All values of the placeholders: the names, and what the template says with them.
Result<Words> values_of(const PluginOptions &options, const Json &form) {
  Words values = names_of(options);
  for (const char *key : {"plugin", "stack", "counters", "environment", "about", "first"}) {
    WEFT_TRY(values[key], fill(text_of(form, key), values));
  }
  values["package"] = absl::StrReplaceAll(values["plugin"], {{"_", "-"}});
  WEFT_TRY(const Words files, words_of(form, "files", values));
  std::vector<std::string> sources;
  for (const auto &[from, to] : files)
    if (to.ends_with(".cc")) sources.push_back(to);
  values["sources"] = absl::StrJoin(sources, " ");
  return values;
}

// The files of the example, under their new names.
Result<void> add_example(const fs::path &folder, const Json &form, const Words &values,
                         std::vector<ProjectFile> &files) {
  const fs::path example = text_of(form, "folder");
  WEFT_TRY(const Words names, words_of(form, "files", values));
  WEFT_TRY(const Words words, words_of(form, "words", values));
  for (const auto &[from, to] : names) {
    if (!stays_below(example / from) || !stays_below(to))
      return fail(FI_EINVAL, "%s: the template leaves its folder: reinstall the SDK", from.c_str());
    WEFT_TRY(const std::string text, read_file(folder / example / from));
    files.push_back({to, reword(text, words)});
  }
  return {};
}

// The names of hidden files and folders begin with "dot-" in the templates, as packages refuse some
// of them.
std::string project_name(const fs::path &name) {
  constexpr std::string_view kHidden = "dot-";
  fs::path result;
  for (const fs::path &part : name) {
    const std::string text = part.string();
    result /= text.starts_with(kHidden) ? "." + text.substr(kHidden.size()) : text;
  }
  return result;
}

Result<void> add_common(const fs::path &folder, const Words &values,
                        std::vector<ProjectFile> &files) {
  std::error_code failed, of_file;
  const fs::path common = folder / "common";
  for (fs::recursive_directory_iterator at(common, failed), end; !failed && at != end;
       at.increment(failed)) {
    const fs::file_status status = at->status(of_file);
    if (of_file)
      return fail(FI_ENOENT, "%s: %s: reinstall the SDK", at->path().c_str(),
                  of_file.message().c_str());
    if (!fs::is_regular_file(status)) continue;
    WEFT_TRY(const std::string text, read_file(at->path()));
    ProjectFile file{.name = project_name(at->path().lexically_relative(common))};
    file.mode = status.permissions() & fs::perms::owner_exec;
    WEFT_TRY(file.text, fill(text, values));
    files.push_back(std::move(file));
  }
  if (failed)
    return fail(FI_ENOENT, "%s: %s: reinstall the SDK", common.c_str(), failed.message().c_str());
  return {};
}

// Signals that end the program come when this ends: no project is left half written.
class Uninterrupted {
 public:
  Uninterrupted() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, &before_);
  }
  ~Uninterrupted() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Uninterrupted(const Uninterrupted &) = delete;
  Uninterrupted &operator=(const Uninterrupted &) = delete;

 private:
  sigset_t before_;
};

Result<void> write_files(const fs::path &folder, const std::vector<ProjectFile> &files) {
  std::error_code failed;
  if (fs::exists(fs::symlink_status(folder, failed)))
    return fail(EEXIST, "%s is there already: choose another folder with --folder, or remove it",
                folder.c_str());
  const Uninterrupted uninterrupted;
  fs::create_directories(folder.parent_path(), failed);
  if (!fs::create_directory(folder, failed))
    return fail(FI_EIO, "%s cannot be made: %s", folder.c_str(),
                failed ? failed.message().c_str() : "somebody else was faster");
  absl::Cleanup take_back = [&folder] {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  };
  for (const ProjectFile &file : files) {
    const fs::path path = folder / file.name;
    fs::create_directories(path.parent_path(), failed);
    errno = 0;
    std::ofstream out(path, std::ios::binary);
    out << file.text;
    out.close();
    if (!out)
      return fail(FI_EIO, "%s cannot be written: %s", path.c_str(),
                  strerror(errno != 0 ? errno : EIO));
    if (file.mode == fs::perms::none) continue;
    fs::permissions(path, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                    fs::perm_options::add, failed);
    if (failed)
      return fail(FI_EIO, "%s cannot be made a program: %s", path.c_str(),
                  failed.message().c_str());
  }
  std::move(take_back).Cancel();
  return {};
}

// An error if weft has a unit of this name already: two of them cannot be used at once. Where no
// library can be asked, nothing is known of others.
Result<void> check_free(const std::string &name) {
  const Result<Library> library = Library::open();
  if (!library) return {};
  const Result<Json> answer = library->plugins();
  if (!answer) return {};
  for (const Json &plugin : array_of(*answer, "plugins"))
    for (const Json &unit : array_of(plugin, "units"))
      if (text_of(unit, "name") == name || text_of(unit, "ofi_name") == name)
        return fail(EEXIST, "%s has a unit of the name %s already: choose another name",
                    text_of(plugin, "library").c_str(), name.c_str());
  return {};
}

Result<void> check_kind(const std::string &kind) {
  if (std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end()) return {};
  const std::string close = nearest_word(kind, kKinds);
  const std::string advice = close.empty() ? absl::StrCat("there are ", absl::StrJoin(kKinds, ", "))
                                           : absl::StrCat("did you mean '", close, "'?");
  return fail(FI_EINVAL, "there is no template for a '%s': %s", kind.c_str(), advice.c_str());
}

// The text as one word of a shell.
std::string in_shell(const std::string &text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("/._-+,:=@%").find(c) != absl::string_view::npos;
  });
  return is_plain ? text : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

void tell(const PluginOptions &options, const fs::path &folder, const std::string &about,
          const std::vector<ProjectFile> &files) {
  if (options.json) {
    Json names = Json::array();
    for (const ProjectFile &file : files) names.push_back(file.name);
    print_json({{"folder", folder.string()}, {"files", std::move(names)}});
    return;
  }
  absl::PrintF("wrote %s: %s\n", printable(folder.string()), printable(about));
  absl::PrintF("\n  cd %s\n  ci/build       # builds, tests and packages it; README.md goes on\n",
               printable(in_shell(folder.string())));
}

}  // namespace

Result<int> new_plugin(const PluginOptions &options) {
  WEFT_CHECK(check_kind(options.kind));
  WEFT_CHECK(check_unit_name(options.name));
  if (!options.vendor.empty()) WEFT_CHECK(check_vendor(options.vendor));
  WEFT_CHECK(check_free(options.name));
  WEFT_TRY(const fs::path templates, template_folder(options.templates));
  WEFT_TRY(const Json form, read_template(templates, options.kind));
  WEFT_TRY(const Words values, values_of(options, form));
  std::vector<ProjectFile> files;
  WEFT_CHECK(add_common(templates, values, files));
  WEFT_CHECK(add_example(templates, form, values, files));
  std::sort(files.begin(), files.end(),
            [](const ProjectFile &a, const ProjectFile &b) { return a.name < b.name; });
  const fs::path folder = tidy_path(options.folder.empty() ? values.at("plugin") : options.folder);
  WEFT_CHECK(write_files(folder, files));
  tell(options, folder, text_of(form, "summary"), files);
  return kExitOk;
}

}  // namespace weft::cli
