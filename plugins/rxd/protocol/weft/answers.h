// SPDX-License-Identifier: BSD-2-Clause
// Answers: what we owe the peer: done, the results of atomics, the data that it reads; and how many
// of its remote accesses have no answer yet.
//
// Example:
//    // A message of the peer that it wants to hear of is in its place. False: there is no memory,
//    // and the conversation is over.
//    inline bool tell(Answers &answers, uint32_t id) { return answers.done(id, 0, /*counts=*/false); }
//    // The next packet.
//    inline void build(Answers &answers, wire::Writer &w) { answers.add(w); }
//
// Not for what an access does (accesses.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_ANSWERS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_ANSWERS_H

#include <cstdint>

#include "plugins/rxd/protocol/weft/link.h"

namespace weft::rxd {

class Answers {
 public:
  explicit Answers(Link &link) : link_(link) {}
  Answers(const Answers &) = delete;
  Answers &operator=(const Answers &) = delete;

  bool has_short() const { return short_.first != nullptr; }  // done, results
  bool has_reads() const { return reads_.first != nullptr; }  // data that have not been sent
  bool empty() const { return !has_short() && !has_reads(); }

  // ---- accesses of the peer without an answer ----
  bool owes() const { return owed_ != 0; }
  bool is_full() const { return owed_ >= kMaxOwed; }
  void owe() { ++owed_; }     // for an access of which more is to come
  void settle() { --owed_; }  // its answer is made next

  // ---- new answers; false, or null: there is no memory, and the conversation is over ----
  // `counts`: it is of an access.
  bool done(uint32_t id, uint16_t status, bool counts = true);
  Answer *add(Answer::Kind kind, uint32_t id, bool counts = true);

  // ---- output ----
  // Writes done and results, as many as fit.
  void add(wire::Writer &w);
  // Reads whose data the peer does not get need none. Call it before add_data().
  void drop_failed();
  // Writes the frame of the next data, at most `most` bytes. True: they follow the frames.
  bool add_data(OutPacket &p, wire::Writer &w, uint64_t most);
  // The packet carries an error in place of the data of an answer; the peer sees it unless it
  // received the data before.
  void refuse(OutPacket &p, uint16_t status);
  // The packet is over: it has arrived, or the conversation has ended.
  void release(const OutPacket &p) {
    // An answer that was sent whole is on no list.
    if (p.answer != nullptr && --p.answer->packets == 0 && p.answer->sent == p.answer->length)
      free(*p.answer);
  }

  // ---- the end ----
  void end_copies();
  void clear();

 private:
  static constexpr uint32_t kMaxOwed = 512;  // operations; a correct peer stays far below
  struct List {
    Answer *first = nullptr, *last = nullptr;
    void append(Answer &a) {
      a.next = nullptr;
      (last != nullptr ? last->next : first) = &a;
      last = &a;
    }
    void pop() {
      first = first->next;
      if (first == nullptr) last = nullptr;
    }
  };
  void free(Answer &a);

  Link &link_;
  List short_, reads_;
  uint32_t owed_ = 0;
};

}  // namespace weft::rxd

#endif
