// SPDX-License-Identifier: BSD-2-Clause
// An endpoint's life: opening, binding, its queue pair, options, closing.
#include <rdma/rdma_cma.h>
#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/passive.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "plugins/verbs/endpoint.h"
#include "plugins/verbs/fabric.h"
#include "plugins/verbs/linger.h"
#include "plugins/verbs/shared_receive.h"

namespace weft::verbs {

Endpoint::~Endpoint() = default;

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  WEFT_CHECK(check(info, domain.device().facts.max_queue_entries));
  if (sdk::has_auth_keys(domain.fabric().api_version()) && info.ep_attr->auth_key_size != 0)
    return fail(FI_EOPNOTSUPP, "fi_endpoint: verbs has no keys and cannot honour ep_attr.auth_key");
  std::unique_ptr<Endpoint, void (*)(Endpoint *)> ep(new Endpoint(domain, info, context),
                                                     [](Endpoint *e) { delete e; });
  sdk::Guard guard(domain.fabric().engine().lock());
  WEFT_TRY(const sdk::Connections::Named named, ep->find_names(info));
  WEFT_CHECK(ep->check_request(named.request));
  WEFT_CHECK(ep->publish(domain.base()));
  if (sdk::PassiveCore *const passive = ep->take_names(named)) passive->release_name();
  domain.fabric().device_events().join(*ep);
  domain.shared().children.fetch_add(1);
  return ep.release();
}

// The request that fi_accept will answer came to the device of the domain.
Result<void> Endpoint::check_request(const sdk::ConnectRequest *found) const {
  const auto *const request = static_cast<const ConnectRequest *>(found);
  if (request == nullptr) return {};
  WEFT_CHECK(request->check_device(domain_.device()));
  if (!request->xrc()) return {};
  return fail(FI_EINVAL,
              "fi_endpoint: the request is that of an XRC endpoint: open this one with the info of "
              "the request");
}

int Endpoint::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) != WEFT_CARRIER_OPS) return -FI_ENOSYS;
  *ops = const_cast<weft_carrier_ops *>(&carrier_ops());
  return 0;
}

// Only identify(): what else weft_carrier_ops has is for providers without a device.
const weft_carrier_ops &Endpoint::carrier_ops() {
  static const weft_carrier_ops carrier = {
      .size = offsetof(weft_carrier_ops, expose),
      .identify = [](struct fid_ep *fid, fi_addr_t source) -> int {
        Endpoint &ep = *Endpoint::from(fid);
        sdk::Guard guard(ep.own_lock);
        if (ep.enabled()) return -FI_EOPBADSTATE;
        ep.WorkQueues::identify(source);
        return 0;
      }};
  return carrier;
}

int Endpoint::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_SRX_CTX) return bind_shared_receive(fid, flags);
  // The queue pair has its completion queues for life.
  if (fid->fclass == FI_CLASS_CQ && enabled()) return -FI_EOPBADSTATE;
  return bind_connected(fid, flags);
}

int Endpoint::bind_shared_receive(struct fid *fid, uint64_t flags) {
  sdk::Guard guard(own_lock);
  if (enabled()) return -FI_EOPBADSTATE;
  SharedReceive *const shared = SharedReceive::find(fid, domain_);
  if (shared == nullptr || shared->is_xrc()) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (shared_ != nullptr) return -FI_EBUSY;
  hold(shared->users);
  shared_ = shared;
  return 0;
}

int Endpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<Endpoint>::open(*this, arg);
  return control_connected(command, arg, kSendFlags);
}

// ---- enabling ----

Result<void> Endpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings(shared_ != nullptr));
  if (tx_cq() == nullptr)
    return fail(FI_ENOCQ, "fi_enable: bind a completion queue first: the device needs one");
  if (shared_ != nullptr && !CompletionQueue::of(*rx_cq()).reserve_shared(*shared_))
    return fail(FI_ENOSPC,
                "fi_enable: the completion queue has no room for the %zu receives of the shared "
                "context: %s has at most %zu entries, spread endpoints over more queues",
                shared_->size(), domain_.device().facts.name.c_str(),
                domain_.device().facts.max_cq_entries);
  join_queues(shared_ == nullptr);
  report_failures(domain_.fabric().device_events(), *this);
  sdk::Guard guard(own_lock);
  set_enabled();
  return {};
}

// ---- the queue pair ----

Result<void> Endpoint::make_queue_pair() {
  const DeviceFacts &facts = domain_.device().facts;
  const Sizes &sizes = domain_.settings().sizes;
  ibv_qp_init_attr init{};
  init.qp_context = static_cast<DeviceUser *>(this);
  init.send_cq = joined_tx_->c();
  init.recv_cq = joined_rx_->c();
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = uint32_t(limits().tx_size);
  init.cap.max_send_sge = uint32_t(std::min({sizes.tx_iov, facts.max_sges, sdk::kIovLimit}));
  init.cap.max_inline_data = uint32_t(facts.max_inline);
  if (shared_ != nullptr) {
    init.srq = shared_->c_srq();
  } else {
    init.cap.max_recv_wr = uint32_t(limits().rx_size);
    init.cap.max_recv_sge = uint32_t(std::min({sizes.rx_iov, facts.max_sges, sdk::kIovLimit}));
  }
  if (rdma_create_qp(id_, domain_.pd(), &init) != 0)
    return fail(errno, "rdma_create_qp on %s with %zu sends and %zu receives: %s",
                facts.name.c_str(), limits().tx_size, limits().rx_size, strerror(errno));
  sdk::Guard guard(own_lock);
  if (const int error = start_queues(id_->qp, facts.max_inline); error != 0)
    return fail(error, "ibv_post_recv on %s: %s", facts.name.c_str(), strerror(error));
  return {};
}

template <class IsDone>
bool Endpoint::wait_for(IsDone is_done) {
  return linger(domain_.fabric().device_events(), domain_.settings().close_linger_ms, is_done);
}

// What was injected is not the application's any more: it leaves before the connection ends. The
// device may say nothing more of it once the peer has ended the connection (siw).
void Endpoint::send_injected() {
  {
    sdk::Guard guard(own_lock);
    if (qp_ == nullptr || !mark_end()) return;
  }
  parts_ = true;
  const bool told = wait_for([this] {
    if (has_told_injected()) return true;
    domain_.fabric().channel().on_event(0);
    return peer_left_;
  });
  parts_ = false;
  if (told) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "the connection to %s ends before its peer took all that was injected, after %d ms "
            "(verbs close_linger_ms)",
            peer_.to_string().c_str(), domain_.settings().close_linger_ms);
}

// Destroys the queue pair.
void Endpoint::end_queue_pair(Rest rest) {
  if (rest != Rest::kDropped) cancel_early();
  if (qp_ == nullptr) return;
  {
    sdk::Guard guard(own_lock);
    post_kept();
  }
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  const bool flushes = ibv_modify_qp(qp_, &attr, IBV_QP_STATE) == 0;
  // Receives of a shared context that the queue pair has taken are lost if it goes before it has
  // told of them.
  if (flushes && shared_ != nullptr && connected_once_)
    domain_.last_receives().await(domain_.fabric().device_events(),
                                  domain_.settings().close_linger_ms, last_receive_seen_);
  if (flushes && rest == Rest::kAwaited) wait_for([this] { return has_told_all(); });
  collect_completions();
  {
    sdk::Guard guard(own_lock);
    qp_ = nullptr;
  }
  rdma_destroy_qp(id_);
  collect_completions();  // those that came meanwhile
  give_number_back();
  if (rest != Rest::kDropped) fail_rest();
}

void Endpoint::close_connection() {
  if (state_ == State::kConnected) send_injected();
  set_state(State::kDisconnected);
  if (joined_tx_ != nullptr) end_queue_pair(Rest::kDropped);  // fi_endpoint.3, fi_close
  if (id_ != nullptr) rdma_destroy_id(std::exchange(id_, nullptr));
  if (joined_tx_ == nullptr) return;
  if (shared_ != nullptr) joined_rx_->give_back_shared(*shared_);
  leave_queues();
}

int Endpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  leave_event_queue();
  Object::retire();
  {
    sdk::Guard guard(domain_.fabric().engine().lock());
    domain_.fabric().engine().remove(*this);
    close_connection();
    domain_.fabric().device_events().leave(*this);
    request_.reset();
    if (eq() != nullptr) eq()->forget(base());
    sdk::Guard own(own_lock);
    detach();
    EndpointCore::release(nullptr);
  }
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

// ---- options ----

// No option can be set.
int Endpoint::setopt(int, int, const void *, size_t) {
  return -FI_ENOPROTOOPT;
}

// The device does not give back what was posted to it, so only receives that wait for the queue
// pair can be cancelled.
ssize_t Endpoint::cancel(void *context) {
  RecvOp *op;
  {
    sdk::Guard guard(own_lock);
    op = take_early(context);
  }
  if (op == nullptr) return -FI_ENOENT;
  report_cancelled(*op);
  return 0;
}

}  // namespace weft::verbs
