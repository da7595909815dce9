// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/usable_settings.h"

#include <algorithm>

#include "core/base/render.h"

namespace weft {
namespace {

const char *default_of(const weft_unit &unit, const std::string &key) {
  for (uint32_t i = 0; i < unit.param_count; ++i)
    if (key == unit.params[i]->name) return unit.params[i]->default_value;
  return nullptr;
}

const Setting *last_for(const std::vector<Setting> &settings, const std::string &key) {
  const auto found = std::find_if(settings.rbegin(), settings.rend(),
                                  [&](const Setting &one) { return one.key == key; });
  return found != settings.rend() ? &*found : nullptr;
}

}  // namespace

std::string_view variable_of(const Setting &setting) {
  return setting.where.is(Rule::Kind::kEnvironment) ? setting.where.name : std::string_view();
}

std::string unused_line(std::string_view variable, std::string_view reason, const Setting *other,
                        const char *fallback) {
  std::string line = std::string(variable) + ": " + std::string(reason) + "; ";
  if (other != nullptr)
    return line + "\"" + other->value + "\", from " + text_of(other->where) + ", is used";
  if (fallback == nullptr || *fallback == '\0') return line + "it counts as not set";
  return line + "the default, \"" + fallback + "\", is used";
}

Result<void> with_usable_settings(const weft_unit &unit, const std::vector<Setting> &settings,
                                  const TakeSettings &take, const TellLine &tell) {
  const Result<void> all = take(settings);
  if (all || all.error().code != FI_EINVAL) return all;
  // Those that are tried, in the order of `settings`: first no variable, then one more each time.
  std::vector<bool> used;
  for (const Setting &one : settings) used.push_back(variable_of(one).empty());
  const auto chosen = [&] {
    std::vector<Setting> list;
    for (size_t i = 0; i < settings.size(); ++i)
      if (used[i]) list.push_back(settings[i]);
    return list;
  };
  if (std::find(used.begin(), used.end(), false) == used.end()) return all;
  if (const Result<void> none = take(chosen()); !none) return none;
  bool again = false;
  for (size_t i = 0; i < settings.size(); ++i) {
    if (used[i]) continue;
    used[i] = true;
    const Result<void> taken = take(chosen());
    if (!taken && taken.error().code != FI_EINVAL) return taken;
    again = !taken;
    if (taken) continue;
    used[i] = false;
    const std::vector<Setting> others = chosen();
    if (tell)
      tell(unused_line(variable_of(settings[i]), taken.error().text,
                       last_for(others, settings[i].key), default_of(unit, settings[i].key)));
  }
  return again ? take(chosen()) : Result<void>();
}

}  // namespace weft
