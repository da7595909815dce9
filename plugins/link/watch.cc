// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/watch.h"

#include <rdma/fi_errno.h>

#include <new>

#include "plugins/link/endpoint.h"

namespace weft::link {

Watch::Entry *Watch::begin(Endpoint &endpoint, uint32_t peer, void *context, bool reports) {
  if (free_.empty()) {
    try {
      free_.reserve((chunks_.size() + 1) * kChunk);
      chunks_.push_back(std::make_unique<Entry[]>(kChunk));
    } catch (const std::bad_alloc &) {
      return nullptr;
    }
    for (size_t i = kChunk; i-- > 0;) free_.push_back(&chunks_.back()[i]);
  }
  Entry *const entry = free_.back();
  free_.pop_back();
  *entry = {context, &endpoint, peer, reports, true};
  used_.fetch_add(1, std::memory_order_relaxed);
  return entry;
}

void Watch::give(Entry &entry) {
  entry = {};
  free_.push_back(&entry);
  used_.fetch_sub(1, std::memory_order_relaxed);
}

// An application's context may be any number, so nothing is read through it.
Watch::Entry *Watch::at(const void *context) {
  const auto place = reinterpret_cast<uintptr_t>(context);
  for (const std::unique_ptr<Entry[]> &chunk : chunks_) {
    const auto first = reinterpret_cast<uintptr_t>(chunk.get());
    if (place < first || place >= first + kChunk * sizeof(Entry)) continue;
    const size_t offset = place - first;
    Entry &entry = chunk[offset / sizeof(Entry)];
    return offset % sizeof(Entry) == 0 && entry.is_used ? &entry : nullptr;
  }
  return nullptr;
}

bool Watch::end(void *&context, int error) {
  Entry *const entry = at(context);
  if (entry == nullptr) return true;
  const Entry ended = *entry;
  give(*entry);
  context = ended.context;
  if (ended.endpoint == nullptr) return false;
  ended.endpoint->end_watched(ended.peer, is_gone(error));
  return ended.reports || error != 0;
}

Watch::Entry *Watch::find(const Endpoint &endpoint, const void *context) {
  Entry *found = nullptr;
  visit([&](Entry &entry) {
    if (entry.endpoint == &endpoint && entry.context == context) found = &entry;
  });
  return found;
}

void Watch::forget(const Endpoint &endpoint, bool are_told) {
  visit([&](Entry &entry) {
    if (entry.endpoint != &endpoint) return;
    entry.endpoint = nullptr;
    if (are_told) give(entry);
  });
}

bool Watch::is_gone(int error) {
  switch (error) {
    case FI_ECONNREFUSED:
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_EHOSTUNREACH:
    case FI_ENETUNREACH:
    case FI_EHOSTDOWN:
    case FI_ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

}  // namespace weft::link
