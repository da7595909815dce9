// SPDX-License-Identifier: BSD-2-Clause
// XRC endpoints over the double: connections, sharing of queue pairs, and ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "plugins/verbs/test_xrc.h"
#include "plugins/verbs/xrc_data.h"

namespace weft::verbs {
namespace {

using testing::HasSubstr;

std::string_view text_of(const XrcMessage &message) {
  return {reinterpret_cast<const char *>(message.bytes().data()), message.bytes().size()};
}

TEST(VerbsXrcData, HasTheSheetsLayout) {
  const XrcMessage message({.reciprocal = true, .port = 0x1234, .target = 0x56, .srq = 7, .tag = 9},
                           "hi");
  const uint8_t expected[] = {2, 1, 0x12, 0x34, 0, 0, 0, 0x56, 0, 0, 0, 7, 0, 0, 0, 9, 2, 'h', 'i'};
  ASSERT_EQ(message.bytes().size(), sizeof expected);
  EXPECT_EQ(std::memcmp(message.bytes().data(), expected, sizeof expected), 0);
  const auto got = parse_xrc(text_of(message));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->data, (XrcData{true, 0x1234, 0x56, 7, 9}));
  EXPECT_EQ(got->parameter, "hi");
}

TEST(VerbsXrcData, WhatCannotBeIsNothing) {
  const XrcMessage most({.srq = 0xffffff}, std::string(60, 'x'));
  EXPECT_EQ(most.bytes().size(), 56u);
  std::string good(text_of(most));
  ASSERT_TRUE(parse_xrc(good));
  EXPECT_EQ(parse_xrc(good)->parameter.size(), kXrcParameterSize);
  EXPECT_FALSE(parse_xrc(good.substr(0, 55)));
  EXPECT_FALSE(parse_xrc(good.substr(0, 16)));
  EXPECT_FALSE(parse_xrc(""));
  for (const auto &[at, value] : {std::pair{0, 1}, {1, 2}, {4, 1}, {8, 1}, {16, 40}}) {
    std::string bad = good;
    bad[size_t(at)] = char(value);
    EXPECT_FALSE(parse_xrc(bad)) << at;
  }
}

TEST_F(VerbsXrc, IsOfferedOnlyToThoseWhoAsk) {
  fi_info hints{};
  hints.mode = FI_RX_CQ_DATA;
  auto list = a.provider.getinfo({.hints = &hints});
  ASSERT_TRUE(list);
  for (const fi_info *info = list->front(); info != nullptr; info = info->next)
    EXPECT_NE(info->ep_attr->protocol, uint32_t(FI_PROTO_RDMA_CM_IB_XRC));
  EXPECT_EQ(a.info->ep_attr->protocol, uint32_t(FI_PROTO_RDMA_CM_IB_XRC));
  EXPECT_EQ(a.info->ep_attr->rx_ctx_cnt, FI_SHARED_CONTEXT);
  Settings prefers;
  prefers.prefer_xrc = true;
  VerbsProvider provider(&node.instance, prefers);
  list = provider.getinfo({.hints = &hints});
  ASSERT_TRUE(list);
  EXPECT_EQ(list->front()->ep_attr->protocol, uint32_t(FI_PROTO_RDMA_CM_IB_XRC));
  bool has_rc = false;
  for (const fi_info *info = list->front(); info != nullptr; info = info->next)
    has_rc = has_rc || info->ep_attr->protocol == FI_PROTO_RDMA_CM_IB_RC;
  EXPECT_TRUE(has_rc);
}

TEST_F(VerbsXrc, MessagesGoBothWays) {
  const XrcPair pair = connect();
  exchange(pair.a, a, b, "from a");
  exchange(pair.b, b, a, "from b");
}

TEST_F(VerbsXrc, LaterEndpointsShareTheQueuePairs) {
  const XrcPair first = connect();
  const uint64_t before = queue_pairs();
  EXPECT_EQ(before, 4u);
  const XrcPair second = connect(), third = connect();
  EXPECT_EQ(queue_pairs(), before);
  exchange(first.a, a, b, "one");
  exchange(second.a, a, b, "two");
  exchange(third.b, b, a, "three");
  exchange(second.b, b, a, "four");
}

TEST_F(VerbsXrc, EndpointsThatConnectAtOnceShareThemToo) {
  fid_ep *const one = start("1"), *const two = start("2");
  for (int i = 0; i < 2; ++i) {
    const TestEvent request = next(b, FI_CONNREQ);
    ASSERT_NE(request.info, nullptr) << test_log();
    EXPECT_EQ(request.data, std::to_string(i + 1));
    fid_ep *const accepting = b.make(request.info);
    free_info(request.info);
    ASSERT_EQ(fi_accept(accepting, nullptr, 0), 0);
    EXPECT_EQ(next(b, FI_CONNECTED).fid, &accepting->fid);
    const TestEvent at_a = next(a);
    EXPECT_EQ(at_a.type, uint32_t(FI_CONNECTED)) << test_log();
    EXPECT_EQ(at_a.fid, i == 0 ? &one->fid : &two->fid);
  }
  EXPECT_EQ(queue_pairs(), 4u);
  exchange(two, a, b, "second");
}

TEST_F(VerbsXrc, MemoryOfThePeerIsReachedThroughIt) {
  const XrcPair pair = connect();
  Buffer target(b, 16), source(a, 16, "0123456789");
  ASSERT_EQ(fi_write(pair.a, source.data(), 10, source.desc(), 0, target.address(), target.key(),
                     &source),
            0);
  EXPECT_EQ(a.completion().op_context, &source);
  EXPECT_EQ(target.text(10), "0123456789");
}

TEST_F(VerbsXrc, AReceiveMayBePostedBeforeAnEndpointIsThere) {
  Buffer in(b, 16), in2(b, 16), out(a, 16, "early");
  b.post(in);
  b.post(in2);
  const XrcPair pair = connect();
  ASSERT_EQ(fi_send(pair.a, out.data(), 5, out.desc(), 0, nullptr), 0);
  EXPECT_EQ(b.completion().op_context, &in);
  a.completion();
}

TEST_F(VerbsXrc, ARejectionArrivesWithItsParameter) {
  start("");
  TestEvent request = next(b);
  ASSERT_NE(request.info, nullptr);
  ASSERT_EQ(fi_reject(b.pep, request.info->handle, "no", 2), 0);
  free_info(request.info);
  TestEvent refused = next(a);
  EXPECT_EQ(refused.err, FI_ECONNREFUSED);
  EXPECT_EQ(refused.data, "no");
  // Of a lookup, too, and the shared queue pair stays.
  const XrcPair pair = connect();
  start("");
  request = next(b);
  ASSERT_NE(request.info, nullptr);
  ASSERT_EQ(fi_reject(b.pep, request.info->handle, "never", 5), 0);
  free_info(request.info);
  refused = next(a);
  EXPECT_EQ(refused.err, FI_ECONNREFUSED);
  EXPECT_EQ(refused.data, "never");
  exchange(pair.a, a, b, "still");
}

TEST_F(VerbsXrc, TheNextOneConnectsWhereTheFirstWasRejected) {
  start("1");
  fid_ep *const two = start("2");
  TestEvent request = next(b);
  ASSERT_NE(request.info, nullptr);
  ASSERT_EQ(fi_reject(b.pep, request.info->handle, nullptr, 0), 0);
  free_info(request.info);
  EXPECT_EQ(next(a).err, FI_ECONNREFUSED);
  request = next(b);
  ASSERT_NE(request.info, nullptr) << test_log();
  EXPECT_EQ(request.data, "2");
  fid_ep *const accepting = b.make(request.info);
  free_info(request.info);
  ASSERT_EQ(fi_accept(accepting, nullptr, 0), 0);
  EXPECT_EQ(next(a).fid, &two->fid);
  exchange(two, a, b, "second");
}

TEST_F(VerbsXrc, NobodyListensIsARefusal) {
  ASSERT_EQ(fi_close(&b.pep->fid), 0);
  b.pep = nullptr;
  start("");
  EXPECT_EQ(next(a).err, FI_ECONNREFUSED);
}

TEST_F(VerbsXrc, ShutdownOfTheLastEndpointIsToldToThePeer) {
  const XrcPair pair = connect();
  ASSERT_EQ(fi_shutdown(pair.a, 0), 0);
  const TestEvent at_a = next(a), at_b = next(b);
  EXPECT_EQ(at_a.type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(at_b.type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(at_b.fid, &pair.b->fid);
  EXPECT_EQ(fi_send(pair.a, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  EXPECT_EQ(fi_send(pair.b, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  EXPECT_FALSE(take(a));
  EXPECT_FALSE(take(b));
  // And a new connection can be made.
  a.close(pair.a);
  b.close(pair.b);
  exchange(connect().a, a, b, "again");
}

TEST_F(VerbsXrc, AnEndpointThatEndsLeavesTheOthersAlone) {
  const XrcPair first = connect(), second = connect();
  ASSERT_EQ(fi_shutdown(first.a, 0), 0);
  EXPECT_EQ(next(a).fid, &first.a->fid);
  exchange(second.a, a, b, "still here");
  exchange(second.b, b, a, "and back");
  a.close(first.a);
  exchange(second.a, a, b, "and here");
}

TEST_F(VerbsXrc, ClosingIsToldToThePeer) {
  const XrcPair pair = connect();
  a.close(pair.a);
  EXPECT_EQ(next(b).type, uint32_t(FI_SHUTDOWN));
}

TEST_F(VerbsXrc, SendsWithoutAReceiveFailWhenTheConnectionEnds) {
  const XrcPair pair = connect();
  Buffer out(a, 8);
  ASSERT_EQ(fi_send(pair.a, out.data(), 8, out.desc(), 0, &out), 0);
  ASSERT_EQ(fi_shutdown(pair.a, 0), 0);
  const fi_cq_err_entry error = a.failure();
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(error.op_context, &out);
}

TEST_F(VerbsXrc, AQueuePairThatBreaksEndsAllWhoShareIt) {
  const XrcPair first = connect(), second = connect();
  Buffer in(b, 4), out(a, 8);
  b.post(in);
  ASSERT_EQ(fi_send(first.a, out.data(), 8, out.desc(), 0, &out), 0);  // too long
  EXPECT_EQ(a.failure().op_context, &out);
  EXPECT_EQ(b.failure().err, FI_ETRUNC);
  std::set<fid *> ended;
  for (int i = 0; i < 2; ++i) {
    const TestEvent event = next(a);
    EXPECT_EQ(event.type, uint32_t(FI_SHUTDOWN));
    ended.insert(event.fid);
  }
  EXPECT_EQ(ended, (std::set<fid *>{&first.a->fid, &second.a->fid}));
  EXPECT_EQ(next(b).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(next(b).type, uint32_t(FI_SHUTDOWN));
}

TEST_F(VerbsXrc, ADeviceThatGoesAwayEndsThem) {
  const XrcPair first = connect();
  connect();
  start("unanswered");
  const TestEvent request = next(b);
  EXPECT_EQ(request.data, "unanswered");
  free_info(request.info);
  node.device.remove();
  pump();
  size_t shut = 0, failed = 0;
  for (const TestEvent &event : a.events) {
    shut += event.type == FI_SHUTDOWN;
    failed += event.err != 0;
  }
  EXPECT_EQ(shut, 2u);
  EXPECT_EQ(failed, 1u);
  EXPECT_EQ(fi_send(first.a, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  a.events.clear();
  b.events.clear();
}

TEST_F(VerbsXrc, AnEndpointNeedsASharedReceiveContext) {
  fid_ep *ep = nullptr;
  ASSERT_EQ(fi_endpoint(a.domain, a.info, &ep, nullptr), 0);
  ASSERT_EQ(fi_ep_bind(ep, &a.eq->fid, 0), 0);
  ASSERT_EQ(fi_ep_bind(ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  EXPECT_NE(fi_enable(ep), 0);
  EXPECT_THAT(node.log(), HasSubstr("shared"));
  EXPECT_EQ(fi_close(&ep->fid), 0);
}

TEST_F(VerbsXrc, OtherEndpointsCannotAnswerItsRequests) {
  start("");
  const TestEvent request = next(b);
  ASSERT_NE(request.info, nullptr);
  request.info->ep_attr->protocol = FI_PROTO_RDMA_CM_IB_RC;
  fid_ep *ep = nullptr;
  EXPECT_EQ(fi_endpoint(b.domain, request.info, &ep, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_reject(b.pep, request.info->handle, nullptr, 0), 0);
  free_info(request.info);
  EXPECT_EQ(next(a).err, FI_ECONNREFUSED);
}

TEST_F(VerbsXrc, ParametersHave39Bytes) {
  size_t most = 0, size = sizeof most;
  ASSERT_EQ(fi_getopt(&b.pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &size), 0);
  EXPECT_EQ(most, kXrcParameterSize);
  start(std::string(60, 'p'));
  const TestEvent request = next(b);
  EXPECT_EQ(request.data, std::string(39, 'p'));
  ASSERT_NE(request.info, nullptr);
  ASSERT_EQ(fi_close(request.info->handle), 0);
  free_info(request.info);
  EXPECT_EQ(next(a).err, FI_ECONNREFUSED);
}

// The sides are on hosts of their own.
class VerbsXrcHosts : public VerbsXrc {
 protected:
  void open_a() override {
    node.network.add({.name = "dbl1", .addresses = {"10.99.1.1"}});
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x0a630101);
    fi_info hints{};
    hints.mode = FI_RX_CQ_DATA;
    hints.addr_format = FI_SOCKADDR_IN;
    hints.src_addr = &from;
    hints.src_addrlen = sizeof from;
    hints.dest_addr = &address;
    hints.dest_addrlen = sizeof address;
    fi_ep_attr ep_attr{};
    ep_attr.protocol = FI_PROTO_RDMA_CM_IB_XRC;
    hints.ep_attr = &ep_attr;
    a.open({.hints = &hints});
    ASSERT_STREQ(a.info->domain_attr->name, "dbl1");
  }
};

TEST_F(VerbsXrcHosts, MessagesGoBothWays) {
  const XrcPair first = connect(), second = connect();
  exchange(first.a, a, b, "from a");
  exchange(second.b, b, a, "from b");
  EXPECT_EQ(queue_pairs(), 4u);
}

TEST_F(VerbsXrcHosts, AHostThatDiesEndsItsConnections) {
  const XrcPair first = connect(), second = connect();
  node.device.vanish();  // the host of b
  Buffer out(a, 8);
  ASSERT_EQ(fi_send(first.a, out.data(), 8, out.desc(), 0, &out), 0);
  const fi_cq_err_entry error = a.failure();
  EXPECT_EQ(error.err, FI_ETIMEDOUT);
  EXPECT_EQ(error.op_context, &out);
  EXPECT_EQ(next(a).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(next(a).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(fi_send(second.a, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  start("nobody answers");
  EXPECT_EQ(next(a).err, FI_ETIMEDOUT);
}

}  // namespace
}  // namespace weft::verbs
