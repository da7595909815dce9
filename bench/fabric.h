// SPDX-License-Identifier: BSD-2-Clause
//
// The benchmark's transport over the public libfabric API, FI_EP_MSG (connected) or FI_EP_RDM
// (addressed), untagged or tagged.
//
//   FabricOptions options;                 // provider "tcp", FI_EP_MSG
//   FabricTransport server(options, &watch);
//   std::string address = server.Listen("127.0.0.1");
//   server.Accept();                       // the peer: client.Connect(address)
//
// Not a wrapper for applications: it only has the operations that the patterns need.
#ifndef WEFT_BENCH_FABRIC_H_
#define WEFT_BENCH_FABRIC_H_

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

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

// The library that this process is really bound to.
struct Library {
  std::string path;     // Of the file that holds fi_getinfo.
  std::string version;  // What fi_version says.
};
Library LoadedLibrary();

// The objects below an endpoint. Destroyed from the endpoint down.
class FabricNode {
 public:
  FabricNode(const FabricOptions &options, Watch *watch) : options_(options), watch_(watch) {}

  // MSG: starts to listen at an address of this host. Both: returns the address for the peer.
  std::string Listen(const std::string &host);
  // Finds the way to the address that Listen() returned.
  void Resolve(const std::string &address);
  void OpenDomain(fi_info *info);
  // MSG only.
  Fid<fid_ep> Accept();
  Fid<fid_ep> Connect();
  // An enabled endpoint, bound to the queues; `info` decides its kind.
  Fid<fid_ep> OpenEndpoint(fi_info *info);
  // Throws when the event queue has bad news about an open connection.
  void CheckEvents();

  const FabricOptions &options() const { return options_; }
  fi_info *info() const { return info_.get(); }
  fid_domain *domain() const { return domain_.get(); }
  fid_cq *cq() const { return cq_.get(); }
  fid_cq *rx_cq() const { return rx_cq_.get(); }
  fid_av *av() const { return av_.get(); }

 private:
  Info Hints() const;
  void OpenFabric(fi_info *info);  // Takes `info`.
  uint32_t WaitEvent(const char *what, fi_eq_cm_entry *entry);

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
};

class FabricTransport {
 public:
  static constexpr bool kHasRma = true;

  FabricTransport(const FabricOptions &options, Watch *watch)
      : node_(options, watch), watch_(watch) {}

  // MSG: server Listen() then Accept(), client Connect(address).
  // RDM: both open, then AddPeer() with the other's address.
  std::string Listen(const std::string &host);
  void Accept();
  // Returns this side's address (RDM), for the server's AddPeer().
  std::string Connect(const std::string &address);
  void AddPeer(const std::string &address);

  // Before each measurement: counters to zero, memory registered where needed.
  void Begin(Arena &arena, const Spec &spec);
  // Before the arena goes away.
  void End() { mr_.reset(); }
  // The peer's view of this side's memory, and the other way round.
  uint64_t RmaAddress(const Arena &arena) const;
  uint64_t RmaKey() const { return mr_ ? fi_mr_key(mr_.get()) : 0; }
  void SetPeerMemory(uint64_t address, uint64_t key) {
    peer_address_ = address;
    peer_key_ = key;
  }

  const fi_info *info() const { return node_.info(); }
  uint32_t MaxWindow() const;

  // For the patterns.
  void PostReceive(Slot &slot, size_t size);
  void Send(Slot &slot, size_t size, bool more);
  void Write(Slot &slot, size_t size, const Slot &target, const Arena &arena, bool announce);
  void Read(Slot &slot, size_t size, const Slot &source, const Arena &arena);
  void ExpectRemoteWrites(uint64_t count);
  int Progress() {
    int n = Reap(cq_);
    if (rx_cq_ != nullptr) n += Reap(rx_cq_);
    return n;
  }
  void SlowCheck() {
    watch_->Check();
    node_.CheckEvents();
  }
  uint64_t received() const { return received_; }
  uint64_t remote_writes() const { return remote_writes_; }

 private:
  static constexpr uint64_t kTag = 0x77656674;

  int Reap(fid_cq *cq);
  [[noreturn]] void CompletionError(fid_cq *cq, ssize_t rc);
  void OpenRdmEndpoint();
  std::string OwnAddress();
  // Runs `post` until the library has room, driving progress meanwhile.
  template <class Post>
  void Retry(const char *call, Post post);

  FabricNode node_;
  Watch *watch_;
  Fid<fid_ep> ep_storage_;
  Fid<fid_mr> mr_;
  const Arena *registered_ = nullptr;
  fid_ep *ep_ = nullptr;
  fid_cq *cq_ = nullptr;
  fid_cq *rx_cq_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  bool tagged_ = false;
  bool check_ = false;
  size_t inject_limit_ = 0;  // 0: never inject.
  bool inject_ = false;
  bool writes_consume_receives_ = false;
  uint64_t extra_receives_ = 0;
  fi_context2 extra_context_[64];
  uint64_t peer_address_ = 0;
  uint64_t peer_key_ = 0;
  uint64_t next_key_ = 1;
  uint64_t received_ = 0;
  uint64_t remote_writes_ = 0;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_FABRIC_H_
