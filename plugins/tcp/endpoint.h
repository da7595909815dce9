// SPDX-License-Identifier: BSD-2-Clause
// A connected endpoint (FI_EP_MSG) over one TCP stream: the thin part around the state machines of
// wire/.
//
// Everything happens under the lock of the domain's engine. How bytes get on and off the socket is
// in stream.h. Whoever has no receive posted stops being read; that is the only flow control that
// the wire has.
#ifndef WEFT_PLUGINS_TCP_ENDPOINT_H
#define WEFT_PLUGINS_TCP_ENDPOINT_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <weft/sdk/address.h>
#include <weft/sdk/cntr.h>
#include <weft/sdk/cq.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/mr.h>
#include <weft/sdk/pool.h>
#include <weft/sdk/recv_queue.h>

#include <memory>
#include <optional>
#include <vector>

#include "plugins/tcp/domain.h"
#include "plugins/tcp/stream.h"
#include "plugins/tcp/wire/connect_message.h"

namespace weft::tcp {

class ConnectRequest;
class SharedReceive;

inline constexpr size_t kMinMultiRecv = 64;  // default of FI_OPT_MIN_MULTI_RECV, bytes
inline constexpr size_t kMaxQueueSize = 1 << 20;
inline constexpr size_t kMaxMessageSize =
    SIZE_MAX / 2;  // bytes; a frame's length includes its header
inline constexpr uint64_t kTransmitCaps = FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE;
inline constexpr uint64_t kReceiveCaps =
    FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_RMA_EVENT;
inline constexpr uint64_t kLevelFlags =
    FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE;
inline constexpr uint64_t kSendFlags =
    FI_COMPLETION | FI_INJECT | FI_MORE | FI_FENCE | FI_REMOTE_CQ_DATA | kLevelFlags;
inline constexpr uint64_t kRecvFlags = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;

// The semantics of fi_getopt.
int put_option(size_t option, void *value, size_t *length);

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       public sdk::Handler,
                       public sdk::RecvWaiter,
                       public Stream<Endpoint> {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);

  SharedReceive *shared_receive() const { return srx_; }
  void report_cancelled(const sdk::PostedRecv &r);
  // The region closes: let go of it.
  void drop_region(sdk::Mr &mr);

  // fi_ops_msg
  ssize_t recv(void *buf, size_t len, void *desc, fi_addr_t src, void *context);
  ssize_t recvv(const struct iovec *iov, void **desc, size_t count, fi_addr_t src, void *context);
  ssize_t recvmsg(const struct fi_msg *msg, uint64_t flags);
  ssize_t send(const void *buf, size_t len, void *desc, fi_addr_t dest, void *context);
  ssize_t sendv(const struct iovec *iov, void **desc, size_t count, fi_addr_t dest, void *context);
  ssize_t sendmsg(const struct fi_msg *msg, uint64_t flags);
  ssize_t inject(const void *buf, size_t len, fi_addr_t dest);
  ssize_t senddata(const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
                   void *context);
  ssize_t injectdata(const void *buf, size_t len, uint64_t data, fi_addr_t dest);

  // fi_ops_rma
  ssize_t read(void *buf, size_t len, void *desc, fi_addr_t src, uint64_t addr, uint64_t key,
               void *context);
  ssize_t readv(const struct iovec *iov, void **desc, size_t count, fi_addr_t src, uint64_t addr,
                uint64_t key, void *context);
  ssize_t readmsg(const struct fi_msg_rma *msg, uint64_t flags);
  ssize_t write(const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t addr,
                uint64_t key, void *context);
  ssize_t writev(const struct iovec *iov, void **desc, size_t count, fi_addr_t dest, uint64_t addr,
                 uint64_t key, void *context);
  ssize_t writemsg(const struct fi_msg_rma *msg, uint64_t flags);
  ssize_t inject_write(const void *buf, size_t len, fi_addr_t dest, uint64_t addr, uint64_t key);
  ssize_t writedata(const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
                    uint64_t addr, uint64_t key, void *context);
  ssize_t inject_writedata(const void *buf, size_t len, uint64_t data, fi_addr_t dest,
                           uint64_t addr, uint64_t key);

  // fi_ops_cm
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);
  int getpeer(void *addr, size_t *len);
  int connect(const void *addr, const void *param, size_t len);
  int accept(const void *param, size_t len);
  int shutdown(uint64_t flags);

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

  // Handler
  void on_event(uint32_t events) override;
  void on_flush() override;
  void on_deadline() override;

  // RecvWaiter
  void on_recv_posted() override;

  // The reader's sink.
  Verdict on_header(const FrameHeader &header, Target &target);
  void on_frame_end(const FrameHeader &header);

  // What the stream asks of its owner.
  static constexpr size_t guessed_header() { return kMinHeaderSize; }
  bool open() const { return state_ == State::kConnected; }
  sdk::Pool<Operation> &control_ops() { return control_ops_; }
  std::string peer_name() const { return peer_.to_string(); }
  void watch();
  void complete(Operation &op, int error);
  void ended() { disconnect(FI_ECONNABORTED, true); }
  void failed(int error, const char *doing);
  void rejected(Reject reject);
  Guess guess();
  bool receiving(const void *receive) const { return current_recv_ == receive; }
  bool no_room_to_report() const { return rx_cq_ != nullptr && rx_cq_->full(); }
  void written(const FrameHeader &header);
  void was_read(uint64_t bytes) { count(kCntrRemoteRead, bytes); }

 private:
  enum class State : uint8_t {
    kOpen,        // binding
    kEnabled,     // receives may be posted
    kConnecting,  // TCP
    kRequested,   // our request is out
    kConnected,
    kDisconnected,  // over: by either side, or it failed
  };
  enum CntrKind {
    kCntrSend,
    kCntrRecv,
    kCntrRead,
    kCntrWrite,
    kCntrRemoteRead,
    kCntrRemoteWrite,
    kCntrCount
  };
  Endpoint(Domain &domain, const fi_info &info, void *context);
  ~Endpoint();

  // Output.
  struct Request {  // one transfer to start, from any of its many calls
    Operation::Kind kind;
    const iovec *iov;
    size_t count;
    const fi_rma_iov *rma = nullptr;
    size_t rma_count = 0;
    uint64_t data = 0;
    uint64_t flags = 0;
    void *context = nullptr;
    bool report = true;
  };
  ssize_t transmit(const Request &request);
  // FI_RM_ENABLED: who does not read his completions cannot cause more of them.
  bool has_no_room(const sdk::Cq *cq) const {
    return cq != nullptr && cq->full() && domain_.shared().resource_management;
  }
  bool reports(uint64_t flags) const { return !tx_selective_ || (flags & FI_COMPLETION) != 0; }

  // Input.
  sdk::RecvQueue &recv_queue();
  size_t min_multi_recv() const;
  sdk::PostedRecv *find_recv(uint64_t payload);
  Verdict take_message(const FrameHeader &header, Target &target);
  void end_message(const FrameHeader &header);
  void finish_recv(sdk::PostedRecv *r);
  ssize_t post_recv(const iovec *iov, size_t count, void *context, uint64_t flags);
  void hang_up_while_stalled();

  // Connection.
  ssize_t not_connected() const {
    return state_ < State::kConnected ? -FI_ENOTCONN : -FI_ESHUTDOWN;
  }
  Result<void> enable();
  Result<void> start_connect(const sdk::SockAddr &peer, const void *param, size_t len);
  void on_connecting();
  void on_requested();
  void become_connected(ByteOrder order, std::span<const uint8_t> private_data);
  void connect_failed(int error, std::string private_data);
  // Ends the connection: closes the socket, completes everything with `error`, and tells the event
  // queue if `event`.
  void disconnect(int error, bool event);
  void drop_socket();
  void flush_operations(int error);
  void count(CntrKind kind, uint64_t bytes) {
    if (cntrs_[kind] != nullptr) cntrs_[kind]->add_events(1, bytes);
  }

  State state_ = State::kOpen;
  bool tx_selective_ = false, rx_selective_ = false;
  bool shutdown_told_ = false;
  sdk::Cq *tx_cq_ = nullptr, *rx_cq_ = nullptr;
  sdk::Eq *eq_ = nullptr;
  SharedReceive *srx_ = nullptr;
  sdk::Cntr *cntrs_[kCntrCount] = {};
  uint64_t tx_flags_, rx_flags_;  // of calls that take none
  const uint64_t caps_;
  const uint32_t addr_format_;
  size_t min_multi_recv_ = kMinMultiRecv;
  // What a layer above calls this endpoint (weft/sdk/carrier.h).
  std::optional<fi_addr_t> source_;

  sdk::Pool<Operation> tx_ops_;
  sdk::Pool<Operation> control_ops_;

  sdk::RecvQueue own_recvs_;
  // The message that is being received.
  sdk::PostedRecv *current_recv_ = nullptr;
  char *current_base_ = nullptr;  // multi-receive: where its payload goes
  uint64_t current_fit_ = 0;      // bytes of it that fit

  sdk::SockAddr local_, peer_;
  std::unique_ptr<ConnectRequest> request_;  // passive side, before fi_accept
  std::unique_ptr<ConnectReader> answer_;    // active side, while connecting
  std::vector<uint8_t> connect_data_;
};

}  // namespace weft::tcp

#endif
