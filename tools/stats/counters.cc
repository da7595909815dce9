// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/counters.h"

#include <weft/printable.h>

#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace weft::stats {
namespace {

using Json = nlohmann::ordered_json;

std::string text_member(const Json &object, std::string_view key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string()
             ? printable(found->get_ref<const std::string &>())
             : std::string();
}

uint64_t number_member(const Json &object, std::string_view key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

auto key_of(const Counted &one) {
  return std::tuple(one.pid, one.fabric, one.element, one.hook, one.name);
}

bool same_source(const Counted &a, const Counted &b) {
  return std::tie(a.pid, a.fabric, a.element, a.hook) ==
         std::tie(b.pid, b.fabric, b.element, b.hook);
}

}  // namespace

std::vector<Counted> counted_of(uint64_t pid, const std::string &program, const Json &fabrics) {
  std::vector<Counted> all;
  if (!fabrics.is_array()) return all;
  for (const Json &fabric : fabrics) {
    if (!fabric.is_object()) continue;
    const auto counters = fabric.find("counters");
    if (counters == fabric.end() || !counters->is_array()) continue;
    Counted one;
    one.pid = pid;
    one.program = printable(program);
    one.fabric = number_member(fabric, "id");
    one.fabric_name = text_member(fabric, "name");
    one.stack = text_member(fabric, "stack");
    one.element = text_member(fabric, "element");
    one.hook = text_member(fabric, "hook");
    for (const Json &counter : *counters) {
      if (!counter.is_object()) continue;
      one.name = text_member(counter, "name");
      one.what = text_member(counter, "what");
      one.value = number_member(counter, "value");
      if (!one.name.empty()) all.push_back(one);
    }
  }
  return all;
}

std::vector<Counted> since(std::vector<Counted> now, const std::vector<Counted> &before) {
  std::map<decltype(key_of(std::declval<Counted>())), uint64_t> known;
  for (const Counted &one : before) known.emplace(key_of(one), one.value);
  for (Counted &one : now) {
    const auto earlier = known.find(key_of(one));
    if (earlier != known.end() && earlier->second <= one.value) one.value -= earlier->second;
  }
  return now;
}

Json to_json(const std::vector<Counted> &counted) {
  Json list = Json::array();
  const Counted *last = nullptr;
  for (const Counted &one : counted) {
    if (last == nullptr || !same_source(*last, one))
      list.push_back({{"pid", one.pid},
                      {"program", one.program},
                      {"fabric", one.fabric},
                      {"fabric_name", one.fabric_name},
                      {"stack", one.stack},
                      {"element", one.element},
                      {"hook", one.hook},
                      {"counters", Json::array()}});
    last = &one;
    list.back()["counters"].push_back(
        {{"name", one.name}, {"value", one.value}, {"what", one.what}});
  }
  return list;
}

}  // namespace weft::stats
