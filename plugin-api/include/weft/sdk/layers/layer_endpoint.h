// SPDX-License-Identifier: BSD-2-Clause
// LayerEndpoint: an unconnected endpoint of a layer, between the application's calls and a protocol
// core whose carrier is the inner provider. It has the endpoint's life and name, passes operations
// down, and answers the receiver, the address vector and the core.
//
// Example:
//    template <LayerParts Parts>
//    class Endpoint final : public LayerEndpoint<Endpoint<Parts>, Parts> {
//      using Base = LayerEndpoint<Endpoint<Parts>, Parts>;
//     public:
//      using typename Base::Domain, typename Base::Operation;
//      static weft::Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context) {
//        WEFT_TRY(const Address local, local_address(info, domain.inner_info()));
//        return Base::start(new Endpoint(domain, info, local, context));
//      }
//      using Base::start;
//      ssize_t start(const SendRequest &request) {
//        return this->launch(request, [](Operation &op) {
//          op.kind = Operation::kMessage;
//          return ssize_t{0};
//        });
//      }
//      ssize_t start(const RmaRequest &request);     // likewise
//      ssize_t start(const AtomicRequest &request);  // likewise
//     private:
//      friend Base;
//      Endpoint(Domain &domain, const fi_info &info, const Address &local, void *context)
//          : Base(domain, info, {}, {}, local, context) {}
//      ~Endpoint() = default;
//      weft::Result<void> begin();  // before fi_enable: opens lower_ at local_, makes core_
//      void end();                  // fi_close: linger(), until nothing is in flight
//      void shut();                 // closes lower_
//      void on_done(Operation &op, int err) override { this->report(op, op.length, err); }
//    };
//
// Parts names the types that the endpoint is made of (the concept LayerParts says what they need):
// Domain (a LayerDomain), Core (the protocol, without a socket or a clock; it tells Core::Upper),
// Lower (its carrier, a Poller and Handler of the engine; it tells Lower::Upper), Operation (of the
// application) and Message (an Unexpected).
//
// A protocol in which peers say that they are contexts of scalable endpoints (scalable.h) has more:
// Core::has_contexts(), whether one did, Core::introduce_context(), as introduce() for a stranger
// that did, Core::only_tell(), for a first context that is not open yet, and
// Core::Upper::index_of_context(), the index of such a peer. An endpoint whose counters of remote
// accesses are given to begin() has count_remote_later(), for those that were bound after begin():
// an endpoint begins when its address is given, or asked for, before fi_enable.
//
// Everything is called with the engine's lock held, except open() and the applications' calls. It
// has no packet, no peer and no timer. Not for providers: an endpoint with sockets of its own is an
// RdmEndpoint (rdm_endpoint.h).
#ifndef WEFT_SDK_LAYERS_LAYER_ENDPOINT_H
#define WEFT_SDK_LAYERS_LAYER_ENDPOINT_H

#include <weft/sdk/layers/layer_domain.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/rdm_endpoint.h>
#include <weft/sdk/objects/scalable.h>
#include <weft/sdk/transfers/order.h>
#include <weft/sdk/transfers/transfer.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <concepts>
#include <new>
#include <optional>
#include <string>

namespace weft::sdk {

// The address at which an endpoint opened with `info` receives: the application's source address,
// else that of the inner provider. FI_EINVAL: there is none, or the layer has no such endpoint.
Result<Address> local_address(const fi_info &info, const fi_info &inner);

template <class P>
concept LayerParts =
    std::constructible_from<typename P::Lower, typename P::Domain &, typename P::Lower::Upper &> &&
    requires(typename P::Core &core, const typename P::Core &settled,
             typename P::Core::Upper &core_upper, typename P::Lower &lower,
             typename P::Lower::Upper &lower_upper, typename P::Operation &op,
             typename P::Message &message, Receive &receive, const Address &address, uint32_t index,
             const char *text) {
  // The operations of the application. take() returns null while tx_size are in flight; give()
  // takes one back that was not started. start() returns 0, and Core::Upper::on_done() follows, or
  // -FI_E...; it needs the address of a peer that the core does not know yet: with null it does
  // nothing then, and returns -FI_EINVAL.
  { core.take() } -> std::same_as<typename P::Operation *>;
  core.give(op);
  // One that has begun, and is not deferred (kDeferred), has `is_canceled` from then on; false:
  // there is none.
  { core.cancel(text) } -> std::same_as<bool>;
  { core.start(op, index, &address) } -> std::same_as<int>;
  { settled.knows(index) } -> std::same_as<bool>;
  { settled.in_flight() } -> std::convertible_to<size_t>;
  // Of the address vector.
  core.forget(index);
  core.introduce(index, address);
  // Of the receiver (ReceiverSink); of endpoints with EndpointLimits::may_buffer also read_first().
  // address_of() has that of a sender without a name, or null.
  core.deliver(message, receive);
  core.discard(message);
  { settled.address_of(index) } -> std::same_as<const Address *>;

  // The core calls these. LayerEndpoint implements them, except on_done(), which is the endpoint's,
  // as are further calls that the core makes.
  core_upper.on_done(op, 0);
  { core_upper.receiver() } -> std::same_as<Receiver &>;
  { core_upper.index_of(address) } -> std::same_as<uint32_t>;  // Av::kNone: not in the vector
  core_upper.warn(text);
  core_upper.warn_of_peer(text);  // what peers cause, as often as they like

  // While Lower::Upper is full, what arrives must wait. wait() sleeps until there may be something
  // to do, or until the given time (ns), and lets the lock go meanwhile.
  { lower_upper.core() } -> std::same_as<typename P::Core &>;
  { lower_upper.is_full() } -> std::same_as<bool>;
  lower.on_poll();
  lower.wait(uint64_t{});
  lower.shut();

  // These are copied from the calls. All other members are the protocol's.
  { op.report } -> std::same_as<bool &>;
  { op.fence } -> std::same_as<bool &>;
  { op.is_canceled } -> std::same_as<bool &>;
  { op.context } -> std::same_as<void *&>;
  { op.cq_flags } -> std::same_as<uint64_t &>;
  { op.length } -> std::same_as<uint64_t &>;
  { op.data } -> std::same_as<uint64_t &>;
  { op.tag } -> std::same_as<uint64_t &>;
  { op.count } -> std::same_as<uint8_t &>;
  op.iov[kIovLimit - 1] = iovec{};
  { op.vector_count } -> std::same_as<uint8_t &>;
  op.vectors[kIovLimit - 1] = {0, 0, 0};  // address, length, key
};

template <class E, LayerParts Parts>
class LayerEndpoint : public Object<E, fid_ep>,
                      public RdmEndpoint,
                      public TransferOps<E>,
                      public ReceiverSink,
                      public AvUser,
                      public Parts::Core::Upper,
                      public Parts::Lower::Upper {
 public:
  using Domain = typename Parts::Domain;
  using Operation = typename Parts::Operation;

  // TransferOps
  ssize_t start(const RecvRequest &request) { return receiver().post(request); }
  Receiver &receiver() override { return RdmEndpoint::receiver(); }

  // fi_ops_ep: what has begun to be sent is not taken back. It ends as it would have, and an error
  // says that it was canceled.
  ssize_t cancel(void *context) {
    const ssize_t rc = RdmEndpoint::cancel(context);
    if (rc != -FI_ENOENT || context == nullptr) return rc;
    const Guard guard(lock());
    return core_ && core_->cancel(context) ? 0 : rc;
  }

  // fi_ops_atomic
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
    return query(AtomicKind::kWrite, datatype, op, count);
  }
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
    return query(AtomicKind::kFetch, datatype, op, count);
  }
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
    return query(AtomicKind::kCompare, datatype, op, count);
  }

  // fi_ops_cm
  int setname(void *addr, size_t len) {
    auto address = read_address(addr_format_, addr, len);
    if (!address) return -address.error().code;
    Guard guard(lock());
    if (enabled()) return -FI_EOPBADSTATE;
    shut_begun();
    const Address before = std::exchange(local_, *address);
    // The contexts of a scalable endpoint try names until all are free (scalable.h).
    if (lane() != nullptr) return 0;
    const int rc = begin_early("fi_setname");
    if (rc != 0) local_ = before;
    return rc;
  }
  // The endpoint has its name from the first of fi_setname, this call and fi_enable on.
  int getname(void *addr, size_t *len) {
    Guard guard(lock());
    const bool fresh = !enabled() && !begun_;
    const int rc = fresh ? begin_early("fi_getname") : 0;
    if (fresh && begun_ && last_place() != 0) tell_places();
    return rc != 0 ? rc : write_address(local_, addr_format_, addr, len);
  }

  // fi_ops_ep
  ssize_t tx_size_left() {
    Guard guard(lock());
    return enabled() ? ssize_t(limits().tx_size - core_->in_flight()) : -FI_EOPBADSTATE;
  }

  // fi_ops
  int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
  int control(int command, void *arg) {
    if (command == FI_ALIAS) return Alias<E>::open(self(), arg);
    if (command == kQueueDeferred) return this->queue_deferred(arg);
    if (command != FI_ENABLE) return this->control_flags(command, arg, E::kSendFlags);
    Guard guard(lock());
    if (enabled()) return 0;
    Result<void> done = check_bindings();
    if (done) done = begun_ ? count_remote() : self().begin();
    if (!done) {
      if (!begun_) lower_.shut();
      WEFT_WARN(this->instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
      return -done.error().code;
    }
    av()->add_user(*this, true);
    if (!std::exchange(tells_, false)) domain().engine().add_poller(lower_);
    if constexpr (requires { core_->only_tell(false); }) core_->only_tell(false);
    set_enabled();
    return 0;
  }
  int close() {
    if (aliases.load() != 0) return -FI_EBUSY;
    this->retire();
    {
      Guard guard(lock());
      // Completions of operations in flight could name an endpoint that is gone (fi_endpoint.3).
      detach();
      if (enabled()) {
        self().end();
        domain().engine().remove_poller(lower_);
        // Not in the receiver's destructor: discard() needs this object whole.
        receiver().visit_unexpected(Matcher::kAnySource, [this](Unexpected &message) {
          receiver().forget(message);
          discard(message);
        });
        domain().engine().remove(lower_);
        self().shut();
      } else {
        shut_begun();
      }
      release(enabled() ? this : nullptr);
    }
    domain().shared().children.fetch_sub(1);
    delete &self();
    return 0;
  }

 protected:
  // `info` as the application passed it to fi_endpoint; the protocol keeps `native_order` by
  // itself.
  LayerEndpoint(Domain &domain, const fi_info &info, const EndpointLimits &limits,
                const OrderRules &native_order, const Address &local, void *context)
      : Object<E, fid_ep>(domain.instance(), endpoint_class(domain.shared()), context),
        RdmEndpoint(domain.shared(), *this, info, limits),
        local_(local),
        lower_(domain, *this),
        keeper_(order_of(info), native_order),
        layer_domain_(domain),
        addr_format_(info.addr_format) {
    fill_tables(self());
    name_endpoint(this->c());
    count_in_flight([](EndpointCore &core) {
      auto &mine = static_cast<LayerEndpoint &>(core);
      return mine.core_ ? size_t(mine.core_->in_flight()) : 0;
    });
  }
  ~LayerEndpoint() = default;

  Domain &domain() { return layer_domain_; }
  const auto &options() const { return layer_domain_.fabric().layer().options(); }

  // The rest of open(). Takes `endpoint`, also if it fails.
  static Result<E *> start(E *endpoint) {
    if (auto published = endpoint->publish(endpoint_parent(endpoint->domain().shared()));
        !published) {
      delete endpoint;
      return tl::unexpected(std::move(published).error());
    }
    endpoint->domain().shared().children.fetch_add(1);
    return endpoint;
  }

  // Starts an operation toward the peer of the request: fill(op) adds the protocol's members to
  // those that every operation has, and says 0, -FI_E..., or 1: it has reported the operation,
  // which has failed. 0, or -FI_E...: nothing happened.
  template <class Request, class Fill>
  ssize_t launch(const Request &request, Fill fill) {
    if (tx().has_no_place(domain().engine(), request.flags)) return -FI_EAGAIN;
    const uint32_t index = av()->peer_of(request.dest);
    if (index == Av::kNone) return -FI_EINVAL;
    if constexpr (requires { request.iov; }) {
      const Hmem *const hmem = core_domain_.devices;
      if (hmem != nullptr && !hmem->holds(request.iov, request.count)) return -FI_EFAULT;
    }
    Operation *op = core_->take();
    if (op == nullptr) {
      // An application that only injects never makes progress.
      lower_.on_poll();
      op = core_->take();
      if (op == nullptr) return -FI_EAGAIN;
    }
    ssize_t filled;
    try {
      copy(request, *op);
      filled = fill(*op);
      keeper_.make_room(index);
    } catch (const std::bad_alloc &) {
      core_->give(*op);
      return -FI_ENOMEM;
    }
    if (filled != 0) {
      core_->give(*op);
      return std::min<ssize_t>(filled, 0);
    }
    const OrderKind kind = kind_of(request);
    if (keeper_.must_wait(index, kind)) op->fence = true;
    const bool fenced = op->fence;
    int rc = core_->start(*op, index, nullptr);
    if (rc == -FI_EINVAL && !core_->knows(index)) {  // the first one to this peer
      const std::optional<Address> address = av()->address(index);
      if (address) rc = core_->start(*op, index, &*address);
    }
    if (rc != 0) {
      core_->give(*op);
    } else {
      keeper_.started(index, kind, fenced);
      domain().engine().turn_of_readers().works();
    }
    return rc;
  }

  // In end(): makes progress until over() holds, as long as the domain's budget allows (at most
  // close_linger_ns of the layer's options), because sent and injected data must still be
  // delivered. The domain's other endpoints get progress, too: they may be the peers, and do not
  // wake a thread that sleeps in lower_.wait(). in_vain() says, at the end, whether a peer did not
  // answer.
  template <class Over, class InVain>
  void linger(Over over, InVain in_vain) {
    constexpr uint64_t kOthers = 1'000'000;  // ns without progress of the other endpoints
    const uint64_t begin = now_ns();
    const uint64_t end = domain().linger_budget().until(begin, options().close_linger_ns);
    while (!over() && now_ns() < end) {
      domain().engine().progress();
      if (!over()) lower_.wait(std::min(end, now_ns() + kOthers));
    }
    if (!over() || in_vain()) domain().linger_budget().spend(now_ns() - begin);
  }
  template <class Over>
  void linger(Over over) {
    linger(over, [] { return false; });
  }

  // The operation has ended, having moved `length` bytes unless it failed.
  void report(const Operation &op, uint64_t length, int err) {
    if (err == 0) return tx().succeed(op.context, op.cq_flags, length, op.report);
    tx().finish({.context = op.context,
                 .flags = op.cq_flags,
                 .length = length,
                 .tag = op.tag,
                 .report = op.report,
                 .err = op.is_canceled ? FI_ECANCELED : err,
                 .prov_errno = err});
  }

  // Lower::Upper
  typename Parts::Core &core() override { return *core_; }

  Address local_;  // to receive at; once enabled, the bound address
  typename Parts::Lower lower_;
  std::optional<typename Parts::Core> core_;  // while enabled
  OrderKeeper keeper_;
  // begin() has been called, before fi_enable.
  bool begun_ = false;
  bool tells_ = false;  // begun_, and Core::only_tell()

 private:
  E &self() { return static_cast<E &>(*this); }

  void shut_begun() {
    if (std::exchange(tells_, false)) {
      domain().engine().remove_poller(lower_);
      domain().engine().remove(lower_);
    }
    if (std::exchange(begun_, false)) self().shut();
  }
  // The first context of a scalable endpoint speaks for all from when their ports are taken.
  void tell_places() {
    if constexpr (requires { core_->only_tell(true); }) {
      core_->only_tell(true);
      domain().engine().add_poller(lower_);
      tells_ = true;
    }
  }
  int begin_early(const char *call) {
    const auto done = self().begin();
    begun_ = done.has_value();
    if (begun_) return 0;
    self().shut();
    if (lane() == nullptr)
      WEFT_WARN(this->instance(), FI_LOG_EP_CTRL, "%s: %s", call, done.error().text.c_str());
    return -done.error().code;
  }
  Result<void> count_remote() {
    if constexpr (requires(E & self) { self.count_remote_later(); })
      return self().count_remote_later();
    return {};
  }
  int query(AtomicKind kind, const enum fi_datatype &datatype, const enum fi_op &op,
            size_t *count) {
    return atomic_query_count(kind, raw(datatype), raw(op), domain().atomic_limits(), count);
  }

  static OrderKind kind_of(const SendRequest &) { return OrderKind::kSend; }
  static OrderKind kind_of(const RmaRequest &request) {
    return request.write ? OrderKind::kWrite : OrderKind::kRead;
  }
  static OrderKind kind_of(const AtomicRequest &) { return OrderKind::kAtomic; }

  template <class Request>
  static void copy_what_all_have(const Request &request, Operation &op) {
    op.report = request.report;
    op.fence = request.flags & FI_FENCE;
    op.context = request.context;
    op.cq_flags = completion_flags(request);
    op.data = request.data;
    op.tag = 0;
  }
  template <class Request>
  static void copy_memory(const Request &request, Operation &op) {
    op.length = request.length;
    op.count = uint8_t(request.count);
    if (request.count == 1)
      op.iov[0] = request.iov[0];  // without a call
    else
      std::copy_n(request.iov, request.count, op.iov);
  }
  static void copy(const SendRequest &request, Operation &op) {
    copy_what_all_have(request, op);
    copy_memory(request, op);
    op.tag = request.tag;
  }
  static void copy(const RmaRequest &request, Operation &op) {
    copy_what_all_have(request, op);
    copy_memory(request, op);
    op.vector_count = uint8_t(request.rma_count);
    for (size_t i = 0; i < request.rma_count; ++i)
      op.vectors[i] = {request.rma[i].addr, request.rma[i].len, request.rma[i].key};
  }
  // Operands go into packets as the protocol wants them.
  static void copy(const AtomicRequest &request, Operation &op) { copy_what_all_have(request, op); }

  // ReceiverSink
  void deliver(Unexpected &message, Receive &receive) override {
    core_->deliver(static_cast<typename Parts::Message &>(message), receive);
  }
  void discard(Unexpected &message) override {
    if (core_) core_->discard(static_cast<typename Parts::Message &>(message));
  }
  int read_first(Unexpected &message, void *to, size_t n) override {
    auto &m = static_cast<typename Parts::Message &>(message);
    if constexpr (requires { core_->read_first(m, to, n); })
      return core_->read_first(m, to, n);
    else
      return ReceiverSink::read_first(message, to, n);
  }
  std::string source_address(const Message &message) override {
    const Address *address = core_->address_of(message.source);
    if (address == nullptr) return {};
    return {static_cast<const char *>(address->data()), address->size()};
  }
  // AvUser
  void on_av_removed(uint32_t index) override { core_->forget(index); }
  void on_av_inserted(uint32_t index, const Address &address) override {
    core_->introduce(index, address);
    if constexpr (requires(typename Parts::Core & core) { core.has_contexts(); })
      introduce_contexts(index);
  }
  void introduce_contexts(uint32_t index) {
    if (!core_->has_contexts()) return;
    for (unsigned number = 1; number < Av::kContexts; ++number) {
      const uint32_t context = av()->context_at(index, number);
      const auto its = av()->address(context);
      if (context != Av::kNone && its) core_->introduce_context(context, *its, number);
    }
  }
  // Core::Upper
  uint32_t index_of(const Address &address) override { return av()->find(address); }
  uint32_t index_of_context(const Address &address, unsigned number) {  // overrides, if it is there
    return av()->find_context(address, number);
  }
  void warn(const char *text) override { WEFT_WARN(this->instance(), FI_LOG_EP_CTRL, "%s", text); }
  void warn_of_peer(const char *text) override {
    WEFT_WARN_SPARSE(this->instance(), FI_LOG_EP_CTRL, "%s", text);
  }
  // Lower::Upper
  bool is_full() override { return receiver().is_full(); }

  Domain &layer_domain_;
  const uint32_t addr_format_;
};

}  // namespace weft::sdk

#endif
