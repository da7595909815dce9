// SPDX-License-Identifier: BSD-2-Clause
// An event queue for tests, and the events that it dropped. For the tests of weft/sdk/objects/eq.h
// only.
//
// Example (statements):
//    TestEq queue(eq_attr(FI_WAIT_FD));
//    queue.write(7);
//    EXPECT_EQ(queue.next(), 7);
#pragma once

#include <gtest/gtest.h>
#include <rdma/fi_eq.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/objects/eq.h"

namespace weft::sdk {

// The connection requests that were dropped since the last TestEq was made.
inline std::vector<const fi_info *> dropped;

inline fi_eq_attr eq_attr(enum fi_wait_obj wait = FI_WAIT_NONE, uint64_t flags = FI_WRITE) {
  fi_eq_attr attr{};
  attr.flags = flags;
  attr.wait_obj = wait;
  return attr;
}

// An event queue of a fabric without a provider. The destructor closes it.
class TestEq {
 public:
  explicit TestEq(const fi_eq_attr &attr = eq_attr(), uint32_t api_version = FI_VERSION(2, 6)) {
    fabric.fid.fclass = FI_CLASS_FABRIC;
    fabric.api_version = api_version;
    dropped.clear();
    auto opened = Eq::open(instance.c(), &fabric.fid, children, &attr, this);
    if (opened) {
      eq = *opened;
      eq->drop_request = [](fi_info *info, const weft_instance *) { dropped.push_back(info); };
    } else {
      ADD_FAILURE() << opened.error().text;
    }
  }
  ~TestEq() {
    close();
    EXPECT_EQ(children.load(), 0u);
  }
  void close() {
    if (eq != nullptr) {
      EXPECT_EQ(fi_close(std::exchange(eq, nullptr)->base()), 0);
    }
  }
  fid_eq *c() { return eq->c(); }
  void write(uint32_t event) { EXPECT_EQ(fi_eq_write(c(), event, &event, sizeof event, 0), 4); }
  // The number that was written with the next event, or an error.
  ssize_t next(uint64_t flags = 0) {
    uint32_t event = 0, copy = 0;
    const ssize_t n = fi_eq_read(c(), &event, &copy, sizeof copy, flags);
    if (n < 0) return n;
    EXPECT_EQ(n, 4);
    EXPECT_EQ(event, copy);
    return event;
  }
  ssize_t sread(int timeout_ms = kPatienceMs) {
    uint32_t event = 0, copy = 0;
    const ssize_t n = fi_eq_sread(c(), &event, &copy, sizeof copy, timeout_ms, 0);
    return n < 0 ? n : event;
  }
  int fd() {
    int fd = -1;
    EXPECT_EQ(fi_control(eq->base(), FI_GETWAIT, &fd), 0);
    return fd;
  }

  // From now on an event of the source writes `number`, as an endpoint does when it is connected:
  // with its engine's lock held.
  void push_from(EventSource &source, uint32_t number) {
    Guard guard(source.engine.lock());
    source.event.then = [this, number] { write(number); };
  }

  TestInstance instance;
  fid_fabric fabric{};
  std::atomic<size_t> children{0};
  Eq *eq = nullptr;
};

// An error with every field that a provider can give.
inline const EventError kEventError{.context = reinterpret_cast<void *>(0x20),
                                    .data = 0x30,
                                    .err = FI_ECONNREFUSED,
                                    .prov_errno = 12345,
                                    .err_data = "go away"};

}  // namespace weft::sdk
