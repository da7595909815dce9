// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-profile/state.h"

#include <rdma/fi_cm.h>

#include <algorithm>
#include <cstdio>

namespace weft::profile {
namespace {

void add(OperationSums &to, const Endpoint &endpoint) {
  for (size_t i = 0; i < kOperations; ++i) to[i].add(endpoint.sums(static_cast<Operation>(i)));
}

}  // namespace

// ---- the registry ----

void Registry::enter(EndpointState *endpoint) {
  std::lock_guard lock(mutex_);
  endpoints_[endpoint];
}

void Registry::leave(EndpointState *endpoint) {
  std::lock_guard lock(mutex_);
  const auto domain = domains_.find(endpoint->domain());
  if (domain != domains_.end()) add(domain->second->closed, endpoint->counting);
  endpoints_.erase(endpoint);
}

void Registry::enter(DomainState *domain) {
  std::lock_guard lock(mutex_);
  domains_[domain->fid] = domain;
}

void Registry::leave(DomainState *domain) {
  std::lock_guard lock(mutex_);
  domains_.erase(domain->fid);
}

void Registry::set_name(EndpointState *endpoint, std::string name) {
  std::lock_guard lock(mutex_);
  endpoints_[endpoint] = std::move(name);
}

std::vector<std::string> Registry::names() {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto &[endpoint, name] : endpoints_) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

OperationSums Registry::sums(const struct fid *fid) {
  std::lock_guard lock(mutex_);
  OperationSums sums{};
  const auto domain = domains_.find(fid);
  if (domain != domains_.end()) sums = domain->second->closed;
  for (const auto &[endpoint, name] : endpoints_) {
    if (endpoint->is(fid) || endpoint->domain() == fid) add(sums, endpoint->counting);
  }
  return sums;
}

// ---- states ----

DomainState::DomainState(Registry &registry, const struct fid *fid) : registry(registry), fid(fid) {
  registry.enter(this);
}
DomainState::~DomainState() {
  registry.leave(this);
}

EndpointState::EndpointState(Registry &registry, fid_ep *ep, std::shared_ptr<Segment> segment,
                             const Labels &labels, uint32_t sample)
    : counting(*this, sample),
      registry_(registry),
      ep_(ep),
      segment_(std::move(segment)),
      labels_(labels) {
  domain_ = sdk::header_of(&ep->fid)->parent_core;
  while (domain_ != nullptr && domain_->fclass != FI_CLASS_DOMAIN)
    domain_ = sdk::header_of(domain_)->parent_core;
  registry_.enter(this);
}
EndpointState::~EndpointState() {
  registry_.leave(this);
  counting.retire(*segment_);
}

OperationRecord *EndpointState::operation(Operation operation, PeerClass peer) {
  Labels labels = labels_;
  std::snprintf(labels.operation, sizeof labels.operation, "%s", kOperationNames[operation]);
  std::snprintf(labels.peer, sizeof labels.peer, "%s", peer_name(peer));
  return segment_->operation(labels);
}

PeerClass EndpointState::peer(fi_addr_t dest) {
  const weft_hook_link &link = *link_at(registry_.slot, &ep_->fid);
  alignas(16) char address[256];
  size_t length = sizeof address;
  if (counting.way() == Endpoint::kByAddress) {
    // `dest` may also name a receive context of a scalable endpoint (fi_rx_addr). If the address
    // vector does not know the number, the class is kAny.
    const auto *peers = state_at<AvState>(link, &av_->fid);
    if (peers == nullptr || dest == FI_ADDR_UNSPEC || dest == FI_ADDR_NOTAVAIL) return kAny;
    const weft_hook_link &av = *link_at(registry_.slot, &av_->fid);
    PeerClass where = kAny;
    if (av.next.av->lookup(av_, dest, address, &length) == 0)
      where = peer_class(address, std::min(length, sizeof address), registry_.names());
    peers->peers->keep(dest, where);
    return where;
  }
  if (link.next.cm == nullptr) {
    counting.set_peer(kAny);
    return kAny;
  }
  const int rc = link.next.cm->getpeer(ep_, address, &length);
  if (rc == 0) {
    learn_name();
    const PeerClass where =
        peer_class(address, std::min(length, sizeof address), registry_.names());
    counting.set_peer(where);
    return where;
  }
  if (rc != -FI_ENOTCONN) counting.set_peer(kAny);
  return kAny;
}

void EndpointState::bound(const weft_hook_link &link, struct fid *fid, uint64_t flags) {
  if (fid->fclass == FI_CLASS_CQ) {
    if (auto *state = state_at<QueueState>(link, fid)) {
      if ((flags & FI_TRANSMIT) != 0) counting.set_queue(false, state->queue);
      if ((flags & FI_RECV) != 0) counting.set_queue(true, state->queue);
    }
  } else if (fid->fclass == FI_CLASS_AV) {
    if (auto *state = state_at<AvState>(link, fid)) {
      av_ = reinterpret_cast<fid_av *>(fid);
      counting.set_peers(state->peers);
    }
  }
}

void EndpointState::learn_name() {
  const weft_hook_link &link = *link_at(registry_.slot, &ep_->fid);
  if (link.next.cm == nullptr) return;
  char name[256];
  size_t length = sizeof name;
  if (link.next.cm->getname(&ep_->fid, name, &length) == 0 && length <= sizeof name)
    registry_.set_name(this, std::string(name, length));
}

}  // namespace weft::profile
