// SPDX-License-Identifier: BSD-2-Clause
// An endpoint (FI_EP_MSG) over extended reliable connections: it sends on an initiator and receives
// in a shared queue that its peer names, behind a target; it shares both queue pairs with other
// endpoints to the same peer (xrc_path.h). FI_PROTO_RDMA_CM_IB_XRC; weft-verbs(7).
//
// Example:
//    // `info` is an entry of fi_getinfo with that protocol, and so was that of the domain.
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(XrcEndpoint *const endpoint, XrcEndpoint::open(domain, info, nullptr));
//      return endpoint->c();  // the application binds, connects and closes it
//    }
//
// A connection has two halves. The active side asks for the first: by a connection, or by a lookup
// (a datagram service) when an initiator leads to that peer already. The side that accepts then
// asks for the reciprocal one in the same way, and both are connected when that is answered. Tags
// tell which reciprocal request belongs to which endpoint.
//
// Locks are those of Endpoint. Not without a shared receive context.
#ifndef WEFT_PLUGINS_VERBS_XRC_ENDPOINT_H
#define WEFT_PLUGINS_VERBS_XRC_ENDPOINT_H

#include <infiniband/verbs.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/connected.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/transfer.h>

#include <memory>
#include <string>
#include <string_view>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/device_events.h"
#include "plugins/verbs/domain.h"
#include "plugins/verbs/message_queues.h"
#include "plugins/verbs/xrc_data.h"
#include "plugins/verbs/xrc_path.h"

namespace weft::verbs {

class SharedReceive;

class XrcEndpoint final : public sdk::Object<XrcEndpoint, fid_ep>,
                          private OwnLock,
                          public sdk::ConnectedCore,
                          private MessageQueues,
                          public sdk::TransferOps<XrcEndpoint>,
                          private sdk::Handler,
                          private ChannelUser,
                          private DeviceUser {
 public:
  static Result<XrcEndpoint *> open(Domain &domain, const fi_info &info, void *context);
  template <class Ep>
  void set_tables(Ep &object) const;

  // ---- for TransferOps ----
  static constexpr uint64_t kSendFlags = kMessageFlags;
  // Receives are posted to the shared context.
  ssize_t start(const sdk::RecvRequest &) { return -FI_EOPNOTSUPP; }
  template <class Request>
  ssize_t start(const Request &request) {
    return state_ == State::kConnected ? transmit(request) : not_connected();
  }

  // fi_ops_atomic
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);

  // fi_ops_ep
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int, int, const void *, size_t) { return -FI_ENOPROTOOPT; }
  ssize_t cancel(void *) { return -FI_ENOENT; }
  ssize_t rx_size_left() { return -FI_EOPNOTSUPP; }
  ssize_t tx_size_left();

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

  // ---- for the initiator and the target; the lock of connections is held ----
  using Object::instance;
  sdk::Address source() const;  // where to connect from; none: anywhere
  XrcMessage request_message(uint16_t port, uint32_t target) const;
  // The peer has answered the request that this endpoint has made for its half.
  void on_answer(const XrcReceived &answer);
  // The initiator is connected: asks for this endpoint's half by a lookup.
  void look_up();
  // The initiator, which it has left, cannot be connected.
  void on_path_failed(int error, std::string data, int cause);
  // The initiator ends. In these steps, so that no operation is told twice or never: nothing more
  // is posted; its queue pair ends behind this; it has ended.
  void before_cut();
  void cut();
  void after_cut();
  // The target, which it has left, ends: the peer has gone.
  void on_peer_left();
  // The reciprocal request. False: it is none for this endpoint now, and `id` is the caller's.
  bool accept_reciprocal(rdma_cm_id *id, const XrcData &request);

 private:
  XrcEndpoint(Domain &domain, const fi_info &info, void *context);
  ~XrcEndpoint() = default;

  // ConnectedCore
  Result<void> enable() override;
  Result<void> start_connect(const sdk::Address &peer, std::string_view data) override;
  Result<void> start_accept(std::unique_ptr<sdk::ConnectRequest> request,
                            std::string_view data) override;
  void hang_up() override;

  Result<void> check_request(const sdk::ConnectRequest *found) const;
  void set_state(State state);
  void ask(const sdk::Address &peer);
  bool answer(rdma_cm_id *id, const XrcData &request, std::string_view data);
  Result<void> continue_lookup(const ChannelEvent &event);
  void end_lookup();
  void become_connected();
  void connect_failed(int error, std::string data, int cause);
  void send_injected();
  void part();
  template <class IsDone>
  bool wait_for(IsDone is_done);

  // ChannelUser: of a lookup
  void on_event(const ChannelEvent &event) override;
  // DeviceUser: a completion said that the queue pair is broken
  void on_device_event(ibv_event_type) override {}
  void on_notice() override;
  void on_device_gone(const ibv_context &) override {}
  // sdk::Handler: its deadline only
  void on_event(uint32_t) override {}
  void on_deadline() override;

  Domain &domain_;
  XrcDomain &xrc_;
  sdk::TxContext tx_;
  sdk::RxContext rx_;
  const uint32_t tag_;
  SharedReceive *shared_ = nullptr;
  XrcInitiator *initiator_ = nullptr;
  XrcTarget *target_ = nullptr;
  rdma_cm_id *lookup_ = nullptr;
  std::string parameter_, answer_;
  uint32_t peer_tag_ = 0;   // passive side
  bool accepts_ = false;    // passive side
  bool answered_ = false;   // the half that this side asked for
  bool ends_here_ = false;  // fi_shutdown or fi_close
};

}  // namespace weft::verbs

#endif
