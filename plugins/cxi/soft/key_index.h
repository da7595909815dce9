// SPDX-License-Identifier: BSD-2-Clause
// KeyIndex: entries by a number, those of one number in the order of their insertion.
//
// Example:
//    struct Receive {
//      KeyHook<Receive> hooks[1];
//    };
//    inline Receive *oldest(const KeyIndex<Receive> &index, uint64_t tag) { return index.first(tag); }
//    inline Receive *behind(const KeyIndex<Receive> &index, const Receive &receive) {
//      return index.next(receive);  // of the same tag
//    }
//
// Entries are the caller's, and have a hook for each index that holds them (`slot`). An insertion
// allocates only when the table grows. The hash has a random factor, so no peer can choose numbers
// that share a bucket. Not for searches with ignored bits: those take an index of masked numbers.
#ifndef WEFT_PLUGINS_CXI_SOFT_KEY_INDEX_H
#define WEFT_PLUGINS_CXI_SOFT_KEY_INDEX_H

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft::cxi {

template <class E>
struct KeyHook {
  uint64_t key = 0;
  E *next = nullptr, *before = nullptr;  // of the same key
  E *last = nullptr, *other = nullptr;   // of the oldest: the newest, and the oldest of another key
};

template <class E>
class KeyIndex {
 public:
  KeyIndex(uint64_t seed, size_t slot) : factor_(mixed(seed) | 1), slot_(slot), buckets_(kFewest) {}

  E *first(uint64_t key) const {
    E *head = buckets_[bucket(key)];
    while (head != nullptr && hook(*head).key != key) head = hook(*head).other;
    return head;
  }
  E *next(const E &entry) const { return entry.hooks[slot_].next; }

  void insert(E &entry, uint64_t key) {
    if (E *const head = first(key)) {
      E *const last = hook(*head).last;
      hook(entry) = {.key = key, .before = last};
      hook(*last).next = &entry;
      hook(*head).last = &entry;
      return;
    }
    if (++keys_ > buckets_.size() / 2) grow();
    E *&bucket_head = buckets_[bucket(key)];
    hook(entry) = {.key = key, .last = &entry, .other = bucket_head};
    bucket_head = &entry;
  }

  void remove(E &entry) {
    const KeyHook<E> gone = hook(entry);
    if (gone.before != nullptr) {
      hook(*gone.before).next = gone.next;
      if (gone.next != nullptr) {
        hook(*gone.next).before = gone.before;
      } else {
        hook(*first(gone.key)).last = gone.before;
      }
      return;
    }
    E **at = &buckets_[bucket(gone.key)];
    while (*at != &entry) at = &hook(**at).other;
    if (gone.next == nullptr) {
      *at = gone.other;
      --keys_;
      return;
    }
    KeyHook<E> &heir = hook(*gone.next);
    heir.before = nullptr;
    heir.last = gone.last;
    heir.other = gone.other;
    *at = gone.next;
  }

  size_t keys() const { return keys_; }
  bool empty() const { return keys_ == 0; }

 private:
  static constexpr size_t kFewest = 16;

  KeyHook<E> &hook(E &entry) const { return entry.hooks[slot_]; }
  size_t bucket(uint64_t key) const { return size_t(mixed(key * factor_)) & (buckets_.size() - 1); }
  // The finalizer of MurmurHash3: each bit changes half of the others.
  static constexpr uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
  }
  void grow() {
    std::vector<E *> old(buckets_.size() * 2);
    old.swap(buckets_);
    for (E *head : old) {
      while (head != nullptr) {
        E *&bucket_head = buckets_[bucket(hook(*head).key)];
        E *const other = std::exchange(hook(*head).other, bucket_head);
        bucket_head = head;
        head = other;
      }
    }
  }

  const uint64_t factor_;
  const size_t slot_;
  std::vector<E *> buckets_;  // the oldest of each key
  size_t keys_ = 0;
};

}  // namespace weft::cxi

#endif
