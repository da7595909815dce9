// SPDX-License-Identifier: BSD-2-Clause
// Matcher: which posted receive an arriving message belongs to, and which saved message a new
// receive gets (fi_tagged.3, fi_msg.3: in order of posting, in order of arrival).
//
// Example:
//    void on_message(Matcher &matcher, Matcher::Arrived &message) {
//      Matcher::Posted *r = matcher.find_posted(message.source, message.tag);  // the oldest
//      if (r != nullptr) matcher.remove(*r);
//      else matcher.arrive(message);
//    }
//    void on_receive(Matcher &matcher, Matcher::Posted &receive) {
//      Matcher::Arrived *m = matcher.find_arrived(receive.source, receive.tag, receive.ignore);
//      if (m != nullptr) matcher.remove(*m);
//      else matcher.post(receive);
//    }
//
// Entries are the caller's (intrusive). In steady state a message needs no allocation: the indices
// grow with the largest number of distinct keys so far, to at most 32 bytes for each key in each
// index. Receives without ignore bits are found by hash, with and without a source, whatever their
// number; only receives with ignore bits are searched in order. Messages are found by hash for
// exact tags; a receive with ignore bits looks at them in order of arrival. A few entries are
// looked at one by one, which is faster than any hash. Untagged messages are a matcher in which
// every tag is 0. Not for memory, completions or locks: it knows none.
#ifndef WEFT_SDK_TRANSFERS_MATCH_H
#define WEFT_SDK_TRANSFERS_MATCH_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

namespace weft::sdk {

namespace match_detail {

template <class E>
struct Link {
  E *next = nullptr;
  E *prev = nullptr;
};

// Entries in order, oldest first.
template <class E, Link<E> E::*kLink>
class List {
 public:
  E *front() const { return front_; }
  static E *next(const E &entry) { return (entry.*kLink).next; }
  void push_back(E &entry) {
    entry.*kLink = {nullptr, back_};
    (back_ != nullptr ? (back_->*kLink).next : front_) = &entry;
    back_ = &entry;
  }
  void remove(E &entry) {
    const Link<E> link = entry.*kLink;
    (link.prev != nullptr ? (link.prev->*kLink).next : front_) = link.next;
    (link.next != nullptr ? (link.next->*kLink).prev : back_) = link.prev;
  }

 private:
  E *front_ = nullptr, *back_ = nullptr;
};

// Entries by tag, or by source and tag. Entries of one key stand in a row behind the oldest, and
// only the oldest is in a bucket, so a hundred thousand of one tag slow down no other tag. The
// oldest's `prev` is the newest of its row, whose `next` is null.
//
// The multipliers of the hash are random, so that no peer can choose tags that share a bucket. One
// multiplication would be enough for most multipliers, but with some it packs the tags into few
// buckets. Eight tags in a row have neighbouring buckets: programs that number their messages cause
// fewer cache misses.
template <class E, Link<E> E::*kRow, E *E::*kOther, bool kBySource>
class Index {
 public:
  Index() = default;
  ~Index() {
    if (buckets_ != few_) delete[] buckets_;
  }
  Index(const Index &) = delete;
  Index &operator=(const Index &) = delete;

  void set_seed(uint64_t tag_factor, uint64_t source_factor) {
    tag_factor_ = tag_factor | 1;
    source_factor_ = source_factor | 1;
  }

  // The oldest. `steps` counts the entries that were looked at.
  E *find(uint32_t source, uint64_t tag, uint64_t &steps) const {
    E *entry = buckets_[bucket(source, tag)];
    for (; entry != nullptr; entry = entry->*kOther) {
      ++steps;
      if (is(*entry, source, tag)) break;
    }
    return entry;
  }

  void insert(E &entry) {
    E **first = &buckets_[bucket(entry.source, entry.tag)];
    for (E *head = *first; head != nullptr; head = head->*kOther) {
      if (!is(*head, entry.source, entry.tag)) continue;
      E *newest = (head->*kRow).prev;
      entry.*kRow = {nullptr, newest};
      (newest->*kRow).next = &entry;
      (head->*kRow).prev = &entry;
      return;
    }
    entry.*kRow = {nullptr, &entry};
    entry.*kOther = *first;
    *first = &entry;
    if (++rows_ > size_t(1) << (bits_ - 1)) grow();
  }

  void remove(E &entry) {
    const Link<E> link = entry.*kRow;
    if ((link.prev->*kRow).next != nullptr) {  // an older one is before it
      (link.prev->*kRow).next = link.next;
      uint64_t steps = 0;
      E *after = link.next != nullptr ? link.next : find(entry.source, entry.tag, steps);
      (after->*kRow).prev = link.prev;
      return;
    }
    E **at = &buckets_[bucket(entry.source, entry.tag)];
    while (*at != &entry) at = &((*at)->*kOther);
    if (link.next == nullptr) {
      *at = entry.*kOther;
      --rows_;
      return;
    }
    (link.next->*kRow).prev = link.prev;
    link.next->*kOther = entry.*kOther;
    *at = link.next;
  }

  void clear() {
    std::fill_n(buckets_, size_t(1) << bits_, nullptr);
    rows_ = 0;
  }

 private:
  static constexpr unsigned kFewBits = 3;

  static bool is(const E &entry, uint32_t source, uint64_t tag) {
    return entry.tag == tag && (!kBySource || entry.source == source);
  }
  size_t bucket(uint32_t source, uint64_t tag) const {
    uint64_t hash = (tag >> 3) * tag_factor_;
    if (kBySource) hash += source * source_factor_;
    hash = (hash ^ hash >> 32) * source_factor_;
    return size_t(hash >> (64 - bits_) ^ (tag & 7));
  }
  // At half full: a second entry in a bucket costs a cache miss, which is worse than the memory.
  // Without memory the chains only get longer.
  void grow() {
    const unsigned bits = bits_ + 1;
    E **bigger = new (std::nothrow) E *[size_t(1) << bits]();
    if (bigger == nullptr) return;
    E **old = buckets_;
    const size_t count = size_t(1) << bits_;
    buckets_ = bigger;
    bits_ = bits;
    for (size_t i = 0; i < count; ++i) {
      for (E *head = old[i]; head != nullptr;) {
        E *next = head->*kOther;
        E *&first = buckets_[bucket(head->source, head->tag)];
        head->*kOther = first;
        first = head;
        head = next;
      }
    }
    if (old != few_) delete[] old;
  }

  E **buckets_ = few_;
  unsigned bits_ = kFewBits;
  size_t rows_ = 0;  // distinct keys
  uint64_t tag_factor_ = 1, source_factor_ = 1;
  E *few_[size_t(1) << kFewBits] = {};
};

}  // namespace match_detail

class Matcher {
 public:
  static constexpr uint32_t kAnySource = UINT32_MAX;  // a receive from any peer
  static constexpr uint32_t kUnknownSource =
      UINT32_MAX - 1;  // a message: its sender has no address
  // Sources from here on are senders without an address, which a protocol can number to tell them
  // apart until they get one (rename).
  static constexpr uint32_t kFirstUnnamed = UINT32_C(1) << 31;

  // `tag`, `ignore` and `source` must not be changed while `queued`.
  struct Posted {
    uint64_t tag = 0, ignore = 0;
    uint32_t source = kAnySource;
    bool queued = false;  // in a matcher

   private:
    friend class Matcher;
    uint64_t number_ = 0;  // order of posting
    match_detail::Link<Posted> order_, row_;
    Posted *other_ = nullptr;
  };
  struct Arrived {
    uint64_t tag = 0;
    uint32_t source = kUnknownSource;
    bool queued = false;

   private:
    friend class Matcher;
    match_detail::Link<Arrived> order_, source_row_, tag_row_;
    Arrived *source_other_ = nullptr, *tag_other_ = nullptr;
  };

  Matcher();
  ~Matcher() = default;  // entries are left alone
  Matcher(const Matcher &) = delete;
  Matcher &operator=(const Matcher &) = delete;

  void post(Posted &entry) {
    entry.queued = true;
    entry.number_ = next_number_++;
    posted_list_.push_back(entry);
    ++posted_;
    if (posted_indexed_) {
      index(entry);
    } else if (posted_ > kFew) {
      index_posted();
    }
  }

  Posted *find_posted(uint32_t source, uint64_t tag) const {
    if (!posted_indexed_) {
      Posted *p = posted_list_.front();
      for (; p != nullptr; p = posted_list_.next(*p)) {
        ++steps_;
        if (accepts(*p, source, tag)) break;
      }
      return p;
    }
    Posted *best = nullptr;
    if (from_one_ != 0) best = exact_.find(source, tag, steps_);
    if (from_any_ != 0) {
      Posted *p = exact_.find(kAnySource, tag, steps_);
      if (p != nullptr && (best == nullptr || p->number_ < best->number_)) best = p;
    }
    for (Posted *p = wild_.front(); p != nullptr; p = wild_.next(*p)) {
      if (best != nullptr && best->number_ < p->number_) break;
      ++steps_;
      if (accepts(*p, source, tag)) return p;
    }
    return best;
  }

  void remove(Posted &entry) {
    entry.queued = false;
    posted_list_.remove(entry);
    --posted_;
    if (!posted_indexed_) return;
    if (entry.ignore != 0) {
      wild_.remove(entry);
    } else {
      exact_.remove(entry);
      --(entry.source == kAnySource ? from_any_ : from_one_);
    }
    if (posted_ == 0) posted_indexed_ = false;
  }

  // The oldest for which `wanted(entry)` holds; null: none. Linear.
  template <class F>
  Posted *search_posted(F wanted) const {
    Posted *p = posted_list_.front();
    while (p != nullptr && !wanted(*p)) p = posted_list_.next(*p);
    return p;
  }

  void arrive(Arrived &entry) {
    entry.queued = true;
    arrived_list_.push_back(entry);
    ++arrived_;
    if (arrived_indexed_) {
      index(entry);
    } else if (arrived_ > kFew) {
      index_arrived();
    }
  }

  // `source` may be kAnySource.
  Arrived *find_arrived(uint32_t source, uint64_t tag, uint64_t ignore) const {
    if (arrived_ == 0) return nullptr;
    if (ignore == 0 && arrived_indexed_)
      return source == kAnySource ? by_tag_.find(source, tag, steps_)
                                  : by_source_.find(source, tag, steps_);
    Arrived *m = arrived_list_.front();
    for (; m != nullptr; m = arrived_list_.next(*m)) {
      ++steps_;
      if (((m->tag ^ tag) & ~ignore) == 0 && (source == kAnySource || source == m->source)) break;
    }
    return m;
  }

  void remove(Arrived &entry) {
    entry.queued = false;
    arrived_list_.remove(entry);
    --arrived_;
    if (!arrived_indexed_) return;
    by_source_.remove(entry);
    by_tag_.remove(entry);
    if (arrived_ == 0) arrived_indexed_ = false;
  }

  // Every message of one source (kAnySource: of all), oldest first; `visit` may remove the entry
  // that it is given, and no other. Linear.
  template <class F>
  void visit_arrived(uint32_t source, F visit) {
    for (Arrived *m = arrived_list_.front(); m != nullptr;) {
      Arrived *next = arrived_list_.next(*m);
      if (source == kAnySource || m->source == source) visit(*m);
      m = next;
    }
  }

  // All messages of `from` for which `wanted(entry)` holds become messages of `to`; their places in
  // the order stay. Linear.
  template <class F>
  void rename(uint32_t from, uint32_t to, F wanted) {
    bool any = false;
    for (Arrived *m = arrived_list_.front(); m != nullptr; m = arrived_list_.next(*m)) {
      if (m->source != from || !wanted(*m)) continue;
      m->source = to;
      any = true;
    }
    if (any && arrived_indexed_) index_by_source();
  }
  void rename(uint32_t from, uint32_t to) {
    rename(from, to, [](const Arrived &) { return true; });
  }

  // Whether the receive takes a message of that source and tag.
  static bool accepts(const Posted &p, uint32_t source, uint64_t tag) {
    return ((p.tag ^ tag) & ~p.ignore) == 0 && (p.source == kAnySource || p.source == source);
  }
  size_t posted() const { return posted_; }
  size_t arrived() const { return arrived_; }
  // Entries that the find functions looked at so far: what long queues cost.
  uint64_t steps() const { return steps_; }

 private:
  // Up to this many entries are looked at in order, and are in no index. Once there are more, all
  // are in the indices until none is left. That costs at most this many insertions more than if all
  // always were.
  static constexpr size_t kFew = 4;

  void index(Posted &entry) {
    if (entry.ignore != 0) return wild_.push_back(entry);
    exact_.insert(entry);
    ++(entry.source == kAnySource ? from_any_ : from_one_);
  }
  void index(Arrived &entry) {
    by_source_.insert(entry);
    by_tag_.insert(entry);
  }
  void index_posted();
  void index_arrived();
  void index_by_source();

  match_detail::List<Posted, &Posted::order_> posted_list_;
  match_detail::List<Arrived, &Arrived::order_> arrived_list_;
  size_t posted_ = 0, arrived_ = 0;
  bool posted_indexed_ = false, arrived_indexed_ = false;
  uint64_t next_number_ = 0;
  mutable uint64_t steps_ = 0;
  size_t from_one_ = 0, from_any_ = 0;              // entries of exact_
  match_detail::List<Posted, &Posted::row_> wild_;  // with ignore bits
  match_detail::Index<Posted, &Posted::row_, &Posted::other_, true> exact_;
  match_detail::Index<Arrived, &Arrived::source_row_, &Arrived::source_other_, true> by_source_;
  match_detail::Index<Arrived, &Arrived::tag_row_, &Arrived::tag_other_, false> by_tag_;
};

}  // namespace weft::sdk

#endif
