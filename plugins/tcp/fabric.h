// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the tcp provider: event queues, passive endpoints, and connection requests without
// an answer.
//
// Example:
//    // Takes the request that an application names when it opens the endpoint to accept it.
//    inline Result<std::unique_ptr<ConnectRequest>> take(Fabric &fabric, fid_t handle) {
//      sdk::Guard guard(fabric.engine().lock());
//      std::unique_ptr<ConnectRequest> request(fabric.take(handle));
//      if (request == nullptr) return fail(FI_EINVAL, "the request was answered already");
//      return request;  // request->fd is the socket
//    }
//
// Its engine makes the progress of listening sockets and unfinished handshakes. Connections belong
// to the engine of their domain.
#ifndef WEFT_PLUGINS_TCP_FABRIC_H
#define WEFT_PLUGINS_TCP_FABRIC_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/fabric_ops.h>
#include <weft/sdk/fid.h>

#include <atomic>
#include <set>

#include "plugins/tcp/counters.h"
#include "plugins/tcp/settings.h"
#include "plugins/tcp/wire/connect_message.h"

namespace weft::tcp {

class Fabric;

// A socket with a complete request that waits for fi_accept or fi_reject: the fi_info.handle of
// FI_CONNREQ.
struct ConnectRequestFid {
  struct fid fid;
};
class ConnectRequest final : public sdk::Object<ConnectRequest, ConnectRequestFid> {
 public:
  ConnectRequest(Fabric &fabric, struct fid *pep, int fd, ByteOrder order);
  ~ConnectRequest();  // closes the socket, if it still has one
  // fi_close of the handle, without an answer: the requester sees the end of the stream.
  int close();

  int fd;
  const ByteOrder order;
  struct fid *const pep;

 private:
  Fabric &fabric_;
};

class Domain;
class PassiveEndpoint;

class Fabric final : public sdk::Object<Fabric, fid_fabric>, public sdk::FabricOps<Fabric, Domain> {
 public:
  static Result<fid_fabric *> open(const weft_instance *instance, const Settings &settings,
                                   const fi_fabric_attr &attr, void *context);

  sdk::Engine &engine() { return engine_; }
  const Settings &settings() const { return settings_; }
  Counters &counters() { return *stats_; }
  sdk::Stats<Counters> &stats() { return stats_; }
  uint32_t api_version() const { return api_version_; }
  std::atomic<size_t> children{0};

  // Handles that applications may pass in. These calls need the engine's lock.
  void remember(ConnectRequest *request) { requests_.insert(request); }
  // Removes the request and returns it. Null if the handle is no waiting request: it was used
  // already, or is not ours.
  ConnectRequest *take(fid_t handle);
  void drop_requests_of(struct fid *pep);
  size_t requests() const { return requests_.size(); }
  // The same for passive endpoints, which give their address to an endpoint (fi_endpoint.3).
  void remember(PassiveEndpoint *pep) { passive_.insert(pep); }
  void forget(PassiveEndpoint *pep) { passive_.erase(pep); }
  PassiveEndpoint *find_passive(fid_t handle) const;

  // fi_ops_fabric
  int passive_ep(struct fi_info *info, struct fid_pep **pep, void *context);
  int eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context);

  // fi_ops
  int close();
  int ops_open(const char *name, uint64_t flags, void **ops, void *) {
    return sdk::open_counters<Fabric>(name, flags, ops);
  }

 private:
  Fabric(const weft_instance *instance, const Settings &settings, const fi_fabric_attr &attr,
         void *context);
  ~Fabric() = default;

  sdk::Engine engine_{true};
  const Settings settings_;
  const uint32_t api_version_;
  sdk::Stats<Counters> stats_;
  std::set<ConnectRequest *> requests_;
  std::set<PassiveEndpoint *> passive_;
};

}  // namespace weft::tcp

#endif
