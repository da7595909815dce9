// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/fakecxi/world.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "plugins/cxi/libcxi/packet_head.h"

namespace weft::cxi {
namespace {

class PacketForm final : public RequestForm {
 public:
  uint32_t bytes(const Packet &packet) const override {
    return is_short(packet) ? kShortPacketHead : kPacketHead;
  }
  void write(const Packet &packet, uint8_t *at) const override {
    write_packet_head({.match_bits = packet.match_bits,
                       .header_data = packet.header_data,
                       .remote_offset = packet.remote_offset,
                       .initiator = packet.initiator,
                       .length = packet.length,
                       .source = packet.source,
                       .vni = packet.vni,
                       .rendezvous = packet.op == Op::kRendezvousPut,
                       .rendezvous_id = packet.rendezvous_id},
                      is_short(packet), at);
  }

 private:
  static bool is_short(const Packet &packet) {
    return packet.op == Op::kPut && packet.remote_offset == 0 &&
           packet.length <= kMaxInlineUnrestricted;
  }
};

int64_t number_in(const char *variable, int64_t otherwise) {
  const char *const text = secure_getenv(variable);
  return text != nullptr && *text != '\0' ? std::strtoll(text, nullptr, 0) : otherwise;
}

std::vector<std::string> list_in(const char *variable) {
  std::vector<std::string> all;
  const char *const text = secure_getenv(variable);
  for (std::string rest = text != nullptr ? text : ""; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    all.push_back(rest.substr(0, comma));
    rest.erase(0, comma + 1);
  }
  return all;
}

abi::DeviceInfo info_of(const DeviceFacts &facts, uint32_t number) {
  abi::DeviceInfo info{};
  info.number = number;
  info.nid = facts.nid;
  info.pid_bits = kPidBits;
  info.pid_count = kMaxPid + 1u;
  info.pid_granule = 256;
  info.rendezvous_index = kRendezvousIndex;
  std::strncpy(info.name, facts.name.c_str(), sizeof info.name - 1);
  std::strncpy(info.driver, "fakecxi", sizeof info.driver - 1);
  info.portals = info.event_queues = info.counters = 2048;
  info.transmit_queues = info.contexts = 1024;
  info.target_queues = 512;
  info.triggered = uint16_t(std::min<size_t>(facts.max_triggered, UINT16_MAX));
  info.list_entries = uint16_t(std::min<size_t>(facts.max_list_entries, UINT16_MAX));
  info.mtu = facts.mtu;
  info.speed = facts.speed;
  info.link_state = number_in("WEFT_FAKECXI_LINK", 1) != 0;
  info.vendor_id = 0x17db;
  info.revision = 2;
  info.pci_bus = uint8_t(0x20 + number);
  info.version = 0x21;
  return info;
}

}  // namespace

const RequestForm &packet_form() {
  static const PacketForm form;
  return form;
}

World &World::the() {
  static World *const world = new World;  // threads of the NICs may outlive main()
  return *world;
}

World::World() {
  SoftOptions options;
  options.limits.list_entries =
      uint32_t(number_in("FI_CXI_SOFT_LIST_ENTRIES", options.limits.list_entries));
  options.limits.triggered = uint32_t(number_in("FI_CXI_SOFT_TRIGGERED", options.limits.triggered));
  options.pcie_fadd = int(number_in("FI_CXI_SOFT_PCIE_FADD", options.pcie_fadd));
  options.request_form = &packet_form();
  has_ats_ = number_in("WEFT_FAKECXI_ATS", 1) != 0;
  if (auto made = SoftDevices::make(list_in("FI_CXI_SOFT_DEVICES"), options))
    devices_ = std::move(*made);
}

std::vector<abi::DeviceInfo> World::devices() const {
  std::vector<abi::DeviceInfo> all;
  if (devices_ == nullptr) return all;
  for (const DeviceFacts &facts : devices_->list())
    all.push_back(info_of(facts, uint32_t(all.size())));
  return all;
}

FakeDevice *World::open(uint32_t number) {
  const std::vector<abi::DeviceInfo> all = devices();
  if (number >= all.size()) return nullptr;
  auto opened = devices_->open(all[number].name);
  if (!opened) return nullptr;
  auto *const device = new FakeDevice;
  device->info = all[number];
  device->device = std::move(*opened);
  return device;
}

void World::add_register(void *address, Doorbell &doorbell) {
  const std::lock_guard guard(mutex_);
  registers_[address] = &doorbell;
}

void World::remove_register(void *address) {
  const std::lock_guard guard(mutex_);
  registers_.erase(address);
}

void World::ring(void *address, uint64_t value) {
  Doorbell *doorbell = nullptr;
  {
    const std::lock_guard guard(mutex_);
    const auto found = registers_.find(address);
    if (found != registers_.end()) doorbell = found->second;
  }
  if (doorbell != nullptr) doorbell->rung(value);
}

}  // namespace weft::cxi
