// SPDX-License-Identifier: BSD-2-Clause
// Connections: what the fabric of connected endpoints (FI_EP_MSG) has beside its event queues:
// passive endpoints, and connection requests that wait for an answer.
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    class Domain;
//    class PassiveEndpoint;  // passive.h
//    class Fabric final : public Object<Fabric, fid_fabric>,
//                         public ConnectedFabricOps<Fabric, Domain, PassiveEndpoint> {
//     public:
//      explicit Fabric(const weft_instance *instance) : Object(instance, FI_CLASS_FABRIC, nullptr) {}
//      Engine &engine() { return engine_; }
//      Connections &connections() { return connections_; }
//      std::atomic<size_t> children{0};
//
//     private:
//      Engine engine_{true};
//      Connections connections_{engine_, children, /*cm_data_size=*/256};
//    };
//    class Request final : public ConnectRequest {  // what a passive endpoint reports
//     public:
//      Request(PassiveCore &passive, const Address &local, const Address &peer)
//          : ConnectRequest(passive), local_(local), peer_(peer) {}
//      Address local() const override { return local_; }
//      Address peer() const override { return peer_; }
//      void reject(std::string_view data) override;
//
//     private:
//      const Address local_, peer_;
//    };
//
// Calls need the lock of the fabric's engine, except where it says otherwise. Not for unconnected
// endpoints, whose requests no application sees.
#ifndef WEFT_SDK_OBJECTS_CONNECTIONS_H
#define WEFT_SDK_OBJECTS_CONNECTIONS_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/result.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/engine.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string_view>

namespace weft::sdk {

class Connections;
class PassiveCore;

struct ConnectRequestFid {
  struct fid fid;
};

// A request that waits for fi_accept or fi_reject: the fi_info.handle of FI_CONNREQ. It is
// destroyed when it was answered, or will not be: its passive endpoint closed before the
// application read of it, or the fabric closes.
class ConnectRequest : public Object<ConnectRequest, ConnectRequestFid> {
 public:
  explicit ConnectRequest(PassiveCore &passive);
  virtual ~ConnectRequest() = default;

  // The names of the connection; none: the requester is gone.
  virtual Address local() const = 0;
  virtual Address peer() const = 0;
  // `data` fits. The requester may be gone: then nobody hears it.
  virtual void reject(std::string_view data) = 0;

  int close();  // fi_close of the handle; takes the lock

 private:
  friend class Connections;
  Connections &connections_;
};

class Connections {
 public:
  // `children` counts the fabric's open objects. `cm_data_size` is FI_OPT_CM_DATA_SIZE, in bytes.
  Connections(Engine &engine, std::atomic<size_t> &children, size_t cm_data_size)
      : cm_data_size(cm_data_size), engine_(engine), children_(children) {}

  const size_t cm_data_size;
  Engine &engine() { return engine_; }
  // A parameter of fi_connect, fi_accept or fi_reject. What is too long is dropped (fi_cm.3,
  // NOTES).
  std::string_view data(const void *param, size_t length) const {
    return {static_cast<const char *>(param), std::min(length, cm_data_size)};
  }

  void add(std::unique_ptr<ConnectRequest> request) {
    const fid_t handle = request->base();
    requests_.emplace(handle, std::move(request));
  }
  // Removes the request. Null: the handle is no waiting request. It may be anything.
  std::unique_ptr<ConnectRequest> take(fid_t handle);
  size_t waiting() const { return requests_.size(); }
  // The fabric closes: nobody will answer. Needs no lock.
  void end() { requests_.clear(); }

  // What fi_info.handle of fi_endpoint names: a request, or a passive endpoint that can give its
  // name away.
  struct Named {
    PassiveCore *passive = nullptr;
    ConnectRequest *request = nullptr;
  };
  Result<Named> find_named(fid_t handle);

 private:
  friend class PassiveCore;
  void add(PassiveCore &passive);
  void remove(PassiveCore &passive);
  void tell_room();

  Engine &engine_;
  std::atomic<size_t> &children_;
  std::map<fid_t, std::unique_ptr<ConnectRequest>> requests_;  // by handle
  std::set<PassiveCore *> passives_;
};

// FabricOps with fi_passive_ep, and with event queues that hold connection requests.
template <class F, class Domain, class PassiveEndpoint>
class ConnectedFabricOps : public FabricOps<F, Domain> {
 public:
  int passive_ep(struct fi_info *info, struct fid_pep **pep, void *context) {
    if (info == nullptr || pep == nullptr) return -FI_EINVAL;
    return finish(self().instance(), FI_LOG_EP_CTRL, PassiveEndpoint::open(self(), *info, context),
                  pep);
  }
  int eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context) {
    if (eq == nullptr) return -FI_EINVAL;
    auto opened = Eq::open(self().instance(), self().base(), self().children, attr, context);
    // Nobody can wait in poll() for an event queue with FI_WAIT_MUTEX_COND.
    if (opened && attr != nullptr && attr->wait_obj == FI_WAIT_MUTEX_COND) {
      if (auto started = self().engine().start_thread(); !started) {
        (*opened)->close();
        opened = tl::unexpected(started.error());
      }
    }
    // An unread request ends with its passive endpoint (PassiveCore::close). Only the info is freed
    // here.
    if (opened)
      (*opened)->drop_request = [](fi_info *info, const weft_instance *owner) {
        owner->core->info_free(info);
      };
    return finish(self().instance(), FI_LOG_EQ, std::move(opened), eq);
  }

 private:
  F &self() { return static_cast<F &>(*this); }
};

}  // namespace weft::sdk

#endif
