// SPDX-License-Identifier: BSD-2-Clause
// IndexTable: pointers by a small number, such as the peer of an address vector's index.
//
// Example:
//    struct Peer {};
//    Peer *peer_of(IndexTable<Peer> &peers, uint32_t index) {
//      if (peers.at(index) == nullptr) peers.set(index, new Peer);
//      return peers.at(index);
//    }
//
// An index costs nothing until its chunk of 256 has a pointer; then the chunk stays. Indices with
// the bit kFar, such as those of contexts (Av::kContext), have chunks of their own. It owns no
// object. Not for keys that a peer chooses: a large index makes a large table.
#ifndef WEFT_SDK_MEMORY_INDEX_TABLE_H
#define WEFT_SDK_MEMORY_INDEX_TABLE_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weft::sdk {

template <class T>
class IndexTable {
 public:
  // Null where nothing was set.
  T *at(uint32_t index) const {
    const size_t chunk = index / kChunk;
    if (chunk >= chunks_.size()) return far_at(index);
    if (chunks_[chunk] == nullptr) return nullptr;
    return (*chunks_[chunk])[index % kChunk];
  }
  // Null removes. Throws std::bad_alloc, and the table is as before; removing needs no memory.
  void set(uint32_t index, T *object) {
    Chunks &chunks = index & kFar ? far_ : chunks_;
    const size_t chunk = (index & ~kFar) / kChunk;
    if (chunk >= chunks.size()) {
      if (object == nullptr) return;
      chunks.resize(chunk + 1);
    }
    if (chunks[chunk] == nullptr) {
      if (object == nullptr) return;
      chunks[chunk] = std::make_unique<Chunk>();
    }
    (*chunks[chunk])[index % kChunk] = object;
  }

  static constexpr uint32_t kFar = UINT32_C(1) << 30;

 private:
  static constexpr size_t kChunk = 256;
  using Chunk = std::array<T *, kChunk>;
  using Chunks = std::vector<std::unique_ptr<Chunk>>;

  [[gnu::noinline]] T *far_at(uint32_t index) const {
    const size_t chunk = (index & ~kFar) / kChunk;
    if (!(index & kFar) || chunk >= far_.size() || far_[chunk] == nullptr) return nullptr;
    return (*far_[chunk])[index % kChunk];
  }

  Chunks chunks_, far_;
};

}  // namespace weft::sdk

#endif
