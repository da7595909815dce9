// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/fabric.h"

#include <sys/socket.h>
#include <weft/sdk/objects/ops.h>

#include <array>

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

Fabric::~Fabric() {
  engine_.stop_thread();
  connections_.end();
}

int Fabric::passive_ep(struct fi_info *info, struct fid_pep **pep, void *context) {
  if (!sdk::asks_for(info, sdk::kSockStream))
    return ConnectedFabricOps::passive_ep(info, pep, context);
  if (pep == nullptr) return -FI_EINVAL;
  return sdk::finish(instance(), FI_LOG_EP_CTRL, StreamListener::open(*this, *info, context), pep);
}

}  // namespace weft::tcp
