// SPDX-License-Identifier: BSD-2-Clause
// TestDevice: a device (FI_HMEM) for simulations. All memory of the process is the device's, its
// copies happen as late as they may, and fail when a test wants it.
//
// Example (statements):
//    #include "plugins/rxd/protocol/core.h"
//    TestDevice device;
//    Settings settings;
//    settings.hmem = &device.hmem;
//    // ... a core with these settings ...
//    bool none_was_forgotten = device.under_way() == 0;
//
// Not for whether anybody touches memory of a device: that is what tests/hmem/fakecuda.cc finds.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_TEST_DEVICE_H
#define WEFT_PLUGINS_RXD_PROTOCOL_TEST_DEVICE_H

#include <weft/sdk/memory/hmem.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace weft::rxd {

class TestDevice {
  class Memory final : public sdk::HmemIface {
   public:
    explicit Memory(TestDevice &device) : device_(device) {}
    enum fi_hmem_iface iface() const override { return FI_HMEM_CUDA; }
    const char *name() const override { return "TEST"; }
    sdk::HmemPlace find(const void *) override {
      return {
          .iface = this, .context = this, .bytes = SIZE_MAX, .kind = sdk::HmemPlace::Kind::kDevice};
    }
    bool copy(const sdk::HmemPlace &place, void *to, const void *from, size_t length) override {
      return start(place, to, from, length) && finish(place);
    }
    bool start(const sdk::HmemPlace &, void *to, const void *from, size_t length) override {
      if (device_.starts_left == 0) return false;
      --device_.starts_left;
      ++device_.copies;
      device_.late_.push_back({to, from, length});
      return true;
    }
    bool finish(const sdk::HmemPlace &) override {
      for (const Late &one : std::exchange(device_.late_, {}))
        if (!device_.loses) std::memcpy(one.to, one.from, one.length);
      return !device_.loses;
    }

   private:
    TestDevice &device_;
  };
  struct Late {
    void *to;
    const void *from;
    size_t length;
  };

 public:
  TestDevice() : hmem(one(), 0) {}
  TestDevice(const TestDevice &) = delete;
  TestDevice &operator=(const TestDevice &) = delete;

  size_t under_way() const { return late_.size(); }

  size_t copies = 0;
  size_t starts_left = SIZE_MAX;  // then none begins
  bool loses = false;             // none arrives
  const sdk::Hmem hmem;

 private:
  std::vector<std::unique_ptr<sdk::HmemIface>> one() {
    std::vector<std::unique_ptr<sdk::HmemIface>> made;
    made.push_back(std::make_unique<Memory>(*this));
    return made;
  }
  std::vector<Late> late_;
};

}  // namespace weft::rxd

#endif
