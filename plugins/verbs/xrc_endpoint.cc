// SPDX-License-Identifier: BSD-2-Clause
// An XRC endpoint's op tables and its life. Connecting is in xrc_connect.cc.
#include "plugins/verbs/xrc_endpoint.h"

#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/passive.h>
#include <weft/sdk/unit/log.h>

#include <utility>

#include "plugins/verbs/endpoint.h"
#include "plugins/verbs/fabric.h"
#include "plugins/verbs/linger.h"
#include "plugins/verbs/shared_receive.h"
#include "plugins/verbs/xrc_domain.h"

namespace weft::verbs {

// ---- tables ----

template <class Ep>
void XrcEndpoint::set_tables(Ep &object) const {
  fid_ep *const fid = object.c();
  sdk::fill_tables(object);
  if (!(caps() & FI_RMA)) fid->rma = sdk::c_table(sdk::rma_ops<Nothing>());
  if (!(caps() & FI_ATOMIC)) fid->atomic = sdk::c_table(sdk::atomic_ops<Nothing>());
  fid->tagged = sdk::c_table(sdk::tagged_ops<Nothing>());
}

XrcEndpoint::XrcEndpoint(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      OwnLock(domain.locked()),
      ConnectedCore(domain.shared(), domain.fabric().connections(), domain.fabric().engine(),
                    base(), with_message_caps(info, domain), message_limits(domain), &tx_, &rx_,
                    &own_lock),
      MessageQueues(own_lock, limits().tx_size, limits().rx_size, tx_, rx_),
      domain_(domain),
      xrc_(*domain.xrc()),
      tx_(info),
      rx_(info),
      tag_(xrc_.join(*this)) {
  if (caps() & FI_HMEM) expect_device_memory();
  limit_reads(domain.device().facts.max_read_sges);
  set_tables(*this);
}

int XrcEndpoint::atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return query_atomic(caps(), sdk::AtomicKind::kWrite, sdk::raw(datatype), sdk::raw(op), count);
}
int XrcEndpoint::fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return query_atomic(caps(), sdk::AtomicKind::kFetch, sdk::raw(datatype), sdk::raw(op), count);
}
int XrcEndpoint::compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return query_atomic(caps(), sdk::AtomicKind::kCompare, sdk::raw(datatype), sdk::raw(op), count);
}

int XrcEndpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<XrcEndpoint>::open(*this, arg);
  return control_connected(command, arg, kSendFlags);
}

int XrcEndpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level == FI_OPT_ENDPOINT && name == FI_OPT_CM_DATA_SIZE)
    return sdk::get_option(kXrcParameterSize, value, length);
  return get_limit(level, name, value, length);
}

ssize_t XrcEndpoint::tx_size_left() {
  sdk::Guard guard(own_lock);
  return enabled() ? ssize_t(sends_left()) : -FI_EOPBADSTATE;
}

// ---- opening ----

Result<XrcEndpoint *> XrcEndpoint::open(Domain &domain, const fi_info &info, void *context) {
  if (domain.xrc() == nullptr)
    return fail(FI_EINVAL,
                "fi_endpoint: protocol FI_PROTO_RDMA_CM_IB_XRC: open the domain with an info of "
                "this protocol");
  WEFT_CHECK(check(info, domain.device().facts.max_queue_entries));
  sdk::Guard guard(domain.fabric().engine().lock());
  const auto destroy = [](XrcEndpoint *e) {
    e->xrc_.leave(e->tag_);
    delete e;
  };
  std::unique_ptr<XrcEndpoint, decltype(destroy)> ep(new XrcEndpoint(domain, info, context),
                                                     destroy);
  WEFT_TRY(const sdk::Connections::Named named, ep->find_names(info));
  WEFT_CHECK(ep->check_request(named.request));
  WEFT_CHECK(ep->publish(domain.base()));
  if (sdk::PassiveCore *const passive = ep->take_names(named)) passive->release_name();
  domain.fabric().device_events().join(*ep);
  domain.shared().children.fetch_add(1);
  return ep.release();
}

Result<void> XrcEndpoint::check_request(const sdk::ConnectRequest *found) const {
  const auto *const request = static_cast<const ConnectRequest *>(found);
  if (request == nullptr) return {};
  WEFT_CHECK(request->check_device(domain_.device()));
  if (request->xrc()) return {};
  return fail(FI_EINVAL, "fi_endpoint: the request is not that of an XRC endpoint");
}

int XrcEndpoint::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_SRX_CTX) {
    sdk::Guard guard(own_lock);
    if (enabled()) return -FI_EOPBADSTATE;
    SharedReceive *const shared = SharedReceive::find(fid, domain_);
    if (shared == nullptr) return -FI_EINVAL;
    if (flags != 0) return -FI_EBADFLAGS;
    if (shared_ != nullptr) return -FI_EBUSY;
    hold(shared->users);
    shared_ = shared;
    return 0;
  }
  // The queue pair has its completion queues for life.
  if (fid->fclass == FI_CLASS_CQ && enabled()) return -FI_EOPBADSTATE;
  return bind_connected(fid, flags);
}

Result<void> XrcEndpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings(shared_ != nullptr));
  if (shared_ == nullptr)
    return fail(FI_EOPBADSTATE,
                "fi_enable: an XRC endpoint receives through a shared receive context: bind one "
                "(fi_srx_context)");
  if (tx_cq() == nullptr)
    return fail(FI_ENOCQ, "fi_enable: bind a completion queue first: the device needs one");
  if (rx_.selective)
    return fail(
        FI_ENOSYS,
        "fi_enable: FI_SELECTIVE_COMPLETION with FI_RECV: XRC receives are always reported");
  CompletionQueue &receives = CompletionQueue::of(*rx_cq());
  WEFT_CHECK(shared_->start_xrc(receives));
  if (!receives.reserve_shared(*shared_))
    return fail(FI_ENOSPC,
                "fi_enable: the completion queue has no room for the %zu receives of the shared "
                "context: %s has at most %zu entries",
                shared_->size(), domain_.device().facts.name.c_str(),
                domain_.device().facts.max_cq_entries);
  join_queues(/*receives=*/false);
  report_failures(domain_.fabric().device_events(), *this);
  sdk::Guard guard(own_lock);
  set_enabled();
  return {};
}

// ---- ending ----

template <class IsDone>
bool XrcEndpoint::wait_for(IsDone is_done) {
  return linger(domain_.fabric().device_events(), domain_.settings().close_linger_ms, is_done);
}

// What was injected is not the application's any more: it leaves before the connection ends.
void XrcEndpoint::send_injected() {
  {
    sdk::Guard guard(own_lock);
    if (qp_ == nullptr) return;
    post_kept();
  }
  if (wait_for([this] { return has_told_injected(); })) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "the connection to %s ends before its peer took all that was injected, after %d ms "
            "(verbs close_linger_ms)",
            peer_.to_string().c_str(), domain_.settings().close_linger_ms);
}

// Lets go of both halves. Operations in flight are the shared queue pair's: it goes on for others
// only when the device has told of all of them.
void XrcEndpoint::part() {
  end_lookup();
  if (initiator_ != nullptr && qp_ != nullptr) {
    const bool alone = initiator_->is_only_of(*this);
    if (alone || !wait_for([this] { return has_told_all(); })) initiator_->end();
  }
  if (XrcInitiator *const initiator = std::exchange(initiator_, nullptr)) {
    {
      sdk::Guard guard(own_lock);
      qp_ = nullptr;
    }
    initiator->leave(*this);
  }
  if (XrcTarget *const target = std::exchange(target_, nullptr)) target->leave(*this);
}

void XrcEndpoint::hang_up() {
  ends_here_ = true;
  send_injected();
  // All that is cancelled is told before the call returns (fi_cm.3).
  set_state(State::kDisconnected);
  part();
  report_shutdown();
}

int XrcEndpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  leave_event_queue();
  Object::retire();
  {
    sdk::Guard guard(domain_.fabric().engine().lock());
    domain_.fabric().engine().remove(*this);
    ends_here_ = true;
    if (state_ == State::kConnected) send_injected();
    set_state(State::kDisconnected);
    part();
    if (joined_tx_ != nullptr) {
      joined_rx_->give_back_shared(*shared_);
      leave_queues();
    }
    xrc_.leave(tag_);
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

}  // namespace weft::verbs
