// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/addresses/av_set.h"

#include <algorithm>
#include <random>

#include "plugin-api/sdk/testing/test_av.h"

namespace weft::sdk {
namespace {

fi_av_set_attr range(fi_addr_t from = FI_ADDR_NOTAVAIL, fi_addr_t to = FI_ADDR_NOTAVAIL,
                     uint64_t stride = 1) {
  fi_av_set_attr attr{};
  attr.start_addr = from;
  attr.end_addr = to;
  attr.stride = stride;
  return attr;
}

// A set of a vector; closes itself.
class Set {
 public:
  Set(Vector &vector, fi_av_set_attr attr) : vector_(vector) {
    rc = fi_av_set(vector.c, &attr, &c, &vector);
  }
  ~Set() {
    if (c != nullptr) {
      EXPECT_EQ(fi_close(&c->fid), 0);
    }
  }
  std::vector<fi_addr_t> members() {
    const Guard guard(vector_.domain.engine.lock());
    return AvSet::from(c)->members();
  }

  int rc = 0;
  fid_av_set *c = nullptr;

 private:
  Vector &vector_;
};

using Members = std::vector<fi_addr_t>;

class AvSetTest : public testing::Test {
 protected:
  AvSetTest() {
    for (uint32_t i = 0; i < 10; ++i) v.insert(v4(i));
  }
  Vector v;
};

TEST_F(AvSetTest, TakesARange) {
  EXPECT_EQ(Set(v, range()).members(), Members());
  EXPECT_EQ(Set(v, range(2, 5)).members(), (Members{2, 3, 4, 5}));
  EXPECT_EQ(Set(v, range(1, 9, 3)).members(), (Members{1, 4, 7}));
  EXPECT_EQ(Set(v, range(3, 3, 0)).members(), (Members{3}));
  EXPECT_EQ(Set(v, range(0, 9, UINT64_MAX)).members(), (Members{0}));
  EXPECT_EQ(v.remove(4), 0);
  EXPECT_EQ(Set(v, range(3, 5)).members(), (Members{3, 5})) << "only addresses that are there";
  fi_av_set_attr all = range();
  all.flags = FI_UNIVERSE;
  EXPECT_EQ(Set(v, all).members().size(), 9u);
}

TEST_F(AvSetTest, RefusesWhatMakesNoSense) {
  fi_av_set_attr attr{};
  fid_av_set *set = nullptr;
  EXPECT_EQ(fi_av_set(v.c, nullptr, &set, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_set(v.c, &attr, nullptr, nullptr), -FI_EINVAL);
  EXPECT_EQ(Set(v, range(5, 2)).rc, -FI_EINVAL);
  EXPECT_EQ(Set(v, range(0, 10)).rc, -FI_EINVAL);
  EXPECT_EQ(Set(v, range(0, FI_ADDR_NOTAVAIL)).rc, -FI_EINVAL);
  EXPECT_EQ(Set(v, range(0, 2, 0)).rc, -FI_EINVAL);
  attr = range(0, 5);
  attr.count = 5;
  EXPECT_EQ(Set(v, attr).rc, -FI_EINVAL) << "six addresses";
  attr = range();
  attr.flags = FI_PEEK;
  EXPECT_EQ(Set(v, attr).rc, -FI_EBADFLAGS);
  attr = range();
  attr.comm_key_size = 8;
  EXPECT_EQ(Set(v, attr).rc, -FI_EINVAL) << "a key of eight bytes nowhere";
  fi_av_attr map{};
  map.type = FI_AV_MAP;
  Vector of_map(FI_SOCKADDR_IN, map);
  of_map.insert(v4(1));
  EXPECT_EQ(Set(of_map, range(0, 0)).rc, -FI_EINVAL);
  EXPECT_EQ(Set(of_map, range()).rc, 0);
}

TEST_F(AvSetTest, KeepsItsOrder) {
  Set a(v, range(2, 4)), b(v, range());
  EXPECT_EQ(fi_av_set_insert(b.c, 7), 0);
  EXPECT_EQ(fi_av_set_insert(b.c, 3), 0);
  EXPECT_EQ(fi_av_set_insert(b.c, 1), 0);
  EXPECT_EQ(fi_av_set_insert(b.c, 7), 0) << "it is a member already";
  EXPECT_EQ(fi_av_set_insert(b.c, 10), -FI_EINVAL) << "no such address";
  EXPECT_EQ(b.members(), (Members{7, 3, 1}));
  EXPECT_EQ(fi_av_set_union(b.c, a.c), 0);
  EXPECT_EQ(b.members(), (Members{7, 3, 1, 2, 4}));
  EXPECT_EQ(fi_av_set_remove(b.c, 1), 0);
  EXPECT_EQ(fi_av_set_remove(b.c, 1), -FI_EINVAL);
  EXPECT_EQ(fi_av_set_intersect(b.c, a.c), 0);
  EXPECT_EQ(b.members(), (Members{3, 2, 4}));
  EXPECT_EQ(fi_av_set_diff(a.c, b.c), 0);
  EXPECT_EQ(a.members(), Members());
  EXPECT_EQ(fi_av_set_diff(b.c, b.c), 0);
  EXPECT_EQ(b.members(), Members());
}

TEST_F(AvSetTest, OfOneVectorAlone) {
  Vector other;
  other.insert(v4(1));
  Set a(v, range(0, 3)), b(other, range(0, 0));
  EXPECT_EQ(fi_av_set_union(a.c, b.c), -FI_EINVAL);
  EXPECT_EQ(fi_av_set_diff(a.c, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_set_intersect(a.c, reinterpret_cast<fid_av_set *>(v.c)), -FI_EINVAL);
  EXPECT_EQ(fi_close(&v.c->fid), -FI_EBUSY);
  fi_addr_t first = 0, second = 0;
  EXPECT_EQ(fi_av_set_addr(a.c, &first), 0);
  EXPECT_EQ(fi_av_set_addr(b.c, &second), 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(fi_av_set_addr(a.c, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_set_insert(a.c, first), -FI_EINVAL) << "it is no address of the vector";
}

// The application says who is a member.
TEST_F(AvSetTest, WithAKeyAnAddressMayStandTwice) {
  uint8_t key[3] = {1, 2, 3};
  fi_av_set_attr attr = range();
  attr.comm_key = key;
  attr.comm_key_size = sizeof key;
  Set set(v, attr);
  key[0] = 9;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fi_av_set_insert(set.c, 5), 0);
  EXPECT_EQ(set.members(), (Members{5, 5, 5}));
  const auto own = AvSet::from(set.c)->communication_key();
  EXPECT_EQ(std::vector<uint8_t>(own.begin(), own.end()), (std::vector<uint8_t>{1, 2, 3}));
}

// Random calls on two sets, beside lists that are kept by hand.
TEST_F(AvSetTest, AgreesWithLists) {
  std::mt19937 random(1);
  Set a(v, range()), b(v, range());
  Members lists[2];
  for (int step = 0; step < 5000; ++step) {
    const size_t own = random() % 2;
    fid_av_set *const set = own == 0 ? a.c : b.c, *const other = own == 0 ? b.c : a.c;
    Members &list = lists[own];
    const Members &theirs = lists[1 - own];
    const fi_addr_t address = random() % 10;
    const auto in = [](const Members &l, fi_addr_t x) {
      return std::ranges::find(l, x) != l.end();
    };
    switch (random() % 8) {
      case 0:
        EXPECT_EQ(fi_av_set_union(set, other), 0);
        for (const fi_addr_t x : theirs)
          if (!in(list, x)) list.push_back(x);
        break;
      case 1:
        EXPECT_EQ(fi_av_set_intersect(set, other), 0);
        std::erase_if(list, [&](fi_addr_t x) { return !in(theirs, x); });
        break;
      case 2:
        EXPECT_EQ(fi_av_set_diff(set, other), 0);
        std::erase_if(list, [&](fi_addr_t x) { return in(theirs, x); });
        break;
      case 3:
        EXPECT_EQ(fi_av_set_remove(set, address), in(list, address) ? 0 : -FI_EINVAL);
        std::erase(list, address);
        break;
      default:
        EXPECT_EQ(fi_av_set_insert(set, address), 0);
        if (!in(list, address)) list.push_back(address);
    }
    ASSERT_EQ(a.members(), lists[0]) << step;
    ASSERT_EQ(b.members(), lists[1]) << step;
  }
}

}  // namespace
}  // namespace weft::sdk
