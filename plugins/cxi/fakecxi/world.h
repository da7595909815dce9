// SPDX-License-Identifier: BSD-2-Clause
// fakecxi.so: libcxi inside of a test process. It has the functions and structures of libcxi.so.1,
// and does what a Cassini does by the NIC in software (plugins/cxi/soft), so that the backend for
// the hardware (plugins/cxi/libcxi) runs in tests.
//
// Example (statements):
//    FakeDevice *const device = World::the().open(0);
//    const bool is_up = device != nullptr && device->info.link_state != 0;
//    delete device;
//
// It reads the command queues and writes the event queues that the process has in its memory. Only
// a store to a register it would not notice: weft's backend brings those to weft_cxi_doorbell(), a
// function that HPE's library does not have. Commands are executed there, by the thread that rings;
// what other processes send, by the NIC's own thread.
//
// The NICs are those that cxi's parameters soft_... describe, from the environment.
// WEFT_FAKECXI_ATS=0: the IOMMU translates no addresses; WEFT_FAKECXI_LINK=0: no link is up. Not
// for programs, and not for a measure of the hardware.
#ifndef WEFT_PLUGINS_CXI_FAKECXI_WORLD_H
#define WEFT_PLUGINS_CXI_FAKECXI_WORLD_H

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "plugins/cxi/libcxi/abi.h"
#include "plugins/cxi/soft/devices.h"
#include "plugins/cxi/soft/engine.h"

namespace weft::cxi {

struct FakeLni;

// A register.
class Doorbell {
 public:
  virtual void rung(uint64_t value) = 0;

 protected:
  ~Doorbell() = default;
};

struct FakeDevice : abi::Device {
  std::shared_ptr<cxi::Device> device;
  std::mutex mutex;
  std::set<FakeLni *> lnis;
};

// A message that software is to match looks as it came from the network.
const RequestForm &packet_form();

class World {
 public:
  static World &the();
  // In place of those of the environment: for tests within one process. Before any is open.
  void use(std::unique_ptr<Devices> devices) { devices_ = std::move(devices); }

  std::vector<abi::DeviceInfo> devices() const;
  FakeDevice *open(uint32_t number);  // null: there is none, or no memory
  bool has_ats() const { return has_ats_; }

  void add_register(void *address, Doorbell &doorbell);
  void remove_register(void *address);
  void ring(void *address, uint64_t value);

 private:
  World();

  std::unique_ptr<Devices> devices_;
  bool has_ats_ = true;
  std::mutex mutex_;
  std::map<void *, Doorbell *> registers_;
};

}  // namespace weft::cxi

#endif
