// SPDX-License-Identifier: BSD-2-Clause
// A passive endpoint of XRC: it takes connections and lookups at one port, and reports both as
// requests.
//
// Example:
//    inline Result<fid_pep *> open(Fabric &fabric, const fi_info &info) {
//      WEFT_TRY(XrcPassiveEndpoint *const pep, XrcPassiveEndpoint::open(fabric, info, nullptr));
//      return pep->c();  // the application binds it to an event queue, and listens
//    }
//
// A request that is not that of an XRC endpoint is rejected here. Not for reciprocal requests:
// XrcDomain.
#ifndef WEFT_PLUGINS_VERBS_XRC_PASSIVE_H
#define WEFT_PLUGINS_VERBS_XRC_PASSIVE_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/passive.h>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/fabric.h"

namespace weft::verbs {

class XrcPassiveEndpoint final : public sdk::Object<XrcPassiveEndpoint, fid_pep>,
                                 public sdk::PassiveCore,
                                 private ChannelUser {
 public:
  using Object::instance;
  static Result<XrcPassiveEndpoint *> open(Fabric &fabric, const fi_info &info, void *context);

  // fi_ops_ep
  int getopt(int level, int name, void *value, size_t *length);

 private:
  friend class sdk::PassiveCore;
  XrcPassiveEndpoint(Fabric &fabric, sdk::PassiveStart start, void *context);
  ~XrcPassiveEndpoint() = default;

  // PassiveCore
  Result<sdk::Address> bind_to(const sdk::Address &local) override;
  Result<sdk::Address> start_listening(int backlog) override;
  void stop() override;
  Result<void> describe(fi_info &info, const sdk::ConnectRequest &request) override;
  // ChannelUser
  void on_event(const ChannelEvent &event) override;

  Fabric &fabric_;
  rdma_cm_id *connections_id_ = nullptr, *lookups_id_ = nullptr;
};

}  // namespace weft::verbs

#endif
