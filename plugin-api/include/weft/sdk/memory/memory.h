// SPDX-License-Identifier: BSD-2-Clause
// Memory: how a domain registers memory (fi_mr.3), whatever makes the regions: the software table
// of mr.h, a device, or the provider beneath a layer.
//
// Example:
//    class Registrar final : public Memory {
//     public:
//      Result<fid_mr *> open(const fi_mr_attr &attr, uint64_t flags) override {
//        WEFT_CHECK(check_registration(attr, flags, {.iov_limit = 1}));
//        return pin(attr.mr_iov[0], attr.access);  // an Object<..., fid_mr> with its key and desc
//      }
//     private:
//      static Result<fid_mr *> pin(const iovec &memory, uint64_t access);
//    };
//
// A region is a fid_mr: fi_mr_key() and fi_mr_desc() say its key and its descriptor, and fi_close()
// ends it. The struct of an older caller ends early: DomainCore hands on a whole one, with zeros
// for what the caller's release does not have. Not for the way from a key to memory: a device does
// that itself, and MrTable::resolve() where software does.
#ifndef WEFT_SDK_MEMORY_MEMORY_H
#define WEFT_SDK_MEMORY_MEMORY_H

#include <rdma/fi_domain.h>
#include <weft/result.h>

#include <cstdint>

namespace weft::sdk {

class Eq;

class Memory {
 public:
  // `attr` as the application gave it. Its iface, device and hmem_data are zero in a domain without
  // FI_HMEM (fi_mr.3), and `dmabuf` stands for `mr_iov` where flags have FI_MR_DMABUF.
  virtual Result<fid_mr *> open(const fi_mr_attr &attr, uint64_t flags) = 0;

  Eq *eq = nullptr;  // fi_domain_bind(FI_REG_MR): registration completes there

 protected:
  ~Memory() = default;
};

struct RegistrationLimits {
  size_t iov_limit = 1;
  // Flags of a registration that mean something here, or nothing to anybody.
  uint64_t flags = FI_RMA_EVENT | FI_RMA_PMEM | FI_HMEM_HOST_ALLOC;
};

// What every registration has to keep: known flags and access bits, a count within the limit,
// buffers that end within the address space, and no offset, which is reserved.
Result<void> check_registration(const fi_mr_attr &attr, uint64_t flags,
                                const RegistrationLimits &limits);

}  // namespace weft::sdk

#endif
