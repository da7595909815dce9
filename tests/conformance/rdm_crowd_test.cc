// SPDX-License-Identifier: BSD-2-Clause
// Many who come to one at the same moment, more than it has room for in the middle of connecting:
// everybody is served, some a little later. The room is made small by parameters, so that a few
// hundred are a crowd.
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

// One that listens, and many endpoints of one other application, each with an address of its own.
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
  // Everybody sends; nobody has made progress before.
  void send_all() {
    for (size_t i = 0; i < many_.size(); ++i) {
      must(fi_trecv(one_.ep, &in_[i], sizeof in_[i], nullptr, FI_ADDR_UNSPEC, i, 0, &in_[i]));
      out_[i] = i * 0x9e3779b97f4a7c15u + 1;
      must(fi_tsend(many_[i]->ep, &out_[i], sizeof out_[i], nullptr, to_, i, &out_[i]));
    }
  }
  // Every message ends well at both ends.
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

#define IN_A_SMALL_PLACE()                                                             \
  if (!in_fresh_process({"FI_TCP_MAX_HANDSHAKES=3", "FI_TCP_HANDSHAKE_TIMEOUT_MS=200", \
                         "FI_OFI_RXM_RX_POOL=64K", "FI_OFI_RXD_PEER_TIMEOUT_MS=20000", \
                         "FI_OFI_RXD_CLOSE_LINGER_MS=1"}))                             \
  return

TEST(RdmCrowd, NobodyIsRefused) {
  covers("many at once");
  IN_A_SMALL_PLACE();
  Crowd crowd(kCrowd);
  crowd.send_all();
  crowd.expect_all();
}

// The one that everybody wants has other work: they all have connected, as far as they can alone,
// when it looks.
TEST(RdmCrowd, NobodyIsRefusedByOneThatLooksLate) {
  covers("many at once");
  IN_A_SMALL_PLACE();
  Crowd crowd(kCrowd);
  crowd.set_awake(false);
  crowd.send_all();
  const Deadline busy{std::chrono::milliseconds(500)};  // longer than a handshake may take
  crowd.until([&] { return busy.passed(); });
  crowd.set_awake(true);
  crowd.expect_all();
}

// Strangers who connect and say nothing take every place there is, several times over.
TEST(RdmCrowd, StrangersWhoSayNothingOnlyDelay) {
  covers("many at once");
  if (stack().find("udp") != std::string::npos) GTEST_SKIP() << "nobody connects to a socket";
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

// Those who were asked and then did nothing for longer than a handshake may take come back.
TEST(RdmCrowd, WhoWasTooSlowComesAgain) {
  covers("many at once");
  IN_A_SMALL_PLACE();
  Crowd crowd(kCrowd / 4);
  crowd.send_all();
  // Only the one that listens moves: it takes them in, and sends away who says nothing.
  const Deadline idle{std::chrono::milliseconds(500)};
  while (!idle.passed()) crowd.one().progress();
  crowd.expect_all();
}

}  // namespace
}  // namespace weft::conformance::rdm
