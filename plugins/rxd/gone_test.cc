// SPDX-License-Identifier: BSD-2-Clause
// Peers whose process has ended, and endpoints that are closed afterwards: they must not wait for
// these peers, and not once per endpoint. Over the real stack; forged reports of the network, and
// the number of packets, are tested in the simulation (protocol/network_test.cc).
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kEndpoints = 100;

Options delivered() {
  Options options;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  return options;
}

// The other process receives until it is killed, and makes progress until it is stopped.
void receive_for_ever(int socket) {
  Node node(delivered());
  tell_text(socket, node.name());
  std::vector<uint8_t> in(100);
  for (;;) {
    fi_recv(node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr);
    node.progress();
    while (poll(node.rx_cq)) {
    }
  }
}

// Endpoints of one domain. Each has sent to the other process, and sends once more after that
// process has stopped to receive.
struct Many : Driver {
  explicit Many(Child &child) {
    const std::string peer = hear_text(child.socket());
    for (size_t i = 0; i < kEndpoints; ++i) {
      nodes.push_back(std::make_unique<Node>(delivered(), i == 0 ? nullptr : nodes[0].get()));
      if (i == 0) to = nodes[0]->insert(peer);
    }
    for (auto &node : nodes) {
      post([&] { return fi_send(node->ep, "hello", 5, nullptr, to, nullptr); });
      EXPECT_EQ(wait(node->tx_cq).err, 0);
    }
  }
  ~Many() {
    while (!nodes.empty()) nodes.pop_back();
  }
  void progress() override { nodes[0]->progress(); }
  void send() {
    for (auto &node : nodes) must(fi_send(node->ep, "hello?", 6, nullptr, to, nullptr));
  }

  std::vector<std::unique_ptr<Node>> nodes;
  fi_addr_t to = FI_ADDR_NOTAVAIL;
};

// The other process is killed, and the network reports that its port is closed. The timeouts are
// ten minutes, so an endpoint that missed the report would exceed the test's timeout.
TEST(Gone, OperationsFailAtOnceAndCloseDoesNotWait) {
  if (!in_fresh_process({"FI_OFI_RXD_CLOSE_LINGER_MS=600000", "FI_OFI_RXD_PEER_TIMEOUT_MS=600000"}))
    return;
  Child child(receive_for_ever);
  Many many(child);
  child.kill();
  many.send();
  for (auto &node : many.nodes) EXPECT_EQ(many.wait(node->tx_cq).err, FI_ECONNRESET);
  // Endpoints that have not noticed yet find out by their close packet.
}

TEST(Gone, EndpointsThatDidNotNoticeFindOutAtClose) {
  if (!in_fresh_process({"FI_OFI_RXD_CLOSE_LINGER_MS=600000", "FI_OFI_RXD_PEER_TIMEOUT_MS=600000"}))
    return;
  Child child(receive_for_ever);
  Many many(child);
  child.kill();
  many.send();  // these messages are still in flight at the close
}

// The process is only stopped: the port is open, but does not answer. All endpoints together wait
// as long as one.
TEST(Gone, ManyEndpointsTogetherWaitAsLongAsOne) {
  if (!in_fresh_process({"FI_OFI_RXD_CLOSE_LINGER_MS=2000"})) return;
  std::chrono::steady_clock::time_point begin;
  {
    Child child([](int socket) {
      tell(socket, uint64_t(::getpid()));
      receive_for_ever(socket);
    });
    const auto pid = pid_t(hear(child.socket()));
    {
      Many many(child);
      ASSERT_EQ(::kill(pid, SIGSTOP), 0);
      many.send();
      begin = std::chrono::steady_clock::now();
    }
    // One after the other they would take 200 s.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(100));
    ::kill(pid, SIGCONT);
    child.kill();
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
