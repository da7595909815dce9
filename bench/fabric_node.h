// SPDX-License-Identifier: BSD-2-Clause
//
// The libfabric under test and the objects below an endpoint: fabric, domain, queues, connections.
//
// Example:
//     #include "bench/control.h"
//     Fid<fid_ep> serve(FabricNode &node, Control &control) {
//       control.send({{"address", node.listen("127.0.0.1")}});
//       return node.accept();
//     }
//     Fid<fid_ep> reach(FabricNode &node, const std::string &address) {
//       node.resolve(address);
//       return node.connect();
//     }
//
// Messages between two endpoints: fabric_transport.h.
#ifndef WEFT_BENCH_FABRIC_NODE_H
#define WEFT_BENCH_FABRIC_NODE_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "bench.h"

// This program must run on the libfabric of Debian 12 as well as on weft. Compiled against newer
// headers it would bind to symbol versions and struct sizes that the former lacks.
#if FI_MAJOR_VERSION != 1 || FI_MINOR_VERSION > 17
#error "compile the benchmark against the headers of libfabric 1.17 or older"
#endif

namespace weft::bench {

struct FabricOptions {
  std::string provider = "tcp";
  std::string domain;
  bool rdm = false;
  bool tagged = false;
  bool rma = false;
  bool split_cq = false;
  // What clients ask besides: the default is the cheapest that a program can ask for.
  uint64_t level = 0;  // FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, ... of all sends; 0: none
  bool thread_safe = false;
  bool wait_fd = false;     // sleeps on the queues' descriptors when they are empty
  bool selective = false;   // FI_SELECTIVE_COMPLETION, and each operation asks for its completion
  bool counters = false;    // no completion in the queues: counters tell
  bool multi_recv = false;  // messages arrive in buffers with FI_MULTI_RECV
};

struct FidCloser {
  template <class T>
  void operator()(T *object) const {
    fi_close(&object->fid);
  }
};
template <class T>
using Fid = std::unique_ptr<T, FidCloser>;

struct InfoFreer {
  void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoFreer>;

// The library that this process really uses.
struct Library {
  std::string path;     // Of the file that holds fi_getinfo.
  std::string version;  // What fi_version says.
};
Library loaded_library();
// Throws unless the library at `path` lies in `directory`; an empty one allows all.
void expect_library(const std::string &directory, const std::string &path);

// Throws unless `rc`, what `call` returned, is 0.
[[noreturn, gnu::cold]] void call_failed(const char *call, int64_t rc);
inline void must(const char *call, int64_t rc) {
  if (rc != 0) call_failed(call, rc);
}

// An address as it travels between the two sides: "FORMAT:HEX". own_address() is that of an
// endpoint.
std::string own_address(fid_t endpoint, uint32_t format);
std::string unpack_address(const std::string &packed, uint32_t *format);

// The objects below an endpoint. The endpoint is destroyed first, then the others downwards.
class FabricNode {
 public:
  FabricNode(const FabricOptions &options, Watch *watch) : options_(options), watch_(watch) {}

  // MSG: starts to listen at an address of this host. Both: returns the address for the peer.
  std::string listen(const std::string &host);
  // Finds the way to the address that listen() returned.
  void resolve(const std::string &address);
  void open_domain(fi_info *info);
  // MSG only.
  Fid<fid_ep> accept();
  Fid<fid_ep> connect();
  // An enabled endpoint, bound to the queues; `info` decides its kind.
  Fid<fid_ep> open_endpoint(fi_info *info);
  // Throws when the event queue reports an error or the end of a connection.
  void check_events();

  const FabricOptions &options() const { return options_; }
  fi_info *info() const { return info_.get(); }
  fid_domain *domain() const { return domain_.get(); }
  fid_cq *cq() const { return cq_.get(); }
  fid_cq *rx_cq() const { return rx_cq_.get(); }
  fid_av *av() const { return av_.get(); }
  // With FabricOptions::counters.
  fid_cntr *sent() const { return sent_.get(); }
  fid_cntr *arrived() const { return arrived_.get(); }
  // With FabricOptions::wait_fd: sleeps until a queue has something, or for a tenth of a second.
  void sleep();

 private:
  uint64_t op_flags() const;
  Info make_hints() const;
  void open_fabric(fi_info *info);  // Takes `info`.
  uint32_t wait_event(const char *what, fi_eq_cm_entry *entry);

  FabricOptions options_;
  Watch *watch_;
  Info info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_eq> eq_;
  Fid<fid_pep> pep_;
  Fid<fid_domain> domain_;
  Fid<fid_av> av_;
  Fid<fid_cq> cq_;
  Fid<fid_cq> rx_cq_;
  Fid<fid_cntr> sent_, arrived_;
  std::vector<fid_t> waited_;  // the queues
  std::vector<pollfd> descriptors_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_FABRIC_NODE_H
