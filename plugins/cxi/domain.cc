// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/domain.h"

#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cinttypes>
#include <new>
#include <utility>

#include "plugins/cxi/amo.h"
#include "plugins/cxi/endpoint.h"
#include "plugins/cxi/error_text.h"
#include "plugins/cxi/fabric.h"
#include "plugins/cxi/nic_counter.h"
#include "plugins/cxi/sources.h"

namespace weft::cxi {
namespace {

constexpr uint32_t kBurst = 64;      // operations that wait for progress, at most
constexpr size_t kOwnTriggered = 8;  // of a service, which stay free (fi_cxi.7)
constexpr size_t kFewEntries = 32;   // two endpoints have hardly any left for messages

// What the domain's attribute says, or what is found for this user.
Result<AuthKey> key_for(Fabric &fabric, const fi_info &info, const Device &device,
                        const std::vector<Service> &services) {
  std::optional<AuthKey> given;
  if (sdk::has_auth_keys(fabric.api_version())) {
    WEFT_TRY(given, has_vector_keys(info, fabric.api_version())
                        ? auth_key_of(info, fabric.api_version())
                        : auth_key_of("domain_attr", info.domain_attr->auth_key,
                                      info.domain_attr->auth_key_size));
  }
  if (given) return *given;
  if (services.empty())  // open_lni() says why
    return AuthKey{.service = Service::kDefault, .vni = fabric.settings().default_vni};
  return find_auth_key(device.facts().name, services, User::own(), Launcher::of_environment(),
                       fabric.settings().default_vni);
}

bool can_be_pcie(sdk::AtomicKind kind, int op, int datatype) {
  return kind == sdk::AtomicKind::kFetch && op == FI_SUM && datatype >= FI_INT32 &&
         datatype <= FI_UINT64;
}

// What no vector of cxi can be (fi_cxi.7, "Address vectors").
Result<void> check_vector(const fi_av_attr &attr) {
  if (attr.flags & (FI_EVENT | FI_READ))
    return fail(
        FI_EBADFLAGS,
        "fi_av_open: fi_av_attr.flags %#llx: cxi has neither FI_EVENT nor FI_READ: it inserts "
        "at once, into vectors of this process",
        (unsigned long long)attr.flags);
  if (attr.rx_ctx_bits != 0)
    return fail(FI_EINVAL,
                "fi_av_open: fi_av_attr.rx_ctx_bits is %d: cxi has no scalable endpoints: use 0",
                attr.rx_ctx_bits);
  if (attr.name != nullptr)
    return fail(FI_ENOSYS,
                "fi_av_open: fi_av_attr.name is \"%s\": cxi shares no vectors between processes "
                "(FI_SHARED_AV): use NULL, and insert the peers in each process",
                attr.name);
  return {};
}

}  // namespace

Domain::Domain(Fabric &fabric, const sdk::DomainSettings &settings, const fi_info &info,
               std::shared_ptr<Device> device, std::unique_ptr<Lni> lni, const AuthKey &key,
               void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      DomainCore(fabric.instance(), base(), settings, regions_),
      regions_(*this, (info.domain_attr->mr_mode & FI_MR_PROV_KEY) != 0),
      fabric_(fabric),
      settings_(fabric.settings()),
      device_(std::move(device)),
      lni_(std::move(lni)),
      key_(key),
      has_vector_keys_(cxi::has_vector_keys(info, fabric.api_version())) {
  shared().keeps_receives = true;
  shared().deferred = nullptr;  // the NIC does it (deferred_)
  shared().text_of = text_of_error;
  shared().check_peer = [](sdk::DomainContext &domain, const sdk::Address &peer) {
    return from(domain.fid)->check_peer(peer);
  };
  if (has_vector_keys_) shared().av_keys = &vector_keys_;
  regions_.optimized = fabric.settings().optimized_mrs;
  regions_.match_events = fabric.settings().mr_match_events;
  regions_.key_cache = fabric.settings().prov_key_cache;
  sdk::fill_tables(*this);
}

// FI_HMEM.
void Domain::use_devices(std::shared_ptr<const sdk::Hmem> hmem) {
  devices_ = std::make_unique<const DeviceMemory>(std::move(hmem), regions_,
                                                  !settings().disable_host_register);
  shared().keeps_descriptors = true;  // they say whose memory a receive is
}

Counters &Domain::counters() {
  return fabric_.counters();
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  const char *const name = info.domain_attr->name;
  if (name == nullptr)
    return fail(FI_EINVAL, "fi_domain: domain_attr.name is empty: pass an info of fi_getinfo");
  WEFT_TRY(std::shared_ptr<Device> device, fabric.devices().open(name));
  const std::vector<Service> services = device->services();
  WEFT_TRY(const AuthKey key, key_for(fabric, info, *device, services));
  WEFT_TRY(std::unique_ptr<Lni> lni, device->open_lni(key.service));
  const auto settings =
      sdk::DomainSettings::of(info, fabric.api_version(), fabric.settings().cq_size, {});
  std::shared_ptr<const sdk::Hmem> hmem;
  if (settings.hmem) {
    WEFT_TRY(hmem, fabric.hmem());
  }
  auto *const domain = new (std::nothrow)
      Domain(fabric, settings, info, std::move(device), std::move(lni), key, context);
  if (domain == nullptr) return fail(FI_ENOMEM, "no memory for a domain");
  if (hmem != nullptr) domain->use_devices(std::move(hmem));
  WEFT_INFO(fabric.instance(), FI_LOG_DOMAIN, "%s: service %u, VNI %u",
            domain->device_->facts().name.c_str(), key.service, key.vni);
  domain->look_at_service(services);
  Result<void> started = domain->deferred_.open(*domain->lni_, key.vni);
  // Nothing of the process is hidden from its own NIC.
  if (!started) {
  } else if (auto all = domain->lni_->map(0, UINT64_MAX, Lni::kRead | Lni::kWrite)) {
    domain->all_ = *all;
    {
      const sdk::Guard guard(domain->engine().lock());
      domain->engine().add_poller(*domain);
    }
    started = start(*domain, info, fabric.base());
  } else {
    started = tl::unexpected(all.error());
  }
  if (!started) {
    delete domain;
    return tl::unexpected(started.error());
  }
  for (const Telemetry which : fabric.settings().telemetry)
    domain->telemetry_.push_back(domain->device_->telemetry(which));
  fabric.children.fetch_add(1);
  return domain;
}

void Domain::look_at_service(const std::vector<Service> &services) {
  deferred_depth_ = 0;
  const auto own = std::ranges::find(services, key_.service, &Service::id);
  if (own == services.end()) return;
  if (own->max_triggered > kOwnTriggered) deferred_depth_ = own->max_triggered - kOwnTriggered;
  if (own->max_list_entries != 0 && own->max_list_entries < kFewEntries)
    WEFT_WARN(instance(), FI_LOG_DOMAIN,
              "%s: service %u has %zu list entries for all its processes: messages will wait for "
              "each other, or for ever; use one with %zu or more",
              device_->facts().name.c_str(), key_.service, own->max_list_entries, kFewEntries);
}

Result<void> Domain::take_service(const AuthKey &key) {
  if (key.service == key_.service) {
    has_keys_ = true;
    return {};
  }
  if (has_keys_)
    return fail(FI_EINVAL,
                "fi_av_insert_auth_key: the key is of service %u, and others of the domain are of "
                "service %u: a domain has one service; open another domain",
                key.service, key_.service);
  if (nic_counters != 0)
    return fail(
        FI_EBUSY,
        "fi_av_insert_auth_key: the key is of service %u, and counters of the domain are of "
        "service %u: insert the first key before counters are opened",
        key.service, key_.service);
  WEFT_TRY(std::unique_ptr<Lni> lni, device_->open_lni(key.service));
  WEFT_TRY(const weft::cxi::Memory all, lni->map(0, UINT64_MAX, Lni::kRead | Lni::kWrite));
  engine().remove_poller(*this);  // its descriptors change
  const auto done = deferred_.open(*lni, key.vni);
  if (done) {
    lni_.swap(lni);
    all_ = all;
    key_ = key;
    has_keys_ = true;
    look_at_service(device_->services());
  }
  engine().add_poller(*this);
  return done;
}

// FI_CXI_TELEMETRY.
void Domain::log_telemetry() {
  for (size_t i = 0; i < telemetry_.size(); ++i) {
    const Telemetry which = settings().telemetry[i];
    WEFT_WARN(instance(), FI_LOG_DOMAIN, "telemetry of %s: %s +%" PRIu64,
              device_->facts().name.c_str(), kTelemetry[size_t(which)].name.data(),
              device_->telemetry(which) - telemetry_[i]);
  }
}

int Domain::close() {
  if (shared().children.load() != 0) return -FI_EBUSY;
  log_telemetry();
  retire();
  engine().stop_thread();
  unbind();
  {
    const sdk::Guard guard(engine().lock());
    engine().remove(*this);
    engine().remove_poller(*this);
  }
  device_->push();
  device_->settle();
  fabric_.children.fetch_sub(1);
  delete this;
  return 0;
}

int Domain::av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
  if (attr != nullptr) {
    if (const auto checked = check_vector(*attr); !checked) {
      WEFT_WARN(instance(), FI_LOG_AV, "%s", checked.error().text.c_str());
      return -checked.error().code;
    }
  }
  return sdk::open_av(shared(), FI_ADDR_CXI, attr, av, context, device_->facts().name, FI_ADDR_CXI);
}

// The first time it is told even where the log is off: it is a mistake of the configuration, and
// all that an MPI says of it is that it aborts.
int Domain::check_peer(const sdk::Address &peer) {
  const auto checked = device_->check_peer(peer_of(peer).nid, host_of(peer));
  if (checked) return 0;
  const char *const why = checked.error().text.c_str();
  if (!std::exchange(has_refused_, true))
    sdk::log_line(instance(), FI_LOG_WARN, FI_LOG_AV, "fi_av_insert", __LINE__, "%s", why);
  else
    WEFT_WARN(instance(), FI_LOG_AV, "%s", why);
  return -checked.error().code;
}

// The NIC's own, but for the counter of another provider, which is not the NIC's to raise. Hardware
// has not many; the others count in software, and no deferred work waits for them.
int Domain::cntr_open(struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context) {
  if (cntr == nullptr) return -FI_EINVAL;
  if (attr != nullptr && attr->flags & FI_PEER) return DomainCore::cntr_open(attr, cntr, context);
  auto source = NicCounter::open(*this);
  if (!source && source.error().code == FI_ENOSPC) {
    WEFT_INFO(instance(), FI_LOG_CNTR, "%s; it counts in software", source.error().text.c_str());
    return DomainCore::cntr_open(attr, cntr, context);
  }
  if (!source) {
    WEFT_WARN(instance(), FI_LOG_CNTR, "%s", source.error().text.c_str());
    return -source.error().code;
  }
  return sdk::finish(
      instance(), FI_LOG_CNTR,
      sdk::Cntr::open(shared(), attr, context, std::unique_ptr<sdk::CntrStore>(std::move(*source))),
      cntr);
}

int Domain::control(int command, void *arg) {
  switch (command) {
    case FI_QUEUE_WORK:
      return arg != nullptr ? deferred_.queue(*static_cast<const fi_deferred_work *>(arg))
                            : -FI_EINVAL;
    case FI_CANCEL_WORK:
      return arg != nullptr ? deferred_.cancel(*static_cast<const fi_deferred_work *>(arg))
                            : -FI_EINVAL;
    case FI_FLUSH_WORK:
      return deferred_.flush(
          arg != nullptr ? static_cast<const fi_deferred_work *>(arg)->triggering_cntr : nullptr);
    default: {
      const int rc = control_domain(*this, command, arg);
      return rc != -FI_ENOSYS ? rc : DomainCore::control(command, arg);
    }
  }
}

// ---- endpoints ----

void Domain::add(CxiEndpoint &endpoint) {
  endpoints_.push_back(&endpoint);
}

void Domain::remove(CxiEndpoint &endpoint) {
  std::erase(endpoints_, &endpoint);
}

CxiEndpoint *Domain::find(uint64_t number) const {
  const auto found =
      std::ranges::find_if(endpoints_, [&](const auto *one) { return one->number() == number; });
  return found != endpoints_.end() ? *found : nullptr;
}

// ---- progress ----

void Domain::on_poll() {
  device_->poll();
  deferred_.read_events();
}

int Domain::wait_fds(std::vector<int> &fds) {
  fds.push_back(deferred_.events().wait_fd());
  if (const int fd = device_->wait_fd(); fd >= 0) fds.push_back(fd);
  return 0;
}

bool Domain::may_wait() {
  device_->push();
  device_->settle();
  return deferred_.events().arm();
}

void Domain::on_sent(bool report) {
  sdk::Engine &own = engine();
  if (!report || !own.spinning() || burst_round_ != own.rounds() || ++burst_items_ >= kBurst) {
    burst_round_ = own.rounds();
    burst_items_ = 0;
    own.sent();
    device_->push();
  } else if (own.may_wait()) {
    own.posted();
    own.mark_dirty(*this);
  } else {
    device_->push();
    own.posted();
  }
}

// ---- atomics ----

int Domain::atomic_count(sdk::AtomicKind kind, int op, int datatype, size_t *count) const {
  if (count == nullptr) return -FI_EINVAL;
  if (!atomic_of(kind, op, datatype, false)) return -FI_EOPNOTSUPP;
  *count = 1;
  return 0;
}

// A PCIe fetch-and-add takes the place of one operation of the NIC, which may be its own sum.
std::optional<Amo> Domain::atomic_of(sdk::AtomicKind kind, int op, int datatype, bool pcie) const {
  const int remapped = device_->facts().amo_remap_to_pcie_fadd;
  const auto amo = amo_of(kind, op, datatype);
  if (!amo) return std::nullopt;
  if (pcie) return remapped >= 0 && can_be_pcie(kind, op, datatype) ? amo : std::nullopt;
  const bool moves = op == FI_ATOMIC_READ || op == FI_ATOMIC_WRITE;
  return moves || int(amo->op) != remapped ? amo : std::nullopt;
}

int Domain::query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                         uint64_t flags) {
  if (attr == nullptr) return -FI_EINVAL;
  if (flags & ~uint64_t(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED | FI_CXI_PCIE_AMO))
    return -FI_EBADFLAGS;
  if (flags & FI_FETCH_ATOMIC && flags & FI_COMPARE_ATOMIC) return -FI_EINVAL;
  const auto kind = flags & FI_FETCH_ATOMIC     ? sdk::AtomicKind::kFetch
                    : flags & FI_COMPARE_ATOMIC ? sdk::AtomicKind::kCompare
                                                : sdk::AtomicKind::kWrite;
  if (flags & FI_TAGGED) return -FI_EOPNOTSUPP;
  if (!atomic_of(kind, sdk::raw(op), sdk::raw(datatype), (flags & FI_CXI_PCIE_AMO) != 0))
    return -FI_EOPNOTSUPP;
  *attr = {.count = 1, .size = sdk::datatype_size(sdk::raw(datatype))};
  return 0;
}

}  // namespace weft::cxi
