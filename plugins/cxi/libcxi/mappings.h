// SPDX-License-Identifier: BSD-2-Clause
// Mappings: the memory that a process has mapped for its NIC, and where the NIC sees it: a logical
// address context (LAC) and an address in it.
//
// Example:
//    // The NIC may read what stands at `address`.
//    inline bool is_visible(Mappings &mappings, const Memory &memory, uint64_t address) {
//      Mappings::Place place;
//      return mappings.find(memory, address, 1, place) == 0;
//    }
//
// All of the process at once is one mapping where the IOMMU translates addresses for the NIC (ATS).
// Elsewhere it is mapped in large windows, as they are needed, whose pages the NIC asks for when it
// needs them; they stay. A region of the application is mapped for itself, with its own rights.
//
// All calls are thread-safe. Not for device memory.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_MAPPINGS_H
#define WEFT_PLUGINS_CXI_LIBCXI_MAPPINGS_H

#include <cstdint>
#include <mutex>
#include <vector>

#include "plugins/cxi/libcxi/library.h"
#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class Mappings {
 public:
  struct Place {
    uint8_t lac = 0;
    uint64_t address = 0;
  };

  // Of Memory: all of the process. What is mapped for itself comes behind.
  static constexpr uint32_t kAll = 1, kFirst = 2;

  Mappings(const Library &library, abi::Lni *lni) : library_(library), lni_(lni) {}
  ~Mappings();
  Mappings(const Mappings &) = delete;
  Mappings &operator=(const Mappings &) = delete;

  Result<Memory> map(uint64_t start, uint64_t length, unsigned access);
  void unmap(const Memory &memory);
  // Where the NIC sees `length` bytes at `address`. -FI_EINVAL: they are not of this memory, and
  // the place is none, or what the library says.
  int find(const Memory &memory, uint64_t address, uint64_t length, Place &place);
  // The process's address of what the NIC names, of all of the process.
  uint64_t address_of(uint64_t seen) const;
  // Those in which all of the process may be.
  std::vector<uint8_t> lacs() const;

 private:
  bool holds(const abi::Mapping &mapping, uint64_t address, uint64_t length) const;
  int window_of(uint64_t address, uint64_t length, Place &place);
  int add_window(uint64_t start, uint64_t length, int huge_shift);

  const Library &library_;
  abi::Lni *const lni_;
  mutable std::mutex mutex_;
  bool has_all_ = false;
  abi::Mapping *all_ = nullptr;  // of ATS
  std::vector<abi::Mapping *> windows_, mappings_;
  std::vector<uint32_t> free_;
};

}  // namespace weft::cxi

#endif
