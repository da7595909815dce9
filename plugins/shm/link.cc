// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/link.h"

#include <unistd.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/shm/barrier.h"
#include "plugins/shm/endpoint.h"

namespace weft::shm {
namespace {

int error_after(End why) {
  switch (why) {
    case End::kClosed:
      return FI_ECANCELED;
    case End::kRefused:
      return FI_ECONNREFUSED;
    case End::kPeerGone:
      return FI_ECONNRESET;
    case End::kViolation:
      return FI_EPROTO;
  }
  return FI_EIO;
}

}  // namespace

Link::Link(Endpoint &endpoint, Peer &peer, Side side, sdk::UniqueFd socket, const Process &process,
           PairMemory memory, const Geometry &geometry)
    : Watched(What::kLink),
      endpoint_(endpoint),
      peer_(peer),
      side_(side),
      socket_(std::move(socket)),
      process_(process),
      memory_(std::move(memory)),
      out_(direction_of(memory_.base(), geometry, side == Side::kAsks ? 0 : 1), geometry),
      in_(direction_of(memory_.base(), geometry, side == Side::kAsks ? 1 : 0), geometry) {}

// ---- progress ----

bool Link::poll() {
  bool found = false;
  Head head;
  stalled_ = false;
  for (int n = 0; n < kRecordsAtOnce && !over_ && in_.peek(head); ++n) {
    found = true;
    if (!take_next(head)) break;
  }
  if (has_output() && !over_) [[unlikely]]
    push();
  if (refuses_messages_) [[unlikely]]
    admit_messages();
  if (is_gone_ && !found) finish_end(End::kPeerGone);
  return found && !stalled_;
}

bool Link::arm() {
  if (is_armed_ || over_) return false;
  is_armed_ = true;
  in_.sleep();
  return true;
}

bool Link::may_sleep() {
  if (has_output() && !over_) push();
  if (refuses_messages_) admit_messages();
  return stalled_ || over_ || in_.is_empty();
}

bool Link::refuse_messages() {
  if (!awaits()) return false;
  if (!std::exchange(refuses_messages_, true)) in_.refuse_messages(true);
  return true;
}

// When there is memory again, or nothing is awaited: then the next message stays in the ring.
void Link::admit_messages() {
  if (over_ || (awaits() && !endpoint_.has_memory(*this, 0))) return;
  refuses_messages_ = false;
  in_.refuse_messages(false);
  wake();
}

void Link::introduce(const Probe &probe, bool has_barriers) {
  probe_ = probe;
  if (has_barriers && can_do_barriers()) out_.spare_fences();
}

void Link::on_socket() {
  for (int n = 0; n < kRecordsAtOnce && socket_.get() >= 0; ++n) {
    uint8_t packet[kMostPacket];
    const ssize_t size = receive_packet(socket_.get(), packet);
    if (size == -EAGAIN || size == -EINTR) return;
    if (size <= 0) return end(side_ == Side::kAsks && !probe_ ? End::kRefused : End::kPeerGone);
    if (size == 1 && packet[0] == kWake) {
      is_armed_ = false;
      continue;
    }
    if (side_ == Side::kAsks && !probe_) {
      const auto answer = parse_answer({packet, size_t(size)});
      if (!answer) {
        violated(text_of(answer.error()));
        return;
      }
      introduce(answer->probe, answer->has_barriers);
      continue;
    }
    violated("a packet that is none");
    return;
  }
}

// ---- the end ----

void Link::end(End why) {
  if (over_ || is_gone_) return;
  if (why != End::kPeerGone) return finish_end(why);
  // What it had sent counts, also where there is no room for it now.
  is_gone_ = true;
  endpoint_.let_go(*this);
  hang_up(socket_);
  if (!poll() && !stalled_) finish_end(why);
}

void Link::finish_end(End why) {
  if (over_) return;
  over_ = true;
  endpoint_.let_go(*this);
  endpoint_.bury(*this);
  if (why != End::kClosed) endpoint_.counters().links_lost.add();
  in_.close();
  hang_up(socket_);
  fail_all(error_after(why));
}

void Link::fail_all(int error) {
  for (OperationList *list : {&waiting_, &flying_}) {
    while (Operation *const op = list->front()) {
      list->remove(*op);
      endpoint_.finish(*op, error);
    }
  }
  owed_.clear();
  owed_bytes_ = 0;
  endpoint_.fetches().visit([&](Fetch &fetch) {
    if (fetch.link != this) return;
    sdk::Receive *const receive = fetch.receive;
    const sdk::Message message = fetch.message;
    const auto arrived = size_t(fetch.arrived);
    endpoint_.fetches().give(fetch);
    --fetching_;
    if (receive != nullptr) endpoint_.receiver().complete(*receive, message, arrived, error);
  });
  endpoint_.lose_saved(*this, error);
}

bool Link::violated(const char *what) {
  endpoint_.counters().links_rejected.add();
  WEFT_WARN_SPARSE(endpoint_.instance(), FI_LOG_EP_DATA,
                   "%s (process %d) breaks the rules: %s; nothing more is taken of it",
                   peer_.name.to_string().c_str(), int(process_.pid), what);
  finish_end(End::kViolation);
  return false;
}

// ---- copies ----

// Whether the kernel lets this process read the peer's memory. Tried once for each link.
bool Link::can_copy() {
  if (copies_ == Copies::kUntried) [[unlikely]] {
    if (!probe_) on_socket();  // its answer came before what it sent
    copies_ = probe_ && !over_ && try_copies() ? Copies::kPossible : Copies::kImpossible;
  }
  return copies_ == Copies::kPossible;
}

bool Link::copies(uint64_t length) {
  return length >= endpoint_.settings().cma_size && can_copy();
}

bool Link::try_copies() {
  if (endpoint_.settings().disable_cma || process_.pid == 0) return false;
  // A process with more rights than its peer copies nothing that the peer names: the peer's number
  // may be another process's by then.
  if (process_.uid != geteuid()) return false;
  uint64_t value = 0;
  const iovec own{&value, sizeof value};
  const FarVector far{probe_->address, sizeof value};
  const int error = read_far(process_.pid, &own, 1, &far, 1, sizeof value);
  if (error == 0 && value == probe_->value) return true;
  WEFT_INFO_SPARSE(endpoint_.instance(), FI_LOG_EP_CTRL,
                   "%s: process %d cannot be read (process_vm_readv: %s): long messages are copied "
                   "twice. /proc/sys/kernel/yama/ptrace_scope should be 0",
                   peer_.name.to_string().c_str(), int(process_.pid),
                   error != 0 ? strerror(error) : "it is another one");
  return false;
}

}  // namespace weft::shm
