// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/devices.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/cxi/libcxi/lni.h"

namespace weft::cxi {
namespace {

constexpr unsigned kGranule = 256;             // portals of a PID
constexpr size_t kMegabits = 1'000'000;        // per second: how some versions tell the speed,
constexpr size_t kLeastSpeed = 1'000'000'000;  // in bits; nothing is slower

std::string text_of_name(const abi::DeviceInfo &info) {
  return std::string(info.name, strnlen(info.name, sizeof info.name));
}

DeviceFacts facts_of(const abi::DeviceInfo &info) {
  return {
      .name = text_of_name(info),
      .nid = info.nid,
      .is_software = false,
      .link_up = info.link_state != 0,
      .speed = info.speed < kLeastSpeed ? info.speed * kMegabits : info.speed,
      .mtu = info.mtu,
      .max_list_entries = info.list_entries,
      .max_triggered = info.triggered,
      .bus = DeviceFacts::Bus{info.pci_domain, info.pci_bus, info.pci_device, info.pci_function},
      .vendor = info.vendor_id,
      .revision = info.revision};
}

Service service_of(const Library &library, abi::Device *device, const abi::Service &told,
                   const DeviceFacts &facts) {
  using S = abi::Service;
  Service service{.id = told.id, .is_enabled = (told.flags & S::kEnabled) != 0};
  // What the kernel looks at besides, a network namespace, it checks by itself.
  if (told.flags & S::kRestrictsMembers)
    for (const S::Member &member : told.members)
      if (member.type == abi::kUser || member.type == abi::kGroup)
        service.members.push_back({.is_group = member.type == abi::kGroup, .id = member.id});
  if (told.flags & S::kRestrictsVnis) {
    for (size_t i = 0; i != std::min<size_t>(told.vni_count, abi::kVnis); ++i)
      service.vnis.push_back({told.vnis[i], told.vnis[i]});
  } else if (uint16_t first = 0, last = 0;
             library.svc_get_vni_range != nullptr &&
             library.svc_get_vni_range(device, told.id, &first, &last) == 0 && last != 0) {
    service.vnis.push_back({first, last});
  }
  if (told.flags & S::kRestrictsClasses)
    for (unsigned i = 0; i <= unsigned(TrafficClass::kBestEffort); ++i)
      if (told.classes[i]) service.classes.push_back(TrafficClass(i));
  const bool limited = (told.flags & S::kLimitsResources) != 0;
  const auto limit = [&](abi::Resource which, size_t all) {
    return limited && told.limits[which].most != 0 ? told.limits[which].most : all;
  };
  service.max_list_entries = limit(abi::kListEntries, facts.max_list_entries);
  service.max_triggered = limit(abi::kTriggered, facts.max_triggered);
  return service;
}

class LibcxiDevice final : public Device {
 public:
  explicit LibcxiDevice(std::shared_ptr<OpenDevice> device) : device_(std::move(device)) {}

  const DeviceFacts &facts() const override { return device_->facts; }
  std::vector<Service> services() const override {
    std::vector<Service> all;
    abi::ServiceList *list = nullptr;
    if (device_->library->get_svc_list(device_->handle, &list) != 0) return all;
    for (unsigned i = 0; i != list->count; ++i)
      all.push_back(
          service_of(*device_->library, device_->handle, list->services[i], device_->facts));
    device_->library->free_svc_list(list);
    return all;
  }
  Result<std::unique_ptr<Lni>> open_lni(uint32_t id) override {
    const std::vector<Service> all = services();
    const auto service = std::ranges::find(all, id, &Service::id);
    if (service == all.end())
      return fail(FI_EINVAL, "cxi: %s has no service %u", device_->facts.name.c_str(), id);
    return LibcxiLni::open(device_, *service);
  }
  // The hardware needs nobody.
  void poll() override {}
  void push() override {}
  int wait_fd() const override { return -1; }
  uint64_t telemetry(Telemetry which) const override {
    uint64_t value = 0;
    timespec when{};
    if (device_->library->read_cntr == nullptr ||
        device_->library->read_cntr(device_->handle, kTelemetry[size_t(which)].number, &value,
                                    &when) != 0)
      return 0;
    return value;
  }

 private:
  const std::shared_ptr<OpenDevice> device_;
};

}  // namespace

Result<std::unique_ptr<LibcxiDevices>> LibcxiDevices::make(const std::string &path) {
  WEFT_TRY(std::shared_ptr<const Library> library, Library::open(path));
  return make(std::move(library));
}

Result<std::unique_ptr<LibcxiDevices>> LibcxiDevices::make(std::shared_ptr<const Library> library) {
  std::unique_ptr<LibcxiDevices> devices(new LibcxiDevices(std::move(library)));
  abi::DeviceList *list = nullptr;
  const int rc = devices->library_->get_device_list(&list);
  if (rc != 0)
    return fail(FI_ENODATA, "cxi: %s lists no device: %s", devices->library_file().c_str(),
                strerror(-rc));
  for (unsigned i = 0; i != list->count; ++i) devices->take(list->info[i]);
  devices->library_->free_device_list(list);
  return devices;
}

// Addresses and portals are laid out for the usual sizes.
void LibcxiDevices::take(const abi::DeviceInfo &info) {
  const std::string name = text_of_name(info);
  if (info.pid_bits != kPidBits || info.pid_granule != kGranule ||
      info.rendezvous_index != kRendezvousIndex || info.nid > kMaxNid) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "cxi: %s is not used: PIDs of %u bits with %u portals, rendezvous at %u; weft "
                  "knows %u, %u and %u",
                  name.c_str(), info.pid_bits, info.pid_granule, info.rendezvous_index, kPidBits,
                  kGranule, unsigned(kRendezvousIndex));
    refusals_.push_back(text);
    return;
  }
  known_.push_back(
      {.facts = facts_of(info), .number = info.number, .min_free_shift = info.min_free_shift});
}

std::vector<DeviceFacts> LibcxiDevices::list() const {
  std::vector<DeviceFacts> all;
  for (const Known &known : known_) all.push_back(known.facts);
  return all;
}

Result<DeviceFacts> LibcxiDevices::look_again(std::string_view name) const {
  abi::DeviceList *list = nullptr;
  if (const int rc = library_->get_device_list(&list); rc != 0)
    return fail(-rc, "cxi: %s lists no device: %s", library_file().c_str(), strerror(-rc));
  std::optional<DeviceFacts> found;
  for (unsigned i = 0; i != list->count; ++i)
    if (text_of_name(list->info[i]) == name) found = facts_of(list->info[i]);
  library_->free_device_list(list);
  if (found) return *found;
  return fail(FI_ENODEV, "cxi: there is no NIC %.*s any more", int(name.size()), name.data());
}

Result<std::shared_ptr<Device>> LibcxiDevices::open(std::string_view name) {
  const auto found =
      std::ranges::find_if(known_, [&](const Known &one) { return one.facts.name == name; });
  if (found == known_.end())
    return fail(FI_ENODEV, "cxi: there is no NIC %.*s: `fi_info -p cxi` lists them",
                int(name.size()), name.data());
  abi::Device *handle = nullptr;
  if (const int rc = library_->open_device(found->number, &handle); rc != 0)
    return fail(-rc, "cxi: %s cannot be opened: %s", found->facts.name.c_str(), strerror(-rc));
  auto device = std::make_shared<OpenDevice>(library_, handle);
  device->facts = found->facts;
  device->min_free_shift = found->min_free_shift;
  if (library_->get_amo_remap_to_pcie_fadd != nullptr &&
      library_->get_amo_remap_to_pcie_fadd(handle, &device->facts.amo_remap_to_pcie_fadd) != 0)
    device->facts.amo_remap_to_pcie_fadd = -1;
  return std::make_shared<LibcxiDevice>(std::move(device));
}

}  // namespace weft::cxi
