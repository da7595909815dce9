// SPDX-License-Identifier: BSD-2-Clause
// CxiEndpoint: an endpoint (FI_EP_RDM) on a Slingshot NIC: a Transmit, an Inbox, a Control,
// Collectives, and what turns an application's calls into commands of the NIC.
//
// Example:
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(CxiEndpoint *const endpoint, CxiEndpoint::open(domain, info, nullptr));
//      return endpoint->c();  // the application binds, enables and closes it
//    }
//
// It has its PID from fi_enable on. All of it is under the lock of the domain's engine, which is
// taken before the NIC's.
#ifndef WEFT_PLUGINS_CXI_ENDPOINT_H
#define WEFT_PLUGINS_CXI_ENDPOINT_H

#include <rdma/fi_cm.h>
#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/rdm_endpoint.h>
#include <weft/sdk/transfers/transfer.h>

#include <atomic>
#include <memory>
#include <vector>

#include "plugins/cxi/collectives.h"
#include "plugins/cxi/control.h"
#include "plugins/cxi/domain.h"
#include "plugins/cxi/inbox.h"
#include "plugins/cxi/sources.h"
#include "plugins/cxi/transmit.h"

namespace weft::cxi {

class Region;

// The collectives that switches have.
inline constexpr uint64_t kCollectiveSets =
    FI_BARRIER_SET | FI_BROADCAST_SET | FI_ALLREDUCE_SET | FI_REDUCE_SET;

class CxiEndpoint final : public sdk::Object<CxiEndpoint, fid_ep>,
                          public sdk::RdmEndpoint,
                          public sdk::TransferOps<CxiEndpoint>,
                          public sdk::CollectiveOps<CxiEndpoint, kCollectiveSets>,
                          private sdk::ReceiverSink,
                          private sdk::AvUser,
                          private sdk::Poller {
 public:
  static Result<CxiEndpoint *> open(Domain &domain, const fi_info &info, void *context);

  // ---- for the domain and its regions; the lock is held ----
  Control &control_portals() { return control_; }
  Collectives &collectives() { return collectives_; }
  void push();  // what was given to the NIC
  const Ports &ports() const { return ports_; }
  void add(Region &region) { regions_.push_back(&region); }
  void remove(Region &region) { std::erase(regions_, &region); }
  // What regions with cached keys are reached through; it stays open.
  Result<void> open_window(uint64_t key);
  void on_remote_data(const Event &event);

  // For FI_CXI_DOM_OPS: messages that no receive has taken. How many were written, or -FI_E...
  size_t list_unexpected(fi_cq_tagged_entry *entries, size_t count, fi_addr_t *sources,
                         size_t &found);

  // ---- for TransferOps ----
  // Of remote accesses and atomics alone are those of fi_cxi_ext.h.
  static constexpr uint64_t kSendFlags = sdk::RdmEndpoint::kSendFlags | FI_CXI_PCIE_AMO |
                                         FI_CXI_UNRELIABLE | FI_CXI_HRP | FI_CXI_WEAK_FENCE;
  // What an alias may have of its own (fi_cxi.7, "CXI Alias EP Overrides").
  struct Path {
    uint64_t order = 0;  // FI_ORDER_...
    TrafficClass traffic = TrafficClass::kBestEffort;
  };
  const Path &path() const { return path_; }
  template <class Request>
  ssize_t start(const Request &request) {
    return start(request, path_);
  }
  ssize_t start(const sdk::RecvRequest &request, const Path &path);
  ssize_t start(const sdk::SendRequest &request, const Path &path);
  ssize_t start(const sdk::RmaRequest &request, const Path &path);
  ssize_t start(const sdk::AtomicRequest &request, const Path &path);
  // FI_TRIGGER: the NIC starts what leaves, and no receives.
  template <class Request>
  ssize_t start_later(const Request &request, const Path &path, const sdk::Trigger &trigger) {
    return domain_.deferred().trigger(trigger, [&] { return start(request, path); });
  }
  ssize_t start_later(const sdk::RecvRequest &, const Path &, const sdk::Trigger &) {
    return -FI_ENOSYS;
  }
  template <class Request>
  ssize_t start_later(const Request &request, const sdk::Trigger &trigger) {
    return start_later(request, path_, trigger);
  }

  // fi_ops_atomic
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);

  // fi_ops_cm
  int getname(void *addr, size_t *len);
  int setname(void *addr, size_t len);
  int shutdown(uint64_t) { return -FI_ENOSYS; }

  // ---- for CollectiveOps ----
  ssize_t start(const sdk::CollectiveRequest &request);
  Result<void> may_join() const;
  Result<fid_mc *> join_collective(const fi_collective_addr &address, void *context);
  sdk::Engine &engine() { return domain_.engine(); }

  // fi_ops_ep
  ssize_t cancel(void *context);
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t tx_size_left();

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);
  // FI_SET_VAL of an alias; that of the endpoint itself has no path to change.
  int set_value(Path &path, const fi_fid_var *var);

 private:
  int set_value(const fi_fid_var *var);
  CxiEndpoint(Domain &domain, const fi_info &info, Pid pid, void *context);
  static Result<void> check_own_key(const fi_info &info);
  ~CxiEndpoint() = default;
  Result<void> enable();
  Result<void> claim_pid();
  Result<std::vector<Vni>> hold_keys();
  void release_keys();
  Result<void> open_portals();
  void close_portals();
  void linger();

  const Settings &settings() const { return domain_.settings(); }
  ssize_t find_peer(fi_addr_t address, Peer &peer);
  ssize_t refuse_vni(Vni vni);
  // Fills in what all operations have. Null: there is no room.
  Transmit::Op *prepare(void *context, uint64_t flags, bool report, uint64_t completion,
                        const Peer &peer, Index index, const Path &path);
  // A buffer of the application: one vector, or none.
  struct Buffer {
    const iovec *iov;
    size_t count;
    void *const *desc;
    uint64_t length;
    unsigned access;  // what the NIC does with it: Lni::kRead, ...
  };
  ssize_t take_bytes(Transmit::Op &op, const Buffer &buffer, bool inject, bool favour_inline);
  ssize_t take_device_bytes(Transmit::Op &op, const Buffer &buffer, const sdk::HmemPlace &place,
                            bool in_command);
  // The first element of an atomic operation's vectors.
  struct Element {
    void *address = nullptr;
    const void *desc = nullptr;
    Element(const fi_ioc *ioc, size_t count, void *const *descs);
  };
  ssize_t take_value(void *out, const Element &element, size_t size) const;
  ssize_t take_operands(Transmit::Op &op, const sdk::AtomicRequest &request, const Amo &amo);
  ssize_t place_result(Transmit::Op &op, const Element &element, size_t size);
  ssize_t send_off(Transmit::Op &op, uint64_t flags);
  ssize_t defer(Transmit::Op &op, uint64_t flags);

  // sdk::ReceiverSink
  bool keep(sdk::Receive &receive) override { return inbox_.keep(receive); }
  void deliver(sdk::Unexpected &message, sdk::Receive &receive) override {
    inbox_.deliver(message, receive);
  }
  void discard(sdk::Unexpected &message) override { inbox_.discard(message); }
  std::string source_address(const sdk::Message &message) override {
    return sources_.address_of_stranger(message.source);
  }
  fi_addr_t source_key(const sdk::Message &message) override;

  // sdk::Poller, from fi_enable on
  void on_poll() override;
  void send_held_back();
  void make_progress();
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;

  // sdk::AvUser
  void name_ourselves(uint32_t rank);
  void on_av_removed(uint32_t index) override;
  void on_av_inserted(uint32_t index, const sdk::Address &address) override;

  Domain &domain_;
  const uint32_t addr_format_;
  const Path path_;
  const Protocol protocol_;
  Pid wanted_pid_;
  Ports ports_;
  Sources sources_;
  uint32_t rank_ = sdk::Av::kNone;  // our own, FI_SYMMETRIC
  Transmit transmit_;
  Inbox inbox_;
  Control control_;
  Collectives collectives_;
  sdk::HmemEndpointOptions hmem_options_;
  std::vector<Region *> regions_;
  std::vector<Region *> windows_;   // for cached keys
  std::vector<sdk::AuthKey> keys_;  // of the address vector, since fi_enable
  bool holds_back_ = false;         // something with FI_MORE, which nothing has followed
};

}  // namespace weft::cxi

#endif
