// SPDX-License-Identifier: BSD-2-Clause
// A connected endpoint (FI_EP_MSG) on a reliable connected queue pair.
//
// Example:
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(Endpoint *const endpoint, Endpoint::open(domain, info, nullptr));
//      return endpoint->c();  // the application binds, connects and closes it
//    }
//
// Two locks. That of the fabric's engine is held for everything about the connection. The
// endpoint's own is held to post, and to retire what has completed; it is taken last. What both
// sides look at (state_, qp_) changes with both held. The data path is in
// message_queues.cc and work_queues.cc, opening and closing in endpoint_life.cc, connecting in
// connect.cc.
#ifndef WEFT_PLUGINS_VERBS_ENDPOINT_H
#define WEFT_PLUGINS_VERBS_ENDPOINT_H

#include <infiniband/verbs.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/connected.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/transfer.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/device_events.h"
#include "plugins/verbs/domain.h"
#include "plugins/verbs/message_queues.h"
#include "plugins/verbs/private_data.h"

namespace weft::verbs {

class SharedReceive;

// The op tables of missing capabilities: every op returns -FI_ENOSYS.
struct Nothing final : sdk::Object<Nothing, fid_ep> {};

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       private OwnLock,
                       public sdk::ConnectedCore,
                       private MessageQueues,
                       public sdk::TransferOps<Endpoint>,
                       private sdk::Handler,
                       private ChannelUser,
                       private DeviceUser {
 public:
  using WorkQueues::qp_num;
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);
  // The op tables of this endpoint and its aliases.
  template <class Ep>
  void set_tables(Ep &object) const {
    fid_ep *const fid = object.c();
    sdk::fill_tables(object);
    if (!(caps() & FI_RMA)) fid->rma = sdk::c_table(sdk::rma_ops<Nothing>());
    if (!(caps() & FI_ATOMIC)) fid->atomic = sdk::c_table(sdk::atomic_ops<Nothing>());
    fid->tagged = sdk::c_table(sdk::tagged_ops<Nothing>());
  }

  // ---- for TransferOps ----
  static constexpr uint64_t kSendFlags = kMessageFlags;
  ssize_t start(const sdk::RecvRequest &request);
  template <class Request>
  [[gnu::always_inline]] ssize_t start(const Request &request) {
    return state_ == State::kConnected ? transmit(request) : not_connected();
  }

  // fi_ops_atomic
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);

  // fi_ops_ep
  int getopt(int level, int name, void *value, size_t *length) {
    return get_limit(level, name, value, length);
  }
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t cancel(void *context);
  ssize_t rx_size_left();
  ssize_t tx_size_left();

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);
  int ops_open(const char *name, uint64_t flags, void **ops, void *context);
  static const weft_carrier_ops &carrier_ops();  // for layers above

 private:
  Endpoint(Domain &domain, const fi_info &info, void *context);
  ~Endpoint();

  // Life; the lock of connections is held.
  int bind_shared_receive(struct fid *fid, uint64_t flags);
  Result<void> check_request(const sdk::ConnectRequest *found) const;
  Result<void> enable() override;
  Result<void> make_queue_pair();
  // What becomes of operations in flight: dropped in silence, failed where the device has not told
  // of them, or the same after a wait for the device.
  enum class Rest { kDropped, kFailed, kAwaited };
  void end_queue_pair(Rest rest);
  void close_connection();
  void send_injected();
  template <class IsDone>
  bool wait_for(IsDone is_done);

  // Connection; the lock of connections is held.
  Result<void> start_connect(const sdk::Address &peer, std::string_view data) override;
  Result<void> start_accept(std::unique_ptr<sdk::ConnectRequest> request,
                            std::string_view data) override;
  void hang_up() override;
  void set_state(State state);
  void on_event(const ChannelEvent &event) override;
  void on_resolved();
  void request();
  void become_connected(std::string_view data);
  void plan_nudge();
  void connect_failed(int error, std::string private_data, int cause);
  void disconnect();
  // DeviceUser
  void on_device_event(ibv_event_type type) override;
  void on_notice() override;
  void on_device_gone(const ibv_context &device) override;
  // sdk::Handler: its deadline only.
  void on_event(uint32_t) override {}
  void on_deadline() override;

  Domain &domain_;
  sdk::TxContext tx_;
  sdk::RxContext rx_;
  bool connected_once_ = false;
  unsigned nudges_ = 0;
  // send_injected() goes on: that the peer has ended the connection is only noted.
  bool parts_ = false, peer_left_ = false;
  std::atomic<bool> last_receive_seen_{false};  // IBV_EVENT_QP_LAST_WQE_REACHED
  SharedReceive *shared_ = nullptr;
  rdma_cm_id *id_ = nullptr;
  std::optional<PrivateData> parameter_;  // active side, until it is sent
};

}  // namespace weft::verbs

#endif
