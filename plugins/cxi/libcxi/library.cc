// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

namespace weft::cxi {
namespace {

std::string file_of(void *handle, const std::string &path) {
  link_map *map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return path;
  char *const real = ::realpath(map->l_name, nullptr);
  const std::string file = real != nullptr ? real : map->l_name;
  std::free(real);
  return file;
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::open(const std::string &path) {
  void *const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char *const why = ::dlerror();
    return fail(FI_ENODATA, "cxi: %s: %s: install libcxi, or set FI_CXI_LIBCXI to its path",
                path.c_str(), why != nullptr ? why : "it cannot be opened");
  }
  const auto library = std::make_shared<Library>(LibraryFunctions{});
  library->file_ = file_of(handle, path);
  WEFT_CHECK(library->load(handle));
  return library;
}

Result<void> Library::load(void *handle) {
  const char *missing = nullptr;
  const auto may_have = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    return function != nullptr;
  };
  const auto has = [&](auto &function, const char *name) {
    if (!may_have(function, name) && missing == nullptr) missing = name;
  };
  has(get_device_list, "cxil_get_device_list");
  has(free_device_list, "cxil_free_device_list");
  has(open_device, "cxil_open_device");
  has(close_device, "cxil_close_device");
  has(get_svc_list, "cxil_get_svc_list");
  has(free_svc_list, "cxil_free_svc_list");
  has(get_svc_rsrc_use, "cxil_get_svc_rsrc_use");
  has(alloc_lni, "cxil_alloc_lni");
  has(destroy_lni, "cxil_destroy_lni");
  has(alloc_cp, "cxil_alloc_cp");
  has(destroy_cp, "cxil_destroy_cp");
  has(alloc_cmdq, "cxil_alloc_cmdq");
  has(destroy_cmdq, "cxil_destroy_cmdq");
  has(cmdq_ack_counter, "cxil_cmdq_ack_counter");
  has(alloc_domain, "cxil_alloc_domain");
  has(destroy_domain, "cxil_destroy_domain");
  has(alloc_pte, "cxil_alloc_pte");
  has(destroy_pte, "cxil_destroy_pte");
  has(map_pte, "cxil_map_pte");
  has(unmap_pte, "cxil_unmap_pte");
  has(pte_status, "cxil_pte_status");
  has(pte_transition_sm, "cxil_pte_transition_sm");
  has(invalidate_pte_le, "cxil_invalidate_pte_le");
  has(alloc_evtq, "cxil_alloc_evtq");
  has(destroy_evtq, "cxil_destroy_evtq");
  has(evtq_adjust_reserved_fc, "cxil_evtq_adjust_reserved_fc");
  has(alloc_wait_obj, "cxil_alloc_wait_obj");
  has(destroy_wait_obj, "cxil_destroy_wait_obj");
  has(get_wait_obj_fd, "cxil_get_wait_obj_fd");
  has(clear_wait_obj, "cxil_clear_wait_obj");
  has(map, "cxil_map");
  has(unmap, "cxil_unmap");
  has(alloc_ct, "cxil_alloc_ct");
  has(ct_wb_update, "cxil_ct_wb_update");
  has(destroy_ct, "cxil_destroy_ct");
  may_have(alloc_trig_cp, "cxil_alloc_trig_cp");
  may_have(get_amo_remap_to_pcie_fadd, "cxil_get_amo_remap_to_pcie_fadd");
  may_have(read_cntr, "cxil_read_cntr");
  may_have(svc_get_vni_range, "cxil_svc_get_vni_range");
  may_have(doorbell, "weft_cxi_doorbell");
  if (missing == nullptr) return {};
  return fail(FI_ENOSYS, "cxi: %s has no %s: it is older than weft needs; update libcxi",
              file_.c_str(), missing);
}

}  // namespace weft::cxi
