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
#include <weft/sdk/eq.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/info_list.h>
#include <weft/sdk/sock_addr.h>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/fabric.h"

namespace weft::verbs {

class PassiveEndpoint final : public sdk::Object<PassiveEndpoint, fid_pep>, private ChannelUser {
 public:
  static Result<PassiveEndpoint *> open(Fabric &fabric, const fi_info &info, void *context);

  // fi_ops_cm
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);
  int listen();
  int reject(fid_t handle, const void *param, size_t len);

  // fi_ops_ep
  int getopt(int level, int name, void *value, size_t *length);

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

  // Gives the address to an endpoint (fi_endpoint.3). Afterwards the passive endpoint can only be
  // closed. Fails while it listens, and the second time. Needs the engine's lock.
  Result<sdk::SockAddr> give_address();

 private:
  PassiveEndpoint(Fabric &fabric, sdk::InfoList info, void *context);
  ~PassiveEndpoint() = default;

  Result<void> bind_address();
  Result<void> start_listening();
  void drop_id();
  void on_event(const ChannelEvent &event) override;
  Result<fi_info *> request_info(sdk::InfoList &list, rdma_cm_id &id);

  Fabric &fabric_;
  sdk::InfoList info_;
  sdk::SockAddr local_;
  sdk::Eq *eq_ = nullptr;
  rdma_cm_id *id_ = nullptr;
  int backlog_;
  bool listening_ = false;
  bool taken_ = false;  // an endpoint took its address
};

}  // namespace weft::verbs

#endif
