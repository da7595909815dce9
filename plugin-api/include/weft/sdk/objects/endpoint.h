// SPDX-License-Identifier: BSD-2-Clause
// EndpointCore: what every endpoint has, of whatever type and whatever carries its bytes: the
// objects bound to it, its state, capabilities, limits and options.
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    #include <weft/sdk/transfers/recv_queue.h>
//    #include <weft/sdk/transfers/transfer.h>
//    class Endpoint final : public Object<Endpoint, fid_ep>,
//                           public EndpointCore,
//                           public TransferOps<Endpoint> {
//     public:
//      Endpoint(DomainContext &domain, const fi_info &info, void *context)
//          : Object(domain.instance, FI_CLASS_EP, context),
//            EndpointCore(domain, PeerKind::kConnected, info, {.inject_size = 64}, &tx_, &rx_),
//            tx_(info),
//            rx_(info),
//            receives_(limits().rx_size) {
//        fill_tables(*this);
//      }
//      static constexpr uint64_t kSendFlags = FI_COMPLETION | FI_INJECT;
//      int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
//      int control(int command, void *arg);  // FI_ENABLE: check_bindings(), set_enabled();
//                                            // else control_flags()
//      int close();                          // -FI_EBUSY with aliases; detach(), release()
//      ssize_t start(const RecvRequest &request);
//      ssize_t start(const SendRequest &request);
//      ssize_t start(const RmaRequest &request);
//      ssize_t start(const AtomicRequest &request);
//     private:
//      TxContext tx_;
//      RxContext rx_;
//      RecvQueue receives_;
//    };
//
// An endpoint is this, a transmit context and a receive context (contexts.h), and what keeps its
// receives. The context of a scalable endpoint is this and one of the two. RdmEndpoint
// (rdm_endpoint.h) is the composition with a software matcher. transfer.h turns the calls of an
// application into requests, alias.h makes aliases. It knows no peer, no protocol and no receive.
#ifndef WEFT_SDK_OBJECTS_ENDPOINT_H
#define WEFT_SDK_OBJECTS_ENDPOINT_H

#include <rdma/fi_endpoint.h>
#include <weft/result.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/objects/endpoint_number.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/progress/lock.h>
#include <weft/sdk/transfers/deferred.h>
#include <weft/sdk/transfers/levels.h>

#include <atomic>
#include <vector>

namespace weft::sdk {

struct AtomicRequest;

struct EndpointLimits {
  size_t tx_size = 1024, rx_size = 1024;  // operations, unless the application asks otherwise
  size_t inject_size = 0;                 // bytes, unless the application asks for more
  size_t max_inject_size = 0;             // that it may ask for; 0: no more
  uint64_t max_msg_size = SIZE_MAX / 2;   // bytes
  size_t atomic_size = 0;       // bytes of all operands; half of it for compare operations
  bool early_receives = false;  // may be posted before fi_enable
  bool may_buffer = false;      // FI_BUFFERED_RECV and FI_VARIABLE_MSG are offered (buffered.h)
};

// The orders (FI_ORDER_...) of an endpoint opened with `info`.
uint64_t order_of(const fi_info &info);

// Whether an endpoint of `info` receives through a shared context (ep_attr.rx_ctx_cnt).
bool wants_shared_receive(const fi_info &info);
// Whether it sends through one (ep_attr.tx_ctx_cnt).
bool wants_shared_transmit(const fi_info &info);

// A connected endpoint has one peer and reports its connection to an event queue; an unconnected
// one names each peer by an address vector.
enum class PeerKind : uint8_t { kConnected, kUnconnected };

class EndpointCore {
 public:
  static constexpr uint64_t kReadFlags = FI_COMPLETION | FI_MORE | FI_FENCE | kLevelFlags;

  // ---- for TransferOps ----
  Lock &lock() { return lock_; }
  bool enabled() const { return enabled_; }
  uint64_t tx_flags() const { return tx_->flags; }
  uint64_t rx_flags() const { return rx_->flags; }
  bool reports(uint64_t flags) const { return tx_->reports(flags); }
  // Whether anybody can tell when a transfer of this direction (FI_SEND or FI_WRITE) has completed
  // that leaves no entry: a counter, or a fence.
  bool heeds_level(uint64_t direction) const {
    return (direction & FI_SEND ? tx_->send : tx_->write) != nullptr || (caps_ & FI_FENCE) != 0;
  }
  // Whether the endpoint was opened for this kind of transfer, in this direction. Capabilities
  // without a direction mean both (fi_getinfo.3), and those of tx_attr and rx_attr, where they are
  // set, are less than those of the endpoint (fi_endpoint.3).
  bool offers(uint64_t kind, uint64_t direction) const {
    const uint64_t caps = direction & kTransmits ? tx_caps_ : rx_caps_;
    return (caps & kind) != 0 && (caps & direction) != 0;
  }
  // Receives may be posted before fi_enable where software keeps them (fi_cm.3), once there is what
  // tells of them, and what gives their sources names.
  bool may_receive() const {
    return enabled_ || (limits_.early_receives && !wants_shared_ && rx_ != nullptr &&
                        rx_->has_target() && (kind_ == PeerKind::kConnected || av_ != nullptr));
  }
  ssize_t check_length(uint64_t length, uint64_t flags) const {
    if (length > (flags & FI_INJECT ? limits_.inject_size : limits_.max_msg_size))
      return -FI_EMSGSIZE;
    return 0;
  }
  // Counts, pointers, that the operation is valid and fits; fills in `elements`.
  ssize_t check_atomic(AtomicRequest &request) const;
  std::atomic<size_t> aliases{0};  // open ones: the endpoint is busy
  DomainContext &domain_context() const { return core_domain_; }
  // Whether calls may have FI_TRIGGER; deferred_queue(): where they wait. Null: it has no queue.
  bool has_trigger() const { return (caps_ & FI_TRIGGER) != 0; }
  DeferredQueue *deferred_queue() const {
    return has_trigger() && &lock_ == &core_domain_.engine->lock() ? core_domain_.deferred
                                                                   : nullptr;
  }
  // A transfer that was deferred does not start. `flags` are those of its completion.
  void fail_transfer(void *context, uint64_t flags, int err);

  const EndpointLimits &limits() const { return limits_; }
  uint64_t caps() const { return caps_; }
  Av *av() const { return av_; }
  Eq *eq() const { return eq_; }
  uint64_t number() const { return number_; }  // endpoint_number.h
  // The context of a scalable endpoint that this one is (scalable.h); null: none. Its place among
  // the ports, and whether nobody connects to it.
  const Lane *lane() const { return lane_; }
  uint8_t context_place() const;
  uint8_t last_place() const;  // of the endpoint's contexts, if this is the first one; else 0
  bool only_transmits() const;
  size_t in_flight() { return count_in_flight_ != nullptr ? count_in_flight_(*this) : 0; }
  // For SharedTransmit, with the lock held: whether the endpoint was opened for one, and the end of
  // the one that it has.
  bool needs_shared_transmit() const { return wants_shared_tx_; }
  void drop_shared_transmit() { tx_->shared = nullptr; }

 protected:
  // `info` as the application passed it to fi_endpoint. The contexts are members of the derived
  // class, which may not be constructed yet; null: the endpoint has no such side. `lock` null: the
  // engine's.
  EndpointCore(DomainContext &domain, PeerKind kind, const fi_info &info,
               const EndpointLimits &limits, TxContext *tx, RxContext *rx, Lock *lock = nullptr);
  ~EndpointCore();  // a context is not open any more

  // fi_ep_bind: 0 or -FI_E... Queues, counters and shared transmit contexts that fi_enable does not
  // need may come after it, as programs expect of stock libfabric; the former tell of what
  // completes from then on. Address vectors may not (-FI_EOPBADSTATE). Shared receive contexts
  // differ: the derived class binds them, and hold()s them.
  int bind_object(struct fid *fid, uint64_t flags);
  // A bound object cannot be closed before release().
  void hold(std::atomic<size_t> &users) {
    bound_.push_back(&users);
    users.fetch_add(1);
  }
  // fi_enable: what is missing, as fi_endpoint.3 (FI_ENABLE) lists it. `shares`: a shared receive
  // context is bound.
  Result<void> check_bindings(bool shares) const;
  void set_enabled() { enabled_ = true; }
  // For an endpoint whose domain has shared transmit contexts: how it counts its operations in
  // flight.
  void count_in_flight(size_t (*count)(EndpointCore &)) { count_in_flight_ = count; }
  // FI_GETOPSFLAG, FI_SETOPSFLAG and kGetEndpointNumber; -FI_ENOSYS for all other commands.
  // `tx_known`: the flags that transmits may have.
  int control_flags(int command, void *arg, uint64_t tx_known);
  // fi_cancel of what waits for a counter; without the lock. 0, or -FI_ENOENT.
  ssize_t cancel_deferred(void *context);
  // fi_getopt of the sizes above, and of FI_HMEM; -FI_ENOPROTOOPT for all other options.
  int get_limit(int level, int name, void *value, size_t *length) const;
  // fi_setopt of FI_HMEM, with the lock held.
  int set_hmem_option(int level, int name, const void *value, size_t length);
  // For close(), with the lock held: detach() takes the completions away from operations that are
  // still in flight, release() lets go of all bound objects. Operations that fail between the two
  // are not reported. bind_object() leaves the registration as an AvUser to the endpoint:
  // Av::add_user when it is enabled.
  void detach();
  void release(AvUser *user);

  DomainContext &core_domain_;

 private:
  int bind_av(struct fid *fid, uint64_t flags);
  int bind_eq(struct fid *fid, uint64_t flags);
  int bind_cq(Cq *outer, Cq *cq, uint64_t flags);
  int bind_cntr(Cntr *outer, Cntr *cntr, uint64_t flags);
  int bind_stx(struct fid *fid, uint64_t flags);

  Lock &lock_;
  TxContext *const tx_;
  RxContext *const rx_;
  static constexpr uint64_t kTransmits = FI_SEND | FI_READ | FI_WRITE;
  const uint64_t caps_, tx_caps_, rx_caps_;
  const Lane *const lane_;
  const uint64_t number_;
  // Together with the flags, which are in its last bytes: rxm has many endpoints.
  [[no_unique_address]] const EndpointLimits limits_;
  const PeerKind kind_;
  const bool wants_shared_, wants_shared_tx_;
  bool enabled_ = false;
  size_t (*count_in_flight_)(EndpointCore &) = nullptr;
  Av *av_ = nullptr;
  Eq *eq_ = nullptr;
  std::vector<std::atomic<size_t> *> bound_;
  HmemEndpointOptions hmem_options_;
};

}  // namespace weft::sdk

#endif
