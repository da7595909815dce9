// SPDX-License-Identifier: BSD-2-Clause
// null: a provider without a network. Each endpoint sends to itself: a message, to whatever
// address, goes into the receive that was posted first. It is for measuring what everything but
// the network costs, and an example of a whole provider. `weft stats` shows what it counts.
//
//   FI_PROVIDER=null fi_info
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/provider_fabric.h>
#include <weft/sdk/objects/sets.h>
#include <weft/sdk/transfers/recv_queue.h>
#include <weft/sdk/unit.h>
#include <weft/sdk/unit/stats.h>

#include <cstring>

namespace {

using namespace weft;
using namespace weft::sdk;

constexpr char kAddress[] = "null://self";  // of every endpoint
constexpr size_t kQueueSize = 256;

struct Counters : CounterSet {
  Counter truncated{*this, "messages_truncated", "messages that were longer than their receive"};
  Counter refused{*this, "sends_refused", "sends that returned FI_EAGAIN: no receive was posted"};
};

// An address vector in which every address is the endpoint itself.
class Av final : public Object<Av, fid_av> {
 public:
  Av(DomainContext &domain, void *context)
      : Object(domain.instance, FI_CLASS_AV, context), domain_(domain) {
    fill_tables(*this);
    domain_.children.fetch_add(1);
  }
  ~Av() { domain_.children.fetch_sub(1); }
  int insert(const void *, size_t count, fi_addr_t *fi_addr, uint64_t, void *) {
    for (size_t i = 0; i < count && fi_addr != nullptr; ++i) fi_addr[i] = 0;
    return static_cast<int>(count);
  }
  int remove(fi_addr_t *, size_t, uint64_t) { return 0; }
  int close() {
    retire();
    delete this;
    return 0;
  }

 private:
  DomainContext &domain_;
};

class Ep final : public Object<Ep, fid_ep> {
 public:
  Ep(DomainContext &domain, Counters &counters, void *context)
      : Object(domain.instance, FI_CLASS_EP, context),
        domain_(domain),
        counters_(counters),
        receives_(kQueueSize) {
    fill_tables(*this);
    domain_.children.fetch_add(1);
  }
  ~Ep() {
    for (Cq *cq : {tx_, rx_}) {
      if (cq != nullptr) cq->users.fetch_sub(1);
    }
    domain_.children.fetch_sub(1);
  }
  int bind(struct fid *fid, uint64_t flags) {
    if (Av::is_mine(fid, FI_CLASS_AV, instance())) return 0;
    if (!Cq::is_mine(fid, FI_CLASS_CQ, instance())) return -FI_EINVAL;
    if (flags & ~(FI_TRANSMIT | FI_RECV)) return -FI_EBADFLAGS;
    for (auto [flag, place] : {std::pair(FI_TRANSMIT, &tx_), std::pair(FI_RECV, &rx_)}) {
      if ((flags & flag) == 0) continue;
      if (*place != nullptr) return -FI_EBUSY;
      *place = Cq::from(fid);
      (*place)->users.fetch_add(1);
    }
    return 0;
  }
  int control(int command, void *) {
    if (command != FI_ENABLE) return -FI_ENOSYS;
    if (tx_ == nullptr || rx_ == nullptr) return -FI_ENOCQ;
    enabled_ = true;
    return 0;
  }
  int getname(void *addr, size_t *addrlen) {
    const size_t room = std::exchange(*addrlen, sizeof kAddress);
    std::memcpy(addr, kAddress, std::min(room, sizeof kAddress));
    return room < sizeof kAddress ? -FI_ETOOSMALL : 0;
  }
  int close() {
    retire();
    delete this;
    return 0;
  }

  ssize_t recv(void *buf, size_t len, void *, fi_addr_t, void *context) {
    if (!enabled_) return -FI_EOPBADSTATE;
    Guard guard(domain_.engine->lock());
    const iovec iov{buf, len};
    return receives_.post(&iov, 1, context, 0);
  }
  ssize_t recvmsg(const struct fi_msg *msg, uint64_t) {
    if (msg->iov_count != 1) return -FI_EINVAL;
    return recv(msg->msg_iov->iov_base, msg->msg_iov->iov_len, nullptr, 0, msg->context);
  }
  ssize_t send(const void *buf, size_t len, void *, fi_addr_t, void *context) {
    return deliver(buf, len, [&] { tx_->push({.context = context, .flags = FI_SEND | FI_MSG}); });
  }
  ssize_t sendmsg(const struct fi_msg *msg, uint64_t) {
    if (msg->iov_count != 1) return -FI_EINVAL;
    return send(msg->msg_iov->iov_base, msg->msg_iov->iov_len, nullptr, 0, msg->context);
  }
  ssize_t inject(const void *buf, size_t len, fi_addr_t) {
    return deliver(buf, len, [] {});
  }

 private:
  // Copies into the oldest receive, reports that, and then what `report_send` reports.
  ssize_t deliver(const void *buf, size_t len, auto report_send) {
    if (!enabled_) return -FI_EOPBADSTATE;
    Guard guard(domain_.engine->lock());
    if (receives_.front() == nullptr) {
      counters_.refused.add();
      return -FI_EAGAIN;
    }
    PostedRecv *receive = receives_.pop();
    void *context = receive->context;
    const size_t fits = std::min(len, receive->length);
    if (fits != 0) std::memcpy(receive->iov[0].iov_base, buf, fits);
    receives_.release(receive);
    constexpr uint64_t kFlags = FI_RECV | FI_MSG;
    if (fits == len) {
      rx_->push({.context = context, .flags = kFlags, .len = len, .src_addr = 0});
    } else {
      counters_.truncated.add();
      rx_->push_error(
          {.context = context, .flags = kFlags, .len = fits, .olen = len - fits, .err = FI_ETRUNC});
    }
    report_send();
    return 0;
  }

  DomainContext &domain_;
  Counters &counters_;  // of the fabric
  RecvQueue receives_;
  Cq *tx_ = nullptr, *rx_ = nullptr;
  bool enabled_ = false;
};

// Makes an object and tells the core of it.
template <class T, class... Args>
int open_object(struct fid *parent, typename T::FidType **out, Args &&...args) {
  auto object = std::make_unique<T>(std::forward<Args>(args)...);
  const weft_instance *instance = object->instance();
  Result<T *> result = object->publish(parent).map([&] { return object.release(); });
  return finish(instance, FI_LOG_DOMAIN, std::move(result), out);
}

class Domain final : public Object<Domain, fid_domain>, public SoftwareDomain {
 public:
  Domain(const weft_instance *instance, uint32_t api_version, std::atomic<size_t> &siblings,
         Counters &counters, void *context)
      : Object(instance, FI_CLASS_DOMAIN, context),
        SoftwareDomain(instance, base(), {.api_version = api_version}),
        siblings_(siblings),
        counters_(counters) {
    fill_tables(*this);
    siblings_.fetch_add(1);
  }
  ~Domain() { siblings_.fetch_sub(1); }
  int av_open(struct fi_av_attr *, struct fid_av **av, void *context) {
    return open_object<Av>(base(), av, shared(), context);
  }
  int endpoint(struct fi_info *, struct fid_ep **ep, void *context) {
    return open_object<Ep>(base(), ep, shared(), counters_, context);
  }
  int close() {
    if (shared().children.load() != 0) return -FI_EBUSY;
    retire();
    delete this;
    return 0;
  }

 private:
  std::atomic<size_t> &siblings_;
  Counters &counters_;
};

class Fabric final : public ProviderFabric<Fabric, NoSettings, Counters> {
 public:
  using ProviderFabric::ProviderFabric;

  int domain(struct fi_info *, struct fid_domain **out, void *context) {
    return open_object<Domain>(base(), out, instance(), api_version(), children, counters(),
                               context);
  }
  int eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context) {
    return finish(instance(), FI_LOG_EQ, Eq::open(instance(), base(), children, attr, context), eq);
  }
  int trywait(struct fid **fids, int count) { return sdk::trywait(instance(), fids, count); }
};

class Null {
 public:
  static constexpr UnitInfo info{.name = "null",
                                 .summary = "endpoints that talk to themselves, without a network",
                                 .version = FI_VERSION(1, 0),
                                 .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
                                 .rank = 1,
                                 .security = WEFT_SECURITY_NO_NETWORK};
  explicit Null(const weft_instance *instance) : instance_(instance) {}

  Result<InfoList> getinfo(const GetinfoQuery &) {
    InfoList list(instance_->core);
    WEFT_TRY(fi_info * entry, list.add());
    entry->caps = FI_MSG | FI_SEND | FI_RECV | FI_LOCAL_COMM;
    entry->addr_format = FI_ADDR_STR;
    WEFT_CHECK(set_address(entry->src_addr, entry->src_addrlen, kAddress, sizeof kAddress));
    *entry->ep_attr = {
        .type = FI_EP_RDM, .max_msg_size = SIZE_MAX, .tx_ctx_cnt = 1, .rx_ctx_cnt = 1};
    entry->tx_attr->caps = FI_MSG | FI_SEND;
    entry->rx_attr->caps = FI_MSG | FI_RECV;
    entry->tx_attr->inject_size = SIZE_MAX;
    entry->tx_attr->msg_order = entry->rx_attr->msg_order = FI_ORDER_SAS;
    entry->tx_attr->size = entry->rx_attr->size = kQueueSize;
    entry->tx_attr->iov_limit = entry->rx_attr->iov_limit = 1;
    fi_domain_attr &domain = *entry->domain_attr;
    domain.threading = FI_THREAD_SAFE;
    domain.control_progress = domain.data_progress = FI_PROGRESS_AUTO;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = FI_AV_TABLE;
    domain.mr_key_size = sizeof(uint64_t);
    domain.cq_cnt = domain.ep_cnt = domain.tx_ctx_cnt = domain.rx_ctx_cnt = 65536;
    domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = domain.mr_iov_limit = 1;
    WEFT_CHECK(set_string(domain.name, "null"));
    WEFT_CHECK(set_string(entry->fabric_attr->name, "null"));
    return list;
  }

  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) {
    return Fabric::open(instance_, {}, attr, context);
  }

 private:
  const weft_instance *instance_;
};
constexpr PluginInfo kPlugin{
    .name = "null-provider", .vendor = "weft", .version = "1.0.0", .license = "BSD-2-Clause"};
}  // namespace

WEFT_PLUGIN(kPlugin, Null)
