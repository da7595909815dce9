// SPDX-License-Identifier: BSD-2-Clause
// Datagrams (fi_msg.3, fi_endpoint.3, fi_cq.3): every form of send and receive, sources,
// truncation, limits, cancel, batches, counters and selective completion.
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/conformance/dgram_harness.h"
#include "tests/conformance/messages.h"

namespace weft::conformance::dgram {
namespace {

using unconnected::Bytes, unconnected::Form, unconnected::FormTest, unconnected::kInject,
    unconnected::kSend, unconnected::kSendmsg, unconnected::kSendv, unconnected::message_of,
    unconnected::When;

const Form kForms[] = {
    kSend,
    kSendv,
    kSendmsg,
    {"SendmsgInject", true, false,
     [](unconnected::Net &net, Bytes &out) {
       Bytes copy = out;
       const auto iov = cut(copy, 3);
       const fi_msg message = message_of(iov, net.at(0, 1), &out);
       const ssize_t rc = fi_sendmsg(net[0].ep, &message, FI_COMPLETION | FI_INJECT);
       std::fill(copy.begin(), copy.end(), 0xdd);  // the buffer is the caller's again
       return rc;
     }},
    {"SendmsgInjectMore", true, false,
     [](unconnected::Net &net, Bytes &out) {
       Bytes copy = out;
       const auto iov = cut(copy, 3);
       const fi_msg message = message_of(iov, net.at(0, 1), &out);
       const ssize_t rc = fi_sendmsg(net[0].ep, &message, FI_COMPLETION | FI_INJECT | FI_MORE);
       std::fill(copy.begin(), copy.end(), 0xdd);
       return rc;
     }},
    {"SendmsgMore", true, false,
     [](unconnected::Net &net, Bytes &out) {
       const auto iov = cut(out, 1);
       const fi_msg message = message_of(iov, net.at(0, 1), &out);
       return fi_sendmsg(net[0].ep, &message, FI_COMPLETION | FI_MORE);
     }},
    kInject,
};

class DgramForm : public FormTest {};
INSTANTIATE_TEST_SUITE_P(All, DgramForm, unconnected::every_form(kForms), unconnected::form_name);

TEST_P(DgramForm, EverySizeArrivesOnce) {
  DGRAM_NEEDS(FI_MSG, "FI_MSG");
  Net net;
  const auto [form, when] = GetParam();
  if (when == When::kAfter)
    NEEDS_SOFTWARE(FI_EP_DGRAM, "a device drops a datagram without a receive");
  // Of all forms that inject, this one is told what is too much.
  const bool injects = std::string_view(form.name).starts_with("SendmsgInject");
  const size_t most =
      injects ? net[0].info->tx_attr->inject_size : net[0].info->ep_attr->max_msg_size;
  arrives_once(net, {0, 1, 8, std::min<size_t>(500, most), most - 1, most}, true);
}

TEST(DgramMsg, RecvvAndRecvmsgScatter) {
  DGRAM_NEEDS(FI_MSG, "FI_MSG");
  Net net;
  scatters(net, {0, 1, 3, 100, 1000});
}

TEST(DgramMsg, ImpossibleSendsAreRefusedAtTheCall) {
  covers("limits");
  Net net;
  const size_t most = net[0].info->ep_attr->max_msg_size;
  Bytes bytes(most + 1);
  const fi_addr_t to = net.at(0, 1);
  EXPECT_EQ(fi_send(net[0].ep, bytes.data(), most + 1, nullptr, to, nullptr), -FI_EMSGSIZE);
  EXPECT_EQ(fi_inject(net[0].ep, bytes.data(), most + 1, to), -FI_EMSGSIZE);
  const iovec huge[2] = {{bytes.data(), SIZE_MAX}, {bytes.data(), 2}};
  EXPECT_EQ(fi_sendv(net[0].ep, huge, nullptr, 2, to, nullptr), -FI_EMSGSIZE);
  auto iov = cut(bytes, net[0].info->tx_attr->iov_limit + 1);
  EXPECT_LT(fi_sendv(net[0].ep, iov.data(), nullptr, iov.size(), to, nullptr), 0);
  EXPECT_LT(fi_recvv(net[0].ep, iov.data(), nullptr, iov.size(), FI_ADDR_UNSPEC, nullptr), 0);
  EXPECT_LT(fi_sendv(net[0].ep, nullptr, nullptr, 1, to, nullptr), 0);
  EXPECT_LT(fi_recv(net[0].ep, nullptr, 10, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  if (net[0].info->domain_attr->cq_data_size == 0) {
    EXPECT_LT(fi_senddata(net[0].ep, bytes.data(), 1, nullptr, 7, to, nullptr), 0);
    EXPECT_LT(fi_injectdata(net[0].ep, bytes.data(), 1, 7, to), 0);
  }
  EXPECT_LT(fi_send(net[0].ep, bytes.data(), 1, nullptr, 1000, nullptr), 0) << "no such peer";
  EXPECT_LT(fi_send(net[0].ep, bytes.data(), 1, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  const std::vector<iovec> whole = cut(bytes, 1);
  const fi_msg message = message_of(whole, to, nullptr);
  EXPECT_LT(fi_sendmsg(net[0].ep, &message, uint64_t(1) << 63), 0);
  EXPECT_LT(fi_sendmsg(net[0].ep, &message, FI_DELIVERY_COMPLETE), 0)
      << "no datagram can promise that";
  EXPECT_LT(fi_sendmsg(net[0].ep, nullptr, 0), 0);
  EXPECT_LT(fi_recvmsg(net[0].ep, nullptr, 0), 0);
  EXPECT_LT(fi_recvmsg(net[0].ep, &message, FI_PEEK), 0);
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq).has_value()) << "a refused call must not complete";
  net.exchange(0, 1, most);
}

// Devices differ in how they call it: soft-RoCE says that the operation failed.
bool is_truncation(int error) {
  return error == FI_ETRUNC || (is_of_a_device(FI_EP_DGRAM) && error == FI_EIO);
}

// fi_cq.3: FI_ETRUNC, olen is what did not fit; the endpoint goes on.
TEST(DgramMsg, TruncationIsAnErrorOfThatReceiveOnly) {
  covers("truncation");
  Net net;
  for (size_t size : {1, 100, 1400}) {
    for (size_t room : {size_t(0), size_t(size / 2), size_t(size - 1)}) {
      for (size_t parts : {1, 2}) {
        SCOPED_TRACE(std::to_string(size) + " into " + std::to_string(room));
        Bytes out = pattern(size, 1), in(size, 0xee), head(in);
        head.resize(room);
        const std::vector<iovec> iov{{in.data(), room / parts},
                                     {in.data() + room / parts, room - room / parts}};
        must(fi_recvv(net[1].ep, iov.data(), nullptr, 2, FI_ADDR_UNSPEC, &in));
        net.post([&] { return kSend.send(net, out); });
        const Completion got = net.wait(net[1].rx_cq);
        EXPECT_TRUE(is_truncation(got.err)) << got.err;
        EXPECT_EQ(got.context, &in);
        if (!is_of_a_device(FI_EP_DGRAM)) {  // which says no more, and need not write
          EXPECT_EQ(got.len, room);
          EXPECT_EQ(got.olen, size - room);
          EXPECT_TRUE(std::equal(in.begin(), in.begin() + ptrdiff_t(room), out.begin()));
        }
        for (size_t i = room; i < size; ++i) ASSERT_EQ(in[i], 0xee) << "behind the buffer";
        EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
        net.exchange(0, 1, size);
      }
    }
  }
}

TEST(DgramMsg, SourcesAreNamedByTheAddressVector) {
  DGRAM_NEEDS(FI_MSG | FI_SOURCE, "FI_SOURCE");
  covers("FI_AV_MAP");
  covers("FI_AV_TABLE");
  for (auto type : {FI_AV_TABLE, FI_AV_MAP}) {
    Options options;
    options.caps |= FI_SOURCE;
    options.av_type = type;
    Net net(4, options);
    names_its_sources(net, {10});
  }
}

TEST(DgramMsg, SourcesAreNamedByTheIdsOfTheUser) {
  DGRAM_NEEDS_SOCKETS();
  DGRAM_NEEDS(FI_MSG | FI_SOURCE | FI_AV_USER_ID, "FI_AV_USER_ID");
  Options options;
  options.caps |= FI_SOURCE | FI_AV_USER_ID;
  Net net(1, options);
  PlainSocket known, other;
  const std::string addresses = known.name() + other.name();
  fi_addr_t names[] = {UINT64_C(0xfeed00000001), UINT64_C(0xfeed00000002)};
  ASSERT_EQ(fi_av_insert(net[0].av, addresses.data(), 1, names, FI_AV_USER_ID, nullptr), 1);
  names[1] = net[0].insert(other.name());
  Bytes in(100);
  const Bytes out = pattern(33, 1);
  for (PlainSocket *socket : {&known, &other}) {
    must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    ASSERT_EQ(socket->send(net[0].name(), out), 0);
    const fi_addr_t expected = socket == &known ? UINT64_C(0xfeed00000001) : names[1];
    EXPECT_EQ(net.wait(net[0].rx_cq).source, expected);
  }
  must(fi_send(net[0].ep, out.data(), out.size(), nullptr, names[0], nullptr));
  EXPECT_EQ(known.receive(), out) << "calls take the address";
}

// More than one process: rdm_shared_av_test.cc, over layers. The vector is the same.
TEST(DgramMsg, AVectorIsSharedByItsName) {
  DGRAM_NEEDS(FI_MSG | FI_SHARED_AV, "FI_SHARED_AV");
  Options options;
  options.caps |= FI_SHARED_AV;
  Net net(1, options);
  options.av_name = "weft-test-dgram-" + std::to_string(getpid());
  Node inserts(options), sends(options);
  EXPECT_TRUE(sends.info->domain_attr->caps & FI_SHARED_AV);
  const fi_addr_t to = inserts.insert(net[0].name());
  EXPECT_EQ(sends.av_names[0], to);
  Bytes out = pattern(10, 1), in(10);
  must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] {
    sends.progress();
    return fi_send(sends.ep, out.data(), out.size(), nullptr, to, &out);
  });
  EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
  EXPECT_EQ(in, out);
}

TEST(DgramMsg, WithoutTheCapabilityNoSourceIsNamed) {
  covers("FI_SOURCE");
  Net net;
  Bytes out = pattern(10, 1), in(10);
  must(fi_recv(net[1].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] { return kSend.send(net, out); });
  EXPECT_EQ(net.wait(net[1].rx_cq).source, FI_ADDR_NOTAVAIL);
}

// A stranger's datagram is received. It has no source until the stranger is inserted.
TEST(DgramMsg, ADatagramOfAnUnknownSourceIsReceived) {
  DGRAM_NEEDS_SOCKETS();
  DGRAM_NEEDS(FI_MSG | FI_SOURCE, "FI_SOURCE");
  Options options;
  options.caps |= FI_SOURCE;
  Net net(1, options);
  PlainSocket stranger;
  const Bytes out = pattern(33, 1);
  Bytes in(100);
  fi_addr_t known = FI_ADDR_NOTAVAIL;
  for (int round = 0; round < 3; ++round) {
    must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    ASSERT_EQ(stranger.send(net[0].name(), out), 0);
    const Completion got = net.wait(net[0].rx_cq);
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.len, 33u);
    EXPECT_EQ(got.source, known);
    if (round == 0) known = net[0].insert(stranger.name());
    if (round == 1) {
      must(fi_av_remove(net[0].av, &known, 1, 0));
      known = FI_ADDR_NOTAVAIL;
    }
  }
}

// fi_cq.3: with FI_SOURCE_ERR the entry is an error with the address in err_data, with which the
// sender can be inserted.
TEST(DgramMsg, AnUnknownSourceIsReportedByItsAddress) {
  DGRAM_NEEDS_SOCKETS();
  DGRAM_NEEDS(FI_MSG | FI_SOURCE | FI_SOURCE_ERR, "FI_SOURCE_ERR");
  Options options;
  options.caps |= FI_SOURCE | FI_SOURCE_ERR;
  Net net(1, options);
  PlainSocket stranger;
  const Bytes out = pattern(33, 1);
  Bytes in(33);
  must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  ASSERT_EQ(stranger.send(net[0].name(), out), 0);
  const Completion got = net.wait(net[0].rx_cq);
  EXPECT_EQ(got.err, FI_EADDRNOTAVAIL);
  EXPECT_EQ(got.context, &in);
  EXPECT_EQ(got.len, 33u);
  EXPECT_EQ(in, out);
  EXPECT_EQ(got.err_data, stranger.name());
  const fi_addr_t known = net[0].insert(got.err_data);
  must(fi_send(net[0].ep, in.data(), in.size(), nullptr, known, &in));
  EXPECT_EQ(stranger.receive(), out);
  must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  ASSERT_EQ(stranger.send(net[0].name(), out), 0);
  const Completion again = net.wait(net[0].rx_cq);
  EXPECT_EQ(again.err, 0);
  EXPECT_EQ(again.source, known);
}

TEST(DgramMsg, APlainSocketIsAPeer) {
  DGRAM_NEEDS_SOCKETS();
  covers("plain sockets as peers");
  Net net(1);
  PlainSocket peer;
  const fi_addr_t to = net[0].insert(peer.name());
  for (size_t size : {0, 1, 1000, 1400}) {
    Bytes out = pattern(size, 3), in(size);
    must(fi_send(net[0].ep, out.data(), size, nullptr, to, nullptr));
    std::string from;
    EXPECT_EQ(peer.receive(&from), out);
    EXPECT_EQ(from, net[0].name());
    must(fi_recv(net[0].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
    ASSERT_EQ(peer.send(from, out), 0);
    EXPECT_EQ(net.wait(net[0].rx_cq).len, size);
    EXPECT_EQ(in, out);
  }
}

TEST(DgramMsg, CancelEndsAReceive) {
  NEEDS_SOFTWARE(FI_EP_DGRAM, "a device does not give receives back");
  covers("fi_cancel");
  Net net;
  EXPECT_EQ(cancel_ends_a_receive(net), -FI_ENOENT);
}

TEST(DgramMsg, EachCancelEndsAReceive) {
  NEEDS_SOFTWARE(FI_EP_DGRAM, "a device does not give receives back");
  covers("fi_cancel");
  Net net;
  Bytes in(100);
  each_cancel_ends_a_receive(net, [&](void *context) {
    return fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, context);
  });
}

TEST(DgramMsg, AnEndpointSendsToItself) {
  covers("FI_LOCAL_COMM");
  Net net(1);
  net.exchange(0, 0, 1000);
}

TEST(DgramMsg, ReceivesAreTakenBeyondTheQueuesSize) {
  NEEDS_SOFTWARE(FI_EP_DGRAM, "a device has as many as rx_attr.size says");
  covers("limits");
  constexpr size_t kLimit = 16, kSome = 40;
  for (const size_t count : {kLimit - 1, kLimit, kLimit + 1, 10 * kLimit, size_t(100'000)}) {
    SCOPED_TRACE(count);
    std::vector<uint32_t> in(count);
    Options options;
    options.rx_size = kLimit;
    options.rx_cq.size = 8;
    Net net(2, options);
    for (uint32_t &word : in)
      ASSERT_EQ(fi_recv(net[1].ep, &word, sizeof word, nullptr, FI_ADDR_UNSPEC, &word), 0);
    for (uint32_t i = 0; i < std::min(count, kSome); ++i) {
      net.post([&] { return fi_inject(net[0].ep, &i, sizeof i, net.at(0, 1)); });
      ASSERT_EQ(net.wait(net[1].rx_cq).context, &in[i]);
      ASSERT_EQ(in[i], i);
    }
  }
}

TEST(DgramMsg, ReceivesOfADeviceAreLimitedByTheQueuesSize) {
  if (!is_of_a_device(FI_EP_DGRAM)) GTEST_SKIP() << "software takes more";
  covers("limits");
  Options options;
  options.rx_size = 16;
  Net net(2, options);
  const size_t size = net[1].info->rx_attr->size;
  std::vector<Bytes> in(size, Bytes(8));
  for (auto &buffer : in)
    must(fi_recv(net[1].ep, buffer.data(), 8, nullptr, FI_ADDR_UNSPEC, &buffer));
  EXPECT_EQ(fi_recv(net[1].ep, in[0].data(), 8, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EAGAIN);
  Bytes out = pattern(8, 3);
  net.post([&] { return kSend.send(net, out); });
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &in[0]) << "in order of posting";
  must(fi_recv(net[1].ep, in[0].data(), 8, nullptr, FI_ADDR_UNSPEC, nullptr));
}

// FI_RM_ENABLED: while completions are not read, sends return -FI_EAGAIN. Nothing is lost, nothing
// overruns.
TEST(DgramMsg, AFullQueueDelaysSends) {
  covers("FI_RM_ENABLED");
  Options options;
  options.resource_mgmt = FI_RM_ENABLED;
  options.tx_cq.size = 8;
  Net net(2, options);
  Bytes out = pattern(8, 1);
  ssize_t rc = 0;
  size_t sent = 0;
  while (sent < 100000 && (rc = kSend.send(net, out)) == 0) ++sent;
  EXPECT_EQ(rc, -FI_EAGAIN);
  EXPECT_GE(sent, 8u);
  EXPECT_LT(sent, 100000u);
  for (size_t i = 0; i < sent; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_FALSE(poll(net[0].tx_cq).has_value());
  EXPECT_EQ(kSend.send(net, out), 0);
}

TEST(DgramMsg, CountersCount) {
  DGRAM_NEEDS_COUNTERS();
  covers("counters");
  fid_cntr *sent = nullptr, *received = nullptr;
  Net net(2, {}, [&](Node &node) {
    (sent == nullptr ? sent : received) = node.count(sent == nullptr ? FI_SEND : FI_RECV);
  });
  Bytes in(100), out = pattern(100, 1);
  for (unsigned i = 0; i < 5; ++i) {
    must(fi_recv(net[1].ep, in.data(), i == 4 ? 50 : 100, nullptr, FI_ADDR_UNSPEC, &in));
    must(fi_inject(net[0].ep, out.data(), 100, net.at(0, 1)));
    net.wait(net[1].rx_cq);
  }
  EXPECT_EQ(fi_cntr_read(sent), 5u);
  EXPECT_EQ(fi_cntr_read(received), 4u);
  EXPECT_EQ(fi_cntr_readerr(received), 1u) << "the truncated one";
}

TEST(DgramMsg, SelectiveCompletionReportsRequestedCompletionsAndErrors) {
  covers("FI_SELECTIVE_COMPLETION");
  Options options;
  options.tx_cq_flags = options.rx_cq_flags = FI_SELECTIVE_COMPLETION;
  Net net(2, options);
  Bytes in(100), out = pattern(100, 1);
  const auto iov = cut(out, 1), into = cut(in, 1);
  const fi_msg message = message_of(iov, net.at(0, 1), &out),
               receive = message_of(into, FI_ADDR_UNSPEC, &in);
  must(fi_recv(net[1].ep, in.data(), 100, nullptr, FI_ADDR_UNSPEC, nullptr));
  must(fi_recvmsg(net[1].ep, &receive, FI_COMPLETION));
  must(fi_recv(net[1].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, nullptr));
  must(fi_send(net[0].ep, out.data(), 100, nullptr, net.at(0, 1), nullptr));
  must(fi_sendmsg(net[0].ep, &message, FI_COMPLETION));
  must(fi_sendmsg(net[0].ep, &message, 0));
  EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
  EXPECT_TRUE(is_truncation(net.wait(net[1].rx_cq).err));
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq).has_value());
  EXPECT_FALSE(poll(net[1].rx_cq).has_value());
}

// ---- batches ----

// Sends with FI_MORE leave with the send that ends the batch, or at the next progress. Each is one
// datagram and completes. Here they are in order.
TEST(DgramMore, ABatchArrivesWhole) {
  covers("FI_MORE");
  Options options;
  options.caps |= FI_SOURCE;
  Net net(3, options);
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    const size_t count = 1 + random() % 150;
    const bool ends = random() % 2;
    std::vector<Bytes> out, in(count, Bytes(1472));
    size_t size = random() % 1473;
    for (size_t i = 0; i < count; ++i) {
      if (random() % 10 == 0) size = random() % 1473;
      out.push_back(pattern(size, unsigned(i)));
    }
    for (auto &buffer : in)
      must(fi_recv(net[1].ep, buffer.data(), buffer.size(), nullptr, FI_ADDR_UNSPEC, &buffer));
    for (size_t i = 0; i < count; ++i) {
      const auto iov = cut(out[i], 1 + random() % 3);
      const fi_msg message = message_of(iov, net.at(0, 1), &out[i]);
      const bool more = i + 1 < count || !ends;
      net.post(
          [&] { return fi_sendmsg(net[0].ep, &message, FI_COMPLETION | (more ? FI_MORE : 0)); });
    }
    for (size_t i = 0; i < count; ++i) {
      const Completion got = net.wait(net[1].rx_cq);
      ASSERT_EQ(got.err, 0);
      ASSERT_EQ(got.context, &in[i]);
      ASSERT_EQ(got.len, out[i].size());
      ASSERT_EQ(got.source, net.at(1, 0));
      in[i].resize(got.len);
      ASSERT_EQ(in[i], out[i]) << i;
      const Completion sent = net.wait(net[0].tx_cq);
      ASSERT_EQ(sent.err, 0);
      ASSERT_EQ(sent.context, &out[i]);
    }
  }
}

// A send without FI_MORE leaves nothing behind: no progress is made between it and the receiver.
TEST(DgramMore, TheEndOfABatchFlushesAllOfIt) {
  DGRAM_NEEDS_SOCKETS();
  covers("FI_MORE");
  Net net(1);
  PlainSocket a, b;
  const fi_addr_t to[2] = {net[0].insert(a.name()), net[0].insert(b.name())};
  const Bytes original = pattern(700, 1);
  Bytes bytes = original;
  const auto iov = cut(bytes, 1);
  const auto fill = [&] { std::copy(original.begin(), original.end(), bytes.begin()); };
  const auto batch = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const fi_msg message = message_of(iov, to[i % 2], nullptr);
      must(fi_sendmsg(net[0].ep, &message, FI_MORE | FI_COMPLETION));
    }
  };
  const auto expect = [&](PlainSocket &at, size_t count) {
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(at.receive(), original) << i;
    EXPECT_FALSE(at.receive(nullptr, std::chrono::milliseconds(0)));
  };
  batch(10);
  must(fi_send(net[0].ep, bytes.data(), bytes.size(), nullptr, to[0], nullptr));
  std::fill(bytes.begin(), bytes.end(), 0xdd);  // all of it is the caller's again
  expect(a, 6);
  expect(b, 5);
  fill();
  batch(2);
  must(fi_inject(net[0].ep, bytes.data(), bytes.size(), to[1]));
  expect(a, 1);
  expect(b, 2);
  // A call that fails ends the batch as well.
  batch(4);
  EXPECT_LT(fi_send(net[0].ep, bytes.data(), 1, nullptr, 4711, nullptr), 0);
  std::fill(bytes.begin(), bytes.end(), 0xdd);
  expect(a, 2);
  expect(b, 2);
  fill();
  batch(2);
  EXPECT_EQ(fi_send(net[0].ep, bytes.data(), 1 << 20, nullptr, to[0], nullptr), -FI_EMSGSIZE);
  std::fill(bytes.begin(), bytes.end(), 0xdd);
  expect(a, 1);
  expect(b, 1);
}

// A datagram that the kernel refuses completes with the reason, and the others leave.
TEST(DgramMore, AFailureEndsOneDatagramOnly) {
  DGRAM_NEEDS_SOCKETS();
  covers("FI_MORE");
  Net net(1);
  PlainSocket peer;
  const fi_addr_t to = net[0].insert(peer.name());
  PlainSocket broadcast;  // only its address is borrowed
  std::string name = broadcast.name();
  std::fill(name.begin() + 4, name.begin() + 8, char(0xff));
  const fi_addr_t nobody = net[0].insert(name);
  Bytes bytes = pattern(100, 1);
  char a, b, c;
  const auto iov = cut(bytes, 1);
  for (auto [dest, context] : {std::pair{to, &a}, {nobody, &b}, {to, &c}}) {
    const fi_msg message = message_of(iov, dest, context);
    must(fi_sendmsg(net[0].ep, &message, FI_MORE | FI_COMPLETION));
  }
  const Completion first = net.wait(net[0].tx_cq), second = net.wait(net[0].tx_cq),
                   third = net.wait(net[0].tx_cq);
  EXPECT_EQ(first.err, 0);
  EXPECT_EQ(first.context, &a);
  EXPECT_TRUE(second.err == FI_EACCES || second.err == ENETUNREACH) << second.err;
  EXPECT_EQ(second.context, &b);
  EXPECT_EQ(third.err, 0);
  EXPECT_EQ(third.context, &c);
  EXPECT_EQ(peer.receive(), bytes);
  EXPECT_EQ(peer.receive(), bytes);
}

// ---- what others send ----

// A hostile peer: datagrams of every kind of size, to an endpoint that expects small ones.
TEST(DgramHostile, EverySizeIsReceivedOrReported) {
  DGRAM_NEEDS_SOCKETS();
  covers("hostile peers");
  Options options;
  options.caps |= FI_SOURCE;
  Net net(1, options);
  PlainSocket peer;
  std::mt19937 random(3);
  std::vector<size_t> sizes;
  for (size_t size = 0; size <= 65507; size += 1 + size / 8 + random() % 40) sizes.push_back(size);
  sizes.push_back(65507);
  for (size_t room : {0, 1, 64, 1472, 65536}) {
    for (size_t size : sizes) {
      Bytes in(room + 8, 0xee);
      const Bytes out = pattern(size, unsigned(size));
      must(fi_recv(net[0].ep, in.data(), room, nullptr, FI_ADDR_UNSPEC, &in));
      ASSERT_EQ(peer.send(net[0].name(), out), 0);
      const Completion got = net.wait(net[0].rx_cq);
      ASSERT_EQ(got.err, size > room ? FI_ETRUNC : 0) << size << " into " << room;
      ASSERT_EQ(got.len, std::min(size, room));
      ASSERT_EQ(got.olen, size - std::min(size, room));
      ASSERT_TRUE(std::equal(in.begin(), in.begin() + ptrdiff_t(got.len), out.begin()));
      for (size_t i = room; i < in.size(); ++i) ASSERT_EQ(in[i], 0xee) << "behind the buffer";
    }
  }
}

TEST(DgramHostile, AFloodCostsNoMemoryAndHarmsNoOtherPeer) {
  DGRAM_NEEDS_SOCKETS();
  covers("hostile peers");
  Net net(2);
  PlainSocket peer;
  const Bytes out = pattern(60000, 1);
  for (int i = 0; i < 2000; ++i)
    peer.send(net[1].name(), out);  // the socket drops what is too much
  net.exchange(1, 0, 1000);
  Bytes in(100);
  size_t seen = 0;
  for (; seen < 100000; ++seen) {
    must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    net.settle();
    const auto got = poll(net[1].rx_cq);
    if (!got) break;
    EXPECT_EQ(got->err, FI_ETRUNC);
  }
  EXPECT_GT(seen, 0u);
  EXPECT_LT(seen, 2000u);
  must(fi_cancel(net[1].ep.fid(), &in));
  EXPECT_EQ(net.wait(net[1].rx_cq).err, FI_ECANCELED);
  net.exchange(0, 1, 1000);
}

}  // namespace
}  // namespace weft::conformance::dgram
