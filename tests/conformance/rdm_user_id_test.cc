// SPDX-License-Identifier: BSD-2-Clause
// Ids that the user gives to the entries of an address vector (fi_av.3, USER IDENTIFIERS FOR
// ADDRESSES; fi_getinfo.3 and fi_domain.3, FI_AV_USER_ID): completions have the id in place of the
// fi_addr_t, and calls still take the fi_addr_t.
#include <netinet/in.h>
#include <algorithm>

#include <cstring>

#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance::rdm {
namespace {

// In no way like an fi_addr_t.
constexpr fi_addr_t kId = 0xfeedfacecafe0001, kOtherId = 0x8000000000000002;

class RdmUserId : public ::testing::TestWithParam<enum fi_av_type> {
 protected:
  // The endpoints of the net: the receiver, which gets the ids, and two senders.
  static constexpr size_t kTarget = 0, kA = 1, kB = 2;
  static constexpr uint64_t kTag = 7;
  static constexpr size_t kSizes[] = {0, 100, 20000, 300000};

  void SetUp() override {
    covers("FI_AV_USER_ID");
    if (!find_info(options()))
      GTEST_SKIP() << stack() << " has no user ids in address vectors of this type";
  }
  static Options options(uint64_t more = 0) {
    Options options;
    options.caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_AV_USER_ID | more;
    options.av_type = GetParam();
    return options;
  }
  static bool offered(uint64_t more) { return find_info(options(more)) != nullptr; }
  void open(uint64_t more = 0) { net.emplace(3, options(more)); }

  // Gives `peer` this id in the vector of `owner`. The entry is a new one, at the same place.
  void give_id(size_t owner, size_t peer, std::optional<fi_addr_t> id) {
    Node &node = (*net)[owner];
    const std::string address = (*net)[peer].name();
    fi_addr_t name = net->at(owner, peer);
    must(fi_av_remove(node.av, &name, 1, 0));
    if (id) name = *id;
    ASSERT_EQ(insert_address(node.av, address, &name, id ? FI_AV_USER_ID : 0, nullptr), 1);
    ASSERT_EQ(name, net->at(owner, peer)) << "what calls take is no id";
  }
  void send(size_t from, std::vector<uint8_t> &out, bool tagged = true, size_t to = kTarget) {
    net->post([&, ep = (*net)[from].ep.get(), name = net->at(from, to)] {
      return tagged ? fi_tsend(ep, out.data(), out.size(), nullptr, name, kTag, &out)
                    : fi_send(ep, out.data(), out.size(), nullptr, name, &out);
    });
  }
  static void receive(fid_ep *ep, std::vector<uint8_t> &in, bool tagged = true,
                      fi_addr_t from = FI_ADDR_UNSPEC) {
    must(tagged ? fi_trecv(ep, in.data(), in.size(), nullptr, from, kTag, 0, &in)
                : fi_recv(ep, in.data(), in.size(), nullptr, from, &in));
  }
  Completion told(size_t node = kTarget) {
    const Completion done = net->wait((*net)[node].rx_cq);
    EXPECT_EQ(done.err, 0) << fi_strerror(done.err);
    return done;
  }
  // The source in the completion of a message from there.
  fi_addr_t source_of(size_t from, size_t size = 100, bool tagged = true) {
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    receive((*net)[kTarget].ep, in, tagged);
    send(from, out, tagged);
    const fi_addr_t source = told().source;
    EXPECT_EQ(in, out);
    EXPECT_EQ(net->wait((*net)[from].tx_cq).err, 0);
    return source;
  }

  std::optional<Net> net;
};
INSTANTIATE_TEST_SUITE_P(Types, RdmUserId, ::testing::Values(FI_AV_MAP, FI_AV_TABLE),
                         [](const auto &info) {
                           return std::string(info.param == FI_AV_MAP ? "Map" : "Table");
                         });

TEST_P(RdmUserId, GetinfoOffersThemIfAskedFor) {
  const Info asked = find_info(options());
  EXPECT_TRUE(asked->caps & FI_AV_USER_ID);
  EXPECT_TRUE(asked->domain_attr->caps & FI_AV_USER_ID);
  EXPECT_FALSE(asked->rx_attr->caps & FI_AV_USER_ID) << "it is the domain's";
  Options plain;
  plain.av_type = GetParam();
  const Info other = find_info(plain);
  EXPECT_FALSE(other->caps & FI_AV_USER_ID) << "a primary capability must be asked for";
  EXPECT_FALSE(other->domain_attr->caps & FI_AV_USER_ID);
  const Info domain = ask([](fi_info &hints) { hints.domain_attr->caps = FI_AV_USER_ID; }, plain);
  ASSERT_NE(domain, nullptr);
  EXPECT_TRUE(domain->domain_attr->caps & FI_AV_USER_ID);
}

TEST_P(RdmUserId, MessagesComeWithTheIdOrElseTheAddress) {
  open();
  give_id(kTarget, kA, kId);
  for (const size_t size : kSizes) {
    for (const bool tagged : {true, false}) {
      SCOPED_TRACE(std::to_string(size) + (tagged ? " tagged" : ""));
      EXPECT_EQ(source_of(kA, size, tagged), kId);
      EXPECT_EQ(source_of(kB, size, tagged), net->at(kTarget, kB));
    }
  }
}

TEST_P(RdmUserId, SavedMessagesComeWithTheId) {
  open();
  give_id(kTarget, kA, kId);
  for (const size_t size : kSizes) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    send(kA, out);
    net->settle();
    receive((*net)[kTarget].ep, in);
    EXPECT_EQ(told().source, kId);
    EXPECT_EQ(in, out);
    EXPECT_EQ(net->wait((*net)[kA].tx_cq).err, 0);
  }
}

// A saved message gets the id that its sender's entry has when the receive completes. Entries of
// other peers do not matter.
TEST_P(RdmUserId, ASavedMessageComesWithTheIdAtItsCompletion) {
  open();
  Node &target = (*net)[kTarget];
  give_id(kTarget, kA, kId);
  std::vector<uint8_t> out = pattern(3000, 1), in(3000);
  send(kA, out);
  net->settle();
  give_id(kTarget, kA, kOtherId);
  receive(target.ep, in);
  EXPECT_EQ(told().source, kOtherId);
  EXPECT_EQ(net->wait((*net)[kA].tx_cq).err, 0);

  send(kA, out);
  net->settle();
  fi_addr_t names[] = {net->at(kTarget, kA), net->at(kTarget, kB)};
  must(fi_av_remove(target.av, names, 2, 0));
  const std::string other = (*net)[kB].name();
  fi_addr_t place = kId;
  ASSERT_EQ(insert_address(target.av, other, &place, FI_AV_USER_ID, nullptr), 1);
  ASSERT_EQ(place, names[0]) << "where the sender was";
  receive(target.ep, in);
  EXPECT_EQ(told().source, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(in, out);
  EXPECT_EQ(net->wait((*net)[kA].tx_cq).err, 0);
  EXPECT_EQ(source_of(kB), kId);
}

// The id of each peer is the fi_addr_t of the other: code that takes an id for an address reaches
// the wrong peer.
TEST_P(RdmUserId, CallsTakeTheAddress) {
  if (!offered(FI_DIRECTED_RECV)) GTEST_SKIP() << "no directed receives";
  open(FI_DIRECTED_RECV);
  const fi_addr_t a = net->at(kTarget, kA), b = net->at(kTarget, kB);
  give_id(kTarget, kA, b);
  give_id(kTarget, kB, a);
  std::vector<uint8_t> from_a(100), from_b(200), out_a = pattern(100, 1), out_b = pattern(200, 2);
  receive((*net)[kTarget].ep, from_a, true, a);
  receive((*net)[kTarget].ep, from_b, true, b);
  send(kB, out_b);
  const Completion of_b = told();
  EXPECT_EQ(of_b.context, &from_b);
  EXPECT_EQ(of_b.source, a);
  send(kA, out_a);
  const Completion of_a = told();
  EXPECT_EQ(of_a.context, &from_a);
  EXPECT_EQ(of_a.source, b);
  EXPECT_EQ(from_a, out_a);
  EXPECT_EQ(from_b, out_b);
  for (const size_t to : {kA, kB}) {
    std::vector<uint8_t> in(50), out = pattern(50, unsigned(to));
    receive((*net)[to].ep, in);
    send(kTarget, out, true, to);
    EXPECT_EQ(told(to).len, 50u);
    EXPECT_EQ(in, out);
    EXPECT_EQ(net->wait((*net)[kTarget].tx_cq).err, 0);
  }
}

TEST_P(RdmUserId, AnEntryThatIsMadeAgainHasTheLatestId) {
  open();
  const std::optional<fi_addr_t> ids[] = {kId, kOtherId, std::nullopt, FI_ADDR_NOTAVAIL, 0};
  for (const auto &id : ids) {
    give_id(kTarget, kA, id);
    EXPECT_EQ(source_of(kA), id.value_or(net->at(kTarget, kA)));
    EXPECT_EQ(source_of(kB), net->at(kTarget, kB));
  }
  // Another peer takes the place of a peer with an id.
  give_id(kTarget, kA, kId);
  fi_addr_t names[] = {net->at(kTarget, kA), net->at(kTarget, kB)};
  must(fi_av_remove((*net)[kTarget].av, names, 2, 0));
  EXPECT_EQ((*net)[kTarget].insert((*net)[kB].name()), std::min(names[0], names[1]));
  EXPECT_EQ(source_of(kB), std::min(names[0], names[1]));
}

TEST_P(RdmUserId, WritesWithDataComeWithTheId) {
  if (!offered(FI_RMA)) GTEST_SKIP() << "no remote memory access";
  open(FI_RMA);
  if ((*net)[kTarget].info->domain_attr->cq_data_size == 0) GTEST_SKIP() << "no remote data";
  give_id(kTarget, kA, kId);
  Node &target = (*net)[kTarget];
  std::vector<uint8_t> memory(1000), out = pattern(1000, 1);
  fid_mr *region = target.expose(memory.data(), memory.size(), FI_REMOTE_WRITE, 5);
  const uint64_t at = target.base_of(memory.data()), key = fi_mr_key(region);
  for (const size_t from : {kA, kB}) {
    net->post([&] {
      return fi_writedata((*net)[from].ep, out.data(), out.size(), nullptr, 77,
                          net->at(from, kTarget), at, key, &out);
    });
    const Completion done = told();
    EXPECT_TRUE(done.flags & FI_REMOTE_CQ_DATA);
    EXPECT_EQ(done.data, 77u);
    EXPECT_EQ(done.source, from == kA ? kId : net->at(kTarget, kB));
    EXPECT_EQ(net->wait((*net)[from].tx_cq).err, 0);
  }
  EXPECT_EQ(memory, out);
}

TEST_P(RdmUserId, PeekedAndClaimedMessagesComeWithTheId) {
  open();
  give_id(kTarget, kA, kId);
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  const iovec iov{in.data(), in.size()};
  fi_msg_tagged message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = FI_ADDR_UNSPEC;
  message.tag = kTag;
  message.context = &in;
  send(kA, out);
  for (const uint64_t what : {uint64_t(FI_PEEK), uint64_t(FI_PEEK | FI_CLAIM)}) {
    Completion seen;
    EXPECT_TRUE(net->until([&] {
      must(fi_trecvmsg((*net)[kTarget].ep, &message, what | FI_COMPLETION));
      seen = net->wait((*net)[kTarget].rx_cq);
      return seen.err != FI_ENOMSG;
    }));
    EXPECT_EQ(seen.err, 0);
    EXPECT_EQ(seen.source, kId);
  }
  // A claimed message has the id that the entry has now.
  give_id(kTarget, kA, kOtherId);
  must(fi_trecvmsg((*net)[kTarget].ep, &message, FI_CLAIM | FI_COMPLETION));
  EXPECT_EQ(told().source, kOtherId);
  EXPECT_EQ(in, out);
}

TEST_P(RdmUserId, MessagesInAMultiReceiveBufferComeWithTheirIds) {
  if (!offered(FI_MULTI_RECV)) GTEST_SKIP() << "no multi-receive buffers";
  open(FI_MULTI_RECV);
  give_id(kTarget, kA, kId);
  give_id(kTarget, kB, kOtherId);
  std::vector<uint8_t> buffer(100000);
  post_multi((*net)[kTarget].ep, buffer);
  for (unsigned i = 0; i < 6; ++i) {
    const size_t from = i % 2 == 0 ? kA : kB;
    std::vector<uint8_t> out = pattern(500 + i, i);
    send(from, out, false);
    const Completion done = told();
    EXPECT_EQ(done.source, from == kA ? kId : kOtherId);
    EXPECT_EQ(done.len, out.size());
    EXPECT_EQ(net->wait((*net)[from].tx_cq).err, 0);
  }
}

TEST_P(RdmUserId, EndpointsThatShareAReceiveContextReportTheIds) {
  Options shared = options();
  shared.shared_receive = true;
  if (!find_info(shared)) GTEST_SKIP() << "no shared receive contexts";
  net.emplace(0, options());
  Node &first = net->add(shared);
  net->add(options());
  net->add(options());
  net->add(shared, {}, &first);
  // Both endpoints share the vector. A peer that the second one inserted as well has the id of its
  // first entry.
  give_id(kTarget, kA, kId);
  for (const size_t to : {size_t(0), size_t(3)}) {
    for (const bool saved : {false, true}) {
      std::vector<uint8_t> out = pattern(3000, 1), in(3000), more = pattern(3000, 2), last(3000);
      if (!saved) receive(first.srx, in);
      send(kA, out, true, to);
      if (saved) net->settle();
      if (saved) receive(first.srx, in);
      EXPECT_EQ(told(to).source, kId);
      receive(first.srx, last);
      send(kB, more, true, to);
      EXPECT_EQ(told(to).source, net->at(kTarget, kB));
      EXPECT_EQ(in, out);
      EXPECT_EQ(last, more);
      EXPECT_EQ(net->wait((*net)[kA].tx_cq).err, 0);
      EXPECT_EQ(net->wait((*net)[kB].tx_cq).err, 0);
    }
  }
}

TEST_P(RdmUserId, EveryWayToInsertTakesThem) {
  open();
  Node &target = (*net)[kTarget];
  fi_addr_t names[] = {net->at(kTarget, kA), net->at(kTarget, kB)};
  const std::string addresses[] = {(*net)[kA].name(), (*net)[kB].name()};
  std::string ports[2];
  for (int i : {0, 1}) ports[i] = port_of(addresses[i]);
  const auto expect = [&](fi_addr_t a, fi_addr_t b) {
    EXPECT_EQ(names[0], net->at(kTarget, kA));
    EXPECT_EQ(names[1], net->at(kTarget, kB));
    EXPECT_EQ(source_of(kA), a);
    EXPECT_EQ(source_of(kB), b);
    must(fi_av_remove(target.av, names, 2, 0));
  };
  must(fi_av_remove(target.av, names, 2, 0));
  if (names[0] > names[1]) GTEST_SKIP() << "holes are filled in another order";

  if (has_host_names()) {
    for (int i : {0, 1}) {
      names[i] = kId + i;
      ASSERT_EQ(fi_av_insertsvc(target.av, test_node(), ports[i].c_str(), &names[i], FI_AV_USER_ID,
                                nullptr),
                1);
    }
    expect(kId, kId + 1);

    for (int i : {0, 1}) {
      names[i] = kId + 10 + i;
      ASSERT_EQ(fi_av_insertsym(target.av, test_node(), 1, ports[i].c_str(), 1, &names[i],
                                FI_AV_USER_ID | FI_MORE, nullptr),
                1);
    }
    expect(kId + 10, kId + 11);
  }

  // The address between the two cannot be inserted: it gets no place and no id.
  std::string nobody(addresses[0].size(), '\0');
  if (has_text_addresses())
    nobody = "fi_shm://";
  else if (target.info->addr_format == FI_ADDR_CXI)
    std::ranges::fill(nobody, '\xff');
  else
    std::memcpy(nobody.data(), addresses[0].data(), sizeof(sa_family_t));
  const std::vector<std::string> all = {addresses[0], nobody, addresses[1]};
  fi_addr_t three[] = {kId + 20, kId + 21, kId + 22};
  int errors[] = {-1, -1, -1};
  ASSERT_EQ(insert_addresses(target.av, all, three, FI_AV_USER_ID | FI_SYNC_ERR, errors), 2);
  EXPECT_EQ(errors[0], 0);
  EXPECT_NE(errors[1], 0);
  EXPECT_EQ(errors[2], 0);
  EXPECT_EQ(three[1], FI_ADDR_NOTAVAIL);
  names[0] = three[0];
  names[1] = three[2];
  expect(kId + 20, kId + 22);

  EXPECT_EQ(insert_address(target.av, all[0], nullptr, FI_AV_USER_ID, nullptr), -FI_EINVAL)
      << "no array, no ids";
}

// An endpoint of its own, because its vector needs an event queue before the first insertion.
TEST_P(RdmUserId, InsertionsThatEndWithAnEventTakeThem) {
  open();
  Node &host = (*net)[kTarget];
  Handle<fid_eq> eq;
  fi_eq_attr eq_attr = Options::eq_attr();
  must(fi_eq_open(host.fabric, &eq_attr, eq.out(), nullptr));
  fi_av_attr attr{};
  attr.type = GetParam();
  attr.flags = FI_EVENT;
  Handle<fid_av> av;
  const int rc = fi_av_open(host.domain, &attr, av.out(), nullptr);
  if (rc == -FI_EBADFLAGS) GTEST_SKIP() << stack() << " inserts at once";
  must(rc);
  must(fi_av_bind(av, eq.fid(), 0));
  Handle<fid_ep> ep;
  must(fi_endpoint(host.domain, host.info.get(), ep.out(), nullptr));
  must(fi_ep_bind(ep, av.fid(), 0));
  must(fi_ep_bind(ep, host.tx_cq.fid(), FI_TRANSMIT));
  must(fi_ep_bind(ep, host.rx_cq.fid(), FI_RECV));
  must(fi_enable(ep));

  const std::vector<std::string> both = {(*net)[kA].name(), (*net)[kB].name()};
  fi_addr_t names[] = {kId, kOtherId};
  int mark = 0;
  ASSERT_EQ(insert_addresses(av, both, names, FI_AV_USER_ID, &mark), 0);
  uint32_t event = 0;
  fi_eq_entry entry{};
  EXPECT_TRUE(
      net->until([&] { return fi_eq_read(eq, &event, &entry, sizeof entry, 0) == sizeof entry; }));
  EXPECT_EQ(event, FI_AV_COMPLETE);
  EXPECT_EQ(entry.data, 2u);
  EXPECT_EQ(entry.context, &mark);
  EXPECT_NE(names[0], kId);
  EXPECT_NE(names[1], kOtherId);
  const std::string own =
      address_of([&](void *buffer, size_t *size) { return fi_getname(ep.fid(), buffer, size); });
  for (const size_t from : {kA, kB}) {
    const fi_addr_t to = (*net)[from].insert(own);
    std::vector<uint8_t> out = pattern(100, 1), in(100);
    receive(ep, in);
    net->post(
        [&] { return fi_tsend((*net)[from].ep, out.data(), 100, nullptr, to, kTag, nullptr); });
    EXPECT_EQ(told().source, from == kA ? kId : kOtherId);
    EXPECT_EQ(in, out);
    EXPECT_EQ(net->wait((*net)[from].tx_cq).err, 0);
  }
}

// fi_av.3, fi_av_set_user_id: until it is called an entry of such a vector has no name.
TEST_P(RdmUserId, AVectorOpenedForThemHasThemSetAfterTheInsertion) {
  Options opened = options();
  opened.av_flags = FI_AV_USER_ID;
  net.emplace(3, opened);
  Node &target = (*net)[kTarget];
  EXPECT_EQ(source_of(kA), FI_ADDR_NOTAVAIL);
  must(fi_av_set_user_id(target.av, net->at(kTarget, kA), kId, 0));
  EXPECT_EQ(source_of(kA), kId);
  EXPECT_EQ(source_of(kB), FI_ADDR_NOTAVAIL);
  must(fi_av_set_user_id(target.av, net->at(kTarget, kA), kOtherId, 0));
  EXPECT_EQ(source_of(kA), kOtherId);
  give_id(kTarget, kA, std::nullopt);
  EXPECT_EQ(source_of(kA), FI_ADDR_NOTAVAIL);
  const std::string address = (*net)[kA].name();
  fi_addr_t name = kId;
  EXPECT_EQ(insert_address(target.av, address, &name, FI_AV_USER_ID, nullptr), -FI_EINVAL);
  EXPECT_EQ(name, kId);
  EXPECT_EQ(fi_av_set_user_id(target.av, 1000000, kId, 0), -FI_EINVAL) << "no such entry";
}

TEST_P(RdmUserId, WithoutTheCapabilityTheyAreRefused) {
  Options plain = options();
  plain.caps &= ~FI_AV_USER_ID;
  net.emplace(3, plain);
  Node &target = (*net)[kTarget];
  const std::string address = (*net)[kA].name();
  fi_addr_t name = kId;
  EXPECT_LT(insert_address(target.av, address, &name, FI_AV_USER_ID, nullptr), 0);
  EXPECT_LT(fi_av_insertsvc(target.av, test_node(), "7000", &name, FI_AV_USER_ID, nullptr), 0);
  EXPECT_LT(fi_av_insertsym(target.av, test_node(), 1, "7000", 1, &name, FI_AV_USER_ID, nullptr),
            0);
  EXPECT_EQ(name, kId);
  EXPECT_LT(fi_av_set_user_id(target.av, net->at(kTarget, kA), kId, 0), 0);
  fi_av_attr attr{};
  attr.type = GetParam();
  attr.flags = FI_AV_USER_ID;
  fid_av *av = nullptr;
  EXPECT_LT(fi_av_open(target.domain, &attr, &av, nullptr), 0);
  EXPECT_EQ(av, nullptr);
  EXPECT_EQ(source_of(kA), net->at(kTarget, kA));
}

}  // namespace
}  // namespace weft::conformance::rdm
