// SPDX-License-Identifier: BSD-2-Clause
// RdmEndpoint: an unconnected endpoint whose receives are matched in software, whatever carries its
// bytes: EndpointCore, a transmit context, and a Receiver.
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    #include <weft/sdk/transfers/transfer.h>
//    class Endpoint final : public Object<Endpoint, fid_ep>,
//                           public RdmEndpoint,
//                           public TransferOps<Endpoint>,
//                           private ReceiverSink {
//     public:
//      Endpoint(DomainContext &domain, const fi_info &info, void *context)
//          : Object(domain.instance, FI_CLASS_EP, context),
//            RdmEndpoint(domain, *this, info, {.inject_size = 64}) {
//        fill_tables(*this);
//      }
//      int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
//      int control(int command, void *arg);  // FI_ENABLE: check_bindings(), set_enabled();
//                                            // else control_flags()
//      int close();                          // -FI_EBUSY with aliases; detach(), release()
//      ssize_t start(const RecvRequest &request) { return receiver().post(request); }
//      ssize_t start(const SendRequest &request);
//      ssize_t start(const RmaRequest &request);
//      ssize_t start(const AtomicRequest &request);
//     private:
//      void deliver(Unexpected &message, Receive &receive) override;
//      void discard(Unexpected &message) override;
//    };
//
// Under FI_BUFFERED_RECV or FI_VARIABLE_MSG (buffered.h) its receives are in memory of the
// receiver's; the derived class says its fid (name_endpoint), and cannot share receives.
//
// It knows no peer and no protocol. shared_receive.h has the context that may replace its own
// receives. Not for endpoints whose device matches or queues receives: endpoint.h.
#ifndef WEFT_SDK_OBJECTS_RDM_ENDPOINT_H
#define WEFT_SDK_OBJECTS_RDM_ENDPOINT_H

#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/objects/shared_receive.h>
#include <weft/sdk/transfers/levels.h>
#include <weft/sdk/transfers/receiver.h>

namespace weft::sdk {

class RdmEndpoint : public EndpointCore {
 public:
  static constexpr uint64_t kSendFlags =
      FI_COMPLETION | FI_INJECT | FI_MORE | FI_FENCE | FI_REMOTE_CQ_DATA | FI_TAGGED | kLevelFlags;

  // ---- for TransferOps ----
  uint64_t tx_flags() const { return transmit_.flags; }
  bool reports(uint64_t flags) const { return transmit_.reports(flags); }

  // Not of a shared context, which comes to the receiver with fi_enable, nor in its buffers.
  bool may_receive() {
    return enabled() ||
           (EndpointCore::may_receive() && shared_ == nullptr && receiver_.buffered() == nullptr);
  }

  TxContext &tx() { return transmit_; }
  Receiver &receiver() { return receiver_; }

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context);
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t rx_size_left();

  // A peer wrote here with remote CQ data. `source`: its index, or the number of a stranger.
  void report_remote_write(uint64_t length, uint64_t data, uint32_t source, bool atomic = false);

 protected:
  RdmEndpoint(DomainContext &domain, ReceiverSink &sink, const fi_info &info,
              const EndpointLimits &limits);
  ~RdmEndpoint() = default;
  // What a fi_recv_context says of untagged messages.
  void name_endpoint(fid_ep *ep);

  // As in EndpointCore, with shared receive contexts, which cannot be bound after fi_enable.
  int bind_object(struct fid *fid, uint64_t flags);
  Result<void> check_bindings() const;
  void set_enabled();
  void release(AvUser *user);

 private:
  TxContext transmit_;
  Receiver receiver_;
  SharedReceiveContext *shared_ = nullptr;
};

}  // namespace weft::sdk

#endif
