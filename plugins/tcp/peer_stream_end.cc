// SPDX-License-Identifier: BSD-2-Clause
// How the stream to a peer ends, by the peer, by an error or by the endpoint, and whether it may.
#include <poll.h>
#include <sys/socket.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/tcp/peer.h"
#include "plugins/tcp/peer_stream.h"
#include "plugins/tcp/socket.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {

bool PeerStream::is_idle() const {
  if (leaving_ || !writer_.empty() || !held_.empty() || answers_outstanding() || !acks_.empty() ||
      !reader_.idle() || unanswered_ != nullptr || free_numbers_.size() != announced_.size())
    return false;
  if (std::ranges::any_of(expected_, [](const Expected &e) { return e.used; })) return false;
  char byte;
  return ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void PeerStream::look_at_input() {
  constexpr uint64_t kFew = 64 << 10;
  const uint64_t left = reader_.direct_left() + reader_.discard_left();
  const bool no_header = std::exchange(used_then_, last_used_) == last_used_;
  const bool few_bytes = std::exchange(left_then_, left) - left < kFew;
  // A stalled or starved stream waits for this side.
  was_stuck_ = no_header && few_bytes && !reader_.idle() && !stalled() && !starved_;
}

bool PeerStream::has_injected() const {
  if (!open_ || output_lost()) return false;
  for (const RdmOperation *op : announced_)
    if (op != nullptr && op->is_injected) return true;
  for (const SendItem *op = held_.first; op != nullptr; op = op->next)
    if (static_cast<const RdmOperation *>(op)->is_injected) return true;
  return false;
}

void PeerStream::say_goodbye(bool hurry) {
  leaving_ = true;
  ::shutdown(socket_, SHUT_WR);
  if (hurry) engine_.set_deadline(*this, sdk::now_ns() + ep_.settings().handshake_timeout_ns);
}

void PeerStream::on_deadline() {
  end(FI_ECONNRESET);
}

bool PeerStream::is_over() {
  pollfd p{socket_, POLLRDHUP, 0};
  if (::poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP | POLLERR))) return false;
  // Read what the peer sent before it closed.
  do read_out();
  while (open_ && !stalled() && !starved_);
  if (open_) end(FI_ECONNRESET);
  return true;
}

void PeerStream::ask_whether_alive() {
  keep_alive(socket_);
}

void PeerStream::ended() {
  // The peer closed an idle stream, or is gone. Operations of which nothing was sent go to the next
  // stream; if the peer is gone, they fail there.
  if (!leaving_ && peer_.stream == this && order_ == ByteOrder::kNative && reader_.idle() &&
      !writer_.inside_frame() && !answers_outstanding() &&
      free_numbers_.size() == announced_.size()) {
    take_back([this](Operation &op) {
      static_cast<RdmOperation &>(op).stage = RdmOperation::kWhole;
      peer_.pending.push(op);
    });
  }
  end(FI_ECONNRESET);
}

void PeerStream::failed(int error, const char *doing) {
  // A peer that closes with unread bytes resets the connection. That needs no warning.
  if (error != FI_ECONNRESET)
    WEFT_WARN_SPARSE(instance(), FI_LOG_EP_DATA, "%s %s: %s", doing, peer_name().c_str(),
                     strerror(error));
  end(error);
}

void PeerStream::rejected(Reject reject) {
  ep_.counters().frames_rejected.add();
  // Where the endpoint itself refused a frame, refuse() has logged why.
  if (reject != Reject::kRefused)
    WEFT_WARN_SPARSE(instance(), FI_LOG_EP_DATA, "stream from %s: %s; the connection is closed",
                     peer_name().c_str(), text(reject));
  end(FI_EPROTO);
}

void PeerStream::drop_region(const sdk::Mr &mr) {
  if (!open_ || !uses(mr)) return;
  WEFT_WARN(
      instance(), FI_LOG_MR,
      "region with key %#llx is closed while %s still reads or writes it: the connection is closed",
      (unsigned long long)mr.key(), peer_name().c_str());
  end(FI_ECONNABORTED);
}

void PeerStream::end(int error) {
  if (!open_) return;
  open_ = false;
  filling_ = nullptr;
  engine_.remove(*this);
  close_socket();
  if (!leaving_ && error != FI_ECANCELED) ep_.counters().connections_lost.add();
  fail_operations(error);
  for (size_t i = 0; i < announced_.size(); ++i)
    if (announced_[i] != nullptr) complete(*announced_[i], error);
  sdk::Receiver &receiver = ep_.receiver();
  if (current_ != nullptr)
    receiver.complete(*std::exchange(current_, nullptr), last_message_, 0, error);
  if (saving_ != nullptr) ep_.release(std::exchange(saving_, nullptr));
  const auto drop = [&](Saved *saved) {
    if (saved->receive != nullptr) {
      receiver.complete(*saved->receive, saved->message, 0, error);
    } else if (!saved->dropped) {
      // The message keeps its place in front of later ones that came whole. Its receive will fail.
      saved->stage = Saved::kHere;
      saved->stream = nullptr;
      saved->error = error;
      receiver.on_more(*saved);
      return;
    }
    ep_.release(saved);
  };
  if (Saved *part = std::exchange(part_, nullptr); part != nullptr && part->number == 0) drop(part);
  for (Expected &e : expected_) {
    if (e.receive != nullptr) receiver.complete(*e.receive, e.message, 0, error);
    if (e.saved != nullptr) drop(e.saved);
    e = {};
  }
  // Announced messages whose data can no longer be fetched.
  while (Saved *saved = unanswered_) {
    unlink(*saved);
    drop(saved);
  }
  ep_.bury(*this);
  peer_.stream_ended(*this);
}

}  // namespace weft::tcp
