// SPDX-License-Identifier: BSD-2-Clause
// A datagram endpoint's life: opening, its queue pair and name, closing.
#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "plugins/verbs/datagram_endpoint.h"
#include "plugins/verbs/fabric.h"

namespace weft::verbs {
namespace {

constexpr uint32_t kFirstPacket = 0xffffff;  // any number will do
constexpr uint16_t kDefaultPartition = 0xffff;

}  // namespace

Result<DatagramEndpoint *> DatagramEndpoint::open(Domain &domain, const fi_info &info,
                                                  void *context) {
  const DeviceFacts &facts = domain.device().facts;
  if (!facts.has_datagrams)
    return fail(FI_EINVAL, "fi_endpoint: %s has no datagrams", facts.name.c_str());
  if (info.ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT ||
      info.ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT)
    return fail(FI_EINVAL, "fi_endpoint: datagram endpoints have no shared contexts");
  if (sdk::has_auth_keys(domain.fabric().api_version()) && info.ep_attr->auth_key_size != 0)
    return fail(FI_EOPNOTSUPP,
                "fi_endpoint: verbs sends plain datagrams and cannot honour ep_attr.auth_key; the "
                "layer rxd over it can");
  for (size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                      info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > facts.max_queue_entries)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: %s takes at most %zu", size,
                  facts.name.c_str(), facts.max_queue_entries);
  std::unique_ptr<DatagramEndpoint, void (*)(DatagramEndpoint *)> ep(
      new DatagramEndpoint(domain, info, context), [](DatagramEndpoint *e) { delete e; });
  WEFT_CHECK(ep->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return ep.release();
}

// An event queue also makes the progress of groups.
int DatagramEndpoint::bind(struct fid *fid, uint64_t flags) {
  const int rc = bind_object(fid, flags);
  // Not with a lock held: an event queue takes the lock while it makes progress.
  if (rc == 0 && fid->fclass == FI_CLASS_EQ) eq()->add_source(domain_.fabric().engine());
  return rc;
}

int DatagramEndpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<DatagramEndpoint>::open(*this, arg);
  if (command != FI_ENABLE) return control_flags(command, arg, kSendFlags);
  auto done = enable();
  if (done) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
  return -done.error().code;
}

// It has messages only.
int DatagramEndpoint::getopt(int level, int name, void *value, size_t *length) {
  switch (name) {
    case FI_OPT_TX_SIZE:
    case FI_OPT_RX_SIZE:
    case FI_OPT_MAX_MSG_SIZE:
    case FI_OPT_INJECT_MSG_SIZE:
      return get_limit(level, name, value, length);
    default:
      return -FI_ENOPROTOOPT;
  }
}

// ---- enabling ----

Result<void> DatagramEndpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings(false));
  if (tx_cq() == nullptr)
    return fail(FI_ENOCQ, "fi_enable: bind a completion queue first: the device needs one");
  WEFT_CHECK(read_port());
  if (caps() & FI_SOURCE) name_sources();
  join_queues(true);
  if (auto made = make_queue_pair(); !made) {
    drop_queue_pair();
    return made;
  }
  sdk::Guard guard(domain_.engine().lock());
  av()->add_user(*this, true);
  sdk::Guard own(own_lock);
  set_enabled();
  return {};
}

Result<void> DatagramEndpoint::read_port() {
  const DeviceFacts &facts = domain_.device().facts;
  ibv_context *const verbs = domain_.device().verbs;
  WEFT_TRY(gids_, read_gids(verbs));
  std::erase_if(gids_, [&](const ibv_gid_entry &entry) { return entry.port_num != facts.port; });
  gids_.shrink_to_fit();
  gid_index_ = domain_.settings().gid_index.value_or(routable_gid_index(gids_));
  const auto own = std::ranges::find(gids_, gid_index_, &ibv_gid_entry::gid_index);
  if (own != gids_.end()) {
    name_.gid = own->gid;
  } else if (facts.transport != Transport::kInfiniBand) {
    return fail(FI_EADDRNOTAVAIL,
                "fi_enable: %s has no GID %d (gid_idx): give its interface an address",
                facts.name.c_str(), int(gid_index_));
  }
  name_.lid = facts.lid;
  __be16 key = 0;
  name_.partition_key =
      ibv_query_pkey(verbs, facts.port, 0, &key) == 0 ? be16toh(key) : kDefaultPartition;
  return {};
}

Result<void> DatagramEndpoint::make_queue_pair() {
  const DeviceFacts &facts = domain_.device().facts;
  const Sizes &sizes = domain_.settings().sizes;
  ibv_qp_init_attr init{};
  init.qp_context = nullptr;  // no DeviceUser (device_events.h)
  init.send_cq = joined_tx_->c();
  init.recv_cq = joined_rx_->c();
  init.qp_type = IBV_QPT_UD;
  init.cap.max_send_wr = uint32_t(limits().tx_size);
  init.cap.max_send_sge = uint32_t(std::min({sizes.tx_iov, facts.max_sges, sdk::kIovLimit}));
  init.cap.max_inline_data = uint32_t(facts.max_datagram_inline);
  init.cap.max_recv_wr = uint32_t(limits().rx_size);
  init.cap.max_recv_sge = uint32_t(std::min({sizes.rx_iov, facts.max_sges, sdk::kIovLimit}));
  ibv_qp *const qp = ibv_create_qp(domain_.pd(), &init);
  if (qp == nullptr)
    return fail(errno, "fi_enable: ibv_create_qp on %s with %zu sends and %zu receives: %s",
                facts.name.c_str(), limits().tx_size, limits().rx_size, strerror(errno));
  name_.queue_pair = qp->qp_num;
  sdk::Guard guard(own_lock);
  if (const int error = start_queues(qp, facts.max_datagram_inline); error != 0)
    return fail(error, "fi_enable: ibv_post_recv on %s: %s", facts.name.c_str(), strerror(error));
  if (const int error = make_ready(*qp); error != 0)
    return fail(error, "fi_enable: ibv_modify_qp on %s: %s", facts.name.c_str(), strerror(error));
  return {};
}

int DatagramEndpoint::make_ready(ibv_qp &qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = domain_.device().facts.port;
  attr.qkey = kQueueKey;
  int error =
      ibv_modify_qp(&qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  attr.qp_state = IBV_QPS_RTR;
  if (error == 0) error = ibv_modify_qp(&qp, &attr, IBV_QP_STATE);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = kFirstPacket;
  if (error == 0) error = ibv_modify_qp(&qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  return error;
}

ssize_t DatagramEndpoint::recover() {
  if (recovers_) return -FI_EAGAIN;  // another thread does
  if (!enabled()) return -FI_EOPBADSTATE;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (const int error = ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init); error != 0) return -error;
  int error = 0;
  if (attr.qp_state != IBV_QPS_ERR) broken_.store(false, std::memory_order_release);
  if (attr.qp_state == IBV_QPS_SQE) {  // receiving goes on
    attr.qp_state = IBV_QPS_RTS;
    error = ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
  } else if (attr.qp_state == IBV_QPS_ERR) {
    recovers_ = true;
    own_lock.unlock();
    error = reset_queue_pair();
    own_lock.lock();
    recovers_ = false;
  }
  if (error == 0) return 0;
  broken_.store(true, std::memory_order_release);
  WEFT_WARN(instance(), FI_LOG_EP_DATA, "the queue pair of a datagram endpoint on %s failed: %s",
            domain_.device().facts.name.c_str(), strerror(error));
  return -error;
}

// Nobody posts meanwhile. Where completions go with the queue pair's reset, their operations fail
// in software.
int DatagramEndpoint::reset_queue_pair() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  collect_completions();
  if (const int error = ibv_modify_qp(qp_, &attr, IBV_QP_STATE); error != 0) return error;
  collect_completions();
  fail_rest();
  broken_.store(false, std::memory_order_release);
  return make_ready(*qp_);
}

void DatagramEndpoint::drop_queue_pair() {
  ibv_qp *qp;
  collect_completions();
  {
    sdk::Guard guard(own_lock);
    qp = std::exchange(qp_, nullptr);
  }
  if (qp != nullptr) ibv_destroy_qp(qp);
  leave_queues();
}

// From fi_enable on: before that there is no queue pair.
int DatagramEndpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(own_lock);
  if (!enabled()) return -FI_EOPBADSTATE;
  return sdk::write_address(name_.address(), FI_ADDR_IB_UD, addr, len);
}

// The device chooses the queue pair, and gid_idx the GID.
int DatagramEndpoint::setname(void *, size_t) {
  return -FI_ENOSYS;
}

// The device does not give back what was posted to it: only receives from before fi_enable can be
// cancelled.
ssize_t DatagramEndpoint::cancel(void *context) {
  RecvOp *op;
  {
    sdk::Guard guard(own_lock);
    op = take_early(context);
  }
  if (op == nullptr) return -FI_ENOENT;
  report_cancelled(*op);
  return 0;
}

int DatagramEndpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  {
    sdk::Guard guard(own_lock);
    if (std::ranges::any_of(groups_, [](const Joined &joined) { return joined.group != nullptr; }))
      return -FI_EBUSY;
  }
  // Before any lock: an event queue takes the lock while it makes progress.
  if (eq() != nullptr) eq()->remove_source(domain_.fabric().engine());
  Object::retire();
  const bool was_enabled = enabled();
  if (was_enabled) {
    {
      sdk::Guard guard(own_lock);
      post_kept();
    }
    drop_queue_pair();
  }
  {
    sdk::Guard guard(domain_.engine().lock());
    sdk::Guard own(own_lock);
    for (uint32_t index = 0; index < remotes_end_; ++index) forget(index);
    destroy_retired(true);
    detach();
    EndpointCore::release(was_enabled ? this : nullptr);
  }
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::verbs
