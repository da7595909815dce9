// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/counters.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>

namespace weft {
namespace {

std::string cut(const char *text) {
  return text != nullptr ? std::string(text, strnlen(text, kMostText)) : std::string();
}

// Whether a table that says how long it is has a member.
template <class Table>
bool has(const Table *table, size_t offset) {
  return table != nullptr && table->size >= offset + sizeof(void *);
}

const weft_counters_ops *counters_ops(struct fid *fid, const std::string &name) {
  const struct fi_ops *ops = __atomic_load_n(&fid->ops, __ATOMIC_ACQUIRE);
  if (!has(ops, offsetof(struct fi_ops, ops_open)) || ops->ops_open == nullptr) return nullptr;
  void *found = nullptr;
  if (ops->ops_open(fid, name.c_str(), 0, &found, nullptr) != 0) return nullptr;
  const auto *counters = static_cast<const weft_counters_ops *>(found);
  const bool reads = has(counters, offsetof(weft_counters_ops, read)) && counters->read != nullptr;
  return reads ? counters : nullptr;
}

std::vector<FabricCounters::Counter> read(struct fid *fid, const weft_counters_ops &ops) {
  std::vector<weft_counter> raw(64);
  size_t count = ops.read(fid, raw.data(), raw.size());
  if (count > raw.size()) {
    raw.assign(std::min(count, kMostCounters), weft_counter{});
    count = ops.read(fid, raw.data(), raw.size());
  }
  const bool describes =
      has(&ops, offsetof(weft_counters_ops, describe)) && ops.describe != nullptr;
  std::vector<FabricCounters::Counter> counters;
  for (size_t i = 0; i < std::min(count, raw.size()); ++i) {
    if (raw[i].name == nullptr) continue;
    counters.push_back(
        {cut(raw[i].name), raw[i].value, describes ? cut(ops.describe(fid, i)) : std::string()});
  }
  return counters;
}

}  // namespace

std::vector<FabricCounters> read_counters(const ObjectTable &objects) {
  std::vector<FabricCounters> all;
  std::set<std::shared_ptr<Hook>> asked;  // holds them, so that no other one gets the same address
  objects.visit_fabrics([&](const ObjectTable::Visited &fabric) {
    const auto add = [&](const std::string &hook, const std::string &name) {
      const weft_counters_ops *ops = counters_ops(fabric.fid, name);
      if (ops == nullptr) return false;
      FabricCounters one{fabric.id, {}, hook, {}, fabric.name, read(fabric.fid, *ops)};
      if (fabric.element != nullptr) {
        if (fabric.element->unit != nullptr) one.element = cut(fabric.element->unit->name);
        one.stack = cut(fabric.element->stack);
      }
      if (!one.counters.empty()) all.push_back(std::move(one));
      return true;
    };
    add({}, WEFT_COUNTERS_OPS);
    for (const std::shared_ptr<Hook> &hook : fabric.hooks) {
      if (asked.contains(hook)) continue;
      if (add(hook->name(), std::string(WEFT_HOOK_COUNTERS_OPS) + hook->name())) asked.insert(hook);
    }
  });
  return all;
}

}  // namespace weft
