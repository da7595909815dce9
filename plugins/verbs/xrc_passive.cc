// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/xrc_passive.h"

#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/unit/log.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace weft::verbs {

XrcPassiveEndpoint::XrcPassiveEndpoint(Fabric &fabric, sdk::PassiveStart start, void *context)
    : Object(fabric.instance(), FI_CLASS_PEP, context),
      PassiveCore(fabric.connections(), base(), std::move(start), fabric.settings().backlog),
      fabric_(fabric) {
  sdk::fill_tables(*this);
}

Result<XrcPassiveEndpoint *> XrcPassiveEndpoint::open(Fabric &fabric, const fi_info &info,
                                                      void *context) {
  WEFT_TRY(sdk::PassiveStart start, sdk::PassiveStart::of(fabric.instance()->core, info));
  return finish_open(new (std::nothrow) XrcPassiveEndpoint(fabric, std::move(start), context),
                     fabric.base());
}

int XrcPassiveEndpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return sdk::get_option(kXrcParameterSize, value, length);
}

void XrcPassiveEndpoint::stop() {
  for (rdma_cm_id **id : {&connections_id_, &lookups_id_})
    if (*id != nullptr) rdma_destroy_id(std::exchange(*id, nullptr));
}

// A port that another program has in one of the two port spaces is tried again where any will do.
Result<sdk::Address> XrcPassiveEndpoint::bind_to(const sdk::Address &local) {
  constexpr int kTries = 16;
  const int tries = local.port() == 0 ? kTries : 1;
  int error = 0;
  for (int i = 0; i < tries; ++i) {
    stop();
    WEFT_TRY(connections_id_, fabric_.channel().make_id(*this));
    WEFT_TRY(lookups_id_, fabric_.channel().make_id(*this, RDMA_PS_UDP));
    if (rdma_bind_addr(connections_id_, c_address(local)) != 0) {
      error = errno;
      break;
    }
    const sdk::Address name = local_address(*connections_id_);
    if (rdma_bind_addr(lookups_id_, c_address(name)) == 0) return name;
    error = errno;
    if (error != EADDRINUSE) break;
  }
  stop();
  return fail(error, "rdma_bind_addr to %s: %s", local.to_string().c_str(), strerror(error));
}

Result<sdk::Address> XrcPassiveEndpoint::start_listening(int backlog) {
  if (connections_id_ == nullptr) WEFT_CHECK(bind_to(local()));  // its device went away before
  if (rdma_listen(connections_id_, backlog) == 0 && rdma_listen(lookups_id_, backlog) == 0)
    return local_address(*connections_id_);
  return fail(errno, "rdma_listen at %s: %s", local().to_string().c_str(), strerror(errno));
}

Result<void> XrcPassiveEndpoint::describe(fi_info &info, const sdk::ConnectRequest &request) {
  return static_cast<const ConnectRequest &>(request).describe(fabric_.devices(), info);
}

void XrcPassiveEndpoint::on_event(const ChannelEvent &event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    rdma_destroy_id(event.id);  // the kernel waits for that
    const bool first = connections_id_ != nullptr && lookups_id_ != nullptr;
    (event.id == connections_id_ ? connections_id_ : lookups_id_) = nullptr;
    if (first)
      report_error(FI_ENODEV, "the device is gone: nobody listens at " + local().to_string());
    return;
  }
  if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
  const auto received = parse_xrc(event.data);
  const bool is_lookup = event.id->ps == RDMA_PS_UDP;
  // A lookup names the queue pair that it is about; a connection will get one.
  if (!received || received->data.reciprocal || is_lookup != (received->data.target != 0)) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "a request to %s is rejected: it is not that of an XRC endpoint",
              local().to_string().c_str());
    fabric_.counters().connections_failed.add();
    rdma_reject(event.id, nullptr, 0);
    rdma_destroy_id(event.id);
    return;
  }
  std::unique_ptr<sdk::ConnectRequest> request(new (std::nothrow)
                                                   ConnectRequest(*this, event.id, received->data));
  if (request == nullptr) {
    rdma_destroy_id(event.id);
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "a connection request is dropped: no memory");
    return;
  }
  if (!fabric_.takes_request(backlog())) return;  // its end rejects it
  report(std::move(request), received->parameter);
}

}  // namespace weft::verbs
