// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/fuzz/strangers.h"

#include <algorithm>
#include <iterator>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/nonblocking.h"

namespace weft::verbs::fuzz {
namespace {

constexpr size_t kMostCalls = 24;

rdma_conn_param param_of(std::string_view data, uint32_t queue_pair) {
  rdma_conn_param param{};
  param.private_data = data.data();
  param.private_data_len = uint8_t(data.size());
  param.responder_resources = RDMA_MAX_RESP_RES;
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  param.qp_num = queue_pair;
  return param;
}

}  // namespace

Strangers::Strangers(const sdk::Address &local, bool lookups)
    : channel_(rdma_create_event_channel()) {
  must(channel_ != nullptr && make_nonblocking(channel_->fd), "strangers: no channel");
  listener_ = make_id(RDMA_PS_TCP);
  must(rdma_bind_addr(listener_, c_address(local)) == 0, "strangers: no name");
  must(rdma_listen(listener_, 16) == 0, "strangers: cannot listen");
  name_ = local_address(*listener_);
  if (!lookups) return;
  lookups_ = make_id(RDMA_PS_UDP);
  must(rdma_bind_addr(lookups_, c_address(name_)) == 0, "strangers: no name for lookups");
  must(rdma_listen(lookups_, 16) == 0, "strangers: cannot listen for lookups");
}

Strangers::~Strangers() {
  run();
  for (const Call &call : calls_) rdma_destroy_id(call.id);
  for (const auto &[id, data] : requests_) rdma_destroy_id(id);
  rdma_destroy_id(listener_);
  if (lookups_ != nullptr) rdma_destroy_id(lookups_);
  rdma_destroy_event_channel(channel_);
}

rdma_cm_id *Strangers::make_id(rdma_port_space space) {
  rdma_cm_id *id = nullptr;
  must(rdma_create_id(channel_, &id, nullptr, space) == 0, "strangers: no identifier");
  return id;
}

bool Strangers::connect(const sdk::Address &target, std::string_view data, uint32_t queue_pair,
                        bool lookup) {
  if (calls_.size() >= kMostCalls) return false;
  rdma_cm_id *const id = make_id(lookup ? RDMA_PS_UDP : RDMA_PS_TCP);
  calls_.push_back({id, std::string(data), queue_pair});
  must(rdma_resolve_addr(id, nullptr, c_address(target), 1000) == 0, "strangers: no way");
  return true;
}

bool Strangers::accept(std::string_view data, uint32_t queue_pair) {
  if (requests_.empty()) return false;
  rdma_cm_id *const id = requests_.front().first;
  requests_.pop_front();
  rdma_conn_param param = param_of(data, queue_pair);
  calls_.push_back({id, {}, 0});
  if (rdma_accept(id, &param) == 0) return true;
  forget(id);
  return false;
}

bool Strangers::reject(std::string_view data) {
  if (requests_.empty()) return false;
  rdma_cm_id *const id = requests_.front().first;
  requests_.pop_front();
  const bool done = rdma_reject(id, data.data(), uint8_t(data.size())) == 0;
  rdma_destroy_id(id);
  return done;
}

void Strangers::leave(size_t which, bool says_so) {
  if (calls_.empty()) return;
  const auto at = std::next(calls_.begin(), ptrdiff_t(which % calls_.size()));
  if (says_so) {
    rdma_disconnect(at->id);
  } else {
    forget(at->id);
  }
}

void Strangers::forget(rdma_cm_id *id) {
  std::erase_if(calls_, [id](const Call &call) { return call.id == id; });
  std::erase_if(requests_, [id](const auto &request) { return request.first == id; });
  rdma_destroy_id(id);
}

void Strangers::run() {
  rdma_cm_event *event = nullptr;
  while (rdma_get_cm_event(channel_, &event) == 0) {
    const rdma_cm_event_type type = event->event;
    rdma_cm_id *const id = event->id;
    const rdma_conn_param &param = event->param.conn;
    const std::string data(static_cast<const char *>(param.private_data),
                           param.private_data != nullptr ? param.private_data_len : 0);
    rdma_ack_cm_event(event);
    const auto call = std::ranges::find(calls_, id, &Call::id);
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        rdma_resolve_route(id, 1000);
        break;
      case RDMA_CM_EVENT_ROUTE_RESOLVED: {
        rdma_conn_param out = param_of(call->data, call->queue_pair);
        if (rdma_connect(id, &out) != 0) forget(id);
        break;
      }
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        requests_.emplace_back(id, data);
        break;
      case RDMA_CM_EVENT_CONNECT_RESPONSE:  // there is no queue pair that the library knows
        rdma_establish(id);
        break;
      case RDMA_CM_EVENT_ADDR_ERROR:
      case RDMA_CM_EVENT_ROUTE_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_REJECTED:
        if (call != calls_.end()) forget(id);
        break;
      default:
        break;
    }
  }
}

}  // namespace weft::verbs::fuzz
