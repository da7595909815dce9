// SPDX-License-Identifier: BSD-2-Clause
// A passive endpoint (fi_passive_ep): listens (acceptor.h), and reports requests as events.
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
// Not for unconnected endpoints: each has an Acceptor of its own.
#ifndef WEFT_PLUGINS_TCP_PASSIVE_ENDPOINT_H
#define WEFT_PLUGINS_TCP_PASSIVE_ENDPOINT_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/passive.h>

#include "plugins/tcp/acceptor.h"
#include "plugins/tcp/fabric.h"

namespace weft::tcp {

class PassiveEndpoint final : public sdk::Object<PassiveEndpoint, fid_pep>,
                              public sdk::PassiveCore,
                              private Acceptor::Client {
 public:
  using Object::instance;
  static Result<PassiveEndpoint *> open(Fabric &fabric, const fi_info &info, void *context);

  // The socket that is bound to its name, for the endpoint that took the name; -1: none yet.
  // Needs the engine's lock.
  int release_socket() { return acceptor_.release(); }

 private:
  friend class sdk::PassiveCore;
  PassiveEndpoint(Fabric &fabric, sdk::PassiveStart start, void *context);
  ~PassiveEndpoint() = default;

  // PassiveCore
  Result<sdk::Address> bind_to(const sdk::Address &local) override;
  Result<sdk::Address> start_listening(int backlog) override;
  void stop() override { acceptor_.close(); }
  void on_room() override { acceptor_.go_on(); }
  // Acceptor::Client
  bool takes_more(size_t unfinished) override;
  void on_request(int fd, const ConnectReader &request) override;
  void on_accept_failure(int error, const std::string &reason) override {
    report_error(error, reason);
  }

  Fabric &fabric_;
  bool crowd_told_ = false;
  size_t max_requests_ = 0;  // requests of the fabric without an answer
  Acceptor acceptor_;
};

}  // namespace weft::tcp

#endif
