// SPDX-License-Identifier: BSD-2-Clause
// Memory regions for tests. For the tests of weft/sdk/memory/mr.h only.
//
// Example (statements):
//    TestRegions t;
//    char memory[64];
//    t.reg({iov_at(memory, sizeof memory)}, 17);
//    EXPECT_EQ(t.resolve(17, 0, 64), MrReject::kNone);
#pragma once

#include <gtest/gtest.h>
#include <rdma/fi_domain.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/memory/mr.h"

namespace weft::sdk {

constexpr uint64_t kRemoteAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

// A table of regions in a domain without a provider. The destructor closes the open regions.
struct TestRegions {
  explicit TestRegions(MrTable::Mode mode = {}) : table(domain.context, mode) {}
  ~TestRegions() {
    for (Mr *mr : regions) EXPECT_EQ(fi_close(mr->base()), 0);
    EXPECT_EQ(table.size(), 0u);
  }
  Result<Mr *> try_reg(const std::vector<iovec> &iov, uint64_t key = 0,
                       uint64_t access = kRemoteAccess, uint64_t flags = 0) {
    fi_mr_attr attr{};
    attr.mr_iov = iov.data();
    attr.iov_count = iov.size();
    attr.access = access;
    attr.requested_key = key;
    attr.context = this;
    return table.reg(attr, flags);
  }
  Mr *reg(const std::vector<iovec> &iov, uint64_t key = 0, uint64_t access = kRemoteAccess,
          uint64_t flags = 0) {
    auto opened = try_reg(iov, key, access, flags);
    if (!opened) {
      ADD_FAILURE() << opened.error().text;
      return nullptr;
    }
    regions.push_back(*opened);
    return *opened;
  }
  int close(Mr *mr) {
    const int rc = fi_close(mr->base());
    if (rc == 0) std::erase(regions, mr);
    return rc;
  }
  MrReject resolve(uint64_t key, uint64_t address, uint64_t length,
                   uint64_t access = FI_REMOTE_WRITE) {
    Guard guard(domain.engine.lock());
    iovec out[8];
    const auto found = table.resolve(key, address, length, access, out, 8);
    EXPECT_EQ(found.mr == nullptr, found.reject != MrReject::kNone);
    return found.reject;
  }

  TestDomain domain;
  MrTable table;
  std::vector<Mr *> regions;
};

inline iovec iov_at(void *base, size_t length) {
  return {base, length};
}
inline uint64_t address_of(const void *p) {
  return reinterpret_cast<uintptr_t>(p);
}

}  // namespace weft::sdk
