// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/buffers.h"

#include <utility>

#include "plugins/cxi/bits.h"
#include "plugins/cxi/device_memory.h"

namespace weft::cxi {
namespace {

constexpr size_t kMaxBuffers = 0x3fff;  // of the numbers from first_id on

}  // namespace

Buffers::~Buffers() {
  for (const std::unique_ptr<Buffer> &buffer : buffers_)
    if (buffer != nullptr) let_go(*buffer);
}

// Devices copy faster from memory that is registered with them.
void Buffers::let_go(Buffer &buffer) {
  if (ports_.devices != nullptr) ports_.devices->unregister_host(buffer.bytes.get());
}

Buffers::Buffer *Buffers::take() {
  if (!idle_.empty()) {
    Buffer *const idle = idle_.back();
    idle_.pop_back();
    return idle;
  }
  size_t number = 0;
  while (number != buffers_.size() && buffers_[number] != nullptr) ++number;
  if (number == kMaxBuffers) return nullptr;
  auto buffer = std::make_unique<Buffer>();
  buffer->bytes = sdk::make_lazy_array<uint8_t>(options_.size);
  if (buffer->bytes == nullptr) return nullptr;
  if (ports_.devices != nullptr) ports_.devices->register_host(buffer->bytes.get(), options_.size);
  buffer->id = uint16_t(options_.first_id + number);
  by_start_[buffer->start()] = buffer.get();
  if (number == buffers_.size()) buffers_.emplace_back();
  return (buffers_[number] = std::move(buffer)).get();
}

bool Buffers::link(Portal &portal, bool one) {
  while (is_short() && !(one && linked_ != 0)) {
    Buffer *const buffer = take();
    if (buffer == nullptr) return false;
    buffer->is_linked = true;
    buffer->filled = UINT64_MAX;
    buffer->released = 0;
    ++linked_;
    Entry entry{.buffer_id = buffer->id,
                .memory = ports_.all,
                .start = buffer->start(),
                .length = options_.size,
                .ignore_bits = ~kControl,
                .min_free = options_.longest};
    entry.op_put = entry.manage_local = true;
    entry.link_disable = entry.unlink_disable = true;
    // One that was refused before stands in nobody's way.
    entry.restart_sequence = options_.list == List::kPriority;
    portal.append(options_.list, entry);
  }
  return true;
}

void Buffers::on_full(uint16_t buffer_id, uint64_t end) {
  Buffer &buffer = *buffers_[size_t(buffer_id - options_.first_id)];
  if (!std::exchange(buffer.is_linked, false)) return;
  --linked_;
  buffer.filled = end - buffer.start();
  settle(buffer);
}

void Buffers::on_refused(uint16_t buffer_id) {
  Buffer &buffer = *buffers_[size_t(buffer_id - options_.first_id)];
  if (!std::exchange(buffer.is_linked, false)) return;
  --linked_;
  buffer.filled = 0;
  settle(buffer);
}

void Buffers::release(uint64_t start, uint64_t bytes) {
  if (bytes == 0) return;
  const auto behind = by_start_.upper_bound(start);
  if (behind == by_start_.begin()) return;
  Buffer &buffer = *std::prev(behind)->second;
  buffer.released += bytes;
  settle(buffer);
}

void Buffers::settle(Buffer &buffer) {
  if (buffer.is_linked || buffer.released != buffer.filled) return;
  if (options_.cached == 0 || idle_.size() < options_.cached) return idle_.push_back(&buffer);
  by_start_.erase(buffer.start());
  let_go(buffer);
  buffers_[size_t(buffer.id - options_.first_id)].reset();
}

}  // namespace weft::cxi
