// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/devices.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>
#include <weft/sdk/ip/interfaces.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "plugins/cxi/soft/host.h"
#include "plugins/cxi/soft/neighbours.h"
#include "plugins/cxi/soft/network.h"
#include "plugins/cxi/soft/progress.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kSpeed = 200'000'000'000;  // of a Cassini
constexpr size_t kMtu = 9216;

std::optional<uint32_t> ip_of(const std::string &text) {
  in_addr address{};
  if (::inet_pton(AF_INET, text.c_str(), &address) != 1) return std::nullopt;
  return ntohl(address.s_addr);
}

// The IPv4 address of the best interface that fits.
Result<uint32_t> ip_at(const std::string &name, const std::string &place) {
  if (const auto ip = ip_of(place)) return *ip;
  WEFT_TRY(const sdk::InterfaceFilter filter,
           sdk::InterfaceFilter::parse(std::vector<std::string>{place}));
  WEFT_TRY(const std::vector<sdk::Interface> all, sdk::list_interfaces());
  const sdk::InterfaceRanking ranking = sdk::rank_interfaces(all, filter);
  for (const sdk::RankedInterface &one : ranking.used)
    if (const auto ip = ip_of(one.interface.address.ip())) return *ip;
  return fail(FI_ENODEV, "cxi: soft_devices: %s=%s: %s", name.c_str(), place.c_str(),
              ranking.used.empty() ? ranking.nothing.c_str() : "it has no IPv4 address");
}

}  // namespace

// What all NICs of a process share. The thread goes first.
struct SoftDevices::Process {
  explicit Process(std::unique_ptr<Neighbours> made)
      : neighbours(std::move(made)), progress(*neighbours) {}
  const std::unique_ptr<Neighbours> neighbours;
  Progress progress;
  bool has_thread = false;
};

// What happens to the process: one that ends without closing anything has acknowledged what it has
// received. While it forks, the threads of the NICs hold still, so that the child finds no lock
// that nobody gives back.
class SoftDevices::Lifetime {
 public:
  static Lifetime &own() {
    static Lifetime lifetime;
    return lifetime;
  }
  ~Lifetime() {
    known = nullptr;
    for (const auto &[process, id] : all_)
      if (const auto living = process.lock(); living != nullptr && id == ::getpid())
        living->neighbours->settle();
  }
  void add(const std::shared_ptr<Process> &process) {
    const std::lock_guard guard(mutex_);
    std::erase_if(all_, [](const auto &one) { return one.first.expired(); });
    all_.emplace_back(process, ::getpid());
  }

 private:
  Lifetime() {
    known = this;
    ::pthread_atfork(
        [] {
          if (known != nullptr) known.load()->hold();
        },
        [] {
          if (known != nullptr) known.load()->go_on();
        },
        [] {
          if (known != nullptr) known.load()->go_on();
        });
  }
  void hold() {
    mutex_.lock();
    for (const auto &[process, id] : all_)
      if (auto living = process.lock(); living != nullptr && id == ::getpid()) {
        living->neighbours->hold();
        held_.push_back(std::move(living));
      }
  }
  void go_on() {
    const auto held = std::exchange(held_, {});
    for (const auto &process : held) process->neighbours->go_on();
    mutex_.unlock();
  }

  static std::atomic<Lifetime *> known;
  std::mutex mutex_;
  std::vector<std::pair<std::weak_ptr<Process>, pid_t>> all_;
  std::vector<std::shared_ptr<Process>> held_;  // during a fork
};
std::atomic<SoftDevices::Lifetime *> SoftDevices::Lifetime::known{nullptr};

class SoftDevices::Shared {
 public:
  Shared(std::vector<Named> named, const SoftOptions &options)
      : options_(options), named_(std::move(named)) {}
  // Found out once.
  const Result<std::vector<DeviceFacts>> &devices() {
    std::call_once(looked_, [this] { devices_ = look(); });
    return devices_;
  }
  // Made, if there is none.
  Result<std::shared_ptr<Process>> process();
  const RegistryLimits &limits() const { return options_.limits; }
  // Whoever only looks leaves no file behind.
  bool has_registry(Nid nid) const { return Registry::exists(host_->folder(), nid); }
  // For a moment.
  Result<std::unique_ptr<Registry>> registry(Nid nid) const {
    WEFT_CHECK(host_->make_folder());
    return Registry::open(host_->folder(), nid, options_.limits);
  }
  // Whether messages for this NIC, from one in that network, stay within the host.
  bool is_here(Nid nid, uint32_t network) const {
    return std::ranges::find(*devices_, nid, &DeviceFacts::nid) != devices_->end() ||
           (has_registry(nid) && is_own_address(address_of(network, nid)));
  }

 private:
  Result<std::vector<DeviceFacts>> look();
  DeviceFacts facts_of(const std::string &name, uint32_t ip) const;

  const SoftOptions options_;
  const std::vector<Named> named_;
  std::once_flag looked_;
  std::optional<SoftHost> host_;  // there where there are devices
  Result<std::vector<DeviceFacts>> devices_;
  std::mutex mutex_;
  std::weak_ptr<Process> process_;
  pid_t process_id_ = -1;  // whose it is
};

class SoftDevices::SoftDevice final : public Device {
 public:
  SoftDevice(DeviceFacts facts, std::shared_ptr<Shared> shared)
      : facts_(std::move(facts)), shared_(std::move(shared)) {}

  const DeviceFacts &facts() const override { return facts_; }
  std::vector<Service> services() const override {
    if (!shared_->has_registry(facts_.nid)) return {Registry::usual(shared_->limits())};
    const auto registry = shared_->registry(facts_.nid);
    return registry ? (*registry)->services() : std::vector<Service>();
  }
  Result<std::unique_ptr<Lni>> open_lni(uint32_t service) override {
    if (process_ == nullptr) {
      WEFT_TRY(process_, shared_->process());
    }
    return process_->neighbours->open_nic(facts_.nid, facts_.network_address, service, facts_.name);
  }
  // Before the first Lni there is nothing to do.
  void poll() override {
    if (process_ == nullptr) return;
    process_->progress.on_poll();
    process_->neighbours->poll(process_->has_thread ? Neighbours::Answers::kMayWait
                                                    : Neighbours::Answers::kAtOnce);
  }
  uint64_t telemetry(Telemetry which) const override {
    return process_ != nullptr ? process_->neighbours->telemetry(facts_.nid, which) : 0;
  }
  void push() override {
    if (process_ != nullptr) process_->neighbours->push();
  }
  void settle() override {
    if (process_ != nullptr) process_->neighbours->settle();
  }
  Result<void> check_peer(Nid nid, uint16_t host) const override {
    if (host == 0 || host == facts_.host) return {};
    if (facts_.network_address == 0)
      return fail(FI_EHOSTUNREACH,
                  "cxi: the peer is on another host, and %s reaches this one alone: give it an "
                  "address of the network on each host, FI_CXI_SOFT_DEVICES=%s=INTERFACE",
                  facts_.name.c_str(), facts_.name.c_str());
    if (!shared_->is_here(nid, facts_.network_address)) return {};
    return fail(
        FI_EADDRINUSE,
        "cxi: the peer is on another host, and its NIC has the address 0x%x, which a NIC of "
        "this host has, too: give one of them another IPv4 address, with other low 20 bits "
        "(FI_CXI_SOFT_DEVICES)",
        nid);
  }
  int wait_fd() const override {
    return process_ != nullptr ? process_->neighbours->wait_fd() : -1;
  }

  Result<ServiceUse> usage(uint32_t service) const override {
    if (!shared_->has_registry(facts_.nid)) return ServiceUse();
    WEFT_TRY(const auto registry, shared_->registry(facts_.nid));
    return registry->usage(service);
  }
  Result<uint32_t> create_service(const Service &service) override {
    WEFT_TRY(const auto registry, shared_->registry(facts_.nid));
    return registry->create(service);
  }
  Result<void> enable_service(uint32_t service, bool enabled) override {
    WEFT_TRY(const auto registry, shared_->registry(facts_.nid));
    return registry->enable(service, enabled);
  }
  Result<void> destroy_service(uint32_t service) override {
    WEFT_TRY(const auto registry, shared_->registry(facts_.nid));
    return registry->destroy(service);
  }

 private:
  const DeviceFacts facts_;
  const std::shared_ptr<Shared> shared_;
  std::shared_ptr<Process> process_;
};

SoftDevices::SoftDevices(std::vector<Named> named, const SoftOptions &options)
    : shared_(std::make_shared<Shared>(std::move(named), options)) {}

Result<std::unique_ptr<SoftDevices>> SoftDevices::make(const std::vector<std::string> &devices,
                                                       const SoftOptions &options) {
  static const std::vector<std::string> kUsual = {"cxi0=127.0.0.1", "cxi1=127.0.0.2"};
  std::vector<Named> named;
  for (const std::string &text : devices.empty() ? kUsual : devices) {
    const size_t equals = text.find('=');
    const std::string place = equals < text.size() ? text.substr(equals + 1) : "";
    if (equals == 0 || place.empty() || place.front() == '!' ||
        !sdk::InterfaceFilter::parse(std::vector<std::string>{place}))
      return fail(FI_EINVAL,
                  "cxi: soft_devices: \"%s\" should look like cxi0=127.0.0.1 or cxi0=eth0: a name, "
                  "and an IPv4 address, an interface or a network of this host",
                  text.c_str());
    named.push_back({text.substr(0, equals), place});
  }
  return std::unique_ptr<SoftDevices>(new SoftDevices(std::move(named), options));
}

std::vector<DeviceFacts> SoftDevices::list() const {
  const auto &devices = shared_->devices();
  return devices ? *devices : std::vector<DeviceFacts>();
}

Result<void> SoftDevices::problem() const {
  const auto &devices = shared_->devices();
  if (!devices) return tl::unexpected(devices.error());
  return {};
}

DeviceFacts SoftDevices::Shared::facts_of(const std::string &name, uint32_t ip) const {
  const bool is_local = !reaches_other_hosts(ip);
  return {.name = name,
          .nid = is_local ? host_->nid_of(ip) : ip & kMaxNid,
          .is_software = true,
          .link_up = true,
          .counts_successes_alone = true,
          .ip = ip,
          .network_address = is_local ? 0 : ip,
          .host = host_->mark(),
          .speed = kSpeed,
          .mtu = kMtu,
          .max_list_entries = options_.limits.list_entries,
          .max_triggered = options_.limits.triggered,
          .amo_remap_to_pcie_fadd = options_.pcie_fadd};
}

Result<std::vector<DeviceFacts>> SoftDevices::Shared::look() {
  WEFT_TRY(host_, SoftHost::own());
  std::vector<DeviceFacts> all;
  for (const auto &[name, place] : named_) {
    WEFT_TRY(const uint32_t ip, ip_at(name, place));
    DeviceFacts one = facts_of(name, ip);
    const auto same = std::ranges::find_if(
        all, [&](const DeviceFacts &f) { return f.name == one.name || f.nid == one.nid; });
    if (same != all.end())
      return fail(FI_EINVAL,
                  "cxi: soft_devices: %s=%s has the name of another NIC, or its address (the low "
                  "20 bits of the IPv4 address)",
                  name.c_str(), place.c_str());
    all.push_back(std::move(one));
  }
  return all;
}

Result<std::shared_ptr<SoftDevices::Process>> SoftDevices::Shared::process() {
  const std::lock_guard guard(mutex_);
  std::shared_ptr<Process> known = process_.lock();
  if (known != nullptr && process_id_ == ::getpid()) return known;
  // Those of the parent are held by its objects, which a child may not use and does not end.
  WEFT_CHECK(host_->make_folder());
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != ssize_t(sizeof seed))
    seed = uint64_t(::getpid()) * 0x9e3779b97f4a7c15u;
  WEFT_TRY(std::unique_ptr<Neighbours> made,
           Neighbours::open(host_->folder(), seed, options_.limits, options_.hosts));
  if (options_.request_form != nullptr) made->engine().set_request_form(*options_.request_form);
  known = std::make_shared<Process>(std::move(made));
  if (options_.has_thread) WEFT_CHECK(known->progress.start());
  known->has_thread = options_.has_thread;
  if (options_.has_thread) Lifetime::own().add(known);
  process_ = known;
  process_id_ = ::getpid();
  return known;
}

Result<std::shared_ptr<Device>> SoftDevices::open(std::string_view name) {
  const auto &devices = shared_->devices();
  if (!devices) return tl::unexpected(devices.error());
  const auto found = std::ranges::find(*devices, name, &DeviceFacts::name);
  if (found == devices->end())
    return fail(FI_ENODEV, "cxi: there is no NIC %.*s: `fi_info -p cxi` lists them",
                int(name.size()), name.data());
  return std::make_shared<SoftDevice>(*found, shared_);
}

}  // namespace weft::cxi
