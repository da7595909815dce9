// SPDX-License-Identifier: BSD-2-Clause
// Peers whose process is killed: what they had sent arrives, what is under way toward them fails,
// and nothing is left of them.
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <weft/sdk/layers/carrier.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kLong = 300'000;  // bytes of a message that stays in its sender

size_t open_descriptors() {
  size_t count = 0;
  DIR *const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// Of an operation toward a peer that is gone, which may not have answered yet.
bool tells_so(const Completion &done) {
  return done.err == FI_ECONNRESET || done.err == FI_ECONNREFUSED;
}

// Whether a socket of this host has the name of the endpoint.
bool has_socket(const std::string &address) {
  const std::string name =
      "@weft-shm/" + std::string(address.substr(address.find("://") + 3).c_str());
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    if (line.ends_with(name)) return true;
  return false;
}

// The application of this process alone.
struct Own : Driver {
  explicit Own(const Options &options = {}) : node(options) {}
  void progress() override { node.progress(); }
  // Makes progress until the other process says something.
  uint64_t hear_of(Child &child) {
    if (!until([&] { return can_hear(child.socket()); }))
      throw std::runtime_error("the other process is silent");
    return hear(child.socket());
  }
  Node node;
};

// It and one in another process, which know each other.
struct Pair : Own {
  explicit Pair(Child &child, const Options &options = {})
      : Own(options), peer_name(hear_text(child.socket())), to(node.insert(peer_name)) {
    tell_text(child.socket(), node.name());
  }
  const std::string peer_name;
  const fi_addr_t to;
};

// The other process: does `act` and then makes progress until it is killed.
template <class Act>
auto peer(Act act) {
  return [act](int socket) {
    Node node{Options()};
    tell_text(socket, node.name());
    const fi_addr_t to = node.insert(hear_text(socket));
    act(node, to);
    tell(socket, 1);
    for (;;) node.progress();
  };
}

void nothing(Node &, fi_addr_t) {}

TEST(ShmGone, WhatIsUnderWayFails) {
  if (!in_fresh_process()) return;
  covers("errors of dead peers");
  std::vector<uint8_t> longer(kLong), delivered(10);
  Child child(peer(nothing));
  Pair pair(child);
  hear(child.socket());
  // Nobody receives: a message that stays here, and one that has to be in a receive.
  must(fi_tsend(pair.node.ep, longer.data(), longer.size(), nullptr, pair.to, 1, &longer));
  fi_msg_tagged message{};
  const iovec iov{delivered.data(), delivered.size()};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = pair.to;
  message.context = &delivered;
  must(fi_tsendmsg(pair.node.ep, &message, FI_DELIVERY_COMPLETE));
  child.kill();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(tells_so(pair.wait(pair.node.tx_cq)));
  // From now on nobody has the name.
  must(fi_tsend(pair.node.ep, delivered.data(), 1, nullptr, pair.to, 1, &delivered));
  EXPECT_EQ(pair.wait(pair.node.tx_cq).err, FI_ECONNREFUSED);
}

TEST(ShmGone, AThreadThatSleepsIsTold) {
  if (!in_fresh_process()) return;
  covers("errors of dead peers, FI_WAIT_UNSPEC");
  std::vector<uint8_t> longer(kLong);
  Options options;
  options.tx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
  Child child(peer(nothing));
  Node node(options);
  const fi_addr_t to = node.insert(hear_text(child.socket()));
  tell_text(child.socket(), node.name());
  hear(child.socket());
  must(fi_tsend(node.ep, longer.data(), longer.size(), nullptr, to, 1, &longer));
  std::thread killer([&] { child.kill(); });
  fi_cq_tagged_entry entry;
  const auto wait_ms = int(patience().count());
  EXPECT_EQ(fi_cq_sread(node.tx_cq, &entry, 1, nullptr, wait_ms), -FI_EAVAIL);
  killer.join();
}

TEST(ShmGone, WhatItHadSentArrives) {
  if (!in_fresh_process()) return;
  covers("errors of dead peers");
  std::vector<uint8_t> in(20'000), lost(kLong);
  Child child(peer([](Node &node, fi_addr_t to) {
    std::vector<uint8_t> shorter = pattern(100, 1), longer = pattern(10'000, 2);
    static std::vector<uint8_t> longest(kLong);
    must(fi_tsend(node.ep, shorter.data(), shorter.size(), nullptr, to, 1, nullptr));
    must(fi_tsend(node.ep, longer.data(), longer.size(), nullptr, to, 2, nullptr));
    must(fi_tsend(node.ep, longest.data(), longest.size(), nullptr, to, 3, nullptr));
  }));
  Pair pair(child);
  hear(child.socket());
  child.kill();
  must(fi_trecv(pair.node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 2, 0, &in));
  const Completion second = pair.wait(pair.node.rx_cq);
  EXPECT_EQ(second.err, 0);
  ASSERT_EQ(second.len, 10'000u);
  in.resize(10'000);
  EXPECT_EQ(in, pattern(10'000, 2));
  must(fi_trecv(pair.node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  EXPECT_EQ(pair.wait(pair.node.rx_cq).len, 100u);
  // The last one was announced, and its bytes went with its process.
  must(fi_trecv(pair.node.ep, lost.data(), lost.size(), nullptr, FI_ADDR_UNSPEC, 3, 0, &lost));
  EXPECT_EQ(pair.wait(pair.node.rx_cq).err, FI_ECONNRESET);
}

// Forks a process with this number; -1: the kernel does not let this one choose.
pid_t fork_as(pid_t number) {
  for (int tries = 0; tries < 1000; ++tries) {
    std::ofstream last("/proc/sys/kernel/ns_last_pid");
    if (!(last << number - 1 << std::flush)) return -1;
    const pid_t pid = ::fork();
    if (pid == 0 && ::getpid() != number) _exit(0);
    if (pid == 0 || pid == number) return pid;
    ::waitpid(pid, nullptr, 0);  // somebody else was faster
  }
  return -1;
}

Options with_rma() {
  Options options;
  options.caps |= FI_RMA;
  return options;
}

// The peer dies when its read of memory here is under way, and its number goes to another process.
TEST(ShmGone, AnotherProcessWithItsNumberIsLeftAlone) {
  if (!in_fresh_process({"FI_SHM_CMA_SIZE=32K"})) return;
  covers("errors of dead peers, remote reads");
  constexpr size_t kRead = 100'000;
  void *const far =
      ::mmap(nullptr, kRead, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(far, MAP_FAILED);
  std::vector<uint8_t> window(kRead, 0xee);
  Child child([&](int socket) {
    Node node(with_rma());
    tell_text(socket, node.name());
    const fi_addr_t to = node.insert(hear_text(socket));
    const uint64_t base = hear(socket), key = hear(socket);
    must(fi_read(node.ep, far, kRead, nullptr, to, base, key, nullptr));
    fi_cq_tagged_entry done;
    while (fi_cq_read(node.tx_cq, &done, 1) != 1) node.progress();
    tell(socket, 1);
    hear(socket);
    must(fi_read(node.ep, far, kRead, nullptr, to, base, key, nullptr));
    tell(socket, 1);
    hear(socket);
  });
  Pair pair(child, with_rma());
  fid_mr *const region = pair.node.expose(window.data(), kRead, FI_REMOTE_READ, 42);
  tell(child.socket(), pair.node.base_of(window.data()));
  tell(child.socket(), fi_mr_key(region));
  pair.hear_of(child);
  tell(child.socket(), 1);
  hear(child.socket());
  const pid_t number = child.pid();
  child.kill();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t other = fork_as(number);
  if (other == 0) {
    char byte;
    if (::read(ends[0], &byte, 1) != 1) _exit(2);
    const auto *const bytes = static_cast<const uint8_t *>(far);
    _exit(std::any_of(bytes, bytes + kRead, [](uint8_t b) { return b != 0; }) ? 1 : 0);
  }
  if (other < 0) GTEST_SKIP() << "no process gets a number that the test chooses: not root?";
  // All that the dead one had sent is taken before this message fails.
  must(fi_tsend(pair.node.ep, window.data(), kRead, nullptr, pair.to, 1, nullptr));
  EXPECT_TRUE(tells_so(pair.wait(pair.node.tx_cq)));
  ASSERT_EQ(::write(ends[1], "", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0) << "its memory has changed";
}

// Another process, which listens under this name when it is told so, says how long the first
// message is that it gets, and closes when it is told so again.
auto listener(const std::string &name) {
  return [name](int socket) {
    hear(socket);
    std::string own = name;
    Node node(Options(), nullptr,
              [&](Node &n) { must(fi_setname(&n.ep->fid, own.data(), own.size() + 1)); });
    std::vector<uint8_t> in(20'000);
    must(fi_trecv(node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    tell(socket, 1);
    fi_cq_tagged_entry entry;
    while (fi_cq_read(node.rx_cq, &entry, 1) != 1) node.progress();
    tell(socket, entry.len);
    hear(socket);
  };
}

// The sender reads no queue between the end of one process and the start of the other.
TEST(ShmGone, TheNextMessageIsForWhoHasTheNameNow) {
  if (!in_fresh_process()) return;
  covers("peers that start again");
  struct Row {
    bool killed, injected;
    size_t length;
  };
  constexpr Row rows[] = {
      {false, false, 64}, {true, false, 64}, {true, true, 64}, {true, false, 10'000}};
  std::vector<std::unique_ptr<Child>> children;
  const auto name_of = [own = getpid()](size_t row) {
    return "fi_ns://weft-test-" + std::to_string(own) + "-" + std::to_string(row);
  };
  for (size_t i = 0; i < 2 * std::size(rows); ++i)
    children.push_back(std::make_unique<Child>(listener(name_of(i / 2))));
  Own own;
  Node &sender = own.node;
  const std::vector<uint8_t> out(20'000);
  for (size_t i = 0; i < std::size(rows); ++i) {
    const Row &row = rows[i];
    SCOPED_TRACE(std::to_string(row.length) + (row.injected ? " injected" : "") +
                 (row.killed ? ", killed" : ", closed"));
    const fi_addr_t to = sender.insert(name_of(i));
    for (Child *const child : {children[2 * i].get(), children[2 * i + 1].get()}) {
      tell(child->socket(), 1);
      hear(child->socket());
      must(row.injected ? fi_tinject(sender.ep, out.data(), row.length, to, 1)
                        : fi_tsend(sender.ep, out.data(), row.length, nullptr, to, 1, nullptr));
      EXPECT_EQ(own.hear_of(*child), row.length);
      if (!row.injected) {
        EXPECT_EQ(own.wait(sender.tx_cq).err, 0);
      }
      if (row.killed) {
        child->kill();
      } else {
        tell(child->socket(), 1);
        child->join();
      }
    }
  }
}

TEST(ShmGone, AChildsCopiesKeepNoLinkOfAClosedEndpoint) {
  if (!in_fresh_process()) return;
  covers("errors of dead peers, children after fork()");
  std::vector<uint8_t> longer(kLong);
  Child child([](int socket) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    pid_t copy;
    {
      Node node{Options()};
      tell_text(socket, node.name());
      hear_text(socket);
      while (!can_hear(socket)) node.progress();
      hear(socket);
      copy = ::fork();
      if (copy == 0) {
        ::close(ends[1]);
        char byte;
        _exit(::read(ends[0], &byte, 1) == 0 ? 0 : 1);
      }
    }
    tell(socket, 1);
    hear(socket);
    ::close(ends[1]);
    ::waitpid(copy, nullptr, 0);
  });
  Pair pair(child);
  must(fi_tsend(pair.node.ep, longer.data(), longer.size(), nullptr, pair.to, 1, nullptr));
  tell(child.socket(), 1);
  hear(child.socket());
  EXPECT_TRUE(tells_so(pair.wait(pair.node.tx_cq)));
  must(fi_tsend(pair.node.ep, longer.data(), 1, nullptr, pair.to, 1, nullptr));
  EXPECT_EQ(pair.wait(pair.node.tx_cq).err, FI_ECONNREFUSED);
  tell(child.socket(), 1);
  child.join();
}

// A peer that has no descriptor for the link's memory never takes what is in it.
TEST(ShmGone, NothingIsSentBeforeThePeerHasTakenTheLink) {
  if (!in_fresh_process()) return;
  covers("completions");
  Child child([](int socket) {
    Node node{Options()};
    tell_text(socket, node.name());
    hear_text(socket);
    hear(socket);
    while (!can_hear(socket)) node.progress();
    hear(socket);
  });
  Pair pair(child);
  for (const size_t length : {8, 300, 10'000}) {
    static const std::vector<uint8_t> out(10'000);
    must(fi_tsend(pair.node.ep, out.data(), length, nullptr, pair.to, 1, nullptr));
  }
  for (int i = 0; i < 1000; ++i) {
    pair.progress();
    ASSERT_FALSE(poll_cq(pair.node.tx_cq));
  }
  tell(child.socket(), 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pair.wait(pair.node.tx_cq).err, 0);
  tell(child.socket(), 1);
  child.join();
}

TEST(ShmGone, ALimitOfFilesIsAnError) {
  if (!in_fresh_process()) return;
  covers("errors of links");
  Net net(2);
  const rlimit little{10'000, RLIM_INFINITY};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  const uint8_t byte = 1;
  must(fi_tsend(net[0].ep, &byte, 1, nullptr, net.at(0, 1), 1, nullptr));
  EXPECT_EQ(net.wait(net[0].tx_cq).err, EFBIG);
}

// What a layer asks that has another way to its peers.
TEST(ShmGone, ALayerLearnsWhoIsThere) {
  if (!in_fresh_process()) return;
  covers("errors of dead peers");
  Child child(peer(nothing));
  Pair pair(child);
  hear(child.socket());
  fid_ep *const ep = pair.node.ep;
  void *opened = nullptr;
  EXPECT_EQ(fi_open_ops(&ep->fid, WEFT_LOCAL_OPS, 1, &opened, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_open_ops(&ep->fid, "weft_local_0", 0, &opened, nullptr), -FI_ENOSYS);
  must(fi_open_ops(&ep->fid, WEFT_LOCAL_OPS, 0, &opened, nullptr));
  const weft_local_ops &ops = *static_cast<weft_local_ops *>(opened);
  const auto losses = [number = ops.losses(ep)] {
    return __atomic_load_n(number, __ATOMIC_ACQUIRE);
  };
  const uint64_t before = losses();
  EXPECT_EQ(ops.reach(ep, pair.node.insert("fi_ns://nobody has this name")), -FI_ECONNREFUSED);
  EXPECT_EQ(ops.reach(ep, 1000), -FI_EINVAL);
  EXPECT_EQ(ops.reach(ep, pair.to), 0);
  EXPECT_EQ(ops.reach(ep, pair.to), 0);
  std::vector<uint8_t> out(100);
  must(fi_tsend(ep, out.data(), out.size(), nullptr, pair.to, 1, &out));
  EXPECT_EQ(pair.wait(pair.node.tx_cq).err, 0);
  EXPECT_EQ(losses(), before);
  child.kill();
  EXPECT_TRUE(pair.until([&] { return losses() != before; }));
  EXPECT_EQ(ops.reach(ep, pair.to), -FI_ECONNREFUSED);
}

TEST(ShmGone, NothingIsLeft) {
  if (!in_fresh_process()) return;
  size_t before = 0;
  for (int life = 0; life < 3; ++life) {
    Child child(peer(nothing));
    std::vector<uint8_t> out(kLong);
    {
      Pair pair(child);
      hear(child.socket());
      EXPECT_TRUE(has_socket(pair.peer_name));
      must(fi_tsend(pair.node.ep, out.data(), out.size(), nullptr, pair.to, 1, &out));
      child.kill();
      EXPECT_FALSE(has_socket(pair.peer_name));
      EXPECT_TRUE(tells_so(pair.wait(pair.node.tx_cq)));
    }
    if (life == 0) before = open_descriptors();
    EXPECT_LE(open_descriptors(), before);
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
