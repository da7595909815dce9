// SPDX-License-Identifier: BSD-2-Clause
// Connections of XRC endpoints: the two halves, and lookups. The lock of connections is held.
#include <rdma/rdma_cma.h>
#include <weft/sdk/unit/log.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/verbs/fabric.h"
#include "plugins/verbs/shared_receive.h"
#include "plugins/verbs/xrc_domain.h"
#include "plugins/verbs/xrc_endpoint.h"

namespace weft::verbs {

void XrcEndpoint::set_state(State state) {
  sdk::Guard guard(own_lock);
  state_ = state;
}

sdk::Address XrcEndpoint::source() const {
  if (local_.size() == 0 || local_.is_any()) return {};
  return local_.with_port(0).value_or(sdk::Address());
}

XrcMessage XrcEndpoint::request_message(uint16_t port, uint32_t target) const {
  return {{.reciprocal = accepts_,
           .port = port,
           .target = target,
           .srq = shared_->number(),
           .tag = accepts_ ? peer_tag_ : tag_},
          accepts_ ? std::string_view() : std::string_view(parameter_)};
}

// ---- the half that this side asks for ----

void XrcEndpoint::ask(const sdk::Address &peer) {
  if (const uint64_t timeout_ms = domain_.settings().connect_timeout_ms; timeout_ms != 0)
    domain_.fabric().engine().set_deadline(*this, sdk::now_ns() + timeout_ms * 1'000'000u);
  initiator_ = &xrc_.initiator(peer, *joined_tx_);
  initiator_->join(*this);
}

Result<void> XrcEndpoint::start_connect(const sdk::Address &peer, std::string_view data) {
  if (!peer.names_peer()) return fail(FI_EINVAL, "%s names no peer", peer.to_string().c_str());
  parameter_ = data;
  set_state(State::kConnecting);
  ask(peer);
  return {};
}

void XrcEndpoint::look_up() {
  auto id = domain_.fabric().channel().make_id(*this, RDMA_PS_UDP);
  Result<void> started;
  if (id) {
    lookup_ = *id;
    const sdk::Address from = source();
    if (rdma_resolve_addr(lookup_, from.size() != 0 ? c_address(from) : nullptr,
                          c_address(initiator_->peer()),
                          domain_.settings().resolve_timeout_ms) != 0)
      started = fail(errno, "rdma_resolve_addr: %s", strerror(errno));
  } else {
    started = tl::unexpected(id.error());
  }
  if (started) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "lookup of %s: %s", peer_.to_string().c_str(),
            started.error().text.c_str());
  connect_failed(started.error().code, {}, started.error().code);
}

void XrcEndpoint::end_lookup() {
  if (lookup_ != nullptr) rdma_destroy_id(std::exchange(lookup_, nullptr));
}

// Steps of a lookup that can fail here.
Result<void> XrcEndpoint::continue_lookup(const ChannelEvent &event) {
  if (event.type == RDMA_CM_EVENT_ADDR_RESOLVED) {
    if (rdma_resolve_route(lookup_, domain_.settings().resolve_timeout_ms) == 0) return {};
    return fail(errno, "rdma_resolve_route: %s", strerror(errno));
  }
  WEFT_TRY(const uint16_t port, xrc_.listen(local_address(*lookup_)));
  const XrcMessage message = request_message(port, initiator_->target());
  rdma_conn_param param = xrc_parameters(message.bytes());
  if (rdma_connect(lookup_, &param) == 0) return {};
  return fail(errno, "rdma_connect: %s", strerror(errno));
}

void XrcEndpoint::on_event(const ChannelEvent &event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (auto done = continue_lookup(event); !done) {
        WEFT_WARN(instance(), FI_LOG_EP_CTRL, "lookup of %s: %s", peer_.to_string().c_str(),
                  done.error().text.c_str());
        connect_failed(done.error().code, {}, done.error().code);
      }
      return;
    case RDMA_CM_EVENT_ESTABLISHED: {
      end_lookup();
      const auto answer = parse_xrc(event.data);
      if (answer) return on_answer(*answer);
      WEFT_WARN(instance(), FI_LOG_EP_CTRL,
                "lookup of %s: the answer is not that of an XRC endpoint",
                peer_.to_string().c_str());
      return connect_failed(FI_EPROTO, {}, FI_EPROTO);
    }
    case RDMA_CM_EVENT_UNREACHABLE:
      if (event.status > 0) {  // refused: the status is the peer's
        const auto answer = parse_xrc(event.data);
        return connect_failed(FI_ECONNREFUSED,
                              answer ? std::string(answer->parameter) : std::string(),
                              FI_ECONNREFUSED);
      }
      [[fallthrough]];
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR: {
      const int error = event.status < 0 ? -event.status : FI_ETIMEDOUT;
      return connect_failed(error, {}, error);
    }
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return connect_failed(FI_ENODEV, {}, FI_ENODEV);
    default:
      return;
  }
}

void XrcEndpoint::on_answer(const XrcReceived &answer) {
  {
    sdk::Guard guard(own_lock);
    start_queues(initiator_->qp(), domain_.device().facts.max_inline);  // it has no early receives
    // The passive side has known the queue of its peer since the request.
    if (!accepts_) name_remote_queue(answer.data.srq);
  }
  answered_ = true;
  if (!accepts_) {
    answer_ = answer.parameter;
    if (local_.size() == 0) local_ = initiator_->local();
  }
  if (accepts_ || target_ != nullptr) become_connected();
}

void XrcEndpoint::on_path_failed(int error, std::string data, int cause) {
  initiator_ = nullptr;
  connect_failed(error, std::move(data), cause);
}

// ---- the half that the peer asks for ----

Result<void> XrcEndpoint::start_accept(std::unique_ptr<sdk::ConnectRequest> accepted,
                                       std::string_view data) {
  auto &request = static_cast<ConnectRequest &>(*accepted);
  rdma_cm_id *const id = request.take_id();
  const XrcData asked = *request.xrc();
  set_state(State::kConnecting);
  // The requester may be gone. The event queue reports that, not this call (fi_cm.3).
  if (id == nullptr) {
    connect_failed(FI_ENODEV, {}, FI_ENODEV);
    return {};
  }
  accepts_ = true;
  peer_tag_ = asked.tag;
  const auto back = peer_address(*id).with_port(asked.port);
  {
    sdk::Guard guard(own_lock);
    name_remote_queue(asked.srq);
  }
  if (!back || !back->names_peer() || !answer(id, asked, data)) {
    const XrcMessage nothing({}, {});
    rdma_reject(id, nothing.bytes().data(), uint8_t(nothing.bytes().size()));
    rdma_destroy_id(id);
    connect_failed(FI_ECONNABORTED, {}, FI_ECONNABORTED);
    return {};
  }
  ask(*back);
  return {};
}

// Accepts a connection, or answers a lookup that names a target of ours. False: neither, and `id`
// is the caller's.
bool XrcEndpoint::answer(rdma_cm_id *id, const XrcData &request, std::string_view data) {
  const bool is_lookup = id->ps == RDMA_PS_UDP;
  XrcTarget *target = nullptr;
  if (is_lookup) {
    target = xrc_.find_target(request.target);
    if (target == nullptr) {
      WEFT_WARN(instance(), FI_LOG_EP_CTRL, "a lookup names the queue pair %u, which is not ours",
                unsigned(request.target));
      return false;
    }
  } else if (auto made = xrc_.make_target(id)) {
    target = *made;
  } else {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "a connection is refused: %s", made.error().text.c_str());
    return false;
  }
  target_ = target;
  target_->join(*this);
  const XrcMessage message({.reciprocal = request.reciprocal,
                            .target = target->number(),
                            .srq = shared_->number(),
                            .tag = request.tag},
                           data);
  rdma_conn_param param = xrc_parameters(message.bytes());
  param.qp_num = target->number();
  // An error: the requester is gone. Then the reciprocal half fails, or its own side ends it.
  if (rdma_accept(id, &param) != 0)
    WEFT_INFO(instance(), FI_LOG_EP_CTRL, "rdma_accept: %s", strerror(errno));
  if (is_lookup) rdma_destroy_id(id);
  return true;
}

bool XrcEndpoint::accept_reciprocal(rdma_cm_id *id, const XrcData &request) {
  if (accepts_ || state_ != State::kConnecting || target_ != nullptr) return false;
  if (!answer(id, request, {})) return false;
  if (answered_) become_connected();
  return true;
}

void XrcEndpoint::on_peer_left() {
  target_ = nullptr;
  if (state_ == State::kConnecting) return connect_failed(FI_ECONNRESET, {}, FI_ECONNRESET);
  if (state_ != State::kConnected) return;
  domain_.fabric().counters().connections_lost.add();
  set_state(State::kDisconnected);
  report_shutdown();
}

// ---- both ----

void XrcEndpoint::become_connected() {
  domain_.fabric().engine().set_deadline(*this, 0);
  domain_.fabric().counters().connections_made.add();
  set_state(State::kConnected);
  report_connected(answer_);
}

void XrcEndpoint::connect_failed(int error, std::string data, int cause) {
  Counters &counters = domain_.fabric().counters();
  (error == FI_ECONNREFUSED ? counters.connections_refused : counters.connections_failed).add();
  domain_.fabric().engine().set_deadline(*this, 0);
  set_state(State::kDisconnected);
  ends_here_ = true;
  part();
  report_failure(error, std::move(data), cause);
}

void XrcEndpoint::on_deadline() {
  if (state_ != State::kConnecting) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "connect to %s: no answer within %llu ms (verbs connect_timeout_ms)",
            peer_.to_string().c_str(), (unsigned long long)domain_.settings().connect_timeout_ms);
  connect_failed(FI_ETIMEDOUT, {}, FI_ETIMEDOUT);
}

void XrcEndpoint::on_notice() {
  if (initiator_ == nullptr || qp_ == nullptr) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "the connections to %s end: their queue pair failed (a completion or an event says "
            "why)",
            peer_.to_string().c_str());
  initiator_->end();
}

void XrcEndpoint::before_cut() {
  end_lookup();
  if (state_ == State::kConnected) set_state(State::kDisconnected);
}

void XrcEndpoint::cut() {
  collect_completions();
  sdk::Guard guard(own_lock);
  qp_ = nullptr;
}

void XrcEndpoint::after_cut() {
  collect_completions();  // those that came meanwhile
  fail_rest();
  initiator_ = nullptr;
  if (state_ == State::kConnecting) return connect_failed(FI_ECONNRESET, {}, FI_ECONNRESET);
  if (ends_here_) return;
  domain_.fabric().counters().connections_lost.add();
  if (XrcTarget *const target = std::exchange(target_, nullptr)) target->leave(*this);
  report_shutdown();
}

}  // namespace weft::verbs
