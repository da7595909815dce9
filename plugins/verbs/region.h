// SPDX-License-Identifier: BSD-2-Clause
// Region: memory that the application registered with the device. A pointer to it is the
// descriptor of the memory.
//
// Example:
//    // The local key for the first buffer of a request. Null descriptor: false.
//    inline bool local_key(void *const *desc, uint32_t &key) {
//      if (desc == nullptr || desc[0] == nullptr) return false;
//      key = Region::of(desc[0]).local_key();
//      return true;
//    }
//
// Peers name memory by its virtual address and the remote key, which the device checks. Not for
// what is registered with the device, which may outlive the region: device_memory.h.
#ifndef WEFT_PLUGINS_VERBS_REGION_H
#define WEFT_PLUGINS_VERBS_REGION_H

#include <infiniband/verbs.h>
#include <rdma/fi_domain.h>
#include <weft/sdk/objects/fid.h>

#include "plugins/verbs/device_memory.h"

namespace weft::verbs {

class Domain;

class Region final : public sdk::Object<Region, fid_mr> {
 public:
  static Result<Region *> open(Domain &domain, const fi_mr_attr &attr, uint64_t flags);
  static const Region &of(const void *descriptor) {
    return *static_cast<const Region *>(descriptor);
  }

  uint32_t local_key() const { return local_key_; }
  bool of_device() const { return of_device_; }

  // fi_ops
  int close();
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);

 private:
  Region(Domain &domain, const DeviceMemory::Registration &registration, void *context);
  ~Region() = default;

  const uint32_t local_key_;  // first: the data path reads it
  const bool of_device_;
  Domain &domain_;
  const DeviceMemory::Registration registration_;
};

}  // namespace weft::verbs

#endif
