// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_tagged.h>
#include <weft/sdk/log.h>
#include <weft/sdk/traffic_class.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace weft::coll {
namespace {

// Room in the queue beneath for what groups have in flight.
constexpr size_t kGroupPlaces = 1024;
constexpr uint64_t kLooks = FI_PEEK | FI_CLAIM | FI_DISCARD;

bool takes_claimed(uint64_t flags) {
  return (flags & (FI_PEEK | FI_CLAIM)) == FI_CLAIM;
}

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

fi_msg untagged(const fi_msg_tagged &msg) {
  return {.msg_iov = msg.msg_iov,
          .desc = msg.desc,
          .iov_count = msg.iov_count,
          .addr = msg.addr,
          .context = msg.context,
          .data = msg.data};
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
      receive_vectors_(std::min(domain.inner_info().rx_attr->iov_limit, sdk::kIovLimit)),
      remote_vectors_(std::min(domain.inner_info().tx_attr->rma_iov_limit, sdk::kIovLimit)),
      inject_beneath_(domain.inner_info().tx_attr->inject_size),
      sends_(limits().tx_size),
      receives_(limits().rx_size),
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
  for (struct fid *fid : {inner_ != nullptr ? &inner_->fid : nullptr,
                          queue_.cq != nullptr ? &queue_.cq->fid : nullptr,
                          peers_ != nullptr ? &peers_->fid : nullptr})
    if (fid != nullptr) fi_close(fid);
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
  below.tx_attr = &tx;
  below.ep_attr = &ep;
  if (info.src_addr != nullptr) {
    below.src_addr = info.src_addr;
    below.src_addrlen = info.src_addrlen;
  }
  fi_cq_attr cq{.size = limits().tx_size + limits().rx_size + kGroupPlaces,
                .format = FI_CQ_FORMAT_TAGGED};
  fi_av_attr av{.type = FI_AV_TABLE};
  fid_cq *queue = nullptr;
  int rc = sdk::open_inner_wait([&](enum fi_wait_obj wait) {
    cq.wait_obj = wait;
    return fi_cq_open(domain_.inner(), &cq, &queue, nullptr);
  });
  if (rc == 0) queue_ = sdk::InnerQueue(queue);
  if (rc == 0) rc = fi_av_open(domain_.inner(), &av, &peers_, nullptr);
  if (rc == 0) rc = fi_endpoint(domain_.inner(), &below, &inner_, nullptr);
  if (rc == 0) rc = fi_ep_bind(inner_, &queue->fid, FI_TRANSMIT | FI_RECV);
  if (rc == 0) rc = fi_ep_bind(inner_, &peers_->fid, 0);
  if (rc != 0)
    return fail(-rc, "coll: the provider beneath has no endpoint for it: see its log lines");
  wait_ = sdk::InnerWait(&queue->fid);
  const sdk::Guard guard(lock());
  domain_.note_endpoint(number(), inner_);
  return {};
}

Result<void> Endpoint::enable() {
  WEFT_CHECK(check_bindings(false));
  WEFT_CHECK(count_remote());
  if (const int rc = fi_enable(inner_); rc != 0)
    return fail(-rc, "coll: fi_enable of the endpoint beneath: see the log lines before");
  const bool tells_sources = (caps() & FI_SOURCE) != 0;
  av()->add_user(*this, tells_sources);
  for (uint32_t i = 0; tells_sources && i < av()->capacity(); ++i) name_of(i);
  domain_.engine().add_poller(*this);
  set_enabled();
  return {};
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
  retire();
  if (feeds_eq()) eq()->remove_source(domain_.engine(), true);
  {
    const sdk::Guard guard(lock());
    detach();
    collectives_.close();
    if (enabled()) domain_.engine().remove_poller(*this);
    release(enabled() ? this : nullptr);
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

template <class Request>
Message *Endpoint::take(sdk::Pool<Message> &pool, const Request &request) {
  Message *const message = pool.take();
  if (message == nullptr) {
    poll_beneath();  // an application that only injects never makes progress
    return nullptr;
  }
  message->kind = Posted::kMessage;
  message->context = request.context;
  message->tag = request.tag;
  std::copy_n(request.iov, request.count, message->iov);
  message->busy = true;
  message->looks = 0;
  message->has_claimed = message->is_multi = false;
  return message;
}

// What was claimed is known to the endpoint beneath by the context of that call. Null: there is no
// room, or nothing was claimed.
Message *Endpoint::place_of(const sdk::RecvRequest &request) {
  if (!takes_claimed(request.flags)) return take(receives_, request);
  Message *claimed = nullptr;
  receives_.visit([&](Message &message) {
    if (message.busy && message.has_claimed && message.context == request.context)
      claimed = &message;
  });
  if (claimed != nullptr) std::copy_n(request.iov, request.count, claimed->iov);
  return claimed;
}

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  if (tx_.is_full()) return -FI_EAGAIN;
  const fi_addr_t dest = name_of(av()->index_of(request.dest));
  if (dest == FI_ADDR_NOTAVAIL || request.count > send_vectors_) return -FI_EINVAL;
  if (request.tagged && is_ours(request.tag)) return -FI_EINVAL;
  Message *const message = take(sends_, request);
  if (message == nullptr) return -FI_EAGAIN;
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
  if (rc != 0) give(sends_, *message);
  return rc;
}

// Whatever bits a receive ignores, it takes no message of a group.
ssize_t Endpoint::start(const sdk::RecvRequest &request) {
  if (request.flags & ~(FI_COMPLETION | FI_MORE | FI_MULTI_RECV | kLooks | sdk::kDeferred))
    return -FI_EBADFLAGS;
  const uint64_t multi = request.flags & FI_MULTI_RECV;
  if (multi != 0 && !(caps() & FI_MULTI_RECV)) return -FI_EBADFLAGS;
  if (request.count > receive_vectors_ || (request.count != 0 && request.iov == nullptr))
    return -FI_EINVAL;
  if (request.tagged && is_ours(request.tag & ~request.ignore)) return -FI_EINVAL;
  fi_addr_t source = FI_ADDR_UNSPEC;
  if ((caps() & FI_DIRECTED_RECV) && request.src != FI_ADDR_UNSPEC) {
    source = name_of(av()->index_of(request.src));
    if (source == FI_ADDR_NOTAVAIL) return -FI_EINVAL;
  }
  Message *const message = place_of(request);
  if (message == nullptr) return takes_claimed(request.flags) ? -FI_EINVAL : -FI_EAGAIN;
  const uint64_t looks = request.flags & kLooks;
  const bool had_claimed = std::exchange(message->has_claimed, false);
  message->looks = looks;
  message->flags = sdk::completion_flags(request);
  message->report = rx_.reports(request.flags);
  void *none[sdk::kIovLimit] = {};  // the provider beneath wants no descriptors
  const fi_msg_tagged msg{.msg_iov = message->iov,
                          .desc = none,
                          .iov_count = request.count,
                          .addr = source,
                          .tag = request.tag & ~kOurTags,
                          .ignore = request.ignore & ~kOurTags,
                          .context = static_cast<Posted *>(message)};
  const fi_msg plain = untagged(msg);
  message->is_multi = multi != 0;
  multi_receives_ += message->is_multi;
  const uint64_t flags = FI_COMPLETION | looks | multi;
  const ssize_t rc =
      request.tagged ? fi_trecvmsg(inner_, &msg, flags) : fi_recvmsg(inner_, &plain, flags);
  if (rc != 0 && had_claimed)
    message->has_claimed = true;
  else if (rc != 0)
    end_receive(*message);
  return rc;
}

ssize_t Endpoint::cancel(void *context) {
  if (context == nullptr) return -FI_ENOENT;
  const ssize_t rc = cancel_posted(context);
  return rc != -FI_ENOENT ? rc : cancel_deferred(context);
}

ssize_t Endpoint::cancel_posted(const void *context) {
  const sdk::Guard guard(lock());
  ssize_t rc = -FI_ENOENT;
  receives_.visit([&](Message &message) {
    if (rc != -FI_ENOENT || !message.busy) return;
    const void *const given =
        message.flags & sdk::kDeferred
            ? static_cast<const sdk::Deferred *>(message.context)->origin().context
            : message.context;
    if (given == context) rc = fi_cancel(&inner_->fid, static_cast<Posted *>(&message));
  });
  return rc;
}

ssize_t Endpoint::left(const sdk::Pool<Message> &pool) {
  const sdk::Guard guard(lock());
  return enabled() ? ssize_t(pool.limit() - pool.in_use()) : -FI_EOPBADSTATE;
}

// ---- the queue beneath ----

// A multi-receive has more completions than receives: they wait beneath while the application's
// queue is full.
template <class MayFind>
void Endpoint::read_beneath(MayFind may_find) {
  fi_cq_tagged_entry entries[16];
  fi_addr_t sources[std::size(entries)];
  std::fill(std::begin(sources), std::end(sources), FI_ADDR_NOTAVAIL);
  const bool tells_sources = (caps() & FI_SOURCE) != 0;
  while (may_read() && may_find()) {
    const ssize_t n = tells_sources
                          ? fi_cq_readfrom(queue_.cq, entries, std::size(entries), sources)
                          : fi_cq_read(queue_.cq, entries, std::size(entries));
    for (ssize_t i = 0; i < n; ++i) on_done(entries[i], sources[i]);
    if (n == -FI_EAGAIN) domain_.progress_beneath().note(engine());
    if (n == -FI_EAVAIL ? !on_error() : n <= 0) break;
  }
  collectives_.on_polled();
}

void Endpoint::on_poll() {
  read_beneath([this] { return domain_.progress_beneath().may_find(queue_, engine()); });
}

void Endpoint::poll_beneath() {
  read_beneath([] { return true; });
}

bool Endpoint::may_wait() {
  if (wait_.changed()) domain_.engine().rewatch(*this);
  struct fid *fids[] = {&queue_.cq->fid};
  return fi_trywait(domain_.fabric().inner(), fids, 1) == 0;
}

void Endpoint::on_done(const fi_cq_tagged_entry &entry, fi_addr_t source) {
  if (entry.op_context == nullptr)
    return rx_.report_remote_write(entry.len, entry.data, reported(source),
                                   (entry.flags & FI_ATOMIC) != 0);
  Posted &posted = *static_cast<Posted *>(entry.op_context);
  if (posted.kind >= Posted::kFlight)
    return collectives_.on_done(static_cast<Wire &>(posted), 0, entry.len);
  if (posted.kind == Posted::kAccess) return end_access(static_cast<Access &>(posted), 0);
  Message &message = static_cast<Message &>(posted);
  if (message.flags & FI_SEND) {
    tx_.succeed(message.context, message.flags, message.length, message.report);
    return give(sends_, message);
  }
  report_receive(message, entry, source);
}

void Endpoint::end_receive(Message &message) {
  multi_receives_ -= message.is_multi;
  give(receives_, message);
}

// Of deferred work, those that it names (deferred.h).
Endpoint::Told Endpoint::told_of(Message &message) {
  if (!(message.flags & sdk::kDeferred)) return {message.context, rx_.cntr, message.report};
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
    if (entry.flags & FI_MULTI_RECV) end_receive(message);
    return;
  }
  message.has_claimed = (message.looks & kLooks) == (FI_PEEK | FI_CLAIM);
  if (!message.has_claimed) end_receive(message);
}

bool Endpoint::on_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.cq, &entry, 0) != 1) return false;
  if (entry.op_context == nullptr) return true;
  Posted &posted = *static_cast<Posted *>(entry.op_context);
  if (posted.kind >= Posted::kFlight)
    collectives_.on_done(static_cast<Wire &>(posted), entry.err, entry.len);
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
    return give(sends_, message);
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
    end_receive(message);
}

// ---- peers: the vector beneath gets those that messages are sent to ----

Result<sdk::Address> Endpoint::own_address() const {
  char bytes[128];
  size_t length = sizeof bytes;
  if (const int rc = fi_getname(&inner_->fid, bytes, &length); rc != 0)
    return fail(-rc, "the endpoint beneath has no name");
  return sdk::read_address(domain_.inner_info().addr_format, bytes, length);
}

fi_addr_t Endpoint::name_of(uint32_t index) {
  if (index < names_.size() && names_[index].address != FI_ADDR_NOTAVAIL)
    return names_[index].address;
  const auto address = av()->address(index);
  char bytes[128];
  size_t length = sizeof bytes;
  const uint32_t format = domain_.inner_info().addr_format;
  if (!address || sdk::write_address(*address, format, bytes, &length) != 0)
    return FI_ADDR_NOTAVAIL;
  if (index >= names_.size()) names_.resize(index + 1);
  Name &name = names_[index];
  if (fi_av_insert(peers_, bytes, 1, &name.address, 0, nullptr) != 1)
    name.address = FI_ADDR_NOTAVAIL;
  else if (caps() & FI_SOURCE)
    indices_.try_emplace(name.address, index);
  return name.address;
}

// Inserted more than once, a peer is known by the first index.
fi_addr_t Endpoint::reported(fi_addr_t source) const {
  const auto found = indices_.find(source);
  return found != indices_.end() ? av()->reported(found->second) : FI_ADDR_NOTAVAIL;
}

fi_addr_t Endpoint::name_for_groups(uint32_t index) {
  const fi_addr_t name = name_of(index);
  if (name != FI_ADDR_NOTAVAIL) names_[index].is_kept = true;
  return name;
}

void Endpoint::on_av_removed(uint32_t index) {
  if (index >= names_.size() || names_[index].address == FI_ADDR_NOTAVAIL) return;
  indices_.erase(names_[index].address);
  if (!names_[index].is_kept) fi_av_remove(peers_, &names_[index].address, 1, 0);
  names_[index] = {};
}

}  // namespace weft::coll
