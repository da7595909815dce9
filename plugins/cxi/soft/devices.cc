// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/devices.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>
#include <weft/runtime_dir.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "plugins/cxi/soft/neighbours.h"
#include "plugins/cxi/soft/network.h"
#include "plugins/cxi/soft/progress.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kSpeed = 200'000'000'000;  // of a Cassini
constexpr size_t kMtu = 9216;

Result<DeviceFacts> facts_of(const std::string &text, const SoftOptions &options) {
  const size_t equals = text.find('=');
  in_addr address{};
  if (equals == 0 || equals == std::string::npos ||
      ::inet_pton(AF_INET, text.c_str() + equals + 1, &address) != 1)
    return fail(FI_EINVAL,
                "cxi: soft_devices: \"%s\" should look like cxi0=127.0.0.1: a name and an IPv4 "
                "address of this host",
                text.c_str());
  const uint32_t ip = ntohl(address.s_addr);
  return DeviceFacts{.name = text.substr(0, equals),
                     .nid = ip & kMaxNid,
                     .is_software = true,
                     .link_up = true,
                     .counts_successes_alone = true,
                     .network_address = reaches_other_hosts(ip) ? ip : 0,
                     .speed = kSpeed,
                     .mtu = kMtu,
                     .max_list_entries = options.limits.list_entries,
                     .max_triggered = options.limits.triggered,
                     .amo_remap_to_pcie_fadd = options.pcie_fadd};
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
// received. While it forks, the threads of the NICs hold still, so that the child finds no lock that
// nobody gives back.
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
  explicit Shared(const SoftOptions &options) : options_(options) {}
  // Made, if there is none.
  Result<std::shared_ptr<Process>> process();
  const RegistryLimits &limits() const { return options_.limits; }
  // Whoever only looks leaves no file behind.
  bool has_registry(Nid nid) const {
    const auto folder = runtime_directory();
    return !folder || Registry::exists(*folder, nid);
  }
  // For a moment.
  Result<std::unique_ptr<Registry>> registry(Nid nid) const {
    WEFT_TRY(const std::string folder, runtime_directory());
    return Registry::open(folder, nid, options_.limits);
  }

 private:
  const SoftOptions options_;
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

SoftDevices::SoftDevices(std::vector<DeviceFacts> facts, const SoftOptions &options)
    : facts_(std::move(facts)), shared_(std::make_shared<Shared>(options)) {}

Result<std::unique_ptr<SoftDevices>> SoftDevices::make(const std::vector<std::string> &devices,
                                                       const SoftOptions &options) {
  static const std::vector<std::string> kUsual = {"cxi0=127.0.0.1", "cxi1=127.0.0.2"};
  std::vector<DeviceFacts> all;
  for (const std::string &text : devices.empty() ? kUsual : devices) {
    WEFT_TRY(DeviceFacts one, facts_of(text, options));
    const auto same = std::ranges::find_if(
        all, [&](const DeviceFacts &f) { return f.name == one.name || f.nid == one.nid; });
    if (same != all.end())
      return fail(FI_EINVAL,
                  "cxi: soft_devices: %s has the name of another NIC, or its address (the low 20 "
                  "bits of the IPv4 address)",
                  text.c_str());
    all.push_back(std::move(one));
  }
  return std::unique_ptr<SoftDevices>(new SoftDevices(std::move(all), options));
}

Result<std::shared_ptr<SoftDevices::Process>> SoftDevices::Shared::process() {
  const std::lock_guard guard(mutex_);
  std::shared_ptr<Process> known = process_.lock();
  if (known != nullptr && process_id_ == ::getpid()) return known;
  // Those of the parent are held by its objects, which a child may not use and does not end.
  WEFT_TRY(const std::string folder, runtime_directory());
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != ssize_t(sizeof seed))
    seed = uint64_t(::getpid()) * 0x9e3779b97f4a7c15u;
  WEFT_TRY(std::unique_ptr<Neighbours> made,
           Neighbours::open(folder, seed, options_.limits, options_.hosts));
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
  const auto found = std::ranges::find(facts_, name, &DeviceFacts::name);
  if (found == facts_.end())
    return fail(FI_ENODEV, "cxi: there is no NIC %.*s: `fi_info -p cxi` lists them",
                int(name.size()), name.data());
  return std::make_shared<SoftDevice>(*found, shared_);
}

}  // namespace weft::cxi
