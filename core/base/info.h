// SPDX-License-Identifier: BSD-2-Clause
// fi_info as a value: deep allocation, copy and free, in the newest layout and in the shorter
// layouts of old callers.
//
// Example:
//    void copy(const fi_info *info) {
//      fi_info *copied = weft::dup_info(info);  // one entry, next = NULL; NULL: no memory
//      fi_info *empty = weft::alloc_info();     // all sub-structures present and zero
//      weft::free_info(copied);                 // the whole list; NULL is fine
//      weft::free_info(empty);
//    }
//    // A caller that was linked against FABRIC_1.0: reads no further than its structs.
//    fi_info *full(const fi_info *hints) {
//      return weft::dup_info(hints, weft::InfoLayout::kFabric1_0);
//    }
//    void give(fi_info *results) {  // before such a caller gets them
//      weft::hide_newer(results, weft::InfoLayout::kFabric1_0);
//    }
//
// What is shared, not copied: open objects (handle, fabric_attr.fabric, domain_attr.domain). A
// fid_nic whose ops are a provider's own is copied and released through them (FI_DUP, fi_close);
// any other is plain memory of this library.
//
// Not for filtering or text (core/select, core/base/tostr.h).
#ifndef WEFT_CORE_BASE_INFO_H
#define WEFT_CORE_BASE_INFO_H

#include <rdma/fabric.h>

#include <cstring>
#include <memory>

namespace weft {

// The layouts that the public structs have had. A caller's symbol version says which one it uses.
enum class InfoLayout {
  kFabric1_0,
  kFabric1_1,  // fabric_attr.api_version; ep_attr.auth_key_size, auth_key; domain_attr from
               // cntr_cnt to mr_cnt
  kFabric1_2,  // fi_info.nic
  kFabric1_3,  // tclass of tx_attr and domain_attr
  kFabric1_7,  // domain_attr.max_ep_auth_key
  kFabric1_8,  // domain_attr.max_group_id
  kFabric1_9,  // domain_attr.max_cntr_value, max_err_cntr_value
  kNewest = kFabric1_9,
};

struct fi_info *alloc_info() noexcept;
struct fi_info *dup_info(const struct fi_info *info,
                         InfoLayout layout = InfoLayout::kNewest) noexcept;

// The layout of a caller that cannot know more than this version of the API has.
InfoLayout layout_of(uint32_t api_version) noexcept;

// An fi_info in the newest form that borrows everything from that of a caller: its pointers are the
// caller's, except those to its own parts.
struct BorrowedInfo {
  BorrowedInfo(const struct fi_info &from, InfoLayout layout) noexcept;
  BorrowedInfo(const BorrowedInfo &) = delete;
  BorrowedInfo &operator=(const BorrowedInfo &) = delete;

  fi_info info{};  // without nic
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
};

// Frees the list. Members that `layout` lacks are not looked at.
void free_info(struct fi_info *list, InfoLayout layout = InfoLayout::kNewest) noexcept;

// A list that frees itself.
struct FreeInfo {
  void operator()(struct fi_info *list) const noexcept { free_info(list); }
};
using InfoPtr = std::unique_ptr<struct fi_info, FreeInfo>;

// Frees and clears the members that `layout` lacks, so that free_info(list, layout) leaks nothing.
void hide_newer(struct fi_info *list, InfoLayout layout) noexcept;

// The newest form of an attribute of an old caller. It borrows the pointers.
struct fi_fabric_attr widen(const struct fi_fabric_attr &attr, InfoLayout layout) noexcept;

// ep_attr.type as a number. An application may ask for a type that the enum has no more
// (FI_EP_SOCK_STREAM is 4, FI_EP_SOCK_DGRAM 5), or never had.
inline int ep_type_of(const fi_ep_attr &attr) {
  int type;
  static_assert(sizeof type == sizeof attr.type);
  std::memcpy(&type, &attr.type, sizeof type);
  return type;
}

}  // namespace weft

#endif
