// SPDX-License-Identifier: BSD-2-Clause
// Stream: one TCP connection that carries frames, and the operations in flight on it. A connected
// endpoint (FI_EP_MSG) is one, and so is each connection of an unconnected endpoint (FI_EP_RDM).
//
// Example:
//    // A connection whose peer may only write to memory.
//    class Storage final : public sdk::Handler, public Stream<Storage> {
//     public:
//      // What the reader asks and tells.
//      Verdict on_header(const FrameHeader &header, Target &target) {
//        if (header.op != Op::kWrite) return refuse("sends something other than a write");
//        return take_write(header, target);  // checks the keys, and pins the regions
//      }
//      void on_frame_end(const FrameHeader &header) {
//        if (end_write(header) && header.wants_ack()) queue_ack();
//      }
//      void on_event(uint32_t events) override {
//        if (events & EPOLLOUT) flush_output();
//        if (open()) receive(events);
//      }
//      void on_flush() override { flush_output(); }  // in the next progress
//
//      // What Stream needs.
//      const weft_instance *instance() const;
//      std::string peer_name() const;
//      bool open() const;
//      sdk::Pool<Operation> &control_ops();
//      void watch();                               // want_out_ or stalled() has changed
//      void complete(Operation &op, int error);    // of the application
//      void ended();                               // the peer closed the connection
//      void failed(int error, const char *doing);  // the socket failed
//      void rejected(Reject reject);               // the peer violated the protocol
//      void lost(uint64_t flags, int error);       // an operation that had completed already
//      void on_mute();                             // we send no more; the peer is to end it
//      void on_full();                             // what nobody asks for waits for room
//      bool is_hidden() const;                     // the application knows of no connection
//      bool no_room_to_report() const;             // the completion queue is full
//      void written(const FrameHeader &header, bool counts);
//      sdk::MrPeer mr_peer() const;
//    };
//
// Output: the first operation after a progress goes out at once. If progress has been frequent
// lately (weft/sdk/progress/patience.h), the operations that follow wait for the next progress and
// leave together by one system call. Otherwise each goes out at once. Input: small messages are
// read many at a time into the domain's staging buffer, large payloads straight into the
// application's buffers.
//
// Upper, the class above, adds connecting, matching of receives, and completions. After each call
// that can end the connection Stream asks it open(). All calls need the domain engine's lock.
// Not for the connection message.
#ifndef WEFT_PLUGINS_TCP_STREAM_H
#define WEFT_PLUGINS_TCP_STREAM_H

#include <rdma/fi_errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/memory/hmem_pipe.h>
#include <weft/sdk/memory/mr.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/replies.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plugins/tcp/domain.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/operation.h"
#include "plugins/tcp/wire/reader.h"
#include "plugins/tcp/wire/writer.h"

namespace weft::tcp {

inline constexpr size_t kMaxControlItems = 1 << 16;  // answers that we may owe one peer

template <class Upper>
class Stream {
 public:
  int socket() const { return socket_; }
  ByteOrder order() const { return order_; }
  bool output_empty() const { return writer_.empty(); }
  bool stalled() const { return reader_.stalled(); }
  bool output_lost() const { return is_lost_; }
  // Among what waits for the socket there may be something whose completion nobody waits for, such
  // as an injected message.
  bool has_unasked() const { return unasked_ && !writer_.empty(); }

  // For the reader: bytes of a payload into their place, which may be memory of a device.
  void put(void *to, const void *from, size_t length) {
    const sdk::Hmem *const hmem = domain_.hmem();
    if (hmem == nullptr) [[likely]] {
      std::memcpy(to, from, length);
      return;
    }
    land(to, hmem->find(to, length), from, length);
  }

 protected:
  // After a payload of this size another is likely: only kSmallStaging bytes are staged until its
  // header is known. And one without a receive may be worth a wait (PeerStream::may_wait_a_turn()).
  static constexpr uint64_t kLargePayload = 16 * 1024;

  explicit Stream(Domain &domain) : domain_(domain), engine_(domain.engine()) {}
  ~Stream() { forget_staged(); }

  // ---- output ----

  // Sends the operation, whose frame is encoded. `more`: further operations follow at once. `late`:
  // it may wait for one that is likely to follow.
  void start(Operation &op, uint64_t length, bool more, bool report, bool late = false) {
    if (!held_.empty() || !may_start(op)) {
      held_.push(op);
      return;
    }
    replies_to_acks_.sent(engine_.passes());
    unasked_ |= !report;
    burst_bytes_ += length;
    submit(op);
    if (late && engine_.flush_later(upper())) return;
    if (more) {
      engine_.mark_dirty(upper());
    } else if (!engine_.spinning() || burst_round_ != engine_.rounds() ||
               burst_bytes_ >= kBurstBytes || ++burst_items_ >= kBurstItems) {
      burst_round_ = engine_.rounds();
      engine_.sent();
      flush_output();
    } else if (engine_.may_wait() && (report || engine_.flush_later(upper()))) {
      // An application that wants this completion must make progress. One that wants none
      // (fi_inject, a counter) need not: then somebody else sends it.
      engine_.posted();
      if (report) engine_.mark_dirty(upper());
    } else {
      flush_output();
      engine_.posted();
    }
  }
  void submit(Operation &op) {
    if (op.waits()) ++awaiting_;
    if (op.kind == Operation::kWrite && !refuses_ && !op.wait_ack && upper().is_hidden()) trace(op);
    writer_.push(op);
  }
  void release_held() {
    bool released = false;
    while (!held_.empty() && may_start(*held_.first)) {
      submit(*held_.pop());
      released = true;
    }
    if (released) engine_.mark_dirty(upper());
  }
  bool may_start(Operation &op) {
    if (mute_) [[unlikely]]
      return false;  // an attempt to send would end the connection before the peer does
    if (op.fence && answers_outstanding()) return false;
    if constexpr (requires { upper().prepare(op); }) return upper().prepare(op);
    return true;
  }
  bool answers_outstanding() const { return awaiting_ != 0; }
  void answered(const Operation &op) {
    if (op.waits()) --awaiting_;
  }
  void flush_output();
  // Calls take(Operation &), in order, for the operations of which nothing was sent. Not inside a
  // frame.
  template <class Take>
  void take_back(Take &&take) {
    forget_staged();
    writer_.drain([&](SendItem &item) {
      auto &op = static_cast<Operation &>(item);
      if (op.is_control()) {
        on_sent(op);
      } else {
        forget_trace(op);
        take(op);
      }
    });
    while (!held_.empty()) take(*held_.pop());
  }
  // Fails every operation of the stream, in the order of posting, and releases its regions.
  void fail_operations(int error);
  // The peer takes nothing any more. What it has sent before is read all the same: a peer that
  // closes while our answers are under way resets the connection, and its messages are in the
  // socket.
  void lose_output(int error);

  // ---- answers ----

  bool owes_too_much() const { return owed_ >= kMaxControlItems; }
  // `late`: it may wait for what the application sends next.
  void queue_control(Operation &op, bool late = false) {
    if (mute_) return upper().control_ops().give(&op);
    ++owed_;
    writer_.push_control(op);
    if (!late || !engine_.flush_later(upper())) engine_.mark_dirty(upper());
  }
  void queue_ack(uint8_t op_data = kOpDataAck) {
    if (broken_ != 0) return;
    Operation *op = upper().control_ops().take();
    if (op == nullptr) {  // the peer would take a later one for this one
      broken_ = FI_ENOMEM;
      return;
    }
    FrameHeader header;
    header.op_data = op_data;
    op->kind = Operation::kAck;
    op->set_header(header, order_);
    replies_to_acks_.told(engine_.passes());
    queue_control(*op, replies_to_acks_.expected());
  }
  Verdict take_ack(const FrameHeader &header) {
    if (header.is_refusal() && !refuses_) return refuse(kNotAgreed);
    if (is_lost_) return Verdict::kAccept;
    if (header.op_data == kOpDataWriteRefused)
      return told_writes_ == 0 ? refuse("refuses a write that was not sent") : Verdict::kAccept;
    return acks_.empty() ? refuse("acknowledges what was not sent") : Verdict::kAccept;
  }
  void end_ack(const FrameHeader &header) {
    if (is_lost_) return;
    if (header.op_data == kOpDataWriteRefused) {
      --told_writes_;
      return upper().lost(FI_WRITE | FI_RMA, FI_EACCES);
    }
    Operation &op = *acks_.pop();
    if (last_access_ == &op) last_access_ = nullptr;
    if (op.kind == Operation::kTrace) return upper().control_ops().give(&op);
    upper().complete(op, header.is_refusal() ? FI_EACCES : 0);
    if (!held_.empty()) release_held();
  }
  Verdict take_response(const FrameHeader &header, Target &target) {
    if (is_lost_) {
      target.fit({}, header.payload_size);
      return Verdict::kAccept;
    }
    if (reads_.empty()) return refuse("answers a read that was not asked for");
    if (header.is_refusal()) return refuses_ ? Verdict::kAccept : refuse(kNotAgreed);
    if (reads_.first->length != header.payload_size)
      return refuse("answers a read with another length");
    target.fit({reads_.first->result, reads_.first->result_count}, header.payload_size);
    return Verdict::kAccept;
  }
  void end_response(const FrameHeader &header) {
    if (is_lost_) return;
    const int error = header.is_refusal() ? FI_EACCES : take_landing_error();
    Operation &op = *reads_.pop();
    if (last_access_ == &op) last_access_ = nullptr;
    upper().complete(op, error);
    if (!held_.empty()) release_held();
  }

  // What came of the payload that has just ended: 0, or that a device has failed.
  int take_landing_error() {
    if (landing_error_ != 0) [[unlikely]]
      settle_landing();
    return std::exchange(landing_error_, 0);
  }

  // ---- a peer's access to memory ----

  Verdict take_write(const FrameHeader &header, Target &target);
  // False: it was refused, and is answered.
  bool end_write(const FrameHeader &header);
  Verdict take_read(const FrameHeader &header);
  // Whether a frame in flight refers to the region.
  bool uses(const sdk::Mr &mr) const;
  // The completion queue is full: the frame stalls until a retry from on_flush().
  void wait_for_room() {
    cq_stalled_ = true;
    engine_.mark_dirty(upper());
  }
  void retry_after_full_queue() {
    if (!std::exchange(cq_stalled_, false)) return;
    continue_stalled();
  }

  // ---- input ----

  // Of the socket, in the order in which bytes come to the sockets of the domain.
  static constexpr uint32_t kInput = EPOLLIN | EPOLLRDHUP | EPOLLET;

  void receive();
  void receive(uint32_t events);  // in on_event()
  void continue_stalled();
  Verdict refuse(const char *what) {
    WEFT_WARN_SPARSE(upper().instance(), FI_LOG_EP_DATA, "the peer %s %s: the connection is closed",
                     upper().peer_name().c_str(), what);
    return Verdict::kReject;
  }

  // Closes the socket. Unread bytes would cause a reset, which could overtake the last bytes sent,
  // so they are read first.
  void close_socket() {
    if (socket_ < 0) return;
    ::shutdown(socket_, SHUT_WR);
    uint8_t scrap[4096];
    for (int i = 0; i < 64 && ::recv(socket_, scrap, sizeof scrap, MSG_DONTWAIT) > 0; ++i) {
    }
    ::close(std::exchange(socket_, -1));
  }

  Domain &domain_;
  sdk::Engine &engine_;
  int socket_ = -1;
  bool want_out_ = false;
  bool unasked_ = false;     // since the socket last took all
  bool cq_stalled_ = false;  // the frame waits for room in the completion queue
  bool refuses_ = false;     // agreed: who refuses an access answers it, and the stream goes on
  ByteOrder order_ = ByteOrder::kNative;

  Writer writer_;
  OperationList acks_;   // sent, in the order in which the acknowledgements will come
  OperationList reads_;  // sent, in the order of the responses
  OperationList held_;   // wait for a fence, or until Upper can prepare() them
  Reader<Upper> reader_{EndpointKind::kMsg, ByteOrder::kNative};
  std::vector<uint8_t> stash_;  // read but not consumed, while stalled

 private:
  static constexpr size_t kGather = 64;               // vectors of one sendmsg
  static constexpr uint64_t kBurstBytes = 64 * 1024;  // of queued output go out without a progress
  static constexpr uint32_t kBurstItems = 48;
  static constexpr size_t kCoalesce = 4608;  // bytes that are copied together for one send()
  // At least so much of a payload must be left to read it straight into its place.
  static constexpr uint64_t kDirectMin = 4096;
  static constexpr size_t kSmallStaging = 4096;
  static constexpr int kReadsPerTurn = 16;  // so that one busy peer does not starve the others

  Upper &upper() { return static_cast<Upper &>(*this); }
  const Upper &upper() const { return static_cast<const Upper &>(*this); }

  void on_sent(Operation &op);
  void wait_for_socket();
  void fail_output(int error);
  bool receive_in_order(size_t room);
  bool reads_directly() const;
  // Copies for devices and from them may be under way within receive() and between calls of
  // flush_output(). No operation ends before its own are over.
  void land(void *to, const sdk::HmemPlace &place, const void *from, size_t length);
  void settle_landing();
  void forget_staged() {
    if (domain_.hmem() != nullptr) domain_.hmem_output().forget(this);
  }
  ssize_t read_socket(const iovec *iov, size_t count);
  void feed(const uint8_t *bytes, size_t count);
  void unpin_incoming() {
    for (size_t i = 0; i < incoming_count_; ++i) --incoming_[i]->pins;
    incoming_count_ = 0;
  }
  void note_refusal(const FrameHeader &header, const RmaVector &vector, sdk::MrReject reject);
  Verdict refuse_write(const FrameHeader &header, const RmaVector &vector, sdk::MrReject reject,
                       Target &target);
  Verdict refuse_read(const FrameHeader &header, const RmaVector &vector, sdk::MrReject reject,
                      Operation &answer);
  Verdict end_answers();
  bool ended_broken();
  void queue_response(Operation &op);
  void trace(Operation &write);
  void forget_trace(Operation &op);
  bool traces() const { return !refuses_ && upper().is_hidden(); }
  void note_access(Operation &op) {
    if (!traces()) return;
    op.behind[0] = op.behind[1] = 0;
    last_access_ = &op;
  }
  void fail_sent(Operation &op, int error);
  void tell_lost(uint64_t mark, int error);

  static constexpr const char *kNotAgreed = "refuses an access in a way that was not agreed";
  static constexpr int kUnderWay = -1;
  int landing_error_ = 0;             // of the current payload; or kUnderWay
  bool lands_on_device_ = false;      // as the last payload did
  bool refused_ = false;              // the current write
  bool mute_ = false;                 // our half of the connection is closed
  bool is_lost_ = false;              // the peer takes nothing any more
  Operation *last_access_ = nullptr;  // that was sent to a peer which cannot refuse, and waits
  uint64_t told_writes_ = 0;  // writes that completed when they were sent, less those refused
  // Why the stream ends when the reader returns: FI_EIO, a device or medium has failed where a peer
  // has written; FI_ENOMEM, an acknowledgement could not be made. 0: it goes on.
  int broken_ = 0;
  sdk::Replies replies_to_acks_;
  uint64_t burst_round_ = ~UINT64_C(0);  // engine round of the last send that went out at once
  uint64_t burst_bytes_ = 0;
  uint32_t burst_items_ = 0;
  uint32_t owed_ = 0;    // answers queued
  size_t awaiting_ = 0;  // operations submitted that wait for an answer of the peer
  // Read responses in flight, in the order in which they leave.
  Operation *first_response_ = nullptr, *last_response_ = nullptr;

 protected:
  uint64_t last_payload_ = 0;

 private:
  // Regions into which the current frame is received.
  sdk::Mr *incoming_[kMaxRmaVectors] = {};
  uint8_t incoming_count_ = 0;
};

// ---- output ----

template <class Upper>
void Stream<Upper>::flush_output() {
  burst_items_ = 0;
  burst_bytes_ = 0;
  while (!writer_.empty()) {
    iovec iov[kGather];
    msghdr message{};
    message.msg_iov = iov;
    size_t gathered = writer_.gather(iov);
    sdk::HmemOutput *const devices = domain_.hmem() != nullptr ? &domain_.hmem_output() : nullptr;
    if (devices != nullptr && !devices->stage(this, iov, gathered)) {
      upper().failed(FI_EIO, "copy from a device what goes to");
      return;
    }
    message.msg_iovlen = gathered;
    uint64_t total = 0;
    for (size_t i = 0; i < message.msg_iovlen; ++i) total += iov[i].iov_len;
    uint8_t together[kCoalesce];
    iovec single = iov[0];
    if (message.msg_iovlen > 1 && total <= sizeof together) {
      // A small copy costs less than the kernel's work for each vector.
      size_t at = 0;
      for (size_t i = 0; i < message.msg_iovlen; ++i) {
        std::memcpy(together + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
      }
      single = {together, at};
      message.msg_iovlen = 1;
    }
    const ssize_t sent =
        message.msg_iovlen == 1
            ? ::send(socket_, single.iov_base, single.iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
            : ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      const int error = errno;
      if (error == EINTR) continue;
      if (error == EPIPE || error == ECONNRESET) return lose_output(FI_ECONNRESET);
      if (error != EAGAIN && error != EWOULDBLOCK && error != ENOBUFS) {
        upper().failed(error, "send to");
        return;
      }
      writer_.on_sent(0, [](SendItem &) {});
      return wait_for_socket();
    }
    if (devices != nullptr) devices->on_sent({iov, gathered}, size_t(sent));
    writer_.on_sent(size_t(sent),
                    [this](SendItem &item) { on_sent(static_cast<Operation &>(item)); });
    if (uint64_t(sent) < total) {
      return wait_for_socket();
    }
  }
  unasked_ = false;
  if (want_out_) {
    want_out_ = false;
    upper().watch();
  }
}

// It is full. Nothing but exit() sees to it that what is injected still leaves where the
// application makes no progress any more.
template <class Upper>
void Stream<Upper>::wait_for_socket() {
  want_out_ = true;
  upper().watch();
  if (unasked_) upper().on_full();
}

template <class Upper>
void Stream<Upper>::on_sent(Operation &op) {
  switch (op.kind) {
    case Operation::kSend:
    case Operation::kWrite:
      if constexpr (requires { upper().begun(op); }) {
        if (upper().begun(op)) return;  // not its last frame
      }
      if (op.wait_ack) {
        acks_.push(op);
        if (op.kind == Operation::kWrite) note_access(op);
        return;
      }
      told_writes_ += op.kind == Operation::kWrite;
      if (op.trace != nullptr) [[unlikely]] {
        acks_.push(*op.trace);
        note_access(*std::exchange(op.trace, nullptr));
      } else if (last_access_ != nullptr && op.mark & (FI_MSG | FI_TAGGED)) {
        ++last_access_->behind[op.mark == FI_TAGGED];
      }
      upper().complete(op, 0);
      return;
    case Operation::kRead:
      reads_.push(op);
      note_access(op);
      return;
    case Operation::kResponse:
      for (size_t i = 0; i < op.pin_count; ++i) --op.pins[i]->pins;
      assert(first_response_ == &op && "answers leave in the order in which they were queued");
      first_response_ = op.next_response;
      [[fallthrough]];
    case Operation::kAck:
    case Operation::kClear:
      --owed_;
      upper().control_ops().give(&op);
      return;
    case Operation::kTrace:  // is in no queue of output
      return;
  }
}

template <class Upper>
void Stream<Upper>::lose_output(int error) {
  mute_ = is_lost_ = true;
  want_out_ = false;
  fail_output(error);
  if (!upper().open()) return;
  upper().watch();
  upper().on_mute();
  engine_.rearm(upper());
}

template <class Upper>
void Stream<Upper>::fail_operations(int error) {
  fail_output(error);
  unpin_incoming();
  stash_ = {};
}

template <class Upper>
void Stream<Upper>::fail_output(int error) {
  forget_staged();
  // Operations that were sent come first: they were posted first.
  while (!acks_.empty()) fail_sent(*acks_.pop(), error);
  while (!reads_.empty()) fail_sent(*reads_.pop(), error);
  writer_.drain([this, error](SendItem &item) {
    auto &op = static_cast<Operation &>(item);
    if (op.is_control()) {
      on_sent(op);
    } else {
      forget_trace(op);
      upper().complete(op, error);
    }
  });
  while (!held_.empty()) {
    Operation *op = held_.pop();
    if (op->waits()) ++awaiting_;
    upper().complete(*op, error);
  }
}

// ---- input ----

template <class Upper>
void Stream<Upper>::receive() {
  int turn = 0;
  for (; turn < kReadsPerTurn && upper().open() && !reader_.stalled(); ++turn) {
    const bool large = last_payload_ >= kLargePayload;
    const bool more =
        receive_in_order(large && !reader_.in_payload() ? kSmallStaging : kStagingSize);
    if constexpr (requires { upper().go_on_reading(); }) {
      if (upper().open() && !upper().go_on_reading()) break;
    }
    if (!more) break;
  }
  if (turn == kReadsPerTurn && upper().open()) engine_.rearm(upper());
  if (landing_error_ == kUnderWay) [[unlikely]]
    settle_landing();
}

// `events` may tell of the end of the stream, which a read that finds bytes does not.
template <class Upper>
void Stream<Upper>::receive(uint32_t events) {
  receive();
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) && upper().open()) [[unlikely]]
    engine_.rearm(upper());
}

template <class Upper>
void Stream<Upper>::land(void *to, const sdk::HmemPlace &place, const void *from, size_t length) {
  sdk::HmemInput &input = domain_.hmem_input();
  lands_on_device_ = bool(place);
  if (place && input.has(from)) {
    if (landing_error_ != FI_EIO)
      landing_error_ = input.start(to, place, from, length) ? kUnderWay : FI_EIO;
    return;
  }
  // The host's; or from the stash, which does not stay.
  if (sdk::hmem_copy(to, place.or_null(), from, nullptr, length)) return;
  settle_landing();
  landing_error_ = FI_EIO;
}

// What has been received is in the memory of the device.
template <class Upper>
void Stream<Upper>::settle_landing() {
  if (landing_error_ == kUnderWay) landing_error_ = domain_.hmem_input().finish() ? 0 : FI_EIO;
}

// Whether the socket's bytes may go straight to their place: memory of a device is no such place.
template <class Upper>
bool Stream<Upper>::reads_directly() const {
  if (reader_.direct_left() < kDirectMin) return false;
  const sdk::Hmem *const hmem = domain_.hmem();
  return hmem == nullptr || std::ranges::none_of(reader_.direct(), [hmem](const iovec &one) {
           return bool(hmem->find(one.iov_base, one.iov_len));
         });
}

// Reads the rest of the current payload into its place, and further bytes into the staging buffer.
// False: the socket is empty, or the connection is over.
template <class Upper>
bool Stream<Upper>::receive_in_order(size_t room) {
  uint8_t *staging = domain_.staging();
  iovec iov[kMaxTargetVectors + 1];
  size_t count = 0;
  uint64_t direct = 0;
  if (reads_directly()) {
    for (const iovec &v : reader_.direct()) iov[count++] = v;
    direct = reader_.direct_left();
    room = kSmallStaging;
  } else if (domain_.hmem() != nullptr) {
    staging = domain_.hmem_input().bytes();
    if (reader_.direct_left() >= kDirectMin || lands_on_device_) room = sdk::HmemInput::kPart;
  }
  iov[count++] = {staging, room};
  const ssize_t n = read_socket(iov, count);
  if (n <= 0) return false;
  const auto placed = size_t(std::min<uint64_t>(uint64_t(n), direct));
  if (placed != 0) {
    reader_.on_direct(placed, upper());
    if (ended_broken()) return false;
  }
  if (size_t(n) > placed && upper().open()) feed(staging, size_t(n) - placed);
  // Fewer bytes than there was room for: the socket is empty.
  return uint64_t(n) == direct + room;
}

// The bytes read; -1: the socket is empty; 0: the connection is over.
template <class Upper>
ssize_t Stream<Upper>::read_socket(const iovec *iov, size_t count) {
  for (;;) {
    const ssize_t n = count == 1 ? ::recv(socket_, iov->iov_base, iov->iov_len, MSG_DONTWAIT)
                                 : ::readv(socket_, iov, int(count));
    if (n > 0) {
      engine_.had_input();
      return n;
    }
    const int error = errno;
    if (n < 0 && error == EINTR) continue;
    if (n < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return -1;
    settle_landing();
    if (n == 0) {
      upper().ended();
    } else {
      upper().failed(error, "receive from");
    }
    return 0;
  }
}

template <class Upper>
void Stream<Upper>::feed(const uint8_t *bytes, size_t count) {
  size_t used = 0;
  if (!reader_.stalled()) {
    used = reader_.on_bytes({bytes, count}, upper());
    if (!upper().open()) return;
    if (auto reject = reader_.rejected()) return upper().rejected(*reject);
    if (ended_broken() || !reader_.stalled()) return;
    upper().watch();
  }
  stash_.insert(stash_.end(), bytes + used, bytes + count);
}

// After the reader. True: the stream could not go on, and has ended.
template <class Upper>
bool Stream<Upper>::ended_broken() {
  if (broken_ == 0) [[likely]]
    return false;
  if (upper().open())
    upper().failed(broken_, broken_ == FI_ENOMEM ? "acknowledge what came from"
                                                 : "copy to a device what came from");
  return true;
}

template <class Upper>
void Stream<Upper>::continue_stalled() {
  reader_.resume(upper());
  if (!upper().open()) return;
  if (auto reject = reader_.rejected()) return upper().rejected(*reject);
  if (ended_broken() || reader_.stalled()) return;
  if (!stash_.empty()) {
    // feed() may stash again.
    std::vector<uint8_t> bytes;
    bytes.swap(stash_);
    feed(bytes.data(), bytes.size());
    if (!upper().open()) return;
    if (stash_.empty()) {
      bytes.clear();
      stash_.swap(bytes);  // keep the memory for the next stall
    }
  }
  upper().watch();
}

}  // namespace weft::tcp

#include "plugins/tcp/stream_memory.h"

#endif
