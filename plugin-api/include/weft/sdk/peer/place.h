// SPDX-License-Identifier: BSD-2-Clause
// PlaceOwners: whether peers are contexts of scalable endpoints, as they say (scalable.h). Any
// process of a host can say so of another's endpoint, and would get its name. So the process that
// listens at the endpoint's own address is asked by a connection of ours, and its answer says how
// many contexts the endpoint has. Their ports are then its own.
//
// Example:
//    enum class Answer { kNamed, kNameless, kLater };
//    // A request of a peer at `from` that says that it is a context.
//    inline Answer answer(PlaceOwners &owners, const Address &from, unsigned place, uint64_t now) {
//      switch (owners.judge(from, place, now)) {
//        case PlaceOwner::Claim::kTrue:
//          return Answer::kNamed;
//        case PlaceOwner::Claim::kFalse:
//          return Answer::kNameless;  // a peer like any other that is not in the address vector
//        case PlaceOwner::Claim::kAsk:
//        case PlaceOwner::Claim::kWait:  // Peers::ask_for_places() was called
//          break;
//      }
//      return Answer::kLater;  // the peer asks again
//    }
//    // The endpoint `entry` of the address vector has answered a request of ours.
//    inline void on_answer(PlaceOwners &owners, uint32_t entry, const Address &at, unsigned last,
//                          uint64_t now) {
//      owners.told(entry, at, last, now);
//    }
//
// Only for endpoints in the address vector: nobody else has a name to take.
#ifndef WEFT_SDK_PEER_PLACE_H
#define WEFT_SDK_PEER_PLACE_H

#include <weft/sdk/addresses/address.h>

#include <cstdint>
#include <unordered_map>

namespace weft::sdk {

// One such endpoint.
class PlaceOwner {
 public:
  enum class Claim : uint8_t { kTrue, kFalse, kAsk, kWait };
  // An owner that does not answer keeps its contexts waiting for so long; then they have no name.
  // The time between two claims counts for kLongestGapNs at most: on a busy machine neither side
  // may have run meanwhile.
  static constexpr uint64_t kPatienceNs = 1'000'000'000;
  static constexpr uint64_t kLongestGapNs = 100'000'000;
  // Its answer counts for so long, and while there is a connection with it. Also the pause between
  // two questions.
  static constexpr uint64_t kLastsNs = 10'000'000'000;

  // `connected`: with the owner.
  Claim judge(unsigned place, uint64_t now, bool connected);
  // A question of judge() has no answer yet: if its way was lost, it is asked again.
  bool waits(uint64_t now) const {
    return !knows_ && waited_ < kPatienceNs && at_ != 0 && now - at_ < kLastsNs;
  }
  // The owner has answered: its contexts have the places up to `last`.
  void told(unsigned last, uint64_t now);
  // The answer may be another process's: it does not count any more.
  void forget() { *this = {}; }

 private:
  bool knows_ = false;
  uint8_t last_ = 0;
  uint64_t at_ = 0;  // of the answer, or of the question; 0: not asked
  uint64_t waited_ = 0, claimed_at_ = 0;
};

// Those of an endpoint's address vector.
class PlaceOwners {
 public:
  using Claim = PlaceOwner::Claim;
  // What an endpoint knows of its peers, and does with them.
  class Peers {
   public:
    // The address vector's index of the context that has this address and place; Av::kNone: none.
    virtual uint32_t index_of_context(const Address &address, unsigned place) = 0;
    virtual bool is_connected(uint32_t entry) = 0;
    // Connects to the endpoint `entry`, whose first context is at `first`: from its answer told().
    // Nothing while a connection waits for an answer.
    virtual void ask_for_places(uint32_t entry, const Address &first) = 0;
    // A peer at `address` that says that it has this place is the context `index`.
    virtual void name_context(const Address &address, unsigned place, uint32_t index) = 0;
    // It is not, though an earlier process may have said so: its connection ends.
    virtual void drop_context(const Address &, unsigned /*place*/) {}

   protected:
    ~Peers() = default;
  };

  explicit PlaceOwners(Peers &peers) : peers_(peers) {}

  // A peer at `from` says that it has this place. 0 is none, and kFalse.
  Claim judge(const Address &from, unsigned place, uint64_t now);
  // The process at `first` has answered: the contexts of `entry` have the places up to `last`.
  // Names those that wait for it, and drops those beyond. Nothing, where `first` is not the
  // endpoint's own address: a context says nothing of the others.
  void told(uint32_t entry, const Address &first, unsigned last, uint64_t now);
  // A request of the process at `first` has become the connection with `entry`. It is asked, if
  // anybody has said that it is a context: another process may have answered before, and a question
  // that had no answer yet may have ended with our own request.
  void begun(uint32_t entry, const Address &first, uint64_t now);
  // The connection with the endpoint has ended.
  void ended(uint32_t entry);
  // A question has no answer yet, and should be repeated if its connection failed.
  bool waits(uint32_t entry, uint64_t now) const;
  // The entry is gone.
  void forget(uint32_t entry) { owners_.erase(entry); }

 private:
  bool is_first(uint32_t entry, const Address &first) const;

  Peers &peers_;
  std::unordered_map<uint32_t, PlaceOwner> owners_;  // by entry, of those that were asked
};

}  // namespace weft::sdk

#endif
