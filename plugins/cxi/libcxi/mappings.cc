// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/mappings.h"

#include <cerrno>
#include <cstring>

namespace weft::cxi {
namespace {

constexpr uint64_t kPage = 4096, kWindow = uint64_t{1} << 36;
// Where no process has memory: what is used there is refused.
constexpr uint64_t kNowhere = uint64_t{1} << 56;
constexpr int kHugeShift = 21;
constexpr size_t kMaxWindows = 1024;
constexpr uint32_t kReadsAndWrites = abi::kNicReads | abi::kNicWrites;

uint64_t seen_at(const abi::Mapping &mapping, uint64_t address) {
  return mapping.io_address + (address - mapping.address);
}

}  // namespace

Mappings::~Mappings() {
  for (abi::Mapping *const one : mappings_)
    if (one != nullptr) library_.unmap(one);
  for (abi::Mapping *const one : windows_) library_.unmap(one);
  if (all_ != nullptr) library_.unmap(all_);
}

Result<Memory> Mappings::map(uint64_t start, uint64_t length, unsigned access) {
  if (length > UINT64_MAX - start)
    return fail(FI_EINVAL, "cxi: memory at %#llx of %llu bytes ends beyond the address space",
                (unsigned long long)start, (unsigned long long)length);
  const std::lock_guard guard(mutex_);
  if (length == UINT64_MAX) {
    if (!has_all_ && library_.map(lni_, nullptr, SIZE_MAX, abi::kTranslated | kReadsAndWrites,
                                  nullptr, &all_) != 0)
      all_ = nullptr;
    has_all_ = true;
    return Memory{.number = kAll, .lac = all_ != nullptr ? all_->lac : uint8_t{0}};
  }
  if (length == 0 || (has_all_ && access & Lni::kRemote)) {
    Place place;
    if (length != 0 && all_ == nullptr)
      if (const int rc = window_of(start, length, place); rc != 0)
        return fail(-rc, "cxi: memory at %#llx of %llu bytes is not mapped: %s",
                    (unsigned long long)start, (unsigned long long)length, strerror(-rc));
    return Memory{.number = kAll, .lac = all_ != nullptr ? all_->lac : place.lac};
  }
  const uint32_t flags = abi::kPin | (access & Lni::kRead ? abi::kNicReads : 0u) |
                         (access & Lni::kWrite ? abi::kNicWrites : 0u);
  abi::Mapping *made = nullptr;
  if (const int rc = library_.map(lni_, reinterpret_cast<void *>(start), size_t(length), flags,
                                  nullptr, &made);
      rc != 0)
    return fail(-rc, "cxi: memory at %#llx of %llu bytes is not mapped: %s: see `ulimit -l`",
                (unsigned long long)start, (unsigned long long)length, strerror(-rc));
  if (free_.empty()) {
    free_.push_back(uint32_t(mappings_.size()));
    mappings_.push_back(nullptr);
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  mappings_[slot] = made;
  return Memory{.number = kFirst + slot, .lac = made->lac};
}

void Mappings::unmap(const Memory &memory) {
  const std::lock_guard guard(mutex_);
  const uint32_t slot = memory.number - kFirst;
  if (memory.number < kFirst || slot >= mappings_.size() || mappings_[slot] == nullptr) return;
  library_.unmap(mappings_[slot]);
  mappings_[slot] = nullptr;
  free_.push_back(slot);
}

bool Mappings::holds(const abi::Mapping &mapping, uint64_t address, uint64_t length) const {
  const uint64_t offset = address - mapping.address;
  return address >= mapping.address && offset <= mapping.length &&
         length <= mapping.length - offset;
}

int Mappings::find(const Memory &memory, uint64_t address, uint64_t length, Place &place) {
  place = {.lac = memory.lac, .address = length == 0 ? address : kNowhere};
  if (memory.number == 0) return length == 0 ? 0 : -FI_EINVAL;
  const std::lock_guard guard(mutex_);
  if (memory.number == kAll) {
    if (all_ != nullptr) {
      place = {.lac = all_->lac, .address = seen_at(*all_, address)};
      return 0;
    }
    return length == 0 ? 0 : window_of(address, length, place);
  }
  const uint32_t slot = memory.number - kFirst;
  if (slot >= mappings_.size() || mappings_[slot] == nullptr) return -FI_EINVAL;
  const abi::Mapping &mapping = *mappings_[slot];
  if (!holds(mapping, address, length)) return -FI_EINVAL;
  place = {.lac = mapping.lac, .address = seen_at(mapping, address)};
  return 0;
}

int Mappings::window_of(uint64_t address, uint64_t length, Place &place) {
  const auto find_one = [&] {
    for (auto one = windows_.rbegin(); one != windows_.rend(); ++one) {
      if (!holds(**one, address, length)) continue;
      place = {.lac = (*one)->lac, .address = seen_at(**one, address)};
      return true;
    }
    return false;
  };
  if (find_one()) return 0;
  const uint64_t window = address & ~(kWindow - 1);
  if (length <= kWindow - (address - window) && add_window(window, kWindow, kHugeShift) == 0 &&
      find_one())
    return 0;
  // As much as is needed, where the driver does not take more.
  const uint64_t start = address & ~(kPage - 1);
  const uint64_t end = (address + length + kPage - 1) & ~(kPage - 1);
  if (const int rc = add_window(start, end - start, 0); rc != 0) return rc;
  return find_one() ? 0 : -FI_EINVAL;
}

int Mappings::add_window(uint64_t start, uint64_t length, int huge_shift) {
  if (windows_.size() == kMaxWindows) return -FI_ENOSPC;
  abi::MapHints hints{};
  hints.huge_shift = huge_shift;
  abi::Mapping *made = nullptr;
  const int rc = library_.map(lni_, reinterpret_cast<void *>(start), size_t(length),
                              kReadsAndWrites, huge_shift != 0 ? &hints : nullptr, &made);
  if (rc != 0) return rc;
  // address_of() could not tell two at the same place apart.
  for (const abi::Mapping *const other : windows_) {
    if (other->io_address >= made->io_address + made->length ||
        made->io_address >= other->io_address + other->length ||
        seen_at(*other, 0) == seen_at(*made, 0))
      continue;
    library_.unmap(made);
    return -FI_EBUSY;
  }
  windows_.push_back(made);
  return 0;
}

uint64_t Mappings::address_of(uint64_t seen) const {
  const std::lock_guard guard(mutex_);
  if (all_ != nullptr) return seen - all_->io_address + all_->address;
  for (const abi::Mapping *const one : windows_)
    if (seen - one->io_address < one->length) return seen - one->io_address + one->address;
  return seen;
}

std::vector<uint8_t> Mappings::lacs() const {
  const std::lock_guard guard(mutex_);
  if (all_ != nullptr) return {all_->lac};
  return {0, 1, 2, 3, 4, 5, 6, 7};
}

}  // namespace weft::cxi
