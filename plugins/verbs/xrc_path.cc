// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/xrc_path.h"

#include <rdma/rdma_cma.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "plugins/verbs/fabric.h"
#include "plugins/verbs/linger.h"
#include "plugins/verbs/xrc_domain.h"
#include "plugins/verbs/xrc_endpoint.h"

namespace weft::verbs {

rdma_conn_param xrc_parameters(std::span<const uint8_t> data) {
  rdma_conn_param param{};
  param.private_data = data.data();
  param.private_data_len = uint8_t(data.size());
  param.responder_resources = RDMA_MAX_RESP_RES;  // the device's maximum
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  param.flow_control = 1;
  param.retry_count = 15;
  param.rnr_retry_count = 7;
  param.srq = 1;
  return param;
}

// ---- XrcInitiator ----

XrcInitiator::XrcInitiator(XrcDomain &domain, const sdk::Address &peer, CompletionQueue &queue)
    : domain_(domain), peer_(peer), queue_(queue) {
  domain_.domain().fabric().device_events().join(*this);
}

XrcInitiator::~XrcInitiator() {
  domain_.domain().fabric().device_events().leave(*this);
  drop_id();
}

void XrcInitiator::drop_id() {
  if (id_ == nullptr) return;
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  rdma_destroy_id(std::exchange(id_, nullptr));
}

void XrcInitiator::join(XrcEndpoint &endpoint) {
  switch (state_) {
    case State::kIdle:
      return start(endpoint);
    case State::kConnecting:
      return waiting_.push_back(&endpoint);
    case State::kConnected:
      users_.insert(&endpoint);
      return endpoint.look_up();
  }
}

void XrcInitiator::start(XrcEndpoint &endpoint) {
  carrier_ = &endpoint;
  state_ = State::kConnecting;
  if (auto started = resolve(); !started) {
    WEFT_WARN(endpoint.instance(), FI_LOG_EP_CTRL, "connect to %s: %s", peer_.to_string().c_str(),
              started.error().text.c_str());
    fail_carrier(started.error().code, {}, started.error().code);
  }
}

Result<void> XrcInitiator::resolve() {
  Domain &domain = domain_.domain();
  WEFT_TRY(id_, domain.fabric().channel().make_id(*this));
  const sdk::Address from = carrier_->source();
  if (rdma_resolve_addr(id_, from.size() != 0 ? c_address(from) : nullptr, c_address(peer_),
                        domain.settings().resolve_timeout_ms) == 0)
    return {};
  return fail(errno, "rdma_resolve_addr: %s", strerror(errno));
}

Result<void> XrcInitiator::make_queue_pair() {
  Domain &domain = domain_.domain();
  const DeviceFacts &facts = domain.device().facts;
  if (id_->verbs != domain.device().verbs)
    return fail(FI_EHOSTUNREACH, "the way leads over another device than %s", facts.name.c_str());
  const Sizes &sizes = domain.settings().sizes;
  ibv_qp_init_attr_ex init{};
  init.qp_context = static_cast<DeviceUser *>(this);
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = domain.pd();
  init.send_cq = queue_.c();
  init.cap.max_send_wr = uint32_t(std::min(sizes.tx, facts.max_queue_entries));
  init.cap.max_send_sge = uint32_t(std::min({sizes.tx_iov, facts.max_sges, sdk::kIovLimit}));
  init.cap.max_inline_data = uint32_t(facts.max_inline);
  if (rdma_create_qp_ex(id_, &init) != 0)
    return fail(errno, "rdma_create_qp_ex of an XRC initiator on %s: %s", facts.name.c_str(),
                strerror(errno));
  if (rdma_resolve_route(id_, domain.settings().resolve_timeout_ms) == 0) return {};
  return fail(errno, "rdma_resolve_route: %s", strerror(errno));
}

Result<void> XrcInitiator::request() {
  WEFT_TRY(const uint16_t port, domain_.listen(local_address(*id_)));
  const XrcMessage message = carrier_->request_message(port, /*target=*/0);
  rdma_conn_param param = xrc_parameters(message.bytes());
  if (rdma_connect(id_, &param) == 0) return {};
  return fail(errno, "rdma_connect: %s", strerror(errno));
}

void XrcInitiator::on_event(const ChannelEvent &event) {
  const bool connecting = state_ == State::kConnecting;
  Result<void> done;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (connecting) done = make_queue_pair();
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (connecting) done = request();
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (connecting) on_established(event.data);
      return;
    case RDMA_CM_EVENT_REJECTED: {
      if (!connecting) return;
      const auto received = parse_xrc(event.data);
      return fail_carrier(FI_ECONNREFUSED,
                          received ? std::string(received->parameter) : std::string(),
                          event.status > 0 ? event.status : FI_ECONNREFUSED);
    }
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE: {
      const int error = event.status < 0 ? -event.status : FI_ETIMEDOUT;
      if (connecting) fail_carrier(error, {}, error);
      return;
    }
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      if (!connecting) return end();
      return fail_carrier(event.type == RDMA_CM_EVENT_DISCONNECTED ? FI_ECONNRESET : FI_ENODEV, {},
                          FI_ECONNRESET);
    default:
      return;
  }
  if (done) return;
  WEFT_WARN(carrier_->instance(), FI_LOG_EP_CTRL, "connect to %s: %s", peer_.to_string().c_str(),
            done.error().text.c_str());
  fail_carrier(done.error().code, {}, done.error().code);
}

void XrcInitiator::on_established(std::string_view data) {
  const auto received = parse_xrc(data);
  if (!received || received->data.target == 0) {
    WEFT_WARN(carrier_->instance(), FI_LOG_EP_CTRL,
              "connect to %s: the answer is not that of an XRC endpoint",
              peer_.to_string().c_str());
    rdma_disconnect(id_);
    return fail_carrier(FI_EPROTO, {}, FI_EPROTO);
  }
  state_ = State::kConnected;
  target_ = received->data.target;
  XrcEndpoint &carrier = *std::exchange(carrier_, nullptr);
  users_.insert(&carrier);
  carrier.on_answer(*received);
  while (!waiting_.empty()) {
    XrcEndpoint *const next = waiting_.front();
    waiting_.pop_front();
    users_.insert(next);
    next->look_up();
  }
}

void XrcInitiator::fail_carrier(int error, std::string data, int cause) {
  drop_id();
  state_ = State::kIdle;
  XrcEndpoint *const carrier = std::exchange(carrier_, nullptr);
  carrier->on_path_failed(error, std::move(data), cause);
  start_next();
}

void XrcInitiator::start_next() {
  if (waiting_.empty()) return domain_.drop(*this);
  XrcEndpoint *const next = waiting_.front();
  waiting_.pop_front();
  start(*next);
}

void XrcInitiator::leave(XrcEndpoint &endpoint) {
  if (carrier_ == &endpoint) {
    // A late answer would make a connection of which only the peer knows.
    drop_id();
    state_ = State::kIdle;
    carrier_ = nullptr;
    return start_next();
  }
  std::erase(waiting_, &endpoint);
  users_.erase(&endpoint);
  if (!users_.empty() || !waiting_.empty() || carrier_ != nullptr) return;
  if (state_ == State::kConnected) rdma_disconnect(id_);
  domain_.drop(*this);
}

void XrcInitiator::end() {
  if (state_ != State::kConnected) return;
  state_ = State::kIdle;
  domain_.forget(*this);
  const std::vector<XrcEndpoint *> all(users_.begin(), users_.end());
  users_.clear();
  for (XrcEndpoint *const endpoint : all) endpoint->before_cut();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(id_->qp, &attr, IBV_QP_STATE);
  rdma_disconnect(id_);
  for (XrcEndpoint *const endpoint : all) endpoint->cut();
  drop_id();
  for (XrcEndpoint *const endpoint : all) endpoint->after_cut();
  domain_.drop(*this);
}

void XrcInitiator::on_device_event(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      domain_.domain().fabric().device_events().notify(*this);
      return;
    default:
      return;
  }
}

void XrcInitiator::on_device_gone(const ibv_context &device) {
  if (&device != domain_.domain().device().verbs) return;
  if (state_ == State::kConnecting) return fail_carrier(FI_ENODEV, {}, FI_ENODEV);
  end();
}

// ---- XrcTarget ----

XrcTarget::XrcTarget(XrcDomain &domain, rdma_cm_id *id)
    : domain_(domain), id_(id), number_(id->qp->qp_num) {
  Channel::give(*id, *this);
  id->qp->qp_context = static_cast<DeviceUser *>(this);
  domain_.domain().fabric().device_events().join(*this);
}

XrcTarget::~XrcTarget() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  DeviceEvents &events = domain_.domain().fabric().device_events();
  // Receives that the queue pair has taken are lost if it goes before it has told of them.
  if (ibv_modify_qp(id_->qp, &attr, IBV_QP_STATE) == 0)
    domain_.domain().last_receives().await(events, domain_.domain().settings().close_linger_ms,
                                           last_receive_seen_);
  events.leave(*this);
  rdma_destroy_qp(id_);
  rdma_destroy_id(id_);
}

void XrcTarget::leave(XrcEndpoint &endpoint) {
  users_.erase(&endpoint);
  if (!users_.empty()) return;
  if (!ended_) rdma_disconnect(id_);
  domain_.drop(*this);
}

// Nothing more comes in.
void XrcTarget::end() {
  if (std::exchange(ended_, true)) return;
  const std::set<XrcEndpoint *> all = std::exchange(users_, {});
  for (XrcEndpoint *const endpoint : all) endpoint->on_peer_left();
  domain_.drop(*this);
}

void XrcTarget::on_event(const ChannelEvent &event) {
  switch (event.type) {
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:  // the requester gave up
      return end();
    default:
      return;
  }
}

void XrcTarget::on_device_event(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      last_receive_seen_.store(true, std::memory_order_release);
      return;
    case IBV_EVENT_COMM_EST:
      rdma_notify(id_, type);
      return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      domain_.domain().fabric().device_events().notify(*this);
      return;
    default:
      return;
  }
}

void XrcTarget::on_device_gone(const ibv_context &device) {
  if (&device == domain_.domain().device().verbs) end();
}

}  // namespace weft::verbs
