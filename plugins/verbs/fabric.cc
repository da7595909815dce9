// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/fabric.h"

#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/info_list.h>
#include <weft/sdk/unit/log.h>

#include <utility>

#include "plugins/verbs/domain.h"
#include "plugins/verbs/passive_endpoint.h"
#include "plugins/verbs/xrc_passive.h"

namespace weft::verbs {

ConnectRequest::ConnectRequest(sdk::PassiveCore &passive, rdma_cm_id *id,
                               std::optional<XrcData> xrc)
    : sdk::ConnectRequest(passive), id_(id), xrc_(xrc) {
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

Result<void> ConnectRequest::check_device(const Device &device) const {
  if (id_ == nullptr)
    return fail(FI_ENODEV, "fi_endpoint: the device of the request is gone: reject it");
  if (id_->verbs == device.verbs) return {};
  return fail(FI_EINVAL,
              "fi_endpoint: the request came to another device than %s: open the domain with the "
              "info of the request",
              device.facts.name.c_str());
}

Result<void> ConnectRequest::describe(Devices &devices, fi_info &info) const {
  const std::optional<Device> device = devices.find(id_->verbs);
  if (!device) return fail(FI_ENODEV, "its device is not known");
  WEFT_CHECK(sdk::set_string(info.domain_attr->name, device->facts.name));
  return sdk::set_string(info.fabric_attr->name, fabric_name(device->facts));
}

// The kernel gives up a device only when all identifiers on it are gone.
void ConnectRequest::on_event(const ChannelEvent &event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) rdma_destroy_id(std::exchange(id_, nullptr));
}

void ConnectRequest::reject(std::string_view parameter) {
  if (id_ == nullptr) return;
  // An answer to a requester that is gone may fail. There is nobody to tell.
  if (xrc_) {
    const XrcMessage message({.tag = xrc_->tag}, parameter);
    rdma_reject(id_, message.bytes().data(), uint8_t(message.bytes().size()));
  } else {
    const PrivateData data(parameter);
    rdma_reject(id_, data.bytes().data(), uint8_t(data.bytes().size()));
  }
  rdma_destroy_id(std::exchange(id_, nullptr));
}

Fabric::Fabric(const Opening &opening, std::shared_ptr<Devices> devices)
    : ProviderFabric(opening),
      devices_(std::move(devices)),
      device_events_(instance(), counters(), engine_) {}

Fabric::~Fabric() {
  engine_.stop_thread();
  connections_.end();
}

Result<void> Fabric::start() {
  WEFT_TRY(channel_, Channel::open(engine_));
  return {};
}

int Fabric::passive_ep(struct fi_info *info, struct fid_pep **pep, void *context) {
  if (info == nullptr || pep == nullptr) return -FI_EINVAL;
  if (!is_xrc(*info)) return ConnectedFabricOps::passive_ep(info, pep, context);
  return sdk::finish(instance(), FI_LOG_EP_CTRL, XrcPassiveEndpoint::open(*this, *info, context),
                     pep);
}

// The kernel bounds those that it has. An application that does not answer would have all others.
bool Fabric::takes_request(int backlog) {
  const size_t most = size_t(backlog > 0 ? backlog : settings().backlog);
  const bool takes = connections_.waiting() < most;
  if (!takes && !crowd_told_)
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "%zu connection requests wait for fi_accept or fi_reject: more are rejected (verbs "
              "backlog)",
              most);
  crowd_told_ = !takes;
  return takes;
}

}  // namespace weft::verbs
