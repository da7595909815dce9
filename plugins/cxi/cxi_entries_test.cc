// SPDX-License-Identifier: BSD-2-Clause
// A NIC with few list entries: who is told that there are no more, and that all goes on when there
// are some again.
#include <rdma/fi_trigger.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

// Where software matches, messages without a receive go to request buffers and need no entry each.
#define NIC_MATCHES() \
  if (software_matches()) GTEST_SKIP() << "software matches: messages need no entry each"

constexpr size_t kMany = 100;

// Its own process, with a NIC of its own.
bool with_few_entries(const char *more = "FI_LOG_LEVEL=warn") {
  return in_fresh_process({"FI_CXI_SOFT_LIST_ENTRIES=40", "FI_LOG_LEVEL=warn",
                           "FI_CXI_SOFT_DEVICES=cxi0=127.0.0.43", more});
}

int open_endpoint(Node &node, std::vector<Handle<fid_ep>> &endpoints) {
  Handle<fid_ep> endpoint;
  must(fi_endpoint(node.domain, node.info.get(), endpoint.out(), nullptr));
  must(fi_ep_bind(endpoint, node.av.fid(), 0));
  must(fi_ep_bind(endpoint, node.tx_cq.fid(), FI_TRANSMIT));
  must(fi_ep_bind(endpoint, node.rx_cq.fid(), FI_RECV));
  const int rc = fi_enable(endpoint);
  endpoints.push_back(std::move(endpoint));
  return rc;
}

TEST(CxiEntries, WithoutThemAnEndpointIsNotEnabled) {
  if (!with_few_entries()) return;
  Node node((Options()));
  std::vector<Handle<fid_ep>> endpoints;
  testing::internal::CaptureStderr();
  int rc = 0;
  while (rc == 0 && endpoints.size() < kMany) rc = open_endpoint(node, endpoints);
  EXPECT_EQ(rc, -FI_ENOSPC);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("no list entry left for"), std::string::npos) << log;
  EXPECT_NE(log.find("FI_CXI_SOFT_LIST_ENTRIES"), std::string::npos) << log;
  EXPECT_EQ(fi_enable(endpoints.back()), -FI_ENOSPC) << "still";
  endpoints.erase(endpoints.begin());
  EXPECT_EQ(fi_enable(endpoints.back()), 0);
}

// One that was refused stands in nobody's way.
TEST(CxiEntries, WithoutThemARegionIsNotEnabled) {
  if (!with_few_entries()) return;
  Options options;
  options.caps |= FI_RMA;
  Net net(1, options);
  std::vector<uint64_t> windows(kMany);
  std::vector<Handle<fid_mr>> regions;
  int rc = 0;
  const auto open = [&](uint64_t &window) {
    Handle<fid_mr> region;
    must(fi_mr_reg(net[0].domain, &window, 8, FI_REMOTE_WRITE | FI_REMOTE_READ, 0,
                   200 + regions.size(), 0, region.out(), nullptr));
    must(fi_mr_bind(region, net[0].ep.fid(), 0));
    rc = fi_mr_enable(region);
    regions.push_back(std::move(region));
  };
  testing::internal::CaptureStderr();
  while (rc == 0 && regions.size() < kMany) open(windows[regions.size()]);
  EXPECT_EQ(rc, -FI_ENOSPC);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("no list entry left for a memory region"), std::string::npos) << log;
  regions.erase(regions.begin());
  ASSERT_EQ(fi_mr_enable(regions.back()), 0);
  const uint64_t value = 7;
  net.post([&] {
    return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 0), 0, fi_mr_key(regions.back()),
                    nullptr);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(windows[regions.size()], value);
}

// It has taken what it was told of drops, and would have said when it has room again.
TEST(CxiEntries, FlowControlOfAPeerThatEnds) {
  NIC_MATCHES();
  if (!with_few_entries()) return;
  Options options;
  options.caps |= FI_RMA;
  Child child([&](int socket) {
    uint64_t window = 0;
    Node node(options);
    node.expose(&window, sizeof window, FI_REMOTE_WRITE, kMany);
    tell_text(socket, node.name());
    hear(socket);  // nothing but its NIC works until then
  });
  const std::string name = hear_text(child.socket());
  Net net(1, options);
  const fi_addr_t gone = net[0].insert(name);
  uint64_t value = 0, write = 0;
  for (size_t i = 0; i < kMany; ++i)
    net.post([&] { return fi_send(net[0].ep, &value, sizeof value, nullptr, gone, nullptr); });
  size_t sent = 0, failed = 0;
  const auto count = [&](const Completion &done) { ++(done.err == 0 ? sent : failed); };
  // The peer's NIC has refused some of them, and then it has been told how many.
  for (int i = 0; i < 2; ++i) {
    net.post([&] { return fi_write(net[0].ep, &value, 8, nullptr, gone, 0, kMany, &write); });
    for (Completion done = net.wait(net[0].tx_cq); done.context != &write;) {
      count(done);
      done = net.wait(net[0].tx_cq);
    }
  }
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, kMany);
  child.kill();
  while (sent + failed < kMany) count(net.wait(net[0].tx_cq));
  EXPECT_GT(failed, 0u);
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq));
}

// The endpoint that was told of drops closes, and another one gets its address: it knows of none.
TEST(CxiEntries, FlowControlOfAnAddressThatChangesHands) {
  NIC_MATCHES();
  if (!with_few_entries()) return;
  Options options;
  options.caps |= FI_RMA;
  Net net(2, options);
  Node &from = net[0], &to = net[1];
  uint64_t window = 0, write = 0, value = 0;
  to.expose(&window, sizeof window, FI_REMOTE_WRITE, kMany);
  net.set_asleep(1, true);
  const fi_addr_t at = net.at(0, 1);
  for (size_t i = 0; i < kMany; ++i)
    net.post([&] { return fi_send(from.ep, &value, sizeof value, nullptr, at, nullptr); });
  size_t sent = 0;
  const auto expect_sent = [&](const Completion &done) {
    EXPECT_EQ(done.err, 0) << fi_strerror(done.err);
    ++sent;
  };
  // The NIC has refused some of them, and then it has been told how many.
  for (int i = 0; i < 2; ++i) {
    net.post([&] { return fi_write(from.ep, &value, 8, nullptr, at, 0, kMany, &write); });
    for (Completion done = net.wait(from.tx_cq); done.context != &write;
         done = net.wait(from.tx_cq))
      expect_sent(done);
  }
  const size_t lost = sent;
  EXPECT_GT(lost, 0u);
  ASSERT_LT(lost, kMany);
  const std::string name = to.name();
  to.regions.clear();
  to.ep.reset();
  std::vector<Handle<fid_ep>> endpoints;
  ASSERT_EQ(open_endpoint(to, endpoints), 0);
  to.ep = std::move(endpoints.front());
  ASSERT_EQ(to.name(), name);
  net.set_asleep(1, false);
  for (size_t i = lost; i < kMany; ++i) {
    uint64_t in = 1;
    net.post([&] { return fi_recv(to.ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &in); });
    ASSERT_EQ(net.wait(to.rx_cq).context, &in);
  }
  while (sent < kMany && !HasFailure()) expect_sent(net.wait(from.tx_cq));
}

// What flow control holds back ends at once, and what has arrived does not.
TEST(CxiEntries, FlowControlOfWhatIsCanceled) {
  NIC_MATCHES();
  if (!with_few_entries()) return;
  Options options;
  options.caps |= FI_RMA;
  Net net(2, options);
  Node &from = net[0], &to = net[1];
  uint64_t window = 0, write = 0;
  to.expose(&window, sizeof window, FI_REMOTE_WRITE, kMany);
  net.set_asleep(1, true);
  const fi_addr_t at = net.at(0, 1);
  std::vector<uint64_t> out(kMany);
  for (uint64_t &word : out) {
    word = uint64_t(&word - out.data());
    net.post([&] { return fi_send(from.ep, &word, sizeof word, nullptr, at, &word); });
  }
  // The NIC has refused some of them, and then it has been told how many.
  std::set<void *> sent;
  for (int i = 0; i < 2; ++i) {
    net.post([&] { return fi_write(from.ep, &write, 8, nullptr, at, 0, kMany, &write); });
    for (Completion done = net.wait(from.tx_cq); done.context != &write;
         done = net.wait(from.tx_cq))
      sent.insert(done.context);
  }
  ASSERT_LT(sent.size(), kMany - 3);
  EXPECT_EQ(fi_cancel(&from.ep->fid, *sent.begin()), -FI_ENOENT) << "it has ended";
  std::set<uint64_t> canceled = {kMany - 1, kMany - 3};
  for (const uint64_t i : canceled) {
    must(int(fi_cancel(&from.ep->fid, &out[i])));
    const Completion done = net.wait(from.tx_cq);
    EXPECT_EQ(done.err, FI_ECANCELED);
    EXPECT_EQ(done.context, &out[i]);
  }
  net.set_asleep(1, false);
  for (uint64_t i = 0; i < kMany; ++i) {
    if (canceled.contains(i)) continue;
    uint64_t in = 0;
    net.post([&] { return fi_recv(to.ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &in); });
    ASSERT_EQ(net.wait(to.rx_cq).context, &in);
    EXPECT_EQ(in, i) << "in the order of the calls";
  }
  while (sent.size() < kMany - canceled.size() && !HasFailure()) {
    const Completion done = net.wait(from.tx_cq);
    EXPECT_EQ(done.err, 0) << fi_strerror(done.err);
    EXPECT_TRUE(sent.insert(done.context).second) << "told twice";
  }
}

// Whoever has a receive: the NIC, which has no place for all and gives them back, or software.
TEST(CxiEntries, EachCancelEndsAReceiveThatIsGivenBack) {
  NIC_MATCHES();
  if (!with_few_entries("FI_CXI_EQ_ACK_BATCH_SIZE=1")) return;  // one event in each progress
  Net net(1);
  fid_ep *const ep = net[0].ep;
  uint64_t in;
  char one;
  for (size_t events = 0; events < kMany / 2 && !HasFailure(); ++events) {
    for (size_t i = 0; i < kMany; ++i)
      net.post([&] { return fi_recv(ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &one); });
    for (size_t i = 0; i < events; ++i) EXPECT_FALSE(poll(net[0].rx_cq).has_value());
    for (size_t i = 0; i < kMany; ++i) EXPECT_EQ(fi_cancel(&ep->fid, &one), 0) << i;
    EXPECT_EQ(fi_cancel(&ep->fid, &one), -FI_ENOENT) << "there is none any more";
    for (size_t i = 0; i < kMany; ++i) ASSERT_EQ(net.wait(net[0].rx_cq).err, FI_ECANCELED) << i;
  }
}

// Both what the NIC starts by itself and what is called for are dropped, and come again.
TEST(CxiEntries, FlowControlOfDeferredMessages) {
  if (!with_few_entries()) return;
  Options options;
  options.caps |= FI_TRIGGER;
  Net net(2, options);
  fid_cntr *const start = net[0].count(0), *const done = net[0].count(0);
  const std::vector<uint8_t> out = pattern(100, 1);
  const iovec iov{const_cast<uint8_t *>(out.data()), out.size()};
  fi_op_msg op{.ep = net[0].ep, .msg = {}, .flags = 0};
  op.msg.msg_iov = &iov;
  op.msg.iov_count = 1;
  op.msg.addr = net.at(0, 1);
  std::vector<fi_deferred_work> works(30);
  for (fi_deferred_work &work : works) {
    work.threshold = 1 + uint64_t(&work - works.data()) % 3;
    work.triggering_cntr = start;
    work.completion_cntr = done;
    work.op_type = FI_OP_SEND;
    work.op.msg = &op;
    must(fi_control(&net[0].domain->fid, FI_QUEUE_WORK, &work));
  }
  size_t sent = 0;
  for (int i = 0; i < 3; ++i) {
    must(fi_cntr_add(start, 1));
    for (int k = 0; k < 10; ++k, ++sent)
      must(fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), nullptr));
    net.settle();
  }
  std::vector<uint8_t> in(out.size());
  for (size_t i = 0; i < sent + works.size(); ++i) {
    net.post(
        [&] { return fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(std::exchange(in, std::vector<uint8_t>(out.size())), out);
  }
  for (size_t i = 0; i < sent; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.wait_count(done, works.size());
}

// What `many` messages do that are received later, the newest first; `log`: what was said.
void receive_backwards(size_t many, std::string &log) {
  testing::internal::CaptureStderr();
  Net net(2);
  std::vector<uint64_t> out(many);
  for (size_t i = 0; i < many; ++i) {
    out[i] = 1000 + i;
    net.post([&] {
      return fi_tsend(net[0].ep, &out[i], sizeof out[i], nullptr, net.at(0, 1), i, &out[i]);
    });
  }
  for (size_t i = many; i-- != 0;) {
    uint64_t in = 0;
    net.post(
        [&] { return fi_trecv(net[1].ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, i, 0, &in); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(in, 1000 + i);
  }
  for (size_t i = 0; i < many; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  log = testing::internal::GetCapturedStderr();
}

// More than there are entries for. A NIC that is lossless (FI_CXI_MSG_LOSSLESS) drops none.
TEST(CxiEntries, MessagesAreDroppedWhereTheyMayNotWait) {
  NIC_MATCHES();
  if (!with_few_entries()) return;
  std::string log;
  receive_backwards(kMany, log);
  EXPECT_NE(log.find("flow control: the NIC drops messages"), std::string::npos);
}

TEST(CxiLossless, MessagesWaitAndNoneIsDropped) {
  if (!in_fresh_process({"FI_CXI_SOFT_LIST_ENTRIES=40", "FI_LOG_LEVEL=warn",
                         "FI_CXI_SOFT_DEVICES=cxi0=127.0.0.43", "FI_CXI_MSG_LOSSLESS=1"}))
    return;
  std::string log;
  receive_backwards(kMany, log);
  EXPECT_EQ(log.find("flow control"), std::string::npos) << log;
}

// All entries are receives of the process, and the one message that it waits for has none.
TEST(CxiLossless, ReceivesGiveWayToMessages) {
  if (!in_fresh_process({"FI_CXI_SOFT_LIST_ENTRIES=40", "FI_LOG_LEVEL=warn",
                         "FI_CXI_SOFT_DEVICES=cxi0=127.0.0.43", "FI_CXI_MSG_LOSSLESS=1"}))
    return;
  testing::internal::CaptureStderr();
  Net net(2);
  std::vector<uint64_t> in(kMany);
  for (uint64_t &one : in)
    net.post([&] {
      return fi_trecv(net[1].ep, &one, sizeof one, nullptr, FI_ADDR_UNSPEC,
                      uint64_t(&one - in.data()), 0, &one);
    });
  const std::vector<uint64_t> out{500, 7};  // the first one has no receive
  for (const uint64_t &one : out)
    net.post([&] {
      return fi_tsend(net[0].ep, &one, sizeof one, nullptr, net.at(0, 1), one,
                      const_cast<uint64_t *>(&one));
    });
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in[7], 7u);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("flow control"), std::string::npos) << log;
}

// A process that waits in vain is told when the other one ends.
TEST(CxiLossless, AReceiverThatEndsFailsWhatWaits) {
  NIC_MATCHES();
  if (!in_fresh_process({"FI_CXI_SOFT_LIST_ENTRIES=40", "FI_CXI_SOFT_DEVICES=cxi0=127.0.0.43",
                         "FI_CXI_MSG_LOSSLESS=1"}))
    return;
  Net net(2);
  std::vector<uint64_t> out(kMany);
  for (uint64_t &one : out)
    net.post([&] { return fi_tsend(net[0].ep, &one, sizeof one, nullptr, net.at(0, 1), 1, &one); });
  net[1].ep.reset();
  size_t failed = 0;
  for (size_t i = 0; i < kMany; ++i) failed += net.wait(net[0].tx_cq).err != 0 ? 1 : 0;
  EXPECT_GT(failed, 0u);
  EXPECT_LT(failed, kMany) << "the first ones had places";
}

// Work whose counter has fired it ends with its endpoint. Its counter may be closed then.
TEST(CxiEntries, DeferredMessagesEndWithTheirEndpoint) {
  if (!with_few_entries()) return;
  Options options;
  options.caps |= FI_TRIGGER;
  Net net(2, options);
  Handle<fid_cntr> start, done;
  must(fi_cntr_open(net[0].domain, nullptr, start.out(), nullptr));
  must(fi_cntr_open(net[0].domain, nullptr, done.out(), nullptr));
  const std::vector<uint8_t> out = pattern(100'000, 1);
  const iovec iov{const_cast<uint8_t *>(out.data()), out.size()};
  fi_op_msg op{.ep = net[0].ep, .msg = {}, .flags = 0};
  op.msg.msg_iov = &iov;
  op.msg.iov_count = 1;
  op.msg.addr = net.at(0, 1);
  std::vector<fi_deferred_work> works(20);
  for (fi_deferred_work &work : works) {
    work.threshold = 1 + uint64_t(&work - works.data()) % 2;
    work.triggering_cntr = start;
    work.completion_cntr = done;
    work.op_type = FI_OP_SEND;
    work.op.msg = &op;
    must(fi_control(&net[0].domain->fid, FI_QUEUE_WORK, &work));
  }
  must(fi_cntr_add(start, 1));
  net.settle();
  net[0].ep.reset();
  EXPECT_EQ(fi_cntr_read(done), 0u) << "nobody has received them";
  done.reset();  // fails where it is still in use
  start.reset();
}

}  // namespace
}  // namespace weft::conformance::rdm
