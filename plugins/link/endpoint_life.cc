// SPDX-License-Identifier: BSD-2-Clause
// The life of an endpoint: what it opens beneath, its names, fi_enable and fi_close.
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <string>
#include <utility>

#include "plugins/link/endpoint.h"
#include "plugins/link/local_name.h"

namespace weft::link {
namespace {

sdk::EndpointLimits limits_over(const fi_info &info) {
  return {.tx_size = info.tx_attr->size,
          .rx_size = info.rx_attr->size,
          .inject_size = info.tx_attr->inject_size,
          .max_inject_size = SIZE_MAX,  // of what fi_getinfo grants
          .max_msg_size = info.ep_attr->max_msg_size,
          .early_receives = true};
}

// Bytes of an atomic operation of both; 0: there is none.
size_t atomic_size_of(Domain &domain) {
  fi_atomic_attr attr{};
  return domain.query_atomic(FI_UINT8, FI_ATOMIC_WRITE, &attr, 0) == 0 ? attr.count : 0;
}

// The smaller of both providers'.
sdk::EndpointLimits limits_of(Domain &domain) {
  sdk::EndpointLimits limits = limits_over(domain.inner_info());
  limits.atomic_size = atomic_size_of(domain);
  if (!domain.has_local()) return limits;
  const sdk::EndpointLimits local = limits_over(domain.branch(kLocal).info());
  limits.tx_size = std::min(limits.tx_size, local.tx_size);
  limits.rx_size = std::min(limits.rx_size, local.rx_size);
  limits.inject_size = std::min(limits.inject_size, local.inject_size);
  limits.max_msg_size = std::min(limits.max_msg_size, local.max_msg_size);
  return limits;
}

constexpr uint64_t kOwnersCaps = FI_PEER | FI_AV_USER_ID | FI_LOCAL_COMM | FI_REMOTE_COMM;

}  // namespace

Endpoint::Endpoint(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      RdmEndpoint(domain.shared(), *this, info, limits_of(domain)),
      domain_(domain),
      part_(domain.fabric().stats(), counts_) {
  sdk::fill_tables(*this);
}

Endpoint::~Endpoint() {
  close_beneath();
}

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  auto endpoint = std::make_unique<Endpoint>(domain, info, context);
  WEFT_CHECK(endpoint->open_beneath(info));
  WEFT_CHECK(endpoint->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return endpoint.release();
}

Result<void> Endpoint::open_beneath(const fi_info &info) {
  for (size_t i = 0; i < domain_.branches(); ++i) WEFT_CHECK(open_branch(i, info));
  if (!domain_.has_local()) return {};
  void *ops = nullptr;
  if (fi_open_ops(&beneath_[kLocal]->fid, WEFT_LOCAL_OPS, 0, &ops, nullptr) != 0)
    return fail(FI_ENOSYS,
                "link: the first provider beneath cannot tell who is on this host: name shm there, "
                "as in (shm+tcp);link");
  local_ops_ = static_cast<const weft_local_ops *>(ops);
  // As the C API has no atomics, it is a plain number there.
  losses_ = reinterpret_cast<const std::atomic<uint64_t> *>(local_ops_->losses(beneath_[kLocal]));
  return {};
}

// What the application passed to fi_endpoint holds for both. Receives are the layer's.
Result<void> Endpoint::open_branch(size_t branch, const fi_info &info) {
  const fi_info *found = &domain_.branch(branch).info();
  sdk::InfoList more(instance()->core);
  if (info.caps & ~found->caps & offered_caps()) {  // than the domain was opened with
    const LinkLayer &layer = domain_.fabric().layer();
    WEFT_TRY(more, branch == kLocal ? layer.local_info(info) : layer.inner_info(info));
    found = more.front();
  }
  fi_info below = *found;  // not a deep copy: fi_endpoint only reads it
  fi_tx_attr tx = *below.tx_attr;
  fi_rx_attr rx = *below.rx_attr;
  fi_ep_attr ep = *below.ep_attr;
  below.caps &= info.caps | kOwnersCaps;
  tx.caps &= below.caps;
  rx.caps &= below.caps;
  if (info.tx_attr != nullptr) {
    if (info.tx_attr->caps != 0) tx.caps &= info.tx_attr->caps;
    tx.op_flags = info.tx_attr->op_flags;
    if (info.tx_attr->size != 0) tx.size = info.tx_attr->size;
    tx.inject_size = std::max(tx.inject_size, info.tx_attr->inject_size);
  }
  if (info.rx_attr != nullptr) {
    if (info.rx_attr->caps != 0) rx.caps &= info.rx_attr->caps | kOwnersCaps;
    rx.op_flags = info.rx_attr->op_flags;
    if (info.rx_attr->size != 0) rx.size = info.rx_attr->size;
  }
  ep.rx_ctx_cnt = FI_SHARED_CONTEXT;
  if (sdk::wants_shared_transmit(info)) ep.tx_ctx_cnt = FI_SHARED_CONTEXT;
  below.tx_attr = &tx;
  below.rx_attr = &rx;
  below.ep_attr = &ep;
  if (branch == kNetwork) {
    tx.tclass = sdk::endpoint_class(info, domain_.fabric().api_version());
    if (info.src_addr != nullptr) {
      below.src_addr = info.src_addr;
      below.src_addrlen = info.src_addrlen;
    }
  }
  const int rc = fi_endpoint(domain_.branch(branch).domain(), &below, &beneath_[branch], context());
  if (rc != 0)
    return fail(-rc, "link: the %s provider beneath has no endpoint for it: see its log lines",
                branch == kLocal ? "first" : "second");
  return {};
}

// ---- what is bound ----

template <class Lent>
int Endpoint::bind_lent(Result<std::shared_ptr<Lent>> lent,
                        std::vector<std::shared_ptr<Lent>> &kept, uint64_t flags) {
  if (!lent) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", lent.error().text.c_str());
    return -lent.error().code;
  }
  kept.push_back(*lent);
  for (size_t i = 0; i < domain_.branches(); ++i)
    if (const int rc = fi_ep_bind(beneath_[i], &(*lent)->at(i)->fid, flags); rc != 0) return rc;
  return 0;
}

int Endpoint::bind_beneath(struct fid *fid, uint64_t flags) {
  switch (fid->fclass) {
    case FI_CLASS_CQ:
      return bind_lent(domain_.lend(*sdk::Cq::from(fid)), queues_, flags);
    case FI_CLASS_CNTR:
      return bind_lent(domain_.lend(*sdk::Cntr::from(fid)), counters_, flags);
    case FI_CLASS_SRX_CTX:
      return bind_lent(domain_.lend(*sdk::SharedReceiveContext::from(fid)), receives_, 0);
    case FI_CLASS_STX_CTX:
      return bind_lent(domain_.lend(*sdk::SharedTransmit::from(fid)), transmits_, 0);
    case FI_CLASS_AV: {
      std::vector<std::shared_ptr<Names>> kept;
      const int rc = bind_lent(domain_.names(*sdk::Av::from(fid)), kept, 0);
      if (!kept.empty()) names_ = kept.front();
      return rc;
    }
    default:
      return 0;  // an event queue: the layer's
  }
}

int Endpoint::bind(struct fid *fid, uint64_t flags) {
  if (const int rc = RdmEndpoint::bind_object(fid, flags); rc != 0) return rc;
  return bind_beneath(fid, flags);
}

// ---- names ----

// The network gives the name; who looks for it on this host finds this endpoint, too. Before
// anybody can know the name.
Result<void> Endpoint::take_name() {
  if (is_named_) return {};
  char name[256];
  size_t length = sizeof name;
  if (const int rc = fi_getname(&beneath_[kNetwork]->fid, name, &length); rc != 0)
    return fail(-rc, "link: the endpoint of the network has no name: see its log lines");
  is_named_ = true;
  if (!domain_.has_local()) return {};
  WEFT_TRY(const sdk::Address address,
           sdk::read_address(domain_.inner_info().addr_format, name, length));
  if (const auto listening = listen(address); !listening) {
    domain_.fabric().stats()->names_taken.add();
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", listening.error().text.c_str());
  }
  return {};
}

Result<void> Endpoint::listen(const sdk::Address &address) {
  std::string text = sdk::format_address_string(local_name(address));
  const int rc = fi_setname(&beneath_[kLocal]->fid, text.data(), text.size() + 1);
  if (rc != 0)
    return fail(-rc,
                "link: another endpoint of this host has the name of %s (%s): this one reaches its "
                "peers by the network alone",
                address.to_string().c_str(), text.c_str());
  listens_ = true;
  return {};
}

int Endpoint::setname(void *addr, size_t length) {
  if (enabled()) return -FI_EOPBADSTATE;
  is_named_ = listens_ = false;
  return fi_setname(&beneath_[kNetwork]->fid, addr, length);
}

int Endpoint::getname(void *addr, size_t *length) {
  if (auto named = take_name(); !named) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_getname: %s", named.error().text.c_str());
    return -named.error().code;
  }
  return fi_getname(&beneath_[kNetwork]->fid, addr, length);
}

// ---- fi_enable ----

// Receives of its own are a context that nobody else uses.
Result<void> Endpoint::open_receives() {
  fi_rx_attr attr{};
  attr.size = limits().rx_size;
  WEFT_TRY(own_receives_,
           sdk::SharedReceiveContext::open(domain_.shared(), &attr,
                                           {.caps = receive_caps_over(domain_.inner_info()),
                                            .size = limits().rx_size,
                                            .max_size = sdk::kMaxQueueSize,
                                            .min_multi_recv = receiver().min_multi_recv()},
                                           nullptr));
  const int rc = bind(own_receives_->base(), 0);
  if (rc != 0) return fail(-rc, "link: the endpoints beneath take no receives of the layer");
  const sdk::Guard guard(domain_.engine().lock());
  receiver().share(own_receives_->receiver());
  return {};
}

// Before fi_enable, by the first receive.
ssize_t Endpoint::open_receives_early() {
  if (!receives_.empty()) return -FI_EOPNOTSUPP;  // those that the application shares
  const auto opened = open_receives();
  return opened ? 0 : -opened.error().code;
}

Result<void> Endpoint::enable() {
  WEFT_CHECK(check_bindings());
  if (receives_.empty()) WEFT_CHECK(open_receives());
  WEFT_CHECK(take_name());
  for (size_t i = domain_.branches(); i-- > 0;)
    if (const int rc = fi_enable(beneath_[i]); rc != 0)
      return fail(-rc, "link: fi_enable of an endpoint beneath: see the log lines before");
  const sdk::Guard guard(domain_.engine().lock());
  av()->add_user(*this);
  if (own_receives_ != nullptr)
    EndpointCore::set_enabled();
  else
    set_enabled();
  return {};
}

int Endpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<Endpoint>::open(*this, arg);
  if (command != FI_ENABLE) {
    const int rc = control_flags(command, arg, kSendFlags);
    if (rc != 0 || command != FI_SETOPSFLAG) return rc;
    for (size_t i = 0; i < domain_.branches(); ++i) {  // of fi_inject and its like
      uint64_t flags = *static_cast<uint64_t *>(arg);
      (void)fi_control(&beneath_[i]->fid, FI_SETOPSFLAG, &flags);
    }
    return 0;
  }
  if (enabled()) return 0;
  if (auto done = enable(); !done) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
    return -done.error().code;
  }
  return 0;
}

// ---- fi_close ----

// What reports goes before what it reports to.
void Endpoint::close_beneath() {
  for (fid_ep *&ep : beneath_)
    if (ep != nullptr) fi_close(&std::exchange(ep, nullptr)->fid);
  if (domain_.watch().any()) {
    for (const std::shared_ptr<LentQueue> &queue : queues_) queue->tell_again();
    const sdk::Guard guard(domain_.engine().lock());
    const bool are_full = std::ranges::any_of(
        queues_, [](const std::shared_ptr<LentQueue> &queue) { return queue->is_full(); });
    domain_.watch().forget(*this, !are_full);
  }
  receives_.clear();
  transmits_.clear();
  for (std::shared_ptr<LentQueue> &queue : queues_) domain_.drop(queue);
  queues_.clear();
  counters_.clear();
  domain_.drop(names_);
}

int Endpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  retire();
  close_beneath();
  {
    const sdk::Guard guard(domain_.engine().lock());
    detach();
    release(enabled() ? this : nullptr);
  }
  if (own_receives_ != nullptr) own_receives_->close();
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

void Endpoint::close_copies() {
  for (fid_ep *const ep : beneath_)
    if (ep != nullptr) fi_close(&ep->fid);
}

}  // namespace weft::link
