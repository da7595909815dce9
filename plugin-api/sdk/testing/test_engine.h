// SPDX-License-Identifier: BSD-2-Clause
// An engine with handlers, for the tests of weft/sdk/progress/engine.h only.
//
// Example (statements):
//    EngineOf e(3);
//    e[1].signal();
//    e.settle();
//    EXPECT_EQ(e[1].seen(), 1);
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/progress/engine.h"

namespace weft::sdk {

inline constexpr uint64_t kMs = 1'000'000;

// An engine with some handlers. The tests call it with the lock held. It polls up to two handlers
// directly, and more through epoll.
class EngineOf {
 public:
  explicit EngineOf(size_t count, uint32_t want = EPOLLIN, uint32_t cm_want = 0) {
    Guard guard(engine.lock());
    for (size_t i = 0; i < count; ++i) {
      handlers.push_back(std::make_unique<Event>());
      engine.add(*handlers[i], handlers[i]->fd(), want, cm_want);
    }
  }
  ~EngineOf() {
    engine.stop_thread();
    Guard guard(engine.lock());
    for (size_t i = 0; i < handlers.size(); ++i) drop(i);
  }
  Event &operator[](size_t i) { return *handlers[i]; }
  void drop(size_t i) {
    if (handlers[i] == nullptr) return;
    engine.remove(*handlers[i]);
    handlers[i].reset();
  }
  void progress() {
    Guard guard(engine.lock());
    engine.progress();
  }
  // Enough rounds to find every ready handler, although some rounds only try the busiest.
  void settle() {
    for (int i = 0; i < 8; ++i) progress();
  }

  Engine engine{true};
  std::vector<std::unique_ptr<Event>> handlers;
};

}  // namespace weft::sdk
