// SPDX-License-Identifier: BSD-2-Clause
// Address vectors that are the same in all processes (FI_SYMMETRIC): senders name themselves by
// their index there (fi_cxi.7, ADDRESS VECTORS), so that nobody has to look for them.
#include <optional>
#include <string>
#include <vector>

#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kTag = 7;
// Those that come with their message, and those of which the receiver's NIC reads the rest.
const std::vector<size_t> kSizes = {0, 100, 20000, 300000}, kShort = {0, 100};
// Where senders may go without a name. Software cannot read the rest of a message of such a sender.
const std::vector<size_t> &sizes_of_nobody() {
  return software_matches() ? kShort : kSizes;
}

class CxiSymmetric : public ::testing::Test {
 protected:
  static Options options(uint64_t flags = FI_SYMMETRIC) {
    Options options = with(FI_SOURCE | FI_DIRECTED_RECV | FI_RMA);
    options.av_type = FI_AV_TABLE;
    options.av_flags = flags;
    return options;
  }
  void receive(size_t at, std::vector<uint8_t> &in, fi_addr_t from) {
    must(fi_trecv(net[at].ep, in.data(), in.size(), nullptr, from, kTag, 0, &in));
  }
  void send(size_t from, size_t to, std::vector<uint8_t> &out) {
    net.post([&, name = net.at(from, to)] {
      return fi_tsend(net[from].ep, out.data(), out.size(), nullptr, name, kTag, &out);
    });
  }
  // What was sent before that is there.
  void follow(size_t from, size_t to) {
    uint64_t out = 1, in = 0;
    must(fi_trecv(net[to].ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, kTag + 1, 0, &in));
    net.post([&, name = net.at(from, to)] {
      return fi_tinject(net[from].ep, &out, sizeof out, name, kTag + 1);
    });
    EXPECT_EQ(net.wait(net[to].rx_cq).context, &in);
  }
  // The source that the completion has of a message. `late`: the receive is.
  fi_addr_t source_of(size_t from, size_t to, size_t size, bool late = false,
                      fi_addr_t wanted = FI_ADDR_UNSPEC) {
    std::vector<uint8_t> out = pattern(size, from), in(size);
    if (!late) receive(to, in, wanted);
    send(from, to, out);
    if (late) {
      follow(from, to);
      receive(to, in, wanted);
    }
    const Completion done = net.wait(net[to].rx_cq);
    EXPECT_EQ(done.err, 0) << fi_strerror(done.err);
    EXPECT_EQ(in, out) << size;
    EXPECT_EQ(net.wait(net[from].tx_cq).err, 0);
    return done.source;
  }
  void remove(size_t owner, size_t peer) {
    fi_addr_t name = net.at(owner, peer);
    must(fi_av_remove(net[owner].av, &name, 1, 0));
  }
  Net net{3, options()};
};

TEST_F(CxiSymmetric, SendersAreKnownByTheirIndex) {
  for (const size_t size : kSizes)
    for (const bool late : {false, true})
      for (size_t from = 0; from < 3; ++from)
        for (size_t to = 0; to < 3; ++to) {
          EXPECT_EQ(source_of(from, to, size, late), from) << size;
          EXPECT_EQ(source_of(from, to, size, late, from), from) << "a directed receive: " << size;
        }
}

TEST_F(CxiSymmetric, AReceiveFromOnePeerTakesNothingOfAnother) {
  std::vector<uint8_t> out[2] = {pattern(100, 1), pattern(20000, 2)}, in[2];
  in[0].resize(20000);
  in[1].resize(20000);
  receive(0, in[1], net.at(0, 2));
  receive(0, in[0], net.at(0, 1));
  for (size_t i : {0u, 1u}) send(i + 1, 0, out[i]);
  for (int i = 0; i < 2; ++i) {
    const Completion done = net.wait(net[0].rx_cq);
    const size_t which = done.context == &in[0] ? 0 : 1;
    EXPECT_EQ(done.source, which + 1);
    in[which].resize(done.len);
    EXPECT_EQ(in[which], out[which]);
  }
  for (size_t i : {1u, 2u}) EXPECT_EQ(net.wait(net[i].tx_cq).err, 0);
}

TEST_F(CxiSymmetric, WritesWithDataSayWhoWrote) {
  uint64_t window[4] = {}, value = 5;
  net[1].expose(window, sizeof window, FI_REMOTE_WRITE, 200);
  net.post([&] {
    return fi_writedata(net[2].ep, &value, 8, nullptr, 77, net.at(2, 1), 0, 200, nullptr);
  });
  EXPECT_EQ(net.wait(net[2].tx_cq).err, 0);
  const Completion done = net.wait(net[1].rx_cq);
  EXPECT_EQ(done.data, 77u);
  EXPECT_EQ(done.source, 2u);
  EXPECT_EQ(window[0], 5u);
}

// One that its vector does not have goes by its address, which others look for.
TEST_F(CxiSymmetric, OneThatIsNotInItsOwnVectorIsKnownByItsAddress) {
  remove(1, 1);
  for (const size_t size : kSizes) EXPECT_EQ(source_of(1, 0, size), 1u) << size;
  const std::string self = net[1].name();
  fi_addr_t name;
  ASSERT_EQ(fi_av_insert(net[1].av, self.data(), 1, &name, 0, nullptr), 1);
  ASSERT_EQ(name, 1u);
  for (const size_t size : kSizes) EXPECT_EQ(source_of(1, 0, size, true, 1), 1u) << size;
}

// The index is what counts: where it is that of another, nobody is named wrongly, and all arrives.
TEST_F(CxiSymmetric, WhereVectorsDifferNothingIsLost) {
  remove(0, 1);
  for (const size_t size : sizes_of_nobody())
    for (const bool late : {false, true})
      EXPECT_EQ(source_of(1, 0, size, late), FI_ADDR_NOTAVAIL) << size;
  const std::string other = net[2].name();
  fi_addr_t name;
  ASSERT_EQ(fi_av_insert(net[0].av, other.data(), 1, &name, 0, nullptr), 1);
  ASSERT_EQ(name, 1u) << "the place of the one that was removed";
  for (const size_t size : sizes_of_nobody())
    for (const bool late : {false, true}) {
      EXPECT_EQ(source_of(1, 0, size, late), FI_ADDR_NOTAVAIL) << size;
      EXPECT_EQ(source_of(2, 0, size, late), 2u) << size;
    }
}

// The sender waits until it closes.
TEST_F(CxiSymmetric, WhereVectorsDifferSoftwareFailsLongMessages) {
  if (!in_fresh_process({"FI_CXI_RX_MATCH_MODE=software"})) return;
  remove(0, 1);
  std::vector<uint8_t> out = pattern(20000, 1), in(20000);
  receive(0, in, FI_ADDR_UNSPEC);
  send(1, 0, out);
  EXPECT_EQ(net.wait(net[0].rx_cq).err, FI_EHOSTUNREACH);
  EXPECT_EQ(source_of(2, 0, 20000), 2u) << "others go on";
}

TEST_F(CxiSymmetric, OneWithoutItGetsAllMessages) {
  net.add(options(0));
  for (const size_t size : sizes_of_nobody())
    for (const bool late : {false, true}) {
      // The NIC names who sent a long one.
      const fi_addr_t source = source_of(1, 3, size, late);
      EXPECT_TRUE(source == FI_ADDR_NOTAVAIL || source == 1) << source << " of " << size;
      EXPECT_EQ(source_of(3, 1, size, late), 3u) << "an address can be looked for: " << size;
    }
}

}  // namespace
}  // namespace weft::conformance::rdm
