// SPDX-License-Identifier: BSD-2-Clause
// ConnectedCore: what every connected endpoint (FI_EP_MSG) has beyond EndpointCore: its side of
// fi_cm.3.
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    class Domain;
//    class Endpoint final : public Object<Endpoint, fid_ep>, public ConnectedCore {
//     public:
//      // The domain's engine moves the connection on, and its lock guards it.
//      Endpoint(DomainContext &domain, Connections &connections, const fi_info &info, void *context)
//          : Object(domain.instance, FI_CLASS_EP, context),
//            ConnectedCore(domain, connections, *domain.engine, base(), info, {}, &tx_, &rx_),
//            tx_(info),
//            rx_(info) {
//        fill_tables(*this);
//      }
//      static weft::Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);
//      int bind(struct fid *fid, uint64_t flags) { return bind_connected(fid, flags); }
//      int control(int command, void *arg) {
//        return control_connected(command, arg, FI_COMPLETION | FI_INJECT);
//      }
//      int close();
//
//     private:
//      weft::Result<void> enable() override;
//      weft::Result<void> start_connect(const Address &peer, std::string_view data) override;
//      weft::Result<void> start_accept(std::unique_ptr<ConnectRequest> request,
//                                      std::string_view data) override;
//      void hang_up() override;
//      void on_answer() {
//        state_ = State::kConnected;
//        report_connected("what the peer gave to fi_accept");
//      }
//      TxContext tx_;
//      RxContext rx_;
//    };
//
// What the derived class overrides is called with the lock of connections held, that of
// `cm_engine`. With it held the derived class changes the state, and calls the reports.
#ifndef WEFT_SDK_OBJECTS_CONNECTED_H
#define WEFT_SDK_OBJECTS_CONNECTED_H

#include <weft/sdk/objects/connections.h>
#include <weft/sdk/objects/endpoint.h>

#include <memory>
#include <string>
#include <string_view>

namespace weft::sdk {

class ConnectedCore : public EndpointCore {
 public:
  // fi_ops_cm
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);
  int getpeer(void *addr, size_t *len);
  int connect(const void *addr, const void *param, size_t len);
  int accept(const void *param, size_t len);
  int shutdown(uint64_t flags);

 protected:
  enum class State : uint8_t {
    kIdle,
    kConnecting,  // from fi_connect or fi_accept on
    kConnected,
    kDisconnected,  // ended by either side, or failed
  };

  ConnectedCore(DomainContext &domain, Connections &connections, Engine &cm_engine, struct fid *fid,
                const fi_info &info, const EndpointLimits &limits, TxContext *tx, RxContext *rx,
                Lock *lock = nullptr);
  ~ConnectedCore() = default;

  // The endpoint's type and the sizes of its queues, which may be `max_queue` long.
  static Result<void> check(const fi_info &info, size_t max_queue);
  // For open(), with the lock of the fabric's engine held from the first to the last of these. The
  // name and the request that `info` gives to the endpoint (src_addr, handle):
  Result<Connections::Named> find_names(const fi_info &info);
  // Nothing can fail any more: the request is the endpoint's. Otherwise the application still has
  // it, and may reject it. Returns the passive endpoint whose name it took over, or null; that one
  // can only be closed from now on.
  PassiveCore *take_names(const Connections::Named &named);

  virtual Result<void> enable() = 0;  // may be called again
  virtual Result<void> start_connect(const Address &peer, std::string_view data) = 0;
  virtual Result<void> start_accept(std::unique_ptr<ConnectRequest> request,
                                    std::string_view data) = 0;
  virtual void hang_up() = 0;  // fi_shutdown of a connected endpoint
  // fi_setname: takes the name, and returns it as it is now, with a port. Those of a device have
  // it when they connect.
  virtual Result<Address> bind_to(const Address &local) { return local; }

  // For bind() and control(), which may have more to do.
  int bind_connected(struct fid *fid, uint64_t flags);
  int control_connected(int command, void *arg, uint64_t tx_known);
  // EndpointCore's, and FI_OPT_CM_DATA_SIZE.
  int get_limit(int level, int name, void *value, size_t *length) const;
  // For close(), without a lock: no event queue makes progress for this endpoint any more.
  void leave_event_queue();

  // Events.
  void report_connected(std::string_view data);
  // `cause` becomes prov_errno, and may be more exact than `error`.
  void report_failure(int error, std::string data, int cause);
  // FI_SHUTDOWN, once: false if it was told already.
  bool report_shutdown();

  // What a call gets that needs a connection.
  ssize_t not_connected() const {
    return state_ < State::kConnected ? -FI_ENOTCONN : -FI_ESHUTDOWN;
  }

  State state_ = State::kIdle;
  bool shutdown_told_ = false;
  const uint32_t addr_format_;
  Address local_, peer_;
  std::unique_ptr<ConnectRequest> request_;  // passive side, before fi_accept

 private:
  int finish_call(const char *call, const Result<void> &result) const;
  Result<void> begin_connect(const void *addr, std::string_view data);

  Connections &connections_;
  Engine &cm_engine_;
  struct fid *const fid_;
};

}  // namespace weft::sdk

#endif
