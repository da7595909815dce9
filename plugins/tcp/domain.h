// SPDX-License-Identifier: BSD-2-Clause
// The domain of the tcp provider: endpoints, and the staging buffer into which they all receive.
//
// Example:
//    #include <sys/socket.h>
//    #include <span>
//    // Reads a socket of one of its endpoints, under the engine's lock.
//    inline std::span<const uint8_t> read(Domain &domain, int fd) {
//      const ssize_t n = ::recv(fd, domain.staging(), kStagingSize, MSG_DONTWAIT);
//      return {domain.staging(), n > 0 ? size_t(n) : 0};  // until the next read
//    }
//
// Not for regions, completion queues and counters: sdk::SoftwareDomain and sdk::DomainOps have
// them.
#ifndef WEFT_PLUGINS_TCP_DOMAIN_H
#define WEFT_PLUGINS_TCP_DOMAIN_H

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/memory/hmem_pipe.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/scalable.h>
#include <weft/sdk/progress/linger_budget.h>

#include <memory>
#include <string>
#include <vector>

#include "plugins/tcp/keys.h"
#include "plugins/tcp/operation.h"
#include "plugins/tcp/settings.h"

namespace weft::tcp {

class Endpoint;
class Fabric;
class SharedReceiveContext;
class UnconnectedEndpoint;

inline constexpr size_t kStagingSize = 64 * 1024;

// The op tables of missing capabilities: every op returns -FI_ENOSYS.
struct Nothing final : sdk::Object<Nothing, fid_ep> {};

class Domain final : public sdk::Object<Domain, fid_domain>,
                     public sdk::SoftwareDomain,
                     public sdk::DomainOps<Domain, Endpoint>,
                     public sdk::ScalableOps<Domain, UnconnectedEndpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  Fabric &fabric() { return fabric_; }
  const Keys &keys() const { return keys_; }  // for endpoints without their own
  uint8_t dscp() const { return dscp_; }      // the same, of domain_attr.tclass
  // Small messages of all endpoints are read into this buffer, many at a time. It is used within
  // one call only.
  uint8_t *staging() { return staging_.get(); }
  // With FI_HMEM: where bytes of devices wait for the socket, and those from it for devices.
  sdk::HmemOutput &hmem_output() { return *hmem_output_; }
  sdk::HmemInput &hmem_input() { return *hmem_input_; }
  // Answers of connected endpoints; Stream::owes_too_much() bounds those of each. With the lock
  // held.
  sdk::Pool<Operation> &control_ops() { return control_ops_; }
  std::vector<Endpoint *> &endpoints() { return endpoints_; }  // with the lock held

  std::vector<UnconnectedEndpoint *> &unconnected() { return unconnected_; }           // the same
  std::vector<SharedReceiveContext *> &shared_receives() { return shared_receives_; }  // the same

  // For announced messages of unconnected endpoints that close. With the lock held.
  sdk::LingerBudget &linger_budget() { return linger_budget_; }

  // The address of an endpoint whose info names none, without a port.
  const sdk::SockAddr &source() const { return source_; }

  // fi_ops_domain
  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context);
  int endpoint2(struct fi_info *info, struct fid_ep **ep, uint64_t flags, void *context);
  int srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
  int stx_ctx(struct fi_tx_attr *attr, struct fid_stx **stx, void *context);

  // fi_ops
  int ops_open(const char *name, uint64_t flags, void **ops, void *context);
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_eq(fid, flags); }

 private:
  Domain(Fabric &fabric, const sdk::DomainSettings &settings, const fi_info &info, void *context);
  ~Domain() = default;

  Fabric &fabric_;
  const uint32_t addr_format_;
  const bool is_unconnected_;  // opened for FI_EP_RDM
  const sdk::SockAddr source_;
  const std::string name_;
  Keys keys_;
  uint8_t dscp_ = 0;
  std::unique_ptr<uint8_t[]> staging_;
  std::unique_ptr<sdk::HmemOutput> hmem_output_;
  std::unique_ptr<sdk::HmemInput> hmem_input_;
  sdk::Pool<Operation> control_ops_{SIZE_MAX, 8};
  std::vector<Endpoint *> endpoints_;
  std::vector<UnconnectedEndpoint *> unconnected_;
  std::vector<SharedReceiveContext *> shared_receives_;
  sdk::LingerBudget linger_budget_;
};

}  // namespace weft::tcp

#endif
