// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/ways.h"

#include <algorithm>
#include <bit>

namespace weft::link {

Ways::Table *Ways::grow(size_t size) {
  constexpr size_t kLeast = 64;
  tables_.reserve(tables_.size() + 1);
  auto made = std::make_unique<Table>(std::max(kLeast, std::bit_ceil(size)));
  if (const Table *const before = table_.load(std::memory_order_relaxed))
    for (size_t i = 0; i < before->size; ++i)
      made->words[i].store(before->words[i].load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
  tables_.push_back(std::move(made));
  table_.store(tables_.back().get(), std::memory_order_release);
  return tables_.back().get();
}

void Ways::set(uint32_t peer, Way way) {
  Table *table = table_.load(std::memory_order_relaxed);
  if (table == nullptr || peer >= table->size) {
    if (!way.is_known()) return;
    table = grow(size_t(peer) + 1);
  }
  table->words[peer].store(way.word(), std::memory_order_relaxed);
}

void Ways::forget_local() {
  Table *const table = table_.load(std::memory_order_relaxed);
  if (table == nullptr) return;
  for (size_t i = 0; i < table->size; ++i) {
    const Way way(table->words[i].load(std::memory_order_relaxed));
    if (way.is_known() && way.branch() == kLocal)
      table->words[i].store(0, std::memory_order_relaxed);
  }
}

}  // namespace weft::link
