// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_RDM among strangers: who says that it is somebody else, who comes in crowds, who announces
// much and sends nothing. Raw sockets speak to an endpoint that talks to honest peers meanwhile.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance {
namespace {

using Bytes = std::vector<uint8_t>;
using rdm::Completion, rdm::Options;

Options defaults() {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV;
  options.threading = FI_THREAD_SAFE;
  options.progress = FI_PROGRESS_MANUAL;
  options.one_cq = true;
  return options;
}

class Node : public rdm::Node {
 public:
  Node() : rdm::Node(defaults()) {
    const std::string bytes = rdm::Node::name();
    std::memcpy(&name, bytes.data(), std::min(bytes.size(), sizeof name));
  }
  fi_addr_t insert(const Node &peer) {
    return rdm::Node::insert({reinterpret_cast<const char *>(&peer.name), sizeof peer.name});
  }
  void progress() {
    while (const auto completion = rdm::poll(tx_cq)) done.push_back(*completion);
  }
  std::optional<Completion> take(const void *context) {
    for (auto i = done.begin(); i != done.end(); ++i) {
      if (i->context != context) continue;
      const Completion completion = *i;
      done.erase(i);
      return completion;
    }
    return {};
  }
  sockaddr_in name{};
  std::deque<Completion> done;
};

using Nodes = std::initializer_list<Node *>;

bool until(Nodes nodes, const std::function<bool()> &predicate,
           std::chrono::milliseconds time = kPatience) {
  for (const Deadline deadline(time); !deadline.passed();) {
    if (predicate()) return true;
    for (Node *node : nodes) node->progress();
  }
  return predicate();
}

// 0, or why it failed; -1: it never ended.
int result(Node &node, const void *context, Nodes nodes,
           std::chrono::milliseconds time = kPatience) {
  std::optional<Completion> entry;
  if (!until(
          nodes, [&] { return (entry = node.take(context)).has_value(); }, time))
    return -1;
  return entry->err;
}

void *mark(size_t n) {
  return reinterpret_cast<void *>(n + 1);
}

template <class T>
std::string little(T value) {
  return {reinterpret_cast<const char *>(&value), sizeof value};
}

// A raw socket that says hello as the process behind a port of this host.
class Stranger {
 public:
  Stranger(const sockaddr_in &to, uint16_t port, uint32_t process) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || ::connect(fd_, reinterpret_cast<const sockaddr *>(&to), sizeof to) != 0)
      throw std::runtime_error(std::string("connect: ") + strerror(errno));
    say(std::string("\3\0\0\10", 4) + std::string(20, '\0') + little(uint64_t(1)) +
        std::string("\1\0", 2) + big(port) + big(process));
  }
  ~Stranger() { ::close(fd_); }
  Stranger(const Stranger &) = delete;
  Stranger &operator=(const Stranger &) = delete;

  void say(const std::string &bytes) {
    [[maybe_unused]] const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // A message of which `sent` bytes come.
  void message(uint64_t length, size_t sent) {
    say(std::string("\3\0\0\0\0\0\20\0", 8) + little(uint64_t(16 + length)) +
        std::string(sent, 'x'));
  }
  // What it was answered, if it was: 1 accept, 6 reject, 0 the end.
  std::optional<int> answer() {
    uint8_t bytes[40];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0) return {};
    return n < 2 ? 0 : bytes[1];
  }
  int fd() const { return fd_; }

 private:
  template <class T>
  static std::string big(T value) {
    std::string bytes = little(value);
    return {bytes.rbegin(), bytes.rend()};
  }
  int fd_;
};

int answer(Stranger &stranger, Nodes nodes) {
  std::optional<int> heard;
  until(nodes, [&] { return (heard = stranger.answer()).has_value(); });
  return heard.value_or(-1);
}

struct Link {
  explicit Link(Node &from, Node &to) : from(from), to(to), address(from.insert(to)) {}
  // A message goes there, whole.
  void expect_good(size_t size = 5000) {
    const Bytes out = pattern(size, ++count);
    Bytes in(size);
    must(fi_trecv(to.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, count, 0, mark(1)));
    must(fi_tsend(from.ep, out.data(), out.size(), nullptr, address, count, mark(2)));
    EXPECT_EQ(result(to, mark(1), {&from, &to}), 0);
    EXPECT_EQ(result(from, mark(2), {&from, &to}), 0);
    EXPECT_EQ(in, out);
  }
  Node &from, &to;
  const fi_addr_t address;
  unsigned count = 0;
};

// ---- names ----

TEST(RdmIdentity, WhoOnlySaysSoTakesNobodysPlace) {
  Node a, b;
  Link there(a, b), back(b, a);
  there.expect_good();
  // Messages on their way in both directions, which must not notice.
  constexpr size_t kSize = 8 << 20;
  const Bytes out = pattern(kSize, 1);
  Bytes in_a(kSize), in_b(kSize);
  must(fi_trecv(a.ep, in_a.data(), kSize, nullptr, FI_ADDR_UNSPEC, 99, 0, mark(3)));
  must(fi_trecv(b.ep, in_b.data(), kSize, nullptr, FI_ADDR_UNSPEC, 99, 0, mark(3)));
  must(fi_tsend(a.ep, out.data(), kSize, nullptr, there.address, 99, mark(4)));
  must(fi_tsend(b.ep, out.data(), kSize, nullptr, back.address, 99, mark(4)));
  std::vector<std::unique_ptr<Stranger>> impostors;
  for (uint32_t i = 0; i < 20; ++i) {
    impostors.push_back(
        std::make_unique<Stranger>(a.name, ntohs(b.name.sin_port), uint32_t(getpid()) + 1 + i));
    if (i % 2 == 0) impostors.back()->message(8, 8);
    if (i % 5 == 0) {
      EXPECT_EQ(answer(*impostors.back(), {&a, &b}), 6);
    }
  }
  for (Node *node : {&a, &b}) {
    EXPECT_EQ(result(*node, mark(3), {&a, &b}), 0);
    EXPECT_EQ(result(*node, mark(4), {&a, &b}), 0);
  }
  EXPECT_EQ(in_a, out);
  EXPECT_EQ(in_b, out);
  there.expect_good();
  back.expect_good();
  EXPECT_TRUE(a.done.empty());
}

TEST(RdmIdentity, ThePeerItselfGetsThePlaceThatAnImpostorTook) {
  Node a, b;
  const fi_addr_t to_b = a.insert(b);
  Stranger impostor(a.name, ntohs(b.name.sin_port), uint32_t(getpid()) + 1);
  EXPECT_EQ(answer(impostor, {&a, &b}), 1) << "nobody else said that it is b";
  Link back(b, a);
  for (int i = 0; i < 5; ++i) back.expect_good();
  // And what goes to b reaches b.
  const Bytes out = pattern(100, 1);
  Bytes in(100);
  must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, mark(1)));
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to_b, 5, mark(2)));
  EXPECT_EQ(result(b, mark(1), {&a, &b}), 0);
  EXPECT_EQ(in, out);
}

// ---- crowds ----

// A process that holds many connections, none of which says more than hello.
class Crowd {
 public:
  Crowd(const sockaddr_in &to, int count) {
    int ready[2];
    must(::pipe(ready));
    must(::pipe(end_));
    child_ = ::fork();
    if (child_ == 0) {
      ::close(end_[1]);
      const rlimit many{4096, 4096};
      setrlimit(RLIMIT_NOFILE, &many);
      std::vector<int> fds;
      for (int i = 0; i < count; ++i) {
        try {
          fds.push_back((new Stranger(to, uint16_t(1 + i), 1))->fd());
        } catch (const std::exception &) {
          break;
        }
      }
      char byte = 'x';
      [[maybe_unused]] ssize_t n = ::write(ready[1], &byte, 1);
      n = ::read(end_[0], &byte, 1);
      _exit(0);
    }
    ::close(ready[1]);
    ::close(end_[0]);
    ready_ = ready[0];
  }
  ~Crowd() {
    ::close(end_[1]);
    ::close(ready_);
    int status = 0;
    ::waitpid(child_, &status, 0);
  }
  bool is_there() const {
    pollfd p{ready_, POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }

 private:
  int end_[2], ready_ = -1;
  pid_t child_ = -1;
};

TEST(RdmStrangers, ManyLeaveRoomForThoseInTheAddressVector) {
  if (!in_fresh_process({"FI_TCP_HANDSHAKE_TIMEOUT_MS=500"})) return;
  rlimit few{256, 256};
  must(setrlimit(RLIMIT_NOFILE, &few));
  Node a, b, c;
  Crowd crowd(a.name, 600);
  ASSERT_TRUE(until({&a, &b, &c}, [&] { return crowd.is_there(); }));
  until(
      {&a, &b, &c}, [] { return false; }, std::chrono::milliseconds(300));
  // We reach others, and those that we know reach us.
  Link out(a, b);
  a.insert(c);
  Link in(c, a);
  out.expect_good();
  in.expect_good();
  // A file can be opened, too.
  const int fd = ::dup(0);
  EXPECT_GE(fd, 0) << strerror(errno);
  ::close(fd);
}

TEST(RdmStrangers, WhoComesLaterFindsThePlaceOfTheIdle) {
  if (!in_fresh_process({"FI_TCP_MAX_UNNAMED_PEERS=20", "FI_TCP_HANDSHAKE_TIMEOUT_MS=200"})) return;
  Node a, b;
  Crowd crowd(a.name, 100);
  ASSERT_TRUE(until({&a, &b}, [&] { return crowd.is_there(); }));
  until(
      {&a, &b}, [] { return false; }, std::chrono::milliseconds(100));
  Link in(b, a);  // a does not know b
  in.expect_good();
}

// ---- promises ----

TEST(RdmStrangers, WhatIsOnlyPromisedTakesNoRoom) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED=1M", "FI_TCP_MAX_SAVED_PER_PEER=512K"})) return;
  Node a, b;
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (uint16_t i = 0; i < 10; ++i) {
    strangers.push_back(std::make_unique<Stranger>(a.name, uint16_t(1 + i), 1));
    EXPECT_EQ(answer(*strangers.back(), {&a}), 1);
    strangers.back()->message(500'000, 10);
  }
  until(
      {&a}, [] { return false; }, std::chrono::milliseconds(50));
  // Somebody whom a does not know either: his message is saved, and that is acknowledged.
  const fi_addr_t to_a = b.insert(a);
  const Bytes bytes = pattern(60000, 1);
  const iovec iov{const_cast<uint8_t *>(bytes.data()), bytes.size()};
  fi_msg_tagged message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = to_a;
  message.context = mark(1);
  must(fi_tsendmsg(b.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  EXPECT_EQ(result(b, mark(1), {&a, &b}, std::chrono::seconds(10)), 0);
}

TEST(RdmStrangers, WhatTheySendLeavesRoomForThoseInTheAddressVector) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED=1M", "FI_TCP_MAX_SAVED_PER_PEER=512K"})) return;
  Node a, b;
  a.insert(b);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (uint16_t i = 0; i < 10; ++i) {
    strangers.push_back(std::make_unique<Stranger>(a.name, uint16_t(1 + i), 1));
    EXPECT_EQ(answer(*strangers.back(), {&a}), 1);
    // Most of a message, and never the rest.
    strangers.back()->message(400'000, 200'000);
    until(
        {&a}, [] { return false; }, std::chrono::milliseconds(10));
  }
  const fi_addr_t to_a = b.insert(a);
  const Bytes bytes = pattern(20000, 1);
  const iovec iov{const_cast<uint8_t *>(bytes.data()), bytes.size()};
  fi_msg_tagged message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = to_a;
  message.context = mark(1);
  must(fi_tsendmsg(b.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  EXPECT_EQ(result(b, mark(1), {&a, &b}, std::chrono::seconds(10)), 0);
  // What has gone keeps nobody's room: there is some for one who is not in the vector.
  strangers.clear();
  Node c;
  message.addr = c.insert(a);
  must(fi_tsendmsg(c.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  EXPECT_EQ(result(c, mark(1), {&a, &c}, std::chrono::seconds(10)), 0);
}

}  // namespace
}  // namespace weft::conformance
