// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/fabric.h"

#include <weft/sdk/ops.h>

#include <new>
#include <utility>

#include "plugins/verbs/domain.h"
#include "plugins/verbs/passive_endpoint.h"
#include "plugins/verbs/private_data.h"

namespace weft::verbs {

ConnectRequest::ConnectRequest(Fabric &fabric, struct fid *from, rdma_cm_id *id)
    : Object(fabric.instance(), FI_CLASS_CONNREQ, nullptr), pep(from), fabric_(fabric), id_(id) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<ConnectRequest>());
  Channel::give(*id, *this);
}

ConnectRequest::~ConnectRequest() {
  reject(nullptr, 0);
}

// The kernel gives up a device only when all identifiers on it are gone.
void ConnectRequest::on_event(const ChannelEvent &event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) rdma_destroy_id(std::exchange(id_, nullptr));
}

void ConnectRequest::reject(const void *param, size_t len) {
  if (id_ == nullptr) return;
  const PrivateData data(param, len);
  // An answer to a requester that is gone may fail. There is nobody to tell.
  [[maybe_unused]] const int rc =
      rdma_reject(id_, data.bytes().data(), uint8_t(data.bytes().size()));
  rdma_destroy_id(std::exchange(id_, nullptr));
}

int ConnectRequest::close() {
  sdk::Guard guard(fabric_.engine().lock());
  delete fabric_.take(base());
  return 0;
}

Fabric::Fabric(const weft_instance *instance, const Settings &settings,
               std::shared_ptr<Devices> devices, const fi_fabric_attr &attr, void *context)
    : Object(instance, FI_CLASS_FABRIC, context),
      settings_(settings),
      devices_(std::move(devices)),
      api_version_(attr.api_version),
      device_events_(instance, *stats_, engine_) {
  sdk::fill_tables(*this);
  c()->api_version = attr.api_version;
}

Result<fid_fabric *> Fabric::open(const weft_instance *instance, const Settings &settings,
                                  std::shared_ptr<Devices> devices, const fi_fabric_attr &attr,
                                  void *context) {
  auto *const fabric =
      new (std::nothrow) Fabric(instance, settings, std::move(devices), attr, context);
  if (fabric == nullptr) return fail(FI_ENOMEM, "no memory for a fabric");
  Result<void> opened;
  if (auto channel = Channel::open(fabric->engine_)) {
    fabric->channel_ = std::move(*channel);
    opened = fabric->publish(nullptr);
  } else {
    opened = tl::unexpected(channel.error());
  }
  if (!opened) {
    delete fabric;
    return tl::unexpected(opened.error());
  }
  return fabric->c();
}

// The application may pass anything, so it is looked up before it is used.
ConnectRequest *Fabric::find(fid_t handle) const {
  const auto at = requests_.find(ConnectRequest::from(handle));
  return at != requests_.end() ? *at : nullptr;
}

ConnectRequest *Fabric::take(fid_t handle) {
  ConnectRequest *const request = find(handle);
  requests_.erase(request);
  return request;
}

void Fabric::drop_requests_of(struct fid *pep) {
  std::erase_if(requests_, [pep](ConnectRequest *request) {
    if (request->pep != pep) return false;
    delete request;
    return true;
  });
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
    // An unread request ends with its passive endpoint. Only the info is freed here.
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

}  // namespace weft::verbs
