// SPDX-License-Identifier: BSD-2-Clause
#include "core/control/requests.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/stack/counters.h"

namespace weft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const char *class_name(size_t fclass) {
  static constexpr const char *kNames[] = {
      "unspec",      "fabric",    "domain",      "ep",        "sep",      "rx_ctx", "srx_ctx",
      "tx_ctx",      "stx_ctx",   "pep",         "interface", "av",       "mr",     "eq",
      "cq",          "cntr",      "wait",        "poll",      "connreq",  "mc",     "nic",
      "av_set",      "mr_cache",  "mem_monitor", "peer_cq",   "peer_srx", "log",    "peer_av",
      "peer_av_set", "peer_cntr", "profile"};
  static_assert(std::size(kNames) == FI_CLASS_PROFILE + 1);
  return fclass < std::size(kNames) ? kNames[fclass] : "unknown";
}

ordered_json objects_of(const ObjectTable &table) {
  const std::vector<ObjectTable::Live> live = table.list();
  std::map<const struct fid *, uint64_t> ids;
  for (const auto &object : live) ids.emplace(object.fid, object.id);
  ordered_json list = ordered_json::array();
  for (const auto &object : live) {
    char address[32];
    std::snprintf(address, sizeof address, "%p", static_cast<const void *>(object.fid));
    const auto parent = ids.find(object.parent);
    ordered_json entry;
    entry["id"] = object.id;
    entry["class"] = class_name(object.fclass);
    entry["fid"] = address;
    entry["parent"] = parent != ids.end() ? parent->second : 0;
    entry["element"] = object.element;
    entry["hooks"] = object.hooks;
    list.push_back(std::move(entry));
  }
  return list;
}

ordered_json counters_of(const ObjectTable &table) {
  ordered_json list = ordered_json::array();
  for (const FabricCounters &fabric : read_counters(table)) {
    ordered_json counters = ordered_json::array();
    for (const FabricCounters::Counter &counter : fabric.counters)
      counters.push_back(
          {{"name", counter.name}, {"value", counter.value}, {"what", counter.what}});
    list.push_back({{"id", fabric.id},
                    {"element", fabric.element},
                    {"hook", fabric.hook},
                    {"stack", fabric.stack},
                    {"name", fabric.name},
                    {"counters", std::move(counters)}});
  }
  return list;
}

// ---- members of a request ----

Result<std::string> text_member(const json &request, const char *name, bool wanted) {
  const auto found = request.find(name);
  if (found == request.end()) {
    if (wanted) return fail(FI_EINVAL, "the request has no \"%s\"", name);
    return std::string();
  }
  if (!found->is_string() || found->get_ref<const std::string &>().empty())
    return fail(FI_EINVAL, "\"%s\" must be a text that is not empty", name);
  return found->get<std::string>();
}

Result<std::vector<Setting>> settings_of(const json &request) {
  std::vector<Setting> settings;
  const auto params = request.find("params");
  if (params == request.end()) return settings;
  if (!params->is_object()) return fail(FI_EINVAL, "\"params\" must be an object of texts");
  for (const auto &[key, value] : params->items()) {
    if (!value.is_string())
      return fail(FI_EINVAL, "\"params\": the value of \"%s\" must be a text", key.c_str());
    settings.push_back({key, value.get<std::string>(), Rule::call("control socket")});
  }
  return settings;
}

struct Roots {
  std::vector<struct fid *> fids;
  std::vector<uint64_t> ids;
};

// The objects that a request names. An error lists the possible ones.
Result<Roots> roots_of(const json &request, const ObjectTable &table) {
  WEFT_TRY(const std::string element, text_member(request, "at", false));
  std::optional<uint64_t> id;
  if (const auto object = request.find("object"); object != request.end()) {
    if (!object->is_number_unsigned())
      return fail(FI_EINVAL, "\"object\" must be the id of an object");
    id = object->get<uint64_t>();
  }
  Roots roots;
  std::set<std::string> open;  // elements that have a fabric
  for (const ObjectTable::Live &live : table.list()) {
    const bool is_fabric = live.fclass == FI_CLASS_FABRIC;
    if (is_fabric) open.insert(live.element);
    const bool meant = id                 ? live.id == *id
                       : !element.empty() ? is_fabric && live.element == element
                                          : is_fabric && table.owner_of(live.fid) != nullptr;
    if (!meant) continue;
    roots.fids.push_back(live.fid);
    roots.ids.push_back(live.id);
  }
  if (!roots.fids.empty()) return roots;
  if (id) return fail(FI_ENOENT, "no object %llu is open", (unsigned long long)*id);
  if (open.empty()) return fail(FI_ENOENT, "no fabric is open");
  std::string elements;
  for (const std::string &one : open) elements += (elements.empty() ? "" : ", ") + one;
  if (element.empty())
    return fail(FI_ENOENT, "no fabric is open that the application opened; elements: %s",
                elements.c_str());
  return fail(FI_ENOENT, "no fabric of an element \"%s\" is open: there are %s", element.c_str(),
              elements.c_str());
}

std::string program() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  return size > 0 ? std::string(path, size_t(size)) : std::string();
}

Result<ordered_json> handle(std::string_view text, Front &front, ObjectTable &objects) {
  const json request = json::parse(text, nullptr, false);
  if (!request.is_object()) return fail(FI_EINVAL, "the request is no JSON object");
  WEFT_TRY(const std::string what, text_member(request, "do", true));
  ordered_json answer;
  answer["ok"] = true;
  if (what == "hello") {
    answer["pid"] = getpid();
    answer["program"] = program();
    answer["version"] = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    return answer;
  }
  if (what == "objects") {
    answer["objects"] = objects_of(objects);
    return answer;
  }
  if (what == "counters") {
    answer["fabrics"] = counters_of(objects);
    return answer;
  }
  const bool attach = what == "attach";
  if (!attach && what != "detach")
    return fail(FI_EINVAL, "unknown request \"%s\": hello, objects, counters, attach or detach",
                what.c_str());
  WEFT_TRY(const std::string hook, text_member(request, "hook", true));
  WEFT_TRY(const Roots roots, roots_of(request, objects));
  if (attach) {
    WEFT_TRY(std::vector<Setting> settings, settings_of(request));
    WEFT_CHECK(front.attach_hook(roots.fids, hook, std::move(settings)));
  } else {
    WEFT_CHECK(front.detach_hook(roots.fids, hook));
  }
  answer["objects"] = roots.ids;
  return answer;
}

}  // namespace

std::string objects_json(const ObjectTable &objects) {
  return dump(objects_of(objects));
}

std::string Controller::answer(std::string_view request) {
  std::string error;
  try {
    Result<ordered_json> made = handle(request, front_, objects_);
    if (made) return dump(*made) + "\n";
    error = made.error().text;
  } catch (const std::exception &thrown) {
    error = thrown.what();
  }
  ordered_json answer;
  answer["ok"] = false;
  answer["error"] = error;
  return dump(answer) + "\n";
}

}  // namespace weft
