// SPDX-License-Identifier: BSD-2-Clause
// What each action does: above tcp's connected endpoints, above its unconnected ones, and beneath
// rxm. Each test is a process, because the hook reads the rules when a fabric opens.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/plugin.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "plugins/hook-fault/rules.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance {
namespace {

#define WITH_RULES(rules)                                                                         \
  if (!in_fresh_process(                                                                          \
          {"FI_PROVIDER=tcp", "FI_HOOK=fault", "WEFT_TEST_REQUIRED=1", "FI_FAULT_RULES=" rules})) \
  return

// How often each rule fired, and how often one was not applicable.
std::map<std::string, uint64_t> counters(struct fid *fid) {
  weft_counters_ops *ops = nullptr;
  must(fi_open_ops(fid, WEFT_HOOK_COUNTERS_OPS "fault", 0, reinterpret_cast<void **>(&ops),
                   nullptr));
  weft_counter all[80];
  const size_t count = ops->read(fid, all, std::size(all));
  std::map<std::string, uint64_t> found;
  for (size_t i = 0; i < count; ++i) found[all[i].name] = all[i].value;
  return found;
}

// `count` messages from a to b, each with its own pattern and contexts.
struct Messages {
  Messages(Pair &pair, size_t count, size_t size = 100) : pair(pair) {
    for (size_t i = 0; i < count; ++i) {
      out.push_back(pattern(size, unsigned(i + 1)));
      in.emplace_back(size);
    }
    for (auto &buffer : in)
      pair.post([&] { return fi_recv(pair.b.ep, buffer.data(), size, nullptr, 0, &buffer); });
  }
  void send(size_t i) {
    pair.post(
        [&] { return fi_send(pair.a.ep, out[i].data(), out[i].size(), nullptr, 0, &out[i]); });
  }
  void send_all() {
    for (size_t i = 0; i < out.size(); ++i) send(i);
  }
  // Waits for the completions of exactly these sends, in any order.
  void sent(size_t count) {
    std::map<void *, int> seen;
    for (size_t i = 0; i < count; ++i) {
      const Done done = pair.wait(pair.a.tx_cq);
      EXPECT_EQ(done.err, 0);
      ++seen[done.context];
    }
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(seen[&out[i]], 1) << "message " << i;
  }
  // The number of the message in the next completed receive; -1: it is none of them.
  int received() {
    const Done done = pair.wait(pair.b.rx_cq);
    EXPECT_EQ(done.err, 0);
    last = static_cast<std::vector<uint8_t> *>(done.context);
    last->resize(done.len);
    for (size_t i = 0; i < out.size(); ++i) {
      if (*last == out[i]) return static_cast<int>(i);
    }
    return -1;
  }
  void nothing_more() {
    pair.settle();
    EXPECT_FALSE(poll_cq(pair.a.tx_cq));
    EXPECT_FALSE(poll_cq(pair.b.rx_cq));
  }

  Pair &pair;
  std::vector<std::vector<uint8_t>> out, in;
  std::vector<uint8_t> *last = nullptr;
};

TEST(Fault, DroppedMessageCompletesAndDoesNotArrive) {
  WITH_RULES("send:nth=2:drop");
  Pair pair;
  Messages messages(pair, 3);
  messages.send_all();
  messages.sent(3);
  EXPECT_EQ(messages.received(), 0);
  EXPECT_EQ(messages.received(), 2);
  messages.nothing_more();
  const auto counted = counters(&pair.a.ep->fid);
  EXPECT_EQ(counted.at("rule 1: send:nth=2:drop"), 1u);
  EXPECT_EQ(counted.at("not_applicable"), 0u);
}

TEST(Fault, DuplicateArrivesTwiceAndCompletesOnce) {
  WITH_RULES("send:nth=1:dup");
  Pair pair;
  Messages messages(pair, 3);
  messages.send(0);
  messages.send(1);
  messages.sent(2);
  EXPECT_EQ(messages.received(), 0);
  EXPECT_EQ(messages.received(), 0);
  EXPECT_EQ(messages.received(), 1);
  messages.nothing_more();
}

TEST(Fault, ReorderedMessageComesAfterTheNext) {
  WITH_RULES("send:nth=1:reorder");
  Pair pair;
  Messages messages(pair, 2);
  messages.send_all();
  EXPECT_EQ(messages.received(), 1);
  EXPECT_EQ(messages.received(), 0);
  messages.sent(2);
  messages.nothing_more();
}

TEST(Fault, HeldMessagesAreSentEventually) {
  WITH_RULES("send:nth=1:reorder;send:nth=2:delay=40");
  Pair pair;
  Messages messages(pair, 2);
  messages.send(0);  // no other message follows it
  EXPECT_EQ(messages.received(), 0);
  messages.send(1);
  EXPECT_EQ(messages.received(), 1);
  messages.sent(2);
  messages.nothing_more();
}

TEST(Fault, HeldMessageIsSentWhenTheSenderSleeps) {
  WITH_RULES("send:nth=1:delay=1000000");
  Options options;
  options.tx_cq.wait_obj = FI_WAIT_UNSPEC;
  options.progress = FI_PROGRESS_AUTO;
  Pair pair(options);
  Messages messages(pair, 1);
  messages.send(0);
  fi_cq_data_entry entry{};
  ASSERT_EQ(fi_cq_sread(pair.a.tx_cq, &entry, 1, nullptr, 30000), 1);
  EXPECT_EQ(entry.op_context, &messages.out[0]);
  EXPECT_EQ(messages.received(), 0);
}

TEST(Fault, TruncatedMessage) {
  WITH_RULES("send:truncate=7");
  Pair pair;
  Messages messages(pair, 1);
  messages.send(0);
  EXPECT_EQ(messages.received(), -1);
  EXPECT_EQ(*messages.last,
            std::vector<uint8_t>(messages.out[0].begin(), messages.out[0].begin() + 7));
  messages.sent(1);
}

TEST(Fault, CorruptMessageDiffersInOneBit) {
  WITH_RULES("send:corrupt");
  Pair pair;
  Messages messages(pair, 1, 3000);
  messages.send(0);
  EXPECT_EQ(messages.received(), -1);
  ASSERT_EQ(messages.last->size(), 3000u);
  int bits = 0;
  for (size_t i = 0; i < 3000; ++i)
    bits += __builtin_popcount(static_cast<unsigned>((*messages.last)[i] ^ messages.out[0][i]));
  EXPECT_EQ(bits, 1);
  messages.sent(1);
}

TEST(Fault, ErrorCompletions) {
  WITH_RULES("send:nth=2:error=ECONNRESET;recv:nth=1:error=EIO");
  Pair pair;
  int first = 0;
  char room[8];
  must(fi_recv(pair.b.ep, room, sizeof room, nullptr, 0, &first));
  const Done failed = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(failed.err, FI_EIO);
  EXPECT_EQ(failed.context, &first);
  EXPECT_NE(failed.flags & FI_RECV, 0u);

  Messages messages(pair, 2);
  messages.send(0);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
  messages.send(1);
  const Done reset = pair.wait(pair.a.tx_cq);
  EXPECT_EQ(reset.err, FI_ECONNRESET);
  EXPECT_EQ(reset.context, &messages.out[1]);
  EXPECT_EQ(messages.received(), 0);
  messages.nothing_more();
}

TEST(Fault, FailingCalls) {
  WITH_RULES("send:nth=1:fail=ENOMEM;send:nth=2:eagain;send:nth=3:full");
  Pair pair;
  Messages messages(pair, 1);
  const auto send = [&] {
    return fi_send(pair.a.ep, messages.out[0].data(), 100, nullptr, 0, &messages.out[0]);
  };
  EXPECT_EQ(send(), -FI_ENOMEM);
  EXPECT_EQ(send(), -FI_EAGAIN);
  EXPECT_EQ(send(), -FI_EAGAIN);
  EXPECT_EQ(send(), -FI_EAGAIN) << "full until the queue was read";
  char other[8];
  EXPECT_EQ(fi_recv(pair.a.ep, other, sizeof other, nullptr, 0, nullptr), -FI_EAGAIN);
  EXPECT_FALSE(poll_cq(pair.a.tx_cq));
  EXPECT_EQ(send(), 0);
  EXPECT_EQ(messages.received(), 0);
  messages.sent(1);
}

TEST(Fault, KilledConnection) {
  WITH_RULES("send:nth=2:kill");
  Pair pair;
  Messages messages(pair, 2);
  messages.send(0);
  messages.sent(1);
  EXPECT_EQ(messages.received(), 0);
  const ssize_t rc = fi_send(pair.a.ep, messages.out[1].data(), 100, nullptr, 0, nullptr);
  EXPECT_EQ(pair.wait_event(pair.b.eq, FI_SHUTDOWN).fid, &pair.b.ep->fid);
  if (rc == 0) {
    EXPECT_NE(pair.wait(pair.a.tx_cq).err, 0);
  }
  EXPECT_EQ(counters(&pair.a.ep->fid).at("rule 1: send:nth=2:kill"), 1u);
}

TEST(Fault, CompletionQueueThatFails) {
  WITH_RULES("cq_read:nth=1:eagain;cq_read:nth=2:fail=EIO;cq_read:nth=4:overrun");
  Side side;
  const Info info = options_info(side.options);
  side.open(info.get());
  fi_cq_attr attr = Options::cq_attr();
  Handle<fid_cq> cq;
  must(fi_cq_open(side.domain, &attr, cq.out(), nullptr));
  fi_cq_data_entry entry{};
  for (const ssize_t wanted : {-FI_EAGAIN, -FI_EIO, -FI_EAGAIN, -FI_EOVERRUN, -FI_EOVERRUN})
    EXPECT_EQ(fi_cq_read(cq, &entry, 1), wanted);
}

TEST(Fault, InjectedMessages) {
  WITH_RULES("inject:nth=1:drop;inject:nth=2:dup;inject:nth=3:reorder;inject:nth=5:corrupt");
  Pair pair;
  Messages messages(pair, 5, 16);
  for (const auto &out : messages.out)
    pair.post([&] { return fi_inject(pair.a.ep, out.data(), out.size(), 0); });
  EXPECT_EQ(messages.received(), 1);
  EXPECT_EQ(messages.received(), 1);
  EXPECT_EQ(messages.received(), 3);
  EXPECT_EQ(messages.received(), 2);
  EXPECT_EQ(messages.received(), -1);
  messages.nothing_more();
}

TEST(Fault, ActionsThatAreNotApplicableAreSkipped) {
  WITH_RULES("send:dup");
  // The counter would count the duplicate, and the hook cannot undo that.
  fid_cntr *sends = nullptr;
  Pair pair({}, {}, [&](Side &side) {
    if (sends == nullptr) sends = side.count(FI_SEND);
  });
  Messages messages(pair, 1);
  messages.send(0);
  EXPECT_EQ(messages.received(), 0);
  messages.sent(1);
  messages.nothing_more();
  EXPECT_EQ(counters(&pair.a.ep->fid).at("not_applicable"), 1u);
}

// Monitors read the counters at any time, and take one that falls for one that began anew.
TEST(Fault, CountersDoNotFallWhereTheProviderRefuses) {
  WITH_RULES("send:corrupt");
  Pair pair;
  const std::string rule = "rule 1: send:corrupt";
  std::atomic<bool> done = false;
  uint64_t reads = 0;
  std::thread monitor([&] {
    for (uint64_t last = 0; !done; ++reads) {
      const uint64_t now = counters(&pair.a.ep->fid).at(rule);
      EXPECT_GE(now, last);
      last = now;
    }
  });
  const std::vector<uint8_t> bytes(1000);
  uint64_t sent = 0, refused = 0;
  while (refused < 20000) {
    const ssize_t rc = fi_send(pair.a.ep, bytes.data(), bytes.size(), nullptr, 0, nullptr);
    ++(rc == 0 ? sent : refused);
    if (rc == 0 || rc == -FI_EAGAIN) continue;
    ADD_FAILURE() << rc;
    break;
  }
  done = true;
  monitor.join();
  EXPECT_GT(reads, 0u);
  EXPECT_EQ(counters(&pair.a.ep->fid).at(rule), sent);
}

TEST(Fault, ClosesWithHeldMessages) {
  WITH_RULES("send:delay=1000000");
  Pair pair;
  Messages messages(pair, 3);
  messages.send_all();
  pair.a.ep.reset();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(messages.received(), i) << "closing sends what was held";
}

TEST(Fault, SameSeedGivesTheSameFaults) {
  WITH_RULES("send:p=0.3:drop;seed=7");
  Pair pair;
  Messages messages(pair, 40);
  messages.send_all();
  messages.sent(40);
  std::vector<int> arrived;
  const uint64_t dropped = counters(&pair.a.ep->fid).at("rule 1: send:p=0.3:drop");
  EXPECT_GT(dropped, 2u);
  EXPECT_LT(dropped, 30u);
  for (uint64_t i = 0; i < 40 - dropped; ++i) arrived.push_back(messages.received());
  messages.nothing_more();
  // The seed decides for one of the first objects, whatever the timing and the machine.
  bool foretold = false;
  for (uint64_t object = 1; object < 20; ++object) {
    std::vector<int> fate;
    for (int i = 0; i < 40; ++i) {
      if (fault::chance(7, object, fault::kSend, uint64_t(i) + 1, 0) >= 0.3) fate.push_back(i);
    }
    foretold = foretold || fate == arrived;
  }
  EXPECT_TRUE(foretold);
}

TEST(Fault, ReliableDatagramsOverTcp) {
  if (!in_fresh_process({"FI_PROVIDER=tcp", "WEFT_TEST_STACK=tcp", "WEFT_TEST_REQUIRED=1",
                         "FI_HOOK=fault",
                         "FI_FAULT_RULES=tsend:nth=2:drop;tsend:nth=3:dup;tsend:nth=5:error=EIO"}))
    return;
  rdm::Net net(2);
  uint64_t in[5] = {}, out[5] = {10, 11, 12, 13, 14};
  for (auto &one : in)
    must(fi_trecv(net[1].ep, &one, sizeof one, nullptr, FI_ADDR_UNSPEC, 5, 0, &one));
  for (auto &one : out) {
    net.post([&] { return fi_tsend(net[0].ep, &one, sizeof one, nullptr, net.at(0, 1), 5, &one); });
  }
  for (int i = 0; i < 4; ++i) net.wait(net[1].receive_cq());
  EXPECT_EQ(std::vector<uint64_t>(in, in + 4), (std::vector<uint64_t>{10, 12, 12, 13}));
  int errors = 0;
  for (int i = 0; i < 5; ++i) {
    const auto done = net.wait(net[0].tx_cq);
    if (done.err == 0) continue;
    ++errors;
    EXPECT_EQ(done.err, FI_EIO);
    EXPECT_EQ(done.context, &out[4]);
  }
  EXPECT_EQ(errors, 1);
}

// [rxm, fault, tcp]: the hook is on the objects that rxm opens.
bool beneath_rxm(const char *rules) {
  const char *given = getenv("FI_CONFIG");
  const char *folder = getenv("TMPDIR");
  const std::string path = given != nullptr
                               ? given
                               : std::string(folder != nullptr ? folder : "/tmp") + "/weft-fault-" +
                                     std::to_string(getpid()) + ".yaml";
  if (given == nullptr) {
    std::ofstream(path) << "version: 1\nstacks:\n  tested: [{layer: rxm}, {hook: fault, params: "
                           "{rules: \""
                        << rules << "\"}}, {provider: tcp}]\nuse: [tested]\n";
  }
  const std::string config = "FI_CONFIG=" + path;
  if (in_fresh_process({config.c_str(), "WEFT_TEST_STACK=tcp;ofi_rxm", "WEFT_TEST_REQUIRED=1"}))
    return true;
  unlink(path.c_str());
  return false;
}

TEST(Fault, BeneathRxmTheProviderIsFull) {
  if (!beneath_rxm("post:every=3:eagain;cq_read:p=0.3:eagain;seed=5")) return;
  rdm::Net net(2);
  for (size_t i = 0; i < 100; ++i) net.exchange(i % 2, 1 - i % 2, 1 + i * 700, i);
}

// Sends `count` numbers one by one and returns the results. Nothing may hang.
struct Fates {
  int failed = 0, received = 0;
};
Fates send_numbers(int count) {
  rdm::Net net(2);
  Fates fates;
  std::vector<uint64_t> in(size_t(count), 0);
  for (auto &one : in)
    must(fi_trecv(net[1].ep, &one, sizeof one, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
  for (int i = 0; i < count; ++i) {
    const uint64_t out = uint64_t(i) + 1;
    const ssize_t rc = net.attempt(
        [&] { return fi_tsend(net[0].ep, &out, sizeof out, nullptr, net.at(0, 1), 5, nullptr); });
    fates.failed += rc != 0 || net.wait(net[0].tx_cq).err != 0;
  }
  net.settle();
  for (const uint64_t one : in) fates.received += one != 0;
  return fates;
}

TEST(Fault, BeneathRxmSendsFail) {
  if (!beneath_rxm("send,inject:nth=12:fail=EIO")) return;
  const Fates fates = send_numbers(40);
  EXPECT_GT(fates.failed, 0);
  EXPECT_LT(fates.received, 40);
}

TEST(Fault, BeneathRxmConnectionDies) {
  if (!beneath_rxm("send,inject:every=12:kill")) return;
  const Fates fates = send_numbers(40);
  // rxm may connect again and go on, or fail the operations; it must report one of the two.
  EXPECT_GE(fates.received + fates.failed, 40);
}

}  // namespace
}  // namespace weft::conformance
