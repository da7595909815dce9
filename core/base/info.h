// SPDX-License-Identifier: BSD-2-Clause
// fi_info as a value: allocate, copy and free, deep and of the newest layout; and the shorter layouts of old callers.
//
//   fi_info *copy = dup_info(info);          // one entry, next = NULL; NULL: no memory
//   fi_info *empty = alloc_info();           // all sub-structures present and zero
//   free_info(list);                         // the whole list; NULL is fine
//
//   InfoLayout old = InfoLayout::kFabric1_0; // of a caller that was linked against FABRIC_1.0
//   fi_info *full = dup_info(hints, old);    // reads no further than that caller's structs
//
// Not for filtering or text (core/select, core/api/tostr.h).
#ifndef WEFT_CORE_BASE_INFO_H
#define WEFT_CORE_BASE_INFO_H

#include <rdma/fabric.h>

namespace weft {

// The forms that the public structs have had: a caller's symbol version says which one it allocated.
enum class InfoLayout {
  kFabric1_0,
  kFabric1_1,  // fabric_attr.api_version; ep_attr.auth_key_size, auth_key; domain_attr from cntr_cnt to mr_cnt
  kFabric1_2,  // fi_info.nic
  kFabric1_3,  // tclass of tx_attr and domain_attr
  kFabric1_7,  // domain_attr.max_ep_auth_key
  kFabric1_8,  // domain_attr.max_group_id
  kFabric1_9,  // domain_attr.max_cntr_value, max_err_cntr_value
  kNewest = kFabric1_9,
};

struct fi_info *alloc_info() noexcept;
struct fi_info *dup_info(const struct fi_info *info, InfoLayout layout = InfoLayout::kNewest) noexcept;
void free_info(struct fi_info *list, InfoLayout layout = InfoLayout::kNewest) noexcept;

// fi_fabric() of an old caller: attr may end after prov_version.
struct fi_fabric_attr *dup_fabric_attr(const struct fi_fabric_attr *attr, InfoLayout layout) noexcept;
void free_fabric_attr(struct fi_fabric_attr *attr) noexcept;

}  // namespace weft

#endif
