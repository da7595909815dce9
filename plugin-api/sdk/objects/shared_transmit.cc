// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/shared_transmit.h>

#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>

#include <algorithm>

namespace weft::sdk {

namespace {

constexpr uint64_t kTransfers = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;

// A fid_stx has the calls of an endpoint, whose fid is of another kind; the calls of this one only
// look at what both kinds have at their beginning.
struct Calls : Object<Calls, fid_ep> {
  int getopt(int level, int name, void *value, size_t *length) {
    return SharedTransmit::from(base())->getopt(level, name, value, length);
  }
  ssize_t tx_size_left() { return SharedTransmit::from(base())->tx_size_left(); }
};

}  // namespace

SharedTransmit::SharedTransmit(DomainContext &domain, uint64_t caps, size_t size,
                               size_t inject_size, void *context)
    : Object(domain.instance, FI_CLASS_STX_CTX, context),
      domain_(domain),
      caps_(caps),
      size_(size),
      inject_size_(inject_size) {
  c()->fid.ops = c_table(fid_ops<SharedTransmit>());
  c()->ops = c_table(ep_ops<Calls>());
}

Result<SharedTransmit *> SharedTransmit::open(DomainContext &domain, const fi_tx_attr *attr,
                                              const SharedTransmitOffer &offer, void *context) {
  const fi_tx_attr none{};
  if (attr == nullptr) attr = &none;
  const size_t size = attr->size != 0 ? attr->size : offer.size;
  if (size > offer.max_size)
    return fail(FI_EINVAL, "fi_stx_context: tx_attr.size %zu: at most %zu", size, offer.max_size);
  if (attr->inject_size > offer.inject_size)
    return fail(FI_EINVAL, "fi_stx_context: tx_attr.inject_size %zu: at most %zu",
                attr->inject_size, offer.inject_size);
  const uint64_t caps = attr->caps != 0 ? attr->caps : offer.caps;
  if ((caps & kTransfers & ~offer.caps) != 0)
    return fail(FI_EINVAL,
                "fi_stx_context: tx_attr.caps %#llx: of these this provider does not have %#llx",
                (unsigned long long)caps, (unsigned long long)(caps & kTransfers & ~offer.caps));
  std::unique_ptr<SharedTransmit, void (*)(SharedTransmit *)> made(
      new SharedTransmit(domain, caps, size,
                         attr->inject_size != 0 ? attr->inject_size : offer.inject_size, context),
      [](SharedTransmit *stx) { delete stx; });
  WEFT_CHECK(made->publish(domain.fid));
  domain.children.fetch_add(1);
  return made.release();
}

const char *SharedTransmit::refusal(uint64_t caps, size_t tx_size, size_t inject_size) const {
  if ((caps & kTransfers & ~caps_) != 0)
    return "the endpoint has capabilities that the shared transmit context has not";
  if (tx_size > size_) return "the endpoint's tx_attr.size is more than the shared context's";
  if (inject_size > inject_size_)
    return "the endpoint's tx_attr.inject_size is more than the shared context's";
  return nullptr;
}

void SharedTransmit::leave(EndpointCore &endpoint) {
  std::erase(endpoints_, &endpoint);
}

size_t SharedTransmit::in_flight() const {
  size_t sum = 0;
  for (EndpointCore *endpoint : endpoints_) sum += endpoint->in_flight();
  return sum;
}

bool SharedTransmit::is_full() const {
  return in_flight() >= size_;
}

int SharedTransmit::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  switch (name) {
    case FI_OPT_TX_SIZE:
      return get_option(size_, value, length);
    case FI_OPT_INJECT_MSG_SIZE:
    case FI_OPT_INJECT_TAGGED_SIZE:
    case FI_OPT_INJECT_RMA_SIZE:
      return get_option(inject_size_, value, length);
    default:
      return -FI_ENOPROTOOPT;
  }
}

ssize_t SharedTransmit::tx_size_left() {
  const Guard guard(domain_.engine->lock());
  const size_t used = in_flight();
  return used < size_ ? ssize_t(size_ - used) : 0;
}

int SharedTransmit::close() {
  {
    const Guard guard(domain_.engine->lock());
    if (std::ranges::any_of(endpoints_, &EndpointCore::needs_shared_transmit)) return -FI_EBUSY;
    for (EndpointCore *endpoint : endpoints_) endpoint->drop_shared_transmit();
    endpoints_.clear();
  }
  retire();
  domain_.children.fetch_sub(1);
  delete this;
  return 0;
}

int open_shared_transmit(DomainContext &domain, const fi_tx_attr *attr,
                         const SharedTransmitOffer &offer, fid_stx **stx, void *context) {
  if (stx == nullptr) return -FI_EINVAL;
  return finish(domain.instance, FI_LOG_EP_CTRL, SharedTransmit::open(domain, attr, offer, context),
                stx);
}

}  // namespace weft::sdk
