// SPDX-License-Identifier: BSD-2-Clause
// Node: a process with an endpoint of cxi on a NIC of network.h, by the C API.
//
// Example (statements):
//    Network network(/*entries=*/100);
//    Node target(network, kTarget, {}), honest(network, kHonest, {});
//    char in[4], out[4] = "abc";
//    succeed(fi_trecv(target.ep, in, 4, nullptr, target.insert(honest.name()), 7, 0, nullptr));
//    succeed(fi_tsend(honest.ep, out, 4, nullptr, honest.insert(target.name()), 7, nullptr));
//    const bool arrived = target.poll()->err == 0;
//
// What goes wrong in a call ends the process. Not for liars: network.h.
#ifndef WEFT_PLUGINS_CXI_FUZZ_NODE_H
#define WEFT_PLUGINS_CXI_FUZZ_NODE_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <weft/plugin.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "plugins/cxi/fuzz/network.h"
#include "plugins/cxi/ports.h"
#include "plugins/cxi/settings.h"

namespace weft::cxi::fuzz {

inline void succeed(ssize_t rc) {
  FUZZ_CHECK(rc == 0, "a call has failed");
}

struct Completion {
  void *context = nullptr;
  uint64_t flags = 0;
  size_t length = 0;
  const uint8_t *buf = nullptr;
  fi_addr_t source = FI_ADDR_UNSPEC;
  int err = 0, prov_errno = 0;
};

struct NodeOptions {
  uint32_t protocol = FI_PROTO_CXI;
  size_t size = 16;  // of its queues
};

class Node {
 public:
  Node(Network &network, Nid nid, const Settings &settings, const NodeOptions &options = {});
  ~Node();
  Node(const Node &) = delete;
  Node &operator=(const Node &) = delete;

  Peer name() const;
  fi_addr_t insert(const Peer &peer);
  fid_mr *open_region(void *memory, size_t length, uint64_t access);
  std::optional<Completion> poll();

  fid_domain *domain = nullptr;
  fid_ep *ep = nullptr;

 private:
  weft_instance instance_{};
  fi_info *info_ = nullptr;
  fid_fabric *fabric_ = nullptr;
  fid_av *av_ = nullptr;
  fid_cq *cq_ = nullptr;
};

// Small messages, short buffers: much happens with few bytes.
Settings small_settings();

}  // namespace weft::cxi::fuzz

#endif
