// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/passive_endpoint.h"

#include <weft/sdk/log.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/options.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/verbs/private_data.h"

namespace weft::verbs {

PassiveEndpoint::PassiveEndpoint(Fabric &fabric, sdk::InfoList info, void *context)
    : Object(fabric.instance(), FI_CLASS_PEP, context),
      fabric_(fabric),
      info_(std::move(info)),
      backlog_(fabric.settings().backlog) {
  sdk::fill_tables(*this);
}

Result<PassiveEndpoint *> PassiveEndpoint::open(Fabric &fabric, const fi_info &info,
                                                void *context) {
  if (info.ep_attr != nullptr && info.ep_attr->type != FI_EP_MSG &&
      info.ep_attr->type != FI_EP_UNSPEC)
    return fail(FI_EINVAL, "fi_passive_ep: type %d: connections are of FI_EP_MSG",
                int(info.ep_attr->type));
  sdk::SockAddr local =
      sdk::SockAddr::any(sdk::family_of(info.addr_format) == AF_INET6 ? AF_INET6 : AF_INET);
  if (info.src_addr != nullptr) {
    WEFT_TRY(local, sdk::read_sock_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  sdk::InfoList copy(fabric.instance()->core);
  WEFT_CHECK(copy.add_copy(&info));
  auto *const pep = new (std::nothrow) PassiveEndpoint(fabric, std::move(copy), context);
  if (pep == nullptr) return fail(FI_ENOMEM, "no memory for a passive endpoint");
  pep->local_ = local;
  if (auto published = pep->publish(fabric.base()); !published) {
    delete pep;
    return tl::unexpected(published.error());
  }
  fabric.children.fetch_add(1);
  sdk::Guard guard(fabric.engine().lock());
  fabric.remember(pep);
  return pep;
}

int PassiveEndpoint::bind(struct fid *fid, uint64_t flags) {
  if (!sdk::Eq::is_mine(fid, FI_CLASS_EQ, instance()) || flags != 0) return -FI_EINVAL;
  if (eq_ != nullptr) return -FI_EBUSY;
  eq_ = sdk::Eq::from(fid);
  eq_->users.fetch_add(1);
  eq_->add_source(fabric_.engine());
  return 0;
}

int PassiveEndpoint::control(int command, void *arg) {
  if (command != FI_BACKLOG) return -FI_ENOSYS;
  if (arg == nullptr || *static_cast<int *>(arg) < 0) return -FI_EINVAL;
  sdk::Guard guard(fabric_.engine().lock());
  if (listening_) return -FI_EOPBADSTATE;
  backlog_ = *static_cast<int *>(arg);
  return 0;
}

int PassiveEndpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return sdk::get_option(kPrivateDataSize, value, length);
}

void PassiveEndpoint::drop_id() {
  if (id_ != nullptr) rdma_destroy_id(std::exchange(id_, nullptr));
}

Result<void> PassiveEndpoint::bind_address() {
  drop_id();
  WEFT_TRY(id_, fabric_.channel().make_id(*this));
  if (rdma_bind_addr(id_, const_cast<sockaddr *>(local_.c())) != 0) {
    const int error = errno;
    drop_id();
    return fail(error, "rdma_bind_addr to %s: %s", local_.to_string().c_str(), strerror(error));
  }
  local_ = local_address(*id_);
  return {};
}

int PassiveEndpoint::setname(void *addr, size_t len) {
  auto address = sdk::read_sock_address(info_.front()->addr_format, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(fabric_.engine().lock());
  if (listening_ || taken_) return -FI_EOPBADSTATE;
  const sdk::SockAddr before = std::exchange(local_, *address);
  // Bound from here on, for either side of a connection (fi_endpoint.3).
  if (auto bound = bind_address(); !bound) {
    local_ = before;
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_setname: %s", bound.error().text.c_str());
    return -bound.error().code;
  }
  return 0;
}

Result<sdk::SockAddr> PassiveEndpoint::give_address() {
  if (listening_)
    return fail(FI_EOPBADSTATE,
                "fi_endpoint: info->handle is a passive endpoint that listens at %s: its address "
                "is in use",
                local_.to_string().c_str());
  if (taken_)
    return fail(
        FI_EINVAL,
        "fi_endpoint: info->handle is a passive endpoint whose address another endpoint has");
  taken_ = true;
  drop_id();
  return local_;
}

int PassiveEndpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(fabric_.engine().lock());
  return sdk::write_address(local_, info_.front()->addr_format, addr, len);
}

int PassiveEndpoint::listen() {
  sdk::Guard guard(fabric_.engine().lock());
  if (listening_ || taken_) return -FI_EOPBADSTATE;
  if (eq_ == nullptr) return -FI_ENOEQ;
  auto started = start_listening();
  if (started) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_listen: %s", started.error().text.c_str());
  return -started.error().code;
}

Result<void> PassiveEndpoint::start_listening() {
  if (id_ == nullptr) WEFT_CHECK(bind_address());
  if (rdma_listen(id_, backlog_) != 0) {
    const int error = errno;
    drop_id();
    return fail(error, "rdma_listen at %s: %s", local_.to_string().c_str(), strerror(error));
  }
  listening_ = true;
  local_ = local_address(*id_);
  return {};
}

// The device of the request may be another than that of the info, where the address is a wildcard.
Result<fi_info *> PassiveEndpoint::request_info(sdk::InfoList &list, rdma_cm_id &id) {
  WEFT_TRY(fi_info *const info, list.add_copy(info_.front()));
  const std::optional<Device> device = fabric_.devices().find(id.verbs);
  if (!device) return fail(FI_ENODEV, "its device is not known");
  WEFT_CHECK(sdk::set_string(info->domain_attr->name, device->facts.name));
  WEFT_CHECK(sdk::set_string(info->fabric_attr->name, fabric_name(device->facts)));
  WEFT_CHECK(sdk::set_info_address(info->src_addr, info->src_addrlen, info->addr_format,
                                   local_address(id)));
  WEFT_CHECK(sdk::set_info_address(info->dest_addr, info->dest_addrlen, info->addr_format,
                                   peer_address(id)));
  return info;
}

void PassiveEndpoint::on_event(const ChannelEvent &event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    drop_id();  // the kernel waits for that
    eq_->push_error({.fid = base(),
                     .context = context(),
                     .err = FI_ENODEV,
                     .prov_errno = FI_ENODEV,
                     .err_data = "the device is gone: nobody listens at " + local_.to_string()});
    return;
  }
  if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
  auto request =
      std::unique_ptr<ConnectRequest>(new (std::nothrow) ConnectRequest(fabric_, base(), event.id));
  sdk::InfoList list(instance()->core);
  Result<fi_info *> info = fail(FI_ENOMEM, "no memory");
  if (request == nullptr) {
    rdma_destroy_id(event.id);
  } else {
    info = request_info(list, *event.id);
  }
  if (!info) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "a connection request is dropped: %s",
              info.error().text.c_str());
    return;
  }
  (*info)->handle = request->base();
  fabric_.remember(request.release());
  const std::string_view data = read_private_data(event.data.data(), event.data.size());
  eq_->push_cm(FI_CONNREQ, base(), list.release(), std::as_bytes(std::span(data)));
}

int PassiveEndpoint::reject(fid_t handle, const void *param, size_t len) {
  if (handle == nullptr || (param == nullptr && len != 0)) return -FI_EINVAL;
  sdk::Guard guard(fabric_.engine().lock());
  const std::unique_ptr<ConnectRequest> request(fabric_.take(handle));
  if (request == nullptr) return -FI_EINVAL;
  request->reject(param, len);
  return 0;
}

int PassiveEndpoint::close() {
  if (eq_ != nullptr) eq_->remove_source(fabric_.engine());
  retire();
  {
    sdk::Guard guard(fabric_.engine().lock());
    drop_id();
    fabric_.forget(this);
    fabric_.drop_requests_of(base());
  }
  if (eq_ != nullptr) {
    eq_->forget(base());
    eq_->users.fetch_sub(1);
  }
  fabric_.children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::verbs
