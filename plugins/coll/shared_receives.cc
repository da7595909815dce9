// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/shared_receives.h"

#include <rdma/providers/fi_peer.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <memory>

#include "plugins/coll/collectives.h"
#include "plugins/coll/endpoint.h"

namespace weft::coll {

SharedReceives::SharedReceives(Domain &domain, uint64_t caps, uint64_t op_flags, size_t size,
                               void *context)
    : Object(domain.instance(), FI_CLASS_SRX_CTX, context),
      domain_(domain),
      caps_(caps),
      rx_flags_(op_flags),
      receives_(size, std::min(domain.inner_info().rx_attr->iov_limit, sdk::kIovLimit)) {
  sdk::fill_tables(*this);
}

SharedReceives::~SharedReceives() {
  if (inner_ != nullptr) fi_close(&inner_->fid);
}

Result<SharedReceives *> SharedReceives::open(Domain &domain, const fi_rx_attr *attr,
                                              void *context) {
  const fi_rx_attr none{};
  if (attr == nullptr) attr = &none;
  const size_t size = attr->size != 0 ? attr->size : domain.fabric().layer().options().rx_size;
  if (size > sdk::kMaxLayerQueue)
    return fail(FI_EINVAL, "fi_srx_context: rx_attr.size %zu: at most %zu", size,
                sdk::kMaxLayerQueue);
  const uint64_t known = domain.receive_caps();
  const uint64_t caps = attr->caps != 0 ? attr->caps : known;
  if ((caps & ~known) != 0)
    return fail(FI_EINVAL, "fi_srx_context: rx_attr.caps %#llx: of these coll does not have %#llx",
                (unsigned long long)caps, (unsigned long long)(caps & ~known));
  if (attr->op_flags & FI_PEER) {
    const auto *const owner = static_cast<const fi_peer_srx_context *>(context);
    if (owner == nullptr || owner->srx == nullptr)
      return fail(FI_EINVAL, "fi_srx_context: FI_PEER: the context names no owner (fi_peer.3)");
    return fail(FI_EOPNOTSUPP,
                "fi_srx_context: FI_PEER: coll takes no receives of another provider: bind queues "
                "and counters of it only");
  }
  if ((attr->op_flags & ~sdk::kRecvFlags) != 0)
    return fail(FI_EBADFLAGS, "fi_srx_context: rx_attr.op_flags %#llx are not those of receives",
                (unsigned long long)attr->op_flags);
  std::unique_ptr<SharedReceives, void (*)(SharedReceives *)> made(
      new SharedReceives(domain, caps, attr->op_flags, size, context),
      [](SharedReceives *one) { delete one; });
  WEFT_CHECK(made->open_inner());
  WEFT_CHECK(made->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return made.release();
}

Result<void> SharedReceives::open_inner() {
  WEFT_TRY(names_, Names::open(domain_));
  fi_rx_attr attr = *domain_.inner_info().rx_attr;
  attr.op_flags = 0;
  attr.size = receives_.size() + Collectives::kPlaces;
  if (const int rc = fi_srx_context(domain_.inner(), &attr, &inner_, nullptr); rc != 0)
    return fail(-rc, "fi_srx_context: the provider beneath has none of %zu receives", attr.size);
  return {};
}

SharedReceives *SharedReceives::find(Domain &domain, struct fid *fid) {
  if (!is_mine(fid, FI_CLASS_SRX_CTX, domain.instance())) return nullptr;
  SharedReceives *const found = from(fid);
  return &found->domain_ == &domain ? found : nullptr;
}

int Domain::srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context) {
  if (ep == nullptr) return -FI_EINVAL;
  return sdk::finish(instance(), FI_LOG_EP_CTRL, SharedReceives::open(*this, attr, context), ep);
}

sdk::Lock &SharedReceives::lock() {
  return domain_.engine().lock();
}

ssize_t SharedReceives::start(const sdk::RecvRequest &request) {
  return receives_.post(inner_, *names_, caps_, request);
}

ssize_t SharedReceives::cancel(void *context) {
  const sdk::Guard guard(lock());
  return receives_.cancel(inner_, context);
}

int SharedReceives::getopt(int level, int name, void *value, size_t *length) {
  if (level == FI_OPT_ENDPOINT && name == FI_OPT_RX_SIZE)
    return sdk::get_option(receives_.size(), value, length);
  return fi_getopt(&inner_->fid, level, name, value, length);
}

int SharedReceives::setopt(int level, int name, const void *value, size_t length) {
  return fi_setopt(&inner_->fid, level, name, value, length);
}

ssize_t SharedReceives::rx_size_left() {
  const sdk::Guard guard(lock());
  return ssize_t(left());
}

// The context beneath knows it: a receive that was taking a message of an endpoint that has closed
// has no completion.
size_t SharedReceives::left() const {
  const ssize_t beneath = inner_->ops->rx_size_left(inner_);
  if (beneath < 0) return receives_.left();
  const size_t all = size_t(beneath) + of_groups_;
  return std::min(receives_.size(), all - std::min(all, Collectives::kPlaces));
}

int SharedReceives::control(int command, void *arg) {
  if (command == FI_ENABLE) return 0;
  const sdk::Guard guard(lock());
  return sdk::control_op_flags(command, arg, 0, nullptr, &rx_flags_);
}

int SharedReceives::close() {
  if (users.load() != 0) return -FI_EBUSY;
  retire();
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

void SharedReceives::poll_beneath() {
  for (Endpoint *const endpoint : endpoints_) endpoint->poll_beneath();
}

ssize_t SharedReceives::receive(Wire &wire) {
  const ssize_t rc = Collectives::receive(inner_, wire);
  of_groups_ += rc == 0;
  return rc;
}

void SharedReceives::open_packets() {
  if (!packets_.empty()) return;
  for (size_t i = 0; i < Collectives::kPackets; ++i) {
    packets_.push_back(std::make_unique<Wire>());
    Wire &packet = *packets_.back();
    packet.kind = Posted::kPacketIn;
    packet.peer = FI_ADDR_UNSPEC;
    packet.iov = {packet.bytes.data(), packet.bytes.size()};
    idle_packets_.push_back(&packet);
  }
  post_packets();
}

void SharedReceives::post_packets() {
  while (!idle_packets_.empty() && receive(*idle_packets_.back()) == 0) idle_packets_.pop_back();
}

}  // namespace weft::coll
