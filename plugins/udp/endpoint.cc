// SPDX-License-Identifier: BSD-2-Clause
// An endpoint's op tables and its data path. Opening, names, options, groups and closing are in
// endpoint_life.cc.
#include "plugins/udp/endpoint.h"

#include <weft/sdk/objects/alias.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/udp/fabric.h"
#include "plugins/udp/group.h"

namespace weft::udp {
namespace {

constexpr uint64_t kRecvFlags = FI_COMPLETION | FI_MORE;

sdk::EndpointLimits limits_of(const Settings &settings, size_t max_msg_size) {
  return {.tx_size = settings.tx_size,
          .rx_size = settings.rx_size,
          .inject_size = max_msg_size,
          .max_msg_size = max_msg_size,
          .early_receives = true};
}

}  // namespace

// ---- tables ----

Endpoint::Endpoint(Domain &domain, const fi_info &info, size_t max_msg_size, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      EndpointCore(domain.shared(), sdk::PeerKind::kUnconnected, info,
                   limits_of(domain.fabric().settings(), max_msg_size), &tx_, &rx_),
      udp_domain_(domain),
      engine_(domain.engine()),
      addr_format_(info.addr_format),
      tx_(info),
      rx_(info),
      queue_(limits().rx_size),
      part_(domain.fabric().stats(), counters_),
      inlet_(*this, domain.engine(), queue_, domain.inlet_scratch(), counters_,
             domain.fabric().settings().offload),
      outlet_(*this, domain.outlet_scratch(), counters_, domain.fabric().settings().offload) {
  set_tables(*this);
}

const Settings &Endpoint::settings() const {
  return udp_domain_.fabric().settings();
}

int Endpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<Endpoint>::open(*this, arg);
  if (command != FI_ENABLE) return control_flags(command, arg, kDefaultSendFlags);
  sdk::Guard guard(lock());
  auto done = enable();
  if (done) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
  return -done.error().code;
}

// ---- sending ----

ssize_t Endpoint::check_length(uint64_t length, uint64_t flags) {
  if (length <= limits().max_msg_size) [[likely]]
    return 0;
  if (!(flags & FI_MORE)) {
    sdk::Guard guard(lock());
    if (enabled()) finish_batch();
  }
  return -FI_EMSGSIZE;
}

const sdk::SockAddr *Endpoint::group_address(fi_addr_t dest) const {
  const size_t number = size_t(dest - kGroupBase);
  if (number >= groups_.size() || groups_[number] == nullptr || !groups_[number]->sends())
    return nullptr;
  return &groups_[number]->address();
}

// Writes the address straight into `to`: a batch has many of them.
bool Endpoint::find(const sdk::SendRequest &r, sdk::SockAddr &to) {
  if (r.dest >= kGroupBase) [[unlikely]] {
    const sdk::SockAddr *group = group_address(r.dest);
    if (group == nullptr) return false;
    to = *group;
    return true;
  }
  if (r.flags & FI_MULTICAST) return false;
  const auto address = av()->address(av()->index_of(r.dest));
  if (!address) return false;
  to = sdk::SockAddr::of(*address);
  return true;
}

// A failed call ends a batch as a successful one does.
ssize_t Endpoint::refuse(const sdk::SendRequest &r, ssize_t error) {
  if (!(r.flags & FI_MORE)) finish_batch();
  return error;
}

ssize_t Endpoint::start(const sdk::SendRequest &r) {
  return udp_domain_.hmem() == nullptr || !is_devices(r.iov, r.count) ? send_datagram(r)
                                                                      : send_from_device(r);
}

bool Endpoint::is_devices(const iovec *iov, size_t count) const {
  const sdk::Hmem *const hmem = udp_domain_.hmem();
  return std::any_of(iov, iov + count, [hmem](const iovec &one) {
    return bool(hmem->find(one.iov_base, one.iov_len));
  });
}

// What waits for more datagrams is copied (FI_INJECT).
ssize_t Endpoint::send_from_device(const sdk::SendRequest &r) {
  const sdk::Hmem *const hmem = udp_domain_.hmem();
  if (!hmem->holds(r.iov, r.count)) return refuse(r, -FI_EFAULT);
  staging_.resize(r.length);
  if (!sdk::hmem_gather(hmem, staging_.data(), r.iov, r.count, 0, r.length))
    return refuse(r, -FI_EIO);
  sdk::SendRequest staged = r;
  const iovec whole{staging_.data(), staging_.size()};
  staged.iov = &whole;
  staged.count = 1;
  staged.flags |= FI_INJECT;
  return send_datagram(staged);
}

ssize_t Endpoint::send_datagram(const sdk::SendRequest &r) {
  if (r.flags & FI_REMOTE_CQ_DATA) return refuse(r, -FI_EOPNOTSUPP);
  if (r.report && tx_.is_full()) return refuse(r, -FI_EAGAIN);
  const bool more = r.flags & FI_MORE;
  if (!more && outlet_.empty()) return send_now(r);
  if (outlet_.full() && outlet_.flush() != 0) {
    update_output();
    return refuse(r, -FI_EAGAIN);
  }
  Datagram *const d = outlet_.next();
  if (d == nullptr) return refuse(r, -FI_ENOMEM);
  if (!find(r, d->to)) return refuse(r, -FI_EINVAL);
  d->count = uint32_t(r.count);
  std::copy_n(r.iov, r.count, d->iov);
  d->report = r.report;
  d->length = r.length;
  d->context = r.context;
  if (!more) return end_batch(d->to, r);
  if (!outlet_.push(r.flags & FI_INJECT)) return -FI_ENOMEM;
  engine_.mark_dirty(*this);
  return 0;
}

ssize_t Endpoint::send_now(const sdk::SendRequest &r) {
  sdk::SockAddr to;
  if (!find(r, to)) return -FI_EINVAL;
  const int rc = outlet_.send(to, r.iov, r.count);
  if (rc == 0) {
    tx_.succeed(r.context, FI_SEND | FI_MSG, r.length, r.report);
  } else if (rc == -FI_EAGAIN) {
    counters_.sends_put_off.add_alone();
  } else {
    explain_failure(to, -rc);
  }
  return rc;
}

// A send that ends a batch, or comes while others wait. It is in the outlet's next place.
ssize_t Endpoint::end_batch(const sdk::SockAddr &to, const sdk::SendRequest &r) {
  outlet_.push(false);
  const int rc = outlet_.flush_with_last();
  if (rc == 0) {
    tx_.succeed(r.context, FI_SEND | FI_MSG, r.length, r.report);
  } else if (rc == -FI_EAGAIN) {
    counters_.sends_put_off.add_alone();
    outlet_.keep();
  } else {
    explain_failure(to, -rc);
  }
  update_output();
  return rc;
}

// Gives the memory of earlier sends back to the application.
void Endpoint::finish_batch() {
  if (outlet_.empty()) return;
  if (outlet_.flush() != 0) outlet_.keep();
  update_output();
}

// Asks for EPOLLOUT while datagrams are left.
void Endpoint::update_output() {
  inlet_.want_output(!outlet_.empty());
}

void Endpoint::on_flush() {
  if (!outlet_.empty()) outlet_.flush();
  update_output();
}

void Endpoint::on_sent(const Datagram &d, int error) {
  if (error == 0) return tx_.succeed(d.context, FI_SEND | FI_MSG, d.length, d.report);
  explain_failure(d.to, error);
  tx_.finish({.context = d.context,
              .flags = FI_SEND | FI_MSG,
              .length = d.length,
              .report = d.report,
              .err = error});
}

// Explains errors whose number does not say enough.
void Endpoint::explain_failure(const sdk::SockAddr &to, int error) {
  if (error != EACCES || explained_broadcast_) return;
  explained_broadcast_ = true;
  WEFT_WARN(instance(), FI_LOG_EP_DATA,
            "a send to %s is refused: it is a broadcast address, to which udp does not send; use a "
            "multicast group (fi_join)",
            to.to_string().c_str());
}

// ---- receiving ----

ssize_t Endpoint::start(const sdk::RecvRequest &r) {
  if (r.flags & ~kRecvFlags) return -FI_EBADFLAGS;
  for (size_t i = 0; i < r.count && i < sdk::kIovLimit && r.iov != nullptr; ++i)
    if (r.iov[i].iov_base == nullptr && r.iov[i].iov_len != 0) return -FI_EINVAL;
  const bool to_device = udp_domain_.hmem() != nullptr && is_devices(r.iov, r.count);
  const ssize_t rc =
      to_device ? post_to_device(r) : queue_.post(r.iov, r.count, r.context, r.flags);
  if (rc != 0 || !enabled()) return rc;
  inlet_.on_posted();
  for (Group *group : groups_)
    if (group != nullptr && group->inlet() != nullptr) group->inlet()->on_posted();
  return 0;
}

// A datagram comes to memory of the host, as long as the longest one.
ssize_t Endpoint::post_to_device(const sdk::RecvRequest &r) {
  constexpr size_t kLongest = 65536;
  if (r.count > sdk::kIovLimit) return -FI_EINVAL;
  Shadow shadow{.count = r.count};
  size_t length = 0;
  for (size_t i = 0; i < r.count; ++i) {
    shadow.iov[i] = r.iov[i];
    length += std::min(r.iov[i].iov_len, kLongest);
  }
  length = std::min(length, kLongest);
  shadow.bytes.reset(new (std::nothrow) uint8_t[length]);
  if (shadow.bytes == nullptr) return -FI_ENOMEM;
  const iovec host{shadow.bytes.get(), length};
  const auto [place, is_new] = shadows_.emplace(host.iov_base, std::move(shadow));
  const ssize_t rc = queue_.post(&host, 1, r.context, r.flags);
  if (rc != 0) shadows_.erase(place);
  return rc;
}

bool Endpoint::leave_shadow(const sdk::PostedRecv &r, size_t placed) {
  if (shadows_.empty() || r.count == 0) return true;
  const auto found = shadows_.find(r.iov[0].iov_base);
  if (found == shadows_.end()) return true;
  const Shadow &shadow = found->second;
  const bool good = sdk::hmem_scatter(udp_domain_.hmem(), shadow.iov, shadow.count, 0,
                                      shadow.bytes.get(), placed);
  shadows_.erase(found);
  return good;
}

void Endpoint::on_received(sdk::PostedRecv &r, size_t placed, size_t length, uint32_t index,
                           const sdk::SockAddr &source) {
  constexpr uint64_t kFlags = FI_RECV | FI_MSG;
  const bool nameless = index == sdk::Av::kNone && caps() & FI_SOURCE_ERR;
  const bool broken = !leave_shadow(r, placed);
  const int error = broken ? FI_EIO : placed < length ? FI_ETRUNC : nameless ? FI_EADDRNOTAVAIL : 0;
  const fi_addr_t from =
      caps() & FI_SOURCE && index != sdk::Av::kNone ? av()->reported(index) : FI_ADDR_NOTAVAIL;
  // A datagram of an unknown sender was received: an error entry for the queue, but not an error
  // for the counter.
  if (rx_.cntr != nullptr) {
    if (broken || placed < length) {
      rx_.cntr->add_error();
    } else {
      rx_.cntr->add_events(1, placed);
    }
  }
  if (rx_.cq != nullptr) {
    if (error == 0) {
      if (rx_.reports(r.flags))
        rx_.cq->push({.context = r.context, .flags = kFlags, .len = placed, .src_addr = from});
    } else {
      std::string address;
      if (nameless) address.assign(reinterpret_cast<const char *>(source.c()), source.size());
      rx_.cq->push_error({.context = r.context,
                          .flags = kFlags,
                          .len = placed,
                          .olen = length - placed,
                          .err = error,
                          .prov_errno = error,
                          .err_data = std::move(address),
                          .src_addr = from});
    }
  }
  queue_.release(&r);
}

ssize_t Endpoint::cancel(void *context) {
  if (context == nullptr) return -FI_ENOENT;  // found by its context, or not at all
  sdk::Guard guard(lock());
  sdk::PostedRecv *r = queue_.remove(context);
  if (r == nullptr) return -FI_ENOENT;
  leave_shadow(*r, 0);
  rx_.fail(r->context, FI_RECV | FI_MSG, FI_ECANCELED);
  queue_.release(r);
  return 0;
}

void Endpoint::on_socket_error(int error) {
  counters_.socket_errors.add_alone();
  WEFT_INFO_SPARSE(instance(), FI_LOG_EP_DATA, "the socket of %s reports: %s",
                   name_.to_string().c_str(), strerror(error));
}

// Reports only that the port has no socket. Other errors of the network may be over in a moment.
void Endpoint::on_network_error(const NetworkError &error, std::span<const char> datagram) {
  if (!error.remote || error.error != ECONNREFUSED || tx_.cq == nullptr || tx_.cq->full()) return;
  const uint32_t index = av()->find(error.to);
  if (index == sdk::Av::kNone) return;
  tx_.cq->push_error({.flags = FI_SEND | FI_MSG,
                      .err = FI_ECONNREFUSED,
                      .prov_errno = ECONNREFUSED,
                      .err_data = {datagram.data(), datagram.size()},
                      .src_addr = av()->reported(index)});
}

}  // namespace weft::udp
