// SPDX-License-Identifier: BSD-2-Clause
// For tests of XRC endpoints: two sides over the double, each with any number of endpoints.
//
// Example:
//    TEST_F(VerbsXrc, SendsOne) {
//      const XrcPair pair = connect();
//      exchange(pair.a, a, b, "hello");
//    }
//
// The name of the fixture is that of the suite. Not for other protocols: test_link.h.
#ifndef WEFT_PLUGINS_VERBS_TEST_XRC_H
#define WEFT_PLUGINS_VERBS_TEST_XRC_H

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/verbs/test_link.h"

namespace weft::verbs {

// A side with any number of endpoints.
class XrcSide : public TestSide {
 public:
  XrcSide(TestNode &node, const Settings &settings) : TestSide(node, settings) {
    protocol = FI_PROTO_RDMA_CM_IB_XRC;
    shares_receives = true;
  }
  ~XrcSide() {
    for (fid_ep *each : all)
      if (each != nullptr) {
        EXPECT_EQ(fi_close(&each->fid), 0);
      }
  }
  fid_ep *make(fi_info *with) {
    make_endpoint(with);
    all.push_back(std::exchange(ep, nullptr));
    return all.back();
  }
  void close(fid_ep *which) {
    std::ranges::replace(all, which, static_cast<fid_ep *>(nullptr));
    EXPECT_EQ(fi_close(&which->fid), 0);
  }
  void post(Buffer &buffer) {
    ASSERT_EQ(fi_recv(srx, buffer.data(), buffer.size(), buffer.desc(), 0, &buffer), 0);
  }
  std::vector<fid_ep *> all;
  std::deque<TestEvent> events;
};

struct XrcPair {
  fid_ep *a = nullptr, *b = nullptr;
};

class VerbsXrc : public testing::Test {
 protected:
  explicit VerbsXrc(const verbs_double::NetworkOptions &network = {}, const Settings &given = {})
      : settings(given), node(network) {}
  void SetUp() override {
    b.open();
    ASSERT_STREQ(b.info->domain_attr->name, "dbl0");
    ASSERT_EQ(fi_passive_ep(b.fabric, b.info, &b.pep, nullptr), 0) << test_log();
    ASSERT_EQ(fi_pep_bind(b.pep, &b.eq->fid, 0), 0);
    ASSERT_EQ(fi_listen(b.pep), 0) << test_log();
    size_t size = sizeof address;
    ASSERT_EQ(fi_getname(&b.pep->fid, &address, &size), 0);
    open_a();
  }
  virtual void open_a() { a.open("10.99.0.1", std::to_string(ntohs(address.sin_port))); }
  // All events of both sides.
  void pump() {
    for (int quiet = 0; quiet < 4;) {
      bool any = node.network.run() != 0;
      for (XrcSide *side : {&a, &b})
        while (auto event = side->event()) {
          side->events.push_back(*event);
          any = true;
        }
      quiet = any ? 0 : quiet + 1;
    }
  }
  std::optional<TestEvent> take(XrcSide &side) {
    pump();
    if (side.events.empty()) return {};
    const TestEvent event = side.events.front();
    side.events.pop_front();
    return event;
  }
  TestEvent next(XrcSide &side) {
    auto event = take(side);
    EXPECT_TRUE(event) << "no event: " << test_log();
    return event.value_or(TestEvent{});
  }
  // The next one of this type; others before it wait.
  TestEvent next(XrcSide &side, uint32_t type) {
    pump();
    const auto at = std::ranges::find(side.events, type, &TestEvent::type);
    if (at == side.events.end()) {
      ADD_FAILURE() << "no such event: " << test_log();
      return {};
    }
    const TestEvent event = *at;
    side.events.erase(at);
    return event;
  }
  fid_ep *start(const std::string &parameter) {
    fid_ep *const ep = a.make(a.info);
    EXPECT_EQ(fi_connect(ep, &address, parameter.data(), parameter.size()), 0) << test_log();
    return ep;
  }
  XrcPair connect() {
    XrcPair pair;
    pair.a = start("to b");
    const TestEvent request = next(b);
    EXPECT_EQ(request.type, uint32_t(FI_CONNREQ));
    EXPECT_EQ(request.data, "to b");
    if (request.info == nullptr) return pair;
    pair.b = b.make(request.info);
    free_info(request.info);
    EXPECT_EQ(fi_accept(pair.b, "to a", 4), 0) << test_log();
    const TestEvent at_a = next(a), at_b = next(b);
    EXPECT_EQ(at_a.type, uint32_t(FI_CONNECTED)) << test_log();
    EXPECT_EQ(at_a.fid, &pair.a->fid);
    EXPECT_EQ(at_a.data, "to a");
    EXPECT_EQ(at_b.type, uint32_t(FI_CONNECTED));
    EXPECT_EQ(at_b.fid, &pair.b->fid);
    return pair;
  }
  void exchange(fid_ep *from, XrcSide &sender, XrcSide &receiver, const std::string &text) {
    Buffer in(receiver, 64), out(sender, 64, text);
    receiver.post(in);
    ASSERT_EQ(fi_send(from, out.data(), text.size(), out.desc(), 0, &out), 0);
    const fi_cq_data_entry got = receiver.completion();
    EXPECT_EQ(got.op_context, &in);
    EXPECT_EQ(got.len, text.size());
    EXPECT_EQ(in.text(text.size()), text);
    EXPECT_EQ(sender.completion().op_context, &out);
  }
  uint64_t queue_pairs() { return node.network.calls("rdma_create_qp_ex"); }

  const Settings settings;
  TestNode node;
  XrcSide a{node, settings}, b{node, settings};
  sockaddr_in address{};
};

}  // namespace weft::verbs

#endif
