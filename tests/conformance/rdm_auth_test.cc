// SPDX-License-Identifier: BSD-2-Clause
// Authorization keys (fi_endpoint.3 and fi_domain.3, auth_key): endpoints with the same key
// communicate; all others get an error.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// Who gets no answer gives up soon. The library reads this when it starts, so it is a process of
// the test's own.
bool in_impatient_process() {
  return in_fresh_process({"FI_TCP_CONNECT_TIMEOUT_MS=300", "FI_OFI_RXM_CONNECT_TIMEOUT_MS=300",
                           "FI_OFI_RXD_PEER_TIMEOUT_MS=100"});
}

// A process at a peer's address that passes on what it gets, to an endpoint of its choice and back.
// It has no key.
class Relay {
 public:
  // `to`: a socket address. Connections are passed on, or datagrams.
  Relay(const std::string &to, bool datagrams)
      : to_(to), type_(datagrams ? SOCK_DGRAM : SOCK_STREAM), stop_(eventfd(0, 0)) {
    listener_ = open();
    sockaddr_storage any{};
    any.ss_family = family();
    socklen_t size = socklen_t(to_.size());
    std::memcpy(&any, to_.data(), to_.size());  // the host, and a port of its own
    reinterpret_cast<sockaddr_in *>(&any)->sin_port = 0;
    must(::bind(listener_, reinterpret_cast<sockaddr *>(&any), size));
    if (type_ == SOCK_STREAM) must(::listen(listener_, 16));
    must(::getsockname(listener_, reinterpret_cast<sockaddr *>(&any), &size));
    name_.assign(reinterpret_cast<char *>(&any), size);
    if (type_ == SOCK_DGRAM) {
      out_.push_back({listener_, open()});
      connect(out_.back().second);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    eventfd_write(stop_, 1);
    thread_.join();
    for (const auto &[from, to] : out_) {
      if (from != listener_) ::close(from);
      ::close(to);
    }
    ::close(listener_);
    ::close(stop_);
  }
  const std::string &name() const { return name_; }
  size_t passed() const { return passed_; }  // bytes, from and to the endpoint behind it

 private:
  sa_family_t family() const { return reinterpret_cast<const sockaddr *>(to_.data())->sa_family; }
  int open() const { return ::socket(family(), type_ | SOCK_CLOEXEC, 0); }
  bool connect(int fd) const {
    return ::connect(fd, reinterpret_cast<const sockaddr *>(to_.data()), socklen_t(to_.size())) ==
           0;
  }
  void run() {
    std::vector<uint8_t> bytes(65536);
    for (;;) {
      std::vector<pollfd> fds{{stop_, POLLIN, 0}};
      if (type_ == SOCK_STREAM) fds.push_back({listener_, POLLIN, 0});
      const size_t first = fds.size();
      for (const auto &[from, to] : out_) {
        fds.push_back({from, POLLIN, 0});
        fds.push_back({to, POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), -1);
      if (fds[0].revents != 0) return;
      for (size_t i = first; i < fds.size(); ++i)
        if (fds[i].revents != 0)
          pass(fds[i].fd, fds[(i - first) % 2 == 0 ? i + 1 : i - 1].fd, bytes);
      if (type_ == SOCK_STREAM && fds[1].revents != 0) take();
    }
  }
  void take() {
    const int from = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int to = open();
    if (from >= 0 && connect(to)) {
      out_.push_back({from, to});
    } else {
      if (from >= 0) ::close(from);
      ::close(to);
    }
  }
  void pass(int from, int to, std::vector<uint8_t> &bytes) {
    socklen_t size = sizeof asker_;
    const bool asks = type_ == SOCK_DGRAM && from == listener_;
    const ssize_t n =
        ::recvfrom(from, bytes.data(), bytes.size(), MSG_DONTWAIT,
                   asks ? reinterpret_cast<sockaddr *>(&asker_) : nullptr, asks ? &size : nullptr);
    if (asks && n >= 0) asker_size_ = size;
    if (n > 0) passed_ += size_t(n);
    if (n > 0 && to == listener_ && type_ == SOCK_DGRAM) {
      (void)!::sendto(to, bytes.data(), size_t(n), 0, reinterpret_cast<sockaddr *>(&asker_),
                      asker_size_);
    } else if (n > 0) {
      (void)!::send(to, bytes.data(), size_t(n), MSG_NOSIGNAL);
    } else if (n == 0 && type_ == SOCK_STREAM) {
      // The end of one direction is that of both, as of a relay that has seen a refusal.
      ::shutdown(from, SHUT_RDWR);
      ::shutdown(to, SHUT_RDWR);
      std::erase_if(out_, [from, to](const auto &pair) {
        if (pair.first != from && pair.second != from) return false;
        ::close(from);
        ::close(to);
        return true;
      });
    }
  }

  const std::string to_;
  const int type_, stop_;
  int listener_;
  std::string name_;
  std::vector<std::pair<int, int>> out_;
  sockaddr_storage asker_{};
  socklen_t asker_size_ = 0;
  std::atomic<size_t> passed_{0};
  std::thread thread_;
};

class RdmAuth : public ::testing::Test {
 protected:
  void SetUp() override {
    covers("auth_key");
    if (!find_info(with("key"))) GTEST_SKIP() << stack() << " takes no auth_key";
  }
  static Options with(const std::string &key) {
    Options options;
    options.auth_key = key;
    return options;
  }
  static Options anywhere() {  // bound to all addresses
    Options options = with("key");
    options.node = "0.0.0.0";
    options.service = "0";
    return options;
  }
  // 127.0.0.`host`, with the port of `name`.
  static std::string at_loopback(const std::string &name, uint8_t host) {
    sockaddr_in address{};
    std::memcpy(&address, name.data(), sizeof address);
    address.sin_addr.s_addr = htonl(0x7f000000u | host);
    return {reinterpret_cast<const char *>(&address), sizeof address};
  }
  // A message from the first to the second, or to where somebody passes it on to the second, fails,
  // and nothing arrives.
  static void expect_no_way(Net &net, size_t from, size_t to) {
    expect_no_way(net, net[from], net[to], net.at(from, to));
  }
  static void expect_no_way(Driver &all, Node &from, Node &to, fi_addr_t at) {
    std::vector<uint8_t> in(8), out(8, 1);
    must(fi_trecv(to.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
    all.post([&] { return fi_tsend(from.ep, out.data(), out.size(), nullptr, at, 7, &out); });
    const Completion done = all.wait(from.tx_cq);
    EXPECT_NE(done.err, 0);
    EXPECT_EQ(done.context, &out);
    EXPECT_FALSE(poll(to.receive_cq()).has_value());
    must(fi_cancel(&to.ep->fid, &in));
    EXPECT_EQ(all.wait(to.receive_cq()).err, FI_ECANCELED);
  }
  // A caller, and an endpoint at all addresses of the host, with the key of the caller.
  struct Anywhere : Driver {
    Anywhere() : net(1, with("key")), server(anywhere()) {}
    void progress() override {
      net.progress();
      server.progress();
    }
    Net net;
    Node server;
  };
};

TEST_F(RdmAuth, InfoHasTheKey) {
  const Info info = find_info(with("a key of 17 bytes"));
  ASSERT_NE(info, nullptr);
  ASSERT_EQ(info->ep_attr->auth_key_size, 17u);
  EXPECT_EQ(std::memcmp(info->ep_attr->auth_key, "a key of 17 bytes", 17), 0);
  EXPECT_EQ(find_info(with(std::string(65, 'k'))), nullptr) << "longer than any that is taken";
}

TEST_F(RdmAuth, TheSameKeyTalks) {
  Net net(3, with("key"));
  net.exchange(0, 1);
  net.exchange(1, 0);
  net.exchange(2, 0, 100'000);
  net.exchange(1, 2, 5000);
}

TEST_F(RdmAuth, AnotherKeyDoesNot) {
  if (!in_impatient_process()) return;
  Net net(0);
  net.add(with("one key"));
  net.add(with("another"));
  expect_no_way(net, 0, 1);
  expect_no_way(net, 1, 0);
}

TEST_F(RdmAuth, NoKeyDoesNot) {
  if (!in_impatient_process()) return;
  Net net(0);
  net.add(with("key"));
  net.add(with(""));
  expect_no_way(net, 0, 1);
  expect_no_way(net, 1, 0);
}

TEST_F(RdmAuth, ARefusedPeerHarmsNoOther) {
  if (!in_impatient_process()) return;
  Net net(0);
  net.add(with("key"));
  net.add(with("other"));
  net.add(with("key"));
  net.exchange(0, 2);
  expect_no_way(net, 1, 0);
  net.exchange(0, 2);
  net.exchange(2, 0);
}

// It has the address of a peer, and passes on what the caller proves and gets proved: to another
// endpoint with the key, and to the caller's own.
TEST_F(RdmAuth, ARelayWithoutTheKeyIsNotThePeer) {
  const bool datagrams = stack().starts_with("udp");
  if (!datagrams && !stack().starts_with("tcp") && stack() != "sockets")
    GTEST_SKIP() << stack() << ": its addresses are not those of sockets";
  if (!in_impatient_process()) return;
  Net net(2, with("key"));
  for (const size_t behind : {1, 0}) {
    Relay relay(net[behind].name(), datagrams);
    const fi_addr_t at = net[0].insert(relay.name());
    expect_no_way(net, net[0], net[behind], at);
    EXPECT_GT(relay.passed(), 0u) << "nobody has asked the relay";
  }
  net.exchange(0, 1);
  net.exchange(1, 0);
  // Each address of the host is the endpoint's, and the relay's is none of them.
  Anywhere all;
  Relay relay(at_loopback(all.server.name(), 2), datagrams);
  expect_no_way(all, all.net[0], all.server, all.net[0].insert(relay.name()));
  EXPECT_GT(relay.passed(), 0u) << "nobody has asked the relay";
}

// The host has more addresses than its interfaces: each of 127.0.0.0/8 is one.
TEST_F(RdmAuth, AnEndpointAtAllAddressesIsCalledAtAnyOfThem) {
  NEEDS_IPV4_ADDRESSES();
  for (const uint8_t host : {1, 2, 77}) {
    SCOPED_TRACE(int(host));
    Anywhere all;
    const fi_addr_t to = all.net[0].insert(at_loopback(all.server.name(), host));
    std::vector<uint8_t> in(8), out = pattern(in.size(), host);
    must(fi_trecv(all.server.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
    all.post([&] { return fi_tsend(all.net[0].ep, out.data(), out.size(), nullptr, to, 7, &out); });
    EXPECT_EQ(all.wait(all.net[0].tx_cq).err, 0);
    EXPECT_EQ(all.wait(all.server.rx_cq).err, 0);
    EXPECT_EQ(in, out);
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
