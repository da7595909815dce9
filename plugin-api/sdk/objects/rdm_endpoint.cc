// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/rdm_endpoint.h>
#include <weft/sdk/transfers/buffered.h>

#include "plugin-api/sdk/transfers/buffered_receives.h"

namespace weft::sdk {

RdmEndpoint::RdmEndpoint(DomainContext &domain, ReceiverSink &sink, const fi_info &info,
                         const EndpointLimits &limits)
    : EndpointCore(domain, PeerKind::kUnconnected, info, limits, &transmit_, &receiver_),
      transmit_(info),
      receiver_(sink, {.size = EndpointCore::limits().rx_size,
                       .directed = (info.caps & FI_DIRECTED_RECV) != 0,
                       .source = (info.caps & FI_SOURCE) != 0,
                       .source_err = (info.caps & FI_SOURCE_ERR) != 0,
                       .descriptors = domain.keeps_descriptors,
                       .keeps = domain.keeps_receives,
                       .buffered = limits.may_buffer && is_buffered(info, domain.api_version),
                       .devices = domain.devices}) {
  receiver_.take_flags(info);
}

void RdmEndpoint::name_endpoint(fid_ep *ep) {
  if (receiver_.buffered() != nullptr) receiver_.buffered()->set_endpoint(ep);
}

int RdmEndpoint::bind_object(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass != FI_CLASS_SRX_CTX) return EndpointCore::bind_object(fid, flags);
  Guard guard(lock());
  if (enabled()) return -FI_EOPBADSTATE;
  SharedReceiveContext *const srx = SharedReceiveContext::find(core_domain_, fid);
  if (srx == nullptr) {  // of another domain, or for connected endpoints
    const bool is_mine = SharedReceiveContext::is_mine(fid, fid->fclass, core_domain_.instance);
    return is_mine && has_other_parent(fid, core_domain_.known().fid) ? -FI_EDOMAIN : -FI_EINVAL;
  }
  if (flags != 0) return -FI_EBADFLAGS;
  if (shared_ != nullptr) return -FI_EBUSY;
  if (receiver_.posted() != 0) return -FI_EOPBADSTATE;  // receives of its own
  if (receiver_.buffered() != nullptr) return -FI_EOPNOTSUPP;
  // The context must have the capabilities of the endpoint (fi_endpoint.3).
  if ((caps() & (FI_MSG | FI_TAGGED)) & ~srx->caps()) return -FI_EINVAL;
  hold(srx->users);
  shared_ = srx;
  return 0;
}

Result<void> RdmEndpoint::check_bindings() const {
  WEFT_CHECK(EndpointCore::check_bindings(shared_ != nullptr));
  if (shared_ != nullptr && !shared_->receiver().takes(av()))
    return fail(FI_EINVAL,
                "fi_enable: endpoints that share a receive context must have the same address "
                "vector (fi_endpoint.3, SHARED CONTEXTS), and this one has another");
  return {};
}

void RdmEndpoint::set_enabled() {
  if (shared_ != nullptr) receiver_.share(shared_->receiver());
  EndpointCore::set_enabled();
}

ssize_t RdmEndpoint::cancel(void *context) {
  {
    Guard guard(lock());
    if (const ssize_t rc = receiver_.cancel(context); rc != -FI_ENOENT) return rc;
  }
  return cancel_deferred(context);
}

int RdmEndpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT) return get_limit(level, name, value, length);
  Guard guard(lock());
  const BufferedReceives *const buffered = receiver_.buffered();
  if (name == FI_OPT_MIN_MULTI_RECV) return get_option(receiver_.min_multi_recv(), value, length);
  if (name == FI_OPT_BUFFERED_LIMIT && buffered != nullptr)
    return get_option(buffered->limit(), value, length);
  if (name == FI_OPT_BUFFERED_MIN && buffered != nullptr)
    return get_option(buffered->min(), value, length);
  return get_limit(level, name, value, length);
}

int RdmEndpoint::setopt(int level, int name, const void *value, size_t length) {
  Guard guard(lock());
  if (level == FI_OPT_ENDPOINT && name == FI_OPT_MIN_MULTI_RECV)
    return set_option(receiver_.min_multi_recv(), value, length);
  if (level == FI_OPT_ENDPOINT && receiver_.buffered() != nullptr &&
      (name == FI_OPT_BUFFERED_LIMIT || name == FI_OPT_BUFFERED_MIN)) {
    size_t bytes = 0;
    if (const int rc = set_option(bytes, value, length); rc != 0) return rc;
    if (enabled()) return -FI_EOPBADSTATE;
    return name == FI_OPT_BUFFERED_LIMIT ? receiver_.buffered()->set_limit(bytes)
                                         : receiver_.buffered()->set_min(bytes);
  }
  return set_hmem_option(level, name, value, length);
}

ssize_t RdmEndpoint::rx_size_left() {
  Guard guard(lock());
  return enabled() ? ssize_t(receiver_.left()) : -FI_EOPBADSTATE;
}

void RdmEndpoint::report_remote_write(uint64_t length, uint64_t data, uint32_t source,
                                      bool atomic) {
  const bool named = caps() & FI_SOURCE && av() != nullptr && source < Matcher::kFirstUnnamed;
  receiver_.report_remote_write(length, data, named ? av()->reported(source) : FI_ADDR_NOTAVAIL,
                                atomic);
}

void RdmEndpoint::release(AvUser *user) {
  receiver_.leave();
  shared_ = nullptr;
  EndpointCore::release(user);
}

}  // namespace weft::sdk
