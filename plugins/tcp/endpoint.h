// SPDX-License-Identifier: BSD-2-Clause
// A connected endpoint (FI_EP_MSG) over one TCP stream: the thin part around the state machines of
// wire/.
//
// Example:
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(Endpoint *const endpoint, Endpoint::open(domain, info, nullptr));
//      return endpoint->c();  // the application binds, connects and closes it
//    }
//    // What fi_ep_bind() and fi_connect() become. `eq` tells the end: FI_CONNECTED, or an error.
//    inline int connect(Endpoint &endpoint, fid_eq *eq, fid_cq *cq, const sockaddr_in &peer) {
//      int rc = endpoint.bind(&eq->fid, 0);
//      if (rc == 0) rc = endpoint.bind(&cq->fid, FI_TRANSMIT | FI_RECV);
//      if (rc == 0) rc = endpoint.connect(&peer, /*param=*/nullptr, 0);
//      return rc;
//    }
//
// Everything happens under the lock of the domain's engine. Sending and receiving on the socket is
// in stream.h. The endpoint stops reading when a message has no posted receive. The wire format has
// no other flow control. Not for unconnected endpoints: unconnected_endpoint.h.
#ifndef WEFT_PLUGINS_TCP_ENDPOINT_H
#define WEFT_PLUGINS_TCP_ENDPOINT_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/memory/mr.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/connected.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/exit_duty.h>
#include <weft/sdk/progress/unique_fd.h>
#include <weft/sdk/transfers/levels.h>
#include <weft/sdk/transfers/recv_queue.h>
#include <weft/sdk/transfers/transfer.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "plugins/tcp/domain.h"
#include "plugins/tcp/stream.h"
#include "plugins/tcp/wire/connect_message.h"

namespace weft::tcp {

class SharedReceiveContext;

inline constexpr size_t kMinMultiRecv = 64;  // default of FI_OPT_MIN_MULTI_RECV, bytes
inline constexpr size_t kMaxQueueSize = 1 << 20;
inline constexpr size_t kMaxMessageSize =
    SIZE_MAX / 2;  // bytes; a frame's length includes its header
inline constexpr uint64_t kTransmitCaps =
    FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE | FI_RMA_PMEM | FI_FENCE;
inline constexpr uint64_t kReceiveCaps = FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ |
                                         FI_REMOTE_WRITE | FI_MULTI_RECV | FI_RMA_EVENT |
                                         FI_RMA_PMEM;
// A message leaves the socket when it has its receive, so each acknowledgement tells of a match.
using sdk::kLevelFlags;
inline constexpr uint64_t kSendFlags =
    FI_COMPLETION | FI_INJECT | FI_MORE | FI_FENCE | FI_REMOTE_CQ_DATA | kLevelFlags;

// What a layer says of an operation (weft/sdk/layers/carrier.h).
inline constexpr uint64_t kMarks = WEFT_CARRIER_MARKS;
inline constexpr uint64_t kOfLayers = kMarks | WEFT_CARRIER_LATER | WEFT_CARRIER_UNASKED;

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       public sdk::ConnectedCore,
                       public sdk::Handler,
                       public sdk::RecvWaiter,
                       public Stream<Endpoint>,
                       public sdk::TransferOps<Endpoint>,
                       private sdk::ExitDuty {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);

  SharedReceiveContext *shared_receive() const { return srx_; }
  void cancel(sdk::PostedRecv &r);
  // The region closes: ends the connection if a frame in flight uses it.
  void drop_region(sdk::Mr &mr);

  // ---- for TransferOps ----
  ssize_t start(const sdk::RecvRequest &request);
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RmaRequest &request);
  template <class T>
  void set_tables(T &object) const;
  static constexpr uint64_t kSendFlags = tcp::kSendFlags | kOfLayers;
  static constexpr uint64_t kReadFlags = EndpointCore::kReadFlags | WEFT_CARRIER_UNASKED;

  // fi_ops_ep
  ssize_t cancel(void *context);
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t rx_size_left();
  ssize_t tx_size_left();

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);
  int ops_open(const char *name, uint64_t flags, void **ops, void *context);
  static const weft_carrier_ops &carrier_ops();  // for layers above
  int expose(const iovec &iov, uint64_t access, struct fid_mr **mr);
  void join_group(uint64_t group);

  // Handler
  void on_event(uint32_t events) override;
  void on_flush() override;
  void on_deadline() override;

  // RecvWaiter
  void on_recv_posted() override;

  // The reader's sink.
  Verdict on_header(const FrameHeader &header, Target &target);
  void on_frame_end(const FrameHeader &header);

  // ---- for Stream ----
  bool open() const { return state_ == State::kConnected; }
  sdk::Pool<Operation> &control_ops() { return domain_.control_ops(); }
  std::string peer_name() const { return peer_.to_string(); }
  void watch();
  void complete(Operation &op, int error);
  void ended() { disconnect(FI_ECONNABORTED, true); }
  void failed(int error, const char *doing);
  void rejected(Reject reject);
  void lost(uint64_t flags, int error);
  void on_mute();
  void on_full() { owe(); }
  bool is_hidden() const { return source_.has_value(); }  // beneath a layer
  bool no_room_to_report() const { return rx_.is_full(); }
  void written(const FrameHeader &header, bool counts);
  void was_read(uint64_t bytes) { rx_.count_remote(FI_REMOTE_READ, bytes); }
  sdk::MrPeer mr_peer() const { return {group_ != 0 ? group_ : number(), holder_}; }

 private:
  // What State::kConnecting waits for.
  enum class Step : uint8_t {
    kHandshake,  // TCP's
    kProof,      // key exchange
    kAnswer,     // to our request
  };
  Endpoint(Domain &domain, const fi_info &info, void *context);
  ~Endpoint();

  // ExitDuty
  bool owes(bool exits) override;

  // Output.
  bool takes(uint64_t flags) const { return (flags & kOfLayers) == 0 || is_hidden(); }
  // An operation for a new transfer; null: the error is in `rc`.
  Operation *take_operation(uint64_t flags, ssize_t &rc);

  // Input.
  sdk::RecvQueue &recv_queue();
  size_t min_multi_recv() const;
  sdk::PostedRecv *find_recv(uint64_t payload);
  Verdict take_message(const FrameHeader &header, Target &target);
  void end_message(const FrameHeader &header);
  void finish_recv(sdk::PostedRecv *r);
  void report_cancelled(const sdk::PostedRecv &r);
  void hang_up_while_stalled();

  // Connection.
  int bind_shared_receive(const struct fid *fid, uint64_t flags);
  Result<void> enable() override;
  Result<void> start_connect(const sdk::Address &peer, std::string_view data) override;
  Result<void> start_accept(std::unique_ptr<sdk::ConnectRequest> request,
                            std::string_view data) override;
  void hang_up() override;
  Result<sdk::Address> bind_to(const sdk::Address &local) override;
  void on_connecting();
  void wait_for_kernel();
  void prove();
  void request();
  void on_requested();
  void give_time();
  void become_connected(ByteOrder order, std::string_view data);
  void connect_failed(int error, std::string_view data, int cause);
  // Ends the connection: closes the socket, completes all operations with `error`, and reports
  // FI_SHUTDOWN if `event`.
  void disconnect(int error, bool event);
  void drop_socket();
  void flush_operations(int error);

  sdk::TxContext tx_;
  sdk::RxContext rx_;
  Step step_ = Step::kHandshake;
  bool messages_held_ = false;
  SharedReceiveContext *srx_ = nullptr;
  size_t min_multi_recv_ = kMinMultiRecv;
  // The src_addr of its completions, set by a layer above (weft/sdk/layers/carrier.h).
  std::optional<fi_addr_t> source_;
  uint64_t holder_ = 0;  // of regions for this peer only
  uint64_t group_ = 0;   // of endpoints that a layer makes one of; 0: none

  sdk::Pool<Operation> tx_ops_;

  sdk::OrderKeeper keeper_;  // of one peer, 0
  sdk::RecvQueue own_recvs_;
  // The receive of the current message.
  sdk::PostedRecv *current_recv_ = nullptr;
  char *current_base_ = nullptr;  // multi-receive: where the payload goes
  uint64_t current_fit_ = 0;      // payload bytes that fit

  sdk::UniqueFd bound_;                    // a passive endpoint's socket, bound to local_
  std::unique_ptr<ConnectReader> answer_;  // active side, while connecting
  Keys keys_;
  uint8_t dscp_ = 0;
  std::unique_ptr<KeyExchange> exchange_;  // active side, Step::kProof
  std::string connect_data_;
  uint64_t connect_deadline_ = 0;  // 0: none
};

}  // namespace weft::tcp

#endif
