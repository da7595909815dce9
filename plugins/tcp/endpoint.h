// SPDX-License-Identifier: BSD-2-Clause
// A connected endpoint (FI_EP_MSG) over one TCP stream: the thin part around the state machines of
// wire/.
//
// Everything happens under the lock of the domain's engine. Output: an operation becomes a SendItem
// of the writer; the first send after a progress goes out at once, those that follow in the same
// breath wait for the next progress and leave together by one system call. Input: small messages
// are read many at a time into the domain's staging buffer, large payloads straight into the
// application's. Whoever has no receive posted stops being read; that is the only flow control that
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
#include "plugins/tcp/wire/connect_message.h"
#include "plugins/tcp/wire/reader.h"
#include "plugins/tcp/wire/writer.h"

namespace weft::tcp {

class ConnectRequest;
class SharedReceive;

inline constexpr size_t kMinMultiRecv = 64;  // default of FI_OPT_MIN_MULTI_RECV, bytes
inline constexpr size_t kMaxQueueSize = 1 << 20;
inline constexpr size_t kMaxMessageSize =
    SIZE_MAX / 2;                                    // bytes; a frame's length includes its header
inline constexpr size_t kMaxControlItems = 1 << 16;  // answers that a peer may make us owe him
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

// One operation on its way: queued, or sent and waiting for the peer's answer.
struct Operation : SendItem {
  enum Kind : uint8_t { kSend, kWrite, kRead, kAck, kResponse };
  Kind kind = kSend;
  bool report = false;  // a completion is wanted
  bool wait_ack = false;
  bool fence = false;
  uint8_t result_count = 0, pin_count = 0;
  uint64_t flags = 0;  // of the completion
  uint64_t length = 0;
  void *context = nullptr;
  iovec result[sdk::kIovLimit];   // kRead: where the response goes
  sdk::Mr *pins[kMaxRmaVectors];  // kResponse: regions that it sends from
};

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       public sdk::Handler,
                       public sdk::RecvWaiter {
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

  // Handler
  void on_event(uint32_t events) override;
  void on_flush() override;
  void on_deadline() override;

  // RecvWaiter
  void on_recv_posted() override;

  // The reader's sink.
  Verdict on_header(const FrameHeader &header, Target &target);
  void on_frame_end(const FrameHeader &header);

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
  struct List {  // of operations, by SendItem::next
    Operation *first = nullptr, *last = nullptr;
    bool empty() const { return first == nullptr; }
    void push(Operation &op);
    Operation *pop();
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
  void submit(Operation &op);
  void release_held();
  bool answers_outstanding() const { return awaiting_ != 0; }
  void flush_output();
  void on_sent(Operation &op);
  void complete(Operation &op, int error);
  void queue_ack();

  // Input.
  void receive();
  bool receive_in_order(size_t room);
  bool receive_guessing(sdk::PostedRecv &guess);
  void save_guessed(const iovec *iov, size_t count, uint64_t from, uint64_t length);
  ssize_t read_socket(
      const iovec *iov,
      size_t count);  // positive, or the socket is empty (-1) or the connection over (0)
  void feed(const uint8_t *bytes, size_t count);
  void continue_stalled();
  sdk::RecvQueue &recv_queue();
  size_t min_multi_recv() const;
  sdk::PostedRecv *find_recv(uint64_t payload);
  Verdict take_message(const FrameHeader &header, Target &target);
  Verdict take_write(const FrameHeader &header, Target &target);
  Verdict take_read(const FrameHeader &header);
  Verdict refuse(const char *what);
  Verdict refuse_rma(const FrameHeader &header, const RmaVector &vector, sdk::MrReject reject);
  void end_message(const FrameHeader &header);
  void end_write(const FrameHeader &header);
  void finish_recv(sdk::PostedRecv *r);
  void unpin_incoming();
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
  void watch();
  void reject_stream(Reject reject);
  // Ends the connection: closes the socket, completes everything with `error`, and tells the event
  // queue if `event`.
  void disconnect(int error, bool event);
  void drop_socket();
  void flush_operations(int error);
  void count(CntrKind kind, uint64_t bytes) {
    if (cntrs_[kind] != nullptr) cntrs_[kind]->add_events(1, bytes);
  }

  Domain &domain_;
  sdk::Engine &engine_;
  State state_ = State::kOpen;
  bool tx_selective_ = false, rx_selective_ = false;
  bool want_out_ = false;
  bool shutdown_told_ = false;
  bool cq_stalled_ = false;  // the frame waits for room in the completion queue
  int fd_ = -1;
  sdk::Cq *tx_cq_ = nullptr, *rx_cq_ = nullptr;
  sdk::Eq *eq_ = nullptr;
  SharedReceive *srx_ = nullptr;
  sdk::Cntr *cntrs_[kCntrCount] = {};
  uint64_t tx_flags_, rx_flags_;  // of calls that take none
  const uint64_t caps_;
  const uint32_t addr_format_;
  size_t min_multi_recv_ = kMinMultiRecv;

  Writer writer_;
  ByteOrder order_ = ByteOrder::kNative;
  uint64_t burst_round_ = ~UINT64_C(0);  // the engine's round in which a send last went out at once
  uint32_t burst_items_ = 0;
  uint64_t burst_bytes_ = 0;
  sdk::Pool<Operation> tx_ops_;
  sdk::Pool<Operation> control_ops_;
  List acks_;            // sent, in the order in which the acknowledgements will come
  List reads_;           // sent, in the order of the responses
  List held_;            // behind a fence
  size_t awaiting_ = 0;  // operations submitted that wait for an answer of the peer
  std::vector<Operation *> responses_;  // on their way out of somebody's regions

  Reader<Endpoint> reader_{EndpointKind::kMsg, ByteOrder::kNative};
  sdk::RecvQueue own_recvs_;
  std::vector<uint8_t> stash_;  // read but not consumed, while stalled
  uint64_t last_payload_ = 0;
  // The frame that is being received.
  sdk::PostedRecv *current_recv_ = nullptr;
  char *current_base_ = nullptr;  // multi-receive: where its payload goes
  uint64_t current_fit_ = 0;      // bytes of it that fit
  sdk::Mr *incoming_[kMaxRmaVectors] = {};
  uint8_t incoming_count_ = 0;

  sdk::SockAddr local_, peer_;
  std::unique_ptr<ConnectRequest> request_;  // passive side, before fi_accept
  std::unique_ptr<ConnectReader> answer_;    // active side, while connecting
  std::vector<uint8_t> connect_data_;
};

}  // namespace weft::tcp

#endif
