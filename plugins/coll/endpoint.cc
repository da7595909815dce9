// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_tagged.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "plugins/coll/shared_receives.h"

namespace weft::coll {
namespace {

// Bytes of an atomic operation beneath; 0: it has none.
size_t atomic_size_over(Domain &domain) {
  fi_atomic_attr attr{};
  if (fi_query_atomic(domain.inner(), FI_UINT8, FI_ATOMIC_WRITE, &attr, 0) != 0) return 0;
  return attr.count;
}

sdk::EndpointLimits limits_over(Domain &domain) {
  const fi_info &inner = domain.inner_info();
  const Options &options = domain.fabric().layer().options();
  return {.tx_size = options.tx_size,
          .rx_size = options.rx_size,
          .inject_size = inner.tx_attr->inject_size,
          .max_msg_size = inner.ep_attr->max_msg_size,
          .atomic_size = atomic_size_over(domain)};
}

}  // namespace

// ---- life ----

Endpoint::Endpoint(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      EndpointCore(domain.shared(), sdk::PeerKind::kUnconnected, info, limits_over(domain), &tx_,
                   &rx_),
      domain_(domain),
      tx_(info),
      rx_(info),
      send_vectors_(std::min(domain.inner_info().tx_attr->iov_limit, sdk::kIovLimit)),
      remote_vectors_(std::min(domain.inner_info().tx_attr->rma_iov_limit, sdk::kIovLimit)),
      inject_beneath_(domain.inner_info().tx_attr->inject_size),
      sends_(limits().tx_size),
      own_receives_(limits().rx_size,
                    std::min(domain.inner_info().rx_attr->iov_limit, sdk::kIovLimit)),
      accesses_(limits().tx_size),
      collectives_(*this, domain.fabric(), domain.engine(), tx_) {
  sdk::fill_tables(*this);
  count_in_flight([](sdk::EndpointCore &core) {
    const auto &mine = static_cast<const Endpoint &>(core);
    return mine.sends_.in_use() + mine.accesses_.in_use();
  });
}

Endpoint::~Endpoint() {
  {
    const sdk::Guard guard(lock());
    domain_.forget_endpoint(number());
  }
  if (inner_ != nullptr) fi_close(&inner_->fid);
  if (queue_.cq != nullptr) fi_close(&queue_.cq->fid);
  if (shared_ != nullptr) shared_->users.fetch_sub(1);
  const sdk::Guard guard(lock());
  forget_remote();
}

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  auto endpoint = std::make_unique<Endpoint>(domain, info, context);
  WEFT_CHECK(endpoint->open_inner(info));
  WEFT_CHECK(endpoint->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return endpoint.release();
}

Result<void> Endpoint::open_inner(const fi_info &info) {
  fi_info below = domain_.inner_info();  // not a deep copy: fi_endpoint only reads it
  fi_tx_attr tx = *below.tx_attr;
  fi_ep_attr ep = *below.ep_attr;
  tx.tclass = sdk::endpoint_class(info, domain_.fabric().api_version());
  if (info.ep_attr != nullptr && info.ep_attr->auth_key != nullptr) {
    ep.auth_key = info.ep_attr->auth_key;
    ep.auth_key_size = info.ep_attr->auth_key_size;
  }
  if (sdk::wants_shared_receive(info)) ep.rx_ctx_cnt = FI_SHARED_CONTEXT;
  below.tx_attr = &tx;
  below.ep_attr = &ep;
  if (info.src_addr != nullptr) {
    below.src_addr = info.src_addr;
    below.src_addrlen = info.src_addrlen;
  }
  fi_cq_attr cq{.size = limits().tx_size + limits().rx_size + Collectives::kPlaces,
                .format = FI_CQ_FORMAT_TAGGED};
  fid_cq *queue = nullptr;
  int rc = sdk::open_inner_wait([&](enum fi_wait_obj wait) {
    cq.wait_obj = wait;
    return fi_cq_open(domain_.inner(), &cq, &queue, nullptr);
  });
  if (rc == 0) queue_ = sdk::InnerQueue(queue);
  if (rc == 0) rc = fi_endpoint(domain_.inner(), &below, &inner_, nullptr);
  if (rc == 0) rc = fi_ep_bind(inner_, &queue->fid, FI_TRANSMIT | FI_RECV);
  if (rc != 0)
    return fail(-rc, "coll: the provider beneath has no endpoint for it: see its log lines");
  wait_ = sdk::InnerWait(&queue->fid);
  WEFT_TRY(own_names_, Names::open(domain_));
  names_ = own_names_.get();
  const sdk::Guard guard(lock());
  domain_.note_endpoint(number(), inner_);
  return {};
}

Result<void> Endpoint::enable() {
  WEFT_CHECK(check_bindings(shared_ != nullptr));
  if (!names_->takes(*av()))
    return fail(FI_EINVAL,
                "fi_enable: endpoints that share a receive context must have the same address "
                "vector (fi_endpoint.3, SHARED CONTEXTS), and this one has another");
  WEFT_CHECK(count_remote());
  int rc = names_bound_ ? 0 : fi_ep_bind(inner_, &names_->beneath()->fid, 0);
  names_bound_ = rc == 0;
  if (rc == 0) rc = fi_enable(inner_);
  if (rc != 0)
    return fail(-rc, "coll: fi_enable of the endpoint beneath: see the log lines before");
  names_->start(*av(), (caps() & FI_SOURCE) != 0);
  if (shared_ != nullptr) {
    shared_->add(*this);
    collectives_.share(shared_->numbers());
  }
  domain_.engine().add_poller(*this);
  set_enabled();
  return {};
}

// The context beneath holds the receives; this endpoint only reports what it gets.
int Endpoint::bind_shared(struct fid *fid, uint64_t flags) {
  const sdk::Guard guard(lock());
  if (enabled() || names_bound_) return -FI_EOPBADSTATE;
  SharedReceives *const shared = SharedReceives::find(domain_, fid);
  if (shared == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (shared_ != nullptr) return -FI_EBUSY;
  // The context must have the capabilities of the endpoint (fi_endpoint.3).
  if ((caps() & (FI_MSG | FI_TAGGED)) & ~shared->caps()) return -FI_EINVAL;
  if (const int rc = fi_ep_bind(inner_, &shared->beneath()->fid, 0); rc != 0) return rc;
  shared->users.fetch_add(1);
  shared_ = shared;
  own_names_.reset();
  names_ = &shared->names();
  return 0;
}

int Endpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<Endpoint>::open(*this, arg);
  if (command == sdk::kQueueDeferred) return queue_deferred(arg);
  if (command != FI_ENABLE) return control_flags(command, arg, kSendFlags);
  const sdk::Guard guard(lock());
  if (enabled()) return 0;
  if (auto done = enable(); !done) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
    return -done.error().code;
  }
  return 0;
}

int Endpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  {
    const sdk::Guard guard(lock());
    if (collectives_.has_groups()) return -FI_EBUSY;
  }
  collectives_.end_groups();
  retire();
  if (feeds_eq()) eq()->remove_source(domain_.engine(), true);
  {
    const sdk::Guard guard(lock());
    detach();
    collectives_.close();
    if (enabled()) {
      domain_.engine().remove_poller(*this);
      if (shared_ != nullptr) shared_->drop(*this);
      names_->stop();
    }
    release(nullptr);
  }
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

int Endpoint::setopt(int level, int name, const void *value, size_t length) {
  if (name == FI_OPT_CUDA_API_PERMITTED) {
    const sdk::Guard guard(lock());  // groups copy with it
    if (const int rc = set_hmem_option(level, name, value, length); rc != 0) return rc;
  } else if (name != FI_OPT_MIN_MULTI_RECV && name != FI_OPT_FI_HMEM_P2P) {
    return -FI_ENOPROTOOPT;
  }
  return fi_setopt(&inner_->fid, level, name, value, length);
}

// ---- messages of the application ----

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  if (tx_.has_no_place(engine(), request.flags)) return -FI_EAGAIN;
  const fi_addr_t dest = names_->of(av()->index_of(request.dest));
  if (dest == FI_ADDR_NOTAVAIL || request.count > send_vectors_) return -FI_EINVAL;
  if (request.tagged && is_ours(request.tag)) return -FI_EINVAL;
  Message *const message = sends_.take();
  if (message == nullptr) {
    poll_beneath();  // an application that only injects never makes progress
    return -FI_EAGAIN;
  }
  message->begin(request);
  std::copy_n(request.iov, request.count, message->iov);
  message->flags = sdk::completion_flags(request);
  message->length = request.length;
  message->report = request.report;
  void *none[sdk::kIovLimit] = {};  // the provider beneath wants no descriptors
  const fi_msg_tagged msg{.msg_iov = message->iov,
                          .desc = none,
                          .iov_count = request.count,
                          .addr = dest,
                          .tag = request.tag,
                          .context = static_cast<Posted *>(message),
                          .data = request.data};
  const uint64_t flags = (request.flags & kSendFlags) | FI_COMPLETION;
  const fi_msg plain = untagged(msg);
  const ssize_t rc =
      request.tagged ? fi_tsendmsg(inner_, &msg, flags) : fi_sendmsg(inner_, &plain, flags);
  if (rc != 0) end_send(*message);
  return rc;
}

ssize_t Endpoint::start(const sdk::RecvRequest &request) {
  if (shared_ != nullptr) return -FI_EOPNOTSUPP;
  const ssize_t rc = own_receives_.post(inner_, *names_, caps(), request);
  if (rc == -FI_EAGAIN) poll_beneath();
  return rc;
}

ssize_t Endpoint::cancel(void *context) {
  if (shared_ == nullptr) {
    const sdk::Guard guard(lock());
    const ssize_t rc = own_receives_.cancel(inner_, context);
    if (rc != -FI_ENOENT) return rc;
  }
  if (context != nullptr && cancel_beneath(context)) return 0;
  return cancel_deferred(context);
}

// What has begun, as far as the provider beneath cancels such: it knows what ended or is canceled.
bool Endpoint::cancel_beneath(const void *context) {
  const sdk::Guard guard(lock());
  const auto is_canceled = [&](auto &posted) {
    return posted.context == context && (posted.flags & sdk::kDeferred) == 0 &&
           fi_cancel(&inner_->fid, static_cast<Posted *>(&posted)) == 0;
  };
  return sends_.find(is_canceled) != nullptr || accesses_.find(is_canceled) != nullptr;
}

Receives &Endpoint::receives() {
  return shared_ != nullptr ? shared_->receives() : own_receives_;
}

fid_ep *Endpoint::receives_beneath() const {
  return shared_ != nullptr ? shared_->beneath() : inner_;
}

ssize_t Endpoint::tx_size_left() {
  const sdk::Guard guard(lock());
  return enabled() ? ssize_t(sends_.limit() - sends_.in_use()) : -FI_EOPBADSTATE;
}

ssize_t Endpoint::rx_size_left() {
  const sdk::Guard guard(lock());
  return enabled() ? ssize_t(receives().left()) : -FI_EOPBADSTATE;
}

// ---- the queue beneath ----

// A multi-receive has more completions than receives: they wait beneath while the application's
// queue is full.
void Endpoint::read_beneath(bool to_the_end) {
  fi_cq_tagged_entry entries[16];
  fi_addr_t sources[std::size(entries)];
  std::fill(std::begin(sources), std::end(sources), FI_ADDR_NOTAVAIL);
  sdk::InnerProgress &progress = domain_.progress_beneath();
  while (may_read() && (to_the_end || progress.may_find(queue_, engine()))) {
    const ssize_t n = fi_cq_readfrom(queue_.cq, entries, std::size(entries), sources);
    bool ends = false;
    for (ssize_t i = 0; i < n; ++i) ends |= on_done(entries[i], sources[i]);
    if (n == -FI_EAGAIN) progress.note(engine());
    if (n == -FI_EAVAIL ? !on_error() : n <= 0) break;
    // A read of the queue, which is empty now, would look at the sockets once more. The application
    // has something to do, and comes back; if not, it might yield its core.
    if (!to_the_end && ends && n < ssize_t(std::size(entries))) break;
  }
  collectives_.on_polled();
}

void Endpoint::on_poll() {
  read_beneath(false);
}

void Endpoint::poll_beneath() {
  read_beneath(true);
}

void Endpoint::poll_all_beneath() {
  if (shared_ != nullptr) return shared_->poll_beneath();
  poll_beneath();
}

bool Endpoint::may_wait() {
  if (wait_.changed()) domain_.engine().rewatch(*this);
  struct fid *fids[] = {&queue_.cq->fid};
  return fi_trywait(domain_.fabric().inner(), fids, 1) == 0;
}

// True: an operation of the application has ended.
bool Endpoint::on_done(const fi_cq_tagged_entry &entry, fi_addr_t source) {
  if (entry.op_context == nullptr) {
    rx_.report_remote_write(entry.len, entry.data, reported(source),
                            (entry.flags & FI_ATOMIC) != 0);
    return true;
  }
  Posted &posted = *static_cast<Posted *>(entry.op_context);
  if (posted.kind >= Posted::kFlight) {
    on_wire(static_cast<Wire &>(posted), 0, entry.len, source);
    return collectives_.has_ended();
  }
  if (posted.kind == Posted::kAccess) {
    end_access(static_cast<Access &>(posted), 0);
    return true;
  }
  Message &message = static_cast<Message &>(posted);
  if (message.flags & FI_SEND) {
    tx_.succeed(message.context, message.flags, message.length, message.report);
    end_send(message);
  } else {
    report_receive(message, entry, source);
  }
  return true;
}

// A receive that is shared may have ended here, and be another endpoint's. Packets are for those
// that get them.
void Endpoint::on_wire(Wire &wire, int err, size_t length, fi_addr_t source) {
  if (shared_ != nullptr && wire.receives()) shared_->ended();
  const bool is_others = wire.kind != Posted::kPacketIn && wire.owner != &collectives_;
  if (!is_others) return collectives_.on_done(wire, err, length, source);
  Collectives &others = *wire.owner;
  others.on_done(wire, err, length, source);
  others.on_polled();
}

// Of deferred work, those that it names (deferred.h).
Endpoint::Told Endpoint::told_of(Message &message) {
  if (!(message.flags & sdk::kDeferred))
    return {message.context, rx_.cntr, rx_.reports(message.report ? FI_COMPLETION : 0)};
  const sdk::Deferred::Origin work = sdk::DeferredQueue::end(message.context);
  message.flags &= ~sdk::kDeferred;
  return {work.context, work.completion, work.report};
}

// Who only looks has received nothing, so it is not counted; nor is the end of a multi-receive that
// comes without a message.
void Endpoint::report_receive(Message &message, const fi_cq_tagged_entry &entry, fi_addr_t source) {
  const bool has_message = !message.is_multi || (entry.flags & FI_RECV) != 0;
  const bool receives = has_message && (message.looks & (FI_PEEK | FI_DISCARD)) == 0;
  const Told told = told_of(message);
  if (receives && told.cntr != nullptr) told.cntr->add_events(1, entry.len);
  if ((told.report || !has_message) && rx_.cq != nullptr)
    rx_.cq->push({.context = told.context,
                  .flags = (has_message ? message.flags : 0) |
                           (entry.flags & (FI_REMOTE_CQ_DATA | FI_MULTI_RECV)),
                  .len = entry.len,
                  .buf = entry.buf,
                  .data = entry.data,
                  .tag = entry.tag,
                  .src_addr = reported(source)});
  if (message.is_multi) {
    if (entry.flags & FI_MULTI_RECV) message.home->end(message);
    return;
  }
  message.has_claimed = message.looks == (FI_PEEK | FI_CLAIM);
  if (!message.has_claimed) message.home->end(message);
}

bool Endpoint::on_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.cq, &entry, 0) != 1) return false;
  if (entry.op_context == nullptr) {  // that of the endpoint beneath: a write that had completed
    if (entry.flags & FI_WRITE)
      tx_.finish({.context = c()->fid.context, .flags = entry.flags, .err = entry.err});
    return true;
  }
  Posted &posted = *static_cast<Posted *>(entry.op_context);
  if (posted.kind >= Posted::kFlight)
    on_wire(static_cast<Wire &>(posted), entry.err, entry.len, FI_ADDR_NOTAVAIL);
  else if (posted.kind == Posted::kAccess)
    end_access(static_cast<Access &>(posted), entry.err);
  else
    fail_message(static_cast<Message &>(posted), entry);
  return true;
}

void Endpoint::fail_message(Message &message, const fi_cq_err_entry &entry) {
  if (message.flags & FI_SEND) {
    tx_.finish({.context = message.context,
                .flags = message.flags,
                .tag = message.tag,
                .report = message.report,
                .err = entry.err});
    return end_send(message);
  }
  const Told told = told_of(message);
  // FI_SOURCE_ERR: received, from somebody who is not in the address vector.
  const std::string stranger(static_cast<const char *>(entry.err_data),
                             entry.err == FI_EADDRNOTAVAIL ? entry.err_data_size : 0);
  if (message.looks == 0 && told.cntr != nullptr) {
    if (stranger.empty())
      told.cntr->add_error();
    else
      told.cntr->add_events(1, entry.len);
  }
  if (rx_.cq != nullptr)
    rx_.cq->push_error({.context = told.context,
                        .flags = message.flags | (entry.flags & FI_MULTI_RECV),
                        .len = entry.len,
                        .buf = entry.buf,
                        .data = entry.data,
                        .tag = entry.tag,
                        .olen = entry.olen,
                        .err = entry.err,
                        .err_data = stranger});
  // One message of a multi-receive may fail, and the receive go on.
  if (!message.is_multi || (entry.flags & FI_MULTI_RECV) || entry.err == FI_ECANCELED)
    message.home->end(message);
}

Result<sdk::Address> Endpoint::own_address() const {
  char bytes[128];
  size_t length = sizeof bytes;
  if (const int rc = fi_getname(&inner_->fid, bytes, &length); rc != 0)
    return fail(-rc, "the endpoint beneath has no name");
  return sdk::read_address(domain_.inner_info().addr_format, bytes, length);
}

}  // namespace weft::coll
