// SPDX-License-Identifier: BSD-2-Clause
// Peers that end, or are stopped, while something waits for what only they can do: read the rest of
// a long message, or meet a message with its receive.
#include <poll.h>
#include <rdma/fi_trigger.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kLong = 100'000;
constexpr uint64_t kAwaited = 1, kLast = 2;

// Its NIC takes what comes; its program does nothing more until it hears something.
void be_idle(int socket) {
  Node node{Options()};
  tell_text(socket, node.name());
  hear(socket);
}

bool is_gone(int err) {
  return err == FI_ENOTCONN || err == FI_EHOSTUNREACH;
}

// A short message behind the others: when its end is told, the NIC of the peer has all of them.
void send_last(Net &net, fi_addr_t to) {
  uint64_t last = 0;
  net.post([&] { return fi_tsend(net[0].ep, &last, sizeof last, nullptr, to, kLast, &last); });
  const Completion done = net.wait(net[0].tx_cq);
  EXPECT_EQ(done.context, &last) << "nobody has read the others";
  EXPECT_EQ(done.err, 0);
}

// Each context once, with such an error.
void expect_gone(Net &net, std::set<void *> contexts) {
  while (!contexts.empty()) {
    const Completion done = net.wait(net[0].tx_cq);
    EXPECT_TRUE(is_gone(done.err)) << done.err;
    ASSERT_EQ(contexts.erase(done.context), 1u);
  }
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq)) << "told twice";
}

ssize_t send_matched(Node &node, const std::vector<uint8_t> &out, fi_addr_t to, void *context) {
  const iovec iov{const_cast<uint8_t *>(out.data()), out.size()};
  fi_msg_tagged message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = to;
  message.tag = kAwaited;
  message.context = context;
  return fi_tsendmsg(node.ep, &message, FI_MATCH_COMPLETE | FI_COMPLETION);
}

// A long message that the NIC starts by itself.
class Deferred {
 public:
  Deferred(Node &node, const std::vector<uint8_t> &out, fi_addr_t to)
      : node_(node),
        iov_{const_cast<uint8_t *>(out.data()), out.size()},
        start_(node.count(0)),
        done_(node.count(0)) {
    op_.ep = node.ep;
    op_.msg.msg_iov = &iov_;
    op_.msg.iov_count = 1;
    op_.msg.addr = to;
    op_.msg.tag = kAwaited;
    work_.threshold = 1;
    work_.triggering_cntr = start_;
    work_.completion_cntr = done_;
    work_.op_type = FI_OP_TSEND;
    work_.op.tagged = &op_;
    must(control(FI_QUEUE_WORK));
    must(fi_cntr_add(start_, 1));
  }
  uint64_t sent() const { return fi_cntr_read(done_); }
  uint64_t failed() const { return fi_cntr_readerr(done_); }
  fid_cntr *start() const { return start_; }
  int control(int command) { return fi_control(&node_.domain->fid, command, &work_); }

 private:
  Node &node_;
  iovec iov_;
  fi_op_tagged op_{};
  fi_deferred_work work_{};
  fid_cntr *start_, *done_;
};

// Work that waits for what its peer does: it has begun, and its counter says so no more.
class CxiGoneCounter : public ::testing::Test {
 protected:
  // The message arrives, once, and is counted.
  void expect_one() {
    for (std::vector<uint8_t> &in : received_)
      must(fi_trecv(net_[1].ep, in.data(), kLong, nullptr, FI_ADDR_UNSPEC, kAwaited, 0, &in));
    EXPECT_EQ(net_.wait(net_[1].rx_cq).context, &received_[0]);
    EXPECT_TRUE(net_.until([&] { return deferred_.sent() == 1; }));
    net_.settle();
    EXPECT_FALSE(poll(net_[1].rx_cq)) << "it has come twice";
    EXPECT_EQ(deferred_.sent(), 1u);
    EXPECT_EQ(deferred_.failed(), 0u);
    EXPECT_EQ(received_[0], out_);
  }

  Net net_{2, with(FI_TRIGGER)};
  std::vector<uint8_t> out_ = pattern(kLong, 1);
  std::vector<uint8_t> received_[2] = {std::vector<uint8_t>(kLong), std::vector<uint8_t>(kLong)};
  Deferred deferred_{net_[0], out_, net_.at(0, 1)};
};

TEST_F(CxiGoneCounter, MayBeSetBack) {
  net_.settle();
  must(fi_cntr_set(deferred_.start(), 0));
  EXPECT_EQ(deferred_.control(FI_CANCEL_WORK), -FI_ENOENT) << "it has begun";
  must(deferred_.control(FI_FLUSH_WORK));
  // What is taken back of the same counter leaves it alone, too.
  uint64_t value = 0;
  const iovec iov{&value, sizeof value};
  fi_op_msg op{};
  op.ep = net_[0].ep;
  op.msg.msg_iov = &iov;
  op.msg.iov_count = 1;
  op.msg.addr = net_.at(0, 1);
  fi_deferred_work other{};
  other.threshold = 1;
  other.triggering_cntr = deferred_.start();
  other.op_type = FI_OP_SEND;
  other.op.msg = &op;
  must(fi_control(net_[0].domain.fid(), FI_QUEUE_WORK, &other));
  must(fi_control(net_[0].domain.fid(), FI_CANCEL_WORK, &other));
  must(fi_cntr_add(deferred_.start(), 1));
  expect_one();
}

TEST_F(CxiGoneCounter, MayCloseFirst) {
  net_.settle();
  std::erase_if(net_[0].counters, [&](const auto &one) { return one.get() == deferred_.start(); });
  must(fi_control(net_[0].domain.fid(), FI_FLUSH_WORK, nullptr));
  expect_one();
}

TEST_F(CxiGoneCounter, MayCloseBeforeAnEndpointThatWaits) {
  net_.settle();
  std::erase_if(net_[0].counters, [&](const auto &one) { return one.get() == deferred_.start(); });
  net_[0].ep.reset();
}

TEST(CxiGone, WhatAPeerHasNotTakenEndsWithIt) {
  if (!in_fresh_process()) return;
  Child child(be_idle);
  const std::string name = hear_text(child.socket());
  Net net(2, with(FI_TRIGGER));
  const fi_addr_t gone = net[0].insert(name);
  const std::vector<uint8_t> out = pattern(kLong, 1), brief = pattern(8, 2);
  char contexts[4] = {};
  fid_ep *const ep = net[0].ep;
  net.post([&] { return fi_send(ep, out.data(), kLong, nullptr, gone, &contexts[0]); });
  net.post([&] { return fi_tsend(ep, out.data(), kLong, nullptr, gone, kAwaited, &contexts[1]); });
  net.post([&] { return send_matched(net[0], out, gone, &contexts[2]); });
  net.post([&] { return send_matched(net[0], brief, gone, &contexts[3]); });
  const Deferred deferred(net[0], out, gone);
  send_last(net, gone);
  child.kill();
  expect_gone(net, {&contexts[0], &contexts[1], &contexts[2], &contexts[3], nullptr});
  EXPECT_EQ(deferred.failed(), 1u);
  EXPECT_EQ(deferred.sent(), 0u);
  net.exchange(0, 1, kLong);
  net.exchange(1, 0, kLong);
}

// How a program waits for a completion: it reads, sleeps in a call, or polls the descriptor.
enum class Wait { kRead, kSleep, kPoll };

void wait_for_one(Net &net, Wait how) {
  fid_cq *const cq = net[0].tx_cq;
  if (how == Wait::kSleep) {
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_sread(cq, &entry, 1, nullptr, int(patience().count())), -FI_EAVAIL);
  } else if (how == Wait::kPoll) {
    pollfd descriptor{.fd = -1, .events = POLLIN};
    must(fi_control(&cq->fid, FI_GETWAIT, &descriptor.fd));
    fid *waits[] = {&cq->fid};
    const Deadline deadline;
    fi_cq_tagged_entry entry;
    ssize_t rc = -FI_EAGAIN;
    while (rc == -FI_EAGAIN && !deadline.passed()) {
      if (fi_trywait(net[0].fabric, waits, 1) == 0) ::poll(&descriptor, 1, deadline.left_ms());
      rc = fi_cq_read(cq, &entry, 1);
    }
    EXPECT_EQ(rc, -FI_EAVAIL);
  }
}

// Programs try again: so does each operation of theirs, of any kind, and each is told.
TEST(CxiGone, WhateverIsPostedAfterwardsFailsToo) {
  if (!in_fresh_process()) return;
  Child child(be_idle);
  const std::string name = hear_text(child.socket());
  Options options = with(FI_RMA | FI_ATOMIC);
  options.tx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_FD);
  Net net(2, options);
  fi_addr_t gone = net[0].insert(name);
  std::vector<uint8_t> out = pattern(kLong, 1), in(kLong);
  const std::vector<uint8_t> brief = pattern(8, 2);
  uint64_t word = 1, result = 0;
  fid_ep *const ep = net[0].ep;
  const std::vector<std::function<ssize_t(void *)>> kinds = {
      [&](void *context) { return fi_send(ep, brief.data(), 8, nullptr, gone, context); },
      [&](void *context) { return fi_tsend(ep, brief.data(), 8, nullptr, gone, 1, context); },
      [&](void *context) { return fi_send(ep, out.data(), kLong, nullptr, gone, context); },
      [&](void *context) { return fi_tsend(ep, out.data(), kLong, nullptr, gone, 1, context); },
      [&](void *context) { return send_matched(net[0], brief, gone, context); },
      [&](void *context) { return send_matched(net[0], out, gone, context); },
      [&](void *context) { return fi_write(ep, &word, 8, nullptr, gone, 0, 1, context); },
      [&](void *context) { return fi_write(ep, out.data(), kLong, nullptr, gone, 0, 1, context); },
      [&](void *context) { return fi_read(ep, in.data(), kLong, nullptr, gone, 0, 1, context); },
      [&](void *context) {
        return fi_atomic(ep, &word, 1, nullptr, gone, 0, 1, FI_UINT64, FI_SUM, context);
      },
      [&](void *context) {
        return fi_fetch_atomic(ep, &word, 1, nullptr, &result, nullptr, gone, 0, 1, FI_UINT64,
                               FI_SUM, context);
      }};
  const auto fail_each = [&](Wait how) {
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      SCOPED_TRACE("wait " + std::to_string(int(how)) + ", kind " + std::to_string(kind));
      char context = 0;
      net.post([&] { return kinds[kind](&context); });
      wait_for_one(net, how);
      expect_gone(net, {&context});
    }
  };
  send_last(net, gone);  // the peer lives
  child.kill();
  for (const Wait how : {Wait::kRead, Wait::kSleep, Wait::kPoll}) fail_each(how);
  // Many at once, and such as report nothing but their failure.
  std::vector<char> contexts(kinds.size());
  std::set<void *> all;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    all.insert(&contexts[kind]);
    net.post([&] { return kinds[kind](&contexts[kind]); });
  }
  expect_gone(net, all);
  net.post([&] { return fi_inject(ep, brief.data(), 8, gone); });
  expect_gone(net, {ep->fid.context});
  net.post([&] { return fi_inject_write(ep, &word, 8, gone, 0, 1); });
  expect_gone(net, {ep->fid.context});
  // An address that was removed and inserted again is still that of nobody.
  must(fi_av_remove(net[0].av, &gone, 1, 0));
  gone = net[0].insert(name);
  fail_each(Wait::kSleep);
  net.exchange(0, 1, kLong);
  net.exchange(1, 0, kLong);
}

// A remote call: the answer has its receive first. Mercury cancels both, and takes no other error
// for the end of what it has canceled.
TEST(CxiGone, ACallMayBeTriedAgain) {
  if (!in_fresh_process()) return;
  Child child(be_idle);
  const std::string name = hear_text(child.socket());
  Options options = with(FI_RMA | FI_DIRECTED_RECV);
  options.one_cq = true;
  options.tx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_FD);
  Net net(1, options);
  const fi_addr_t gone = net[0].insert(name);
  const std::vector<uint8_t> out = pattern(kLong, 1);
  fid_ep *const ep = net[0].ep;
  send_last(net, gone);
  child.kill();
  for (int call = 0; call < 8; ++call) {
    SCOPED_TRACE(call);
    const bool cancels_both = call >= 4;
    uint64_t answer = 0, tag = uint64_t(10 + call);
    const size_t size = call % 2 == 0 ? 100 : kLong;
    must(fi_trecv(ep, &answer, sizeof answer, nullptr, gone, tag, 0, &answer));
    net.post([&] { return fi_tsend(ep, out.data(), size, nullptr, gone, tag, &tag); });
    std::map<void *, int> ends;
    const auto take = [&] {
      wait_for_one(net, Wait::kPoll);
      const Completion done = net.wait(net[0].tx_cq);
      ends[done.context] = done.err;
    };
    if (cancels_both) {
      must(int(fi_cancel(&ep->fid, &tag)));
    } else {
      take();
    }
    must(int(fi_cancel(&ep->fid, &answer)));
    while (ends.size() < 2 && !HasFailure()) take();
    EXPECT_EQ(ends[&answer], FI_ECANCELED);
    EXPECT_TRUE(cancels_both ? ends[&tag] == FI_ECANCELED : is_gone(ends[&tag])) << ends[&tag];
    EXPECT_EQ(fi_cancel(&ep->fid, &tag), -FI_ENOENT) << "it has ended";
  }
}

// fi_cxi.7: there are 256 of them.
TEST(CxiGone, NumbersOfLongMessagesComeBack) {
  if (!in_fresh_process()) return;
  Child child(be_idle);
  const std::string name = hear_text(child.socket());
  Net net(2);
  const fi_addr_t gone = net[0].insert(name);
  std::vector<uint8_t> out = pattern(kLong, 1), in(kLong);
  std::vector<char> contexts(256);
  for (char &context : contexts)
    net.post([&] { return fi_send(net[0].ep, out.data(), kLong, nullptr, gone, &context); });
  EXPECT_EQ(fi_send(net[0].ep, out.data(), kLong, nullptr, gone, &out), -FI_EAGAIN);
  send_last(net, gone);
  child.kill();
  std::set<void *> all;
  for (char &context : contexts) all.insert(&context);
  expect_gone(net, all);
  for (int i = 0; i < 3; ++i) {
    std::fill(in.begin(), in.end(), 0);
    must(fi_recv(net[1].ep, in.data(), kLong, nullptr, FI_ADDR_UNSPEC, &in));
    net.post([&] { return fi_send(net[0].ep, out.data(), kLong, nullptr, net.at(0, 1), &out); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(in, out);
  }
}

TEST(CxiGone, AnEndpointThatWaitsCloses) {
  if (!in_fresh_process()) return;
  Child lives(be_idle), ends(be_idle);
  for (const bool is_killed : {false, true}) {
    SCOPED_TRACE(is_killed);
    Child &child = is_killed ? ends : lives;
    const std::string name = hear_text(child.socket());
    Net net(1, with(FI_TRIGGER));
    const fi_addr_t peer = net[0].insert(name);
    const std::vector<uint8_t> out = pattern(kLong, 1);
    const Deferred deferred(net[0], out, peer);
    for (int i = 0; i < 3; ++i)
      net.post(
          [&] { return fi_tsend(net[0].ep, out.data(), kLong, nullptr, peer, kAwaited, nullptr); });
    net.post([&] { return send_matched(net[0], out, peer, nullptr); });
    send_last(net, peer);
    if (is_killed) child.kill();
    EXPECT_EQ(deferred.sent() + deferred.failed(), 0u);
    net[0].ep.reset();  // fails the test, if fi_close does; so do its counters
    if (!is_killed) {
      tell(child.socket(), 1);
      child.join();
    }
  }
}

TEST(CxiGone, WhoSleepsUntilAMessageEndsIsWoken) {
  if (!in_fresh_process()) return;
  Child child(be_idle);
  const std::string name = hear_text(child.socket());
  Options options;
  options.tx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_FD);
  Net net(1, options);
  const fi_addr_t gone = net[0].insert(name);
  const std::vector<uint8_t> out = pattern(kLong, 1);
  net.post(
      [&] { return fi_tsend(net[0].ep, out.data(), kLong, nullptr, gone, kAwaited, nullptr); });
  send_last(net, gone);
  child.kill();
  fi_cq_tagged_entry entry;
  EXPECT_EQ(fi_cq_sread(net[0].tx_cq, &entry, 1, nullptr, int(patience().count())), -FI_EAVAIL);
  EXPECT_TRUE(is_gone(net.wait(net[0].tx_cq).err));
}

// The process has another peer, which ends meanwhile: so the one that is stopped was asked, too.
TEST(CxiGone, APeerThatIsStoppedIsWaitedFor) {
  if (!in_fresh_process()) return;
  Child stopped([](int socket) {
    Net net(1);
    tell_text(socket, net[0].name());
    hear(socket);
    std::vector<uint8_t> in(kLong), brief(8);
    must(fi_trecv(net[0].ep, in.data(), kLong, nullptr, FI_ADDR_UNSPEC, kAwaited, 0, &in));
    EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
    must(fi_trecv(net[0].ep, brief.data(), 8, nullptr, FI_ADDR_UNSPEC, kAwaited, 0, &brief));
    EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
    EXPECT_EQ(in, pattern(kLong, 1));
    EXPECT_EQ(brief, pattern(8, 2));
    tell(socket, 1);
    hear(socket);
  });
  Child killed(be_idle);
  const std::string name = hear_text(stopped.socket()), other = hear_text(killed.socket());
  Net net(1);
  const fi_addr_t to = net[0].insert(name), gone = net[0].insert(other);
  const std::vector<uint8_t> out = pattern(kLong, 1), brief = pattern(8, 2);
  char contexts[3] = {};
  net.post(
      [&] { return fi_tsend(net[0].ep, out.data(), kLong, nullptr, to, kAwaited, &contexts[0]); });
  net.post([&] { return send_matched(net[0], brief, to, &contexts[1]); });
  send_last(net, to);
  stopped.stop();
  net.post([&] {
    return fi_tsend(net[0].ep, out.data(), kLong, nullptr, gone, kAwaited, &contexts[2]);
  });
  send_last(net, gone);
  killed.kill();
  expect_gone(net, {&contexts[2]});
  stopped.go_on();
  tell(stopped.socket(), 1);
  std::set<void *> done;
  for (int i = 0; i < 2; ++i) {
    const Completion completion = net.wait(net[0].tx_cq);
    EXPECT_EQ(completion.err, 0) << fi_strerror(completion.err);
    done.insert(completion.context);
  }
  EXPECT_EQ(done, (std::set<void *>{&contexts[0], &contexts[1]}));
  EXPECT_EQ(hear(stopped.socket()), 1u);
  tell(stopped.socket(), 1);
  stopped.join();
}

// ---- the other way round: the sender ends ----

// Sends a long message, and one behind it.
void be_a_sender(int socket) {
  Net net(1);
  tell(socket, 1);
  const fi_addr_t to = net[0].insert(hear_text(socket));
  const std::vector<uint8_t> out = pattern(kLong, 1);
  net.post([&] { return fi_tsend(net[0].ep, out.data(), kLong, nullptr, to, kAwaited, nullptr); });
  send_last(net, to);
  tell(socket, 1);
  hear(socket);
}

// `early`: the receive is posted while the sender is stopped, so its NIC is asked for the rest.
void expect_a_lost_receive(Child &child, bool early) {
  Net net(2);
  tell_text(child.socket(), net[0].name());
  uint64_t last = 1;
  must(fi_trecv(net[0].ep, &last, sizeof last, nullptr, FI_ADDR_UNSPEC, kLast, 0, &last));
  EXPECT_EQ(net.wait(net[0].rx_cq).context, &last);
  ASSERT_TRUE(net.until([&] { return can_hear(child.socket()); }));
  std::vector<uint8_t> in(kLong);
  const auto receive = [&] {
    must(fi_trecv(net[0].ep, in.data(), kLong, nullptr, FI_ADDR_UNSPEC, kAwaited, 0, &in));
  };
  if (early) {
    child.stop();
    receive();
    net.settle();
  }
  child.kill();
  if (!early) receive();
  const Completion done = net.wait(net[0].rx_cq);
  EXPECT_EQ(done.context, &in);
  EXPECT_TRUE(is_gone(done.err)) << done.err;
  net.settle();
  EXPECT_FALSE(poll(net[0].rx_cq)) << "told twice";
  net.exchange(1, 0, kLong);
}

TEST(CxiGone, AReceiveEndsWithItsSenderOnce) {
  if (!in_fresh_process()) return;
  Child first(be_a_sender), second(be_a_sender);
  // The second has a PID before the first is killed: it must not get that of the first.
  hear(first.socket());
  hear(second.socket());
  expect_a_lost_receive(first, false);
  expect_a_lost_receive(second, true);
}

}  // namespace
}  // namespace weft::conformance::rdm
