// SPDX-License-Identifier: BSD-2-Clause
// The table of an address vector: its entries, their ids, and how one finds an address in it.
#include <weft/sdk/av.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "av_file.h"
#include "av_reverse.h"

namespace weft::sdk {

void Av::destroy(Chunk *chunk) {
  if (chunk == nullptr) return;
  if (chunk->wide)
    delete static_cast<Wide *>(chunk);
  else
    delete static_cast<Narrow *>(chunk);
}

// The same as *get(index) == address, but faster: a search asks this of many entries.
bool Av::holds(uint32_t index, const SockAddr &address) const {
  const Chunk *chunk = chunks_[index / kChunk];
  if (chunk == nullptr) return false;
  const uint32_t place = index % kChunk;
  const auto is_v4 = [&](const auto &slot) {
    return slot.tag == kV4 &&
           std::memcmp(slot.ip, &as_in(address).sin_addr, sizeof(in_addr)) == 0 &&
           std::memcmp(slot.port, &as_in(address).sin_port, sizeof slot.port) == 0;
  };
  if (!chunk->wide)
    return address.family() == AF_INET && is_v4(static_cast<const Narrow *>(chunk)->slots[place]);
  const Slot6 &slot = static_cast<const Wide *>(chunk)->slots[place];
  if (address.family() == AF_INET) return is_v4(slot);
  return slot.tag >= kV6 && std::memcmp(slot.ip, &as_in6(address).sin6_addr, sizeof slot.ip) == 0 &&
         std::memcmp(slot.port, &as_in6(address).sin6_port, sizeof slot.port) == 0 &&
         as_in6(address).sin6_scope_id == (slot.tag == kV6 ? 0 : chunk->scopes[slot.tag - kScope]);
}

uint8_t Av::scope_tag(Wide &chunk, uint32_t scope) {
  if (scope == 0) return kV6;
  auto &scopes = chunk.scopes;
  const auto tag_at = [](size_t n) { return uint8_t(kScope + n); };
  if (const auto it = std::ranges::find(scopes, scope); it != scopes.end())
    return tag_at(size_t(it - scopes.begin()));
  if (scopes.size() == 256 - kScope) {
    // The list is full. It has more scopes than there are slots, so some of them belonged to
    // entries that were removed. Only those in use stay.
    std::vector<uint32_t> live;
    live.reserve(kChunk);
    for (Slot6 &slot : chunk.slots) {
      if (slot.tag < kScope) continue;
      const uint32_t its = scopes[slot.tag - kScope];
      const size_t n = size_t(std::ranges::find(live, its) - live.begin());
      if (n == live.size()) live.push_back(its);
      slot.tag = tag_at(n);
    }
    scopes.swap(live);
  }
  scopes.push_back(scope);
  return tag_at(scopes.size() - 1);
}

Av::Wide *Av::widen(uint32_t number) {
  Chunk *&chunk = chunks_[number];
  if (chunk != nullptr && chunk->wide) return static_cast<Wide *>(chunk);
  auto wide = std::make_unique<Wide>();
  if (chunk != nullptr) {
    const auto *narrow = static_cast<Narrow *>(chunk);
    for (uint32_t i = 0; i < kChunk; ++i) {
      std::memcpy(wide->slots[i].ip, narrow->slots[i].ip, sizeof narrow->slots[i].ip);
      std::memcpy(wide->slots[i].port, narrow->slots[i].port, sizeof narrow->slots[i].port);
      wide->slots[i].tag = narrow->slots[i].tag;
    }
    wide->used = chunk->used;
    wide->low = chunk->low;
    wide->ids = std::move(chunk->ids);
    destroy(chunk);
  }
  chunk = wide.get();
  return wide.release();
}

uint32_t Av::lowest_free() {
  for (; room_from_ < room_.size(); ++room_from_) {
    if (room_[room_from_] == 0) continue;
    const uint32_t number =
        uint32_t(room_from_ * 64) + uint32_t(std::countr_zero(room_[room_from_]));
    Chunk *chunk = chunks_[number];
    if (chunk == nullptr) return number * kChunk;
    while (tag_of(number * kChunk + chunk->low) != kFree) ++chunk->low;
    return number * kChunk + chunk->low;
  }
  return uint32_t(chunks_.size()) * kChunk;
}

// The entry must be free. Throws bad_alloc, and then nothing has changed. Users are told last,
// because they may at once report what came from this address.
void Av::set(uint32_t index, const SockAddr &address, const fi_addr_t *id) {
  const uint32_t number = index / kChunk, place = index % kChunk;
  if (reverse_ != nullptr) reverse_->reserve(1);
  while (number >= chunks_.size()) {
    const size_t at = chunks_.size();
    if (room_.size() <= at / 64) room_.push_back(0);
    chunks_.push_back(nullptr);
    room_[at / 64] |= uint64_t(1) << at % 64;
    room_from_ = std::min(room_from_, at / 64);
  }
  const bool v6 = address.family() == AF_INET6;
  if (v6) {
    widen(number);
  } else if (chunks_[number] == nullptr) {
    chunks_[number] = new Narrow;
  }
  Chunk *const chunk = chunks_[number];
  if (id != nullptr) ids(number);  // takes the memory for them before anything has changed
  if (v6) {
    Wide *wide = static_cast<Wide *>(chunk);
    const uint8_t tag = scope_tag(*wide, as_in6(address).sin6_scope_id);
    Slot6 &slot = wide->slots[place];
    std::memcpy(slot.ip, &as_in6(address).sin6_addr, sizeof slot.ip);
    std::memcpy(slot.port, &as_in6(address).sin6_port, sizeof slot.port);
    slot.tag = tag;
  } else {
    const auto fill = [&](auto &slot) {
      std::memcpy(slot.ip, &as_in(address).sin_addr, 4);
      std::memcpy(slot.port, &as_in(address).sin_port, sizeof slot.port);
      slot.tag = kV4;
    };
    if (chunk->wide)
      fill(static_cast<Wide *>(chunk)->slots[place]);
    else
      fill(static_cast<Narrow *>(chunk)->slots[place]);
  }
  if (id != nullptr) ids(number)[place] = *id;
  if (place == chunk->low) ++chunk->low;
  if (++chunk->used == kChunk) room_[number / 64] &= ~(uint64_t(1) << number % 64);
  end_ = std::max(end_, index + 1);
  ++count_;
  if (reverse_ != nullptr && !reverse_->add(index, address)) twice_ = true;
  for (size_t i = 0; i < av_users_.size(); ++i)
    if (av_users_[i].second) av_users_[i].first->on_av_inserted(index, address);
}

void Av::clear(uint32_t index) {
  for (size_t i = 0; i < av_users_.size(); ++i) av_users_[i].first->on_av_removed(index);
  if (reverse_ != nullptr) reverse_->remove(index, *get(index));
  const uint32_t number = index / kChunk, place = index % kChunk;
  Chunk *chunk = chunks_[number];
  if (chunk->wide)
    static_cast<Wide *>(chunk)->slots[place].tag = kFree;
  else
    static_cast<Narrow *>(chunk)->slots[place].tag = kFree;
  if (chunk->ids != nullptr) chunk->ids[place] = without_id(index);
  chunk->low = std::min(chunk->low, uint8_t(place));
  room_[number / 64] |= uint64_t(1) << number % 64;
  room_from_ = std::min(room_from_, size_t(number / 64));
  --count_;
  if (--chunk->used != 0) return;
  chunks_[number] = nullptr;
  destroy(chunk);
}

fi_addr_t *Av::ids(uint32_t number) {
  Chunk &chunk = *chunks_[number];
  if (chunk.ids == nullptr) {
    chunk.ids.reset(new fi_addr_t[kChunk]);
    for (uint32_t i = 0; i < kChunk; ++i) chunk.ids[i] = without_id(number * kChunk + i);
    has_ids_ = true;
  }
  return chunk.ids.get();
}

// Puts the address at the lowest free index, in the shared file too. Returns 0 or FI_E...
int Av::add(const SockAddr &address, const fi_addr_t *id, uint32_t &index) {
  index = lowest_free();
  if (index >= (file_ != nullptr ? AvFile::kMaxEntries : kNone - kChunk)) return FI_ENOSPC;
  int error = 0;
  try {
    set(index, address, id);
    if (file_ == nullptr) return 0;
    if (const auto written = file_->write(index, address); !written) error = written.error().code;
  } catch (const std::bad_alloc &) {
    error = FI_ENOMEM;
  }
  if (error != 0 && index < end_ && tag_of(index) != kFree) clear(index);
  return error;
}

// Every lookup of a shared vector begins with this.
void Av::refresh() {
  if (!file_->changed()) return;
  // FI_EAGAIN: another process writes for longer than a reader waits. The copy stays as it is until
  // the next call.
  if (const auto done = synchronize(); !done && done.error().code != FI_EAGAIN)
    give_up(done.error());
}

uint32_t Av::find(const SockAddr &address) {
  if (file_ != nullptr) refresh();
  if (reverse_ == nullptr) {
    auto reverse = std::make_unique<Reverse>(*this);
    reverse->reserve(count_);
    for (uint32_t index = 0; index < end_; ++index)
      if (const auto there = get(index); there && !reverse->add(index, *there)) twice_ = true;
    reverse_ = std::move(reverse);
  }
  return reverse_->find(address);
}

void Av::add_user(AvUser &user, bool wants_inserts) {
  av_users_.emplace_back(&user, wants_inserts);
}

void Av::remove_user(AvUser &user) {
  std::erase_if(av_users_, [&](const auto &entry) { return entry.first == &user; });
}

}  // namespace weft::sdk
