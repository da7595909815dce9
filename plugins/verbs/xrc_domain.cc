// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/xrc_domain.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "plugins/verbs/fabric.h"
#include "plugins/verbs/xrc_endpoint.h"

namespace weft::verbs {

Result<std::unique_ptr<XrcDomain>> XrcDomain::open(Domain &domain) {
  ibv_xrcd_init_attr init{};
  init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  init.fd = -1;  // of this process alone
  init.oflags = O_CREAT;
  ibv_xrcd *const xrcd = ibv_open_xrcd(domain.device().verbs, &init);
  if (xrcd != nullptr) return std::make_unique<XrcDomain>(domain, xrcd);
  return fail(errno, "fi_domain: ibv_open_xrcd on %s: %s: has the device XRC?",
              domain.device().facts.name.c_str(), strerror(errno));
}

XrcDomain::~XrcDomain() {
  for (const auto &[host, listener] : listeners_) listener->close();
  initiators_.clear();
  targets_.clear();
  ibv_close_xrcd(xrcd_);
}

uint32_t XrcDomain::join(XrcEndpoint &endpoint) {
  while (endpoints_.contains(next_tag_)) ++next_tag_;
  endpoints_.emplace(next_tag_, &endpoint);
  return next_tag_++;
}

// ---- the shared queue pairs ----

XrcInitiator &XrcDomain::initiator(const sdk::Address &peer, CompletionQueue &queue) {
  const Key key(peer, &queue);
  if (const auto at = known_.find(key); at != known_.end()) return *at->second;
  auto made = std::make_unique<XrcInitiator>(*this, peer, queue);
  XrcInitiator &initiator = *made;
  initiators_.emplace(&initiator, std::move(made));
  known_.emplace(key, &initiator);
  return initiator;
}

void XrcDomain::forget(XrcInitiator &initiator) {
  const auto at = known_.find({initiator.peer(), &initiator.queue()});
  if (at != known_.end() && at->second == &initiator) known_.erase(at);
}

void XrcDomain::drop(XrcInitiator &initiator) {
  forget(initiator);
  initiators_.erase(&initiator);
}

Result<XrcTarget *> XrcDomain::make_target(rdma_cm_id *id) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = xrcd_;
  if (rdma_create_qp_ex(id, &init) != 0)
    return fail(errno, "rdma_create_qp_ex of an XRC target on %s: %s",
                domain_.device().facts.name.c_str(), strerror(errno));
  auto made = std::make_unique<XrcTarget>(*this, id);
  XrcTarget *const target = made.get();
  targets_.emplace(target->number(), std::move(made));
  return target;
}

XrcTarget *XrcDomain::find_target(uint32_t number) const {
  const auto at = targets_.find(number);
  return at != targets_.end() ? at->second.get() : nullptr;
}

void XrcDomain::drop(XrcTarget &target) {
  targets_.erase(target.number());
}

// ---- reciprocal connections ----

Result<uint16_t> XrcDomain::listen(const sdk::Address &local) {
  WEFT_TRY(const sdk::Address host, local.with_port(0));
  auto &listener = listeners_[host];
  if (listener == nullptr) {
    auto made = std::make_unique<Listener>(*this, host);
    if (auto opened = open(*made); !opened) {
      made->close();
      listeners_.erase(host);
      return tl::unexpected(std::move(opened).error());
    }
    listener = std::move(made);
  }
  return local_address(*listener->connections).port();
}

// Connections and lookups come to one port.
Result<void> XrcDomain::open(Listener &listener) {
  Channel &channel = domain_.fabric().channel();
  const int backlog = domain_.settings().backlog;
  constexpr int kTries = 16;
  for (int tries = 0; tries < kTries; ++tries) {
    listener.close();
    WEFT_TRY(listener.connections, channel.make_id(listener));
    if (rdma_bind_addr(listener.connections, c_address(listener.host)) != 0) break;
    WEFT_TRY(listener.lookups, channel.make_id(listener, RDMA_PS_UDP));
    if (rdma_bind_addr(listener.lookups, c_address(local_address(*listener.connections))) != 0 &&
        errno == EADDRINUSE)
      continue;
    if (rdma_listen(listener.connections, backlog) != 0) break;
    if (rdma_listen(listener.lookups, backlog) != 0) break;
    return {};
  }
  return fail(errno, "no port of %s for reciprocal connections: %s",
              listener.host.to_string().c_str(), strerror(errno));
}

void XrcDomain::Listener::close() {
  for (rdma_cm_id **id : {&connections, &lookups})
    if (*id != nullptr) rdma_destroy_id(std::exchange(*id, nullptr));
}

void XrcDomain::on_event(Listener &listener, const ChannelEvent &event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    rdma_destroy_id(event.id);  // the kernel waits for that
    (event.id == listener.connections ? listener.connections : listener.lookups) = nullptr;
    return;
  }
  if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
  const auto request = parse_xrc(event.data);
  if (request && answer_reciprocal(event.id, *request)) return;
  domain_.fabric().counters().connections_failed.add();
  rdma_reject(event.id, nullptr, 0);
  rdma_destroy_id(event.id);
}

// False: it is none that an endpoint of ours waits for, and `id` is the caller's.
bool XrcDomain::answer_reciprocal(rdma_cm_id *id, const XrcReceived &request) {
  const auto at = endpoints_.find(request.data.tag);
  if (!request.data.reciprocal || at == endpoints_.end()) return false;
  return at->second->accept_reciprocal(id, request.data);
}

}  // namespace weft::verbs
