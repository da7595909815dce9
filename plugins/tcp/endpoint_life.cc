// SPDX-License-Identifier: BSD-2-Clause
// An endpoint's life: opening, binding, options, closing. Its tables and its data path are in
// endpoint.cc, connecting is in connect.cc.
#include <poll.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/passive_endpoint.h"
#include "plugins/tcp/shared_receive.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  WEFT_CHECK(check(info, kMaxQueueSize));
  std::unique_ptr<Endpoint, void (*)(Endpoint *)> ep(new Endpoint(domain, info, context),
                                                     [](Endpoint *e) { delete e; });
  WEFT_TRY(ep->keys_, Keys::of(info, &domain.keys(), domain.fabric().settings(),
                               domain.fabric().api_version()));
  WEFT_TRY(ep->dscp_, sdk::endpoint_dscp(info, domain.fabric().api_version(), domain.dscp()));
  {
    sdk::Guard guard(domain.fabric().engine().lock());
    WEFT_TRY(const sdk::Connections::Named named, ep->find_names(info));
    if ((named.passive != nullptr && dynamic_cast<PassiveEndpoint *>(named.passive) == nullptr) ||
        (named.request != nullptr && dynamic_cast<ConnectRequest *>(named.request) == nullptr))
      return fail(FI_EINVAL,
                  "fi_endpoint: info->handle is of FI_EP_SOCK_STREAM, and the endpoint of "
                  "FI_EP_MSG");
    WEFT_CHECK(ep->publish(domain.base()));
    if (sdk::PassiveCore *const passive = ep->take_names(named))
      ep->bound_.reset(static_cast<PassiveEndpoint *>(passive)->release_socket());
  }
  domain.shared().children.fetch_add(1);
  sdk::Guard guard(domain.engine().lock());
  domain.endpoints().push_back(ep.get());
  return ep.release();
}

int Endpoint::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_SRX_CTX) return bind_shared_receive(fid, flags);
  return bind_connected(fid, flags);
}

// It must belong to this domain, and not be one for unconnected endpoints.
int Endpoint::bind_shared_receive(const struct fid *fid, uint64_t flags) {
  sdk::Guard guard(lock());
  if (enabled()) return -FI_EOPBADSTATE;
  const auto &all = domain_.shared_receives();
  const auto at = std::ranges::find(all, fid, &SharedReceiveContext::base);
  if (at == all.end()) {
    const bool is_mine = SharedReceiveContext::is_mine(fid, fid->fclass, instance());
    return is_mine && sdk::has_other_parent(fid, domain_.base()) ? -FI_EDOMAIN : -FI_EINVAL;
  }
  if (flags != 0) return -FI_EBADFLAGS;
  if (srx_ != nullptr) return -FI_EBUSY;
  if (own_recvs_.front() != nullptr) return -FI_EOPBADSTATE;  // it has receives of its own
  hold((*at)->users);
  srx_ = *at;
  return 0;
}

Result<void> Endpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings(srx_ != nullptr));
  set_enabled();
  return {};
}

int Endpoint::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) != WEFT_CARRIER_OPS) return -FI_ENOSYS;
  *ops = const_cast<weft_carrier_ops *>(&carrier_ops());
  return 0;
}

const weft_carrier_ops &Endpoint::carrier_ops() {
  static const weft_carrier_ops carrier = {
      sizeof(weft_carrier_ops),
      [](struct fid_ep *fid, fi_addr_t source) -> int {
        Endpoint &ep = *Endpoint::from(fid);
        sdk::Guard guard(ep.engine_.lock());
        if (ep.state_ != State::kIdle) return -FI_EOPBADSTATE;
        ep.source_ = source;
        return 0;
      },
      [](struct fid_ep *fid, const iovec *iov, uint64_t access, struct fid_mr **mr) -> int {
        return Endpoint::from(fid)->expose(*iov, access, mr);
      },
      [](struct fid_ep *fid, int held) -> int {
        Endpoint &ep = *Endpoint::from(fid);
        sdk::Guard guard(ep.engine_.lock());
        ep.messages_held_ = held != 0;
        if (!ep.messages_held_ && ep.state_ == State::kConnected) ep.continue_stalled();
        return 0;
      },
      kOfLayers,
  };
  return carrier;
}

int Endpoint::expose(const iovec &iov, uint64_t access, struct fid_mr **mr) {
  sdk::MrTable &regions = domain_.regions();
  {
    sdk::Guard guard(engine_.lock());
    if (holder_ == 0) holder_ = regions.new_holder();
  }
  const fi_mr_attr attr{.mr_iov = &iov, .iov_count = 1, .access = access};
  return sdk::finish(instance(), FI_LOG_MR, regions.reg(attr, 0, holder_), mr);
}

void Endpoint::join_group(uint64_t group) {
  sdk::Guard guard(engine_.lock());
  group_ = group;
}

// The kernel goes on with what it holds when the socket is closed, unless the peer sends something.
// The endpoints of a domain share the time for peers that do not read.
void Endpoint::wait_for_kernel() {
  sdk::LingerBudget &budget = domain_.linger_budget();
  const uint64_t begin = sdk::now_ns();
  const uint64_t most = domain_.fabric().settings().close_linger_ns();
  const uint64_t end = budget.until(begin, most);
  while (has_unsent(socket_)) {
    ::poll(nullptr, 0, 1);
    if (const uint64_t now = sdk::now_ns(); now >= end) return budget.spend(now - begin);
  }
}

bool Endpoint::owes(bool exits) {
  return open() && !output_lost() && (has_unasked() || (exits && has_unsent(socket_)));
}

int Endpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  leave_event_queue();
  retire();
  {
    sdk::Guard guard(engine_.lock());
    if (state_ == State::kConnected) {
      flush_output();
      // Injected data must still be delivered: give the socket time to take it.
      uint64_t left = uint64_t(domain_.fabric().settings().close_linger_ms);
      const uint64_t start = sdk::now_ns();
      while (state_ == State::kConnected && !writer_.empty()) {
        const uint64_t spent = (sdk::now_ns() - start) / 1'000'000u;
        if (spent >= left) break;
        pollfd p{socket_, POLLOUT, 0};
        if (::poll(&p, 1, int(left - spent)) <= 0) break;
        flush_output();
      }
      if (state_ == State::kConnected) wait_for_kernel();
    }
    // Outstanding operations are dropped: their completions could name an endpoint that is gone
    // (fi_endpoint.3, fi_close).
    detach();
    settle();
    disconnect(FI_ECANCELED, false);
    if (eq() != nullptr) eq()->forget(base());
    std::erase(domain_.endpoints(), this);
    release(nullptr);
  }
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

int Endpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  sdk::Guard guard(lock());
  switch (name) {
    case FI_OPT_MIN_MULTI_RECV:
      return sdk::get_option(min_multi_recv(), value, length);
    case FI_OPT_RX_SIZE:
      return sdk::get_option(recv_queue().size(), value, length);
    case FI_OPT_CM_DATA_SIZE:
    case FI_OPT_TX_SIZE:
    case FI_OPT_MAX_MSG_SIZE:
    case FI_OPT_MAX_RMA_SIZE:
    case FI_OPT_INJECT_MSG_SIZE:
    case FI_OPT_INJECT_RMA_SIZE:
    case FI_OPT_FI_HMEM_P2P:
      return get_limit(level, name, value, length);
    default:
      return -FI_ENOPROTOOPT;
  }
}

int Endpoint::setopt(int level, int name, const void *value, size_t length) {
  sdk::Guard guard(engine_.lock());
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
    return set_hmem_option(level, name, value, length);
  return sdk::set_option(min_multi_recv_, value, length);
}

}  // namespace weft::tcp
