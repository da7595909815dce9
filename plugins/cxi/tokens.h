// SPDX-License-Identifier: BSD-2-Clause
// Tokens: what commands carry in their user_ptr. An event brings it back, and so says whose it is.
//
// Example:
//    struct Question {
//      uint64_t token = 0;
//    };
//    inline void ask(Tokens<Question> &tokens, Question &question, Transfer &put) {
//      put.user_ptr = question.token = tokens.add(question);
//    }
//    inline void on_answer(Tokens<Question> &tokens, const Event &event) {
//      if (Question *const question = tokens.find(event.user_ptr)) tokens.remove(question->token);
//    }
//
// A token is the number of a place, and how often the place was used: one that is over, or that
// somebody has made up, finds nothing or another living object, and never other memory. Not for
// events of the NIC's own Gets: those carry what a peer says (Event::rendezvous).
#ifndef WEFT_PLUGINS_CXI_TOKENS_H
#define WEFT_PLUGINS_CXI_TOKENS_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::cxi {

template <class T>
class Tokens {
 public:
  static constexpr unsigned kBits = 60;  // of a token, which is never 0

  uint64_t add(T &object) {
    if (free_.empty()) {
      free_.push_back(uint32_t(places_.size()));
      places_.emplace_back();
    }
    const uint32_t at = free_.back();
    free_.pop_back();
    Place &place = places_[at];
    place.uses = place.uses == kMaxUses ? 1 : place.uses + 1;
    place.object = &object;
    return token_of(place, at);
  }
  // Null: it is nobody's.
  T *find(uint64_t token) const {
    const size_t at = token & kMaxAt;
    if (at >= places_.size() || token != token_of(places_[at], at)) return nullptr;
    return places_[at].object;
  }
  void remove(uint64_t token) {
    if (find(token) == nullptr) return;
    const size_t at = token & kMaxAt;
    places_[at].object = nullptr;
    free_.push_back(uint32_t(at));
  }

 private:
  static constexpr unsigned kAtBits = 30;
  static constexpr uint64_t kMaxAt = (uint64_t{1} << kAtBits) - 1;
  static constexpr uint64_t kMaxUses = (uint64_t{1} << (kBits - kAtBits)) - 1;
  struct Place {
    T *object = nullptr;
    uint64_t uses = 0;
  };
  static uint64_t token_of(const Place &place, size_t at) { return place.uses << kAtBits | at; }

  std::vector<Place> places_;
  std::vector<uint32_t> free_;
};

}  // namespace weft::cxi

#endif
