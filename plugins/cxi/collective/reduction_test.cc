// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/collective/reduction.h"

#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cxi_ext.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "plugins/cxi/collective/group_packet.h"
#include "plugins/cxi/collective/repsum.h"

namespace weft::cxi {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMost = std::numeric_limits<double>::max();

uint64_t bits(double value) {
  return std::bit_cast<uint64_t>(value);
}
const double kSignalling = std::bit_cast<double>(UINT64_C(0x7ff0000000000001));

template <class T>
Partial part(int op, int datatype, const std::vector<T> &operand) {
  return Partial::of(*reduction_of(op, datatype), operand.data(), operand.size() * sizeof(T));
}
template <class T>
std::vector<T> result(Partial partial, size_t count = 1) {
  std::vector<T> values(count);
  partial.write(values.data());
  return values;
}
Partial doubles(int op, double a, double b) {
  Partial partial = part<double>(op, FI_DOUBLE, {a});
  partial.add(part<double>(op, FI_DOUBLE, {b}));
  return partial;
}
double of(int op, double a, double b) {
  return result<double>(doubles(op, a, b))[0];
}

TEST(Reduction, OfWhichThereAre) {
  int known = 0;
  for (int op = 0; op < FI_CXI_OP_LAST + 3; ++op)
    for (int datatype = 0; datatype < 20; ++datatype)
      known += reduction_of(op, datatype).has_value();
  EXPECT_EQ(known, 3 * 4 + 4 * 2 + 1);
  EXPECT_FALSE(reduction_of(FI_BOR, FI_INT8));
  EXPECT_FALSE(reduction_of(FI_SUM, FI_UINT64));
  EXPECT_FALSE(reduction_of(FI_CXI_REPSUM, FI_INT64));
  EXPECT_EQ(max_elements(Opcode::kOr, FI_UINT8), 32u);
  EXPECT_EQ(max_elements(Opcode::kOr, FI_UINT32), 8u);
  EXPECT_EQ(max_elements(Opcode::kMinMaxLoc, FI_DOUBLE), 1u);
  EXPECT_EQ(max_elements(Opcode::kRepsum, FI_DOUBLE), 1u);
}

TEST(Reduction, OfBits) {
  Partial partial = part<uint16_t>(FI_BOR, FI_UINT16, {1, 2, 0xff00});
  partial.add(part<uint16_t>(FI_BOR, FI_UINT16, {8, 2, 0x00f0}));
  EXPECT_EQ(result<uint16_t>(partial, 3), (std::vector<uint16_t>{9, 2, 0xfff0}));
  partial = part<uint8_t>(FI_BAND, FI_UINT8, {7, 12});
  partial.add(part<uint8_t>(FI_BAND, FI_UINT8, {13, 6}));
  EXPECT_EQ(result<uint8_t>(partial, 2), (std::vector<uint8_t>{5, 4}));
  partial = part<uint64_t>(FI_BXOR, FI_UINT64, {1, 2, 3, 4});
  partial.add(part<uint64_t>(FI_BXOR, FI_UINT64, {1, 1, 1, 1}));
  EXPECT_EQ(result<uint64_t>(partial, 4), (std::vector<uint64_t>{0, 3, 2, 5}));
}

TEST(Reduction, OfIntegers) {
  Partial partial = part<int64_t>(FI_SUM, FI_INT64, {INT64_MAX, -5});
  partial.add(part<int64_t>(FI_SUM, FI_INT64, {0, -6}));
  EXPECT_EQ(partial.failure, Failure::kNone);
  partial.add(part<int64_t>(FI_SUM, FI_INT64, {1, 0}));
  EXPECT_EQ(partial.failure, Failure::kIntOverflow);
  EXPECT_EQ(result<int64_t>(partial, 2), (std::vector<int64_t>{INT64_MIN, -11}));
  partial = part<int64_t>(FI_MIN, FI_INT64, {3, -1});
  partial.add(part<int64_t>(FI_MIN, FI_INT64, {2, 4}));
  EXPECT_EQ(result<int64_t>(partial, 2), (std::vector<int64_t>{2, -1}));
  partial = part<int64_t>(FI_MAX, FI_INT64, {3, -1});
  partial.add(part<int64_t>(FI_MAX, FI_INT64, {2, 4}));
  EXPECT_EQ(result<int64_t>(partial, 2), (std::vector<int64_t>{3, 4}));
}

TEST(Reduction, ANanIsNoOperandOfMinAndMax) {
  EXPECT_EQ(of(FI_MIN, 1, 2), 1);
  EXPECT_EQ(of(FI_MAX, 1, 2), 2);
  for (const int op : {FI_MIN, FI_MAX}) {
    EXPECT_EQ(of(op, kNan, 2), 2);
    EXPECT_EQ(of(op, 2, kNan), 2);
    EXPECT_TRUE(std::isnan(of(op, kNan, kNan)));
    EXPECT_EQ(doubles(op, kSignalling, 2).failure, Failure::kFloatInvalid);
    EXPECT_EQ(doubles(op, kNan, 2).failure, Failure::kNone);
  }
  EXPECT_EQ(bits(of(FI_MIN, 0.0, -0.0)), bits(-0.0));
  EXPECT_EQ(bits(of(FI_MIN, -0.0, 0.0)), bits(-0.0));
  EXPECT_EQ(bits(of(FI_MAX, 0.0, -0.0)), bits(0.0));
  EXPECT_EQ(of(FI_MIN, kNan, kInfinity), kInfinity);
}

TEST(Reduction, ASumOfDoublesFails) {
  EXPECT_EQ(of(FI_SUM, 1.5, 2), 3.5);
  EXPECT_EQ(doubles(FI_SUM, kMost, kMost).failure, Failure::kFloatOverflow);
  EXPECT_EQ(doubles(FI_SUM, kInfinity, 1).failure, Failure::kNone) << "it was infinite before";
  EXPECT_EQ(doubles(FI_SUM, kInfinity, -kInfinity).failure, Failure::kFloatInvalid);
  EXPECT_EQ(doubles(FI_SUM, kSignalling, 1).failure, Failure::kFloatInvalid);
  EXPECT_EQ(doubles(FI_SUM, kNan, 1).failure, Failure::kNone);
  EXPECT_TRUE(std::isnan(of(FI_SUM, kNan, 1)));
}

TEST(Reduction, ASumRoundsAsItsCallerDoes) {
  const double tiny = std::ldexp(1, -60);
  const struct {
    int mode;
    double sum, negative;
  } cases[] = {{FE_TONEAREST, 1, -1},
               {FE_UPWARD, std::nextafter(1, 2), -std::nextafter(1, 0)},
               {FE_DOWNWARD, 1, -1},
               {FE_TOWARDZERO, 1, -std::nextafter(1, 0)}};
  for (const auto &c : cases) {
    std::fesetround(c.mode);
    const Opcode opcode = *reduction_of(FI_SUM, FI_DOUBLE);
    std::fesetround(FE_TONEAREST);
    double one = 1, small = tiny;
    Partial sum = Partial::of(opcode, &one, 8);
    sum.add(Partial::of(opcode, &small, 8));  // in a thread that rounds otherwise
    EXPECT_EQ(result<double>(sum)[0], c.sum) << c.mode;
    one = -1;
    Partial negative = Partial::of(opcode, &one, 8);
    negative.add(Partial::of(opcode, &small, 8));
    EXPECT_EQ(result<double>(negative)[0], c.negative) << c.mode;
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  }
  // Members that round differently disagree.
  Partial nearest = part<double>(FI_SUM, FI_DOUBLE, {1});
  Partial other = nearest;
  other.opcode = Opcode(uint8_t(nearest.opcode) + 1);
  nearest.add(other);
  EXPECT_EQ(nearest.failure, Failure::kMismatch);
}

TEST(Reduction, SubnormalNumbersMayBeFlushed) {
  const Opcode flushes = Opcode(uint8_t(Opcode::kSum) + 4);
  const double least = std::numeric_limits<double>::min();
  const double a = least * 1.5, b = -least;
  Partial sum = Partial::of(flushes, &a, 8);
  sum.add(Partial::of(flushes, &b, 8));
  EXPECT_EQ(result<double>(sum)[0], 0);
  sum = Partial::of(Opcode::kSum, &a, 8);
  sum.add(Partial::of(Opcode::kSum, &b, 8));
  EXPECT_EQ(result<double>(sum)[0], least / 2);
}

TEST(Reduction, TheLeastAndTheGreatestHaveIndices) {
  const auto member = [](double min, uint64_t at, double max, uint64_t max_at) {
    const cxip_coll_fltminmax own{min, at, max, max_at};
    return Partial::of(Opcode::kMinMaxLoc, &own, sizeof own);
  };
  std::vector<Partial> parts = {member(3, 0, 3, 0), member(1, 7, 9, 7), member(1, 2, 9, 12),
                                member(kNan, 4, kNan, 4)};
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::shuffle(parts.begin(), parts.end(), random);
    Partial all = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) all.add(parts[i]);
    const auto got = result<cxip_coll_fltminmax>(all)[0];
    EXPECT_EQ(got.minval, 1);
    EXPECT_EQ(got.minidx, 2u) << "the lower of two indices";
    EXPECT_EQ(got.maxval, 9);
    EXPECT_EQ(got.maxidx, 7u);
  }
  const cxip_coll_intminmax a{-5, 1, 10, 1}, b{-6, 2, 9, 2};
  Partial integers = Partial::of(Opcode::kMinMaxLocInt, &a, sizeof a);
  integers.add(Partial::of(Opcode::kMinMaxLocInt, &b, sizeof b));
  const auto got = result<cxip_coll_intminmax>(integers)[0];
  EXPECT_EQ(got.minval, -6);
  EXPECT_EQ(got.minidx, 2u);
  EXPECT_EQ(got.maxval, 10);
  EXPECT_EQ(got.maxidx, 1u);
}

// ---- reproducible sums ----

double sum_of(const std::vector<double> &values) {
  Repsum sum;
  for (const double value : values) EXPECT_TRUE(sum.add(Repsum::of(value)));
  return sum.value();
}

TEST(Repsum, ADoubleIsItself) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (std::isnan(value)) continue;
    ASSERT_EQ(bits(Repsum::of(value).value()), bits(value)) << std::hexfloat << value;
  }
  EXPECT_EQ(Repsum::of(0.0).value(), 0);
  EXPECT_EQ(Repsum::of(5e-324).value(), 5e-324);
  EXPECT_EQ(Repsum::of(kMost).value(), kMost);
  EXPECT_EQ(Repsum::of(-kInfinity).value(), -kInfinity);
  EXPECT_TRUE(std::isnan(Repsum::of(kNan).value()));
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity})));
  EXPECT_EQ(sum_of({kMost, kMost, -kMost}), kMost) << "no overflow on the way";
  EXPECT_EQ(sum_of({kMost, kMost}), kInfinity);
}

// Sums of two, which the processor rounds correctly, too.
TEST(Repsum, ASumOfTwoIsRoundedToTheNearest) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200'000; ++i) {
    const double a = std::ldexp(double(int64_t(random())), int(random() % 60) - 30);
    const double b = std::ldexp(double(int64_t(random())), int(random() % 60) - 30);
    const volatile double sum = a + b;
    ASSERT_EQ(sum_of({a, b}), sum) << std::hexfloat << a << " " << b;
  }
}

TEST(Repsum, TheOrderDoesNotMatter) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> values(1 + random() % 300);
    const int spread = 1 + int(random() % 600);
    for (double &value : values)
      value = std::ldexp(double(int64_t(random())), int(random() % uint64_t(spread)) - spread / 2);
    const uint64_t expected = bits(sum_of(values));
    for (int again = 0; again < 5; ++again) {
      std::shuffle(values.begin(), values.end(), random);
      ASSERT_EQ(bits(sum_of(values)), expected);
      // In a tree, too.
      std::vector<Repsum> sums;
      for (const double value : values) sums.push_back(Repsum::of(value));
      while (sums.size() > 1) {
        const size_t at = random() % (sums.size() - 1);
        sums[at].add(sums[at + 1]);
        sums.erase(sums.begin() + ptrdiff_t(at) + 1);
      }
      ASSERT_EQ(bits(sums[0].value()), expected);
    }
  }
}

TEST(Repsum, TooManySummandsAreTold) {
  Repsum sum = Repsum::of(std::ldexp(1, 39) - 1);
  bool fits = true;
  for (int doubling = 0; doubling < 40 && fits; ++doubling) {
    const Repsum same = sum;
    fits = sum.add(same);
    EXPECT_TRUE(fits || doubling > 20) << doubling;
  }
  EXPECT_FALSE(fits);
}

TEST(Repsum, AsAReduction) {
  Partial sum = part<double>(FI_CXI_REPSUM, FI_DOUBLE, {1e100});
  for (const double value : {1.0, -1e100, 2.5})
    sum.add(part<double>(FI_CXI_REPSUM, FI_DOUBLE, {value}));
  sum = GroupPacket::parse(GroupPacket{.type = GroupPacketType::kUp, .partial = sum}.bytes())
            ->partial;
  EXPECT_EQ(result<double>(sum)[0], 0) << "what is 2^160 times smaller is lost";
  sum = part<double>(FI_CXI_REPSUM, FI_DOUBLE, {kMost});
  sum.add(sum);
  double value;
  sum.write(&value);
  EXPECT_EQ(sum.failure, Failure::kFloatOverflow);
}

// ---- packets ----

TEST(CollectivePacket, IsReadAsItWasWritten) {
  GroupPacket packet;
  packet.type = GroupPacketType::kUp;
  packet.from_rank = 1;
  packet.to_rank = 0xfffffffe;
  packet.from = UINT64_C(0x0123456789abcdef);
  packet.to = 3;
  packet.membership = 4;
  packet.sequence = 5;
  packet.partial = doubles(FI_SUM, kMost, kMost);
  const auto read = GroupPacket::parse(packet.bytes());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->bytes(), packet.bytes());
  EXPECT_EQ(read->from, packet.from);
  EXPECT_EQ(read->partial.failure, Failure::kFloatOverflow);
  const GroupPacket::Bytes bytes = packet.bytes();
  EXPECT_FALSE(GroupPacket::parse(std::span(bytes).first(79)));
  EXPECT_FALSE(GroupPacket::parse({}));
}

// Whatever a peer sends, the parser takes or refuses it, and sums of it do no harm.
TEST(CollectivePacket, AnyBytes) {
  std::mt19937_64 random(4);
  const GroupPacket good{.type = GroupPacketType::kUp, .partial = doubles(FI_SUM, 1, 2)};
  Partial sum;
  for (int i = 0; i < 200'000; ++i) {
    GroupPacket::Bytes bytes = good.bytes();
    for (int k = 0; k < 12; ++k) bytes[random() % bytes.size()] = uint8_t(random());
    if (random() % 2 != 0) bytes[0] = 1;
    const auto read = GroupPacket::parse(bytes);
    if (!read) continue;
    Partial part = read->partial;
    if (i % 3 == 0) sum.opcode = part.opcode, sum.bytes = part.bytes;
    sum.add(part);
    uint8_t result[kMaxOperand];
    part.write(result);
  }
}

}  // namespace
}  // namespace weft::cxi
