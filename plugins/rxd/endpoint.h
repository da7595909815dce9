// SPDX-License-Identifier: BSD-2-Clause
// An endpoint of reliable datagrams: the application's calls become operations of the protocol's
// core, whose carrier is the inner provider.
#ifndef WEFT_PLUGINS_RXD_ENDPOINT_H
#define WEFT_PLUGINS_RXD_ENDPOINT_H

#include <weft/sdk/atomic.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/rdm_endpoint.h>
#include <weft/sdk/transfer.h>

#include <optional>
#include <span>
#include <string>

#include "plugins/rxd/domain.h"
#include "plugins/rxd/lower.h"
#include "plugins/rxd/protocol/core.h"

namespace weft::rxd {

inline constexpr sdk::AtomicLimits kAtomicLimits{
    .write = kMaxAtomicSize, .fetch = kMaxAtomicSize, .compare = kMaxAtomicSize / 2};

class Endpoint final : public sdk::Object<Endpoint, fid_ep>,
                       public sdk::RdmEndpoint,
                       public sdk::TransferOps<Endpoint>,
                       public sdk::ReceiverSink,
                       public sdk::AvUser,
                       public Owner,
                       public Lower::Upper {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);

  // TransferOps
  ssize_t start(const sdk::RecvRequest &request) { return receiver().post(request); }
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RmaRequest &request);
  ssize_t start(const sdk::AtomicRequest &request);
  sdk::Receiver &receiver() override { return RdmEndpoint::receiver(); }

  // fi_ops_atomic
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count);

  // fi_ops_cm
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);

  // fi_ops_ep
  ssize_t tx_size_left();

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
  int control(int command, void *arg);

 private:
  Endpoint(Domain &domain, const fi_info &info, const sdk::SockAddr &local, std::string auth_key,
           void *context);
  ~Endpoint() = default;

  Result<void> enable();
  TxOp *take(fi_addr_t dest, uint32_t &index, ssize_t &rc);
  void fill(TxOp &op, uint64_t flags, bool report, void *context) const;
  ssize_t go(TxOp &op, uint32_t index, bool own);
  void linger();

  // sdk::ReceiverSink
  void deliver(sdk::Unexpected &message, sdk::Receive &receive) override;
  void discard(sdk::Unexpected &message) override;
  std::string source_address(const sdk::Message &message) override;
  // sdk::AvUser
  void on_av_removed(uint32_t index) override;
  void on_av_inserted(uint32_t index, const sdk::SockAddr &address) override;
  // Owner
  void on_done(TxOp &op, int err) override;
  uint32_t index_of(const sdk::SockAddr &address) override;
  void on_remote_write(uint32_t source, uint64_t length, bool has_data, uint64_t data,
                       std::span<const RmaVector> where) override;
  void on_remote_read(uint64_t length, std::span<const RmaVector> where) override;
  void on_remote_atomic(uint64_t access, uint64_t length,
                        std::span<const RmaVector> where) override;
  void warn(const char *text) override;
  // Lower::Upper
  Core &core() override { return *core_; }
  bool is_full() override { return rx_cq_full(); }

  void count_regions(uint64_t access, std::span<const RmaVector> where);

  Domain &domain_;
  const uint32_t addr_format_;
  const std::string auth_key_;
  sdk::SockAddr local_;
  Lower lower_;
  std::optional<Core> core_;
};

}  // namespace weft::rxd

#endif
