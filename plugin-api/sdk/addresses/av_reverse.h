// SPDX-License-Identifier: BSD-2-Clause
// Av::Reverse: finds the entry of an address. Av::find() makes one at its first call, and set() and
// clear() keep it true from then on.
//
// It is a hash table with linear probing of indices into the vector, where the addresses are, and a
// byte of hash for each, so that few entries are compared in vain. At most 4/5 of the places are in
// use, 8/15 after growing: 6.3 to 9.4 bytes per entry, less than 16 while it grows. An address that
// stands in the vector more than once is here with its lowest index, and marked.
//
// It is a private part of Av, so there is no example. av_entries.cc uses it, av.cc destroys it. Not
// for tables of anything else.
#ifndef WEFT_SDK_ADDRESSES_AV_REVERSE_H
#define WEFT_SDK_ADDRESSES_AV_REVERSE_H

#include <weft/sdk/addresses/av.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "address_codec.h"

namespace weft::sdk {

class Av::Reverse {
 public:
  explicit Reverse(const Av &av) : av_(av) {}

  // Makes room for `more` addresses, so that as many calls of add() cannot fail. Throws bad_alloc.
  void reserve(size_t more) {
    if (used_ + more <= count_ / 5 * 4) return;
    if (!resize(used_ + more)) throw std::bad_alloc();
  }

  uint32_t find(const Address &address) const {
    if (used_ == 0) return kNone;
    const Place &place = places_[search(address, hash_of(address))];
    return place.mark != 0 ? place.index() : kNone;
  }

  // False: the address was there already.
  bool add(uint32_t index, const Address &address) {
    const uint64_t hash = hash_of(address);
    Place &place = places_[search(address, hash)];
    if (place.mark != 0) {
      place.mark |= kTwice;
      place.set_index(std::min(place.index(), index));
      return false;
    }
    place.mark = mark_of(hash);
    place.set_index(index);
    ++used_;
    return true;
  }

  // Must be called before the vector forgets the address.
  void remove(uint32_t index, const Address &address) {
    size_t hole = search(address, hash_of(address));
    if (places_[hole].mark == 0 || places_[hole].index() != index) return;
    if (places_[hole].mark & kTwice) {
      for (uint32_t other = index + 1; other < av_.end_; ++other) {
        if (!av_.holds(other, address)) continue;
        places_[hole].set_index(other);
        return;
      }
    }
    // The places behind the hole move up, so that no search ends too early.
    for (size_t at = next(hole); places_[at].mark != 0; at = next(at)) {
      const size_t home = home_of(hash_of(*av_.get(places_[at].index())));
      const bool stays = hole <= at ? hole < home && home <= at : hole < home || home <= at;
      if (stays) continue;
      places_[hole] = places_[at];
      hole = at;
    }
    places_[hole].mark = 0;
    --used_;
    if (count_ > kFewest && used_ < count_ / 8) resize(used_);  // where it fails the table stays
  }

 private:
  static constexpr uint8_t kTwice = 0x80;
  static constexpr size_t kFewest = 64;

  struct Place {
    uint8_t mark;  // 0: free
    unsigned char bytes[4];
    uint32_t index() const {
      uint32_t value;
      std::memcpy(&value, bytes, sizeof value);
      return value;
    }
    void set_index(uint32_t value) { std::memcpy(bytes, &value, sizeof value); }
  };
  static_assert(sizeof(Place) == 5);

  // All bits are good: places come from the high ones, marks from the low ones.
  static uint64_t hash_of(const Address &address) {
    return is_ip(address) ? address.hash() : identity(address).hash();
  }
  static bool is_ip(const Address &address) {
    return address.format() == FI_SOCKADDR_IN || address.format() == FI_SOCKADDR_IN6;
  }
  static uint8_t mark_of(uint64_t hash) { return uint8_t(1 + hash % 127); }
  size_t home_of(uint64_t hash) const {
    return size_t(static_cast<unsigned __int128>(hash) * count_ >> 64);
  }
  size_t next(size_t at) const { return at + 1 == count_ ? 0 : at + 1; }
  // Where the address is, or the free place where it belongs.
  size_t search(const Address &address, uint64_t hash) const {
    const uint8_t mark = mark_of(hash);
    size_t at = home_of(hash);
    while (places_[at].mark != 0 &&
           ((places_[at].mark & ~kTwice) != mark || !av_.holds(places_[at].index(), address)))
      at = next(at);
    return at;
  }

  bool resize(size_t entries) {
    const size_t count = std::max(kFewest, entries + entries / 8 * 7);
    std::unique_ptr<Place[]> old(new (std::nothrow) Place[count]());
    if (old == nullptr) return false;
    old.swap(places_);
    const size_t before = std::exchange(count_, count);
    for (size_t i = 0; i < before; ++i) {
      if (old[i].mark == 0) continue;
      size_t at = home_of(hash_of(*av_.get(old[i].index())));
      while (places_[at].mark != 0) at = next(at);
      places_[at] = old[i];
    }
    return true;
  }

  const Av &av_;
  std::unique_ptr<Place[]> places_;
  size_t count_ = 0, used_ = 0;  // places, and the places in use
};

}  // namespace weft::sdk

#endif
