// SPDX-License-Identifier: BSD-2-Clause
//
// The benchmark's transport over the public libfabric API, FI_EP_MSG (connected) or FI_EP_RDM
// (addressed), untagged or tagged.
//
// Example:
//     #include "bench/control.h"
//     void serve(FabricTransport &server, Control &control) {  // FI_EP_MSG
//       control.send({{"address", server.listen("127.0.0.1")}});
//       server.accept();
//     }
//     void reach(FabricTransport &client, Control &control) {
//       client.connect(control.receive(10.0).value("address", ""));
//     }
//
// Not a wrapper for applications: it only has the operations that the patterns need.
#ifndef WEFT_BENCH_FABRIC_TRANSPORT_H
#define WEFT_BENCH_FABRIC_TRANSPORT_H

#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <deque>
#include <string>
#include <vector>

#include "bench.h"
#include "fabric_node.h"

namespace weft::bench {

class FabricTransport {
 public:
  static constexpr bool kHasRma = true;

  FabricTransport(const FabricOptions &options, Watch *watch)
      : node_(options, watch), watch_(watch) {}

  // MSG: server listen() then accept(), client connect(address).
  // RDM: both open, then add_peer() with the other's address.
  std::string listen(const std::string &host);
  void accept();
  // Returns this side's address (RDM), for the server's add_peer().
  std::string connect(const std::string &address);
  void add_peer(const std::string &address);

  // Before each measurement: counters to zero, memory registered where needed.
  void begin(Arena &arena, const Spec &spec);
  // Before the arena goes away.
  void end() { mr_.reset(); }
  // The address and key by which the peer accesses the arena; set_peer_memory() takes the peer's.
  uint64_t rma_address(const Arena &arena) const;
  uint64_t rma_key() const { return mr_ ? fi_mr_key(mr_.get()) : 0; }
  void set_peer_memory(uint64_t address, uint64_t key) {
    peer_address_ = address;
    peer_key_ = key;
  }

  const fi_info *info() const { return node_.info(); }
  uint32_t max_window() const;

  // For the patterns.
  void post_receive(Slot &slot, size_t size);
  void send(Slot &slot, size_t size, bool more);
  void write(Slot &slot, size_t size, const Slot &target, const Arena &arena, bool announce);
  void read(Slot &slot, size_t size, const Slot &source, const Arena &arena);
  void expect_remote_writes(uint64_t count);
  int progress() {
    const int n = poll();
    if (n == 0 && sleeps_) node_.sleep();
    return n;
  }
  int poll() {
    int n = reap(cq_);
    if (rx_cq_ != nullptr) n += reap(rx_cq_);
    if (counts_) n += count();
    return n;
  }
  void slow_check() {
    watch_->check_call();
    node_.check_events();
  }
  uint64_t received() const { return received_; }
  uint64_t remote_writes() const { return remote_writes_; }

 private:
  static constexpr uint64_t kTag = 0x77656674;

  int reap(fid_cq *cq);
  int count();
  void post_multi(char *buffer);
  [[noreturn]] void completion_error(fid_cq *cq, ssize_t rc);
  void use(Fid<fid_ep> ep);
  // Calls `post`, with progress between, until it does not return -FI_EAGAIN.
  template <class Post>
  void retry(const char *call, Post post);

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
  bool sleeps_ = false;
  // Operations end in the order in which they were posted, so a counter says which.
  bool counts_ = false;
  std::deque<Slot *> sending_, receiving_;  // null: injected
  uint64_t sent_count_ = 0, arrived_count_ = 0;
  // With FI_MULTI_RECV: two buffers, one after the other.
  static constexpr size_t kMultiSize = 4u << 20;
  std::vector<char> multi_;
  fi_context2 multi_context_[2];
  bool multi_posted_ = false;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_FABRIC_TRANSPORT_H
