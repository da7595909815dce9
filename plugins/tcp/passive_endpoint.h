// SPDX-License-Identifier: BSD-2-Clause
// A passive endpoint (fi_passive_ep): a listening socket, and strangers who are in the middle of
// their connection request.
//
// A stranger has a deadline, a place among a bounded number, and 288 bytes; whatever else he sends
// closes his socket and adds one to a counter. Out of descriptors, it stops accepting for a moment
// and says so on the event queue, with the numbers.
#ifndef WEFT_PLUGINS_TCP_PASSIVE_ENDPOINT_H
#define WEFT_PLUGINS_TCP_PASSIVE_ENDPOINT_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/address.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/info_list.h>

#include <list>

#include "plugins/tcp/fabric.h"
#include "plugins/tcp/wire/connect_message.h"

namespace weft::tcp {

class PassiveEndpoint final : public sdk::Object<PassiveEndpoint, fid_pep>, public sdk::Handler {
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

  // Handler
  void on_event(uint32_t events) override;
  void on_deadline() override;

 private:
  // Somebody who connected and has not finished his request.
  class Stranger final : public sdk::Handler {
   public:
    Stranger(PassiveEndpoint &pep, int fd) : pep_(pep), fd_(fd) {}
    void on_event(uint32_t events) override;
    void on_deadline() override;

   private:
    friend class PassiveEndpoint;
    PassiveEndpoint &pep_;
    int fd_;
    ConnectReader reader_{ConnectRole::kPassive};
    std::list<Stranger>::iterator self_;
  };

  PassiveEndpoint(Fabric &fabric, sdk::InfoList info, void *context);
  ~PassiveEndpoint() = default;

  Result<void> start_listening();
  void accept_some();
  void accept_failed(int error);
  void dismiss(Stranger &stranger, Stat why);
  void introduce(Stranger &stranger);  // his request is complete
  void forget(Stranger &stranger);

  Fabric &fabric_;
  sdk::InfoList info_;
  sdk::SockAddr local_;
  sdk::Eq *eq_ = nullptr;
  int fd_ = -1;
  int backlog_;
  bool listening_ = false;
  bool failure_told_ = false;
  std::list<Stranger> strangers_;
};

}  // namespace weft::tcp

#endif
