// SPDX-License-Identifier: BSD-2-Clause
// Authorization keys of address vectors (FI_AV_AUTH_KEY, fi_av.3) over the C API: an endpoint that
// sends and receives in several VNIs.
#include <rdma/fi_cxi_ext.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/conformance/process.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

std::string key_of(uint16_t vni, uint32_t service = 1) {
  cxi_auth_key key;
  std::memset(&key, 0xa5, sizeof key);  // its padding may be anything
  key.svc_id = service;
  key.vni = vni;
  return std::string(reinterpret_cast<const char *>(&key), sizeof key);
}

const std::string kRed = key_of(10), kBlue = key_of(1);  // the VNIs of service 1
constexpr uint16_t kVnis[] = {10, 1};

Options in_both(uint64_t caps = 0) {
  Options options;
  options.caps |= caps;
  options.vector_keys = {kRed, kBlue};
  options.api = FI_VERSION(1, 20);  // fi_cq_err_entry.src_addr
  return options;
}
Options in_one(uint16_t vni, uint64_t caps = 0) {
  Options options;
  options.caps |= caps;
  options.domain_auth_key = key_of(vni);
  return options;
}

// An endpoint in both VNIs (0), and one in each of them alone (1 and 2), with the same PID. Each
// knows the first, and the first knows them by their keys.
class Star {
 public:
  explicit Star(uint64_t caps = FI_SOURCE, const Options &hub = in_both()) {
    Options center = hub;
    center.caps |= caps;
    nodes.add(center);
    for (size_t i = 0; i < 2; ++i) {
      Options leaf = in_one(kVnis[i], caps & (FI_RMA | FI_ATOMIC));
      leaf.protocol = hub.protocol;
      leaf.service = "44";
      leaves.push_back(std::make_unique<Node>(leaf));
      to_hub.push_back(leaves[i]->insert(nodes[0].name()));
      to_leaf.push_back(nodes[0].insert(leaves[i]->name(), i));
    }
  }
  Node &hub() { return nodes[0]; }
  bool until(const std::function<bool()> &done) {
    return nodes.until([&] {
      for (const auto &leaf : leaves) leaf->progress();
      return done();
    });
  }
  Completion wait(fid_cq *cq) {
    std::optional<Completion> found;
    EXPECT_TRUE(until([&] { return (found = poll(cq)).has_value(); }));
    return found.value_or(Completion{.err = FI_ETIMEDOUT});
  }
  void post(const std::function<ssize_t()> &call) {
    ssize_t rc = -FI_EAGAIN;
    EXPECT_TRUE(until([&] { return (rc = call()) != -FI_EAGAIN; }));
    must(rc);
  }
  // A message between the hub and a leaf.
  void send(Node &from, fi_addr_t to, const std::vector<uint8_t> &out, uint64_t tag) {
    post([&] { return fi_tsend(from.ep, out.data(), out.size(), nullptr, to, tag, nullptr); });
  }
  void receive(Node &at, std::vector<uint8_t> &in, uint64_t tag) {
    post([&] {
      return fi_trecv(at.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, &in);
    });
  }

  Net nodes{0};
  std::vector<std::unique_ptr<Node>> leaves;
  std::vector<fi_addr_t> to_hub, to_leaf;
};

// ---- what fi_getinfo says ----

TEST(CxiVectorKeys, InfosTellOfThem) {
  if (!in_fresh_process({"FI_PROVIDER=cxi"})) return;  // a NIC in software needs a name
  const Info plain = find_info(Options());
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->domain_attr->max_ep_auth_key, 1u);
  EXPECT_EQ(plain->domain_attr->auth_key_size, 0u);
  Options options;
  options.vector_keys = {kRed};
  const Info info = find_info(options);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->domain_attr->auth_key_size, FI_AV_AUTH_KEY);
  EXPECT_EQ(info->domain_attr->auth_key, nullptr);
  EXPECT_EQ(info->domain_attr->max_ep_auth_key, 4u);
  const Info named =
      ask([](fi_info &hints) { hints.ep_attr->auth_key_size = FI_AV_AUTH_KEY; }, options);
  ASSERT_TRUE(named);
  EXPECT_EQ(named->ep_attr->auth_key_size, FI_AV_AUTH_KEY) << "for the endpoint, too";
  EXPECT_EQ(info->caps & (FI_DIRECTED_RECV | FI_COLLECTIVE), 0u);
  for (const uint64_t caps : {uint64_t{FI_DIRECTED_RECV}, uint64_t{FI_COLLECTIVE}}) {
    Options more = options;
    more.caps |= caps;
    EXPECT_FALSE(find_info(more)) << caps_text(caps);
    more.vector_keys.clear();
    EXPECT_TRUE(find_info(more)) << caps_text(caps);
  }
  for (const size_t keys : {1u, 2u, 4u, 5u}) {
    const Info some = ask([&](fi_info &hints) { hints.domain_attr->max_ep_auth_key = keys; });
    ASSERT_EQ(some != nullptr, keys <= 4) << keys;
    if (some) {
      EXPECT_EQ(some->domain_attr->max_ep_auth_key, keys == 1 ? 1u : 4u);
    }
  }
  // Without hints there are both kinds; the usual one comes first.
  std::vector<size_t> limits;
  const Info all = get_info(nullptr, nullptr, 0, nullptr);
  for (const fi_info *one = all.get(); one != nullptr; one = one->next)
    if (std::string(one->fabric_attr->prov_name) == "cxi")
      limits.push_back(one->domain_attr->max_ep_auth_key);
  ASSERT_FALSE(limits.empty());
  EXPECT_EQ(limits.front(), 1u);
  EXPECT_EQ(std::set<size_t>(limits.begin(), limits.end()), (std::set<size_t>{1, 4}));
}

// ---- messages ----

TEST(CxiVectorKeys, OneEndpointTalksInSeveralVnis) {
  Star star;
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{4000}, size_t{100000}}) {
    for (size_t i = 0; i < 2; ++i) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes, VNI " + std::to_string(kVnis[i]));
      Node &leaf = *star.leaves[i];
      const std::vector<uint8_t> out(bytes, uint8_t(i + 1));
      std::vector<uint8_t> in(bytes);
      star.receive(star.hub(), in, 7);
      star.send(leaf, star.to_hub[i], out, 7);
      const Completion received = star.wait(star.hub().receive_cq());
      EXPECT_EQ(received.err, 0);
      EXPECT_EQ(received.source, star.to_leaf[i]) << "of the address with this key";
      EXPECT_EQ(in, out);
      EXPECT_EQ(star.wait(leaf.tx_cq).err, 0);
      std::vector<uint8_t> back(bytes);
      star.receive(leaf, back, 8);
      star.send(star.hub(), star.to_leaf[i], out, 8);
      EXPECT_EQ(star.wait(leaf.receive_cq()).err, 0);
      EXPECT_EQ(back, out);
      EXPECT_EQ(star.wait(star.hub().tx_cq).err, 0);
    }
  }
}

// Both senders have the same address, and number their first long messages alike: what the NIC
// tells of the two looks the same.
class CxiVectorKeysLate : public testing::TestWithParam<bool> {};  // the receive comes later

TEST_P(CxiVectorKeysLate, LongMessagesOfEqualAddressesAreToldApart) {
  constexpr size_t kBytes[] = {200000, 300000};
  const std::vector<uint8_t> first(kBytes[0], 1), second(kBytes[1], 2);
  std::vector<uint8_t> in(kBytes[0] + kBytes[1]);
  Star star(FI_SOURCE | FI_MULTI_RECV);
  const iovec iov{in.data(), in.size()};
  const fi_msg msg{.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &in};
  if (!GetParam()) must(fi_recvmsg(star.hub().ep, &msg, FI_MULTI_RECV));
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<uint8_t> &out = i == 0 ? first : second;
    star.post([&] {
      return fi_send(star.leaves[i]->ep, out.data(), out.size(), nullptr, star.to_hub[i], nullptr);
    });
  }
  if (GetParam()) must(fi_recvmsg(star.hub().ep, &msg, FI_MULTI_RECV));
  std::set<fi_addr_t> sources;
  for (int i = 0; i < 2; ++i) {
    const Completion done = star.wait(star.hub().receive_cq());
    ASSERT_EQ(done.err, 0);
    const size_t which = done.source == star.to_leaf[0] ? 0 : 1;
    EXPECT_EQ(done.source, star.to_leaf[which]);
    sources.insert(done.source);
    ASSERT_EQ(done.len, kBytes[which]);
    EXPECT_EQ(std::memcmp(done.buf, (which == 0 ? first : second).data(), done.len), 0);
  }
  EXPECT_EQ(sources.size(), 2u);
  for (const auto &leaf : star.leaves) EXPECT_EQ(star.wait(leaf->tx_cq).err, 0);
}

INSTANTIATE_TEST_SUITE_P(Receives, CxiVectorKeysLate, testing::Bool());

TEST(CxiVectorKeys, RnrMessagesFindTheirReceive) {
  Options hub = in_both();
  hub.protocol = FI_PROTO_CXI_RNR;
  Star star(FI_SOURCE, hub);
  const std::vector<uint8_t> out(100, 3);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<uint8_t> in(100), back(100);
    star.receive(star.hub(), in, 7);
    star.send(*star.leaves[i], star.to_hub[i], out, 7);
    EXPECT_EQ(star.wait(star.hub().receive_cq()).source, star.to_leaf[i]);
    star.receive(*star.leaves[i], back, 7);
    star.send(star.hub(), star.to_leaf[i], out, 7);
    EXPECT_EQ(star.wait(star.leaves[i]->receive_cq()).err, 0);
    EXPECT_EQ(in, back);
    EXPECT_EQ(star.wait(star.leaves[i]->tx_cq).err, 0);
    EXPECT_EQ(star.wait(star.hub().tx_cq).err, 0);
  }
}

TEST(CxiVectorKeys, ARegionIsReachedInAllVnis) {
  std::vector<uint64_t> memory(4);
  Star star(FI_SOURCE | FI_RMA);
  fid_mr *const region =
      star.hub().expose(memory.data(), 32, FI_REMOTE_WRITE | FI_REMOTE_READ, 200);
  for (size_t i = 0; i < 2; ++i) {
    const uint64_t out = 100 + i;
    star.post([&] {
      return fi_write(star.leaves[i]->ep, &out, sizeof out, nullptr, star.to_hub[i], 8 * i,
                      fi_mr_key(region), nullptr);
    });
    EXPECT_EQ(star.wait(star.leaves[i]->tx_cq).err, 0);
    EXPECT_EQ(memory[i], out);
  }
}

// ---- senders that are not in the vector ----

TEST(CxiVectorKeys, AnUnknownSenderIsReportedWithItsKey) {
  Options options = in_both(FI_SOURCE | FI_SOURCE_ERR);
  Net net(0);
  Node &hub = net.add(options);
  for (size_t i = 0; i < 2; ++i) {
    SCOPED_TRACE(kVnis[i]);
    Options leaf_options = in_one(kVnis[i]);
    leaf_options.service = "45";
    Node leaf(leaf_options);
    const fi_addr_t to_hub = leaf.insert(hub.name());
    const std::vector<uint8_t> out(8, 1);
    std::vector<uint8_t> in(8);
    const auto send = [&] {
      must(fi_trecv(hub.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
      net.post([&] { return fi_tsend(leaf.ep, out.data(), 8, nullptr, to_hub, 7, nullptr); });
      return net.wait(hub.receive_cq());
    };
    const Completion stranger = send();
    EXPECT_EQ(stranger.err, FI_EADDRNOTAVAIL);
    EXPECT_EQ(stranger.source, hub.keys[i]) << "the handle of its key";
    ASSERT_EQ(stranger.err_data.size(), 8u);
    const std::string address = leaf.name();
    EXPECT_EQ(std::memcmp(stranger.err_data.data(), address.data(), 4), 0);
    // Both together are what the sender is inserted with.
    fi_addr_t known = stranger.source;
    ASSERT_EQ(fi_av_insert(hub.av, stranger.err_data.data(), 1, &known, FI_AUTH_KEY, nullptr), 1);
    const Completion friendly = send();
    EXPECT_EQ(friendly.err, 0);
    EXPECT_EQ(friendly.source, known);
  }
}

TEST(CxiVectorKeys, UsersMayGiveThemIds) {
  Options options = in_both(FI_SOURCE | FI_SOURCE_ERR | FI_AV_USER_ID);
  options.av_flags = FI_AV_USER_ID;
  Net net(0);
  Node &hub = net.add(options);
  Node leaf(in_one(10));
  const fi_addr_t to_hub = leaf.insert(hub.name());
  std::vector<uint8_t> in(8);
  const auto send = [&] {
    must(fi_trecv(hub.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
    net.post([&] { return fi_tsend(leaf.ep, "12345678", 8, nullptr, to_hub, 7, nullptr); });
    return net.wait(hub.receive_cq());
  };
  EXPECT_EQ(send().source, fi_addr_t(FI_ADDR_NOTAVAIL)) << "no id yet";
  must(fi_av_set_user_id(hub.av, hub.keys[0], 4711, FI_AUTH_KEY));
  const Completion stranger = send();
  EXPECT_EQ(stranger.err, FI_EADDRNOTAVAIL);
  EXPECT_EQ(stranger.source, 4711u);
  const fi_addr_t known = hub.insert(leaf.name(), 0);
  must(fi_av_set_user_id(hub.av, known, 4712, 0));
  EXPECT_EQ(send().source, 4712u);
  EXPECT_EQ(fi_av_set_user_id(hub.av, hub.keys[0] + 17, 1, FI_AUTH_KEY), -FI_EINVAL);
}

// ---- bad use ----

TEST(CxiVectorKeys, KeysThatAreNotGoodAreRefused) {
  Node node(in_both());
  fi_addr_t out = 0;
  const auto insert = [&](const std::string &key) {
    return fi_av_insert_auth_key(node.av, key.data(), key.size(), &out, 0);
  };
  EXPECT_EQ(insert("four"), -FI_EINVAL);
  EXPECT_EQ(insert(key_of(0)), -FI_EINVAL);
  EXPECT_EQ(insert(key_of(20)), -FI_EINVAL) << "no VNI of the service";
  EXPECT_EQ(insert(key_of(10, 99)), -FI_EINVAL) << "another service";
  EXPECT_EQ(insert(key_of(10)), 0);
  EXPECT_EQ(out, node.keys[0]) << "it is there already";
  cxi_auth_key key{};
  size_t size = sizeof key;
  must(fi_av_lookup_auth_key(node.av, node.keys[1], &key, &size));
  EXPECT_EQ(size, sizeof key);
  EXPECT_EQ(key.vni, 1);
  EXPECT_EQ(key.svc_id, 1u);
  const std::string name = node.name();
  EXPECT_EQ(fi_av_insert(node.av, name.data(), 1, &out, 0, nullptr), -FI_EINVAL) << "without key";
  out = 77;
  EXPECT_EQ(fi_av_insert(node.av, name.data(), 1, &out, FI_AUTH_KEY, nullptr), 0) << "no key";
  EXPECT_EQ(fi_tsend(node.ep, "x", 1, nullptr, node.keys[0], 7, nullptr), -FI_EINVAL)
      << "a key is no address";
}

TEST(CxiVectorKeys, AnEndpointHasTheKeysOfWhenItIsEnabled) {
  Options one = in_both();
  one.vector_keys = {kRed};
  Net net(0);
  Node &node = net.add(one);
  const fi_addr_t before = node.keys[0];
  fi_addr_t late = FI_ADDR_NOTAVAIL;
  must(fi_av_insert_auth_key(node.av, kBlue.data(), kBlue.size(), &late, 0));
  node.keys.push_back(late);
  const fi_addr_t to = node.insert(node.name(), 1);
  EXPECT_EQ(fi_tsend(node.ep, "x", 1, nullptr, to, 7, nullptr), -FI_EINVAL);
  fi_addr_t gone = before;
  EXPECT_EQ(fi_av_remove(node.av, &gone, 1, FI_AUTH_KEY), -FI_EBUSY) << "the endpoint has it";
  EXPECT_EQ(fi_av_remove(node.av, &late, 1, FI_AUTH_KEY), 0);
  node.ep.reset();
  EXPECT_EQ(fi_av_remove(node.av, &gone, 1, FI_AUTH_KEY), 0);
}

TEST(CxiVectorKeys, AnEndpointIsOpenedAsItsDomainIs) {
  const Options options = in_both();
  const Info info = find_info(options, FI_SOURCE);
  ASSERT_TRUE(info);
  Application app(options);
  app.open_fabric(info.get());
  fi_av_attr attr{};
  must(fi_av_open(app.domain, &attr, app.av.out(), nullptr));
  const auto open = [&] { return fi_endpoint(app.domain, info.get(), app.ep.out(), nullptr); };
  info->ep_attr->auth_key_size = FI_AV_AUTH_KEY;
  EXPECT_EQ(open(), 0);
  app.ep.reset();
  std::string key = kRed;
  info->ep_attr->auth_key = reinterpret_cast<uint8_t *>(key.data());
  info->ep_attr->auth_key_size = key.size();
  EXPECT_EQ(open(), -FI_EINVAL);
  info->ep_attr->auth_key = nullptr;
  info->ep_attr->auth_key_size = 0;
  info->caps |= FI_DIRECTED_RECV;
  EXPECT_EQ(open(), -FI_EINVAL);
  info->caps &= ~FI_DIRECTED_RECV;
  EXPECT_EQ(open(), 0);
  app.open_queues();
  app.bind_queues();
  char name[8];
  size_t size = sizeof name;
  EXPECT_EQ(fi_getname(app.ep.fid(), name, &size), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_enable(app.ep), -FI_ENOKEY) << "its vector has no keys";
  fi_addr_t red = FI_ADDR_NOTAVAIL;
  must(fi_av_insert_auth_key(app.av, kRed.data(), kRed.size(), &red, 0));
  EXPECT_EQ(fi_enable(app.ep), 0);
  size = sizeof name;
  EXPECT_EQ(fi_getname(app.ep.fid(), name, &size), 0);
  // And none of another domain.
  Node plain{Options()};
  info->ep_attr->auth_key_size = FI_AV_AUTH_KEY;
  fid_ep *other = nullptr;
  EXPECT_EQ(fi_endpoint(plain.domain, info.get(), &other, nullptr), -FI_EINVAL);
  info->ep_attr->auth_key_size = 0;
}

TEST(CxiVectorKeys, ThePidIsTakenInAllVnis) {
  Options blue = in_one(1);
  blue.service = "60";
  Options both = in_both();
  both.service = "60";
  {
    Node node(blue);
    EXPECT_THROW(Node{both}, std::runtime_error) << "taken in one of its VNIs";
  }
  {
    Node node(both);
    EXPECT_THROW(Node{blue}, std::runtime_error);
  }
  // One that is free everywhere is found.
  std::vector<std::unique_ptr<Node>> others;
  std::set<std::string> taken;
  for (size_t i = 0; i < 6; ++i) {
    Options own = in_one(kVnis[i % 2]);
    own.service = std::to_string(i);
    others.push_back(std::make_unique<Node>(own));
    taken.insert(others.back()->name().substr(0, 4));
  }
  Node node(in_both());
  EXPECT_FALSE(taken.contains(node.name().substr(0, 4)));
}

TEST(CxiVectorKeys, RegionsMayNameTheVectorAndNoPeer) {
  Node node(in_both(FI_RMA));
  uint64_t memory = 0;
  const iovec iov{&memory, sizeof memory};
  fi_mr_auth_key key{.av = node.av, .src_addr = FI_ADDR_UNSPEC};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_WRITE;
  attr.requested_key = 300;
  attr.auth_key = reinterpret_cast<uint8_t *>(&key);
  attr.auth_key_size = sizeof key;
  fid_mr *region = nullptr;
  ASSERT_EQ(fi_mr_regattr(node.domain, &attr, 0, &region), 0);
  must(fi_close(&region->fid));
  EXPECT_EQ(fi_mr_regattr(node.domain, &attr, FI_AUTH_KEY, &region), -FI_EBADFLAGS);
  key.src_addr = node.keys[0];
  EXPECT_EQ(fi_mr_regattr(node.domain, &attr, 0, &region), -FI_EINVAL);
  key = {.av = nullptr, .src_addr = FI_ADDR_UNSPEC};
  EXPECT_EQ(fi_mr_regattr(node.domain, &attr, 0, &region), -FI_EINVAL);
  Node other(in_both(FI_RMA));
  key.av = other.av;
  EXPECT_EQ(fi_mr_regattr(node.domain, &attr, 0, &region), -FI_EINVAL) << "of another domain";
  key.av = node.av;
  attr.auth_key_size = 3;
  EXPECT_EQ(fi_mr_regattr(node.domain, &attr, 0, &region), -FI_EINVAL);
}

// ---- several processes ----

TEST(CxiVectorKeysProcesses, PeersInOtherProcessesAreReached) {
  Child child([&](int socket) {
    Options options = in_one(1);
    options.service = "70";
    Net net(0);
    Node &node = net.add(options);
    tell_text(socket, node.name());
    const fi_addr_t to = node.insert(hear_text(socket));
    std::vector<uint8_t> in(100000);
    must(fi_trecv(node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
    EXPECT_EQ(net.wait(node.receive_cq()).err, 0);
    net.post([&] { return fi_tsend(node.ep, in.data(), in.size(), nullptr, to, 8, nullptr); });
    EXPECT_EQ(net.wait(node.tx_cq).err, 0);
    tell(socket, 1);
  });
  Net net(0);
  Node &hub = net.add(in_both(FI_SOURCE));
  const std::string name = hear_text(child.socket());
  const fi_addr_t in_red = hub.insert(name, 0), in_blue = hub.insert(name, 1);
  tell_text(child.socket(), hub.name());
  std::vector<uint8_t> out(100000, 5), in(100000);
  net.post([&] { return fi_tsend(hub.ep, out.data(), 8, nullptr, in_red, 7, nullptr); });
  EXPECT_NE(net.wait(hub.tx_cq).err, 0) << "it is not in that VNI";
  must(fi_trecv(hub.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 8, 0, &in));
  net.post([&] { return fi_tsend(hub.ep, out.data(), out.size(), nullptr, in_blue, 7, nullptr); });
  EXPECT_EQ(net.wait(hub.tx_cq).err, 0);
  const Completion received = net.wait(hub.receive_cq());
  EXPECT_EQ(received.source, in_blue);
  EXPECT_EQ(in, out);
  EXPECT_EQ(hear(child.socket()), 1u);
  child.join();
}

}  // namespace
}  // namespace weft::conformance::rdm
