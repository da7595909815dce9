// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/plugin_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace weft {
namespace {

using testing::ElementsAre;

UnitInfo unit(const char *name) {
  UnitInfo info;
  info.name = name;
  info.library = std::string("/") + name + ".so";
  return info;
}

TEST(PluginCalls, TheInnermostCallOfAThreadIsTheOneThatIsWaitedFor) {
  PluginCalls calls;
  EXPECT_FALSE(calls.innermost(std::this_thread::get_id()));
  {
    const PluginCalls::Inside layer(&calls, unit("rxm"), "getinfo");
    {
      const PluginCalls::Inside provider(&calls, unit("tcp"), "getinfo");
      const auto call = calls.innermost(std::this_thread::get_id());
      ASSERT_TRUE(call);
      EXPECT_EQ(call->unit, "tcp");
      EXPECT_EQ(call->library, "/tcp.so");
      std::thread([&] { EXPECT_FALSE(calls.innermost(std::this_thread::get_id())); }).join();
    }
    EXPECT_EQ(calls.innermost(std::this_thread::get_id())->unit, "rxm");
  }
  EXPECT_FALSE(calls.innermost(std::this_thread::get_id()));
}

TEST(PluginCalls, AListenerHearsWhatBeginsAndWhatGoesOn) {
  PluginCalls calls;
  std::vector<std::string> heard;
  calls.listen(
      [](void *arg, const char *name, const char *library, const char *call) {
        static_cast<std::vector<std::string> *>(arg)->push_back(
            name == nullptr ? "-" : std::string(name) + " " + library + " " + call);
      },
      &heard);
  {
    const PluginCalls::Inside layer(&calls, unit("rxm"), "wrap");
    const PluginCalls::Inside provider(&calls, unit("tcp"), "create");
  }
  EXPECT_THAT(heard,
              ElementsAre("rxm /rxm.so wrap", "tcp /tcp.so create", "rxm /rxm.so wrap", "-"));
  const PluginCalls::Inside nobody(nullptr, unit("tcp"), "create");
}

}  // namespace
}  // namespace weft
