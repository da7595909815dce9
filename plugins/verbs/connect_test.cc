// SPDX-License-Identifier: BSD-2-Clause
// Connections of the plugin, over the double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/verbs/fabric.h"
#include "plugins/verbs/private_data.h"
#include "plugins/verbs/test_link.h"

namespace weft::verbs {
namespace {

using testing::HasSubstr;

TEST(VerbsPrivateData, CarriesUpTo55Bytes) {
  const PrivateData data(std::string(60, 'x'));
  EXPECT_EQ(data.bytes().size(), 56u);
  EXPECT_EQ(data.bytes()[0], 55);
  EXPECT_EQ(read_private_data(data.bytes().data(), 56), std::string(55, 'x'));
}

TEST(VerbsPrivateData, TheLengthByteDecidesAndPaddingIsIgnored) {
  char padded[196] = {};
  EXPECT_EQ(read_private_data(padded, sizeof padded), "");
  std::memcpy(padded, "\3abc", 4);
  EXPECT_EQ(read_private_data(padded, sizeof padded), "abc");
}

TEST(VerbsPrivateData, ALengthThatCannotBeIsNoParameter) {
  const char cut[] = {5, 'a', 'b'};
  EXPECT_EQ(read_private_data(cut, sizeof cut), "");
  char large[200] = {};
  large[0] = char(200);
  EXPECT_EQ(read_private_data(large, sizeof large), "");
  large[0] = 56;
  EXPECT_EQ(read_private_data(large, sizeof large), "");
  EXPECT_EQ(read_private_data(nullptr, 0), "");
}

TEST(VerbsConnect, BothSidesAreToldWithTheParameters) {
  Link link({}, /*connects=*/false);
  link.start("to b");
  const TestEvent request = link.requested();
  ASSERT_NE(request.info, nullptr);
  EXPECT_EQ(request.data, "to b");
  EXPECT_STREQ(request.info->domain_attr->name, "dbl0");
  link.b.make_endpoint(request.info);
  free_info(request.info);
  ASSERT_EQ(fi_accept(link.b.ep, "to a", 4), 0);
  const TestEvent at_a = link.next(link.a), at_b = link.next(link.b);
  EXPECT_EQ(at_a.type, uint32_t(FI_CONNECTED));
  EXPECT_EQ(at_a.fid, &link.a.ep->fid);
  EXPECT_EQ(at_a.data, "to a");
  EXPECT_EQ(at_b.type, uint32_t(FI_CONNECTED));
  EXPECT_EQ(at_b.fid, &link.b.ep->fid);
  sockaddr_in peer{};
  size_t size = sizeof peer;
  ASSERT_EQ(fi_getpeer(link.a.ep, &peer, &size), 0);
  EXPECT_EQ(peer.sin_port, link.address.sin_port);
}

TEST(VerbsConnect, ARejectionArrivesWithItsParameter) {
  Link link({}, /*connects=*/false);
  link.start("");
  const TestEvent request = link.requested();
  ASSERT_NE(request.info, nullptr);
  ASSERT_EQ(fi_reject(link.b.pep, request.info->handle, "no", 2), 0);
  free_info(request.info);
  const TestEvent refused = link.next(link.a);
  EXPECT_EQ(refused.err, FI_ECONNREFUSED);
  EXPECT_EQ(refused.data, "no");
  EXPECT_EQ(fi_send(link.a.ep, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
}

// A stranger that connects again and again takes no more than these places.
TEST(VerbsConnect, RequestsWithoutAnAnswerAreBounded) {
  Link link({.settings = {.backlog = 2}}, /*connects=*/false);
  link.a.open("10.99.0.1", std::to_string(ntohs(link.address.sin_port)));
  std::vector<fid_ep *> all;
  std::vector<TestEvent> requests;
  const auto connect = [&] {
    link.a.make_endpoint(link.a.info);
    all.push_back(std::exchange(link.a.ep, nullptr));
    EXPECT_EQ(fi_connect(all.back(), &link.address, nullptr, 0), 0);
    std::optional<TestEvent> refused;
    for (int i = 0; i < 8 && !refused; ++i) {
      refused = link.a.event();
      if (const auto request = link.b.event()) requests.push_back(*request);
    }
    return refused ? refused->err : 0;
  };
  EXPECT_EQ(connect(), 0);
  EXPECT_EQ(connect(), 0);
  EXPECT_EQ(connect(), FI_ECONNREFUSED);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(link.node.log(), HasSubstr("2 connection requests wait"));
  EXPECT_EQ(fi_reject(link.b.pep, requests[0].info->handle, nullptr, 0), 0);
  EXPECT_EQ(link.next(link.a).err, FI_ECONNREFUSED);
  EXPECT_EQ(connect(), 0);
  EXPECT_EQ(requests.size(), 3u);
  for (const TestEvent &request : requests) free_info(request.info);
  for (fid_ep *const ep : all) EXPECT_EQ(fi_close(&ep->fid), 0);
}

TEST(VerbsConnect, NobodyListensIsARefusal) {
  Link link({}, /*connects=*/false);
  ASSERT_EQ(fi_close(&link.b.pep->fid), 0);
  link.b.pep = nullptr;
  link.start("");
  EXPECT_EQ(link.next(link.a).err, FI_ECONNREFUSED);
}

TEST(VerbsConnect, ReceivesOfAFailedConnectionAreCancelled) {
  Link link({}, /*connects=*/false);
  ASSERT_EQ(fi_close(&link.b.pep->fid), 0);
  link.b.pep = nullptr;
  link.a.open("10.99.0.1", std::to_string(ntohs(link.address.sin_port)));
  link.a.make_endpoint(link.a.info);
  Buffer in(link.a, 8);
  ASSERT_EQ(fi_recv(link.a.ep, in.data(), 8, in.desc(), 0, &in), 0);  // there is no queue pair yet
  ASSERT_EQ(fi_connect(link.a.ep, &link.address, nullptr, 0), 0);
  EXPECT_EQ(link.next(link.a).err, FI_ECONNREFUSED);
  const fi_cq_err_entry error = link.a.failure();
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(error.op_context, &in);
}

// The first message waits at siw until more comes, and the application sends no more.
TEST(VerbsConnect, OverIwarpTheFirstMessageIsFollowedByANudge) {
  Link link({.device = {.features = {.reads_first = false}, .iwarp = true}});
  Buffer in(link.b, 16), out(link.a, 16, "hello");
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, nullptr), 0);
  ASSERT_EQ(fi_send(link.a.ep, out.data(), 5, out.desc(), 0, nullptr), 0);
  EXPECT_FALSE(link.b.try_completion());
  std::optional<fi_cq_data_entry> came;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!came && std::chrono::steady_clock::now() < end) {
    EXPECT_FALSE(link.a.event());  // makes progress
    came = link.b.try_completion();
  }
  ASSERT_TRUE(came);
  EXPECT_EQ(came->len, 5u);
  EXPECT_EQ(link.a.completion().len, 5u);
  EXPECT_FALSE(link.a.try_completion()) << "nothing tells of the nudge";
}

// A message that is kept back (FI_MORE) leaves with the nudge, in front of it.
TEST(VerbsConnect, OverIwarpANudgeTakesAlongWhatIsKeptBack) {
  Link link({.device = {.features = {.reads_first = false}, .iwarp = true}});
  Buffer in(link.b, 16), out(link.a, 16, "hello");
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, nullptr), 0);
  const iovec iov{out.data(), 5};
  void *desc = out.desc();
  fi_msg message{};
  message.msg_iov = &iov;
  message.desc = &desc;
  message.iov_count = 1;
  ASSERT_EQ(fi_sendmsg(link.a.ep, &message, FI_COMPLETION | FI_MORE), 0);
  std::optional<fi_cq_data_entry> came;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!came && std::chrono::steady_clock::now() < end) {
    EXPECT_FALSE(link.a.event());
    came = link.b.try_completion();
  }
  ASSERT_TRUE(came);
  EXPECT_EQ(in.text(5), "hello");
  EXPECT_EQ(link.a.completion().len, 5u);
}

TEST(VerbsConnect, ShutdownIsToldToBothSides) {
  Link link;
  ASSERT_EQ(fi_shutdown(link.a.ep, 0), 0);
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(link.next(link.b).type, uint32_t(FI_SHUTDOWN));
  EXPECT_FALSE(link.a.event());
  EXPECT_FALSE(link.b.event());
  EXPECT_EQ(fi_send(link.b.ep, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
}

TEST(VerbsConnect, ClosingOneSideIsAShutdownForTheOther) {
  Link link;
  Buffer in(link.b, 8);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 8, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_close(&link.a.ep->fid), 0);
  link.a.ep = nullptr;
  EXPECT_EQ(link.next(link.b).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(link.b.failure().err, FI_ECANCELED);
}

TEST(VerbsConnect, ADeviceThatGoesAwayEndsItsConnections) {
  Link link;
  link.node.device.remove();
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
  EXPECT_THAT(link.node.log(), HasSubstr("the device dbl0 is gone"));
}

TEST(VerbsConnect, ARequestWhoseDeviceIsGoneCanOnlyBeRejected) {
  Link link({}, /*connects=*/false);
  link.start("");
  const TestEvent request = link.requested();
  ASSERT_NE(request.info, nullptr);
  link.node.device.remove();
  EXPECT_EQ(link.next(link.a).err, FI_ENODEV);
  EXPECT_EQ(link.next(link.b).err, FI_ENODEV);  // of the passive endpoint
  fid_ep *ep = nullptr;
  EXPECT_EQ(fi_endpoint(link.b.domain, request.info, &ep, nullptr), -FI_ENODEV);
  EXPECT_EQ(fi_reject(link.b.pep, request.info->handle, nullptr, 0), 0);
  free_info(request.info);
}

TEST(VerbsConnect, AnEndpointThatCannotBeOpenedLeavesTheRequest) {
  Link link({}, /*connects=*/false);
  link.node.network.add({.name = "dbl1", .addresses = {"10.99.1.1"}});
  link.start("");
  const TestEvent request = link.requested();
  ASSERT_NE(request.info, nullptr);
  fi_info *const other = dup_info(request.info);
  free(other->domain_attr->name);
  other->domain_attr->name = strdup("dbl1");
  ASSERT_TRUE(Fabric::from(&link.b.fabric->fid)->devices().refresh());
  fid_domain *domain = nullptr;
  ASSERT_EQ(fi_domain(link.b.fabric, other, &domain, nullptr), 0) << link.node.log();
  fid_ep *ep = nullptr;
  EXPECT_EQ(fi_endpoint(domain, request.info, &ep, nullptr), -FI_EINVAL);
  EXPECT_THAT(link.node.log(), HasSubstr("the request came to another device than dbl1"));
  free_info(other);
  EXPECT_EQ(fi_close(&domain->fid), 0);
  link.b.make_endpoint(request.info);  // the right one
  free_info(request.info);
  ASSERT_EQ(fi_accept(link.b.ep, nullptr, 0), 0);
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_CONNECTED));
}

TEST(VerbsConnect, ARequestThatNobodyReadEndsWithItsPassiveEndpoint) {
  Link link({}, /*connects=*/false);
  link.start("");
  uint32_t type = 0;
  fi_eq_cm_entry entry{};
  for (int i = 0; i < 8 && type != FI_CONNREQ; ++i) {
    EXPECT_FALSE(link.a.event());  // makes the progress of a's side
    (void)fi_eq_read(link.b.eq, &type, &entry, sizeof entry, FI_PEEK);
  }
  ASSERT_EQ(type, uint32_t(FI_CONNREQ));
  ASSERT_EQ(fi_close(&link.b.pep->fid), 0);
  link.b.pep = nullptr;
  EXPECT_EQ(link.next(link.a).err, FI_ECONNREFUSED);
}

TEST(VerbsConnect, AnAcceptThatFailsRejectsAndGivesTheReceivesBack) {
  Link link({}, /*connects=*/false);
  link.start("");
  const TestEvent request = link.requested();
  ASSERT_NE(request.info, nullptr);
  link.b.make_endpoint(request.info);
  free_info(request.info);
  Buffer in(link.b, 8);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 8, in.desc(), 0, &in), 0);
  link.node.network.fail({.call = "ibv_post_recv", .error = EINVAL});
  EXPECT_EQ(fi_accept(link.b.ep, nullptr, 0), -EINVAL);
  EXPECT_EQ(link.next(link.a).err, FI_ECONNREFUSED);
  const fi_cq_err_entry error = link.b.failure();
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(error.op_context, &in);
}

TEST(VerbsConnect, ACompletionQueueComesBeforeFiEnable) {
  Link link;
  fid_cq *cq = nullptr;
  fi_cq_attr attr{};
  ASSERT_EQ(fi_cq_open(link.a.domain, &attr, &cq, nullptr), 0);
  EXPECT_EQ(fi_ep_bind(link.a.ep, &cq->fid, FI_TRANSMIT), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_close(&cq->fid), 0);
}

TEST(VerbsConnect, AnAcceptedRequestWhoseDeviceIsGoneIsToldByAnEvent) {
  Link link({}, /*connects=*/false);
  link.start("");
  const TestEvent request = link.requested();
  ASSERT_NE(request.info, nullptr);
  link.b.make_endpoint(request.info);
  free_info(request.info);
  link.node.device.remove();
  EXPECT_EQ(link.next(link.b).err, FI_ENODEV);  // of the passive endpoint
  ASSERT_EQ(fi_accept(link.b.ep, nullptr, 0), 0);
  const TestEvent failed = link.next(link.b);
  EXPECT_EQ(failed.fid, &link.b.ep->fid);
  EXPECT_EQ(failed.err, FI_ENODEV);
  EXPECT_EQ(fi_accept(link.b.ep, nullptr, 0), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_connect(link.b.ep, &link.address, nullptr, 0), -FI_EISCONN);
}

TEST(VerbsConnect, ANameWhoseDeviceIsGoneNeedsNoEventQueue) {
  Link link({}, /*connects=*/false);
  fid_pep *pep = nullptr;
  ASSERT_EQ(fi_passive_ep(link.b.fabric, link.b.info, &pep, nullptr), 0);
  ASSERT_EQ(fi_setname(&pep->fid, link.b.info->src_addr, link.b.info->src_addrlen), 0);
  link.node.device.remove();
  EXPECT_EQ(link.next(link.b).fid, &link.b.pep->fid);
  EXPECT_FALSE(link.b.event());
  EXPECT_EQ(fi_pep_bind(pep, &link.b.eq->fid, 0), 0);
  EXPECT_NE(fi_listen(pep), 0);
  EXPECT_EQ(fi_close(&pep->fid), 0);
}

TEST(VerbsConnect, ACallThatFailsIsReportedWithItsReason) {
  Link link({}, /*connects=*/false);
  link.node.network.fail({.call = "rdma_create_qp", .error = ENOMEM});
  link.start("");
  EXPECT_EQ(link.next(link.a).err, FI_ENOMEM);
  EXPECT_THAT(link.node.log(), HasSubstr("rdma_create_qp on dbl0"));
}

}  // namespace
}  // namespace weft::verbs
