// SPDX-License-Identifier: BSD-2-Clause
// Processes of tests of link: the test's own one, and children that send back what they get. A
// child may be on this host, as of another one (FI_LINK_LOCAL=0), or without the layer.
//
// Example (statements):
//    using namespace weft::conformance::rdm;
//    weft::conformance::Child local([](int socket) { echo(socket, Kind::kLocal); });
//    Here here;
//    const fi_addr_t to = introduce(here, local);
//    exchange(here, to, 100, FI_ADDR_UNSPEC);
//    exchange(here, to, 0, to);  // the child ends
//
// Not for other layers: it reads the counters of link.
#ifndef WEFT_PLUGINS_LINK_TEST_PEERS_H
#define WEFT_PLUGINS_LINK_TEST_PEERS_H

#include <rdma/fi_cm.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/counters.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {

struct Ways {
  uint64_t local, network, peers_local, peers_network;
  bool operator==(const Ways &) const = default;
};
inline Ways ways_of(const Node &node) {
  const auto counters = read_counters(node.fabric);
  return {counters.at("sent_local"), counters.at("sent_network"), counters.at("peers_local"),
          counters.at("peers_network")};
}

struct Here : Driver {
  void progress() override { node.progress(); }
  Node node{[] {
    Options options;
    options.caps |= FI_SOURCE | FI_DIRECTED_RECV;
    return options;
  }()};

 private:
  std::optional<Completion> next(fid_cq *cq) override { return poll(cq); }  // with its source
};

// Another process, which sends back what it gets, until it gets a message of no bytes: with its
// tag, or without, if that is kUntagged.
inline constexpr uint64_t kUntagged = 9;
enum class Kind { kLocal, kFar, kStranger };  // of this layer, of it on another host, without it
// `asks`: it is told which address it is to have.
inline void echo(int socket, Kind kind, bool asks = false) {
  if (kind == Kind::kFar) setenv("FI_LINK_LOCAL", "0", 1);
  if (kind == Kind::kStranger) setenv("WEFT_TEST_STACK", std::getenv("WEFT_TEST_NETWORK"), 1);
  struct There : Driver {
    void progress() override { node.progress(); }
    explicit There(const std::function<void(Node &)> &before_enable)
        : node(Options(), nullptr, before_enable) {}
    Node node;
  } there([&](Node &node) {
    if (!asks) return;
    std::string name = hear_text(socket);
    must(fi_setname(node.ep.fid(), name.data(), name.size()));
  });
  tell_text(socket, there.node.name());
  const fi_addr_t to = there.node.insert(hear_text(socket));
  tell(socket, 1);
  std::vector<uint8_t> bytes(1 << 20);
  for (;;) {
    must(fi_trecv(there.node.ep, bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, 0, ~0ull,
                  &bytes));
    const Completion got = there.wait(there.node.rx_cq);
    there.post([&] {
      fid_ep *const ep = there.node.ep;
      return got.tag == kUntagged
                 ? fi_send(ep, bytes.data(), got.len, nullptr, to, &bytes)
                 : fi_tsend(ep, bytes.data(), got.len, nullptr, to, got.tag, &bytes);
    });
    if (there.wait(there.node.tx_cq).err != 0 || got.len == 0) break;
  }
  if (kind != Kind::kStranger) tell(socket, ways_of(there.node).local != 0 ? uint64_t(1) : 0);
}

inline fi_addr_t introduce(Here &here, Child &child) {
  const fi_addr_t to = here.node.insert(hear_text(child.socket()));
  tell_text(child.socket(), here.node.name());
  hear(child.socket());
  return to;
}

inline void exchange(Here &here, fi_addr_t to, size_t size, fi_addr_t from) {
  std::vector<uint8_t> out = pattern(size, unsigned(size)), in(size);
  must(fi_trecv(here.node.ep, in.data(), in.size(), nullptr, from, 5, 0, &in));
  here.post([&] { return fi_tsend(here.node.ep, out.data(), out.size(), nullptr, to, 5, &out); });
  EXPECT_EQ(here.wait(here.node.tx_cq).context, &out);
  const Completion got = here.wait(here.node.rx_cq);
  EXPECT_EQ(got.err, 0);
  EXPECT_EQ(got.context, &in);
  EXPECT_EQ(got.len, size);
  EXPECT_EQ(got.source, to);
  EXPECT_EQ(in, out);
}

}  // namespace weft::conformance::rdm

#endif
