// SPDX-License-Identifier: BSD-2-Clause
// Address vectors (fi_av.3) with traffic behind them: what an entry names, what removing it and
// inserting it again mean, and a peer that comes back at its old address.
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance::rdm {
namespace {

class RdmAv : public ::testing::TestWithParam<enum fi_av_type> {
 protected:
  Options options() {
    Options options;
    options.av_type = GetParam();
    return options;
  }
  bool offered() { return find_info(options()) != nullptr; }
};
INSTANTIATE_TEST_SUITE_P(Types, RdmAv, ::testing::Values(FI_AV_MAP, FI_AV_TABLE),
                         [](const auto &info) {
                           return std::string(info.param == FI_AV_MAP ? "Map" : "Table");
                         });
#define AV_NEEDED()                                              \
  covers(GetParam() == FI_AV_MAP ? "FI_AV_MAP" : "FI_AV_TABLE"); \
  if (!offered()) GTEST_SKIP() << "fi_getinfo offers no such address vector"

TEST_P(RdmAv, LookupGivesTheAddressBack) {
  AV_NEEDED();
  Node node(options());
  for (uint16_t port : {1000, 2000, 3000}) {
    const std::string address = address_at(options(), port);
    const fi_addr_t name = node.insert(address);
    char buffer[64];
    size_t size = sizeof buffer;
    must(fi_av_lookup(node.av, name, buffer, &size));
    EXPECT_EQ(std::string(buffer, size), address);
    size = 4;  // too little: gives as much as fits, and the size that is needed
    char little[5] = {0, 0, 0, 0, 0x77};
    must(fi_av_lookup(node.av, name, little, &size));
    EXPECT_EQ(size, address.size());
    EXPECT_EQ(std::string(little, 3), address.substr(0, 3));  // a text ends with a 0
    if (!has_text_addresses()) {
      EXPECT_EQ(little[3], address[3]);
    }
    EXPECT_EQ(little[4], 0x77);
  }
}

TEST_P(RdmAv, ATableNumbersItsEntriesFromZero) {
  AV_NEEDED();
  Node node(options());
  std::vector<std::string> addresses;
  for (uint16_t port = 1; port <= 10; ++port) addresses.push_back(address_at(options(), port));
  std::vector<fi_addr_t> names(10, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(insert_addresses(node.av, addresses, names.data()), 10);
  if (GetParam() == FI_AV_TABLE) {
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(names[i], i);
    EXPECT_EQ(node.insert(address_at(options(), 11)), 10u);
  }
  EXPECT_EQ(std::set<fi_addr_t>(names.begin(), names.end()).size(), 10u);
  EXPECT_EQ(std::count(names.begin(), names.end(), FI_ADDR_NOTAVAIL), 0);
}

// A table may be filled without an array of results: the numbers of its entries are known.
TEST_P(RdmAv, ATableNeedsNoArrayOfNames) {
  AV_NEEDED();
  if (GetParam() != FI_AV_TABLE) GTEST_SKIP() << "of tables only";
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  Net net(1, options());
  Node other(options());
  ASSERT_EQ(insert_address(net[0].av, other.name(), nullptr), 1);
  must(fi_recv(other.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] {
    other.progress();
    return fi_send(net[0].ep, out.data(), out.size(), nullptr, 1, &out);
  });
  std::optional<Completion> got;
  EXPECT_TRUE(net.until([&] { return (got = poll(other.rx_cq)).has_value(); }));
  EXPECT_EQ(in, out);
}

TEST_P(RdmAv, InsertsvcResolvesNames) {
  NEEDS_HOST_NAMES();
  AV_NEEDED();
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  Net net(2, options());
  const std::string address = net[1].name();
  fi_addr_t name = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insertsvc(net[0].av, test_node(), port_of(address).c_str(), &name, 0, nullptr),
            1);
  must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, name, &out); });
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in, out);
}

TEST_P(RdmAv, InsertsymCountsNodesAndServices) {
  NEEDS_IPV4_ADDRESSES();
  AV_NEEDED();
  Node node(options());
  fi_addr_t names[6];
  ASSERT_EQ(fi_av_insertsym(node.av, "127.0.0.1", 2, "7000", 3, names, 0, nullptr), 6);
  for (int i = 0; i < 6; ++i) {
    sockaddr_in address{};
    size_t size = sizeof address;
    must(fi_av_lookup(node.av, names[i], &address, &size));
    EXPECT_EQ(ntohl(address.sin_addr.s_addr), INADDR_LOOPBACK + uint32_t(i / 3));
    EXPECT_EQ(ntohs(address.sin_port), 7000 + i % 3);
  }
}

TEST_P(RdmAv, StraddrPrintsTheAddress) {
  NEEDS_IPV4_ADDRESSES();
  AV_NEEDED();
  Node node(options());
  const std::string address = address_at(options(), 4711);
  char text[128];
  size_t size = sizeof text;
  const char *said = fi_av_straddr(node.av, address.data(), text, &size);
  ASSERT_NE(said, nullptr);
  EXPECT_NE(std::string(said).find("127.0.0.1"), std::string::npos) << said;
  EXPECT_NE(std::string(said).find("4711"), std::string::npos) << said;
  char little[6] = {0, 0, 0, 0, 0, 0x77};
  size_t room = 5;
  fi_av_straddr(node.av, address.data(), little, &room);
  EXPECT_EQ(little[5], 0x77) << "written behind the buffer";
  EXPECT_GE(room, std::strlen(text) + 1) << "the size that is needed";
}

TEST_P(RdmAv, ARemovedPeerCanBeInsertedAgain) {
  AV_NEEDED();
  Net net(3, options());
  for (int round = 0; round < 5; ++round) {
    net.exchange(0, 1);
    net.exchange(0, 2);
    fi_addr_t name = net.at(0, 1);
    must(fi_av_remove(net[0].av, &name, 1, 0));
    net.exchange(0, 2);
    EXPECT_EQ(net[0].insert(net[1].name()), name) << "the index of a single hole is used again";
  }
}

TEST_P(RdmAv, AMessageOfARemovedPeerStillArrives) {
  AV_NEEDED();
  Net net(2, options());
  net.exchange(0, 1);
  net.exchange(1, 0);
  fi_addr_t name = net.at(1, 0);
  must(fi_av_remove(net[1].av, &name, 1, 0));
  net.exchange(0, 1);
  net.exchange(0, 1, 100000);
}

TEST_P(RdmAv, TheSourceOfAStrangerIsNotAvailable) {
  AV_NEEDED();
  RDM_NEEDS(FI_MSG | FI_SOURCE);
  Options wanted = options();
  wanted.caps |= FI_SOURCE;
  Node target(wanted);
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  Net net(1, wanted);
  const fi_addr_t to = net[0].insert(target.name());
  must(fi_recv(target.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] {
    target.progress();
    return fi_send(net[0].ep, out.data(), out.size(), nullptr, to, &out);
  });
  std::optional<Completion> got;
  ASSERT_TRUE(net.until([&] { return (got = poll(target.rx_cq)).has_value(); }));
  EXPECT_EQ(got->err, 0);
  EXPECT_EQ(got->source, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(in, out);
}

// fi_getinfo.3, FI_SOURCE_ERR: the completion of a stranger's message is an error entry that brings
// the address to insert; the data has been received (fi_cq.3).
TEST_P(RdmAv, TheAddressOfAStrangerComesWithTheError) {
  AV_NEEDED();
  RDM_NEEDS(FI_MSG | FI_SOURCE | FI_SOURCE_ERR);
  Options wanted = options();
  wanted.caps |= FI_SOURCE | FI_SOURCE_ERR;
  Node target(wanted);
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  Net net(1, wanted);
  const fi_addr_t to = net[0].insert(target.name());
  must(fi_recv(target.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] {
    target.progress();
    return fi_send(net[0].ep, out.data(), out.size(), nullptr, to, &out);
  });
  char address[64];
  fi_cq_err_entry error{};
  ASSERT_TRUE(net.until([&] {
    fi_cq_tagged_entry entry;
    fi_addr_t source;
    if (fi_cq_readfrom(target.rx_cq, &entry, 1, &source) != -FI_EAVAIL) return false;
    error.err_data = address;
    error.err_data_size = sizeof address;
    return fi_cq_readerr(target.rx_cq, &error, 0) == 1;
  }));
  EXPECT_EQ(error.err, FI_EADDRNOTAVAIL);
  EXPECT_EQ(error.op_context, &in);
  EXPECT_EQ(in, out);
  EXPECT_EQ(std::string(static_cast<char *>(error.err_data), error.err_data_size), net[0].name());
}

// Two thousand other entries come and go: the peers are still reached.
TEST_P(RdmAv, ManyEntriesLeadToTheirPeers) {
  AV_NEEDED();
  std::vector<std::string> addresses;
  std::vector<fi_addr_t> names(2000);
  Net net(4, options());
  for (uint16_t port = 1; port <= 2000; ++port) addresses.push_back(address_at(options(), port));
  EXPECT_EQ(insert_addresses(net[0].av, addresses, names.data()), 2000);
  for (size_t to : {1, 2, 3}) net.exchange(0, to);
  EXPECT_EQ(fi_av_remove(net[0].av, names.data(), 2000, 0), 0);
  for (size_t to : {1, 2, 3}) net.exchange(0, to);
}

TEST_P(RdmAv, ASendToAClosedEndpointFails) {
  AV_NEEDED();
  covers("errors of dead peers");
  std::string gone;
  std::vector<uint8_t> out(64);
  Net net(2, options());
  {
    Node brief(options());
    gone = brief.name();
  }
  const fi_addr_t name = net[0].insert(gone);
  // Either the call fails or the completion does.
  const ssize_t rc =
      net.attempt([&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, name, &out); });
  if (rc == 0) {
    const Completion done = net.wait(net[0].tx_cq);
    EXPECT_NE(done.err, 0);
    EXPECT_EQ(done.context, &out);
  } else {
    EXPECT_LT(rc, 0);
  }
  net.exchange(0, 1);
  net.exchange(1, 0, 100000);
}

// A peer is closed and a new one opens at its address: the next send reaches it. Sends between may
// fail, those of others may not.
TEST_P(RdmAv, APeerThatComesBackIsReached) {
  if (!has_host_names()) GTEST_SKIP() << "the device chooses the number of a queue pair";
  AV_NEEDED();
  covers("restart of a peer");
  Net net(2, options());
  auto peer = std::make_unique<Node>(options());
  const std::string address = peer->name();
  const fi_addr_t name = net[0].insert(address);
  Options same = options();
  same.service = port_of(address);
  for (int life = 0; life < 3; ++life) {
    SCOPED_TRACE(life);
    std::vector<uint8_t> out = pattern(100, unsigned(life)), in(100);
    must(fi_trecv(peer->ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    bool reached = false, pending = false;
    EXPECT_TRUE(net.until([&] {
      if (!pending && !reached) {
        const ssize_t rc = fi_tsend(net[0].ep, out.data(), 100, nullptr, name, 1, &out);
        pending = rc == 0;
      }
      peer->progress();
      if (auto got = poll(peer->rx_cq)) {
        EXPECT_EQ(got->err, 0);
        reached = true;
      }
      if (auto done = poll(net[0].tx_cq)) pending = false;
      return reached && !pending;
    }));
    EXPECT_EQ(in, out);
    net.exchange(0, 1);
    peer.reset();
    net.settle();
    peer = std::make_unique<Node>(same);
    ASSERT_EQ(peer->name(), address) << "not at its old address";
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
