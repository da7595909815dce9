// SPDX-License-Identifier: BSD-2-Clause
// Repsum: a sum of doubles that has the same bits in whatever order they are added
// (FI_CXI_REPSUM).
//
// Example (statements):
//    Repsum left = Repsum::of(1e100), right = Repsum::of(1.0);
//    left.add(right);
//    left.add(Repsum::of(-1e100));
//    const double sum = left.value();  // 1e100 and -1e100 cancel; 1.0 is too small beside them
//
// A double is cut at fixed places into pieces of 40 bits. Each piece is added to the others from
// the same place, as whole numbers, so the order does not matter. The four highest places that any
// summand had are kept: at least 120 bits below the highest bit. A place takes four million
// summands. Not for one double after the other where the order is known: that is FI_SUM.
#ifndef WEFT_PLUGINS_CXI_COLLECTIVE_REPSUM_H
#define WEFT_PLUGINS_CXI_COLLECTIVE_REPSUM_H

#include <cstdint>

namespace weft::cxi {

struct Repsum {
  static constexpr int kPlaces = 4, kPieceBits = 40;
  // What a sum of them is follows from which there were, and not from their order.
  static constexpr uint8_t kPlusInfinity = 1, kMinusInfinity = 2, kNan = 4;
  static constexpr uint8_t kMaxTop = 53;

  int64_t pieces[kPlaces] = {};  // the highest first
  uint8_t top = 0;               // the place of pieces[0]; place 0 has the lowest bit of a double
  uint8_t specials = 0;

  static Repsum of(double value);
  bool add(const Repsum &other);  // false: too many summands
  double value() const;           // to the nearest
  // Infinities of both signs have no sum.
  bool is_invalid() const {
    return (specials & (kPlusInfinity | kMinusInfinity)) == (kPlusInfinity | kMinusInfinity);
  }
};

}  // namespace weft::cxi

#endif
