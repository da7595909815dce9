// SPDX-License-Identifier: BSD-2-Clause
// A datagram endpoint (FI_EP_DGRAM): a UDP socket whose address is the endpoint's name. One send is
// one datagram of exactly the application's bytes, so any UDP program is a peer.
//
// A send is complete when the kernel has the datagram, which is before the call returns. Sends with
// FI_MORE are collected, up to Outlet::kCapacity, until a send without it, or the next progress.
//
// Its domain says so to layers (WEFT_DATAGRAM_SENT_AT_ONCE). Datagrams that the socket has no room
// for are copied, and leave with the next progress. Nothing is kept of a send that returns
// -FI_EAGAIN.
//
// Received datagrams go straight from the kernel to the posted buffers (inlet.h). While nothing is
// posted the socket is not read: its buffer keeps what arrives, as far as it has room.
#ifndef WEFT_PLUGINS_UDP_ENDPOINT_H
#define WEFT_PLUGINS_UDP_ENDPOINT_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/transfers/recv_queue.h>
#include <weft/sdk/transfers/transfer.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "plugins/udp/domain.h"
#include "plugins/udp/inlet.h"
#include "plugins/udp/outlet.h"

namespace weft::udp {

class Group;

inline constexpr uint64_t kTransmitCaps = FI_MSG | FI_SEND | FI_MULTICAST;
inline constexpr uint64_t kReceiveCaps =
    FI_MSG | FI_RECV | FI_SOURCE | FI_SOURCE_ERR | FI_AV_USER_ID;
inline constexpr size_t kMaxQueueSize = 1 << 20;

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       public sdk::EndpointCore,
                       public sdk::TransferOps<Endpoint>,
                       private sdk::AvUser,
                       private sdk::Handler,
                       private OutletSink,
                       private InletSink {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);

  // ---- for TransferOps ----
  // All flags that a datagram can honour. FI_DELIVERY_COMPLETE is not one of them.
  static constexpr uint64_t kSendFlags = FI_COMPLETION | FI_INJECT | FI_MORE | FI_MULTICAST |
                                         FI_REMOTE_CQ_DATA | FI_INJECT_COMPLETE |
                                         FI_TRANSMIT_COMPLETE;
  // A datagram has no field for the remote data of a completion.
  static constexpr uint64_t kDefaultSendFlags = kSendFlags & ~FI_REMOTE_CQ_DATA;
  ssize_t check_length(uint64_t length, uint64_t flags);
  ssize_t start(const sdk::RecvRequest &request);
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RmaRequest &) { return -FI_EOPNOTSUPP; }
  ssize_t start(const sdk::AtomicRequest &) { return -FI_EOPNOTSUPP; }
  template <class Fid>
  void set_tables(Fid &fid) const {
    sdk::fill_tables(fid);
    fid.c()->rma = sdk::c_table(sdk::rma_ops<Nothing>());
    fid.c()->tagged = sdk::c_table(sdk::tagged_ops<Nothing>());
    fid.c()->atomic = sdk::c_table(sdk::atomic_ops<Nothing>());
  }

  // ---- fi_ops_cm ----
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);
  int join(const void *addr, uint64_t flags, struct fid_mc **mc, void *context);

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context);
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t rx_size_left();
  ssize_t tx_size_left();

  // ---- fi_ops ----
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
  int control(int command, void *arg);

  // ---- for layers above (weft/sdk/layers/carrier.h), with the lock held ----
  int tell_unreachable();
  int name_sources(bool named);
  int next_arrival(void *address, size_t *length);

  // ---- for groups, with the lock held ----
  const sdk::SockAddr &name() const { return name_; }
  int socket() const { return inlet_.fd(); }
  Domain &domain() { return udp_domain_; }
  sdk::RecvQueue &posted() { return queue_; }
  InletSink &sink() { return *this; }
  Counters &counters() { return counters_; }
  bool names_sources() const {
    return names_sources_ && (caps() & (FI_SOURCE | FI_SOURCE_ERR)) != 0;
  }
  void forget(Group &group);

 private:
  Endpoint(Domain &domain, const fi_info &info, size_t max_msg_size, void *context);
  ~Endpoint() = default;

  const Settings &settings() const;
  Result<void> bind_to(const sdk::SockAddr &address);
  Result<void> enable();
  const sdk::SockAddr *group_address(fi_addr_t dest) const;
  bool find(const sdk::SendRequest &request, sdk::SockAddr &to);
  ssize_t refuse(const sdk::SendRequest &request, ssize_t error);
  ssize_t send_now(const sdk::SendRequest &request);
  ssize_t end_batch(const sdk::SockAddr &to, const sdk::SendRequest &request);
  void finish_batch();
  void update_output();
  void explain_failure(const sdk::SockAddr &to, int error);

  // ---- AvUser: only the last sender is remembered ----
  void on_av_removed(uint32_t) override { last_index_ = sdk::Av::kNone; }
  void on_av_inserted(uint32_t, const sdk::Address &) override { last_index_ = sdk::Av::kNone; }
  // ---- Handler, without a descriptor ----
  void on_event(uint32_t) override {}
  void on_flush() override;
  // ---- OutletSink ----
  void on_sent(const Datagram &datagram, int error) override;
  void on_stale_error() override { inlet_.on_stale_error(); }
  // ---- InletSink ----
  uint32_t index_of(const sdk::SockAddr &source) override {
    if (last_index_ == sdk::Av::kNone || source != last_source_) {
      last_index_ = av()->find(source);
      last_source_ = source;
    }
    return last_index_;
  }
  void on_received(sdk::PostedRecv &receive, size_t placed, size_t length, uint32_t index,
                   const sdk::SockAddr &source) override;
  void on_writable() override { on_flush(); }
  void on_socket_error(int error) override;
  void on_network_error(const NetworkError &error, std::span<const char> datagram) override;

  Domain &udp_domain_;
  sdk::Engine &engine_;
  const uint32_t addr_format_;
  uint8_t dscp_ = 0;     // of its traffic class
  sdk::SockAddr local_;  // the address asked for
  sdk::SockAddr name_;   // the address bound to; AF_UNSPEC: not yet
  sdk::TxContext tx_;
  sdk::RxContext rx_;
  ssize_t send_datagram(const sdk::SendRequest &request);
  ssize_t send_from_device(const sdk::SendRequest &request);
  bool is_devices(const iovec *iov, size_t count) const;
  ssize_t post_to_device(const sdk::RecvRequest &request);
  // Brings the bytes to their places, if those are a device's. False: it has failed.
  bool leave_shadow(const sdk::PostedRecv &receive, size_t placed);

  sdk::RecvQueue queue_;
  Counters counters_;
  const sdk::Stats<Counters>::Part part_;  // of the fabric's
  Inlet inlet_;
  Outlet outlet_;
  // FI_HMEM: the kernel reads and writes memory of the host only.
  std::vector<uint8_t> staging_;  // of the send that is under way
  struct Shadow {
    std::unique_ptr<uint8_t[]> bytes;  // in place of the receive's vectors
    iovec iov[sdk::kIovLimit];
    size_t count;
  };
  std::unordered_map<const void *, Shadow> shadows_;  // by their bytes
  std::vector<Group *> groups_;  // by the number in their fi_addr_t; null: free
  bool explained_broadcast_ = false;
  bool tells_unreachable_ = false;
  bool names_sources_ = true;  // until a layer above says otherwise
  // The sender of the last datagram, which often sends the next one too.
  sdk::SockAddr last_source_;
  uint32_t last_index_ = sdk::Av::kNone;
};

}  // namespace weft::udp

#endif
