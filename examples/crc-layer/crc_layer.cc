// SPDX-License-Identifier: BSD-2-Clause
// crc: a layer that puts a checksum in front of each message, and checks it where the message
// arrives: a damaged message is an error completion (FI_EIO), not wrong data. It stands over
// unconnected endpoints (FI_EP_RDM), and its peers need it, too. docs/writing-a-layer.md explains
// it.
//
//   FI_PROVIDER_PATH=build/examples FI_PROVIDER="loop;crc" fi_info
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/ip/software.h>
#include <weft/sdk/layers/inner_modes.h>
#include <weft/sdk/layers/inner_wait.h>
#include <weft/sdk/layers/layer_domain.h>
#include <weft/sdk/layers/layer_fabric.h>
#include <weft/sdk/layers/layer_info.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/transfers/transfer.h>
#include <weft/sdk/unit.h>

namespace {

using namespace weft;
using namespace weft::sdk;

constexpr uint64_t kTransmit = FI_MSG | FI_TAGGED | FI_SEND;
constexpr uint64_t kReceive = FI_MSG | FI_TAGGED | FI_RECV;
constexpr size_t kQueueSize = 1024;

// CRC-32C of the vectors, without the first one.
uint32_t checksum(const iovec *iov, size_t count, size_t length) {
  uint32_t crc = ~uint32_t(0);
  pieces(iov + 1, count - 1, 0, length, [&crc](const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      crc ^= bytes[i];
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
  });
  return ~crc;
}

// In front of each message. Little-endian hosts only, as the rest of this example.
struct Header {
  uint32_t magic = 0, crc = 0;
};
constexpr uint32_t kMagic = 0x43524331;

// A send or a receive at the provider beneath.
struct Operation {
  fi_context2 inner;  // first, and the inner provider's where it asks for it (FI_CONTEXT)
  Header header;
  iovec iov[1 + kIovLimit];  // the header, and the application's
  void *desc[1 + kIovLimit] = {};
  size_t count = 0;
  void *context = nullptr;
  uint64_t flags = 0;  // of the completion
  uint64_t length = 0, tag = 0;
  bool report = false, busy = false;
};

// Vectors that are left for the application; 0: none.
size_t vectors_over(const fi_info &inner) {
  const size_t limit =
      std::min({inner.tx_attr->iov_limit, inner.rx_attr->iov_limit, 1 + kIovLimit});
  return limit - std::min<size_t>(limit, 1);
}

struct Counters : CounterSet {
  Counter checked{*this, "messages_checked", "messages whose checksum was right"};
  Counter damaged{*this, "messages_damaged", "messages whose checksum was wrong"};
};

class CrcLayer {
 public:
  static constexpr UnitInfo info{.name = "crc",
                                 .summary = "checks every message from end to end",
                                 .version = FI_VERSION(1, 0),
                                 .needs_ep = WEFT_EP_BIT(FI_EP_RDM),
                                 .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
                                 .rank = 1,
                                 .security = WEFT_SECURITY_TRUSTED_PEERS};
  struct Options {
    size_t tx_size = kQueueSize, rx_size = kQueueSize;
  };
  CrcLayer(const weft_instance *instance, Inner inner) : instance_(instance), inner_(inner) {}

  Result<InfoList> getinfo(const GetinfoQuery &query) {
    WEFT_TRY(const InfoList wanted, hints(query.hints));
    WEFT_TRY(const InfoList found, inner_.getinfo(inner_query(wanted, query)));
    InfoList list(instance_->core);
    for (const fi_info *below = found.front(); below != nullptr; below = below->next) {
      if (vectors_over(*below) == 0 || below->ep_attr->max_msg_size <= sizeof(Header)) continue;
      WEFT_TRY(fi_info *const entry, list.add_copy(below));
      offer(*entry, query);
    }
    if (list.empty())
      return fail(FI_ENODATA,
                  "crc: the endpoints beneath take one vector per message, and its header needs a "
                  "second: choose another provider, or leave crc out");
    return list;
  }
  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);

  // What the domain beneath is opened with, for an application's `info`.
  Result<InfoList> inner_info(const fi_info &info) const {
    WEFT_TRY(const InfoList wanted, hints(&info));
    return inner_.getinfo(inner_query(wanted));
  }
  const weft_instance *instance() const { return instance_; }
  const Options &options() const { return options_; }

 private:
  // No mode of memory registration is accepted, so providers with FI_MR_LOCAL are not found.
  Result<InfoList> hints(const fi_info *outer) const {
    WEFT_TRY(InfoList list, inner_hints(instance_->core, FI_EP_RDM, FI_MSG | FI_TAGGED, outer));
    list.front()->mode = kLayerModes;
    return list;
  }
  static void offer(fi_info &entry, const GetinfoQuery &query) {
    const uint64_t where = entry.domain_attr->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM);
    entry.caps = kTransmit | kReceive | where;
    entry.mode = entry.tx_attr->mode = entry.rx_attr->mode = 0;
    entry.tx_attr->caps = kTransmit;
    entry.rx_attr->caps = kReceive;
    entry.rx_attr->op_flags &= FI_COMPLETION;
    entry.tx_attr->iov_limit = entry.rx_attr->iov_limit = vectors_over(entry);
    entry.tx_attr->size = entry.rx_attr->size = kQueueSize;
    entry.tx_attr->inject_size -= std::min(entry.tx_attr->inject_size, sizeof(Header));
    entry.ep_attr->max_msg_size -= sizeof(Header);
    fill_software_domain(*entry.domain_attr, query, 0);
    entry.domain_attr->caps = where;
    entry.fabric_attr->api_version = query.api_version;
  }

  const weft_instance *instance_;
  const Inner inner_;
  const Options options_;
};

class Domain;
using Fabric = LayerFabric<CrcLayer, Domain, Counters>;
class Endpoint;

class Domain final : public LayerDomain<Domain, Fabric, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context) {
    WEFT_TRY(InfoList inner, fabric.layer().inner_info(info));
    return start(new Domain(fabric, info, std::move(inner), context), info);
  }
  AtomicLimits atomic_limits() const { return {}; }
  int srx_ctx(struct fi_rx_attr *, struct fid_ep **, void *) { return -FI_ENOSYS; }

 private:
  friend LayerDomain;
  Domain(Fabric &fabric, const fi_info &info, InfoList inner, void *context)
      : LayerDomain(fabric, {.iov_limit = 1}, info, std::move(inner), context) {}
  ~Domain() = default;
};

class Endpoint final : public Object<Endpoint, fid_ep>,
                       public EndpointCore,
                       public TransferOps<Endpoint>,
                       private AvUser,
                       private Poller {
 public:
  static constexpr uint64_t kSendFlags =
      FI_COMPLETION | FI_INJECT | FI_MORE | FI_REMOTE_CQ_DATA | kLevelFlags;

  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context) {
    auto endpoint = std::make_unique<Endpoint>(domain, info, context);
    WEFT_CHECK(endpoint->open_inner(info));
    WEFT_CHECK(endpoint->publish(domain.base()));
    domain.shared().children.fetch_add(1);
    return endpoint.release();
  }
  Endpoint(Domain &domain, const fi_info &info, void *context)
      : Object(domain.instance(), FI_CLASS_EP, context),
        EndpointCore(domain.shared(), PeerKind::kUnconnected, info, limits_over(domain), &tx_,
                     &rx_),
        domain_(domain),
        tx_(info),
        rx_(info),
        iov_limit_(vectors_over(domain.inner_info())),
        sends_(limits().tx_size),
        receives_(limits().rx_size) {
    fill_tables(*this);
  }
  ~Endpoint() {
    for (struct fid *fid :
         {inner_ != nullptr ? &inner_->fid : nullptr, cq_ != nullptr ? &cq_->fid : nullptr,
          peers_ != nullptr ? &peers_->fid : nullptr})
      if (fid != nullptr) fi_close(fid);
  }

  // ---- for TransferOps, with the lock of the domain held ----
  ssize_t start(const SendRequest &request) {
    if (tx_.is_full()) return -FI_EAGAIN;
    const fi_addr_t dest = name_of(av()->index_of(request.dest));
    if (dest == FI_ADDR_NOTAVAIL) return -FI_EINVAL;
    if (request.count > iov_limit_) return -FI_EINVAL;
    Operation *const op = take(sends_, request);
    if (op == nullptr) return -FI_EAGAIN;
    op->flags = FI_SEND | (request.tagged ? FI_TAGGED : FI_MSG);
    op->length = request.length;
    op->report = request.report;
    op->header = {kMagic, checksum(op->iov, op->count, op->length)};
    const fi_msg_tagged msg{.msg_iov = op->iov,
                            .desc = op->desc,
                            .iov_count = op->count,
                            .addr = dest,
                            .tag = request.tag,
                            .context = op,
                            .data = request.data};
    const uint64_t flags = request.flags | FI_COMPLETION;
    const fi_msg plain = untagged(msg);
    return started(
        sends_, *op,
        request.tagged ? fi_tsendmsg(inner_, &msg, flags) : fi_sendmsg(inner_, &plain, flags));
  }
  ssize_t start(const RecvRequest &request) {
    if (request.flags & ~uint64_t(FI_COMPLETION | FI_MORE)) return -FI_EBADFLAGS;
    if (request.count > iov_limit_ || (request.count != 0 && request.iov == nullptr))
      return -FI_EINVAL;
    Operation *const op = take(receives_, request);
    if (op == nullptr) return -FI_EAGAIN;
    op->flags = FI_RECV | (request.tagged ? FI_TAGGED : FI_MSG);
    op->report = rx_.reports(request.flags);
    const fi_msg_tagged msg{.msg_iov = op->iov,
                            .desc = op->desc,
                            .iov_count = op->count,
                            .addr = FI_ADDR_UNSPEC,
                            .tag = request.tag,
                            .ignore = request.ignore,
                            .context = op};
    const fi_msg plain = untagged(msg);
    return started(receives_, *op,
                   request.tagged ? fi_trecvmsg(inner_, &msg, FI_COMPLETION)
                                  : fi_recvmsg(inner_, &plain, FI_COMPLETION));
  }
  ssize_t start(const RmaRequest &) { return -FI_EOPNOTSUPP; }
  ssize_t start(const AtomicRequest &) { return -FI_EOPNOTSUPP; }

  // ---- fi_ops ----
  int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
  int control(int command, void *arg) {
    if (command == FI_ALIAS) return Alias<Endpoint>::open(*this, arg);
    if (command != FI_ENABLE) return control_flags(command, arg, kSendFlags);
    Guard guard(lock());
    if (enabled()) return 0;
    if (auto done = enable(); !done) {
      WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
      return -done.error().code;
    }
    return 0;
  }
  int close() {
    if (aliases.load() != 0) return -FI_EBUSY;
    retire();
    {
      Guard guard(lock());
      detach();
      if (enabled()) domain_.engine().remove_poller(*this);
      release(enabled() ? this : nullptr);
    }
    domain_.shared().children.fetch_sub(1);
    delete this;
    return 0;
  }

  // ---- fi_ops_cm: the name is that of the endpoint beneath ----
  int setname(void *addr, size_t length) { return fi_setname(&inner_->fid, addr, length); }
  int getname(void *addr, size_t *length) { return fi_getname(&inner_->fid, addr, length); }

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context) {
    Guard guard(lock());
    ssize_t rc = -FI_ENOENT;
    if (context == nullptr) return rc;
    receives_.visit([&](Operation &op) {
      if (rc != 0 && op.busy && op.context == context) rc = fi_cancel(&inner_->fid, &op);
    });
    return rc;
  }
  int getopt(int level, int name, void *value, size_t *length) {
    return get_limit(level, name, value, length);
  }
  int setopt(int, int, const void *, size_t) { return -FI_ENOPROTOOPT; }
  ssize_t tx_size_left() { return left(sends_); }
  ssize_t rx_size_left() { return left(receives_); }

 private:
  static EndpointLimits limits_over(Domain &domain) {
    const fi_info &inner = domain.inner_info();
    const size_t inject = inner.tx_attr->inject_size;
    return {.tx_size = kQueueSize,
            .rx_size = kQueueSize,
            .inject_size = inject - std::min(inject, sizeof(Header)),
            .max_msg_size = inner.ep_attr->max_msg_size - sizeof(Header)};
  }

  // ---- life of the objects beneath ----
  Result<void> open_inner(const fi_info &info) {
    fi_info below = domain_.inner_info();  // not a deep copy: fi_endpoint only reads it
    if (info.src_addr != nullptr) {
      below.src_addr = info.src_addr;
      below.src_addrlen = info.src_addrlen;
    }
    fi_cq_attr cq{.size = limits().tx_size + limits().rx_size, .format = FI_CQ_FORMAT_TAGGED};
    fi_av_attr av{.type = FI_AV_TABLE};
    int rc = open_inner_wait([&](enum fi_wait_obj wait) {
      cq.wait_obj = wait;
      return fi_cq_open(domain_.inner(), &cq, &cq_, nullptr);
    });
    if (rc == 0) rc = fi_av_open(domain_.inner(), &av, &peers_, nullptr);
    if (rc == 0) rc = fi_endpoint(domain_.inner(), &below, &inner_, nullptr);
    if (rc == 0) rc = fi_ep_bind(inner_, &cq_->fid, FI_TRANSMIT | FI_RECV);
    if (rc == 0) rc = fi_ep_bind(inner_, &peers_->fid, 0);
    if (rc != 0)
      return fail(-rc, "crc: the provider beneath (%s) has no endpoint for it: see its log lines",
                  below.fabric_attr->prov_name);
    wait_ = InnerWait(&cq_->fid);
    return {};
  }
  Result<void> enable() {
    WEFT_CHECK(check_bindings(false));
    if (const int rc = fi_enable(inner_); rc != 0)
      return fail(-rc, "crc: fi_enable of the endpoint beneath: see the log lines before");
    av()->add_user(*this);
    domain_.engine().add_poller(*this);
    set_enabled();
    return {};
  }

  // ---- operations ----
  template <class Request>
  Operation *take(Pool<Operation> &pool, const Request &request) {
    Operation *const op = pool.take();
    if (op == nullptr) {
      on_poll();  // an application that only injects never makes progress
      return nullptr;
    }
    op->context = request.context;
    op->tag = request.tag;
    op->iov[0] = {&op->header, sizeof op->header};
    std::copy_n(request.iov, request.count, op->iov + 1);
    op->count = 1 + request.count;
    op->busy = true;
    return op;
  }
  static fi_msg untagged(const fi_msg_tagged &msg) {
    return {.msg_iov = msg.msg_iov,
            .desc = msg.desc,
            .iov_count = msg.iov_count,
            .addr = msg.addr,
            .context = msg.context,
            .data = msg.data};
  }
  static ssize_t started(Pool<Operation> &pool, Operation &op, ssize_t rc) {
    if (rc != 0) give(pool, op);
    return rc;
  }
  static void give(Pool<Operation> &pool, Operation &op) {
    op.busy = false;
    pool.give(&op);
  }
  ssize_t left(const Pool<Operation> &pool) {
    Guard guard(lock());
    return enabled() ? ssize_t(pool.limit() - pool.in_use()) : -FI_EOPBADSTATE;
  }

  // ---- Poller: the queue beneath ----
  void on_poll() override {
    fi_cq_tagged_entry entries[16];
    for (;;) {
      const ssize_t n = fi_cq_read(cq_, entries, std::size(entries));
      for (ssize_t i = 0; i < n; ++i) on_done(entries[i]);
      if (n == -FI_EAVAIL ? !on_error() : n <= 0) return;
    }
  }
  int wait_fds(std::vector<int> &fds) override { return wait_.add_to(fds); }
  bool may_wait() override {
    if (wait_.changed()) domain_.engine().rewatch(*this);
    struct fid *fids[] = {&cq_->fid};
    return fi_trywait(domain_.fabric().inner(), fids, 1) == 0;
  }

  void on_done(const fi_cq_tagged_entry &entry) {
    Operation &op = *static_cast<Operation *>(entry.op_context);
    if (op.flags & FI_SEND) {
      tx_.succeed(op.context, op.flags, op.length, op.report);
      return give(sends_, op);
    }
    const size_t length = entry.len - std::min(entry.len, sizeof(Header));
    Counters &counters = *domain_.fabric().stats();
    if (entry.len < sizeof(Header) || op.header.magic != kMagic ||
        op.header.crc != checksum(op.iov, op.count, length)) {
      counters.damaged.add();
      return fail_receive(op, {.len = length, .data = entry.data, .tag = entry.tag, .err = FI_EIO});
    }
    counters.checked.add();
    if (rx_.cntr != nullptr) rx_.cntr->add_events(1, length);
    if (op.report && rx_.cq != nullptr)
      rx_.cq->push({.context = op.context,
                    .flags = op.flags | (entry.flags & FI_REMOTE_CQ_DATA),
                    .len = length,
                    .data = entry.data,
                    .tag = entry.tag});
    give(receives_, op);
  }
  bool on_error() {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(cq_, &entry, 0) != 1) return false;
    if (entry.op_context != nullptr) end(*static_cast<Operation *>(entry.op_context), entry);
    return true;
  }
  void end(Operation &op, const fi_cq_err_entry &entry) {
    if (op.flags & FI_RECV)
      return fail_receive(op, {.len = entry.len - std::min(entry.len, sizeof(Header)),
                               .data = entry.data,
                               .tag = entry.tag,
                               .olen = entry.olen,
                               .err = entry.err});
    tx_.finish({.context = op.context,
                .flags = op.flags,
                .tag = op.tag,
                .report = op.report,
                .err = entry.err});
    give(sends_, op);
  }
  void fail_receive(Operation &op, CompletionError error) {
    error.context = op.context;
    error.flags = op.flags;
    if (rx_.cntr != nullptr) rx_.cntr->add_error();
    if (rx_.cq != nullptr) rx_.cq->push_error(std::move(error));
    give(receives_, op);
  }

  // ---- peers: the vector beneath gets those that messages are sent to ----
  // The peer's name there; FI_ADDR_NOTAVAIL: it has none.
  fi_addr_t name_of(uint32_t index) {
    if (index < names_.size() && names_[index] != FI_ADDR_NOTAVAIL) return names_[index];
    const auto address = av()->address(index);
    char bytes[128];
    size_t length = sizeof bytes;
    const uint32_t format = domain_.inner_info().addr_format;
    if (!address || write_address(*address, format, bytes, &length) != 0) return FI_ADDR_NOTAVAIL;
    if (index >= names_.size()) names_.resize(index + 1, FI_ADDR_NOTAVAIL);
    // An array of addresses in text is one of pointers (fi_av.3).
    const char *text = bytes;
    const void *const one = format == FI_ADDR_STR ? static_cast<const void *>(&text) : bytes;
    if (fi_av_insert(peers_, one, 1, &names_[index], 0, nullptr) != 1)
      names_[index] = FI_ADDR_NOTAVAIL;
    return names_[index];
  }
  // AvUser
  void on_av_removed(uint32_t index) override {
    if (index >= names_.size() || names_[index] == FI_ADDR_NOTAVAIL) return;
    fi_av_remove(peers_, &names_[index], 1, 0);
    names_[index] = FI_ADDR_NOTAVAIL;
  }

  Domain &domain_;
  TxContext tx_;
  RxContext rx_;
  const size_t iov_limit_;
  Pool<Operation> sends_, receives_;
  fid_ep *inner_ = nullptr;
  fid_cq *cq_ = nullptr;
  fid_av *peers_ = nullptr;
  std::vector<fi_addr_t> names_;  // in peers_, by index of the application's vector
  InnerWait wait_;
};

Result<fid_fabric *> CrcLayer::fabric(const fi_fabric_attr &attr, void *context) {
  WEFT_TRY(fid_fabric *const inner, inner_.fabric(attr, nullptr));
  return Fabric::open(*this, inner, attr, context);
}

constexpr PluginInfo kPlugin{
    .name = "crc-layer", .vendor = "weft", .version = "1.0.0", .license = "BSD-2-Clause"};

}  // namespace

WEFT_PLUGIN(kPlugin, CrcLayer)
