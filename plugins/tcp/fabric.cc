// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/fabric.h"

#include <unistd.h>
#include <weft/sdk/ops.h>

#include <new>

#include "plugins/tcp/domain.h"
#include "plugins/tcp/passive_endpoint.h"

namespace weft::tcp {

ConnectRequest::ConnectRequest(Fabric &fabric, struct fid *from, int socket, ByteOrder byte_order)
    : Object(fabric.instance(), FI_CLASS_CONNREQ, nullptr),
      fd(socket),
      order(byte_order),
      pep(from),
      fabric_(fabric) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<ConnectRequest>());
}

ConnectRequest::~ConnectRequest() {
  if (fd >= 0) ::close(fd);
}

int ConnectRequest::close() {
  sdk::Guard guard(fabric_.engine().lock());
  delete fabric_.take(base());
  return 0;
}

Fabric::Fabric(const weft_instance *instance, const Settings &settings, const fi_fabric_attr &attr,
               void *context)
    : Object(instance, FI_CLASS_FABRIC, context),
      settings_(settings),
      api_version_(attr.api_version) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Fabric>());
  c()->ops = const_cast<fi_ops_fabric *>(sdk::fabric_ops<Fabric>());
  c()->api_version = attr.api_version;
}

Result<fid_fabric *> Fabric::open(const weft_instance *instance, const Settings &settings,
                                  const fi_fabric_attr &attr, void *context) {
  Fabric *fabric = new (std::nothrow) Fabric(instance, settings, attr, context);
  if (fabric == nullptr) return fail(FI_ENOMEM, "no memory for a fabric");
  if (auto published = fabric->publish(nullptr); !published) {
    delete fabric;
    return tl::unexpected(published.error());
  }
  return fabric->c();
}

ConnectRequest *Fabric::take(fid_t handle) {
  // The application may pass anything, so it is looked up before it is used.
  const auto at = requests_.find(ConnectRequest::from(handle));
  if (at == requests_.end()) return nullptr;
  ConnectRequest *request = *at;
  requests_.erase(at);
  for (PassiveEndpoint *pep : passive_) pep->on_request_gone();
  return request;
}

void Fabric::drop_requests_of(struct fid *pep) {
  std::erase_if(requests_, [pep](ConnectRequest *request) {
    if (request->pep != pep) return false;
    delete request;
    return true;
  });
  for (PassiveEndpoint *other : passive_) other->on_request_gone();
}

PassiveEndpoint *Fabric::find_passive(fid_t handle) const {
  for (PassiveEndpoint *pep : passive_)
    if (pep->base() == handle) return pep;
  return nullptr;
}

int Fabric::passive_ep(struct fi_info *info, struct fid_pep **pep, void *context) {
  if (info == nullptr || pep == nullptr) return -FI_EINVAL;
  return sdk::finish(instance(), FI_LOG_EP_CTRL, PassiveEndpoint::open(*this, *info, context), pep);
}

int Fabric::eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context) {
  if (eq == nullptr) return -FI_EINVAL;
  auto opened = sdk::Eq::open(instance(), base(), children, attr, context);
  if (opened) {
    // The socket of an unread request is closed with its passive endpoint. Only the info is freed
    // here.
    (*opened)->drop_request = [](fi_info *info, const weft_instance *owner) {
      owner->core->info_free(info);
    };
    if (attr != nullptr && attr->wait_obj == FI_WAIT_MUTEX_COND) {
      if (auto started = engine_.start_thread(); !started) {
        (*opened)->close();
        opened = tl::unexpected(started.error());
      }
    }
  }
  return sdk::finish(instance(), FI_LOG_EQ, std::move(opened), eq);
}

int Fabric::close() {
  if (children.load() != 0) return -FI_EBUSY;
  retire();
  engine_.stop_thread();
  delete this;
  return 0;
}

}  // namespace weft::tcp
