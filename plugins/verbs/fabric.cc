// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/fabric.h"

#include <weft/sdk/ops.h>

#include <new>
#include <utility>

#include "plugins/verbs/domain.h"
#include "plugins/verbs/passive_endpoint.h"

namespace weft::verbs {

ConnectRequest::ConnectRequest(sdk::PassiveCore &passive, rdma_cm_id *id)
    : sdk::ConnectRequest(passive), id_(id) {
  Channel::give(*id, *this);
}

ConnectRequest::~ConnectRequest() {
  reject({});
}

sdk::Address ConnectRequest::local() const {
  return id_ != nullptr ? local_address(*id_) : sdk::Address();
}

sdk::Address ConnectRequest::peer() const {
  return id_ != nullptr ? peer_address(*id_) : sdk::Address();
}

// The kernel gives up a device only when all identifiers on it are gone.
void ConnectRequest::on_event(const ChannelEvent &event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) rdma_destroy_id(std::exchange(id_, nullptr));
}

void ConnectRequest::reject(std::string_view parameter) {
  if (id_ == nullptr) return;
  const PrivateData data(parameter);
  // An answer to a requester that is gone may fail. There is nobody to tell.
  [[maybe_unused]] const int rc =
      rdma_reject(id_, data.bytes().data(), uint8_t(data.bytes().size()));
  rdma_destroy_id(std::exchange(id_, nullptr));
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

int Fabric::close() {
  if (children.load() != 0) return -FI_EBUSY;
  retire();
  engine_.stop_thread();
  delete this;
  return 0;
}

}  // namespace weft::verbs
