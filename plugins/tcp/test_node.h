// SPDX-License-Identifier: BSD-2-Clause
// Node: an application for the tests of tcp's FI_EP_RDM, whose completions are taken by context, in
// any order.
//
// Example (statements):
//    Node a, b;
//    const Bytes out(100, 'x');
//    Bytes in(out.size());
//    must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)));
//    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, a.insert(b), 1, mark(2)));
//    EXPECT_EQ(wait(b, mark(1), {&a, &b}).len, out.size());  // throws after a deadline
//    EXPECT_EQ(in, out);
//
// Not for the common behaviour of all stacks: tests/conformance.
#ifndef WEFT_PLUGINS_TCP_TEST_NODE_H
#define WEFT_PLUGINS_TCP_TEST_NODE_H

#include <netinet/in.h>

#include <cstring>
#include <deque>
#include <string>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance {

using Bytes = std::vector<uint8_t>;

inline rdm::Options defaults() {
  rdm::Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_SOURCE | FI_DIRECTED_RECV;
  options.threading = FI_THREAD_SAFE;
  options.progress = FI_PROGRESS_MANUAL;
  options.one_cq = true;
  return options;
}

// At the address of an endpoint that is gone; port 0: at any port.
inline rdm::Options defaults_at(const sockaddr_in &address) {
  rdm::Options options = defaults();
  if (address.sin_port != 0) options.service = std::to_string(ntohs(address.sin_port));
  return options;
}

// An application with one endpoint, whose completions are taken by context.
class Node : public rdm::Node {
 public:
  explicit Node(const rdm::Options &options = defaults()) : rdm::Node(options), cq(tx_cq) {
    const std::string bytes = rdm::Node::name();
    std::memcpy(&name, bytes.data(), std::min(bytes.size(), sizeof name));
  }

  fi_addr_t insert(const sockaddr_in &address) {
    return rdm::Node::insert({reinterpret_cast<const char *>(&address), sizeof address});
  }
  fi_addr_t insert(const Node &peer) { return insert(peer.name); }

  // Reads all completions that are there.
  void progress() {
    while (const auto completion = rdm::poll(cq)) done.push_back(*completion);
  }
  std::optional<rdm::Completion> take(const void *context) {
    for (auto i = done.begin(); i != done.end(); ++i) {
      if (i->context != context) continue;
      const rdm::Completion completion = *i;
      done.erase(i);
      return completion;
    }
    return {};
  }

  fid_cq *const cq;
  sockaddr_in name{};
  std::deque<rdm::Completion> done;
};

using Nodes = std::initializer_list<Node *>;

inline bool until(Nodes nodes, const std::function<bool()> &predicate,
                  std::chrono::milliseconds time = kPatience) {
  for (const Deadline deadline(time); !deadline.passed();) {
    if (predicate()) return true;
    for (Node *node : nodes) node->progress();
  }
  return predicate();
}

// The completion of `context` at `node`, while all make progress.
inline rdm::Completion wait(Node &node, const void *context, Nodes nodes,
                            const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
  std::optional<rdm::Completion> entry;
  if (!until(nodes, [&] { return (entry = node.take(context)).has_value(); }))
    throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": no completion");
  return *entry;
}

inline void *mark(size_t n) {
  return reinterpret_cast<void *>(n + 1);
}

}  // namespace weft::conformance

#endif
