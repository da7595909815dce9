// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/devices.h"

#include <arpa/inet.h>
#include <sys/random.h>
#include <unistd.h>
#include <weft/runtime_dir.h>

#include <algorithm>
#include <utility>

#include "plugins/cxi/soft/neighbours.h"
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
  return DeviceFacts{.name = text.substr(0, equals),
                     .nid = ntohl(address.s_addr) & kMaxNid,
                     .is_software = true,
                     .link_up = true,
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
};

class SoftDevices::SoftDevice final : public Device {
 public:
  SoftDevice(DeviceFacts facts, std::shared_ptr<Process> process)
      : facts_(std::move(facts)), process_(std::move(process)) {}

  const DeviceFacts &facts() const override { return facts_; }
  std::vector<Service> services() const override {
    return {{.max_list_entries = facts_.max_list_entries, .max_triggered = facts_.max_triggered}};
  }
  Result<std::unique_ptr<Lni>> open_lni(uint32_t service) override {
    if (service != Service::kDefault)
      return fail(FI_EINVAL, "cxi: %s has no service %u", facts_.name.c_str(), service);
    return process_->neighbours->open_nic(facts_.nid);
  }
  void poll() override {
    process_->progress.on_poll();
    process_->neighbours->poll();
  }
  void push() override { process_->neighbours->push(); }
  int wait_fd() const override { return process_->neighbours->wait_fd(); }

 private:
  const DeviceFacts facts_;
  const std::shared_ptr<Process> process_;
};

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

Result<std::shared_ptr<SoftDevices::Process>> SoftDevices::process() {
  const std::lock_guard guard(mutex_);
  std::shared_ptr<Process> known = process_.lock();
  if (known != nullptr && process_id_ == ::getpid()) return known;
  // Those of the parent are held by its objects, which a child may not use and does not end.
  WEFT_TRY(const std::string folder, runtime_directory());
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != ssize_t(sizeof seed))
    seed = uint64_t(::getpid()) * 0x9e3779b97f4a7c15u;
  WEFT_TRY(std::unique_ptr<Neighbours> made, Neighbours::open(folder, seed, options_.limits));
  if (options_.request_form != nullptr) made->engine().set_request_form(*options_.request_form);
  known = std::make_shared<Process>(std::move(made));
  if (options_.has_thread) WEFT_CHECK(known->progress.start());
  process_ = known;
  process_id_ = ::getpid();
  return known;
}

Result<std::shared_ptr<Device>> SoftDevices::open(std::string_view name) {
  const auto found = std::ranges::find(facts_, name, &DeviceFacts::name);
  if (found == facts_.end())
    return fail(FI_ENODEV, "cxi: there is no NIC %.*s: `fi_info -p cxi` lists them",
                int(name.size()), name.data());
  WEFT_TRY(std::shared_ptr<Process> own, process());
  return std::make_shared<SoftDevice>(*found, std::move(own));
}

}  // namespace weft::cxi
