// SPDX-License-Identifier: BSD-2-Clause
// Many peers of one endpoint, over both NICs of a host.
#include <cstring>
#include <memory>
#include <vector>

#include "tests/conformance/process.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr size_t kOfAProcess = 50;  // to set one up takes a tenth of a second there
#else
constexpr size_t kOfAProcess = 250;
#endif
constexpr size_t kProcesses = 4, kPeers = kProcesses * kOfAProcess;

struct Greeting {
  uint64_t peer;    // 0 to kPeers - 1
  uint8_t name[8];  // its own, in FI_ADDR_CXI
};

Options options_of(const char *nic) {
  Options options;
  options.node = nic;
  options.rx_size = options.tx_size = kPeers;
  return options;
}

// Endpoints that greet `server`, and wait for its answers: what each has sent, and one more.
void greet(const char *nic, size_t first, const std::string &server) {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Greeting> out(kOfAProcess);
  std::vector<uint64_t> in(kOfAProcess);
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  for (size_t i = 0; i < kOfAProcess; ++i) {
    nodes.push_back(std::make_unique<Node>(options_of(nic), i == 0 ? nullptr : nodes[0].get()));
    if (i == 0) to = nodes[0]->insert(server);
    const std::string name = nodes[i]->name();
    out[i].peer = first + i;
    std::memcpy(out[i].name, name.data(), sizeof out[i].name);
    must(fi_trecv(nodes[i]->ep, &in[i], sizeof in[i], nullptr, FI_ADDR_UNSPEC, first + i, 0,
                  nullptr));
  }
  for (size_t i = 0; i < kOfAProcess; ++i)
    must(fi_tsend(nodes[i]->ep, &out[i], sizeof out[i], nullptr, to, first + i, &out[i]));
  size_t answers = 0;
  const Deadline deadline;
  while (answers < kOfAProcess && !deadline.passed())
    for (auto &node : nodes) {
      node->progress();
      while (const auto c = poll(node->tx_cq)) EXPECT_EQ(c->err, 0) << fi_strerror(c->err);
      while (const auto c = poll(node->receive_cq())) {
        EXPECT_EQ(c->err, 0) << fi_strerror(c->err);
        ++answers;
      }
    }
  EXPECT_EQ(answers, kOfAProcess);
  for (size_t i = 0; i < kOfAProcess; ++i) EXPECT_EQ(in[i], first + i + 1);
  while (!nodes.empty()) nodes.pop_back();
}

TEST(CxiPeers, AThousandOfOneEndpoint) {
  if (!in_fresh_process()) return;
  std::vector<std::unique_ptr<Child>> children;
  for (size_t i = 0; i < kProcesses; ++i)
    children.push_back(std::make_unique<Child>([i](int socket) {
      greet(i % 2 == 0 ? "cxi0" : "cxi1", i * kOfAProcess, hear_text(socket));
    }));
  Net net(1, options_of("cxi0"));
  Node &server = net[0];
  std::vector<Greeting> in(kPeers);
  for (size_t i = 0; i < kPeers; ++i)
    must(fi_trecv(server.ep, &in[i], sizeof in[i], nullptr, FI_ADDR_UNSPEC, i, 0, &in[i]));
  for (auto &child : children) tell_text(child->socket(), server.name());
  std::vector<uint64_t> answers(kPeers);
  for (size_t n = 0; n < kPeers; ++n) {
    const Completion c = net.wait(server.receive_cq());
    ASSERT_EQ(c.err, 0) << fi_strerror(c.err) << " after " << n;
    const auto &greeting = *static_cast<const Greeting *>(c.context);
    ASSERT_LT(greeting.peer, kPeers);
    ASSERT_EQ(&greeting, &in[greeting.peer]);
    const fi_addr_t peer = server.insert(
        std::string(reinterpret_cast<const char *>(greeting.name), sizeof greeting.name));
    uint64_t &answer = answers[greeting.peer];
    answer = greeting.peer + 1;
    net.post([&] {
      return fi_tsend(server.ep, &answer, sizeof answer, nullptr, peer, greeting.peer, nullptr);
    });
  }
  for (size_t n = 0; n < kPeers; ++n) EXPECT_EQ(net.wait(server.tx_cq).err, 0);
  for (auto &child : children) child->join();
}

}  // namespace
}  // namespace weft::conformance::rdm
