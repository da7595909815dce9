// SPDX-License-Identifier: BSD-2-Clause
// The table of an address vector: its entries, their ids, and how one finds an address in it.
#include <netinet/in.h>
#include <weft/sdk/addresses/av.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "address_codec.h"
#include "address_ib.h"
#include "av_file.h"
#include "av_reverse.h"
#include "av_view.h"

namespace weft::sdk {

namespace {

// Of IPv6, whose scope stands behind what is packed.
constexpr size_t kScopeAt = offsetof(sockaddr_in6, sin6_scope_id);
constexpr size_t kPort6 = offsetof(sockaddr_in6, sin6_port),
                 kIp6 = offsetof(sockaddr_in6, sin6_addr);

const unsigned char *bytes_of(const Address &address) {
  return static_cast<const unsigned char *>(address.data());
}

}  // namespace

Av::Chunk *Av::make_chunk(size_t slot_size) {
  return new (::operator new(sizeof(Chunk) + kChunk * slot_size)) Chunk(slot_size);
}

void Av::destroy(Chunk *chunk) {
  if (chunk == nullptr) return;
  chunk->~Chunk();
  ::operator delete(chunk);
}

Address Av::unpack(const Chunk &chunk, uint32_t place) {
  const uint8_t tag = chunk.tags[place];
  const unsigned char *slot = chunk.slot(place);
  const AddressCodec &codec = *codec_of(tag);
  alignas(8) unsigned char native[Address::kMaxSize] = {};
  if (tag == FI_SOCKADDR_IB) store(native, 0, kFamilyIb);
  std::memcpy(native + codec.packed_at, slot, codec.packed_size);
  return Address::of(tag, native, codec.size);
}

// Whether the entry names the endpoint of `address`. Fast: a search asks this of many entries.
bool Av::holds(uint32_t index, const Address &address) const {
  const Chunk *chunk = chunks_[index / kChunk];
  if (chunk == nullptr) return false;
  const uint32_t place = index % kChunk;
  const uint8_t tag = chunk->tags[place];
  const unsigned char *slot = chunk->slot(place), *bytes = bytes_of(address);
  if (address.format() == FI_SOCKADDR_IN)
    return tag == kV4 && std::memcmp(slot, bytes + offsetof(sockaddr_in, sin_port), 6) == 0;
  if (address.format() == FI_SOCKADDR_IN6)
    return (tag == kV6 || tag >= kScope) &&
           std::memcmp(slot, bytes + kPort6, sizeof(in_port_t)) == 0 &&
           std::memcmp(slot + sizeof(in_port_t), bytes + kIp6, sizeof(in6_addr)) == 0 &&
           load<uint32_t>(bytes, kScopeAt) == (tag == kV6 ? 0 : chunk->scopes[tag - kScope]);
  if (tag != address.format()) return false;
  const AddressCodec &codec = *codec_of(tag);
  if (codec.identify != nullptr) return identity(unpack(*chunk, place)) == identity(address);
  return std::memcmp(slot, bytes + codec.packed_at, codec.packed_size) == 0;
}

uint8_t Av::scope_tag(Chunk &chunk, uint32_t scope) {
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
    for (uint8_t &tag : chunk.tags) {
      if (tag < kScope) continue;
      const uint32_t its = scopes[tag - kScope];
      const size_t n = size_t(std::ranges::find(live, its) - live.begin());
      if (n == live.size()) live.push_back(its);
      tag = tag_at(n);
    }
    scopes.swap(live);
  }
  scopes.push_back(scope);
  return tag_at(scopes.size() - 1);
}

// The chunk, with slots of at least this size.
Av::Chunk *Av::widen(uint32_t number, size_t slot_size) {
  Chunk *&chunk = chunks_[number];
  if (chunk != nullptr && chunk->slot_size >= slot_size) return chunk;
  Chunk *wide = make_chunk(slot_size);
  if (chunk != nullptr) {
    for (uint32_t i = 0; i < kChunk; ++i)
      if (chunk->tags[i] != kFree) std::memcpy(wide->slot(i), chunk->slot(i), chunk->slot_size);
    std::copy_n(chunk->tags, kChunk, wide->tags);
    wide->used = chunk->used;
    wide->low = chunk->low;
    wide->scopes = std::move(chunk->scopes);
    wide->ids = std::move(chunk->ids);
    destroy(chunk);
  }
  return chunk = wide;
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
void Av::set(uint32_t index, const Address &address, const fi_addr_t *id) {
  auto alone = hold_views();
  const uint32_t number = index / kChunk, place = index % kChunk;
  if (reverse_ != nullptr) reverse_->reserve(1);
  while (number >= chunks_.size()) {
    const size_t at = chunks_.size();
    if (room_.size() <= at / 64) room_.push_back(0);
    chunks_.push_back(nullptr);
    room_[at / 64] |= uint64_t(1) << at % 64;
    room_from_ = std::min(room_from_, at / 64);
  }
  const AddressCodec &codec = *codec_of(address.format());
  const unsigned char *bytes = bytes_of(address);
  Chunk *const chunk = widen(number, codec.packed_size);
  if (id != nullptr) ids(number);  // takes the memory for them before anything has changed
  unsigned char *slot = chunk->slot(place);
  uint8_t tag = uint8_t(codec.format);
  if (codec.format == FI_SOCKADDR_IN6) {
    tag = scope_tag(*chunk, load<uint32_t>(bytes, kScopeAt));
    std::memcpy(slot, bytes + kPort6, sizeof(in_port_t));
    std::memcpy(slot + sizeof(in_port_t), bytes + kIp6, sizeof(in6_addr));
  } else {
    std::memcpy(slot, bytes + codec.packed_at, codec.packed_size);
  }
  chunk->tags[place] = tag;
  if (id != nullptr) ids(number)[place] = *id;
  if (place == chunk->low) ++chunk->low;
  if (++chunk->used == kChunk) room_[number / 64] &= ~(uint64_t(1) << number % 64);
  end_ = std::max(end_, index + 1);
  ++count_;
  if (reverse_ != nullptr && !reverse_->add(index, address)) {
    twice_ = true;
    found_once_ = false;
  }
  if (alone) alone.unlock();
  for (size_t i = 0; i < av_users_.size(); ++i)
    if (av_users_[i].second) av_users_[i].first->on_av_inserted(index, address);
  if (views_ == nullptr) return;
  for (Av *view : views_->list) view->tell_inserted(index, address, found_once_);
}

void Av::clear(uint32_t index) {
  for (size_t i = 0; i < av_users_.size(); ++i) tell_removed(*av_users_[i].first, index);
  take_out(index);
  if (views_ == nullptr) return;
  for (Av *view : views_->list) view->drop(index);
}

void Av::take_out(uint32_t index) {
  const auto alone = hold_views();
  if (reverse_ != nullptr) reverse_->remove(index, *get(index));
  const uint32_t number = index / kChunk, place = index % kChunk;
  Chunk *chunk = chunks_[number];
  chunk->tags[place] = kFree;
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
int Av::add(const Address &address, const fi_addr_t *id, uint32_t &index) {
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
  if (catching_up_ || !file_->changed()) return;
  // FI_EAGAIN: another process writes for longer than a reader waits. The copy stays as it is until
  // the next call.
  if (const auto done = synchronize(); !done && done.error().code != FI_EAGAIN)
    give_up(done.error());
}

uint32_t Av::find(const Address &address) {
  if (origin_ != nullptr && file_ == nullptr) return find_in_origin(address);
  if (file_ != nullptr) refresh();
  if (reverse_ == nullptr) {
    auto reverse = std::make_unique<Reverse>(*this);
    reverse->reserve(count_);
    for (uint32_t index = 0; index < end_; ++index)
      if (const auto there = get(index); there && !reverse->add(index, *there)) twice_ = true;
    reverse_ = std::move(reverse);
    found_once_ = !twice_;
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
