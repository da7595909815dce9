// SPDX-License-Identifier: BSD-2-Clause
// Two hosts, as network namespaces with a link between them: half of the peers of one endpoint are
// on its host, and half on the other one. Messages go both ways at the same time, wildcard receives
// take those of all, and processes of this host are killed while transfers are under way.
#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plugins/link/test_peers.h"

namespace weft::conformance::rdm {
namespace {

constexpr const char *kHere = "10.79.0.1", *kThere = "10.79.0.2";
constexpr size_t kLocal = 4, kFar = 3, kKilled = 2;

bool run(const std::string &command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}
bool set_up(const std::string &device, const char *address) {
  return run("ip link set lo up && ip link set " + device + " up && ip addr add " + address +
             "/24 dev " + device);
}

// A child on the other host. The first one makes it: it tells its process, and hears 0 when the
// link is there; the others hear which process that was.
void echo_there(int socket) {
  const uint64_t first = hear(socket);
  if (first == 0) {
    tell(socket, unshare(CLONE_NEWNET) == 0 ? uint64_t(getpid()) : 0);
    hear(socket);
    tell(socket, set_up("weft1", kThere));
  } else {
    const int fd = open(("/proc/" + std::to_string(first) + "/ns/net").c_str(), O_RDONLY);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) throw std::runtime_error("setns failed");
  }
  if (hear(socket) == 0) return;  // nothing is tested
  setenv("WEFT_TEST_NODE", kThere, 1);
  echo(socket, Kind::kLocal);
}

struct Hosts {
  Hosts() {
    if (unshare(CLONE_NEWNET) != 0) {
      why = std::string("no network namespace can be made here: ") + strerror(errno);
      return;
    }
    for (size_t i = 0; i < kLocal; ++i)
      local.push_back(std::make_unique<Child>([](int socket) {
        if (hear(socket) == 0) return;
        setenv("WEFT_TEST_NODE", kHere, 1);
        echo(socket, Kind::kLocal);
      }));
    for (size_t i = 0; i < kFar; ++i) far.push_back(std::make_unique<Child>(echo_there));
    Child &first = *far.front();
    tell(first.socket(), 0);
    const uint64_t process = hear(first.socket());
    const bool is_linked =
        process != 0 &&
        run("ip link add weft0 type veth peer name weft1 netns " + std::to_string(process)) &&
        set_up("weft0", kHere);
    tell(first.socket(), 1);
    if (hear(first.socket()) == 0 || !is_linked)
      why = "no link between namespaces can be made here";
    for (size_t i = 1; i < kFar; ++i) tell(far[i]->socket(), process);
    for (const auto *children : {&local, &far})
      for (const auto &child : *children) tell(child->socket(), why.empty());
    setenv("WEFT_TEST_NODE", kHere, 1);
  }
  std::vector<std::unique_ptr<Child>> local, far;
  std::string why;  // they are not there
};

// What is under way: a message, and the receive that its echo comes to.
struct Exchange {
  std::vector<uint8_t> out, in;
  size_t peer = 0;
  bool is_sent = false, is_back = false;
};

class LinkHosts : public ::testing::TestWithParam<unsigned> {};

TEST_P(LinkHosts, EachPeerIsReachedInItsWayThoughOthersDie) {
  if (!in_fresh_process()) return;
  covers("link: two hosts, both ways at the same time, processes that are killed");
  Hosts hosts;
  if (!hosts.why.empty()) GTEST_SKIP() << hosts.why;
  std::mt19937 random(GetParam());
  const auto below = [&](size_t n) { return size_t(random() % n); };
  Here here;
  std::vector<Child *> children;
  for (const auto &child : hosts.local) children.push_back(child.get());
  for (const auto &child : hosts.far) children.push_back(child.get());
  std::vector<fi_addr_t> to;
  for (Child *const child : children) to.push_back(introduce(here, *child));
  std::vector<bool> is_dead(to.size());
  std::map<uint64_t, Exchange> open;  // by tag
  uint64_t next = 100, sent_local = 0, sent_far = 0;
  const auto start = [&] {
    size_t peer = below(to.size());
    while (is_dead[peer]) peer = below(to.size());
    const uint64_t tag = next++;
    Exchange &one = open[tag];
    one.peer = peer;
    const size_t size = below(3) == 0 ? below(300'000) + 1 : below(2'000) + 1;
    one.out = pattern(size, unsigned(tag));
    one.in.resize(one.out.size());
    const fi_addr_t from = below(2) == 0 ? FI_ADDR_UNSPEC : to[peer];
    must(fi_trecv(here.node.ep, one.in.data(), one.in.size(), nullptr, from, tag, 0, &one));
    here.post([&] {
      return fi_tsend(here.node.ep, one.out.data(), one.out.size(), nullptr, to[peer], tag, &one);
    });
    ++(peer < kLocal ? sent_local : sent_far);
  };
  const auto look = [&] {
    here.node.progress();
    while (const auto got = poll(here.node.tx_cq)) {
      auto &one = *static_cast<Exchange *>(got->context);
      EXPECT_FALSE(one.is_sent);
      one.is_sent = true;
      EXPECT_TRUE(got->err == 0 || is_dead[one.peer]) << got->err;
    }
    while (const auto got = poll(here.node.rx_cq)) {
      auto &one = *static_cast<Exchange *>(got->context);
      EXPECT_FALSE(one.is_back);
      one.is_back = true;
      if (got->err != 0) {
        EXPECT_TRUE(is_dead[one.peer]) << got->err;
        continue;
      }
      EXPECT_EQ(got->source, to[one.peer]);
      EXPECT_EQ(one.in, one.out);
    }
    std::erase_if(open,
                  [](const auto &entry) { return entry.second.is_sent && entry.second.is_back; });
    return true;  // of until()
  };
  // A dead peer sends nothing back.
  const auto bury = [&](size_t peer) {
    for (auto &[tag, one] : open)
      if (one.peer == peer && !one.is_back) (void)fi_cancel(here.node.ep.fid(), &one);
  };
  const auto drain = [&] { return here.until([&] { return look() && open.empty(); }); };
  for (size_t killed = 0; killed <= kKilled; ++killed) {
    const size_t count = 40 + below(40);
    for (size_t i = 0; i < count; ++i) {
      start();
      ASSERT_TRUE(here.until([&] { return look() && open.size() < 8; }));
    }
    if (killed == kKilled) break;
    hosts.local[killed]->kill();
    is_dead[killed] = true;
    bury(killed);
    ASSERT_TRUE(drain()) << open.size() << " are left";
  }
  ASSERT_TRUE(drain()) << open.size() << " are left";
  const Ways ways = ways_of(here.node);
  EXPECT_EQ(ways.local, sent_local);
  EXPECT_EQ(ways.network, sent_far);
  EXPECT_EQ(ways.peers_network, kFar);
  for (size_t i = kKilled; i < to.size(); ++i) {
    exchange(here, to[i], 0, to[i]);
    EXPECT_EQ(hear(children[i]->socket()), i < kLocal ? 1u : 0u);
    children[i]->join();
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, LinkHosts, ::testing::Values(1u, 2u, 3u));

}  // namespace
}  // namespace weft::conformance::rdm
