// SPDX-License-Identifier: BSD-2-Clause
// RdmEndpoint: what every unconnected endpoint has, whatever carries its bytes: the objects bound
// to it, its capabilities, flags, limits and options, its receiver, and the way to completions.
//
// Example:
//    #include <weft/sdk/ops.h>
//    #include <weft/sdk/transfer.h>
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
// It knows no peer and no protocol. transfer.h turns the calls of an application into requests,
// alias.h makes aliases, shared_receive.h has the context that may replace its own receives.
#ifndef WEFT_SDK_RDM_ENDPOINT_H
#define WEFT_SDK_RDM_ENDPOINT_H

#include <rdma/fi_endpoint.h>
#include <weft/result.h>
#include <weft/sdk/av.h>
#include <weft/sdk/bindings.h>
#include <weft/sdk/cntr.h>
#include <weft/sdk/cq.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/levels.h>
#include <weft/sdk/options.h>
#include <weft/sdk/receiver.h>
#include <weft/sdk/shared_receive.h>

namespace weft::sdk {

struct AtomicRequest;

// The orders (FI_ORDER_...) of an endpoint opened with `info`.
uint64_t order_of(const fi_info &info);

struct RdmLimits {
  size_t tx_size = 1024, rx_size = 1024;  // operations, unless the application asks otherwise
  size_t inject_size = 0;                 // bytes, unless the application asks for more
  size_t max_inject_size = 0;             // that it may ask for; 0: no more
  uint64_t max_msg_size = SIZE_MAX / 2;   // bytes
  size_t atomic_size = 0;  // bytes of all operands; half of it for compare operations
};

class RdmEndpoint {
 public:
  // An internal flag: this call reports nothing (fi_inject and its like).
  static constexpr uint64_t kSilent = UINT64_C(1) << 63;
  static constexpr uint64_t kSendFlags =
      FI_COMPLETION | FI_INJECT | FI_MORE | FI_FENCE | FI_REMOTE_CQ_DATA | FI_TAGGED | kLevelFlags;
  static constexpr uint64_t kReadFlags = FI_COMPLETION | FI_MORE | FI_FENCE | kLevelFlags;

  // ---- for TransferOps ----
  Lock &lock() { return domain_.engine->lock(); }
  bool enabled() const { return enabled_; }
  uint64_t tx_flags() const { return tx_flags_; }
  uint64_t rx_flags() const { return rx_flags_; }
  bool reports(uint64_t flags) const {
    return (flags & kSilent) == 0 && (!tx_selective_ || (flags & FI_COMPLETION) != 0);
  }
  // Whether the endpoint was opened for this kind of transfer, in this direction. Capabilities
  // without a direction mean both (fi_getinfo.3).
  bool offers(uint64_t kind, uint64_t direction) const {
    return (caps_ & kind) != 0 && (caps_ & direction) != 0;
  }
  ssize_t check_length(uint64_t length, uint64_t flags) const {
    if (length > (flags & FI_INJECT ? limits_.inject_size : limits_.max_msg_size))
      return -FI_EMSGSIZE;
    return 0;
  }
  // Counts, pointers, that the operation is valid and fits; fills in `elements`.
  ssize_t check_atomic(AtomicRequest &request) const;
  Receiver &receiver() { return receiver_; }
  std::atomic<size_t> aliases{0};  // open ones: the endpoint is busy

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context);
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t rx_size_left();

  const RdmLimits &limits() const { return limits_; }
  uint64_t caps() const { return caps_; }
  Av *av() const { return av_; }
  Eq *eq() const { return eq_; }
  Cq *tx_cq() const { return tx_cq_; }
  Cq *rx_cq() const { return receiver_.cq; }
  // FI_RM_ENABLED: an application that does not read its completions cannot cause more of them.
  bool tx_cq_full() const { return tx_cq_ != nullptr && tx_cq_->holds_back(); }
  bool rx_cq_full() const { return receiver_.cq != nullptr && receiver_.cq->holds_back(); }

  // ---- completions, with the lock held ----
  // A transfer that this endpoint started has ended. `flags` are those of the completion (FI_SEND |
  // FI_MSG, FI_SEND | FI_TAGGED, FI_WRITE | FI_RMA, FI_READ | FI_RMA, FI_WRITE | FI_ATOMIC, FI_READ
  // | FI_ATOMIC); errors are reported even where no completion was wanted, but for calls that
  // report nothing (context null and !report: the counter has it).
  struct Done {
    void *context = nullptr;
    uint64_t flags = 0;
    uint64_t length = 0;
    uint64_t tag = 0;
    bool report = true;
    int err = 0;         // FI_E..., 0: success
    int prov_errno = 0;  // 0: same as err
    std::string err_data{};
  };
  void finish_tx(Done done);
  // The common case, without a detour.
  void succeed_tx(void *context, uint64_t flags, uint64_t length, bool report) {
    if (Cntr *cntr = tx_cntr(flags)) cntr->add_events(1, length);
    if (report && tx_cq_ != nullptr)
      tx_cq_->push({.context = context, .flags = flags, .len = length});
  }
  // A peer wrote here with remote CQ data (a completion), or read or wrote at all (counters of the
  // endpoint).
  void report_remote_write(uint64_t length, uint64_t data, uint32_t source, bool atomic = false);
  Cntr *remote_cntr(uint64_t access) const {
    return access & FI_REMOTE_WRITE ? remote_write_ : remote_read_;
  }
  void count_remote(uint64_t access, uint64_t bytes) {
    if (Cntr *cntr = remote_cntr(access)) cntr->add_events(1, bytes);
  }

 protected:
  // `info` as the application passed it to fi_endpoint.
  RdmEndpoint(DomainContext &domain, ReceiverSink &sink, const fi_info &info,
              const RdmLimits &limits);
  ~RdmEndpoint() = default;

  // fi_ep_bind: 0 or -FI_E... Queues and counters that fi_enable does not need may come after it,
  // and tell of what completes from then on, as programs expect of stock libfabric; address vectors
  // and shared contexts may not (-FI_EOPBADSTATE).
  int bind_object(struct fid *fid, uint64_t flags);
  // fi_enable: what is missing, as fi_endpoint.3 (FI_ENABLE) lists it.
  Result<void> check_bindings() const;
  void set_enabled();
  // FI_GETOPSFLAG and FI_SETOPSFLAG; -FI_ENOSYS for all other commands.
  int control_flags(int command, void *arg);
  // bind_object() leaves the registration as an AvUser to the endpoint: Av::add_user
  // when it is enabled. For close(), with the lock held: detach() takes the
  // completions away from operations that are still in flight, release() lets go of all bound
  // objects. Operations that fail between the two are not reported.
  void detach();
  void release(AvUser *user);

  DomainContext &domain_;

 private:
  Cntr *tx_cntr(uint64_t flags) const {
    return flags & FI_SEND ? send_ : flags & FI_WRITE ? write_ : read_;
  }

  const uint64_t caps_;
  RdmLimits limits_;
  bool enabled_ = false;
  bool tx_selective_ = false;
  uint64_t tx_flags_, rx_flags_;
  Cq *tx_cq_ = nullptr;
  Cntr *send_ = nullptr, *read_ = nullptr, *write_ = nullptr;
  Cntr *remote_read_ = nullptr, *remote_write_ = nullptr;
  Av *av_ = nullptr;
  Eq *eq_ = nullptr;
  Bindings bindings_{domain_};
  Receiver receiver_;
  const bool wants_shared_;  // FI_SHARED_CONTEXT
  SharedReceiveContext *shared_ = nullptr;
};

}  // namespace weft::sdk

#endif
