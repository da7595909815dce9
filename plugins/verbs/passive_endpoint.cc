// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/passive_endpoint.h"

#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/log.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/verbs/private_data.h"

namespace weft::verbs {

PassiveEndpoint::PassiveEndpoint(Fabric &fabric, sdk::PassiveStart start, void *context)
    : Object(fabric.instance(), FI_CLASS_PEP, context),
      PassiveCore(fabric.connections(), base(), std::move(start), fabric.settings().backlog),
      fabric_(fabric) {
  sdk::fill_tables(*this);
}

Result<PassiveEndpoint *> PassiveEndpoint::open(Fabric &fabric, const fi_info &info,
                                                void *context) {
  WEFT_TRY(sdk::PassiveStart start, sdk::PassiveStart::of(fabric.instance()->core, info));
  return finish_open(new (std::nothrow) PassiveEndpoint(fabric, std::move(start), context),
                     fabric.base());
}

void PassiveEndpoint::stop() {
  if (id_ != nullptr) rdma_destroy_id(std::exchange(id_, nullptr));
}

Result<sdk::Address> PassiveEndpoint::bind_to(const sdk::Address &local) {
  stop();
  WEFT_TRY(id_, fabric_.channel().make_id(*this));
  if (rdma_bind_addr(id_, c_address(local)) == 0) return local_address(*id_);
  const int error = errno;
  stop();
  return fail(error, "rdma_bind_addr to %s: %s", local.to_string().c_str(), strerror(error));
}

Result<sdk::Address> PassiveEndpoint::start_listening(int backlog) {
  if (id_ == nullptr) WEFT_CHECK(bind_to(local()));  // its device went away before
  if (rdma_listen(id_, backlog) == 0) return local_address(*id_);
  return fail(errno, "rdma_listen at %s: %s", local().to_string().c_str(), strerror(errno));
}

Result<void> PassiveEndpoint::describe(fi_info &info, const sdk::ConnectRequest &request) {
  return static_cast<const ConnectRequest &>(request).describe(fabric_.devices(), info);
}

void PassiveEndpoint::on_event(const ChannelEvent &event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    stop();  // the kernel waits for that
    report_error(FI_ENODEV, "the device is gone: nobody listens at " + local().to_string());
    return;
  }
  if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
  std::unique_ptr<sdk::ConnectRequest> request(new (std::nothrow) ConnectRequest(*this, event.id));
  if (request == nullptr) {
    rdma_destroy_id(event.id);
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "a connection request is dropped: no memory");
    return;
  }
  if (!fabric_.takes_request(backlog())) return;  // its end rejects it
  const std::string_view data = behind_ip_header(event.data, request->local());
  report(std::move(request), read_private_data(data.data(), data.size()));
}

}  // namespace weft::verbs
