// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/call_watch.h"

#include <gtest/gtest.h>

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
  std::vector<std::string> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return told_.size() >= count; });
    return told_;
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
    EXPECT_EQ(told.wait_for(1), std::vector<std::string>{"frob getinfo"});
  }
  const PluginCalls::Inside next(&calls, unit, "create");
  const std::vector<std::string> all = told.wait_for(2);
  EXPECT_EQ(all.back(), "frob create");
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
