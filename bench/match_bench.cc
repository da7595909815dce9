// SPDX-License-Identifier: BSD-2-Clause
// The cost of matching: nanoseconds to put an entry in, find it and take it out again, while 0, 3,
// 1,000 or 100,000 others are in the queue. Prints a table and asserts nothing (match_test.cc
// counts steps).
//
//   weft-match-bench
#include <weft/sdk/transfers/match.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using weft::sdk::Matcher;

constexpr uint32_t kAny = Matcher::kAnySource;
constexpr int kRounds = 7;

// The best of some rounds, which the other load of the machine disturbed least.
template <class F>
double nanoseconds(size_t count, F work) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < count; ++i) work(i);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    const double each = took.count() / double(count);
    best = round == 0 ? each : std::min(best, each);
  }
  return best;
}

[[noreturn]] void wrong(const char *what) {
  std::fprintf(stderr, "weft-match-bench: %s found the wrong entry\n", what);
  std::exit(1);
}

// A receive is posted, then its message arrives. The others have other tags and the given mask.
double posted(size_t others, uint32_t source, uint64_t ignore, uint64_t mine) {
  Matcher matcher;
  std::vector<Matcher::Posted> queue(others);
  for (size_t i = 0; i < others; ++i) {
    queue[i].source = source;
    queue[i].tag = (i + 1) << 8;
    queue[i].ignore = ignore;
    matcher.post(queue[i]);
  }
  Matcher::Posted entry;
  entry.source = source;
  entry.ignore = mine;
  return nanoseconds(others > 1000 && ignore != 0 ? 200 : 200'000, [&](size_t i) {
    entry.tag = (others + 1 + i % 64) << 8;
    matcher.post(entry);
    Matcher::Posted *found = matcher.find_posted(3, entry.tag);
    if (found != &entry) wrong("a message");
    matcher.remove(*found);
  });
}

// A message arrives, then a receive takes it.
double arrived(size_t others, uint32_t source, uint64_t ignore) {
  Matcher matcher;
  std::vector<Matcher::Arrived> queue(others);
  for (size_t i = 0; i < others; ++i) {
    queue[i].source = 3;
    queue[i].tag = (i + 1) << 8;
    matcher.arrive(queue[i]);
  }
  Matcher::Arrived entry;
  entry.source = 3;
  return nanoseconds(others > 1000 && ignore != 0 ? 200 : 200'000, [&](size_t i) {
    entry.tag = (others + 1 + i % 64) << 8;
    matcher.arrive(entry);
    Matcher::Arrived *found = matcher.find_arrived(source, entry.tag, ignore);
    if (found != &entry) wrong("a receive");
    matcher.remove(*found);
  });
}

// Each time the oldest entry of all is taken, so that the memory of the whole queue is touched.
double rotating(size_t others, bool scattered) {
  const auto tag_of = [scattered](uint64_t i) {
    if (!scattered) return i;
    i *= UINT64_C(0x9e6c63d0876a9a35);
    return (i ^ i >> 31) * UINT64_C(0xd6e8feb86659fd93);
  };
  Matcher matcher;
  std::vector<Matcher::Posted> queue(others + 1);
  for (size_t i = 0; i < others; ++i) {
    queue[i].tag = tag_of(i);
    matcher.post(queue[i]);
  }
  size_t first = 0, last = others;
  uint64_t oldest = 0;
  return nanoseconds(200'000, [&](size_t) {
    queue[last].tag = tag_of(oldest + others);
    matcher.post(queue[last]);
    Matcher::Posted *found = matcher.find_posted(3, tag_of(oldest));
    if (found != &queue[first]) wrong("a message in order");
    matcher.remove(*found);
    last = first;
    first = (first + 1) % queue.size();
    ++oldest;
  });
}

}  // namespace

int main() {
  constexpr size_t kOthers[] = {0, 3, 1000, 100'000};
  std::printf("ns per entry put in, matched and taken out\n%-44s", "others in the queue");
  for (size_t others : kOthers) std::printf("%12zu", others);
  const auto line = [&](const char *name, auto measure) {
    std::printf("\n%-44s", name);
    for (size_t others : kOthers) {
      std::printf("%12.1f", measure(others));
      std::fflush(stdout);
    }
  };
  line("posted, exact, from one source", [](size_t n) { return posted(n, 3, 0, 0); });
  line("posted, exact, from any source", [](size_t n) { return posted(n, kAny, 0, 0); });
  line("the same, oldest of all each time", [](size_t n) { return rotating(n, false); });
  line("the same, tags all over the place", [](size_t n) { return rotating(n, true); });
  line("posted, mask, others exact", [](size_t n) { return posted(n, kAny, 0, 0xff); });
  line("posted, mask, others with masks (linear)",
       [](size_t n) { return posted(n, kAny, 1, 0xff); });
  line("unexpected, exact, from one source", [](size_t n) { return arrived(n, 3, 0); });
  line("unexpected, exact, from any source", [](size_t n) { return arrived(n, kAny, 0); });
  line("unexpected, mask (linear)", [](size_t n) { return arrived(n, kAny, 0xff); });
  std::printf("\n");
}
