// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_errno.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/passive.h>
#include <weft/sdk/objects/socket_types.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <utility>

namespace weft::sdk {

Result<PassiveStart> PassiveStart::of(const weft_core_services *core, const fi_info &info) {
  const int type = info.ep_attr != nullptr ? type_of(*info.ep_attr) : FI_EP_UNSPEC;
  if (type != FI_EP_MSG && type != FI_EP_UNSPEC && type != kSockStream)
    return fail(FI_EINVAL, "fi_passive_ep: type %d: connections are of FI_EP_MSG", type);
  PassiveStart start{.info = InfoList(core), .local = {}};
  if (info.src_addr != nullptr) {
    WEFT_TRY(start.local, read_address(info.addr_format, info.src_addr, info.src_addrlen));
  } else if (is_socket_format(info.addr_format)) {
    start.local = SockAddr::any(family_of(info.addr_format) == AF_INET6 ? AF_INET6 : AF_INET);
  }
  WEFT_CHECK(start.info.add_copy(&info));
  return start;
}

PassiveCore::PassiveCore(Connections &connections, struct fid *fid, PassiveStart start, int backlog)
    : connections_(connections),
      fid_(fid),
      info_(std::move(start.info)),
      local_(start.local),
      backlog_(backlog) {}

Result<void> PassiveCore::take_name() {
  Guard guard(connections_.engine().lock());
  if (local_.size() == 0) return {};  // fi_setname says it
  WEFT_TRY(local_, bind_to(local_));
  bound_ = true;
  return {};
}

void PassiveCore::join() {
  Guard guard(connections_.engine().lock());
  connections_.add(*this);
}

void PassiveCore::leave() {
  Guard guard(connections_.engine().lock());
  stop();
}

int PassiveCore::bind(struct fid *fid, uint64_t flags) {
  if (!Eq::is_mine(fid, FI_CLASS_EQ, instance()) || flags != 0) return -FI_EINVAL;
  if (Eq::from(fid)->is_imported()) return -FI_EOPNOTSUPP;  // no connection requests for an owner
  if (eq_ != nullptr) return -FI_EBUSY;
  eq_ = Eq::from(fid);
  eq_->users.fetch_add(1);
  eq_->add_source(connections_.engine());
  return 0;
}

int PassiveCore::control(int command, void *arg) {
  if (command != FI_BACKLOG) return -FI_ENOSYS;
  if (arg == nullptr || *static_cast<int *>(arg) < 0) return -FI_EINVAL;
  Guard guard(connections_.engine().lock());
  if (listening_) return -FI_EOPBADSTATE;
  backlog_ = *static_cast<int *>(arg);
  return 0;
}

int PassiveCore::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return get_option(connections_.cm_data_size, value, length);
}

int PassiveCore::setname(void *addr, size_t len) {
  const auto address = read_address(info_.front()->addr_format, addr, len);
  if (!address) return -address.error().code;
  Guard guard(connections_.engine().lock());
  if (listening_ || taken_) return -FI_EOPBADSTATE;
  // Bound from here on, for either side of a connection (fi_endpoint.3).
  const auto name = bind_to(*address);
  bound_ = name.has_value();
  if (!name) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_setname: %s", name.error().text.c_str());
    return -name.error().code;
  }
  local_ = *name;
  return 0;
}

int PassiveCore::getname(void *addr, size_t *len) {
  Guard guard(connections_.engine().lock());
  return write_address(local_, info_.front()->addr_format, addr, len);
}

Result<void> PassiveCore::check_free() const {
  if (listening_)
    return fail(FI_EOPBADSTATE,
                "fi_endpoint: info->handle is a passive endpoint that listens at %s: its address "
                "is in use",
                local_.to_string().c_str());
  if (taken_)
    return fail(
        FI_EINVAL,
        "fi_endpoint: info->handle is a passive endpoint whose address another endpoint has");
  return {};
}

int PassiveCore::listen() {
  Guard guard(connections_.engine().lock());
  if (listening_ || taken_) return -FI_EOPBADSTATE;
  if (eq_ == nullptr) return -FI_ENOEQ;
  const auto started = start();
  if (started) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_listen: %s", started.error().text.c_str());
  return -started.error().code;
}

Result<void> PassiveCore::start() {
  if (!bound_) {
    WEFT_TRY(local_, bind_to(local_));
    bound_ = true;
  }
  auto name = start_listening(backlog_);
  if (!name) {
    stop();
    bound_ = false;
    return tl::unexpected(name.error());
  }
  listening_ = true;
  local_ = *name;
  return {};
}

Result<fi_info *> PassiveCore::request_info(InfoList &list, const ConnectRequest &request) {
  const Address local = request.local(), peer = request.peer();
  if (local.size() == 0 || peer.size() == 0) return fail(FI_ENOTCONN, "the requester is gone");
  WEFT_TRY(fi_info *const info, list.add_copy(info_.front()));
  const uint32_t format = info->addr_format;
  WEFT_CHECK(set_info_address(info->src_addr, info->src_addrlen, format, local));
  WEFT_CHECK(set_info_address(info->dest_addr, info->dest_addrlen, format, peer));
  WEFT_CHECK(describe(*info, request));
  return info;
}

bool PassiveCore::report(std::unique_ptr<ConnectRequest> request, std::string_view data) {
  InfoList list(instance()->core);
  const auto info = request_info(list, *request);
  if (!info) {
    WEFT_WARN_SPARSE(instance(), FI_LOG_EP_CTRL, "a connection request is dropped: %s",
                     info.error().text.c_str());
    return false;
  }
  (*info)->handle = request->base();
  connections_.add(std::move(request));
  eq_->push_cm(FI_CONNREQ, fid_, list.release(), std::as_bytes(std::span(data)));
  return true;
}

void PassiveCore::report_error(int error, std::string reason) {
  if (eq_ != nullptr)
    eq_->push_error({.fid = fid_,
                     .context = fid_->context,
                     .err = error,
                     .prov_errno = error,
                     .err_data = std::move(reason)});
}

int PassiveCore::reject(fid_t handle, const void *param, size_t len) {
  if (handle == nullptr || (param == nullptr && len != 0)) return -FI_EINVAL;
  Guard guard(connections_.engine().lock());
  const auto request = connections_.take(handle);
  if (request == nullptr) return -FI_EINVAL;
  request->reject(connections_.data(param, len));
  return 0;
}

// The application has those that it read, and may still accept them.
void PassiveCore::drop_unread_requests() {
  std::vector<fid_t> unread;
  eq_->forget(fid_, &unread);
  for (const fid_t handle : unread) connections_.take(handle);
}

int PassiveCore::close() {
  // Before the lock: an event queue takes the lock while it makes progress.
  if (eq_ != nullptr) eq_->remove_source(connections_.engine());
  instance()->core->object_closing(fid_);
  {
    Guard guard(connections_.engine().lock());
    stop();
    connections_.remove(*this);
    if (eq_ != nullptr) drop_unread_requests();
  }
  if (eq_ != nullptr) eq_->users.fetch_sub(1);
  std::atomic<size_t> &children = connections_.children_;
  delete this;
  children.fetch_sub(1);
  return 0;
}

}  // namespace weft::sdk
