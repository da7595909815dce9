// SPDX-License-Identifier: BSD-2-Clause
// What a child after fork() leaves to its parent: marks, objects, and descriptors of an engine.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/progress/fork_mark.h>

#include "plugin-api/sdk/testing/test_child.h"
#include "plugin-api/sdk/testing/test_engine.h"

namespace weft::sdk {
namespace {

class ForkedEp final : public Object<ForkedEp, fid_ep> {
 public:
  ForkedEp() : Object(nullptr, FI_CLASS_EP, nullptr) { fill_tables(*this); }
  int close() {
    ++closed;
    return 0;
  }
  int shutdown(uint64_t) {
    ++shut;
    return 0;
  }
  void close_copies() { ++copies; }
  std::string calls() const {
    return std::to_string(closed) + std::to_string(shut) + std::to_string(copies);
  }

  int closed = 0, shut = 0, copies = 0;
};

TEST(ForkMark, TellsAChildAndItsOwnChildrenWhatIsTheParents) {
  const ForkMark mark;
  EXPECT_FALSE(mark.is_child());
  EXPECT_EQ(in_child([&] {
              const ForkMark own;
              const bool knows = mark.is_child() && !own.is_child() && !ForkMark().is_child();
              return std::string(knows ? "1" : "0") +
                     in_child([&] { return own.is_child() && mark.is_child() ? "1" : "0"; });
            }),
            "11");
  EXPECT_FALSE(mark.is_child());
}

TEST(ForkMark, AChildClosesNothingOfItsParentsButItsCopies) {
  ForkedEp ep;
  const auto end = [&] {
    EXPECT_EQ(fi_shutdown(ep.c(), 0), 0);
    EXPECT_EQ(fi_close(&ep.c()->fid), 0);
    return ep.calls();
  };
  EXPECT_EQ(in_child(end), "001");
  EXPECT_EQ(end(), "110");
}

TEST(ForkMark, TheSetsOfAnEngineStayTheParents) {
  EngineOf e(3);  // so many that there is an epoll set
  EXPECT_EQ(in_child([&] {
              const int fd = e[0].fd();
              e.engine.close_copies();
              e.engine.close_copies();  // there are none any more
              return std::string(fcntl(fd, F_GETFD) < 0 ? "closed" : "open");
            }),
            "closed");
  for (size_t i = 0; i < 3; ++i) e[i].signal();
  e.settle();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(e[i].seen(), 1);
}

// A thread of the parent was in the engine when it forked: nothing can be said of its lists.
TEST(ForkMark, AnEngineWhoseLockIsHeldIsLeftAsItIs) {
  EngineOf e(3);
  Guard guard(e.engine.lock());
  EXPECT_EQ(in_child([&] {
              e.engine.close_copies();
              return std::string(fcntl(e[0].fd(), F_GETFD) < 0 ? "closed" : "open");
            }),
            "open");
}

}  // namespace
}  // namespace weft::sdk
