// SPDX-License-Identifier: BSD-2-Clause
// What tests of FI_HMEM over unconnected endpoints share: what they ask for, and regions of memory
// of devices (device.h).
//
// Example:
//     TEST(HmemExample, AMessageFromADevice) {
//       NEEDS_DEVICE();
//       Net net(2, with_devices());
//       DeviceMemory out(pattern(100, 1));
//       net.post([&] { return fi_inject(net[0].ep, out.data(), 100, net.at(0, 1)); });
//     }
//
// Without a device all of them are skipped.
#ifndef WEFT_TESTS_HMEM_RDM_HMEM_H
#define WEFT_TESTS_HMEM_RDM_HMEM_H

#include <algorithm>
#include <vector>

#include "tests/conformance/rdm_harness.h"
#include "tests/hmem/device.h"

namespace weft::conformance::rdm {

using hmem::DeviceMemory;

inline constexpr uint64_t kHmemCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_HMEM;

inline Options with_devices(uint64_t caps = kHmemCaps) {
  Options options;
  options.caps = caps;
  options.mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_HMEM;
  return options;
}

#define NEEDS_DEVICE()                                                            \
  do {                                                                            \
    covers("FI_HMEM");                                                            \
    if (!hmem::have_device()) GTEST_SKIP() << "WEFT_TEST_CUDA names no library";  \
    if (!find_info(with_devices())) GTEST_SKIP() << stack() << " has no FI_HMEM"; \
  } while (0)

inline std::vector<size_t> device_sizes() {
  std::vector<size_t> sizes = edges();
  for (const size_t size : {0, 1, 192, 193, 2048, 4096, 4097, 18433, 18434, 65537, 1000000})
    sizes.push_back(size);
  std::ranges::sort(sizes);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

// A region of a device's memory.
inline fid_mr *expose(Node &node, const DeviceMemory &memory, uint64_t access, uint64_t key,
                      int device = 0) {
  const iovec iov{memory.data(), memory.size()};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = access;
  attr.requested_key = key;
  attr.iface = FI_HMEM_CUDA;
  attr.device.cuda = device;
  node.regions.emplace_back();
  must(fi_mr_regattr(node.domain, &attr, 0, node.regions.back().out()));
  node.enable(node.regions.back());
  return node.regions.back();
}

// -FI_E... of a registration.
inline int try_expose(Node &node, const void *at, size_t size, enum fi_hmem_iface iface,
                      int device = 0, uint64_t flags = 0) {
  const iovec iov{const_cast<void *>(at), size};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_READ;
  attr.requested_key = 4711;
  attr.iface = iface;
  attr.device.cuda = device;
  Handle<fid_mr> region;
  return fi_mr_regattr(node.domain, &attr, flags, region.out());
}

}  // namespace weft::conformance::rdm

#endif
