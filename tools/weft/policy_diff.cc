// SPDX-License-Identifier: BSD-2-Clause
// weft policy diff: what differs in effect between two files, key by key and program by program.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <algorithm>
#include <set>

#include "tools/weft/command.h"
#include "tools/weft/policy.h"

namespace weft::cli {
namespace {

// The configuration with one of the files, and what programs get under it.
struct Side {
  std::string file;  // empty: what is installed
  Json values;       // those that have an effect
  Json programs = Json::array(), diagnostics = Json::array();
};

// A file with errors counts for nothing, so a comparison would mislead.
Result<void> check_right(const Json &config, const std::string &file, const std::string &place) {
  for (const Json &one : array_of(config, "files"))
    if (text_of(one, "path") == file && flag_of(one, "used")) return {};
  const Json wrong = only_of(array_of(config, "diagnostics"), file);
  const std::string why = wrong.empty() ? "it cannot be read" : text_of(wrong[0], "text");
  return tl::unexpected<Error>(
      Error{FI_EINVAL,
            printable(absl::StrCat(file, ": ", why, ": see `", lint_command(file, place), "`"))});
}

std::string place_of(const Json &value) {
  return absl::StrCat(text_of(value, "key"), "\n", text_of(value, "origin"));
}

// The values of a configuration, without those that it also has among the overridden ones: a rule
// that a later one shadows, what FI_PROVIDER lifts.
Json values_with_effect(const Json &config) {
  std::set<std::string> overridden;
  for (const Json &one : array_of(config, "overridden")) overridden.insert(place_of(one));
  Json values = Json::array();
  for (const Json &one : array_of(config, "values"))
    if (!overridden.contains(place_of(one))) values.push_back(one);
  return values;
}

Result<Side> ask_side(const std::string &file, const std::string &place,
                      const std::vector<std::string> &hints, const SupposingOptions &supposing) {
  Side side{.file = file, .values = {}};
  std::vector<std::string> show = {"config", "show", "--json", "--all", "--defaults"};
  std::vector<std::string> test = {"policy", "test", "--json"};
  for (const std::string &one : hints) test.insert(test.end(), {"--as", one});
  for (const std::string &fact : fact_words(supposing)) test.push_back(fact);
  if (!file.empty()) {
    for (auto *words : {&show, &test}) {
      words->push_back("--as-file=" + place);
      words->push_back(file);
    }
  }
  WEFT_TRY(const Json config, ask_child(show));
  if (!file.empty()) WEFT_CHECK(check_right(config, file, place));
  side.values = values_with_effect(config);
  side.diagnostics = only_of(array_of(config, "diagnostics"), file);
  if (hints.empty()) return side;
  WEFT_TRY(const Json tested, ask_child(test));
  side.programs = array_of(tested, "programs");
  return side;
}

// ---- lists of lines ----

// What two lists have in common is left out. `text` makes what is compared.
struct Change {
  std::vector<Json> gone, come;
  bool order = false;  // the same in another order
  bool any() const { return order || !gone.empty() || !come.empty(); }
};

template <class Text>
Change change_of(const std::vector<Json> &before, const std::vector<Json> &after, Text text) {
  Change change;
  std::map<std::string, long> surplus;
  for (const Json &one : after) ++surplus[text(one)];
  for (const Json &one : before)
    if (--surplus[text(one)] < 0) change.gone.push_back(one);
  surplus.clear();
  for (const Json &one : before) ++surplus[text(one)];
  for (const Json &one : after)
    if (--surplus[text(one)] < 0) change.come.push_back(one);
  change.order = change.gone.empty() && change.come.empty() &&
                 !std::equal(before.begin(), before.end(), after.begin(), after.end(),
                             [&](const Json &a, const Json &b) { return text(a) == text(b); });
  return change;
}

Json change_json(const Change &change) {
  return {{"a", change.gone}, {"b", change.come}, {"order", change.order}};
}

template <class Line>
void print_change(const Change &change, Line line) {
  for (const Json &one : change.gone)
    absl::PrintF("  - %s\n", emphasized(line(one), Emphasis::kBad));
  for (const Json &one : change.come)
    absl::PrintF("  + %s\n", emphasized(line(one), Emphasis::kGood));
  if (change.order) absl::PrintF("  the same, in another order\n");
}

// ---- keys ----

struct KeyChange {
  std::string key;
  Change change;
};

std::string final_mark(const Json &value) {
  return flag_of(value, "final") ? " (final)" : "";
}

// Alike for values that have the same effect, however they are written.
std::string effect_of(const Json &value) {
  const Json means = value.value("means", value.value("value", Json(nullptr)));
  return absl::StrCat(value_text({{"value", means}}), final_mark(value));
}

// Whether the order of the values of a key has an effect.
bool is_ordered(const std::string &key) {
  return key == "providers.rank" || key == "plugins.path";
}

// One value of each effect.
std::vector<Json> each_effect(const std::vector<Json> &values) {
  std::vector<Json> all;
  std::set<std::string> seen;
  for (const Json &one : values)
    if (seen.insert(effect_of(one)).second) all.push_back(one);
  return all;
}

// By key, in the order of the values of `a`, and then of `b`.
std::vector<KeyChange> key_changes(const Json &a, const Json &b) {
  std::vector<std::string> keys;
  std::map<std::string, std::pair<std::vector<Json>, std::vector<Json>>> by_key;
  for (const Json *values : {&a, &b}) {
    for (const Json &value : *values) {
      const std::string key = text_of(value, "key");
      const auto [entry, is_new] = by_key.try_emplace(key);
      if (is_new) keys.push_back(key);
      (values == &a ? entry->second.first : entry->second.second).push_back(value);
    }
  }
  std::vector<KeyChange> changes;
  for (const std::string &key : keys) {
    const auto &[before, after] = by_key[key];
    Change change = is_ordered(key) ? change_of(before, after, effect_of)
                                    : change_of(each_effect(before), each_effect(after), effect_of);
    change.order = change.order && is_ordered(key);
    if (change.any()) changes.push_back({key, std::move(change)});
  }
  return changes;
}

void print_keys(const std::vector<KeyChange> &changes) {
  for (const KeyChange &one : changes) {
    absl::PrintF("%s\n", emphasized(one.key, Emphasis::kStrong));
    print_change(one.change, [](const Json &value) {
      return printable(
          absl::StrCat(value_text(value), final_mark(value), "  (", text_of(value, "origin"), ")"));
    });
  }
}

// ---- programs ----

struct ProgramChange {
  std::string hints;
  Json before, after;  // what each gets, and why
  Change change;
};

std::string offer_line(const Json &offer) {
  std::string line = absl::StrCat(text_of(offer, "stack"), " (", text_of(offer, "type"), ") on ",
                                  text_of(offer, "domain"));
  for (const std::string &address : texts_of(offer, "addresses"))
    absl::StrAppend(&line, ", ", address);
  return line;
}

std::vector<ProgramChange> program_changes(const Side &a, const Side &b) {
  std::vector<ProgramChange> changes;
  for (size_t i = 0; i < std::min(a.programs.size(), b.programs.size()); ++i) {
    const Json before = array_of(a.programs[i], "offers"),
               after = array_of(b.programs[i], "offers");
    changes.push_back(
        {text_of(a.programs[i], "hints"), a.programs[i], b.programs[i],
         change_of({before.begin(), before.end()}, {after.begin(), after.end()}, offer_line)});
  }
  return changes;
}

std::string chosen_line(const Json &program) {
  const Json chosen = program.value("chosen", Json(nullptr));
  if (!chosen.is_object()) return absl::StrCat("nothing: ", text_of(program, "error"));
  std::string line = absl::StrCat(offer_line(chosen), ": ", text_of(chosen, "reason"));
  if (const std::string rule = text_of(chosen, "rule"); !rule.empty())
    absl::StrAppend(&line, " (", rule, ")");
  return line;
}

void print_programs(const std::vector<ProgramChange> &changes) {
  for (const ProgramChange &one : changes) {
    absl::PrintF("%s\n", emphasized(one.hints.empty() ? "program without hints"
                                                      : absl::StrCat("program ", one.hints),
                                    Emphasis::kStrong));
    if (!one.change.any()) {
      absl::PrintF("  the same: %s\n", printable(chosen_line(one.after)));
      continue;
    }
    absl::PrintF("  chosen: %s\n", printable(chosen_line(one.before)));
    absl::PrintF("  now:    %s\n", printable(chosen_line(one.after)));
    print_change(one.change, offer_line);
  }
}

Json programs_json(const std::vector<ProgramChange> &changes) {
  Json list = Json::array();
  for (const ProgramChange &one : changes)
    list.push_back({{"hints", one.hints},
                    {"same", !one.change.any()},
                    {"a", one.before},
                    {"b", one.after},
                    {"offers", change_json(one.change)}});
  return list;
}

// ---- both ----

// Both files are read at one place: --as-file, or that of the first that stands where files are
// read, or that of the last.
Result<std::string> common_place(const std::vector<std::string> &files,
                                 const std::string &as_file) {
  WEFT_TRY(const Library library, Library::open());
  for (const std::string &file : files) WEFT_CHECK(check_readable(file));
  for (const std::string &file : files)
    if (const std::string place = installed_place(library, file, as_file);
        place == absolute_path(file) || !as_file.empty())
      return place;
  return installed_place(library, files.back(), as_file);
}

// How many errors a side has. What they are about has no effect, so it is no difference.
size_t tell_errors(const Side &side, const std::string &place) {
  const size_t errors = having(side.diagnostics, "error");
  if (errors != 0)
    absl::FPrintF(stderr, "weft policy diff: %s: %s: see `%s`\n",
                  side.file.empty() ? "what is installed" : printable(side.file),
                  plural(errors, "error"), printable(lint_command(side.file, place)));
  return errors;
}

std::string side_name(const Side &side, const std::string &place) {
  return side.file.empty()    ? "what is installed"
         : side.file == place ? side.file
                              : absl::StrCat(side.file, ", read as ", place);
}

}  // namespace

Result<int> diff(const DiffOptions &options, const SupposingOptions &supposing) {
  WEFT_TRY(const std::string place, common_place(options.files, supposing.as_file));
  warn_of_absent_devices("weft policy diff", supposing);
  const bool two = options.files.size() == 2;
  const Result<Side> before =
      ask_side(two ? absolute_path(options.files[0]) : "", place, options.programs, supposing);
  const Result<Side> after =
      ask_side(absolute_path(options.files.back()), place, options.programs, supposing);
  if (!before && !after && before.error().text != after.error().text)
    return tl::unexpected<Error>(Error{FI_EINVAL, before.error().text + "\n" + after.error().text});
  WEFT_TRY(const Side a, before);
  WEFT_TRY(const Side b, after);
  const std::vector<KeyChange> keys = key_changes(a.values, b.values);
  const std::vector<ProgramChange> programs = program_changes(a, b);
  const bool same =
      keys.empty() && std::none_of(programs.begin(), programs.end(),
                                   [](const ProgramChange &one) { return one.change.any(); });
  const size_t errors = tell_errors(a, place) + tell_errors(b, place);
  const int status = same && errors == 0 ? kExitOk : kExitNo;
  if (options.json) {
    Json list = Json::array();
    for (const KeyChange &one : keys) {
      list.push_back({{"key", one.key}});
      list.back().update(change_json(one.change));
    }
    print_json({{"a", a.file.empty() ? Json(nullptr) : Json(a.file)},
                {"b", b.file},
                {"as", place},
                {"same", same},
                {"errors", errors},
                {"diagnostics", {{"a", a.diagnostics}, {"b", b.diagnostics}}},
                {"keys", std::move(list)},
                {"programs", programs_json(programs)}});
    return status;
  }
  absl::PrintF("--- %s\n+++ %s\n", printable(side_name(a, place)), printable(side_name(b, place)));
  print_keys(keys);
  if (keys.empty()) absl::PrintF("no key has another value\n");
  print_programs(programs);
  return status;
}

}  // namespace weft::cli
