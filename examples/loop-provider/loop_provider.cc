// SPDX-License-Identifier: BSD-2-Clause
// loop: unconnected endpoints (FI_EP_RDM) that send messages, tagged or not, to the endpoints of
// the same process. docs/writing-a-provider.md explains it.
//
//   FI_PROVIDER_PATH=build/examples FI_PROVIDER=loop fi_info
#include <netinet/in.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/ip/software.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/provider_fabric.h>
#include <weft/sdk/objects/rdm_endpoint.h>
#include <weft/sdk/transfers/transfer.h>
#include <weft/sdk/unit.h>

#include "wire.h"

namespace {

using namespace weft;
using namespace weft::sdk;

constexpr size_t kMaxSize = 1 << 30;  // bytes of a message
constexpr size_t kInjectSize = 4096;  // bytes
constexpr size_t kQueueSize = 1024;   // operations
constexpr size_t kMaxSaved = 4096;    // messages without a receive, of one endpoint
constexpr uint64_t kTransmit = FI_MSG | FI_TAGGED | FI_SEND;
constexpr uint64_t kReceive = FI_MSG | FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_SOURCE;

// The addresses are those of IP, and the port says it all.
sockaddr_in address_of(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
auto parsed_address_of(uint16_t port) {
  const sockaddr_in address = address_of(port);
  return *read_address(FI_SOCKADDR_IN, &address, sizeof address);
}

class Domain;

class Fabric final : public ProviderFabric<Fabric>, public FabricOps<Fabric, Domain> {
 public:
  using ProviderFabric::ProviderFabric;
};

class Endpoint;

class Domain final : public Object<Domain, fid_domain>,
                     public SoftwareDomain,
                     public DomainOps<Domain, Endpoint> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context) {
    auto domain = std::make_unique<Domain>(fabric, info, context);
    WEFT_CHECK(start(*domain, info, fabric.base()));
    fabric.children.fetch_add(1);
    return domain.release();
  }
  Domain(Fabric &fabric, const fi_info &info, void *context)
      : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
        SoftwareDomain(instance(), base(),
                       DomainSettings::of(info, fabric.api_version(), 2 * kQueueSize,
                                          MrTable::Mode::of(info.domain_attr->mr_mode))),
        fabric_(fabric),
        addr_format_(info.addr_format) {
    fill_tables(*this);
  }
  loop::Wire &wire() { return *static_cast<loop::Wire *>(instance()->plugin_state); }

  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
    return sdk::open_av(shared(), addr_format_, attr, av, context, "loop");
  }
  int bind(struct fid *fid, uint64_t flags) { return bind_eq(fid, flags); }
  int close() {
    if (shared().children.load() != 0) return -FI_EBUSY;
    engine().stop_thread();
    retire();
    unbind();
    fabric_.children.fetch_sub(1);
    delete this;
    return 0;
  }

 private:
  Fabric &fabric_;
  const uint32_t addr_format_;
};

// A message without a receive.
struct Saved : Unexpected {
  std::string bytes;
};

class Endpoint final : public Object<Endpoint, fid_ep>,
                       public RdmEndpoint,
                       public TransferOps<Endpoint>,
                       private ReceiverSink,
                       private AvUser,
                       private Poller {
 public:
  // A send completes when its bytes are on the wire, so no level that needs the peer.
  static constexpr uint64_t kSendFlags =
      RdmEndpoint::kSendFlags &
      ~uint64_t(FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE);

  static Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context) {
    uint16_t port = 0;
    if (info.src_addr != nullptr) {
      WEFT_TRY(const auto address, read_address(info.addr_format, info.src_addr, info.src_addrlen));
      port = address.port();
    }
    auto endpoint = std::make_unique<Endpoint>(domain, info, port, context);
    WEFT_CHECK(endpoint->publish(domain.base()));
    domain.shared().children.fetch_add(1);
    return endpoint.release();
  }
  Endpoint(Domain &domain, const fi_info &info, uint16_t port, void *context)
      : Object(domain.instance(), FI_CLASS_EP, context),
        RdmEndpoint(domain.shared(), *this, info,
                    {.tx_size = kQueueSize,
                     .rx_size = kQueueSize,
                     .inject_size = kInjectSize,
                     .max_msg_size = kMaxSize}),
        domain_(domain),
        addr_format_(info.addr_format),
        wanted_port_(port) {
    fill_tables(*this);
  }

  // ---- for TransferOps, with the engine's lock held ----
  ssize_t start(const SendRequest &request) {
    if (tx().is_full()) return -FI_EAGAIN;
    const auto address = av()->address(av()->index_of(request.dest));
    if (!address) return -FI_EINVAL;
    const uint64_t flags = FI_SEND | (request.tagged ? FI_TAGGED : FI_MSG);
    const std::shared_ptr<loop::Port> to =
        address->is_loopback() ? domain_.wire().find(address->port()) : nullptr;
    if (to == nullptr) {
      tx().finish({.context = request.context,
                   .flags = flags,
                   .tag = request.tag,
                   .report = request.report,
                   .err = FI_EHOSTUNREACH});
      return 0;
    }
    loop::Packet packet{.from = port_->number(),
                        .tagged = request.tagged,
                        .has_data = (request.flags & FI_REMOTE_CQ_DATA) != 0,
                        .tag = request.tag,
                        .data = request.data,
                        .bytes = std::string(request.length, '\0')};
    gather(packet.bytes.data(), request.iov, request.count, 0, request.length);
    if (!to->put(std::move(packet))) {
      on_poll();  // the port may be our own
      return -FI_EAGAIN;
    }
    tx().succeed(request.context, flags, request.length, request.report);
    return 0;
  }
  ssize_t start(const RecvRequest &request) {
    if (request.flags & FI_PEEK) on_poll();
    const ssize_t rc = receiver().post(request);
    if (rc == 0 && stalled_) on_poll();
    return rc;
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
      if (port_ != nullptr) domain_.wire().close(*port_);
      if (enabled()) {
        domain_.engine().remove_poller(*this);
        receiver().visit_unexpected(Matcher::kAnySource, [this](Unexpected &message) {
          receiver().forget(message);
          discard(message);
        });
      }
      release(enabled() ? this : nullptr);
    }
    domain_.shared().children.fetch_sub(1);
    delete this;
    return 0;
  }

  // ---- fi_ops_cm, fi_ops_ep ----
  int setname(void *addr, size_t length) {
    const auto address = read_address(addr_format_, addr, length);
    if (!address) return -address.error().code;
    Guard guard(lock());
    if (enabled()) return -FI_EOPBADSTATE;
    wanted_port_ = address->port();
    return 0;
  }
  int getname(void *addr, size_t *length) {
    Guard guard(lock());
    if (!enabled()) return -FI_EOPBADSTATE;
    return write_address(parsed_address_of(port_->number()), addr_format_, addr, length);
  }
  ssize_t tx_size_left() {
    Guard guard(lock());
    return enabled() ? ssize_t(limits().tx_size) : -FI_EOPBADSTATE;
  }

 private:
  Result<void> enable() {
    WEFT_CHECK(check_bindings());
    WEFT_TRY(port_, domain_.wire().open(wanted_port_));
    av()->add_user(*this);
    domain_.engine().add_poller(*this);
    set_enabled();
    return {};
  }

  // ---- Poller ----
  // Takes packets off the wire while there is room to report and to save them. The rest waits
  // there, and its senders with it.
  void on_poll() override {
    stalled_ = false;
    while (loop::Packet *const packet = port_->front()) {
      const Message message = message_of(*packet);
      stalled_ = receiver().is_full() ||
                 (receiver().unexpected() >= kMaxSaved && !receiver().is_wanted(message));
      if (stalled_) return;
      if (Receive *const receive = receiver().match(message)) {
        finish(*receive, message, packet->bytes);
      } else {
        auto saved = std::make_unique<Saved>();
        saved->message = message;
        saved->bytes = std::move(packet->bytes);
        receiver().save(*saved.release());
      }
      port_->pop();
    }
  }
  int wait_fds(std::vector<int> &fds) override {
    fds.push_back(port_->fd());
    return 0;
  }
  // Stalled: a receive or a read of the queue has to come first, and then on_poll() is called.
  bool may_wait() override { return stalled_ || port_->arm(); }

  Message message_of(const loop::Packet &packet) {
    return {.tagged = packet.tagged,
            .has_data = packet.has_data,
            .source = (caps() & FI_SOURCE) != 0 ? av()->find(parsed_address_of(packet.from))
                                                : Matcher::kUnknownSource,
            .tag = packet.tag,
            .data = packet.data,
            .length = packet.bytes.size()};
  }
  void finish(Receive &receive, const Message &message, const std::string &bytes) {
    const size_t length = std::min(bytes.size(), receive.length);
    scatter(receive.iov, receive.count, 0, bytes.data(), length);
    receiver().complete(receive, message, length, 0);
  }

  // ---- ReceiverSink ----
  void deliver(Unexpected &message, Receive &receive) override {
    const std::unique_ptr<Saved> saved(static_cast<Saved *>(&message));
    finish(receive, saved->message, saved->bytes);
  }
  void discard(Unexpected &message) override { delete static_cast<Saved *>(&message); }

  // ---- AvUser ----
  void on_av_removed(uint32_t index) override {
    receiver().rename_source(index, Matcher::kUnknownSource);
  }

  Domain &domain_;
  const uint32_t addr_format_;
  uint16_t wanted_port_;              // 0: any
  std::shared_ptr<loop::Port> port_;  // once enabled
  bool stalled_ = false;              // there is a packet that on_poll() could not take
};

class Loop {
 public:
  static constexpr UnitInfo info{.name = "loop",
                                 .summary = "messages between the endpoints of one process",
                                 .version = FI_VERSION(1, 0),
                                 .offers_ep = WEFT_EP_BIT(FI_EP_RDM),
                                 .rank = 1,
                                 .security = WEFT_SECURITY_NO_NETWORK};
  explicit Loop(const weft_instance *instance) : instance_(instance) {}

  Result<InfoList> getinfo(const GetinfoQuery &query) {
    InfoList list(instance_->core);
    WEFT_TRY(fi_info *const entry, list.add());
    entry->caps = kTransmit | kReceive | FI_LOCAL_COMM;
    *entry->ep_attr = {.type = FI_EP_RDM,
                       .max_msg_size = kMaxSize,
                       .mem_tag_format = UINT64_MAX,
                       .tx_ctx_cnt = 1,
                       .rx_ctx_cnt = 1};
    *entry->tx_attr = {
        .caps = kTransmit,
        .op_flags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE,
        .msg_order = FI_ORDER_SAS,
        .inject_size = kInjectSize,
        .size = kQueueSize,
        .iov_limit = kIovLimit};
    *entry->rx_attr = {.caps = kReceive,
                       .op_flags = FI_COMPLETION | FI_MULTI_RECV,
                       .msg_order = FI_ORDER_SAS,
                       .size = kQueueSize,
                       .iov_limit = kIovLimit};
    fill_software_domain(*entry->domain_attr, query, 0);
    entry->domain_attr->caps = FI_LOCAL_COMM;
    entry->domain_attr->cq_data_size = sizeof(uint64_t);
    WEFT_CHECK(set_string(entry->domain_attr->name, "loop"));
    WEFT_CHECK(set_string(entry->fabric_attr->name, "loop"));
    WEFT_CHECK(set_addresses(*entry, query));
    return list;
  }

  Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context) {
    return Fabric::open(instance_, {}, attr, context);
  }

 private:
  // The service is a port: our own with FI_SOURCE, else the peer's. The only node is 127.0.0.1.
  static Result<void> set_addresses(fi_info &entry, const GetinfoQuery &query) {
    if (query.node != nullptr && std::strcmp(query.node, "127.0.0.1") != 0)
      return fail(FI_ENODATA,
                  "loop: no way to node %s: its endpoints are in this process alone; leave node "
                  "out, or choose another provider",
                  query.node);
    char *end = nullptr;
    const unsigned long port = query.service != nullptr ? std::strtoul(query.service, &end, 10) : 0;
    if (port > UINT16_MAX || (end != nullptr && *end != '\0'))
      return fail(FI_ENODATA, "loop: service \"%s\": a port from 0 to 65535", query.service);
    entry.addr_format = FI_SOCKADDR_IN;
    const bool asked = query.node != nullptr || query.service != nullptr;
    const bool own = (query.flags & FI_SOURCE) != 0;
    const sockaddr_in source = address_of(own ? uint16_t(port) : 0);
    WEFT_CHECK(set_address(entry.src_addr, entry.src_addrlen, &source, sizeof source));
    const fi_info *hints = query.hints;
    if (asked && !own) {
      const sockaddr_in peer = address_of(uint16_t(port));
      WEFT_CHECK(set_address(entry.dest_addr, entry.dest_addrlen, &peer, sizeof peer));
    } else if (hints != nullptr && hints->dest_addr != nullptr) {
      WEFT_CHECK(
          set_address(entry.dest_addr, entry.dest_addrlen, hints->dest_addr, hints->dest_addrlen));
    }
    if (!(asked && own) && hints != nullptr && hints->src_addr != nullptr)
      WEFT_CHECK(
          set_address(entry.src_addr, entry.src_addrlen, hints->src_addr, hints->src_addrlen));
    return {};
  }

  const weft_instance *instance_;
};

constexpr PluginInfo kPlugin{
    .name = "loop-provider",
    .vendor = "weft",
    .version = "1.0.0",
    .license = "BSD-2-Clause",
    .init = [](const weft_offer &) -> Result<void *> { return new loop::Wire; },
    .fini = [](void *wire) { delete static_cast<loop::Wire *>(wire); }};

}  // namespace

WEFT_PLUGIN(kPlugin, Loop)
