// SPDX-License-Identifier: BSD-2-Clause
// The control side of a connected endpoint (fi_cm.3): connecting, accepting, ending. The lock of
// connections is held in all that librdmacm calls.
#include <rdma/rdma_cma.h>
#include <weft/sdk/unit/log.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "plugins/verbs/endpoint.h"
#include "plugins/verbs/fabric.h"
#include "plugins/verbs/shared_receive.h"
#include "plugins/verbs/status.h"

namespace weft::verbs {
namespace {

// The values are those of stock libfabric's endpoints.
rdma_conn_param connection_parameters(std::span<const uint8_t> data, bool shared) {
  rdma_conn_param param{};
  param.private_data = data.data();
  param.private_data_len = uint8_t(data.size());
  param.responder_resources = RDMA_MAX_RESP_RES;  // the device's maximum
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  param.flow_control = 1;
  param.retry_count = 15;
  param.rnr_retry_count = 7;
  param.srq = shared ? 1 : 0;
  return param;
}

// Of an event's status: a negative errno, or nothing.
int error_of_status(int status, int otherwise) {
  return status < 0 ? -status : otherwise;
}

}  // namespace

void Endpoint::set_state(State state) {
  sdk::Guard guard(own_lock);
  state_ = state;
}

// ---- the active side ----

Result<void> Endpoint::start_connect(const sdk::Address &peer, std::string_view data) {
  WEFT_TRY(id_, domain_.fabric().channel().make_id(*this));
  const bool named = local_.format() == peer.format() && !(local_.is_any() && local_.port() == 0);
  const int timeout = domain_.settings().resolve_timeout_ms;
  if (rdma_resolve_addr(id_, named ? c_address(local_) : nullptr, c_address(peer), timeout) != 0) {
    const int error = errno;
    rdma_destroy_id(std::exchange(id_, nullptr));
    return fail(error, "rdma_resolve_addr of %s: %s", peer.to_string().c_str(), strerror(error));
  }
  parameter_.emplace(data);
  set_state(State::kConnecting);
  if (const uint64_t timeout_ms = domain_.settings().connect_timeout_ms; timeout_ms != 0)
    domain_.fabric().engine().set_deadline(*this, sdk::now_ns() + timeout_ms * 1'000'000u);
  return {};
}

void Endpoint::on_resolved() {
  if (id_->verbs != domain_.device().verbs) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "connect to %s: the way leads over another device than %s: open the domain with the "
              "info that fi_getinfo gives for this peer",
              peer_.to_string().c_str(), domain_.device().facts.name.c_str());
    return connect_failed(FI_EHOSTUNREACH, {}, FI_EHOSTUNREACH);
  }
  if (auto made = make_queue_pair(); !made) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "connect to %s: %s", peer_.to_string().c_str(),
              made.error().text.c_str());
    return connect_failed(made.error().code, {}, made.error().code);
  }
  if (rdma_resolve_route(id_, domain_.settings().resolve_timeout_ms) != 0) {
    const int error = errno;
    connect_failed(error, {}, error);
  }
}

void Endpoint::request() {
  const RequestData data(*parameter_, local_address(*id_), peer_address(*id_));
  rdma_conn_param param = connection_parameters(data.bytes(), shared_ != nullptr);
  if (rdma_connect(id_, &param) == 0) return;
  const int error = errno;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "connect to %s: rdma_connect: %s",
            peer_.to_string().c_str(), strerror(error));
  connect_failed(error, {}, error);
}

void Endpoint::on_deadline() {
  if (state_ == State::kConnected) {
    {
      sdk::Guard guard(own_lock);
      (void)post_nothing();  // not posted where the queue is full: then more follows anyway
    }
    return plan_nudge();
  }
  if (state_ != State::kConnecting) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "connect to %s: no answer within %llu ms (verbs connect_timeout_ms)",
            peer_.to_string().c_str(), (unsigned long long)domain_.settings().connect_timeout_ms);
  connect_failed(FI_ETIMEDOUT, {}, FI_ETIMEDOUT);
}

// ---- the passive side ----

Result<void> Endpoint::start_accept(std::unique_ptr<sdk::ConnectRequest> request,
                                    std::string_view data) {
  id_ = static_cast<ConnectRequest &>(*request).take_id();
  set_state(State::kConnecting);
  // The requester may be gone. The event queue reports that, not this call (fi_cm.3).
  if (id_ == nullptr) {
    connect_failed(FI_ENODEV, {}, FI_ENODEV);
    return {};
  }
  Channel::give(*id_, *this);
  if (auto made = make_queue_pair(); !made) {
    const PrivateData nothing{std::string_view()};
    rdma_reject(id_, nothing.bytes().data(), uint8_t(nothing.bytes().size()));
    domain_.fabric().counters().connections_failed.add();
    set_state(State::kDisconnected);
    end_queue_pair(Rest::kFailed);
    rdma_destroy_id(std::exchange(id_, nullptr));
    return made;
  }
  const PrivateData parameter(data);
  rdma_conn_param answer = connection_parameters(parameter.bytes(), shared_ != nullptr);
  if (rdma_accept(id_, &answer) != 0) {
    const int error = errno;
    connect_failed(error, {}, error);
  }
  return {};
}

// ---- events ----

void Endpoint::on_event(const ChannelEvent &event) {
  const bool connecting = state_ == State::kConnecting;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (connecting) on_resolved();
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (connecting) request();
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (connecting) become_connected(event.data);
      return;
    case RDMA_CM_EVENT_REJECTED:
      if (connecting)
        connect_failed(FI_ECONNREFUSED,
                       std::string(read_private_data(event.data.data(), event.data.size())),
                       event.status > 0 ? event.status : FI_ECONNREFUSED);
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE: {
      const int error = error_of_status(event.status, FI_ETIMEDOUT);
      if (connecting) connect_failed(error, {}, error);
      return;
    }
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return on_device_gone(*domain_.device().verbs);
    case RDMA_CM_EVENT_DISCONNECTED:
      if (connecting) return connect_failed(FI_ECONNRESET, {}, FI_ECONNRESET);
      if (parts_) {
        peer_left_ = true;
        return;
      }
      return disconnect();
    default:
      return;
  }
}

void Endpoint::on_device_event(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      last_receive_seen_.store(true, std::memory_order_release);
      return;
    case IBV_EVENT_COMM_EST:
      // The peer's data came before its last connection message, which may be lost.
      rdma_notify(id_, type);
      return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      domain_.fabric().device_events().notify(*this);
      return;
    default:
      return;
  }
}

// The queue pair is in the error state: nothing more will come or leave.
void Endpoint::on_notice() {
  if (state_ != State::kConnecting && state_ != State::kConnected) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "the connection to %s ends: its queue pair failed (a completion or an event says why)",
            peer_.to_string().c_str());
  // The peer's data may come, and fail, before its last connection message.
  if (state_ == State::kConnecting) return connect_failed(FI_ECONNABORTED, {}, FI_ECONNABORTED);
  disconnect();
}

void Endpoint::on_device_gone(const ibv_context &device) {
  if (&device != domain_.device().verbs || id_ == nullptr) return;
  if (state_ != State::kConnecting && state_ != State::kConnected) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "the device %s is gone: the connection to %s ends",
            domain_.device().facts.name.c_str(), peer_.to_string().c_str());
  if (state_ == State::kConnecting) return connect_failed(FI_ENODEV, {}, FI_ENODEV);
  domain_.fabric().counters().connections_lost.add();
  set_state(State::kDisconnected);
  end_queue_pair(Rest::kFailed);
  rdma_destroy_id(std::exchange(id_, nullptr));  // the kernel waits for that
  report_shutdown();
}

// siw (Linux 6.1) at the side that accepts may leave a message unread that came while it got ready,
// until more comes. So the side that asked sends writes of nothing a little later. They cost the
// peer no receive.
void Endpoint::plan_nudge() {
  constexpr uint64_t kAfterMs[] = {20, 200, 2000};
  if (nudges_ == std::size(kAfterMs)) return;
  const uint64_t at = sdk::now_ns() + kAfterMs[nudges_++] * 1'000'000u;
  domain_.fabric().engine().set_deadline(*this, at);
}

void Endpoint::become_connected(std::string_view data) {
  domain_.fabric().engine().set_deadline(*this, 0);
  domain_.fabric().counters().connections_made.add();
  connected_once_ = true;
  const bool asked = parameter_.has_value();
  parameter_.reset();
  local_ = local_address(*id_);
  peer_ = peer_address(*id_);
  if (domain_.device().facts.transport != Transport::kIwarp) {
    ibv_qp_attr attr{};
    attr.min_rnr_timer = domain_.settings().min_rnr_timer;
    if (const int error = ibv_modify_qp(qp_, &attr, IBV_QP_MIN_RNR_TIMER); error != 0)
      WEFT_INFO(instance(), FI_LOG_EP_CTRL, "min_rnr_timer stays as it is: %s", strerror(error));
  }
  set_state(State::kConnected);
  if (asked && domain_.device().facts.transport == Transport::kIwarp) plan_nudge();
  report_connected(read_private_data(data.data(), data.size()));
}

void Endpoint::connect_failed(int error, std::string private_data, int cause) {
  Counters &counters = domain_.fabric().counters();
  (error == FI_ECONNREFUSED ? counters.connections_refused : counters.connections_failed).add();
  domain_.fabric().engine().set_deadline(*this, 0);
  set_state(State::kDisconnected);
  end_queue_pair(Rest::kFailed);
  // A late answer would make a connection of which only the peer knows.
  if (id_ != nullptr) rdma_destroy_id(std::exchange(id_, nullptr));
  report_failure(error, std::move(private_data), cause);
}

void Endpoint::hang_up() {
  send_injected();
  if (state_ != State::kConnected) return;  // the device went meanwhile: all is over, and told
  // All that is cancelled is told before the call returns (fi_cm.3). Both sides get FI_SHUTDOWN:
  // the caller may wait for it before fi_close.
  set_state(State::kDisconnected);
  rdma_disconnect(id_);
  end_queue_pair(Rest::kAwaited);
  report_shutdown();
}

// The peer or the device has ended the connection. The queue pair goes into the error state, and
// what it has in flight is flushed.
void Endpoint::disconnect() {
  if (state_ != State::kConnected) return;
  domain_.fabric().counters().connections_lost.add();
  set_state(State::kDisconnected);
  rdma_disconnect(id_);
  report_shutdown();
}

}  // namespace weft::verbs
