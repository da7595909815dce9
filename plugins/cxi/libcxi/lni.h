// SPDX-License-Identifier: BSD-2-Clause
// LibcxiLni: what one process has opened of a Cassini, by libcxi.
//
// Example:
//    // How the hardware calls a portal, in commands.
//    inline Portal *portal_with(const LibcxiLni &lni, unsigned number) { return lni.portal(number); }
//
// Its objects are the library's, with what commands and events name them by. One target queue has
// the commands of all its portals, one queue those of its counters. Not for who may open it:
// devices.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_LNI_H
#define WEFT_PLUGINS_CXI_LIBCXI_LNI_H

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "plugins/cxi/libcxi/command_ring.h"
#include "plugins/cxi/libcxi/decode.h"
#include "plugins/cxi/libcxi/mappings.h"
#include "plugins/cxi/nic/device.h"

namespace weft::cxi {

// A device that is open.
struct OpenDevice {
  OpenDevice(std::shared_ptr<const Library> opened, abi::Device *device)
      : library(std::move(opened)), handle(device) {}
  ~OpenDevice() { library->close_device(handle); }
  OpenDevice(const OpenDevice &) = delete;
  OpenDevice &operator=(const OpenDevice &) = delete;

  const std::shared_ptr<const Library> library;
  abi::Device *const handle;
  DeviceFacts facts;
  unsigned min_free_shift = 0;
};

// A command queue of the library, and its ring.
class HardwareQueue {
 public:
  static Result<std::unique_ptr<HardwareQueue>> open(const Library &library, abi::Lni *lni,
                                                     const abi::CommandQueueOptions &options,
                                                     CommandRing::Use use);
  ~HardwareQueue() { library_.destroy_cmdq(queue_); }
  HardwareQueue(const HardwareQueue &) = delete;
  HardwareQueue &operator=(const HardwareQueue &) = delete;
  CommandRing &ring() { return ring_; }
  abi::CommandQueue *handle() const { return queue_; }
  // Waits until there is room: the hardware always reads on.
  uint8_t *add_patiently(CommandSize size);

 private:
  HardwareQueue(const Library &library, abi::CommandQueue *queue, CommandRing::Use use)
      : library_(library), queue_(queue), ring_(library, *queue, use) {}
  const Library &library_;
  abi::CommandQueue *const queue_;
  CommandRing ring_;
};

class LibcxiLni final : public Lni, public ObjectTable {
 public:
  static Result<std::unique_ptr<LibcxiLni>> open(std::shared_ptr<OpenDevice> device,
                                                 const Service &service);
  ~LibcxiLni() override;

  const Library &library() const { return *device_->library; }
  const OpenDevice &device() const { return *device_; }
  abi::Lni *handle() const { return lni_; }
  Mappings &mappings() { return *mappings_; }
  const Service &service() const { return service_; }
  // The communication profile of a queue.
  Result<unsigned> lcid(const Profile &profile, bool triggers);

  // ---- commands of portals and counters; each is the NIC's when `write` returns ----
  template <class F>
  void command_target(F write) {
    const std::lock_guard guard(target_mutex_);
    write(target_->add_patiently(CommandSize::k64));
    target_->ring().ring();
  }
  // Waits until the NIC has read all of them.
  void drain_target();
  template <class F>
  void command_counter(F write) {
    const std::lock_guard guard(counter_mutex_);
    uint8_t *const command = counter_->add_patiently(CommandSize::k64);
    put(command, CommandHead::kind, uint64_t(CommandKind::kCounter));
    write(command);
    counter_->ring().ring();
  }

  // ---- what events name ----
  Portal *portal(unsigned number) const override;
  Counter *counter(unsigned number) const override;
  void set_portal(unsigned number, Portal *portal);
  void set_counter(unsigned number, Counter *counter);

  // ---- Lni ----
  Result<std::unique_ptr<Endpoint>> endpoint(Vni vni, Pid pid) override;
  Result<Memory> map(uint64_t start, uint64_t length, unsigned access) override {
    return mappings_->map(start, length, access);
  }
  void unmap(const Memory &memory) override { mappings_->unmap(memory); }
  std::vector<uint8_t> lacs() const override { return mappings_->lacs(); }
  Result<std::unique_ptr<EventQueue>> event_queue(const EventQueueOptions &options) override;
  Result<std::unique_ptr<Counter>> counter() override;
  Result<std::unique_ptr<Portal>> portal(const PortalOptions &options, EventQueue &eq) override;
  Result<std::unique_ptr<TransmitQueue>> transmit_queue(size_t depth,
                                                        const Profile &profile) override;
  Result<std::unique_ptr<TriggerQueue>> trigger_queue(const Profile &profile) override;

 private:
  struct Known {
    Profile profile;
    bool triggers;
    abi::Profile *handle;
  };
  LibcxiLni(std::shared_ptr<OpenDevice> device, abi::Lni *lni, const Service &service);
  Result<void> open_counter_queue();

  const std::shared_ptr<OpenDevice> device_;
  abi::Lni *const lni_;
  const Service service_;
  std::optional<Mappings> mappings_;
  std::mutex mutex_;
  std::vector<Known> profiles_;
  std::mutex target_mutex_, counter_mutex_;
  std::unique_ptr<HardwareQueue> target_, counter_;
  std::vector<std::atomic<Portal *>> portals_;
  std::vector<std::atomic<Counter *>> counters_;
};

}  // namespace weft::cxi

#endif
