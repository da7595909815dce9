// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/passive_endpoint.h"

#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <new>
#include <utility>

#include "plugins/tcp/socket.h"

namespace weft::tcp {

PassiveEndpoint::PassiveEndpoint(Fabric &fabric, sdk::PassiveStart start, void *context)
    : Object(fabric.instance(), FI_CLASS_PEP, context),
      PassiveCore(fabric.connections(), base(), std::move(start), fabric.settings().backlog),
      fabric_(fabric),
      acceptor_(fabric.instance(), fabric.engine(), fabric.settings(), fabric.counters(), *this,
                0) {
  sdk::fill_tables(*this);
}

Result<PassiveEndpoint *> PassiveEndpoint::open(Fabric &fabric, const fi_info &info,
                                                void *context) {
  WEFT_TRY(sdk::PassiveStart start, sdk::PassiveStart::of(fabric.instance()->core, info));
  WEFT_TRY(Keys keys, Keys::of(info, nullptr, fabric.settings(), fabric.api_version()));
  WEFT_TRY(const uint8_t of_domain, sdk::domain_dscp(info, fabric.api_version()));
  WEFT_TRY(const uint8_t dscp, sdk::endpoint_dscp(info, fabric.api_version(), of_domain));
  auto *const pep = new (std::nothrow) PassiveEndpoint(fabric, std::move(start), context);
  if (pep != nullptr) {
    pep->acceptor_.set_keys(std::move(keys));
    pep->acceptor_.set_dscp(dscp);
  }
  return finish_open(pep, fabric.base());
}

Result<sdk::Address> PassiveEndpoint::bind_to(const sdk::Address &local) {
  WEFT_TRY(const sdk::SockAddr address, sdk::SockAddr::from(local));
  if (auto bound = acceptor_.bind(address); !bound) {
    acceptor_.close();
    return tl::unexpected(bound.error());
  }
  return acceptor_.name();
}

Result<sdk::Address> PassiveEndpoint::start_listening(int backlog) {
  WEFT_CHECK(acceptor_.listen(backlog));
  max_requests_ = std::max<size_t>(descriptor_limit() / 2, 1);
  return acceptor_.name();
}

// Each request has a descriptor, even if the application does not read the event queue.
bool PassiveEndpoint::takes_more(size_t unfinished) {
  const size_t waiting = fabric_.connections().waiting();
  if (waiting + unfinished < max_requests_) return true;
  if (waiting >= max_requests_ && !std::exchange(crowd_told_, true))
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "%zu connection requests at %s wait for fi_accept or fi_reject, half of what `ulimit "
              "-n` allows: the next ones wait in the kernel",
              waiting, local().to_string().c_str());
  return false;
}

void PassiveEndpoint::on_request(int fd, const ConnectReader &reader) {
  sdk::UniqueFd socket(fd);
  auto request = std::make_unique<ConnectRequest>(*this, std::move(socket), reader.header());
  if (!report(std::move(request), text_of(reader.private_bytes())))
    fabric_.counters().accept_failures.add();
}

}  // namespace weft::tcp
