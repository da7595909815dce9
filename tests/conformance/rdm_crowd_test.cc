// SPDX-License-Identifier: BSD-2-Clause
// Many peers connect to one endpoint at the same moment, more than it has room for while they
// connect. All are served, some a little later. Parameters make the room small, so that a few
// hundred peers are too many.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

#ifdef __SANITIZE_THREAD__  // a tenth of the speed
constexpr size_t kCrowd = 60;
#else
constexpr size_t kCrowd = 200;
#endif

// A receiver, and many endpoints of one other application, each with an address of its own.
class Crowd : public Driver {
 public:
  explicit Crowd(size_t count) : one_(options()) {
    for (size_t i = 0; i < count; ++i) {
      many_.push_back(std::make_unique<Node>(options(), i == 0 ? nullptr : many_[0].get()));
      if (i == 0) to_ = many_[0]->insert(one_.name());
    }
    in_.resize(count);
    out_.resize(count);
  }
  ~Crowd() override {
    while (!many_.empty()) many_.pop_back();
  }
  Node &one() { return one_; }
  void progress() override {
    many_[0]->progress();
    if (awake_) one_.progress();
  }
  void set_awake(bool awake) { awake_ = awake; }
  // All send, before any of them made progress.
  void send_all() {
    for (size_t i = 0; i < many_.size(); ++i) {
      must(fi_trecv(one_.ep, &in_[i], sizeof in_[i], nullptr, FI_ADDR_UNSPEC, i, 0, &in_[i]));
      out_[i] = i * 0x9e3779b97f4a7c15u + 1;
      must(fi_tsend(many_[i]->ep, &out_[i], sizeof out_[i], nullptr, to_, i, &out_[i]));
    }
  }
  // Every message completes without an error at both ends.
  void expect_all() {
    size_t received = 0, sent = 0;
    const bool done = until([&] {
      while (const auto c = poll(one_.receive_cq())) {
        EXPECT_EQ(c->err, 0) << fi_strerror(c->err);
        ++received;
      }
      for (auto &node : many_)
        while (const auto c = poll(node->tx_cq)) {
          EXPECT_EQ(c->err, 0) << fi_strerror(c->err);
          ++sent;
        }
      return received == many_.size() && sent == many_.size();
    });
    EXPECT_TRUE(done) << received << " arrived, " << sent << " ended, of " << many_.size();
    EXPECT_EQ(in_, out_);
  }

 private:
  static Options options() {
    Options options;
    options.rx_size = 1024;
    return options;
  }
  Node one_;
  std::vector<std::unique_ptr<Node>> many_;
  fi_addr_t to_ = FI_ADDR_NOTAVAIL;
  std::vector<uint64_t> in_, out_;
  bool awake_ = true;
};

// A little longer than a handshake may take here.
constexpr auto kHandshake = std::chrono::milliseconds(220);
#define IN_A_SMALL_PLACE()                                                             \
  if (!in_fresh_process({"FI_TCP_MAX_HANDSHAKES=3", "FI_TCP_HANDSHAKE_TIMEOUT_MS=200", \
                         "FI_OFI_RXM_RX_POOL=64K", "FI_OFI_RXD_PEER_TIMEOUT_MS=20000", \
                         "FI_OFI_RXD_CLOSE_LINGER_MS=1"}))                             \
  return

TEST(RdmCrowd, EveryPeerIsServed) {
  covers("many at once");
  IN_A_SMALL_PLACE();
  Crowd crowd(kCrowd);
  crowd.send_all();
  crowd.expect_all();
}

// The receiver makes no progress for a while. When it does, all peers have connected as far as they
// can alone.
TEST(RdmCrowd, EveryPeerIsServedByAReceiverWithLateProgress) {
  covers("many at once");
  IN_A_SMALL_PLACE();
  Crowd crowd(kCrowd);
  crowd.set_awake(false);
  crowd.send_all();
  const Deadline busy(kHandshake);
  crowd.until([&] { return busy.passed(); });
  crowd.set_awake(true);
  crowd.expect_all();
}

// Connections that send nothing would fill every place of a handshake several times over.
TEST(RdmCrowd, SilentConnectionsOnlyDelay) {
  covers("many at once");
  if (stack().find("udp") != std::string::npos) GTEST_SKIP() << "udp has no connections";
  if (!has_ipv4_addresses()) GTEST_SKIP() << "connects by sockets";
  IN_A_SMALL_PLACE();
  Crowd crowd(kCrowd / 4);
  const std::string name = crowd.one().name();
  sa_family_t family;
  std::memcpy(&family, name.data(), sizeof family);
  std::vector<int> strangers;
  for (int i = 0; i < 10; ++i) {
    strangers.push_back(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(strangers.back(), reinterpret_cast<const sockaddr *>(name.data()),
                        socklen_t(name.size())),
              0);
  }
  crowd.send_all();
  crowd.expect_all();
  for (const int fd : strangers) ::close(fd);
}

// Peers that made no progress for longer than a handshake may take connect again.
TEST(RdmCrowd, APeerThatWasTooSlowConnectsAgain) {
  covers("many at once");
  IN_A_SMALL_PLACE();
  Crowd crowd(kCrowd / 4);
  crowd.send_all();
  // Only the receiver makes progress: it accepts the peers, and closes connections without a reply.
  const Deadline idle(kHandshake);
  while (!idle.passed()) crowd.one().progress();
  crowd.expect_all();
}

}  // namespace
}  // namespace weft::conformance::rdm
