// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/collective/repsum.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <utility>

namespace weft::cxi {
namespace {

constexpr int kPiece = Repsum::kPieceBits;
constexpr int kLowestBit = -1074;  // of the smallest double, as a power of two
constexpr int64_t kMostOfAPlace = int64_t{1} << 62;
__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

int width(UnsignedWide value) {
  const auto high = uint64_t(value >> 64);
  return high != 0 ? 64 + int(std::bit_width(high)) : int(std::bit_width(uint64_t(value)));
}

// high * 2^80 + low, times 2^exponent. The bits that a double has no place for are one, which says
// whether any of them is set.
double rounded(UnsignedWide high, UnsignedWide low, int exponent) {
  constexpr int kKept = 62;
  const int drop = high != 0 ? width(high) + 2 * kPiece - kKept : std::max(width(low) - kKept, 0);
  UnsignedWide kept, dropped;
  if (drop >= 2 * kPiece) {
    kept = high >> (drop - 2 * kPiece);
    dropped = low | (high ^ kept << (drop - 2 * kPiece));
  } else {
    kept = high << (2 * kPiece - drop) | low >> drop;
    dropped = low & ((UnsignedWide{1} << drop) - 1);
  }
  // Volatile, so that it becomes a double here, under the rounding of here.
  const volatile uint64_t bits = uint64_t(kept) << 1 | uint64_t{dropped != 0};
  return std::ldexp(double(bits), exponent + drop - 1);
}

bool is_near_the_end(int64_t piece) {
  return piece >= kMostOfAPlace || piece <= -kMostOfAPlace;
}

}  // namespace

Repsum Repsum::of(double value) {
  Repsum sum;
  if (std::isnan(value)) {
    sum.specials = kNan;
  } else if (std::isinf(value)) {
    sum.specials = value > 0 ? kPlusInfinity : kMinusInfinity;
  } else if (value != 0) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const unsigned biased = unsigned(bits >> 52 & 0x7ff);
    const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
    const unsigned lowest = biased == 0 ? 0 : biased - 1;  // the place of the mantissa's last bit
    const UnsignedWide mantissa =
        UnsignedWide{biased == 0 ? fraction : fraction | uint64_t{1} << 52} << lowest % kPiece;
    const unsigned highest = unsigned(width(mantissa) - 1) / kPiece;
    sum.top = uint8_t(lowest / kPiece + highest);
    for (unsigned i = 0; i <= highest; ++i) {
      const auto piece =
          int64_t(uint64_t(mantissa >> (highest - i) * kPiece) & ((uint64_t{1} << kPiece) - 1));
      sum.pieces[i] = value < 0 ? -piece : piece;
    }
  }
  return sum;
}

bool Repsum::add(const Repsum &other) {
  specials |= other.specials;
  const Repsum *low = &other, *high = this;
  if (other.top > top) std::swap(low, high);
  const int apart = high->top - low->top;
  Repsum sum = *high;
  sum.specials = specials;
  bool fits = true;
  for (int i = apart; i < kPlaces; ++i) {
    const int64_t piece = low->pieces[i - apart];
    if (is_near_the_end(sum.pieces[i]) || is_near_the_end(piece))
      fits = false;
    else
      sum.pieces[i] += piece;
  }
  *this = sum;
  return fits;
}

double Repsum::value() const {
  if (specials & kNan || is_invalid()) return std::numeric_limits<double>::quiet_NaN();
  if (specials & kPlusInfinity) return std::numeric_limits<double>::infinity();
  if (specials & kMinusInfinity) return -std::numeric_limits<double>::infinity();
  // Two halves of two pieces each; then the carry of the lower one, which is not negative after it.
  Wide high = Wide{pieces[0]} * (Wide{1} << kPiece) + pieces[1];
  const Wide low = Wide{pieces[2]} * (Wide{1} << kPiece) + pieces[3];
  constexpr Wide kHalf = Wide{1} << (2 * kPiece);
  Wide rest = low % kHalf;
  high += low / kHalf;
  if (rest < 0) {
    rest += kHalf;
    high -= 1;
  }
  const bool negative = high < 0;
  if (negative) {
    high = -high;
    if (rest != 0) {
      rest = kHalf - rest;
      high -= 1;
    }
  }
  const int mode = std::fegetround();
  std::fesetround(FE_TONEAREST);
  const volatile double size =
      rounded(UnsignedWide(high), UnsignedWide(rest), (top - 3) * kPiece + kLowestBit);
  std::fesetround(mode);
  return negative ? -size : size;
}

}  // namespace weft::cxi
