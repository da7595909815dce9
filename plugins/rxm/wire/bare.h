// SPDX-License-Identifier: BSD-2-Clause
// Bare messages: between weft peers a message of one packet may have no rxm header. What its
// receiver needs beside the payload is in the 32 bits of the carrier's remote data: whether it is
// tagged, and the tag (docs/rxm-extensions.md, level 3).
//
// Example:
//    // The remote data for a tagged message; nullopt: it must have a header.
//    inline std::optional<uint32_t> data_for(BareTags &sent, uint64_t tag) {
//      if (const auto data = sent.data_of(tag)) return data;
//      sent.learn(tag);  // once the message with the header is on its way
//      return std::nullopt;
//    }
//    // What the receiver does with the same messages, in the same order.
//    inline std::optional<uint64_t> tag_in(BareTags &heard, uint32_t data) {
//      return heard.tag_of(data);  // after heard.learn(tag) for each tag in a header
//    }
//
// A tag has 64 bits. Applications use few values of the upper ones, so both ends remember those of
// earlier messages. Not for messages with remote data of the application: these have a header.
#ifndef WEFT_PLUGINS_RXM_WIRE_BARE_H
#define WEFT_PLUGINS_RXM_WIRE_BARE_H

#include <cstddef>
#include <cstdint>
#include <optional>

namespace weft::rxm {

inline constexpr uint32_t kBareUntagged = 0;
inline constexpr size_t kBareDataSize = 4;  // bytes of remote data that the carrier must have

// The upper parts of the tags of one direction of a connection. Both ends have one. They agree
// because the carrier keeps the order of messages.
class BareTags {
 public:
  // The remote data of a bare message with this tag; nullopt: the peer does not know its upper
  // part.
  std::optional<uint32_t> data_of(uint64_t tag) const {
    const uint64_t upper = tag >> kLowerBits;
    for (uint32_t place = 0; place < kPlaces; ++place)
      if (uppers_[place] == upper && upper != kNone)
        return kTagged | place << kLowerBits | (uint32_t(tag) & kLowerMask);
    return std::nullopt;
  }
  // A message with a header had this tag.
  void learn(uint64_t tag) {
    const uint64_t upper = tag >> kLowerBits;
    if (upper >= kNone || data_of(tag)) return;
    uppers_[next_] = uint32_t(upper);
    next_ = (next_ + 1) % kPlaces;
  }
  // The tag of a bare message. nullopt: there is none with this remote data.
  std::optional<uint64_t> tag_of(uint32_t data) const {
    const uint32_t upper = uppers_[data >> kLowerBits & (kPlaces - 1)];
    if ((data & kTagged) == 0 || upper == kNone) return std::nullopt;
    return uint64_t(upper) << kLowerBits | (data & kLowerMask);
  }

 private:
  // The remote data: bit 31 tagged, bits 30 and 29 the place of the upper part, 28 to 0 the lower.
  static constexpr unsigned kLowerBits = 29;
  static constexpr uint32_t kPlaces = 4;
  static constexpr uint32_t kTagged = UINT32_C(1) << 31;
  static constexpr uint32_t kLowerMask = (UINT32_C(1) << kLowerBits) - 1;
  static constexpr uint32_t kNone = UINT32_MAX;  // and what is above is not remembered

  uint32_t uppers_[kPlaces] = {kNone, kNone, kNone, kNone};
  uint32_t next_ = 0;  // the place of the next one
};

}  // namespace weft::rxm

#endif
