// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/connected.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/passive.h>
#include <weft/sdk/unit/log.h>

#include <utility>

namespace weft::sdk {

ConnectedCore::ConnectedCore(DomainContext &domain, Connections &connections, Engine &cm_engine,
                             struct fid *fid, const fi_info &info, const EndpointLimits &limits,
                             TxContext *tx, RxContext *rx, Lock *lock)
    : EndpointCore(domain, PeerKind::kConnected, info, limits, tx, rx, lock),
      addr_format_(info.addr_format),
      connections_(connections),
      cm_engine_(cm_engine),
      fid_(fid) {}

Result<void> ConnectedCore::check(const fi_info &info, size_t max_queue) {
  if (info.ep_attr->type != FI_EP_MSG && info.ep_attr->type != FI_EP_UNSPEC)
    return fail(FI_EINVAL,
                "fi_endpoint: endpoints of type %d are not of this provider: open the fabric, too, "
                "from the fi_info that has the type",
                raw(info.ep_attr->type));
  for (const size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                            info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > max_queue)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: at most %zu", size, max_queue);
  return {};
}

Result<Connections::Named> ConnectedCore::find_names(const fi_info &info) {
  if (info.src_addr != nullptr) {
    WEFT_TRY(local_, read_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  Connections::Named named;
  if (info.handle == nullptr) return named;
  WEFT_TRY(named, connections_.find_named(info.handle));
  if (named.passive != nullptr) {
    local_ = named.passive->local();
  } else {
    if (const Address local = named.request->local(); local.size() != 0) local_ = local;
    peer_ = named.request->peer();
  }
  return named;
}

PassiveCore *ConnectedCore::take_names(const Connections::Named &named) {
  if (named.request != nullptr) request_ = connections_.take(named.request->base());
  if (named.passive != nullptr) named.passive->taken_ = true;
  return named.passive;
}

int ConnectedCore::bind_connected(struct fid *fid, uint64_t flags) {
  const int rc = bind_object(fid, flags);
  // Not with a lock held: an event queue takes the lock while it makes progress.
  if (rc == 0 && fid->fclass == FI_CLASS_EQ) eq()->add_source(cm_engine_);
  return rc;
}

int ConnectedCore::control_connected(int command, void *arg, uint64_t tx_known) {
  if (command != FI_ENABLE) return control_flags(command, arg, tx_known);
  Guard guard(cm_engine_.lock());
  return finish_call("", enable());
}

int ConnectedCore::get_limit(int level, int name, void *value, size_t *length) const {
  if (level == FI_OPT_ENDPOINT && name == FI_OPT_CM_DATA_SIZE)
    return get_option(connections_.cm_data_size, value, length);
  return EndpointCore::get_limit(level, name, value, length);
}

void ConnectedCore::leave_event_queue() {
  if (eq() != nullptr) eq()->remove_source(cm_engine_);
}

int ConnectedCore::finish_call(const char *call, const Result<void> &result) const {
  if (result) return 0;
  WEFT_WARN(core_domain_.instance, FI_LOG_EP_CTRL, "%s%s", call, result.error().text.c_str());
  return -result.error().code;
}

// ---- fi_cm.3 ----

int ConnectedCore::setname(void *addr, size_t len) {
  const auto address = read_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  Guard guard(cm_engine_.lock());
  if (enabled()) return -FI_EOPBADSTATE;
  const auto name = bind_to(*address);
  if (!name) return finish_call("fi_setname: ", tl::unexpected(name.error()));
  local_ = *name;
  return 0;
}

int ConnectedCore::getname(void *addr, size_t *len) {
  Guard guard(cm_engine_.lock());
  if (local_.size() == 0) return -FI_EADDRNOTAVAIL;
  return write_address(local_, addr_format_, addr, len);
}

int ConnectedCore::getpeer(void *addr, size_t *len) {
  Guard guard(cm_engine_.lock());
  if (state_ != State::kConnected) return -FI_ENOTCONN;
  return write_address(peer_, addr_format_, addr, len);
}

int ConnectedCore::connect(const void *addr, const void *param, size_t len) {
  if (addr == nullptr || (param == nullptr && len != 0)) return -FI_EINVAL;
  Guard guard(cm_engine_.lock());
  return finish_call("fi_connect: ", begin_connect(addr, connections_.data(param, len)));
}

Result<void> ConnectedCore::begin_connect(const void *addr, std::string_view data) {
  WEFT_TRY(const Address peer, read_address(addr_format_, addr));
  if (request_ != nullptr)
    return fail(
        FI_EOPBADSTATE,
        "this endpoint was opened for a connection request: call fi_accept, not fi_connect");
  if (state_ != State::kIdle)
    return fail(FI_EISCONN, "the endpoint is connected or connecting already");
  WEFT_CHECK(enable());
  peer_ = peer;
  return start_connect(peer, data);
}

int ConnectedCore::accept(const void *param, size_t len) {
  if (param == nullptr && len != 0) return -FI_EINVAL;
  Guard guard(cm_engine_.lock());
  if (request_ == nullptr || state_ != State::kIdle) return -FI_EOPBADSTATE;
  auto accepted = enable();
  if (accepted) accepted = start_accept(std::move(request_), connections_.data(param, len));
  return finish_call("fi_accept: ", accepted);
}

int ConnectedCore::shutdown(uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  Guard guard(cm_engine_.lock());
  if (state_ != State::kConnected) return int(not_connected());
  hang_up();
  return 0;
}

// ---- events ----

void ConnectedCore::report_connected(std::string_view data) {
  if (eq() != nullptr) eq()->push_cm(FI_CONNECTED, fid_, nullptr, std::as_bytes(std::span(data)));
}

void ConnectedCore::report_failure(int error, std::string data, int cause) {
  if (eq() != nullptr)
    eq()->push_error({.fid = fid_,
                      .context = fid_->context,
                      .err = error,
                      .prov_errno = cause,
                      .err_data = std::move(data)});
}

bool ConnectedCore::report_shutdown() {
  if (std::exchange(shutdown_told_, true)) return false;
  if (eq() != nullptr) eq()->push_cm(FI_SHUTDOWN, fid_, nullptr, {});
  return true;
}

}  // namespace weft::sdk
