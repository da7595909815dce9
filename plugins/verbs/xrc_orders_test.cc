// SPDX-License-Identifier: BSD-2-Clause
// XRC endpoints that connect, send and end at random, while messages of the connection manager and
// operations of the devices come in random order. Each run follows from its seed.
#include <gtest/gtest.h>
#include <weft/sdk/progress/engine.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "plugins/verbs/test_xrc.h"

namespace weft::verbs {
namespace {

constexpr uint64_t kSeeds = 150;

class VerbsXrcOrders : public VerbsXrc, public testing::WithParamInterface<uint64_t> {
 protected:
  static Settings impatient() {
    Settings settings;
    settings.close_linger_ms = 0;  // nothing goes on while a call waits
    // A peer that ends its endpoint before the second half of a connection tells nobody.
    settings.connect_timeout_ms = 100;
    return settings;
  }
  VerbsXrcOrders()
      : VerbsXrc({.progress = verbs_double::Progress::kByStep, .seed = GetParam()}, impatient()),
        random_(GetParam()) {}

  // With a peer fi_getinfo would wait for the devices, which do nothing meanwhile.
  void open_a() override { a.open(); }

  struct Told {
    XrcSide *side;
    int connected = 0, failed = 0, shut = 0;
  };

  size_t pick(size_t below) { return size_t(random_() % below); }

  void read_events(XrcSide &side) {
    while (auto event = side.event()) {
      if (event->type == FI_CONNREQ) {
        requests_.push_back(event->info);
        continue;
      }
      const auto at = told_.find(event->fid);
      ASSERT_NE(at, told_.end()) << "an event of an endpoint that is closed";
      Told &told = at->second;
      if (event->type == FI_CONNECTED) ++told.connected;
      if (event->type == FI_SHUTDOWN) {
        ++told.shut;
        EXPECT_EQ(told.connected, 1);
      }
      if (event->err != 0) ++told.failed;
      EXPECT_EQ(told.shut <= 1 && told.connected + told.failed == 1, true);
    }
  }
  void read_completions(XrcSide &side) {
    fi_cq_data_entry entry{};
    for (;;) {
      ssize_t n = fi_cq_read(side.cq, &entry, 1);
      void *context = entry.op_context;
      if (n == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        ASSERT_EQ(fi_cq_readerr(side.cq, &error, 0), 1);
        context = error.op_context;
        n = 1;
      }
      if (n != 1) return;
      if (context == nullptr) {  // a receive
        ++free_receives_[&side];
        continue;
      }
      // What was on its way to the reader when its endpoint was closed may be told.
      EXPECT_EQ(in_flight_.erase(context) + closed_.erase(context), 1u) << context;
    }
  }
  void post_receives(XrcSide &side, Buffer &buffer) {
    for (size_t &free = free_receives_[&side]; free != 0; --free)
      ASSERT_EQ(fi_recv(side.srx, buffer.data(), 8, buffer.desc(), 0, nullptr), 0);
  }
  void track(XrcSide &side, fid_ep *ep) { told_[&ep->fid] = {.side = &side}; }
  void answer() {
    if (requests_.empty()) return;
    fi_info *const request = requests_.front();
    requests_.pop_front();
    if (pick(5) == 0) {
      EXPECT_EQ(fi_reject(b.pep, request->handle, "no", 2), 0);
    } else {
      fid_ep *const ep = b.make(request);
      track(b, ep);
      EXPECT_EQ(fi_accept(ep, nullptr, 0), 0);
    }
    free_info(request);
  }
  fid_ep *some_endpoint(XrcSide *&side) {
    if (told_.empty()) return nullptr;
    auto at = told_.begin();
    std::advance(at, ptrdiff_t(pick(told_.size())));
    side = at->second.side;
    return reinterpret_cast<fid_ep *>(at->first);
  }
  void close(XrcSide &side, fid_ep *ep) {
    std::erase_if(in_flight_, [&](const auto &item) {
      return item.second == ep && closed_.insert(item.first).second;
    });
    told_.erase(&ep->fid);
    side.close(ep);
  }

  std::mt19937_64 random_;
  std::map<fid *, Told> told_;
  std::deque<fi_info *> requests_;
  std::map<void *, fid_ep *> in_flight_;
  std::set<void *> closed_;  // sends whose endpoint was closed before they were told
  std::map<XrcSide *, size_t> free_receives_{{&a, 16}, {&b, 16}};
};

TEST_P(VerbsXrcOrders, EveryConnectionAndEverySendIsToldOnce) {
  Buffer memory_a(a, 64), memory_b(b, 64);
  size_t made = 0;
  uintptr_t next_context = 0;
  for (int i = 0; i < 400 && !HasFatalFailure(); ++i) {
    XrcSide *side = nullptr;
    for (size_t steps = pick(6); steps != 0; --steps) node.network.step();
    switch (pick(8)) {
      case 0:
        if (made++ < 12) track(a, start("hello"));
        break;
      case 1:
        answer();
        break;
      case 2:
        read_events(pick(2) == 0 ? a : b);
        break;
      case 3:
        read_completions(pick(2) == 0 ? a : b);
        break;
      case 4:
        post_receives(a, memory_a);
        post_receives(b, memory_b);
        break;
      case 5:
      case 6:
        if (fid_ep *const ep = some_endpoint(side)) {
          Buffer &memory = side == &a ? memory_a : memory_b;
          void *const context = reinterpret_cast<void *>(++next_context);
          const ssize_t rc = fi_send(ep, memory.data(), 8, memory.desc(), 0, context);
          if (rc == 0) in_flight_[context] = ep;
          EXPECT_TRUE(rc == 0 || rc == -FI_ENOTCONN || rc == -FI_ESHUTDOWN || rc == -FI_EAGAIN)
              << rc;
        }
        break;
      default:
        if (fid_ep *const ep = pick(6) == 0 ? some_endpoint(side) : nullptr) {
          if (pick(2) == 0) {
            const int rc = fi_shutdown(ep, 0);
            EXPECT_TRUE(rc == 0 || rc == -FI_ENOTCONN || rc == -FI_ESHUTDOWN) << rc;
          } else {
            close(*side, ep);
          }
        }
    }
  }
  // All that is under way arrives.
  const auto is_open = [](const auto &item) {
    return item.second.connected + item.second.failed == 0;
  };
  const uint64_t end = sdk::now_ns() + 10'000'000'000u;
  for (int i = 0; i < 60 || (sdk::now_ns() < end && std::ranges::any_of(told_, is_open)); ++i) {
    if (HasFatalFailure()) return;
    node.network.run();
    read_events(a);
    read_events(b);
    answer();
    read_completions(a);
    read_completions(b);
    post_receives(a, memory_a);
    post_receives(b, memory_b);
  }
  for (const auto &[fid, told] : told_) EXPECT_EQ(told.connected + told.failed, 1);
  EXPECT_TRUE(in_flight_.empty()) << in_flight_.size() << " sends are not told";
  EXPECT_TRUE(requests_.empty());
  while (!told_.empty()) {
    XrcSide *const side = told_.begin()->second.side;
    close(*side, reinterpret_cast<fid_ep *>(told_.begin()->first));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, VerbsXrcOrders, testing::Range(uint64_t{1}, kSeeds + 1));

}  // namespace
}  // namespace weft::verbs
