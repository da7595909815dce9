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
#include <weft/sdk/eq.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/info_list.h>
#include <weft/sdk/sock_addr.h>

#include "plugins/tcp/acceptor.h"
#include "plugins/tcp/fabric.h"

namespace weft::tcp {

class PassiveEndpoint final : public sdk::Object<PassiveEndpoint, fid_pep>,
                              private Acceptor::Client {
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

  // Gives the address to an endpoint, with the socket that is bound to it (-1: none yet).
  // Afterwards the passive endpoint can only be closed. Fails while it listens, and the second
  // time. Needs the engine's lock.
  struct Address {
    sdk::SockAddr local;
    int fd = -1;
  };
  Result<Address> give_address();
  // One of the fabric's requests was answered. Needs the engine's lock.
  void on_request_gone() { acceptor_.go_on(); }

 private:
  PassiveEndpoint(Fabric &fabric, sdk::InfoList info, void *context);
  ~PassiveEndpoint() = default;

  Result<void> start_listening();
  // Acceptor::Client
  bool takes_more(size_t unfinished) override;
  void on_request(int fd, const ConnectReader &request) override;
  void on_accept_failure(int error, const std::string &reason) override;

  Fabric &fabric_;
  sdk::InfoList info_;
  sdk::SockAddr local_;
  sdk::Eq *eq_ = nullptr;
  int backlog_;
  bool taken_ = false;  // an endpoint took its address
  bool crowd_told_ = false;
  size_t max_requests_ = 0;  // requests of the fabric without an answer
  Acceptor acceptor_;
};

}  // namespace weft::tcp

#endif
