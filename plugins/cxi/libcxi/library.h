// SPDX-License-Identifier: BSD-2-Clause
// Library: libcxi.so.1, HPE's library, opened at run time. weft builds and runs without it.
//
// Example:
//    inline Result<unsigned> count_devices(const std::string &path) {
//      WEFT_TRY(const std::shared_ptr<const Library> library, Library::open(path));
//      abi::DeviceList *list = nullptr;
//      if (library->get_device_list(&list) != 0) return 0u;
//      const unsigned count = list->count;
//      library->free_device_list(list);
//      return count;
//    }
//
// The functions return 0 or more, or -errno. A library without one that weft needs is refused by
// name; those that came later may be null. It stays open, as its kernel objects outlive ours. Not
// for what is done with it: devices.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_LIBRARY_H
#define WEFT_PLUGINS_CXI_LIBCXI_LIBRARY_H

#include <weft/result.h>

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>

#include "plugins/cxi/libcxi/abi.h"

namespace weft::cxi {

// What was stored before is in memory before what is stored after, also for a device.
inline void store_fence() {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#elif defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

struct LibraryFunctions {
  int (*get_device_list)(abi::DeviceList **);
  void (*free_device_list)(abi::DeviceList *);
  int (*open_device)(uint32_t, abi::Device **);
  void (*close_device)(abi::Device *);
  int (*get_svc_list)(abi::Device *, abi::ServiceList **);
  void (*free_svc_list)(abi::ServiceList *);
  int (*get_svc_rsrc_use)(abi::Device *, unsigned, abi::ResourceUse *);
  int (*alloc_lni)(abi::Device *, abi::Lni **, unsigned);
  int (*destroy_lni)(abi::Lni *);
  int (*alloc_cp)(abi::Lni *, unsigned, unsigned, unsigned, abi::Profile **);
  int (*destroy_cp)(abi::Profile *);
  int (*alloc_cmdq)(abi::Lni *, abi::EventQueue *, const abi::CommandQueueOptions *,
                    abi::CommandQueue **);
  int (*destroy_cmdq)(abi::CommandQueue *);
  int (*cmdq_ack_counter)(abi::CommandQueue *, unsigned *);
  int (*alloc_domain)(abi::Lni *, unsigned, unsigned, abi::Domain **);
  int (*destroy_domain)(abi::Domain *);
  int (*alloc_pte)(abi::Lni *, abi::EventQueue *, abi::PortalOptions *, abi::Portal **);
  int (*destroy_pte)(abi::Portal *);
  int (*map_pte)(abi::Portal *, abi::Domain *, unsigned, bool, abi::PortalMap **);
  int (*unmap_pte)(abi::PortalMap *);
  int (*pte_status)(abi::Portal *, abi::PortalStatus *);
  int (*pte_transition_sm)(abi::Portal *, unsigned);
  int (*invalidate_pte_le)(abi::Portal *, unsigned, unsigned);
  int (*alloc_evtq)(abi::Lni *, const abi::Mapping *, const abi::EventQueueOptions *,
                    abi::WaitObject *, abi::WaitObject *, abi::EventQueue **);
  int (*destroy_evtq)(abi::EventQueue *);
  int (*evtq_adjust_reserved_fc)(abi::EventQueue *, int);
  int (*alloc_wait_obj)(abi::Lni *, abi::WaitObject **);
  int (*destroy_wait_obj)(abi::WaitObject *);
  int (*get_wait_obj_fd)(abi::WaitObject *);
  void (*clear_wait_obj)(abi::WaitObject *);
  int (*map)(abi::Lni *, void *, size_t, uint32_t, abi::MapHints *, abi::Mapping **);
  int (*unmap)(abi::Mapping *);
  int (*alloc_ct)(abi::Lni *, uint64_t *, abi::Counter **);
  int (*ct_wb_update)(abi::Counter *, uint64_t *);
  int (*destroy_ct)(abi::Counter *);
  // ---- those that may be null ----
  int (*alloc_trig_cp)(abi::Lni *, unsigned, unsigned, unsigned, unsigned, abi::Profile **);
  int (*get_amo_remap_to_pcie_fadd)(abi::Device *, int *);
  int (*read_cntr)(abi::Device *, unsigned, uint64_t *, struct timespec *);
  int (*svc_get_vni_range)(abi::Device *, unsigned, uint16_t *, uint16_t *);
  // Of a double of the hardware: what is stored to a doorbell, which memory alone does not tell it.
  void (*doorbell)(void *, uint64_t);
};

class Library : public LibraryFunctions {
 public:
  // FI_ENODATA: there is no such library. FI_ENOSYS: it lacks a function.
  static Result<std::shared_ptr<const Library>> open(const std::string &path);
  explicit Library(const LibraryFunctions &functions) : LibraryFunctions(functions) {}

  // Where it was found, with the version in its name: "/usr/lib64/libcxi.so.1.5.0".
  const std::string &file() const { return file_; }
  // Stores to a register of the NIC, behind all that is in memory.
  void ring(void *address, uint64_t value) const {
    if (doorbell != nullptr) return doorbell(address, value);
    store_fence();
    __atomic_store_n(static_cast<uint64_t *>(address), value, __ATOMIC_RELAXED);
    store_fence();
  }

 private:
  Result<void> load(void *handle);

  std::string file_;
};

}  // namespace weft::cxi

#endif
