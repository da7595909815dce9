// SPDX-License-Identifier: BSD-2-Clause
// weft plugin test: what a plugin offers, passes and fails. This process plans and reports; each
// trial runs in a process of its own, which is this program again.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/printable.h>
#include <weft/sdk/progress/unique_fd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "tools/weft/child.h"
#include "tools/weft/command.h"
#include "tools/weft/library.h"
#include "tools/weft/plugin.h"
#include "tools/weft/trial.h"
#include "tools/weft/trial_report.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

using Environment = std::map<std::string, std::string>;

constexpr std::chrono::seconds kTrialLimit{60};  // a trial takes less than a second
constexpr const char *kCrashRemedy =
    "run it in a debugger, or build the plugin with -fsanitize=address";

// ---- in the process of a trial ----

// Arguments: kTrialWord, trial, stack, file, unit, hook.
constexpr int kTrialArguments = 6;

Json json_of_verdict(const Verdict &verdict) {
  return {
      {"result", word_of(verdict.state)}, {"finding", verdict.finding}, {"remedy", verdict.remedy}};
}

// ---- in the process that plans ----

TrialState state_of(const std::string &word) {
  for (const TrialState state : {TrialState::kOk, TrialState::kFail})
    if (word == word_of(state)) return state;
  return TrialState::kNotChecked;
}

// The output of a trial; without one, or after a crash, what happened in its place.
Verdict verdict_of(const Result<ChildResult> &child) {
  if (!child) return went_wrong(child.error().text, kCrashRemedy);
  if (child->signal != 0) {
    const char *name = sigabbrev_np(child->signal);
    return went_wrong(absl::StrCat("killed by signal ", child->signal, " (SIG",
                                   name != nullptr ? name : "?", ")"),
                      kCrashRemedy);
  }
  const Json json = Json::parse(child->out, nullptr, false);
  if (child->status != 0 || !json.is_object())
    return went_wrong(
        absl::StrCat("ended with status ", child->status, ": ", child->err.substr(0, 300)),
        kCrashRemedy);
  return {state_of(text_of(json, "result")), text_of(json, "finding"), text_of(json, "remedy")};
}

// A stack, and how trials of it are started.
struct Subject {
  std::string title;  // "layer crc over tcp"
  TrialTask task;
  Environment environment;
};

// FI_PROVIDER_PATH with a folder in front. An '@' counts at its very beginning only, where it
// changes nothing.
std::string path_with(const std::string &folder) {
  const char *path = std::getenv("FI_PROVIDER_PATH");
  absl::string_view rest = path != nullptr ? path : "";
  absl::ConsumePrefix(&rest, "@");
  return rest.empty() ? folder : absl::StrCat(folder, ":", rest);
}

// "tcp;ofi_rxm" as elements of a stack in a file.
std::string elements_of(const std::string &stack) {
  std::string text;
  for (const std::string &word : std::vector<std::string>(absl::StrSplit(stack, ';')))
    text = text.empty() ? absl::StrCat("{provider: ", word, "}")
                        : absl::StrCat("{layer: ", word, "}, ", text);
  return text;
}

class PluginTest {
 public:
  PluginTest(std::string file, std::string over) : file_(std::move(file)), over_(std::move(over)) {}

  Result<void> run(const std::string &budget);
  const std::vector<TestRow> &rows() const { return rows_; }

 private:
  Result<void> learn_units();
  // An error unless `over_` names units that there are, also `own` ones of the file.
  Result<void> check_over(const Json &own) const;
  void test_unit(const Json &unit);
  // A unit of which nothing could be tried has not passed.
  void judge_unit(const Json &unit, size_t first_row);
  void test_layer(const Json &unit);
  void test_hook(const Json &unit);
  // False: it cannot be used, so that no other trial of it is of any use.
  bool try_stack(const Subject &subject);
  void try_hooks(const Subject &subject, const Json &unit);
  void try_beneath(const Subject &subject, const std::string &layer, const std::string &hook);
  Verdict try_one(const TrialCase &one, const Subject &subject) const;
  void try_group(TrialGroup group, const Subject &subject);
  void add(const std::string &subject, std::string check, Verdict verdict) {
    rows_.push_back({subject, std::move(check), std::move(verdict)});
  }
  Subject subject_of(const Json &unit, const std::string &inner) const;
  std::vector<std::string> providers_for(const Json &unit) const;
  // A hook that is installed, another one than the plugin's own; empty: there is none.
  std::string other_hook(const std::string &own) const;

  const std::string file_, over_;
  std::string self_;
  std::vector<Json> known_;  // units of all plugins
  std::vector<TestRow> rows_;
};

Result<void> PluginTest::run(const std::string &budget) {
  std::error_code failed;
  self_ = fs::read_symlink("/proc/self/exe", failed);
  if (failed)
    return fail(FI_ENOENT, "/proc/self/exe: %s: is /proc mounted?", failed.message().c_str());
  WEFT_TRY(const PluginCheck check, check_plugin_file(file_, budget));
  for (const FileCheck &finding : check.findings)
    add("file", finding.check,
        finding.good ? went_well(finding.finding) : went_wrong(finding.finding, finding.remedy));
  if (text_of(check.record, "verdict") != "ok") {
    add("units", "all", not_checked("the file is no good plugin"));
    return {};
  }
  WEFT_CHECK(learn_units());
  const Json units = array_of(check.record, "units");
  WEFT_CHECK(check_over(units));
  for (const Json &unit : units) {
    const size_t first_row = rows_.size();
    test_unit(unit);
    judge_unit(unit, first_row);
  }
  return {};
}

Result<void> PluginTest::learn_units() {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(const Json answer, library.plugins());
  for (const Json &plugin : array_of(answer, "plugins"))
    for (const Json &unit : array_of(plugin, "units")) known_.push_back(unit);
  return {};
}

Result<void> PluginTest::check_over(const Json &own) const {
  if (over_.empty()) return {};
  std::vector<std::string> names;
  std::vector<Json> units = known_;
  units.insert(units.end(), own.begin(), own.end());
  for (const Json &unit : units)
    if (text_of(unit, "kind") != "hook")
      names.insert(names.end(), {text_of(unit, "name"), text_of(unit, "ofi_name")});
  for (const std::string &word : std::vector<std::string>(absl::StrSplit(over_, ';'))) {
    if (std::find(names.begin(), names.end(), word) != names.end()) continue;
    const std::string close = nearest_word(word, names);
    return fail(FI_ENOENT, "--over: no provider \"%s\": %s", word.c_str(),
                close.empty() ? "`weft plugin list` has those that are installed"
                              : absl::StrCat("did you mean '", close, "'?").c_str());
  }
  return {};
}

void PluginTest::test_unit(const Json &unit) {
  const std::string kind = text_of(unit, "kind");
  if (kind == "layer") return test_layer(unit);
  if (kind == "hook") return test_hook(unit);
  const Subject subject = subject_of(unit, "");
  if (try_stack(subject)) try_hooks(subject, unit);
}

void PluginTest::judge_unit(const Json &unit, size_t first_row) {
  const bool has_result =
      std::any_of(rows_.begin() + static_cast<std::ptrdiff_t>(first_row), rows_.end(),
                  [](const TestRow &row) { return row.verdict.state != TrialState::kNotChecked; });
  if (has_result) return;
  const std::string name = text_of(unit, "name");
  add(absl::StrCat(text_of(unit, "kind"), " ", name), "at least one trial",
      went_wrong("nothing of this unit could be tried",
                 absl::StrCat("`weft why ", name, "` tells what keeps it from being used here")));
}

void PluginTest::test_layer(const Json &unit) {
  const std::string title = absl::StrCat("layer ", text_of(unit, "name"));
  const std::string least = text_of(unit, "inner_min");
  if (!least.empty() && least != "0" && least != "1")
    return add(title, "all", not_checked("it stands over several providers"));
  const std::vector<std::string> providers = providers_for(unit);
  for (const std::string &provider : providers) {
    const Subject subject = subject_of(unit, provider);
    const bool last = provider == providers.back();
    if (!last && try_one(trial_cases().front(), subject).state == TrialState::kNotChecked) continue;
    if (try_stack(subject)) try_hooks(subject, unit);
    return;
  }
  add(title, "all", not_checked("no provider is installed that it can stand on"));
}

void PluginTest::test_hook(const Json &unit) {
  const std::string name = text_of(unit, "name");
  const std::string title = absl::StrCat("hook ", name);
  const std::vector<std::string> providers = providers_for(unit);
  if (providers.empty())
    return add(title, "all", not_checked("no provider is installed that it can be on"));
  Subject subject = subject_of(unit, providers.front());
  subject.task.hook = name;
  subject.environment["FI_HOOK"] = name;
  const TrialCase &loading = trial_cases().front();
  const Verdict loaded = try_one(loading, subject);
  add(subject.title, loading.what, loaded);
  if (loaded.state != TrialState::kOk) return;
  try_group(TrialGroup::kHook, subject);
  subject.environment.erase("FI_HOOK");
  try_group(TrialGroup::kLive, subject);
  const std::string other = other_hook(name);
  if (other.empty())
    return add(title, "with another hook", not_checked("no other hook is installed"));
  for (const bool above : {true, false}) {
    Subject both = subject;
    both.title = absl::StrCat(subject.title, above ? " beneath " : " above ", other);
    both.task.hook = above ? absl::StrCat(other, ";", name) : absl::StrCat(name, ";", other);
    both.environment["FI_HOOK"] = both.task.hook;
    try_group(TrialGroup::kHook, both);
  }
}

bool PluginTest::try_stack(const Subject &subject) {
  for (const TrialCase &one : trial_cases()) {
    if (one.group != TrialGroup::kStack && one.group != TrialGroup::kCalls) continue;
    const Verdict verdict = try_one(one, subject);
    add(subject.title, one.what, verdict);
    if (&one == &trial_cases().front() && verdict.state != TrialState::kOk) {
      add(subject.title, "everything else", not_checked("it cannot be used here"));
      return false;
    }
  }
  return true;
}

void PluginTest::try_hooks(const Subject &subject, const Json &unit) {
  const std::string hook = other_hook("");
  if (hook.empty()) return add(subject.title, "with a hook", not_checked("no hook is installed"));
  Subject hooked = subject;
  hooked.task.hook = hook;
  hooked.title = absl::StrCat(subject.title, ", ", hook, " above");
  hooked.environment["FI_HOOK"] = hook;
  try_group(TrialGroup::kHook, hooked);
  hooked.environment.erase("FI_HOOK");
  hooked.title = subject.title;
  try_group(TrialGroup::kLive, hooked);
  if (text_of(unit, "kind") == "layer") try_beneath(subject, text_of(unit, "name"), hook);
}

// Only a file can say that a hook is between a layer and its provider.
void PluginTest::try_beneath(const Subject &subject, const std::string &layer,
                             const std::string &hook) {
  const std::string title = absl::StrCat(subject.title, ", ", hook, " beneath");
  const std::string provider = subject.task.stack.substr(0, subject.task.stack.rfind(';'));
  const std::string text =
      absl::StrCat("version: 1\nstacks: {trial: [{layer: ", layer, "}, {hook: ", hook, "}, ",
                   elements_of(provider), "]}\nuse: [trial]\n");
  // Trials inherit the descriptor, and nothing has to be taken away behind them.
  const sdk::UniqueFd file(memfd_create("weft.yaml", 0));
  if (write(file.get(), text.data(), text.size()) != ssize_t(text.size()))
    return add(title, "messages",
               not_checked(absl::StrCat("no file for a stack: ", std::strerror(errno))));
  Subject hooked = subject;
  hooked.title = title;
  hooked.task.hook = hook;
  hooked.environment.erase("FI_PROVIDER");
  hooked.environment["FI_CONFIG"] = absl::StrCat("/proc/self/fd/", file.get());
  try_group(TrialGroup::kHook, hooked);
}

void PluginTest::try_group(TrialGroup group, const Subject &subject) {
  for (const TrialCase &one : trial_cases())
    if (one.group == group) add(subject.title, one.what, try_one(one, subject));
}

Verdict PluginTest::try_one(const TrialCase &one, const Subject &subject) const {
  const TrialTask &task = subject.task;
  return verdict_of(
      run_child({self_, kTrialWord, one.name, task.stack, task.library, task.unit, task.hook},
                subject.environment, kTrialLimit));
}

Subject PluginTest::subject_of(const Json &unit, const std::string &inner) const {
  const std::string name = text_of(unit, "name"), kind = text_of(unit, "kind");
  const std::string ofi = text_of(unit, "ofi_name");
  Subject subject{.title = absl::StrCat(kind, " ", name)};
  if (!inner.empty()) absl::StrAppend(&subject.title, kind == "hook" ? " on " : " over ", inner);
  subject.task = {.stack = kind == "layer"  ? absl::StrCat(inner, ";", ofi)
                           : kind == "hook" ? inner
                                            : ofi,
                  .library = file_,
                  .unit = name};
  subject.environment = {{"FI_PROVIDER_PATH", path_with(fs::path(file_).parent_path())},
                         {"FI_PROVIDER", subject.task.stack}};
  return subject;
}

// Providers of others that offer what the unit needs: tcp first, as it is everywhere.
std::vector<std::string> PluginTest::providers_for(const Json &unit) const {
  if (!over_.empty()) return {over_};
  const std::vector<std::string> needs = texts_of(unit, "needs");
  std::vector<std::string> names;
  for (const Json &one : known_) {
    const std::vector<std::string> offers = texts_of(one, "offers");
    const bool fits =
        needs.empty() || std::any_of(needs.begin(), needs.end(), [&](const std::string &need) {
          return std::find(offers.begin(), offers.end(), need) != offers.end();
        });
    if (text_of(one, "kind") == "provider" && fits) names.push_back(text_of(one, "ofi_name"));
  }
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string &name) { return name == "tcp"; });
  return names;
}

std::string PluginTest::other_hook(const std::string &own) const {
  std::string found;
  for (const Json &unit : known_) {
    const std::string name = text_of(unit, "name");
    if (text_of(unit, "kind") != "hook" || name == own) continue;
    if (name == "trace" || name == "profile") return name;  // weft's own
    if (found.empty()) found = name;
  }
  return found;
}

constexpr absl::string_view kStdout = "-";

// Whether reports can go where they are to go, before anything is tried. `--json a.so b.so` would
// write over the plugin.
Result<void> check_reports(const PluginOptions &options) {
  if (options.json_file == kStdout && options.junit_file == kStdout)
    return fail(FI_EINVAL, "--json and --junit cannot both go to stdout: give one of them a file");
  for (const std::string &path : {options.json_file, options.junit_file}) {
    std::array<char, 4> begin{};
    std::error_code none;
    if (!fs::is_regular_file(path, none)) continue;
    if (std::ifstream(path, std::ios::binary).read(begin.data(), begin.size()) &&
        absl::string_view(begin.data(), begin.size()) == "\177ELF")
      return fail(FI_EINVAL, "%s is a program or a library: give another file for the report",
                  path.c_str());
  }
  return {};
}

Result<void> write_report(const std::string &path, const std::string &text) {
  if (path.empty()) return {};
  if (path == kStdout) {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    return fail(FI_EIO, "%s cannot be written: %s", path.c_str(),
                std::strerror(errno != 0 ? errno : EIO));
  return {};
}

}  // namespace

int run_plugin_trial(int argc, char **argv) {
  if (argc != kTrialArguments) return kExitUsage;
  // The plugin may print as well: its lines go to stderr, and the verdict where stdout was.
  const sdk::UniqueFd out(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return kExitUsage;
  const TrialTask task{.stack = argv[2], .library = argv[3], .unit = argv[4], .hook = argv[5]};
  const Verdict verdict = run_trial(argv[1], task);
  const std::string text =
      json_of_verdict(verdict).dump(-1, ' ', true, Json::error_handler_t::replace);
  for (absl::string_view rest = text; !rest.empty();) {
    const ssize_t wrote = write(out.get(), rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return kExitUsage;
    rest.remove_prefix(static_cast<size_t>(wrote));
  }
  return kExitOk;
}

Result<int> test_plugin(const PluginOptions &options) {
  WEFT_CHECK(check_reports(options));
  // The stacks under test are chosen here. Parameters (FI_NAME_...) and the files of site and user
  // stay in force: a device may need them.
  for (const char *name : {"FI_PROVIDER", "FI_HOOK", "FI_CONFIG"}) unsetenv(name);
  const std::string file = tidy_path(options.file);
  if (fs::path(file).parent_path().string().find(':') != std::string::npos)
    return fail(FI_EINVAL,
                "%s: FI_PROVIDER_PATH cannot name a folder with a colon: copy the plugin "
                "to another one",
                file.c_str());
  PluginTest test(file, options.over);
  WEFT_CHECK(test.run(options.budget));
  const std::vector<TestRow> &rows = test.rows();
  const Json json = json_of(file, rows);
  WEFT_CHECK(write_report(options.json_file,
                          json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n"));
  WEFT_CHECK(write_report(options.junit_file, junit_of(file, rows)));
  if (options.json_file != kStdout && options.junit_file != kStdout) print_rows(file, rows);
  return is_good(rows) ? kExitOk : kExitNo;
}

}  // namespace weft::cli
