// SPDX-License-Identifier: BSD-2-Clause
// Multicast groups of datagram endpoints, and their aliases, over the double.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "plugins/verbs/datagram_endpoint.h"
#include "plugins/verbs/test_datagrams.h"

namespace weft::verbs {
namespace {

using testing::HasSubstr;

struct GroupEvent {
  uint32_t type = 0;
  fi_eq_entry entry{};
  int err = 0;
};

std::optional<GroupEvent> group_event(DatagramSide &side) {
  GroupEvent event;
  const ssize_t n = fi_eq_read(side.eq, &event.type, &event.entry, sizeof event.entry, 0);
  if (n > 0) return event;
  if (n != -FI_EAVAIL) return {};
  fi_eq_err_entry error{};
  EXPECT_EQ(fi_eq_readerr(side.eq, &error, 0), ssize_t(sizeof error));
  return GroupEvent{.type = 0, .entry = {error.fid, error.context, 0}, .err = error.err};
}

DatagramName group_name(const char *gid) {
  DatagramName name{};
  EXPECT_EQ(inet_pton(AF_INET6, gid, name.gid.raw), 1);
  name.queue_pair = kGroupQueuePair;
  return name;
}

// A membership that ends with its scope.
class Member {
 public:
  Member(DatagramSide &side, const DatagramName &name, uint64_t flags = 0) {
    EXPECT_EQ(fi_join(side.ep, &name, flags, &mc_, this), 0) << test_log();
    const auto event = group_event(side);
    EXPECT_TRUE(event) << "no event: " << test_log();
    if (!event) return;
    EXPECT_EQ(event->type, uint32_t(FI_JOIN_COMPLETE)) << event->err << test_log();
    EXPECT_EQ(event->entry.fid, &mc_->fid);
    EXPECT_EQ(event->entry.context, this);
  }
  ~Member() { leave(); }
  Member(const Member &) = delete;
  Member &operator=(const Member &) = delete;
  void leave() {
    if (mc_ == nullptr) return;
    EXPECT_EQ(fi_close(&mc_->fid), 0);
    mc_ = nullptr;
  }
  fi_addr_t address() const { return fi_mc_addr(mc_); }

 private:
  fid_mc *mc_ = nullptr;
};

void post(DatagramSide &side, DatagramBuffer &buffer) {
  ASSERT_EQ(fi_recv(side.ep, buffer.start(), buffer.size(), buffer.desc(), 0, &buffer), 0);
}

ssize_t inject(DatagramSide &side, fi_addr_t to, char what = 'x') {
  char message[kDatagramHeader + 1] = {};
  message[kDatagramHeader] = what;
  return fi_inject(side.ep, message, sizeof message, to);
}

const char *const kGroups[] = {"ff15::1", "::ffff:239.1.2.3"};

TEST(VerbsGroups, EveryMemberReceivesAndNobodyElse) {
  for (const char *gid : kGroups) {
    TestNode node;
    DatagramSide a(node), b(node), stranger(node);
    const fi_addr_t a_at_b = b.insert(a);
    DatagramBuffer at_a(a, 10), at_b(b, 10), at_stranger(stranger, 10);
    post(a, at_a), post(b, at_b), post(stranger, at_stranger);
    Member mine(a, group_name(gid)), theirs(b, group_name(gid));
    EXPECT_EQ(inject(a, mine.address(), 'g'), 0);
    EXPECT_EQ(a.completion().entry.op_context, &at_a) << "its own: it is a member";
    const auto received = b.completion();
    EXPECT_EQ(received.entry.op_context, &at_b);
    EXPECT_EQ(at_b.text(1), "g");
    // The GID of an IPv4 source is another one than that of the name (gid_idx 0: link-local).
    EXPECT_EQ(received.source, gid == kGroups[0] ? a_at_b : FI_ADDR_NOTAVAIL);
    EXPECT_FALSE(stranger.try_completion());
    mine.leave(), theirs.leave();
  }
}

TEST(VerbsGroups, TheSourceIsKnownWhereNamesAreOfTheGroupsFamily) {
  TestNode node;
  DatagramOptions by_ipv4;
  by_ipv4.settings.gid_index = 1;
  DatagramSide a(node, by_ipv4), b(node, by_ipv4);
  ASSERT_TRUE(a.name().is_ipv4());
  const fi_addr_t a_at_b = b.insert(a);
  DatagramBuffer at_b(b, 10);
  Member mine(a, group_name(kGroups[1]), FI_SEND), theirs(b, group_name(kGroups[1]));
  post(b, at_b);
  EXPECT_EQ(inject(a, mine.address()), 0);
  EXPECT_EQ(b.completion().source, a_at_b);
}

TEST(VerbsGroups, SendersReceiveNothingAndReceiversSendNothing) {
  TestNode node;
  DatagramSide a(node), b(node);
  DatagramBuffer at_a(a, 10), at_b(b, 10);
  post(a, at_a), post(b, at_b);
  Member sender(a, group_name("ff15::1"), FI_SEND), receiver(b, group_name("ff15::1"), FI_RECV);
  EXPECT_EQ(inject(a, sender.address()), 0);
  EXPECT_EQ(b.completion().entry.op_context, &at_b);
  EXPECT_FALSE(a.try_completion());
  EXPECT_EQ(inject(b, receiver.address()), -FI_EINVAL);
}

TEST(VerbsGroups, WhoLeftReceivesNothingAndAnEndpointInAGroupIsBusy) {
  TestNode node;
  DatagramSide a(node), b(node);
  Member sender(a, group_name("ff15::1"), FI_SEND);
  DatagramBuffer at_b(b, 10);
  post(b, at_b);
  for (int round = 0; round < 3; ++round) {
    Member member(b, group_name("ff15::1"));
    EXPECT_EQ(fi_close(&b.ep->fid), -FI_EBUSY);
    EXPECT_EQ(inject(a, sender.address()), 0);
    EXPECT_EQ(b.completion().entry.op_context, &at_b);
    post(b, at_b);
    const fi_addr_t gone = member.address();
    member.leave();
    EXPECT_EQ(inject(a, sender.address()), 0);
    EXPECT_FALSE(b.try_completion());
    EXPECT_EQ(inject(b, gone), -FI_EINVAL);
  }
}

TEST(VerbsGroups, GroupsAreKeptApart) {
  TestNode node;
  DatagramSide a(node), b(node);
  const DatagramName names[] = {group_name("ff15::1"), group_name("ff15::2"),
                                group_name("::ffff:239.0.0.1"), group_name("::ffff:239.0.0.2")};
  Member all[] = {{a, names[0], FI_SEND},
                  {a, names[1], FI_SEND},
                  {a, names[2], FI_SEND},
                  {a, names[3], FI_SEND}};
  Member second(b, names[1]), third(b, names[2]);
  DatagramBuffer buffers[] = {{b, 10}, {b, 10}, {b, 10}, {b, 10}};
  for (DatagramBuffer &buffer : buffers) post(b, buffer);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(inject(a, all[i].address(), char('0' + i)), 0);
  b.completion(), b.completion();
  EXPECT_FALSE(b.try_completion());
  EXPECT_EQ(buffers[0].text(1) + buffers[1].text(1), "12");
}

// With FI_MULTICAST, with FI_MORE, without flags.
TEST(VerbsGroups, EveryFormOfSend) {
  TestNode node;
  DatagramSide a(node), b(node);
  Member sender(a, group_name("ff15::1"), FI_SEND), receiver(b, group_name("ff15::1"), FI_RECV);
  DatagramBuffer buffers[] = {{b, 10}, {b, 10}, {b, 10}}, out(a, 10, "m");
  for (DatagramBuffer &buffer : buffers) post(b, buffer);
  iovec iov{out.start(), out.length(1)};
  void *desc = out.desc();
  fi_msg message{};
  message.msg_iov = &iov;
  message.desc = &desc;
  message.iov_count = 1;
  message.addr = sender.address();
  EXPECT_EQ(fi_sendmsg(a.ep, &message, FI_MULTICAST | FI_MORE), 0);
  EXPECT_EQ(fi_sendmsg(a.ep, &message, FI_MULTICAST), 0);
  EXPECT_EQ(fi_send(a.ep, out.start(), out.length(1), desc, sender.address(), nullptr), 0);
  for (DatagramBuffer &buffer : buffers) {
    EXPECT_EQ(b.completion().entry.op_context, &buffer);
    EXPECT_EQ(buffer.text(1), "m");
  }
  message.addr = a.insert(b);
  EXPECT_EQ(fi_sendmsg(a.ep, &message, FI_MULTICAST), -FI_EINVAL) << "no group";
}

TEST(VerbsGroups, WrongCallsAreRefusedWithAReason) {
  TestNode node;
  DatagramSide a(node);
  fid_mc *mc = nullptr;
  DatagramName own = a.name(), name = group_name("ff15::1");
  EXPECT_EQ(fi_join(a.ep, &own, 0, &mc, nullptr), -FI_EINVAL);
  EXPECT_THAT(node.log(), HasSubstr("no multicast group"));
  own = name;
  own.queue_pair = 0x12;
  EXPECT_EQ(fi_join(a.ep, &own, 0, &mc, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_join(a.ep, &name, FI_PEEK, &mc, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_join(a.ep, nullptr, 0, &mc, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_join(a.ep, &name, 0, nullptr, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_join(a.ep, &name, FI_COLLECTIVE, &mc, nullptr), -FI_ENOSYS);
  EXPECT_EQ(inject(a, kGroupBase), -FI_EINVAL);
  EXPECT_EQ(inject(a, FI_ADDR_UNSPEC), -FI_EINVAL);
  Member member(a, name);
  EXPECT_EQ(fi_join(a.ep, &name, 0, &mc, nullptr), -FI_EADDRINUSE);

  DatagramOptions plain, late, deaf;
  plain.caps = FI_MSG | FI_SEND | FI_RECV;
  DatagramSide without(node, plain);
  EXPECT_EQ(fi_join(without.ep, &name, 0, &mc, nullptr), -FI_EOPNOTSUPP);
  late.enables = false;
  DatagramSide early(node, late);
  EXPECT_EQ(fi_join(early.ep, &name, 0, &mc, nullptr), -FI_EOPBADSTATE);
  deaf.binds_eq = false;
  DatagramSide no_queue(node, deaf);
  EXPECT_EQ(fi_join(no_queue.ep, &name, 0, &mc, nullptr), -FI_ENOEQ);
}

// The error is an entry of the event queue, or of the call; afterwards all goes on.
TEST(VerbsGroups, AJoinThatFailsIsAnError) {
  TestNode node;
  DatagramSide a(node);
  const DatagramName name = group_name("::ffff:239.1.2.3");
  fid_mc *mc = nullptr;
  for (const char *call : {"rdma_create_id", "rdma_bind_addr", "rdma_join_multicast"}) {
    node.network.fail({.call = call, .error = ENOMEM});
    EXPECT_EQ(fi_join(a.ep, &name, 0, &mc, nullptr), -FI_ENOMEM) << call;
    EXPECT_FALSE(group_event(a));
  }
  for (const char *gid : kGroups)
    for (const char *call : {"ibv_attach_mcast", "ibv_create_ah"}) {
      const DatagramName other = group_name(gid);
      node.network.fail({.call = call, .error = ENOMEM});
      ASSERT_EQ(fi_join(a.ep, &other, 0, &mc, &a), 0) << call;
      const auto event = group_event(a);
      ASSERT_TRUE(event);
      EXPECT_EQ(event->err, FI_ENOMEM) << call;
      EXPECT_EQ(event->entry.fid, &mc->fid);
      EXPECT_EQ(event->entry.context, &a);
      EXPECT_EQ(inject(a, fi_mc_addr(mc)), -FI_EINVAL);
      EXPECT_EQ(fi_close(&mc->fid), 0);
    }
  // A subnet that knows no send-only members.
  node.network.fail({.call = "rdma_join_multicast", .error = EOPNOTSUPP});
  Member sender(a, name, FI_SEND);
  EXPECT_EQ(inject(a, sender.address()), 0);
}

TEST(VerbsGroups, ClosedBeforeItsEventAndWithSendsInFlight) {
  verbs_double::NetworkOptions slow;
  slow.progress = verbs_double::Progress::kByStep;
  TestNode node(slow);
  DatagramSide a(node), b(node);
  const DatagramName name = group_name("::ffff:239.1.2.3");
  fid_mc *mc = nullptr;
  ASSERT_EQ(fi_join(a.ep, &name, 0, &mc, nullptr), 0);
  EXPECT_FALSE(group_event(a));
  EXPECT_EQ(inject(a, fi_mc_addr(mc)), -FI_EAGAIN) << "before FI_JOIN_COMPLETE";
  EXPECT_EQ(fi_close(&mc->fid), 0);
  node.network.run();
  EXPECT_FALSE(group_event(a)) << "of a group that is closed";
  ASSERT_EQ(fi_join(a.ep, &name, 0, &mc, nullptr), 0);
  node.network.run();
  ASSERT_TRUE(group_event(a));
  DatagramBuffer out(a, 10);
  ASSERT_EQ(fi_send(a.ep, out.start(), out.length(1), out.desc(), fi_mc_addr(mc), &out), 0);
  EXPECT_EQ(fi_close(&mc->fid), 0);
  node.network.run();
  EXPECT_EQ(a.completion().entry.op_context, &out);
}

TEST(VerbsGroups, AreJoinedAndLeftWhileOthersSend) {
  verbs_double::NetworkOptions alive;
  alive.progress = verbs_double::Progress::kByThread;
  TestNode node(alive);
  DatagramSide a(node);
  std::atomic<bool> stop{false};
  std::atomic<size_t> sent{0};
  std::vector<std::thread> senders;
  for (int i = 0; i < 2; ++i)
    senders.emplace_back([&] {
      while (!stop.load()) {
        const ssize_t rc = inject(a, kGroupBase);
        EXPECT_TRUE(rc == 0 || rc == -FI_EAGAIN || rc == -FI_EINVAL) << rc;
        if (rc == 0) ++sent;
        fi_cq_read(a.cq, nullptr, 0);
      }
    });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto in_time = [&] { return std::chrono::steady_clock::now() < deadline; };
  for (size_t round = 0; (round < 100 || sent.load() < 100) && in_time(); ++round) {
    const DatagramName name = group_name(kGroups[round % 2]);
    fid_mc *mc = nullptr;
    ASSERT_EQ(fi_join(a.ep, &name, round % 3 == 0 ? FI_SEND : 0, &mc, nullptr), 0) << test_log();
    if (round % 4 != 0)
      while (!group_event(a) && in_time()) {
      }
    EXPECT_EQ(fi_close(&mc->fid), 0);
  }
  stop.store(true);
  for (std::thread &sender : senders) sender.join();
  EXPECT_GE(sent.load(), 100u);
  a.close_endpoint();
}

TEST(VerbsGroups, ADeviceThatGoesAwayEndsThem) {
  for (const char *gid : kGroups) {
    TestNode node;
    DatagramSide a(node);
    const DatagramName name = group_name(gid);
    fid_mc *mc = nullptr;
    ASSERT_EQ(fi_join(a.ep, &name, 0, &mc, nullptr), 0);
    ASSERT_TRUE(group_event(a));
    node.device.remove();
    const auto event = group_event(a);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->err, FI_ENODEV);
    EXPECT_FALSE(group_event(a)) << "once";
    EXPECT_EQ(inject(a, fi_mc_addr(mc)), -FI_EINVAL);
    EXPECT_EQ(fi_close(&mc->fid), 0);
  }
}

TEST(VerbsGroups, AreOfferedWhereTheDeviceHasThem) {
  const auto caps_of = [](const verbs_double::DeviceOptions &device) {
    TestNode node({}, device);
    VerbsProvider provider(&node.instance, Settings{});
    fi_info hints{};
    hints.mode = FI_MSG_PREFIX;
    hints.addr_format = FI_ADDR_IB_UD;
    auto list = provider.getinfo({.hints = &hints});
    EXPECT_TRUE(list) << list.error().text;
    fi_info *const info = list->release();
    const uint64_t caps = info->caps & info->tx_attr->caps & info->rx_attr->caps;
    EXPECT_EQ(info->tx_attr->op_flags & FI_MULTICAST, info->caps & FI_MULTICAST);
    free_info(info);
    return caps;
  };
  verbs_double::DeviceOptions device;
  EXPECT_NE(caps_of(device) & FI_MULTICAST, 0u);
  device.features.multicast = false;
  EXPECT_EQ(caps_of(device) & FI_MULTICAST, 0u);
}

// ---- aliases ----

TEST(VerbsDatagramAliases, HaveFlagsOfTheirOwnAndTheRestIsTheEndpoints) {
  TestNode node;
  DatagramOptions options;
  options.selective = FI_SELECTIVE_COMPLETION;
  DatagramSide a(node, options), b(node);
  const fi_addr_t to_b = a.insert(b);
  fid_ep *told = nullptr, *other = nullptr;
  ASSERT_EQ(fi_ep_alias(a.ep, &told, FI_TRANSMIT | FI_COMPLETION), 0) << node.log();
  ASSERT_EQ(fi_ep_alias(told, &other, FI_RECV | FI_COMPLETION), 0) << "an alias of an alias";
  DatagramBuffer in(b, 100), out(a, 100, "alias"), back(a, 100);
  post(b, in);
  ASSERT_EQ(fi_send(told, out.start(), out.length(5), out.desc(), to_b, &out), 0);
  EXPECT_EQ(in.text(5), "alias");
  EXPECT_EQ(a.completion().entry.op_context, &out);
  post(b, in);
  ASSERT_EQ(fi_send(a.ep, out.start(), out.length(5), out.desc(), to_b, &out), 0);
  EXPECT_FALSE(a.try_completion()) << "the endpoint itself tells only what asks for it";
  const fi_addr_t to_a = b.insert(a);
  ASSERT_EQ(fi_recv(other, back.start(), back.size(), back.desc(), 0, &back), 0);
  ASSERT_EQ(inject(b, to_a), 0);
  EXPECT_EQ(a.completion().entry.op_context, &back);

  DatagramName name{};
  size_t size = sizeof name;
  EXPECT_EQ(fi_getname(&told->fid, &name, &size), 0);
  EXPECT_EQ(name.queue_pair, a.name().queue_pair);
  EXPECT_EQ(fi_tsend(told, out.start(), 1, nullptr, to_b, 0, nullptr), -FI_ENOSYS);
  uint64_t flags = FI_TRANSMIT;
  EXPECT_EQ(fi_control(&told->fid, FI_GETOPSFLAG, &flags), 0);
  EXPECT_EQ(flags, uint64_t(FI_COMPLETION));
  fid_ep *bad = nullptr;
  EXPECT_LT(fi_ep_alias(a.ep, &bad, FI_TRANSMIT | FI_FENCE), 0) << "datagrams have no fence";
  EXPECT_EQ(fi_close(&a.ep->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&other->fid), 0);
  EXPECT_EQ(fi_close(&told->fid), 0);
}

TEST(VerbsDatagramAliases, JoinGroupsForTheEndpoint) {
  TestNode node;
  DatagramSide a(node);
  fid_ep *alias = nullptr;
  ASSERT_EQ(fi_ep_alias(a.ep, &alias, FI_TRANSMIT | FI_COMPLETION), 0);
  const DatagramName name = group_name("ff15::1");
  fid_mc *mc = nullptr;
  ASSERT_EQ(fi_join(alias, &name, 0, &mc, nullptr), 0);
  EXPECT_EQ(fi_close(&alias->fid), 0);
  ASSERT_TRUE(group_event(a));
  DatagramBuffer in(a, 10);
  post(a, in);
  EXPECT_EQ(inject(a, fi_mc_addr(mc)), 0);
  EXPECT_EQ(a.completion().entry.op_context, &in);
  EXPECT_EQ(fi_close(&mc->fid), 0);
}

TEST(VerbsDatagrams, ReceivesFromBeforeEnableCanBeCancelled) {
  TestNode node;
  DatagramOptions late;
  late.enables = false;
  DatagramSide a(node, late);
  DatagramBuffer in(a, 10), kept(a, 10);
  const ssize_t rc = fi_recv(a.ep, in.start(), in.size(), in.desc(), 0, &in);
  if (rc == 0) {
    post(a, kept);
    EXPECT_EQ(fi_cancel(&a.ep->fid, &in), 0);
    EXPECT_EQ(a.failure().op_context, &in);
  } else {
    EXPECT_EQ(rc, -FI_EOPBADSTATE);
  }
  ASSERT_EQ(fi_enable(a.ep), 0);
  EXPECT_EQ(fi_cancel(&a.ep->fid, &in), -FI_ENOENT);
}

}  // namespace
}  // namespace weft::verbs
