// SPDX-License-Identifier: BSD-2-Clause
// Endpoint: an endpoint of reliable datagrams. Calls of the application become operations of a Core
// (protocol/core.h), whose carrier is a Lower over the inner provider.
//
// Example:
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(Endpoint *const endpoint, Endpoint::open(domain, info, nullptr));
//      return endpoint->c();  // the application binds, enables and closes it
//    }
//    // What fi_send() becomes, after its arguments were checked.
//    inline ssize_t send(Endpoint &endpoint, const iovec &message, fi_addr_t dest) {
//      sdk::Guard guard(endpoint.lock());
//      return endpoint.start(
//          sdk::SendRequest{.iov = &message, .count = 1, .length = message.iov_len, .dest = dest});
//    }
//
// Not for checks of arguments, queues and matching: the SDK's LayerEndpoint does them.
#ifndef WEFT_PLUGINS_RXM_ENDPOINT_H
#define WEFT_PLUGINS_RXM_ENDPOINT_H

#include <weft/sdk/layers/layer_endpoint.h>
#include <weft/sdk/progress/exit_duty.h>
#include <weft/sdk/unit/stats.h>

#include <optional>

#include "plugins/rxm/domain.h"
#include "plugins/rxm/lower.h"
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

struct Parts {
  using Domain = rxm::Domain;
  using Core = rxm::Core;
  using Lower = rxm::Lower;
  using Operation = TxOp;
  using Message = RxMessage;
};

class Endpoint final : public sdk::LayerEndpoint<Endpoint, Parts>, private sdk::ExitDuty {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);

  // TransferOps
  using LayerEndpoint::start;
  int bind(struct fid *fid, uint64_t flags);
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RmaRequest &request);
  ssize_t start(const sdk::AtomicRequest &request);

 private:
  friend LayerEndpoint;
  Endpoint(Domain &domain, const fi_info &info, const sdk::Address &local, void *context);
  ~Endpoint() = default;

  bool must_own(const TxOp &op) const;
  template <class Request>
  void take_descriptors(TxOp &op, const Request &request);
  Result<void> begin();
  Result<void> count_remote_later() {
    return lower_.count_remote(receiver().remote_write, receiver().remote_read);
  }
  void end();
  void shut() {
    part_.reset();
    lower_.shut();
  }

  // ReceiverSink. Who writes a message into our memory writes all of it.
  size_t most_first() const override;
  // Core::Upper
  void on_done(TxOp &op, int err) override { report(op, op.length, err); }
  void on_remote_atomic(uint64_t access, std::span<const RmaVector> where) override;
  bool persist(std::span<const RmaVector> where) override;
  void on_wait(const TxOp &op) override {
    if (!op.report) owe();
  }
  // ExitDuty
  bool owes(bool) override { return core_->has_unasked() || lower_.has_injected(); }
  // Lower::Upper
  uint64_t endpoint_number() override { return number(); }
  void on_remote_write(Connection *from, uint64_t length, uint64_t data) override;
  void on_lost(uint64_t flags, int err) override;

  const size_t inject_room_;  // bytes that fit into an injected packet
  // While the core is there.
  std::optional<sdk::Stats<Counters>::Part> part_;
};

}  // namespace weft::rxm

#endif
