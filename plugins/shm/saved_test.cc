// SPDX-License-Identifier: BSD-2-Clause
// Messages without a receive up to the limits of what is saved: what comes behind them is not lost.
#include <poll.h>

#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kLongLength = 300'000, kShort = 100, kShorts = 700;
constexpr uint64_t kLongTag = 1, kShortTag = 2;

// Two applications, of which the second has memory for few messages of the first.
struct LittleMemory : Net {
  static Options options() {
    Options options;
    options.caps |= FI_RMA;
    options.tx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_FD);
    return options;
  }
  LittleMemory() : Net(2, options()) { exchange(0, 1); }

  void send_shorts() {
    for (size_t i = 0; i < kShorts; ++i) {
      shorts.push_back(pattern(kShort, unsigned(i)));
      post([&] {
        return fi_tsend((*this)[0].ep, shorts[i].data(), kShort, nullptr, at(0, 1), kShortTag,
                        &shorts);
      });
    }
  }
  void receive_shorts() {
    std::vector<uint8_t> in(kShort);
    for (size_t i = 0; i < kShorts; ++i) {
      must(fi_trecv((*this)[1].ep, in.data(), kShort, nullptr, FI_ADDR_UNSPEC, kShortTag, 0, &in));
      EXPECT_EQ(wait((*this)[1].rx_cq).err, 0);
      ASSERT_EQ(in, shorts[i]) << "message " << i;
    }
  }
  std::vector<std::vector<uint8_t>> shorts;
};

constexpr const char *kLittleMemory = "FI_SHM_MAX_SAVED_PER_PEER=64K";

TEST(ShmSaved, AReceiveEndsThoughLaterMessagesHaveNone) {
  if (!in_fresh_process({kLittleMemory})) return;
  covers("FI_TAGGED");
  const std::vector<uint8_t> out = pattern(kLongLength, 1);
  std::vector<uint8_t> in(kLongLength);
  LittleMemory net;
  must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, kLongTag, 0, &in));
  must(fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), kLongTag, &in));
  net.send_shorts();
  const Completion done = net.wait(net[1].rx_cq);
  EXPECT_EQ(done.err, 0);
  EXPECT_EQ(done.tag, kLongTag);
  EXPECT_EQ(in, out);
  net.receive_shorts();
  for (size_t i = 0; i < kShorts + 1; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

TEST(ShmSaved, AReadEndsThoughMessagesHaveNoReceive) {
  if (!in_fresh_process({kLittleMemory})) return;
  covers("FI_RMA");
  std::vector<uint8_t> window = pattern(kLongLength, 2), in(kLongLength);
  LittleMemory net;
  fid_mr *const region = net[0].expose(window.data(), window.size(), FI_REMOTE_READ, 42);
  net.send_shorts();
  net.settle();  // the reader has no memory for more
  must(fi_read(net[1].ep, in.data(), in.size(), nullptr, net.at(1, 0),
               net[0].base_of(window.data()), fi_mr_key(region), &in));
  EXPECT_EQ(net.wait(net[1].tx_cq).err, 0);
  EXPECT_EQ(in, window);
  net.receive_shorts();
}

// What is sent while its receiver reads on behind messages waits, and then wakes who sleeps.
TEST(ShmSaved, ASenderThatSleepsGoesOn) {
  if (!in_fresh_process({kLittleMemory})) return;
  covers("FI_WAIT_FD");
  std::vector<uint8_t> unreceived(kShort);
  LittleMemory net;
  // It waits for this one's end, so it reads on behind messages that it has no memory for.
  const iovec iov{unreceived.data(), kShort};
  const fi_msg_tagged message{
      .msg_iov = &iov, .iov_count = 1, .addr = net.at(1, 0), .tag = kLongTag};
  must(fi_tsendmsg(net[1].ep, &message, FI_DELIVERY_COMPLETE));
  net.send_shorts();
  net.settle();
  size_t ended = 0;
  const auto read_sends = [&] {
    while (const auto done = poll(net[0].tx_cq)) {
      EXPECT_EQ(done->err, 0);
      ++ended;
    }
  };
  struct fid *fids[] = {net[0].tx_cq.fid()};
  ASSERT_TRUE(net.until([&] {
    read_sends();
    return fi_trywait(net[0].fabric, fids, 1) == 0;
  }));
  net.set_asleep(0, true);
  bool sleeps = true;
  ASSERT_LT(ended, kShorts);
  int fd = -1;
  must(fi_control(net[0].tx_cq.fid(), FI_GETWAIT, &fd));
  std::vector<uint8_t> first(kShort);
  for (size_t i = 0; i < kShorts; ++i) {
    must(fi_trecv(net[1].ep, first.data(), kShort, nullptr, FI_ADDR_UNSPEC, kShortTag, 0, &first));
    ASSERT_TRUE(net.until([&] {
      pollfd woken{fd, POLLIN, 0};
      if (sleeps && ::poll(&woken, 1, 0) > 0) net.set_asleep(0, sleeps = false);
      if (!sleeps) read_sends();
      return poll(net[1].rx_cq).has_value();
    })) << "message "
        << i;
    ASSERT_EQ(first, net.shorts[i]);
  }
  EXPECT_TRUE(net.until([&] {
    read_sends();
    return ended == kShorts;
  }));
}

}  // namespace
}  // namespace weft::conformance::rdm
