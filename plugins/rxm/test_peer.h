// SPDX-License-Identifier: BSD-2-Clause
// Peer: an application with one endpoint over rxm, for the tests of this folder. Several live in
// one process. wait() and until() make progress for all peers that the caller names.
//
// Example (statements):
//    Peer a, b;
//    const Bytes out = content(64, /*seed=*/1);
//    Bytes in(out.size());
//    must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, mark(1)));
//    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, a.insert(b), 7, mark(2)));
//    EXPECT_EQ(wait(b, mark(1), {&a, &b}).len, out.size());  // throws after a deadline
//    EXPECT_EQ(in, out);
//
// Not for what every unconnected endpoint promises: that is in tests/conformance.
#ifndef WEFT_PLUGINS_RXM_TEST_PEER_H
#define WEFT_PLUGINS_RXM_TEST_PEER_H

#include <netinet/in.h>
#include <rdma/fi_tagged.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/harness.h"

namespace weft::conformance {

using Bytes = std::vector<uint8_t>;

inline Bytes content(size_t size, unsigned seed) {
  Bytes out(size);
  for (size_t i = 0; i < size; ++i) out[i] = uint8_t(seed * 31 + i * 7 + (i >> 8));
  return out;
}

struct Entry {
  void *context = nullptr;
  uint64_t flags = 0, data = 0, tag = 0;
  size_t len = 0;
  fi_addr_t from = FI_ADDR_NOTAVAIL;
  int err = 0;
  std::string err_data;
  void *buf = nullptr;  // of a multi-receive buffer
};

struct PeerOptions {
  uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
  enum fi_progress progress = FI_PROGRESS_MANUAL;
  enum fi_wait_obj wait = FI_WAIT_NONE;
  const char *node = test_node();
  uint16_t port = 0;
  int mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;  // what it can do
};

class Peer {
 public:
  explicit Peer(const PeerOptions &options = {}) {
    Info hints = make_hints(options.caps);
    hints->ep_attr->type = FI_EP_RDM;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->domain_attr->data_progress = hints->domain_attr->control_progress = options.progress;
    hints->domain_attr->mr_mode = options.mr_mode;
    const std::string port = std::to_string(options.port);
    info = get_info(options.node, options.port != 0 ? port.c_str() : nullptr, FI_SOURCE,
                    hints.get(), FI_VERSION(2, 0));
    EXPECT_STREQ(info->fabric_attr->prov_name, stack().c_str());
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    must(fi_domain(fabric, info.get(), domain.out(), nullptr));
    fi_av_attr av_attr{};
    must(fi_av_open(domain, &av_attr, av.out(), nullptr));
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.wait_obj = options.wait;
    must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
    must(fi_endpoint(domain, info.get(), ep.out(), this));  // the context of its errors
    must(fi_ep_bind(ep, &av->fid, 0));
    must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    must(fi_enable(ep));
    size_t size = sizeof name;
    must(fi_getname(&ep->fid, &name, &size));
  }
  fi_addr_t insert(const sockaddr_in &address) {
    fi_addr_t index = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_insert(av, &address, 1, &index, 0, nullptr), 1);
    return index;
  }
  fi_addr_t insert(const Peer &peer) { return insert(peer.name); }
  void progress() {
    for (;;) {
      fi_cq_tagged_entry e;
      fi_addr_t from = FI_ADDR_NOTAVAIL;
      const ssize_t n = fi_cq_readfrom(cq, &e, 1, &from);
      if (n == -FI_EAGAIN) return;
      if (n == 1) {
        done.push_back({e.op_context, e.flags, e.data, e.tag, e.len, from, 0, {}, e.buf});
        continue;
      }
      if (n != -FI_EAVAIL) must(n);
      fi_cq_err_entry error{};
      must(fi_cq_readerr(cq, &error, 0));
      done.push_back({error.op_context, error.flags, error.data, error.tag, error.len,
                      FI_ADDR_NOTAVAIL, error.err,
                      std::string(static_cast<char *>(error.err_data), error.err_data_size),
                      error.buf});
    }
  }

  // What a peer calls the first byte of registered memory.
  uint64_t base_of(const void *memory) const {
    return info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? reinterpret_cast<uintptr_t>(memory) : 0;
  }

  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_av> av;
  Handle<fid_cq> cq;
  Handle<fid_mr> mr;
  Handle<fid_ep> ep;
  sockaddr_in name{};
  std::vector<Entry> done;
};

inline bool until(std::initializer_list<Peer *> peers, const std::function<bool()> &condition) {
  for (const Deadline deadline; !deadline.passed();) {
    if (condition()) return true;
    for (Peer *peer : peers) peer->progress();
  }
  return condition();
}

inline Entry wait(Peer &peer, const void *context, std::initializer_list<Peer *> peers,
                  int line = __builtin_LINE()) {
  Entry found;
  const bool there = until(peers, [&] {
    for (auto i = peer.done.begin(); i != peer.done.end(); ++i) {
      if (i->context != context) continue;
      found = *i;
      peer.done.erase(i);
      return true;
    }
    return false;
  });
  if (!there) throw std::runtime_error("line " + std::to_string(line) + ": no completion");
  return found;
}

inline void *mark(size_t n) {
  return reinterpret_cast<void *>(n + 1);
}

}  // namespace weft::conformance

#endif
