// SPDX-License-Identifier: BSD-2-Clause
// Alias: a second fid of an endpoint, with default operation flags of its own. Everything else is
// the endpoint's (fi_endpoint.3, fi_ep_alias).
//
// Example:
//    template <class Endpoint>
//    int control(Endpoint &ep, int command, void *arg) {
//      return command == FI_ALIAS ? Alias<Endpoint>::open(ep, arg) : -FI_ENOSYS;
//    }
//    template <class Endpoint>
//    int close(Endpoint &ep) {  // `aliases`: a std::atomic<size_t> of the class
//      return ep.aliases.load() != 0 ? -FI_EBUSY : 0;
//    }
//
// The endpoint has the members that TransferOps needs (transfer.h), and kSendFlags, the flags that
// its transmits may have. If not all of them can be defaults, kDefaultSendFlags are those that can.
// If it has set_tables(object), that chooses the op tables of the alias. If
// it has a type Path, what else an alias may have of its own, then path() is the first one, and it
// has start(request, path) and set_value(path, variable), for FI_SET_VAL. An alias is an object of
// its own: hooks are attached to it, and it is closed before its endpoint.
// Not for scalable endpoints, whose contexts are objects already.
#ifndef WEFT_SDK_OBJECTS_ALIAS_H
#define WEFT_SDK_OBJECTS_ALIAS_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/transfers/transfer.h>

#include <memory>

namespace weft::sdk {

template <class E>
struct AliasPath {
  explicit AliasPath(const E &) {}
};
template <class E>
requires requires {
  typename E::Path;
}
struct AliasPath<E> {
  explicit AliasPath(const E &ep) : path(ep.path()) {}
  typename E::Path path;
};

template <class E>
class Alias final : public Object<Alias<E>, fid_ep>, public TransferOps<Alias<E>> {
 public:
  // `arg`: the struct fi_alias of FI_ALIAS.
  static int open(E &ep, void *arg) {
    uint64_t tx, rx;
    {
      Guard guard(ep.lock());
      tx = ep.tx_flags();
      rx = ep.rx_flags();
    }
    return open(ep, arg, tx, rx);
  }

  // ---- for TransferOps ----
  static constexpr uint64_t kSendFlags = E::kSendFlags;
  Lock &lock() { return ep_.lock(); }
  bool enabled() const { return ep_.enabled(); }
  bool may_receive() requires requires(E &e) { e.may_receive(); }
  { return ep_.may_receive(); }
  uint64_t tx_flags() const { return tx_flags_; }
  uint64_t rx_flags() const { return rx_flags_; }
  bool reports(uint64_t flags) const { return ep_.reports(flags); }
  bool heeds_level(uint64_t direction) const { return ep_.heeds_level(direction); }
  bool offers(uint64_t kind, uint64_t direction) const { return ep_.offers(kind, direction); }
  ssize_t check_length(uint64_t length, uint64_t flags) const {
    return ep_.check_length(length, flags);
  }
  ssize_t check_atomic(AtomicRequest &request) const { return ep_.check_atomic(request); }
  DomainContext &domain_context() const { return ep_.domain_context(); }
  bool has_trigger() const { return ep_.has_trigger(); }
  template <class Request>
  ssize_t start(const Request &request) {
    if constexpr (kHasPath)
      return ep_.start(request, path_.path);
    else
      return ep_.start(request);
  }

  template <class Request>
  ssize_t start_later(const Request &request, const Trigger &trigger) {
    if constexpr (kHasPath)
      return ep_.start_later(request, path_.path, trigger);
    else
      return ep_.start_later(request, trigger);
  }

  // ---- fi_ops_atomic: queries ----
  int atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) requires requires(E &e) {
    e.atomicvalid(datatype, op, count);
  }
  { return ep_.atomicvalid(datatype, op, count); }
  int fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) requires
      requires(E &e) {
    e.fetch_atomicvalid(datatype, op, count);
  }
  { return ep_.fetch_atomicvalid(datatype, op, count); }
  int compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) requires
      requires(E &e) {
    e.compare_atomicvalid(datatype, op, count);
  }
  { return ep_.compare_atomicvalid(datatype, op, count); }

  // ---- fi_ops_cm ----
  int setname(void *addr, size_t len) { return ep_.setname(addr, len); }
  int getname(void *addr, size_t *len) { return ep_.getname(addr, len); }
  int getpeer(void *addr, size_t *len) requires requires(E &e) { e.getpeer(addr, len); }
  { return ep_.getpeer(addr, len); }
  int connect(const void *addr, const void *param, size_t len) requires requires(E &e) {
    e.connect(addr, param, len);
  }
  { return ep_.connect(addr, param, len); }
  int accept(const void *param, size_t len) requires requires(E &e) { e.accept(param, len); }
  { return ep_.accept(param, len); }
  int shutdown(uint64_t flags) requires requires(E &e) { e.shutdown(flags); }
  { return ep_.shutdown(flags); }
  int join(const void *addr, uint64_t flags, struct fid_mc **mc, void *context) requires
      requires(E &e) {
    e.join(addr, flags, mc, context);
  }
  { return ep_.join(addr, flags, mc, context); }

  // ---- fi_ops_collective ----
  template <class... Args>
  ssize_t barrier(Args... args) requires requires(E &e) {
    e.barrier(args...);
  }
  { return ep_.barrier(args...); }
  template <class... Args>
  ssize_t barrier2(Args... args) requires requires(E &e) {
    e.barrier2(args...);
  }
  { return ep_.barrier2(args...); }
  template <class... Args>
  ssize_t broadcast(Args... args) requires requires(E &e) {
    e.broadcast(args...);
  }
  { return ep_.broadcast(args...); }
  template <class... Args>
  ssize_t allreduce(Args... args) requires requires(E &e) {
    e.allreduce(args...);
  }
  { return ep_.allreduce(args...); }
  template <class... Args>
  ssize_t reduce(Args... args) requires requires(E &e) {
    e.reduce(args...);
  }
  { return ep_.reduce(args...); }
  template <class... Args>
  ssize_t alltoall(Args... args) requires requires(E &e) {
    e.alltoall(args...);
  }
  { return ep_.alltoall(args...); }
  template <class... Args>
  ssize_t allgather(Args... args) requires requires(E &e) {
    e.allgather(args...);
  }
  { return ep_.allgather(args...); }
  template <class... Args>
  ssize_t reduce_scatter(Args... args) requires requires(E &e) {
    e.reduce_scatter(args...);
  }
  { return ep_.reduce_scatter(args...); }
  template <class... Args>
  ssize_t scatter(Args... args) requires requires(E &e) {
    e.scatter(args...);
  }
  { return ep_.scatter(args...); }
  template <class... Args>
  ssize_t gather(Args... args) requires requires(E &e) {
    e.gather(args...);
  }
  { return ep_.gather(args...); }
  template <class... Args>
  ssize_t collective_msg(Args... args) requires requires(E &e) {
    e.collective_msg(args...);
  }
  { return ep_.collective_msg(args...); }

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context) { return ep_.cancel(context); }
  int getopt(int level, int name, void *value, size_t *length) {
    return ep_.getopt(level, name, value, length);
  }
  int setopt(int level, int name, const void *value, size_t length) {
    return ep_.setopt(level, name, value, length);
  }
  ssize_t rx_size_left() { return ep_.rx_size_left(); }
  ssize_t tx_size_left() { return ep_.tx_size_left(); }

  // ---- fi_ops ----
  int close() {
    this->retire();
    ep_.aliases.fetch_sub(1);
    delete this;
    return 0;
  }
  int bind(struct fid *fid, uint64_t flags) { return ep_.bind(fid, flags); }
  int control(int command, void *arg) {
    switch (command) {
      case FI_ALIAS:
        return open(ep_, arg, tx_flags_, rx_flags_);
      case FI_GETOPSFLAG:
      case FI_SETOPSFLAG: {
        Guard guard(lock());
        return control_op_flags(command, arg, tx_known(ep_), &tx_flags_, &rx_flags_, rx_known(ep_));
      }
      case FI_SET_VAL:
        if constexpr (kHasPath)
          return ep_.set_value(path_.path, static_cast<const struct fi_fid_var *>(arg));
        else
          return ep_.control(command, arg);
      default:
        return ep_.control(command, arg);
    }
  }

 private:
  static constexpr bool kHasPath = requires { typename E::Path; };

  Alias(E &ep, uint64_t tx_flags, uint64_t rx_flags)
      : Object<Alias<E>, fid_ep>(ep.instance(), FI_CLASS_EP, ep.context()),
        ep_(ep),
        path_(ep),
        tx_flags_(tx_flags),
        rx_flags_(rx_flags) {
    if constexpr (requires { ep.set_tables(*this); }) {
      ep.set_tables(*this);
    } else {
      fill_tables(*this);
    }
  }
  ~Alias() = default;

  static uint64_t tx_known(const E &ep) {
    if constexpr (requires { E::kDefaultSendFlags; })
      return E::kDefaultSendFlags | trigger_flag(ep);
    else
      return E::kSendFlags | trigger_flag(ep);
  }
  static uint64_t rx_known(const E &ep) { return kRecvFlags | trigger_flag(ep); }
  static uint64_t trigger_flag(const E &ep) { return ep.has_trigger() ? FI_TRIGGER : 0; }
  static int open(E &ep, void *arg, uint64_t tx, uint64_t rx) {
    if (arg == nullptr) return -FI_EINVAL;
    const auto &request = *static_cast<const struct fi_alias *>(arg);
    if (request.fid == nullptr) return -FI_EINVAL;
    uint64_t flags = request.flags;
    if (const int rc =
            control_op_flags(FI_SETOPSFLAG, &flags, tx_known(ep), &tx, &rx, rx_known(ep));
        rc != 0)
      return rc;
    std::unique_ptr<Alias, void (*)(Alias *)> made(new Alias(ep, tx, rx),
                                                   [](Alias *alias) { delete alias; });
    ep.aliases.fetch_add(1);
    if (auto published = made->publish(ep.base()); !published) {
      ep.aliases.fetch_sub(1);
      WEFT_WARN(ep.instance(), FI_LOG_EP_CTRL, "fi_ep_alias: %s", published.error().text.c_str());
      return -published.error().code;
    }
    *request.fid = made.release()->base();
    return 0;
  }

  E &ep_;
  AliasPath<E> path_;
  uint64_t tx_flags_, rx_flags_;
};

}  // namespace weft::sdk

#endif
