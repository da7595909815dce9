// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/fabric.h"

#include <sys/socket.h>
#include <weft/sdk/ops.h>

#include <array>
#include <new>
#include <utility>

#include "plugins/tcp/byte_stream.h"
#include "plugins/tcp/domain.h"
#include "plugins/tcp/passive_endpoint.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {

sdk::Address ConnectRequest::local() const {
  return socket_name(socket.get()).value_or(sdk::SockAddr());
}

sdk::Address ConnectRequest::peer() const {
  return socket_peer(socket.get()).value_or(sdk::SockAddr());
}

void ConnectRequest::reject(std::string_view data) {
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n = encode_connect(ConnectType::kReject, bytes_of(data), message);
  // An answer to a requester that is gone may be lost.
  [[maybe_unused]] const ssize_t sent =
      ::send(socket.get(), message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket.get(), SHUT_WR);
}

Fabric::Fabric(const weft_instance *instance, const Settings &settings,
               std::shared_ptr<sdk::HmemSource> hmem, const fi_fabric_attr &attr, void *context)
    : Object(instance, FI_CLASS_FABRIC, context),
      settings_(settings),
      hmem_(std::move(hmem)),
      api_version_(attr.api_version) {
  sdk::fill_tables(*this);
  c()->api_version = attr.api_version;
}

Result<fid_fabric *> Fabric::open(const weft_instance *instance, const Settings &settings,
                                  std::shared_ptr<sdk::HmemSource> hmem, const fi_fabric_attr &attr,
                                  void *context) {
  Fabric *fabric = new (std::nothrow) Fabric(instance, settings, std::move(hmem), attr, context);
  if (fabric == nullptr) return fail(FI_ENOMEM, "no memory for a fabric");
  if (auto published = fabric->publish(nullptr); !published) {
    delete fabric;
    return tl::unexpected(published.error());
  }
  return fabric->c();
}

int Fabric::passive_ep(struct fi_info *info, struct fid_pep **pep, void *context) {
  if (!sdk::asks_for(info, sdk::kSockStream))
    return ConnectedFabricOps::passive_ep(info, pep, context);
  if (pep == nullptr) return -FI_EINVAL;
  return sdk::finish(instance(), FI_LOG_EP_CTRL, StreamListener::open(*this, *info, context), pep);
}

int Fabric::close() {
  if (children.load() != 0) return -FI_EBUSY;
  retire();
  engine_.stop_thread();
  connections_.end();
  delete this;
  return 0;
}

}  // namespace weft::tcp
