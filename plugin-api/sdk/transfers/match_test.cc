// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/transfers/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "plugin-api/sdk/testing/test_rounds.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kAny = Matcher::kAnySource;

struct Posted : Matcher::Posted {
  Posted(uint32_t from, uint64_t with, uint64_t without = 0) {
    source = from;
    tag = with;
    ignore = without;
  }
};
struct Arrived : Matcher::Arrived {
  Arrived(uint32_t from, uint64_t with) {
    source = from;
    tag = with;
  }
};

// ---- the rules, one by one ----

TEST(MatcherPosted, TheOldestThatMatchesIsFound) {
  Matcher matcher;
  Posted other(kAny, 8), first(kAny, 7), second(kAny, 7);
  matcher.post(other);
  matcher.post(first);
  matcher.post(second);
  EXPECT_EQ(matcher.posted(), 3u);
  EXPECT_EQ(matcher.find_posted(3, 7), &first);
  EXPECT_EQ(matcher.find_posted(3, 7), &first) << "it stays";
  EXPECT_TRUE(first.queued);
  matcher.remove(first);
  EXPECT_FALSE(first.queued);
  EXPECT_EQ(matcher.find_posted(Matcher::kUnknownSource, 7), &second);
  matcher.remove(second);
  EXPECT_EQ(matcher.find_posted(3, 7), nullptr);
  EXPECT_EQ(matcher.posted(), 1u);
}

TEST(MatcherPosted, IgnoredBitsAreIgnored) {
  Matcher matcher;
  Posted wild(kAny, 0xab00, 0xff), all(kAny, 123, ~uint64_t(0));
  matcher.post(wild);
  matcher.post(all);
  EXPECT_EQ(matcher.find_posted(0, 0xab42), &wild);
  EXPECT_EQ(matcher.find_posted(0, 0xac42), &all);
}

TEST(MatcherPosted, ADirectedReceiveTakesFromItsSourceOnly) {
  Matcher matcher;
  Posted directed(5, 7), unnamed(Matcher::kFirstUnnamed, 7);
  matcher.post(directed);
  matcher.post(unnamed);
  EXPECT_EQ(matcher.find_posted(4, 7), nullptr);
  EXPECT_EQ(matcher.find_posted(Matcher::kUnknownSource, 7), nullptr);
  EXPECT_EQ(matcher.find_posted(5, 7), &directed);
  EXPECT_EQ(matcher.find_posted(Matcher::kFirstUnnamed, 7), &unnamed);
}

// The matcher keeps exact, directed and wildcard receives in different places. It still matches in
// the order of posting.
TEST(MatcherPosted, TheOrderHoldsAcrossDirectedAndWildReceives) {
  for (int fill : {0, 10}) {
    Matcher matcher;
    std::deque<Posted> others;
    for (int i = 0; i < fill; ++i) matcher.post(others.emplace_back(kAny, 1000 + i));
    Posted kinds[] = {{kAny, 7}, {2, 7}, {kAny, 7, 1}, {2, 7, 1}};
    std::vector<int> order{0, 1, 2, 3};
    do {
      for (int i : order) matcher.post(kinds[i]);
      for (int i : order) {
        ASSERT_EQ(matcher.find_posted(2, 7), &kinds[i]);
        matcher.remove(kinds[i]);
      }
      ASSERT_EQ(matcher.find_posted(2, 7), nullptr);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(MatcherPosted, SearchLooksInOrderOfPosting) {
  Matcher matcher;
  std::deque<Posted> entries;
  for (uint64_t i = 0; i < 20; ++i) matcher.post(entries.emplace_back(i % 3, i, i % 4));
  const auto above = [](uint64_t n) { return [n](const Matcher::Posted &p) { return p.tag > n; }; };
  EXPECT_EQ(matcher.search_posted(above(5)), &entries[6]);
  EXPECT_EQ(matcher.search_posted(above(50)), nullptr);
}

TEST(MatcherArrived, MessagesAreFoundInOrderOfArrival) {
  for (int fill : {0, 10}) {
    Matcher matcher;
    std::deque<Arrived> others;
    for (int i = 0; i < fill; ++i) matcher.arrive(others.emplace_back(9, 1000 + i));
    Arrived a(1, 7), b(2, 7), c(1, 8);
    matcher.arrive(a);
    matcher.arrive(b);
    matcher.arrive(c);
    EXPECT_EQ(matcher.find_arrived(kAny, 7, 0), &a);
    EXPECT_EQ(matcher.find_arrived(2, 7, 0), &b);
    EXPECT_EQ(matcher.find_arrived(kAny, 8, 0), &c);
    EXPECT_EQ(matcher.find_arrived(2, 8, 0), nullptr);
    EXPECT_EQ(matcher.find_arrived(2, 0, 15), &b);
    EXPECT_EQ(matcher.find_arrived(kAny, 15, 7), &c);
    matcher.remove(a);
    EXPECT_EQ(matcher.find_arrived(kAny, 7, 0), &b);
    EXPECT_EQ(matcher.arrived(), size_t(fill) + 2);
  }
}

TEST(MatcherArrived, ARenamedMessageKeepsItsPlace) {
  for (int fill : {0, 10}) {
    Matcher matcher;
    std::deque<Arrived> others;
    for (int i = 0; i < fill; ++i) matcher.arrive(others.emplace_back(9, 1000 + i));
    const uint32_t unnamed = Matcher::kFirstUnnamed + 1;
    Arrived a(unnamed, 7), b(2, 7), c(unnamed, 7);
    matcher.arrive(a);
    matcher.arrive(b);
    matcher.arrive(c);
    matcher.rename(unnamed, 2);
    for (Arrived *m : {&a, &b, &c}) {
      EXPECT_EQ(m->source, 2u);
      EXPECT_EQ(matcher.find_arrived(2, 7, 0), m);
      matcher.remove(*m);
    }
    EXPECT_EQ(matcher.find_arrived(2, 7, 0), nullptr);
    EXPECT_EQ(matcher.find_arrived(unnamed, 7, 0), nullptr);
  }
}

TEST(MatcherArrived, AVisitorMayRemoveWhatItIsGiven) {
  Matcher matcher;
  std::deque<Arrived> entries;
  for (uint64_t i = 0; i < 20; ++i) matcher.arrive(entries.emplace_back(i % 2, i));
  std::vector<uint64_t> seen;
  matcher.visit_arrived(1, [&](Matcher::Arrived &m) {
    if (m.tag < 6) seen.push_back(m.tag);
    matcher.remove(m);
  });
  EXPECT_THAT(seen, ElementsAre(1, 3, 5));
  EXPECT_EQ(matcher.arrived(), 10u);
  EXPECT_EQ(matcher.find_arrived(1, 3, 0), nullptr);
  EXPECT_EQ(matcher.find_arrived(0, 4, 0), &entries[4]);
}

// ---- against a model that only has lists ----

class Model {
 public:
  std::vector<Posted *> posted;
  std::vector<Arrived *> arrived;

  Posted *find_posted(uint32_t source, uint64_t tag) const {
    for (Posted *p : posted)
      if ((p->tag & ~p->ignore) == (tag & ~p->ignore) && (p->source == kAny || p->source == source))
        return p;
    return nullptr;
  }
  Arrived *find_arrived(uint32_t source, uint64_t tag, uint64_t ignore) const {
    for (Arrived *m : arrived)
      if ((m->tag & ~ignore) == (tag & ~ignore) && (source == kAny || m->source == source))
        return m;
    return nullptr;
  }
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t n) { return engine_() % n; }
  bool chance(unsigned percent) { return below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

// A matcher and the model get the same random calls and must give the same answers.
class Differential : public ::testing::TestWithParam<int> {
 protected:
  uint64_t tag() { return random_.below(tags_) << shift_; }
  uint32_t source() {
    return random_.chance(10) ? Matcher::kFirstUnnamed + uint32_t(random_.below(2))
                              : uint32_t(random_.below(sources_));
  }
  uint32_t source_or_any() { return random_.chance(any_) ? kAny : source(); }
  uint64_t mask() {
    if (!random_.chance(wild_)) return 0;
    return random_.chance(20) ? ~uint64_t(0) : (1 + random_.below(7)) << shift_;
  }

  // One random call. In a filling phase more entries come than go.
  void step(bool filling) {
    const uint64_t what = random_.below(100);
    if (what < (filling ? 35u : 10u)) {
      post();
    } else if (what < 50) {
      match_posted();
    } else if (what < (filling ? 75u : 58u)) {
      arrive();
    } else if (what < 92) {
      match_arrived();
    } else if (what < 95) {
      cancel();
    } else if (what < 97) {
      drop();
    } else if (what < 99) {
      // The two sources may be the same. The model shares the entries, so it has the new names.
      matcher_.rename(source(), source());
    } else {
      visit();
    }
  }
  void post() {
    if (model_.posted.size() >= limit_) return;
    const uint32_t from = source_or_any();
    Posted &p = posts_.emplace_back(from, tag(), mask());
    matcher_.post(p);
    model_.posted.push_back(&p);
  }
  void match_posted() {
    const uint32_t from = source();
    const uint64_t with = tag();
    Posted *expected = model_.find_posted(from, with);
    ASSERT_EQ(matcher_.find_posted(from, with), expected);
    if (expected != nullptr && random_.chance(80)) remove(expected);
  }
  void arrive() {
    if (model_.arrived.size() >= limit_) return;
    Arrived &m = arrivals_.emplace_back(source(), tag());
    matcher_.arrive(m);
    model_.arrived.push_back(&m);
  }
  void match_arrived() {
    const uint32_t from = source_or_any();
    const uint64_t with = tag(), without = mask();
    Arrived *expected = model_.find_arrived(from, with, without);
    ASSERT_EQ(matcher_.find_arrived(from, with, without), expected);
    if (expected != nullptr && random_.chance(80)) remove(expected);
  }
  void cancel() {
    if (model_.posted.empty()) return;
    Posted *p = model_.posted[random_.below(model_.posted.size())];
    const auto is_it = [p](const Matcher::Posted &entry) { return &entry == p; };
    ASSERT_EQ(matcher_.search_posted(is_it), p);
    remove(p);
  }
  void drop() {
    if (model_.arrived.empty()) return;
    remove(model_.arrived[random_.below(model_.arrived.size())]);
  }
  // Visits the messages of one source and removes those with an odd tag.
  void visit() {
    const uint32_t of = source();
    std::vector<Arrived *> expected, seen;
    for (Arrived *m : model_.arrived)
      if (m->source == of) expected.push_back(m);
    matcher_.visit_arrived(of, [&](Matcher::Arrived &m) {
      seen.push_back(static_cast<Arrived *>(&m));
      if (m.tag % 2 == 0) return;
      matcher_.remove(m);
      std::erase(model_.arrived, &m);
    });
    ASSERT_EQ(seen, expected);
  }

  void remove(Posted *p) {
    matcher_.remove(*p);
    std::erase(model_.posted, p);
  }
  void remove(Arrived *m) {
    matcher_.remove(*m);
    std::erase(model_.arrived, m);
  }
  void expect_equal_sizes() {
    ASSERT_EQ(matcher_.posted(), model_.posted.size());
    ASSERT_EQ(matcher_.arrived(), model_.arrived.size());
  }
  // The entries that are left come out in the order of the model.
  void drain() {
    const auto everything = [](const Matcher::Posted &) { return true; };
    for (Posted *p : model_.posted) {
      ASSERT_EQ(matcher_.search_posted(everything), p);
      matcher_.remove(*p);
    }
    for (Arrived *m : model_.arrived) {
      ASSERT_EQ(matcher_.find_arrived(kAny, 0, ~uint64_t(0)), m);
      matcher_.remove(*m);
    }
  }

 private:
  Random random_{uint64_t(GetParam())};
  Matcher matcher_;
  Model model_;
  std::deque<Posted> posts_;
  std::deque<Arrived> arrivals_;
  // The seed chooses few or many tags, sources and entries, and rare or frequent wildcards.
  const uint64_t tags_ = 1 + random_.below(random_.chance(50) ? 4 : 300);
  const unsigned shift_ = unsigned(random_.below(56));
  const uint32_t sources_ = 1 + uint32_t(random_.below(random_.chance(50) ? 3 : 40));
  const unsigned wild_ = unsigned(random_.below(40)), any_ = unsigned(random_.below(101));
  const size_t limit_ = random_.chance(50) ? 8 : 400;
};

TEST_P(Differential, AgreesWithTheModel) {
  for (int n = 0; n < 4000; ++n) {
    const bool filling = n / 500 % 2 == 0;  // the queues fill and drain in turns
    step(filling);
    if (!HasFatalFailure()) expect_equal_sizes();
    if (HasFatalFailure()) FAIL() << "step " << n;
  }
  drain();
}

INSTANTIATE_TEST_SUITE_P(Seeds, Differential, ::testing::Range(0, int(rounds(300))));

// ---- what it costs ----

constexpr size_t kMany = 100'000;
// Entries examined per match, on average. A queue of one entry needs 1. The limit of 10 allows for
// a long chain now and then.
constexpr double kFlat = 10;

enum class Shape { kTags, kStride, kHighBits, kSources, kOneKey, kDirected };

uint64_t tag_of(Shape shape, size_t i) {
  switch (shape) {
    case Shape::kStride:
      return i << 20;
    case Shape::kHighBits:
      return (i % 256) << 56 | (i / 256) << 24;
    case Shape::kSources:
    case Shape::kOneKey:
      return 42;
    default:
      return i;
  }
}
uint32_t source_of(Shape shape, size_t i) {
  return shape == Shape::kSources || shape == Shape::kDirected ? uint32_t(i) : 3;
}

class Cost : public ::testing::TestWithParam<Shape> {
 protected:
  // Average steps per call, over a thousand keys in mixed order.
  template <class F>
  double steps(F find) {
    const uint64_t before = matcher.steps();
    for (size_t i = 0; i < 1000; ++i) find(i * 7919 % kMany);
    return double(matcher.steps() - before) / 1000;
  }
  Matcher matcher;
};

TEST_P(Cost, OfAPostedReceiveIsFlat) {
  const bool directed = GetParam() == Shape::kSources || GetParam() == Shape::kDirected;
  std::deque<Posted> entries;
  for (size_t i = 0; i < kMany; ++i)
    matcher.post(
        entries.emplace_back(directed ? source_of(GetParam(), i) : kAny, tag_of(GetParam(), i)));
  EXPECT_LE(steps([&](size_t i) {
              EXPECT_NE(matcher.find_posted(source_of(GetParam(), i), tag_of(GetParam(), i)),
                        nullptr);
            }),
            kFlat);
  EXPECT_LE(
      steps([&](size_t i) { EXPECT_EQ(matcher.find_posted(uint32_t(i), 0xffff'ffff), nullptr); }),
      kFlat);
}

TEST_P(Cost, OfASavedMessageIsFlat) {
  std::deque<Arrived> entries;
  for (size_t i = 0; i < kMany; ++i)
    matcher.arrive(entries.emplace_back(source_of(GetParam(), i), tag_of(GetParam(), i)));
  EXPECT_LE(steps([&](size_t i) {
              EXPECT_NE(matcher.find_arrived(kAny, tag_of(GetParam(), i), 0), nullptr);
            }),
            kFlat);
  EXPECT_LE(steps([&](size_t i) {
              EXPECT_NE(matcher.find_arrived(source_of(GetParam(), i), tag_of(GetParam(), i), 0),
                        nullptr);
            }),
            kFlat);
  EXPECT_LE(steps([&](size_t i) {
              EXPECT_EQ(matcher.find_arrived(uint32_t(i), 0xffff'ffff, 0), nullptr);
            }),
            kFlat);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Cost,
                         ::testing::Values(Shape::kTags, Shape::kStride, Shape::kHighBits,
                                           Shape::kSources, Shape::kOneKey, Shape::kDirected));

TEST(MatcherCost, SearchesOnlyOlderWildReceives) {
  Matcher matcher;
  std::deque<Posted> entries;
  for (int i = 0; i < 10; ++i) matcher.post(entries.emplace_back(kAny, 1 << 8, 1));
  matcher.post(entries.emplace_back(kAny, 7));
  for (size_t i = 0; i < kMany; ++i) matcher.post(entries.emplace_back(kAny, 1 << 8, 1));
  const uint64_t before = matcher.steps();
  EXPECT_EQ(matcher.find_posted(0, 7), &entries[10]);
  EXPECT_EQ(matcher.steps() - before, 11u);
}

// Removal from the middle and the end of long rows takes constant time, or this test takes minutes.
TEST(MatcherCost, EntriesLeaveLongRowsInAnyOrder) {
  Matcher matcher;
  std::deque<Posted> posts;
  std::deque<Arrived> arrivals;
  for (size_t i = 0; i < kMany; ++i) {
    matcher.post(posts.emplace_back(kAny, 7));
    matcher.arrive(arrivals.emplace_back(1, 7));
  }
  for (size_t i = kMany; i-- > kMany / 2;) {
    matcher.remove(posts[i]);
    matcher.remove(arrivals[i]);
  }
  for (size_t i = 0; i < kMany / 2; ++i) {
    const size_t k = i * 7919 % (kMany / 2);
    matcher.remove(posts[k]);
    matcher.remove(arrivals[k]);
  }
  EXPECT_EQ(matcher.posted(), 0u);
  EXPECT_EQ(matcher.arrived(), 0u);
  EXPECT_EQ(matcher.find_posted(1, 7), nullptr);
  EXPECT_EQ(matcher.find_arrived(1, 7, 0), nullptr);
}

TEST(MatcherMemory, ReusesTheMemoryOfEarlierEntries) {
  Matcher matcher;
  std::deque<Posted> posts;
  std::deque<Arrived> arrivals;
  for (size_t i = 0; i < 1000; ++i) {
    posts.emplace_back(i % 3 == 0 ? kAny : uint32_t(i), i * 17, i % 5 == 0 ? 3 : 0);
    arrivals.emplace_back(uint32_t(i), i * 13);
  }
  size_t before = 0;
  for (int round = 0; round < 3; ++round) {
    if (round == 1) before = allocations();
    for (Posted &p : posts) matcher.post(p);
    for (Arrived &m : arrivals) matcher.arrive(m);
    matcher.rename(3, 4);
    for (Posted &p : posts) matcher.remove(p);
    for (Arrived &m : arrivals) matcher.remove(m);
  }
  EXPECT_GT(before, 0u);
  EXPECT_EQ(allocations(), before);
}

TEST(MatcherMemory, WithoutMemoryItIsSlowerAndCorrect) {
  Matcher matcher;
  std::deque<Posted> posts;
  for (size_t i = 0; i < 500; ++i) posts.emplace_back(kAny, i);
  {
    NoMoreMemory no_more;
    for (Posted &p : posts) matcher.post(p);
  }
  for (size_t i = 0; i < 500; ++i) ASSERT_EQ(matcher.find_posted(1, i), &posts[i]);
  for (size_t i = 0; i < 500; i += 2) matcher.remove(posts[i]);
  Posted more(kAny, 1000);
  matcher.post(more);  // there is memory again
  for (size_t i = 0; i < 500; ++i)
    ASSERT_EQ(matcher.find_posted(1, i), i % 2 == 0 ? nullptr : &posts[i]);
  EXPECT_EQ(matcher.find_posted(1, 1000), &more);
}

}  // namespace
}  // namespace weft::sdk
