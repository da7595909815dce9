// SPDX-License-Identifier: BSD-2-Clause
// An endpoint of reliable datagrams: turns the application's calls into operations of the
// protocol's core, which uses the inner provider as its carrier.
#ifndef WEFT_PLUGINS_RXD_ENDPOINT_H
#define WEFT_PLUGINS_RXD_ENDPOINT_H

#include <weft/sdk/layers/layer_endpoint.h>
#include <weft/sdk/unit/stats.h>

#include <optional>
#include <span>
#include <string>

#include "plugins/rxd/domain.h"
#include "plugins/rxd/lower.h"
#include "plugins/rxd/protocol/core.h"

namespace weft::rxd {

struct Parts {
  using Domain = rxd::Domain;
  using Core = rxd::Core;
  using Lower = rxd::Lower;
  using Operation = TxOp;
  using Message = Incoming;
};

class Endpoint final : public sdk::LayerEndpoint<Endpoint, Parts> {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);

  // TransferOps
  using LayerEndpoint::start;
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RmaRequest &request);
  ssize_t start(const sdk::AtomicRequest &request);

 private:
  friend LayerEndpoint;
  Endpoint(Domain &domain, const fi_info &info, const sdk::Address &local, std::string auth_key,
           void *context);
  ~Endpoint() = default;

  Result<void> begin();
  void end();
  void shut();
  void drop_core();

  template <class Request, class Fill>
  ssize_t launch(const Request &request, Fill fill);
  template <class Request>
  ssize_t own_if_needed(TxOp &op, const Request &request);
  bool is_devices(const iovec *iov, size_t count);
  void count_regions(uint64_t access, std::span<const RmaVector> where);

  // Core::Upper
  void on_done(TxOp &op, int err) override;
  void on_remote_write(uint32_t source, uint64_t length, bool has_data, uint64_t data,
                       std::span<const RmaVector> where) override;
  uint16_t persist(std::span<const RmaVector> where) override;
  void on_remote_read(uint64_t length, std::span<const RmaVector> where) override;
  void on_remote_atomic(uint64_t access, uint64_t length,
                        std::span<const RmaVector> where) override;

  // Lower::Upper
  uint64_t endpoint_number() override { return number(); }

  const std::string auth_key_;
  // While the core is there.
  std::optional<sdk::Stats<Counters>::Part> part_;
};

}  // namespace weft::rxd

#endif
