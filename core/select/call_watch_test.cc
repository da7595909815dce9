// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/call_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <string>
#include <vector>

namespace weft {
namespace {

class Told {
 public:
  CallWatch::Tell tell() {
    return [this](const PluginCalls::Call &call) {
      const std::lock_guard lock(mutex_);
      told_.push_back(call.unit + " " + call.name);
      changed_.notify_all();
    };
  }
  // How often it was told, once it was.
  ptrdiff_t wait_for(const std::string &call) {
    std::unique_lock lock(mutex_);
    const auto count = [&] { return std::count(told_.begin(), told_.end(), call); };
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return count() > 0; });
    return count();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> told_;
};

TEST(CallWatch, TellsOnceOfEachCallThatDoesNotReturn) {
  PluginCalls calls;
  Told told;
  const CallWatch watch(calls, std::chrono::milliseconds(4), told.tell());
  UnitInfo unit;
  unit.name = "frob";
  {
    const PluginCalls::Inside outer(&calls, unit, "wrap");
    const PluginCalls::Inside inner(&calls, unit, "getinfo");
    EXPECT_EQ(told.wait_for("frob getinfo"), 1);
  }
  {
    // One that goes on after a call inside of it was told is not told again.
    const PluginCalls::Inside next(&calls, unit, "create");
    EXPECT_EQ(told.wait_for("frob create"), 1);
    for (const char *inside : {"one", "two", "three"}) {
      const PluginCalls::Inside last(&calls, unit, inside);
      EXPECT_EQ(told.wait_for(std::string("frob ") + inside), 1);
    }
  }
  EXPECT_EQ(told.wait_for("frob create"), 1);
  EXPECT_EQ(told.wait_for("frob getinfo"), 1);
}

TEST(CallWatch, EndsAtOnceWhereNothingHangs) {
  PluginCalls calls;
  const auto start = std::chrono::steady_clock::now();
  {
    const CallWatch watch(calls, std::chrono::hours(1),
                          [](const PluginCalls::Call &) { FAIL() << "nothing hangs"; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
}

}  // namespace
}  // namespace weft
