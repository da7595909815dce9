// SPDX-License-Identifier: BSD-2-Clause
// Messages between reliable datagram endpoints (fi_msg.3, fi_endpoint.3): every form of send and
// receive over every size at which a protocol changes, truncation, cancel, order.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/conformance/messages.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

using unconnected::Form, unconnected::FormTest, unconnected::kData, unconnected::kInject,
    unconnected::kSendmsg, unconnected::kSendv, unconnected::message_of;

const Form kForms[] = {
    unconnected::kSend,
    kSendv,
    kSendmsg,
    {"SendmsgWithData", true, true,
     [](unconnected::Net &net, std::vector<uint8_t> &out) {
       const auto iov = cut(out, std::min<size_t>(2, net[0].info->tx_attr->iov_limit));
       const fi_msg message = message_of(iov, net.at(0, 1), &out);
       return fi_sendmsg(net[0].ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA);
     }},
    {"Senddata", true, true,
     [](unconnected::Net &net, std::vector<uint8_t> &out) {
       return fi_senddata(net[0].ep, out.data(), out.size(), nullptr, kData, net.at(0, 1), &out);
     }},
    kInject,
    {"Injectdata", false, true,
     [](unconnected::Net &net, std::vector<uint8_t> &out) {
       std::vector<uint8_t> copy = out;
       const ssize_t rc = fi_injectdata(net[0].ep, copy.data(), copy.size(), kData, net.at(0, 1));
       std::fill(copy.begin(), copy.end(), 0xdd);
       return rc;
     }},
};

class RdmMsgForm : public FormTest {};
INSTANTIATE_TEST_SUITE_P(All, RdmMsgForm, unconnected::every_form(kForms), unconnected::form_name);

TEST_P(RdmMsgForm, EverySizeArrivesOnce) {
  RDM_NEEDS(FI_MSG);
  Net net;
  arrives_once(net, edges(), false);
}

TEST(RdmMsg, RecvvAndRecvmsgScatter) {
  RDM_NEEDS(FI_MSG);
  Net net;
  scatters(net, edges());
}

TEST(RdmMsg, MoreVectorsThanTheLimitAreRefused) {
  RDM_NEEDS(FI_MSG);
  std::vector<uint8_t> bytes(64);
  Net net;
  net.exchange(0, 1);  // connected: no -FI_EAGAIN of a connection that is still being made
  auto iov = cut(bytes, net[0].info->tx_attr->iov_limit + 1);
  EXPECT_LT(fi_sendv(net[0].ep, iov.data(), nullptr, iov.size(), net.at(0, 1), nullptr), 0);
  iov = cut(bytes, net[0].info->rx_attr->iov_limit + 1);
  EXPECT_LT(fi_recvv(net[0].ep, iov.data(), nullptr, iov.size(), FI_ADDR_UNSPEC, nullptr), 0);
}

// fi_cq.3: FI_ETRUNC, olen is what did not fit; the endpoint goes on.
TEST(RdmMsg, TruncationIsAnErrorOfThatReceiveOnly) {
  RDM_NEEDS(FI_MSG);
  Net net;
  for (size_t size : {100, 5000, 20000, 200000, 1 << 20}) {
    for (size_t room : {size_t(0), size_t(10), size - 1}) {
      SCOPED_TRACE(std::to_string(size) + " into " + std::to_string(room));
      std::vector<uint8_t> out = pattern(size, 1), in(size, 0xee);
      must(fi_recv(net[1].ep, in.data(), room, nullptr, FI_ADDR_UNSPEC, &in));
      net.post([&] { return unconnected::kSend.send(net, out); });
      const Completion got = net.wait(net[1].rx_cq);
      EXPECT_EQ(got.err, FI_ETRUNC);
      EXPECT_EQ(got.context, &in);
      EXPECT_EQ(got.olen, size - room);
      for (size_t i = room; i < size; ++i) ASSERT_EQ(in[i], 0xee) << "behind the buffer, at " << i;
      net.wait(net[0].tx_cq);  // with or without an error: the man pages leave it open
      net.exchange(0, 1, size);
    }
  }
}

// fi_msg.3: FI_MORE is a hint. Where nothing follows, the message leaves all the same.
TEST(RdmMsg, WhatIsSentWithFiMoreLeavesAtTheNextProgress) {
  RDM_NEEDS(FI_MSG);
  for (const size_t size : {8, 20000}) {
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    Net net;
    net.exchange(0, 1);
    must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    const iovec iov{out.data(), out.size()};
    const fi_msg msg{
        .msg_iov = &iov, .iov_count = 1, .addr = net.at(0, 1), .context = &out, .data = 0};
    net.post([&] { return fi_sendmsg(net[0].ep, &msg, FI_MORE | FI_COMPLETION); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
    EXPECT_EQ(in, out);
  }
}

TEST(RdmMsg, ManyUnexpectedMessagesWaitInOrder) {
  RDM_NEEDS(FI_MSG);
  Net net;
  constexpr size_t kCount = 1000;
  for (size_t i = 0; i < kCount; ++i) {
    std::vector<uint8_t> out = pattern(i % 60, unsigned(i));
    net.post([&] { return fi_inject(net[0].ep, out.data(), out.size(), net.at(0, 1)); });
  }
  for (size_t i = 0; i < kCount; ++i) {
    std::vector<uint8_t> in(64);
    must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    in.resize(got.len);
    ASSERT_EQ(in, pattern(i % 60, unsigned(i))) << "message " << i;
  }
}

// Large messages without a receive, of every protocol, mixed.
TEST(RdmMsg, LargeUnexpectedMessagesWaitInOrder) {
  RDM_NEEDS(FI_MSG);
  Options options;
  options.order = FI_ORDER_SAS;
  std::vector<std::vector<uint8_t>> out;
  Net net(2, options);
  const size_t sizes[] = {10, 300000, 17000, 0, 140000, 5000, 1 << 20, 64};
  for (size_t i = 0; i < 24; ++i) out.push_back(pattern(sizes[i % std::size(sizes)], unsigned(i)));
  for (auto &bytes : out) net.post([&] { return unconnected::kSend.send(net, bytes); });
  net.settle();
  for (auto &bytes : out) {
    std::vector<uint8_t> in(1 << 20);
    must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    in.resize(got.len);
    ASSERT_EQ(in, bytes);
  }
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

// fi_endpoint.3, FI_ORDER_SAS: sends are matched in the order in which they were posted.
TEST(RdmMsg, SendsOfOnePeerMatchInOrder) {
  RDM_NEEDS(FI_MSG);
  covers("FI_ORDER_SAS");
  Options options;
  options.order = FI_ORDER_SAS;
  Net net(2, options);
  const size_t sizes[] = {8, 100, 20000, 0, 150000, 64, 3000};
  constexpr size_t kCount = 56;
  std::vector<std::vector<uint8_t>> out, in(kCount, std::vector<uint8_t>(150000));
  for (auto &buffer : in)
    must(fi_recv(net[1].ep, buffer.data(), buffer.size(), nullptr, FI_ADDR_UNSPEC, &buffer));
  for (size_t i = 0; i < kCount; ++i) out.push_back(pattern(sizes[i % 7], unsigned(i)));
  for (auto &bytes : out) net.post([&] { return unconnected::kSend.send(net, bytes); });
  for (size_t i = 0; i < kCount; ++i) {
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    auto &buffer = *static_cast<std::vector<uint8_t> *>(got.context);
    buffer.resize(got.len);
  }
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(in[i], out[i]) << "message " << i;
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

TEST(RdmMsg, CancelEndsAReceive) {
  RDM_NEEDS(FI_MSG);
  Net net;
  cancel_ends_a_receive(net);
}

TEST(RdmMsg, EachCancelEndsAReceive) {
  RDM_NEEDS(FI_MSG);
  covers("fi_cancel");
  Net net;
  std::vector<uint8_t> in(100);
  each_cancel_ends_a_receive(net, [&](void *context) {
    return fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, context);
  });
}

// Whether a send ends earlier by that is not said: each ends once.
TEST(RdmMsg, EachCancelIsOfAnotherSend) {
  covers("fi_cancel");
  constexpr int kMany = 8;
  for (const size_t size : {8, 100000}) {
    SCOPED_TRACE(size);
    Options options;
    options.tx_op_flags = FI_DELIVERY_COMPLETE;
    if (!find_info(options)) GTEST_SKIP() << "fi_getinfo does not offer this level";
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    Net net(2, options);
    net.exchange(0, 1);
    char one;
    for (int i = 0; i < kMany; ++i)
      net.post([&] { return fi_send(net[0].ep, out.data(), size, nullptr, net.at(0, 1), &one); });
    for (int i = 0; i < kMany; ++i) EXPECT_EQ(fi_cancel(net[0].ep.fid(), &one), 0) << i;
    EXPECT_EQ(fi_cancel(net[0].ep.fid(), &one), -FI_ENOENT) << "there is none any more";
    for (int i = 0; i < kMany; ++i)
      must(fi_recv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
    for (int i = 0; i < kMany; ++i) {
      const Completion sent = net.wait(net[0].tx_cq);
      EXPECT_TRUE(sent.err == 0 || sent.err == FI_ECANCELED) << sent.err;
      EXPECT_EQ(sent.context, &one);
    }
    EXPECT_EQ(fi_cancel(net[0].ep.fid(), &one), -FI_ENOENT) << "they have ended";
  }
}

TEST(RdmMsg, AnEndpointSendsToItself) {
  RDM_NEEDS(FI_MSG);
  Net net(1);
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 5), in(size);
    must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    net.post(
        [&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 0), &out); });
    const Completion got = net.wait(net[0].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    EXPECT_EQ(in, out);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
}

TEST(RdmMsg, MessagesAndTaggedMessagesDoNotMix) {
  RDM_NEEDS(FI_MSG | FI_TAGGED);
  std::vector<uint8_t> plain(64), tagged(64), out = pattern(64, 1), out2 = pattern(64, 2);
  Net net;
  must(fi_recv(net[1].ep, plain.data(), 64, nullptr, FI_ADDR_UNSPEC, &plain));
  must(fi_trecv(net[1].ep, tagged.data(), 64, nullptr, FI_ADDR_UNSPEC, 0, ~0ull, &tagged));
  net.post([&] { return fi_tsend(net[0].ep, out.data(), 64, nullptr, net.at(0, 1), 0, &out); });
  net.post([&] { return fi_send(net[0].ep, out2.data(), 64, nullptr, net.at(0, 1), &out2); });
  net.wait(net[1].rx_cq);
  net.wait(net[1].rx_cq);
  EXPECT_EQ(tagged, out);
  EXPECT_EQ(plain, out2);
}

TEST(RdmMsg, DirectedReceivesTakeFromTheirSourceOnly) {
  RDM_NEEDS(FI_MSG | FI_DIRECTED_RECV);
  Options options;
  options.caps |= FI_DIRECTED_RECV;
  Net net(3, options);
  for (size_t size : {10, 20000, 200000}) {
    for (bool expected : {true, false}) {
      SCOPED_TRACE(std::to_string(size) + (expected ? " expected" : " unexpected"));
      std::vector<uint8_t> of1(size), of2(size), out1 = pattern(size, 1), out2 = pattern(size, 2);
      const auto receive = [&] {
        must(fi_recv(net[0].ep, of2.data(), size, nullptr, net.at(0, 2), &of2));
        must(fi_recv(net[0].ep, of1.data(), size, nullptr, net.at(0, 1), &of1));
      };
      if (expected) receive();
      net.post([&] { return fi_send(net[1].ep, out1.data(), size, nullptr, net.at(1, 0), &out1); });
      net.settle();
      net.post([&] { return fi_send(net[2].ep, out2.data(), size, nullptr, net.at(2, 0), &out2); });
      net.settle();
      if (!expected) receive();
      for (int i = 0; i < 2; ++i) EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
      EXPECT_EQ(of1, out1);
      EXPECT_EQ(of2, out2);
      net.wait(net[1].tx_cq);
      net.wait(net[2].tx_cq);
    }
  }
}

TEST(RdmMsg, SourcesAreNamedByTheAddressVector) {
  RDM_NEEDS(FI_MSG | FI_SOURCE);
  Options options;
  options.caps |= FI_SOURCE;
  Net net(4, options);
  names_its_sources(net, {8, 20000, 200000});
}

}  // namespace
}  // namespace weft::conformance::rdm
