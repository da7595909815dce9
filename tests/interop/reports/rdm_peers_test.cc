// SPDX-License-Identifier: BSD-2-Clause
// Public reports about peers of reliable datagram endpoints: those that come, go, die, fork, or are
// not yet known. reports.toml says who reported what.
#include <netinet/in.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/interop/reports/strangers.h"

namespace weft::conformance::rdm {
namespace {

Options with_sources() {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV;
  return options;
}

// A sender is told that its message is sent, and leaves before the receive is posted.
TEST(ReportedPeer, AMessageOutlivesItsSender) {
  for (size_t size : {100, 10000}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    Net net(2);
    net.post([&] {
      return fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), 1, &out);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net[0].ep.reset();
    must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    const Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.len, size);
    EXPECT_EQ(in, out);
  }
}

TEST(ReportedPeer, WhatWasDeliveredOutlivesItsSenders) {
  Options options;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  NEEDS_OFFER(options, "FI_DELIVERY_COMPLETE");
  Net net(4, options);
  std::vector<uint8_t> in[3], out = pattern(16, 1);
  for (auto &buffer : in) {
    buffer.resize(16);
    must(fi_trecv(net[0].ep, buffer.data(), 16, nullptr, FI_ADDR_UNSPEC, 1, 0, &buffer));
  }
  for (size_t from : {1, 2, 3}) {
    net.post(
        [&] { return fi_tsend(net[from].ep, out.data(), 16, nullptr, net.at(from, 0), 1, &out); });
    EXPECT_EQ(net.wait(net[from].tx_cq).err, 0);
    net[from].ep.reset();
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
  for (const auto &buffer : in) EXPECT_EQ(buffer, out);
}

// Everybody sends to everybody before anybody has a connection.
TEST(ReportedPeer, FirstMessagesMayCross) {
  constexpr size_t kPeers = 4;
  for (int round = 0; round < 5; ++round) {
    std::vector<uint8_t> out[kPeers], in[kPeers][kPeers];
    Net net(kPeers);
    for (size_t i = 0; i < kPeers; ++i) out[i] = pattern(2000, unsigned(i));
    for (size_t i = 0; i < kPeers; ++i)
      for (size_t j = 0; j < kPeers; ++j) {
        if (i == j) continue;
        in[i][j].resize(2000);
        must(fi_trecv(net[i].ep, in[i][j].data(), 2000, nullptr, FI_ADDR_UNSPEC, j, 0, nullptr));
        net.post([&] {
          return fi_tsend(net[i].ep, out[i].data(), 2000, nullptr, net.at(i, j), i, nullptr);
        });
      }
    for (size_t i = 0; i < kPeers; ++i)
      for (size_t j = 1; j < kPeers; ++j) {
        EXPECT_EQ(net.wait(net[i].rx_cq).err, 0);
        EXPECT_EQ(net.wait(net[i].tx_cq).err, 0);
      }
    for (size_t i = 0; i < kPeers; ++i)
      for (size_t j = 0; j < kPeers; ++j)
        if (i != j) {
          EXPECT_EQ(in[i][j], out[j]) << j << " to " << i;
        }
  }
}

// Sends to an address where nobody listens yet fail; once there is a server they arrive.
TEST(ReportedPeer, AServerThatStartsAfterItsClientsIsReached) {
  if (!has_host_names()) GTEST_SKIP() << "the device chooses the address";
  Options at_port;
  {
    const Node brief{Options()};
    at_port.service = port_of(brief.name());
  }
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  Net net(1);
  const fi_addr_t to = net[0].insert(address_at(at_port, unsigned(std::stoul(at_port.service))));
  const auto send = [&] { return fi_tsend(net[0].ep, out.data(), 100, nullptr, to, 1, &out); };
  for (int i = 0; i < 2; ++i)  // refused at once, or in time
    if (net.attempt(send) == 0) {
      EXPECT_NE(net.wait(net[0].tx_cq).err, 0);
    }
  Node server(at_port);
  must(fi_trecv(server.ep, in.data(), 100, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  bool pending = false, reached = false;
  EXPECT_TRUE(net.until([&] {
    if (!pending && !reached) pending = send() == 0;
    if (const auto got = poll(server.rx_cq)) reached = got->err == 0;
    server.progress();
    if (poll(net[0].tx_cq)) pending = false;
    return reached && !pending;
  }));
  EXPECT_EQ(in, out);
}

// A server whose clients stay for one message, or leave before it has gone.
TEST(ReportedPeer, AServerOutlivesManyShortClients) {
  if (!in_fresh_process({kNoControl})) return;
  constexpr int kWarm = 5, kClients = 40;
  Net net(1);
  Node &server = net[0];
  int descriptors = 0;
  for (int i = 0; i < kClients; ++i) {
    if (i == kWarm) descriptors = count_descriptors();
    std::vector<uint8_t> out = pattern(64, unsigned(i)), in(64);
    const bool stays = i % 2 == 0;
    const uint64_t tag = stays ? 1 : 2;  // what comes of the others is not received
    if (stays) must(fi_trecv(server.ep, in.data(), 64, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    Node client{Options()};
    const fi_addr_t to = client.insert(server.name());
    const auto both = [&] {
      client.progress();
      server.progress();
    };
    ssize_t rc = 0;
    net.until([&] {
      both();
      return (rc = fi_tsend(client.ep, out.data(), 64, nullptr, to, tag, &out)) != -FI_EAGAIN;
    });
    must(rc);
    if (!stays) {  // as a process of its own does, while the server goes on
      std::atomic<bool> gone{false};
      std::thread leaving([&] {
        client.ep.reset();
        gone = true;
      });
      EXPECT_TRUE(net.until([&] { return gone.load(); }));
      leaving.join();
      continue;
    }
    std::optional<Completion> got, sent;
    EXPECT_TRUE(net.until([&] {
      both();
      if (!got) got = poll(server.rx_cq);
      if (!sent) sent = poll(client.tx_cq);
      return got && sent;
    })) << "client "
        << i;
    EXPECT_EQ(in, out);
  }
  net.settle();
  EXPECT_LE(count_descriptors(), descriptors + 8);
}

// The other process: exposes memory to whoever knows its address, and serves until it is killed.
void expose_and_serve(int socket) {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA;
  std::vector<uint8_t> memory(1 << 20);
  Net net(1, options);
  fid_mr *mr = net[0].expose(memory.data(), memory.size(), FI_REMOTE_WRITE, 5);
  tell_text(socket, net[0].name());
  tell(socket, net[0].base_of(memory.data()));
  tell(socket, fi_mr_key(mr));
  net.until([&] { return can_hear(socket); });
}

// Where the other process can be written to.
struct Exposure {
  Exposure(Node &node, Child &child) : to(node.insert(hear_text(child.socket()))) {
    base = hear(child.socket());
    key = hear(child.socket());
  }
  ssize_t write(Node &node, std::vector<uint8_t> &out) const {
    return fi_write(node.ep, out.data(), out.size(), nullptr, to, base, key, &out);
  }
  fi_addr_t to;
  uint64_t base, key;
};

// Every write that was taken has one completion, and a write to the dead process ends: not with
// -FI_EAGAIN for ever.
TEST(ReportedPeer, AProcessThatIsKilledUnderWritesEndsThemAll) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA;
  Child doomed(expose_and_serve), heir(expose_and_serve);
  std::vector<uint8_t> out = pattern(1 << 20, 1);
  NEEDS_OFFER(options, "FI_RMA");
  Net net(1, options);
  const Exposure target(net[0], doomed), next(net[0], heir);
  const auto write = [&](const Exposure &where) { return where.write(net[0], out); };
  net.post([&] { return write(target); });
  int pending = 1;
  for (int i = 1; i < 32; ++i) pending += write(target) == 0;
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  --pending;
  doomed.kill();
  while (pending > 0) {
    net.wait(net[0].tx_cq);
    --pending;
  }
  if (net.attempt([&] { return write(target); }) == 0) {
    EXPECT_NE(net.wait(net[0].tx_cq).err, 0);
  }
  net.post([&] { return write(next); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0) << "to a process that lives";
  EXPECT_FALSE(poll(net[0].tx_cq).has_value());
  tell(heir.socket(), 0);
  heir.join();
}

constexpr int kGathered = 200;

// The other process: sends its numbers in their order, whether anybody receives them or not.
void send_numbers(int socket) {
  Net net(1);
  const fi_addr_t to = net[0].insert(hear_text(socket));
  const uint64_t tag = hear(socket);
  for (int i = 0; i < kGathered; ++i) {
    const int number = i;
    net.post(
        [&] { return fi_tsend(net[0].ep, &number, sizeof number, nullptr, to, tag, nullptr); });
    if (net.wait(net[0].tx_cq).err != 0) throw std::runtime_error("a send failed");
  }
  tell(socket, 0);
  net.until([&] { return can_hear(socket); });
}

// Many processes send numbers to one, which gathers them round by round.
TEST(ReportedPeer, NumbersOfManyProcessesAreGatheredInTheirPlaces) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  constexpr size_t kProcesses = 6;
  std::vector<std::unique_ptr<Child>> children;
  for (size_t i = 0; i < kProcesses; ++i) children.push_back(std::make_unique<Child>(send_numbers));
  Net net(1);
  for (size_t i = 0; i < kProcesses; ++i) {
    tell_text(children[i]->socket(), net[0].name());
    tell(children[i]->socket(), i);
  }
  for (int round = 0; round < kGathered; ++round) {
    int numbers[kProcesses];
    for (size_t i = 0; i < kProcesses; ++i) {
      numbers[i] = -1;
      must(fi_trecv(net[0].ep, &numbers[i], sizeof numbers[i], nullptr, FI_ADDR_UNSPEC, i, 0,
                    nullptr));
    }
    for (size_t i = 0; i < kProcesses; ++i) ASSERT_EQ(net.wait(net[0].rx_cq).err, 0);
    for (const int number : numbers) ASSERT_EQ(number, round);
  }
  for (auto &child : children) {
    EXPECT_TRUE(net.until([&] { return can_hear(child->socket()); }));
    tell(child->socket(), 0);
    child->join();
  }
}

// A child makes its own objects, though its parent had some when it forked.
TEST(ReportedFork, AChildMakesItsOwnAndItsParentGoesOn) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  Net net(2);
  net.exchange(0, 1, 100000);
  Child child([](int) {
    Net own(2);
    own.exchange(0, 1);
    own.exchange(1, 0, 100000);
  });
  net.exchange(1, 0);
  child.join();
  net.exchange(0, 1, 100000);
}

// ---- address vectors ----

// The bytes behind the port of a sockaddr_in mean nothing.
TEST(ReportedAv, PaddingOfAnAddressMeansNothing) {
  NEEDS_IPV4_ADDRESSES();
  RDM_NEEDS(FI_TAGGED | FI_SOURCE);
  const auto dirty = [](std::string address) {
    std::memset(&address.at(offsetof(sockaddr_in, sin_zero)), 0x5a, sizeof(sockaddr_in::sin_zero));
    return address;
  };
  Strangers pair(with_sources());
  const fi_addr_t b = pair.a.insert(dirty(pair.b.name())), a = pair.b.insert(dirty(pair.a.name()));
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  for (fi_addr_t from : {fi_addr_t(FI_ADDR_UNSPEC), a}) {
    must(fi_trecv(pair.b.ep, in.data(), 64, nullptr, from, 1, 0, &in));
    pair.post([&] { return fi_tsend(pair.a.ep, out.data(), 64, nullptr, b, 1, &out); });
    const Completion got = pair.wait(pair.b.rx_cq);
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.source, a);
    EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
  }
}

// A message that came before its sender was inserted meets a receive that names the sender.
TEST(ReportedAv, AMessageMayComeBeforeItsSenderIsInserted) {
  if (!unconnected::offers(with_sources(), with_sources().caps))
    GTEST_SKIP() << "no directed receives";
  for (size_t size : {64, 100000}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    Strangers pair(with_sources());
    const fi_addr_t b = pair.a.insert(pair.b.name());
    pair.post([&] { return fi_tsend(pair.a.ep, out.data(), size, nullptr, b, 1, &out); });
    pair.settle();
    const fi_addr_t a = pair.b.insert(pair.a.name());
    must(fi_trecv(pair.b.ep, in.data(), size, nullptr, a, 1, 0, &in));
    const Completion got = pair.wait(pair.b.rx_cq);
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(in, out);
    EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
  }
}

// fi_av.3 advises against it and does not forbid it: both handles lead to the peer.
TEST(ReportedAv, AnAddressThatIsInsertedTwiceLeadsToItsPeerTwice) {
  Strangers pair{Options()};
  const fi_addr_t names[] = {pair.a.insert(pair.b.name()), pair.a.insert(pair.b.name())};
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  for (fi_addr_t name : names) {
    must(fi_trecv(pair.b.ep, in.data(), 64, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    pair.post([&] { return fi_tsend(pair.a.ep, out.data(), 64, nullptr, name, 1, &out); });
    EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
    EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
  }
}

// Each entry can be looked up, the first too. A handle that nobody got is refused.
TEST(ReportedAv, EveryEntryAndNoOtherIsLookedUp) {
  Node node{Options()};
  const Node others[] = {Node{Options()}, Node{Options()}, Node{Options()}};
  for (const Node &other : others) {
    const fi_addr_t name = node.insert(other.name());
    std::string address(other.name().size(), '\0');
    size_t size = address.size();
    ASSERT_EQ(fi_av_lookup(node.av, name, address.data(), &size), 0);
    EXPECT_EQ(size, address.size());
    EXPECT_EQ(address, other.name());
  }
  char address[256];
  for (const fi_addr_t nobody : {fi_addr_t(1000000), fi_addr_t(FI_ADDR_NOTAVAIL)}) {
    size_t size = sizeof address;
    EXPECT_LT(fi_av_lookup(node.av, nobody, address, &size), 0);
  }
}

// ---- closing ----

// Nothing of the library's own keeps a domain busy, though sends to a peer that left never ended.
TEST(ReportedClose, SendsToAPeerThatLeftDoNotKeepTheDomain) {
  std::vector<uint8_t> out = pattern(1 << 20, 1);
  Net net(2);
  for (int i = 0; i < 5; ++i)
    net.attempt([&] {
      return fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), 1, &out);
    });
  net.settle();
  net[1].ep.reset();
  net.settle();
}  // Handle expects that each fi_close succeeds

// fi_close of nothing, and the progress thread still runs.
TEST(ReportedClose, AProcessMayExitWithEverythingOpen) {
  if (!in_fresh_process()) return;
  Options options;
  options.progress = FI_PROGRESS_AUTO;
  if (!find_info(options)) options.progress = FI_PROGRESS_UNSPEC;
  static Net *left = nullptr;  // not a leak
  left = new Net(2, options);
  left->exchange(0, 1);
  left->exchange(1, 0, 100000);
  std::exit(HasFailure());
}

// Behind a firewall: endpoints take their ports from the range that is open.
TEST(ReportedEnvironment, EndpointsTakePortsOfTheRange) {
  if (!stack().starts_with("tcp")) GTEST_SKIP() << "no ports of TCP";
  if (!in_fresh_process({"FI_TCP_PORT_LOW_RANGE=21050", "FI_TCP_PORT_HIGH_RANGE=21099"})) return;
  Net net(3);
  for (size_t i = 0; i < net.size(); ++i) {
    const int port = std::stoi(port_of(net[i].name()));
    EXPECT_GE(port, 21050);
    EXPECT_LE(port, 21099);
  }
  net.exchange(0, 2);
}

// All of it, many times in one process.
TEST(ReportedClose, EverythingIsMadeAndClosedManyTimes) {
  for (int i = 0; i < 10; ++i) {
    Net net(2, {}, [](Node &node) {
      if (node.info->domain_attr->cntr_cnt != 0) node.count(FI_SEND);
    });
    net.exchange(0, 1, i % 2 ? 100 : 50000);
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
