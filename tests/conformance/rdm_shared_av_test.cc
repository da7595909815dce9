// SPDX-License-Identifier: BSD-2-Clause
// Address vectors that processes share by a name (fi_av.3, fi_av_attr.name; fi_getinfo.3,
// FI_SHARED_AV): what one inserts or removes, the others see, and an fi_addr_t means the same peer
// in each.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kSize = 100;

// Of this process; its children know it too.
std::string fresh_name() {
  static std::atomic<int> number{0};
  return "weft-test-" + std::to_string(getpid()) + "-" + std::to_string(number++);
}

// Applications that do not know each other unless a test inserts them.
class Strangers : public Driver {
 public:
  Node &open(const Options &options) {
    return *nodes_.emplace_back(std::make_unique<Node>(options));
  }
  ~Strangers() override {
    while (!nodes_.empty()) nodes_.pop_back();
  }
  void progress() override {
    for (const auto &node : nodes_) node->progress();
  }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
};

class RdmSharedAv : public ::testing::TestWithParam<enum fi_av_type> {
 protected:
  void SetUp() override {
    covers("FI_SHARED_AV");
    if (!find_info(options())) GTEST_SKIP() << stack() << " shares no such address vectors";
  }
  static Options options(const std::string &name = {}, uint64_t flags = 0) {
    Options options;
    options.caps |= FI_SHARED_AV;
    options.av_type = GetParam();
    options.av_name = name;
    options.av_flags = flags;
    return options;
  }
  static ssize_t send(Node &from, fi_addr_t to, std::vector<uint8_t> &out) {
    return fi_send(from.ep, out.data(), out.size(), nullptr, to, &out);
  }
  // A message of the seed from a node of `net` to another one, which may be of another process.
  static void send_all(Driver &net, Node &from, fi_addr_t to, unsigned seed) {
    std::vector<uint8_t> out = pattern(kSize, seed);
    net.post([&] { return send(from, to, out); });
    EXPECT_EQ(net.wait(from.tx_cq).err, 0);
  }
  static void expect(Driver &net, Node &at, unsigned seed) {
    std::vector<uint8_t> in(kSize);
    must(fi_recv(at.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    EXPECT_EQ(net.wait(at.rx_cq).err, 0);
    EXPECT_EQ(in, pattern(kSize, seed));
  }
};
INSTANTIATE_TEST_SUITE_P(Types, RdmSharedAv, ::testing::Values(FI_AV_MAP, FI_AV_TABLE),
                         [](const auto &info) {
                           return std::string(info.param == FI_AV_MAP ? "Map" : "Table");
                         });

TEST_P(RdmSharedAv, GetinfoOffersThem) {
  const Info info = find_info(options());
  EXPECT_TRUE(info->caps & FI_SHARED_AV);
  EXPECT_TRUE(info->domain_attr->caps & FI_SHARED_AV);
  EXPECT_FALSE((info->tx_attr->caps | info->rx_attr->caps) & FI_SHARED_AV) << "the domain's";
  const Info asked = ask([](fi_info &hints) { hints.domain_attr->caps = FI_SHARED_AV; });
  ASSERT_NE(asked, nullptr);
  EXPECT_TRUE(asked->domain_attr->caps & FI_SHARED_AV);
}

TEST_P(RdmSharedAv, VectorsOfOneNameAreOne) {
  const std::string name = fresh_name();
  Strangers net;
  Node &target = net.open(options()), &inserts = net.open(options(name)),
       &sends = net.open(options(name));
  ASSERT_NE(sends.av_names, nullptr);
  const fi_addr_t to = inserts.insert(target.name());
  EXPECT_EQ(sends.av_names[0], to);
  std::vector<uint8_t> out = pattern(kSize, 1), in(kSize);
  must(fi_recv(target.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] { return send(sends, to, out); });
  EXPECT_EQ(net.wait(target.rx_cq).err, 0);
  EXPECT_EQ(net.wait(sends.tx_cq).err, 0);
  EXPECT_EQ(in, out);
  char address[256];
  size_t size = sizeof address;
  must(fi_av_lookup(sends.av, to, address, &size));
  EXPECT_EQ(std::string(address, size), target.name());
}

TEST_P(RdmSharedAv, AReaderNeedsAVectorAndChangesNothing) {
  const std::string name = fresh_name();
  Node writer(options());
  fi_av_attr attr{};
  attr.type = GetParam();
  attr.name = name.c_str();
  attr.flags = FI_READ;
  fid_av *av = nullptr;
  EXPECT_EQ(fi_av_open(writer.domain, &attr, &av, nullptr), -FI_ENOENT);
  Node shared(options(name)), reader(options(name, FI_READ));
  const std::string address = shared.name();
  fi_addr_t one = shared.insert(address), two = FI_ADDR_NOTAVAIL;
  EXPECT_EQ(insert_address(reader.av, address, &two, 0, nullptr), -FI_EACCES);
  EXPECT_EQ(fi_av_remove(reader.av, &one, 1, 0), -FI_EACCES);
  char found[256];
  size_t size = sizeof found;
  must(fi_av_lookup(reader.av, one, found, &size));
  EXPECT_EQ(std::string(found, size), address);
}

// As fabtests' fi_rdm_shared_av does it: the child makes no call between the insertion and its
// send.
TEST_P(RdmSharedAv, AChildSendsToWhatItsParentInserted) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  const std::string name = fresh_name();
  Child child([&](int parent) {
    hear(parent);  // the vector exists
    Strangers net;
    Node &own = net.open(options(name, FI_READ));
    tell(parent, 1);
    hear(parent);
    send_all(net, own, own.av_names[0], 7);
    tell(parent, 2);
    hear(parent);
  });
  Strangers net;
  Node &target = net.open(options(name));
  tell(child.socket(), 1);
  EXPECT_EQ(hear(child.socket()), 1u);
  target.insert(target.name());
  tell(child.socket(), 2);
  expect(net, target, 7);
  EXPECT_TRUE(net.until([&] { return can_hear(child.socket()); }));
  tell(child.socket(), 3);
  child.join();
}

// Each inserts itself, and sends to all others by what they said.
TEST_P(RdmSharedAv, ProcessesThatInsertThemselvesReachEachOther) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  constexpr size_t kCount = 3;
  const std::string name = fresh_name();
  const auto work = [&](int parent) {
    Strangers net;
    Node &own = net.open(options(name));
    const fi_addr_t mine = own.insert(own.name());
    tell(parent, mine);
    const uint64_t number = hear(parent);
    std::array<std::vector<uint8_t>, kCount> in, out;
    std::array<fi_addr_t, kCount> all;
    for (fi_addr_t &one : all) one = hear(parent);
    EXPECT_EQ(all[number], mine);
    for (auto &buffer : in) {
      buffer.resize(kSize);
      must(fi_recv(own.ep, buffer.data(), kSize, nullptr, FI_ADDR_UNSPEC, &buffer));
    }
    for (size_t i = 0; i < kCount; ++i) {
      out[i] = pattern(kSize, unsigned(number));
      net.post([&] { return send(own, all[i], out[i]); });
    }
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(net.wait(own.rx_cq).err, 0);
      EXPECT_EQ(net.wait(own.tx_cq).err, 0);
    }
    std::sort(in.begin(), in.end());
    std::sort(out.begin(), out.end());
    for (unsigned i = 0; i < kCount; ++i)
      EXPECT_EQ(std::count(in.begin(), in.end(), pattern(kSize, i)), 1) << i;
    tell(parent, 1);
    EXPECT_TRUE(net.until([&] { return can_hear(parent); }));  // serves peers until all are done
  };
  std::vector<std::unique_ptr<Child>> children;
  for (size_t i = 0; i < kCount; ++i) children.push_back(std::make_unique<Child>(work));
  std::vector<fi_addr_t> all;
  for (const auto &child : children) all.push_back(hear(child->socket()));
  EXPECT_NE(all[0], all[1]);
  for (size_t i = 0; i < kCount; ++i) {
    tell(children[i]->socket(), i);
    for (const fi_addr_t one : all) tell(children[i]->socket(), one);
  }
  for (const auto &child : children) EXPECT_EQ(hear(child->socket()), 1u);
  for (const auto &child : children) tell(child->socket(), 1);
  for (const auto &child : children) child->join();
}

// The endpoint has a connection to the removed peer, and must not use it for the next one.
TEST_P(RdmSharedAv, WhatAnotherProcessRemovedIsGone) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  const std::string name = fresh_name();
  Child child([&](int parent) {
    hear(parent);
    Strangers net;
    Node &own = net.open(options(name));
    const fi_addr_t to = own.av_names[0];
    send_all(net, own, to, 1);
    tell(parent, 1);
    hear(parent);
    EXPECT_EQ(own.av_names[0], FI_ADDR_NOTAVAIL);
    std::vector<uint8_t> out = pattern(kSize, 2);
    EXPECT_EQ(net.attempt([&] { return send(own, to, out); }), -FI_EINVAL);
    tell(parent, 2);
    hear(parent);
    EXPECT_EQ(own.av_names[0], to) << "used again";
    send_all(net, own, to, 3);
    tell(parent, 3);
    EXPECT_TRUE(net.until([&] { return can_hear(parent); }));
  });
  Strangers net;
  Node &first = net.open(options(name)), &second = net.open(options());
  fi_addr_t to = first.insert(first.name());
  tell(child.socket(), 1);
  expect(net, first, 1);
  EXPECT_TRUE(net.until([&] { return can_hear(child.socket()); }));
  hear(child.socket());
  must(fi_av_remove(first.av, &to, 1, 0));
  tell(child.socket(), 2);
  EXPECT_TRUE(net.until([&] { return can_hear(child.socket()); }));
  hear(child.socket());
  EXPECT_EQ(first.insert(second.name()), to);
  tell(child.socket(), 3);
  expect(net, second, 3);
  EXPECT_TRUE(net.until([&] { return can_hear(child.socket()); }));
  tell(child.socket(), 4);
  child.join();
}

// The vector of a process that dies stays the others'.
TEST_P(RdmSharedAv, AProcessThatDiesLeavesItsEntries) {
  NEEDS_PROCESSES();
  if (!in_fresh_process()) return;
  const std::string name = fresh_name();
  Child child([&](int parent) {
    hear(parent);
    Node own(options(name));
    own.insert(hear_text(parent));
    tell(parent, 1);
    hear(parent);
  });
  Strangers net;
  Node &shared = net.open(options(name)), &target = net.open(options());
  tell(child.socket(), 1);
  tell_text(child.socket(), target.name());
  EXPECT_EQ(hear(child.socket()), 1u);
  child.kill();
  std::vector<uint8_t> out = pattern(kSize, 9), in(kSize);
  must(fi_recv(target.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] { return send(shared, shared.av_names[0], out); });
  EXPECT_EQ(net.wait(target.rx_cq).err, 0);
  EXPECT_EQ(net.wait(shared.tx_cq).err, 0);
  EXPECT_EQ(in, out);
}

// FI_SYMMETRIC is a promise of the application, of which a vector may make use (fi_av.3).
TEST_P(RdmSharedAv, TheVectorMayBeSymmetric) {
  const std::string name = fresh_name();
  Strangers net;
  Node &target = net.open(options()), &one = net.open(options(name, FI_SYMMETRIC)),
       &other = net.open(options(name, FI_SYMMETRIC));
  const fi_addr_t to = one.insert(target.name());
  std::vector<uint8_t> out = pattern(kSize, 1), in(kSize);
  must(fi_recv(target.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] { return send(other, to, out); });
  EXPECT_EQ(net.wait(target.rx_cq).err, 0);
  EXPECT_EQ(net.wait(other.tx_cq).err, 0);
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace weft::conformance::rdm
