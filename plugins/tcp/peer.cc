// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/peer.h"

#include <unistd.h>
#include <weft/sdk/unit/log.h>

#include <new>
#include <utility>

#include "plugins/tcp/socket.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {

using sdk::PeerLink;

void Peer::wait(RdmOperation &op) {
  pending.push(op);
  if (!op.report) endpoint.waits();
  follow(link.want(sdk::now_ns(), endpoint.settings().connect_timeout_ns));
}

bool Peer::wanted() const {
  return !pending.empty() || endpoint.asks_for_places(*this);
}

void Peer::follow(PeerLink::Next next, int error) {
  switch (next) {
    case PeerLink::Next::kNothing:
    case PeerLink::Next::kReplace:  // accepted()
      return;
    case PeerLink::Next::kWait:
      if (attempt != nullptr) attempt->wait_until(link.wake_at());
      return;
    case PeerLink::Next::kProbe:
      return start_probe();
    case PeerLink::Next::kResume:
      // The peer may have accepted the probe already, and use it.
      attempt = std::move(probe);
      return attempt->become_attempt();
    case PeerLink::Next::kConnect: {
      // An existing attempt may be our caller, so it is used again.
      Result<void> started;
      try {
        if (attempt == nullptr) attempt = std::make_unique<Attempt>(*this);
        started = attempt->connect();
      } catch (const std::bad_alloc &) {
        started = fail(FI_ENOMEM, "connect to %s: no memory", address.to_string().c_str());
      }
      if (started) return;
      WEFT_WARN(endpoint.instance(), FI_LOG_EP_CTRL, "%s", started.error().text.c_str());
      return attempt_failed(PeerLink::Refusal::kUnreachable, started.error().code);
    }
    case PeerLink::Next::kFail:
      fail_pending(error);
      endpoint.check(*this);
      return;
  }
}

bool Peer::has_unasked() const {
  for (const SendItem *op = pending.first; op != nullptr; op = op->next)
    if (!static_cast<const RdmOperation *>(op)->report) return true;
  return false;
}

void Peer::fail_pending(int error) {
  // A completion may let the application post again. New operations do not fail with these.
  OperationList failed = std::exchange(pending, {});
  while (!failed.empty()) endpoint.finish(static_cast<RdmOperation &>(*failed.pop()), error);
}

void Peer::attempt_failed(PeerLink::Refusal refusal, int error) {
  const PeerLink::Next next = link.on_refused(sdk::now_ns(), refusal, wanted());
  // A retry needs the object, for its deadline.
  if (next != PeerLink::Next::kWait) attempt.reset();
  follow(next, error);
  if (pending.empty()) endpoint.check(*this);
}

void Peer::probe_ended() {
  probe.reset();
  link.on_probe_ended();
  endpoint.check(*this);
}

void Peer::open_stream(int fd, const Terms &terms, bool second) {
  apply_peer_settings(fd, endpoint.settings());
  PeerStream *opened = endpoint.make_stream(*this, fd, terms);
  if (opened == nullptr) {
    ::close(fd);
    if (second) return;
    fail_pending(FI_ENOMEM);
    return lost();
  }
  if (second) return;  // the second end of a connection to ourselves
  stream = opened;
  OperationList waiting = std::exchange(pending, {});
  while (!waiting.empty()) {
    auto &op = static_cast<RdmOperation &>(*waiting.pop());
    if (stream == nullptr) {  // it ended meanwhile
      wait(op);
      continue;
    }
    op.set_order(terms.order);
    op.more = true;
    stream->launch(op);
  }
  if (stream != nullptr) stream->flush();
}

void Peer::stream_ended(PeerStream &which) {
  if (leaving == &which) leaving = nullptr;
  if (stream == &which) {
    stream = nullptr;
    endpoint.forget_places(*this);
    return lost();
  }
  endpoint.check(*this);
}

void Peer::lost() {
  const uint64_t timeout = endpoint.settings().connect_timeout_ns;
  follow(link.on_lost(sdk::now_ns(), !pending.empty(), timeout));
  endpoint.check(*this);
}

void Peer::yield(bool to_probe) {
  if (!to_probe) return attempt.reset();
  probe = std::move(attempt);
  probe->become_probe();
}

void Peer::ask() {
  follow(link.ask(sdk::now_ns(), endpoint.settings().connect_timeout_ns));
}

void Peer::challenge(PeerLink::Next next, bool may_connect) {
  endpoint.counters().identities_disputed.add();
  if (stream != nullptr) stream->ask_whether_alive();
  if (next != PeerLink::Next::kProbe) return;
  if (!may_connect) return link.on_probe_ended();
  start_probe();  // if the claim is true, and no probe starts, it is repeated
}

void Peer::start_probe() {
  Result<void> started;
  try {
    probe = std::make_unique<Attempt>(*this, /*probe=*/true);
    started = probe->connect();
  } catch (const std::bad_alloc &) {
    started = fail(FI_ENOMEM, "no memory");
  }
  if (started) return;
  probe.reset();
  link.on_probe_ended();
}

void Peer::accepted(int fd, const Terms &terms, uint32_t process) {
  link.on_accepted(sdk::now_ns(), process);
  attempt.reset();
  probe.reset();
  // stream is null during end(), so that the loss starts no new attempt. is_over() reads first what
  // the peer sent before it closed the old one.
  if (PeerStream *old = std::exchange(stream, nullptr); old != nullptr && !old->is_over())
    old->end(FI_ECONNRESET);
  open_stream(fd, terms, false);
}

}  // namespace weft::tcp
