// SPDX-License-Identifier: BSD-2-Clause
// PlaceOwner: whether a peer is a context of a scalable endpoint, as it says (scalable.h). Any process
// of a host can say so of another's endpoint, and would get its name. So the process that listens at
// the endpoint's own address is asked by a connection of ours, and its answer says how many contexts
// the endpoint has. Their ports are then its own.
//
// Example:
//    enum class Answer { kNamed, kNameless, kLater };
//    // A request of a peer that says that it is context `place` of the endpoint of `owner`.
//    inline Answer answer(PlaceOwner &owner, unsigned place, uint64_t now, bool connected) {
//      switch (owner.judge(place, now, connected)) {
//        case PlaceOwner::Claim::kTrue:
//          return Answer::kNamed;
//        case PlaceOwner::Claim::kFalse:
//          return Answer::kNameless;  // a peer like any other that is not in the address vector
//        case PlaceOwner::Claim::kAsk:
//          break;  // here: connect to the endpoint; from its answer: owner.told(last place)
//        case PlaceOwner::Claim::kWait:
//          break;
//      }
//      return Answer::kLater;  // the peer asks again
//    }
//
// Only for endpoints in the address vector: nobody else has a name to take.
#ifndef WEFT_SDK_PEER_PLACE_H
#define WEFT_SDK_PEER_PLACE_H

#include <cstdint>

namespace weft::sdk {

class PlaceOwner {
 public:
  enum class Claim : uint8_t { kTrue, kFalse, kAsk, kWait };
  // An owner that does not answer keeps its contexts waiting for so long; then they have no name.
  static constexpr uint64_t kPatienceNs = 3'000'000'000;
  // Its answer counts for so long, and while there is a connection with it. Also the pause between
  // two questions.
  static constexpr uint64_t kLastsNs = 10'000'000'000;

  // `connected`: with the owner.
  Claim judge(unsigned place, uint64_t now, bool connected);
  // A question of judge() has no answer yet: if its way was lost, it is asked again.
  bool waits(uint64_t now) const { return !knows_ && at_ != 0 && now - at_ < kPatienceNs; }
  // The owner has answered: its contexts have the places up to `last`.
  void told(unsigned last, uint64_t now);

 private:
  bool knows_ = false;
  uint8_t last_ = 0;
  uint64_t at_ = 0;  // of the answer, or of the question; 0: not asked
};

}  // namespace weft::sdk

#endif
