// SPDX-License-Identifier: BSD-2-Clause
// A passive endpoint (fi_passive_ep): listens by librdmacm, and reports requests as events.
//
// Example:
//    // `eq` then has an FI_CONNREQ for each request. Its info opens the endpoint that accepts it.
//    inline Result<fid_pep *> listen(Fabric &fabric, const fi_info &info, fid_eq *eq) {
//      WEFT_TRY(PassiveEndpoint *const pep, PassiveEndpoint::open(fabric, info, nullptr));
//      int rc = pep->bind(&eq->fid, 0);
//      if (rc == 0) rc = pep->listen();
//      if (rc == 0) return pep->c();
//      pep->close();
//      return fail(-rc, "the log says why");
//    }
//
// Not for datagram endpoints: they have no connections.
#ifndef WEFT_PLUGINS_VERBS_PASSIVE_ENDPOINT_H
#define WEFT_PLUGINS_VERBS_PASSIVE_ENDPOINT_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/passive.h>

#include <memory>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/fabric.h"

namespace weft::verbs {

class PassiveEndpoint final : public sdk::Object<PassiveEndpoint, fid_pep>,
                              public sdk::PassiveCore,
                              private ChannelUser {
 public:
  using Object::instance;
  static Result<PassiveEndpoint *> open(Fabric &fabric, const fi_info &info, void *context);

 private:
  friend class sdk::PassiveCore;
  PassiveEndpoint(Fabric &fabric, sdk::PassiveStart start, void *context);
  ~PassiveEndpoint() = default;

  // PassiveCore
  Result<sdk::Address> bind_to(const sdk::Address &local) override;
  Result<sdk::Address> start_listening(int backlog) override;
  void stop() override;
  Result<void> describe(fi_info &info, const sdk::ConnectRequest &request) override;
  // ChannelUser
  void on_event(const ChannelEvent &event) override;

  Fabric &fabric_;
  rdma_cm_id *id_ = nullptr;
};

}  // namespace weft::verbs

#endif
