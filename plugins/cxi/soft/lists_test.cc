// SPDX-License-Identifier: BSD-2-Clause
// Both lists of a portal against a plain search, in any order of calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "plugins/cxi/soft/entry_list.h"
#include "plugins/cxi/soft/header_list.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kIgnored[] = {0, 0x3, 0xff00, ~uint64_t{0}, 0xf0, 0x1, 0x8000'0000'0000'0000};

uint32_t some_id(std::mt19937 &random) {
  const uint32_t pid = random() % 3, nid = random() % 3;
  switch (random() % 4) {
    case 0:
      return kMatchAny;
    case 1:
      return match_id(pid, kMatchAnyEp);
    case 2:
      return match_id(kMatchAnyPid, nid);
    default:
      return match_id(pid, nid);
  }
}

TEST(EntryList, FindsWhatASearchInOrderFinds) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    EntryList list(seed);
    std::deque<std::unique_ptr<LinkedEntry>> model;
    for (int step = 0; step < 600; ++step) {
      const bool grows = model.empty() || random() % 100 < (step < 300 ? 70u : 35u);
      if (grows) {
        auto entry = std::make_unique<LinkedEntry>();
        entry->entry.match_bits = random() % 8;
        entry->entry.ignore_bits = kIgnored[random() % std::size(kIgnored)];
        entry->entry.match_id = some_id(random);
        entry->entry.length = random() % 100;
        entry->entry.no_truncate = random() % 3 == 0;
        entry->entry.buffer_id = uint16_t(step);
        list.append(*entry);
        model.push_back(std::move(entry));
        continue;
      }
      const Envelope request{random() % 8, match_id(random() % 3, random() % 3), random() % 100};
      const auto expected = std::find_if(model.begin(), model.end(), [&](const auto &one) {
        const Entry &e = one->entry;
        return ((e.match_bits ^ request.match_bits) & ~e.ignore_bits) == 0 &&
               accepts(e.match_id, request.initiator) &&
               (!e.no_truncate || request.length <= e.length);
      });
      LinkedEntry *const found = list.find(request);
      ASSERT_EQ(found, expected != model.end() ? expected->get() : nullptr) << seed << " " << step;
      const auto goes = found != nullptr ? expected : model.begin() + random() % model.size();
      ASSERT_EQ(list.find_buffer((*goes)->entry.buffer_id), goes->get());
      list.remove(**goes);
      model.erase(goes);
      ASSERT_EQ(list.size(), model.size());
      ASSERT_EQ(list.front(), model.empty() ? nullptr : model.front().get());
    }
  }
}

TEST(HeaderList, FindsWhatASearchInOrderFinds) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    HeaderList list(seed);
    std::deque<std::unique_ptr<Header>> model;
    for (int step = 0; step < 600; ++step) {
      const bool grows = model.empty() || random() % 100 < (step < 300 ? 70u : 35u);
      if (grows) {
        auto header = std::make_unique<Header>();
        header->match_bits = random() % 8;
        header->initiator = match_id(random() % 3, random() % 3);
        list.append(*header);
        model.push_back(std::move(header));
        continue;
      }
      const uint64_t bits = random() % 8, ignore = kIgnored[random() % std::size(kIgnored)];
      const uint32_t id = some_id(random);
      const auto matches = [&](const auto &one) {
        return ((one->match_bits ^ bits) & ~ignore) == 0 && accepts(id, one->initiator);
      };
      // All that match, in order.
      Header *found = nullptr;
      auto from = model.begin();
      do {
        const auto expected = std::find_if(from, model.end(), matches);
        found = list.find(bits, ignore, id, found);
        ASSERT_EQ(found, expected != model.end() ? expected->get() : nullptr)
            << seed << " " << step;
        from = expected != model.end() ? expected + 1 : expected;
      } while (found != nullptr);
      const auto goes = model.begin() + random() % model.size();
      list.remove(**goes);
      model.erase(goes);
      ASSERT_EQ(list.size(), model.size());
    }
  }
}

// 100,000 that nobody wants do not stand in the way: the number of steps is that of a few.
TEST(HeaderList, ManyHeadersAreNotSearchedOneByOne) {
  HeaderList list(7);
  std::vector<std::unique_ptr<Header>> headers;
  const auto add = [&](uint64_t bits) {
    headers.push_back(std::make_unique<Header>());
    headers.back()->match_bits = bits;
    headers.back()->initiator = match_id(1, 1);
    list.append(*headers.back());
  };
  constexpr uint64_t kMany = 100'000, kIgnore = 0xff;
  for (uint64_t i = 0; i < kMany; ++i) add(i << 8);
  // A search of each would look at 5 billion headers, which takes longer than this test may.
  for (uint64_t i = 0; i < kMany; ++i)
    ASSERT_EQ(list.find((kMany - 1 - i) << 8, kIgnore, kMatchAny, nullptr),
              headers[kMany - 1 - i].get());
}

}  // namespace
}  // namespace weft::cxi
