// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/connections.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/passive.h>

#include <utility>

namespace weft::sdk {

ConnectRequest::ConnectRequest(PassiveCore &passive)
    : Object(passive.instance(), FI_CLASS_CONNREQ, nullptr), connections_(passive.connections_) {
  c()->fid.ops = c_table(fid_ops<ConnectRequest>());
}

int ConnectRequest::close() {
  Guard guard(connections_.engine().lock());
  const auto self = connections_.take(base());
  return 0;
}

std::unique_ptr<ConnectRequest> Connections::take(fid_t handle) {
  // The application may pass anything, so it is looked up before it is used.
  const auto at = requests_.find(handle);
  if (at == requests_.end()) return nullptr;
  std::unique_ptr<ConnectRequest> request = std::move(at->second);
  requests_.erase(at);
  tell_room();
  return request;
}

Result<Connections::Named> Connections::find_named(fid_t handle) {
  for (PassiveCore *const passive : passives_) {
    if (passive->fid() != handle) continue;
    WEFT_CHECK(passive->check_free());
    return Named{.passive = passive};
  }
  const auto at = requests_.find(handle);
  if (at == requests_.end())
    return fail(FI_EINVAL,
                "fi_endpoint: info->handle is neither a connection request that still waits for an "
                "answer nor a passive endpoint of this fabric");
  return Named{.request = at->second.get()};
}

void Connections::add(PassiveCore &passive) {
  children_.fetch_add(1);
  passives_.insert(&passive);
}

void Connections::remove(PassiveCore &passive) {
  passives_.erase(&passive);
}

void Connections::tell_room() {
  for (PassiveCore *const passive : passives_) passive->on_room();
}

}  // namespace weft::sdk
