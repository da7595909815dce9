// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/info.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/tostr.h"

namespace weft {
namespace {

// Bytes of each struct that a caller of `layout` has. If only padding followed the old struct, the
// offset of the next member is the old size.
constexpr size_t info_bytes(InfoLayout layout) {
  return layout < InfoLayout::kFabric1_2 ? offsetof(fi_info, nic) : sizeof(fi_info);
}
constexpr size_t tx_bytes(InfoLayout layout) {
  return layout < InfoLayout::kFabric1_3 ? offsetof(fi_tx_attr, tclass) : sizeof(fi_tx_attr);
}
constexpr size_t rx_bytes(InfoLayout) {
  return sizeof(fi_rx_attr);
}
constexpr size_t ep_bytes(InfoLayout layout) {
  return layout < InfoLayout::kFabric1_1 ? offsetof(fi_ep_attr, auth_key_size) : sizeof(fi_ep_attr);
}
constexpr size_t domain_bytes(InfoLayout layout) {
  return layout < InfoLayout::kFabric1_1   ? offsetof(fi_domain_attr, cntr_cnt)
         : layout < InfoLayout::kFabric1_3 ? offsetof(fi_domain_attr, tclass)
         : layout < InfoLayout::kFabric1_7 ? offsetof(fi_domain_attr, max_ep_auth_key)
         : layout < InfoLayout::kFabric1_8 ? offsetof(fi_domain_attr, max_group_id)
         : layout < InfoLayout::kFabric1_9 ? offsetof(fi_domain_attr, max_cntr_value)
                                           : sizeof(fi_domain_attr);
}
constexpr size_t fabric_bytes(InfoLayout layout) {
  return layout < InfoLayout::kFabric1_1 ? offsetof(fi_fabric_attr, api_version)
                                         : sizeof(fi_fabric_attr);
}

template <class T>
T *zeroed() noexcept {
  return static_cast<T *>(std::calloc(1, sizeof(T)));
}

// A full struct whose first `bytes` are those of `from`. NULL where `from` is.
template <class T>
bool copy_struct(T *&to, const T *from, size_t bytes) noexcept {
  to = nullptr;
  if (from == nullptr) return true;
  to = zeroed<T>();
  if (to == nullptr) return false;
  std::memcpy(static_cast<void *>(to), from, bytes);
  return true;
}

// Appends a NUL behind `size`, because an address of FI_ADDR_STR may not have one.
bool copy_bytes(void *&to, const void *from, size_t size) noexcept {
  to = nullptr;
  if (from == nullptr || size == 0) return true;
  if (size == SIZE_MAX) return false;
  to = std::calloc(1, size + 1);
  if (to == nullptr) return false;
  std::memcpy(to, from, size);
  return true;
}

bool copy_string(char *&to, const char *from) noexcept {
  to = nullptr;
  if (from == nullptr) return true;
  to = ::strdup(from);
  return to != nullptr;
}

bool copy_auth_key(uint8_t *&to, const uint8_t *from, size_t size) noexcept {
  void *copy = nullptr;
  // FI_AV_AUTH_KEY is a special value, not a length.
  const bool copied = size == FI_AV_AUTH_KEY || copy_bytes(copy, from, size);
  to = static_cast<uint8_t *>(copy);
  return copied;
}

// ---- fid_nic ----

int nic_close(struct fid *fid);
int nic_bind(struct fid *, struct fid *, uint64_t) {
  return -FI_ENOSYS;
}
int nic_control(struct fid *fid, int command, void *arg);
int nic_ops_open(struct fid *, const char *, uint64_t, void **, void *) {
  return -FI_ENOSYS;
}
int nic_tostr(const struct fid *fid, char *buf, size_t len);
int nic_ops_set(struct fid *, const char *, uint64_t, void *, void *) {
  return -FI_ENOSYS;
}

fi_ops nic_ops = {
    .size = sizeof(fi_ops),
    .close = nic_close,
    .bind = nic_bind,
    .control = nic_control,
    .ops_open = nic_ops_open,
    .tostr = nic_tostr,
    .ops_set = nic_ops_set,
};

bool is_foreign(const fid_nic &nic) noexcept {
  return nic.fid.ops != nullptr && nic.fid.ops != &nic_ops;
}

void free_nic(fid_nic *nic) noexcept {
  if (nic == nullptr) return;
  if (is_foreign(*nic)) {
    // A provider with ops of its own knows what prov_attr is.
    if (FI_CHECK_OP(nic->fid.ops, struct fi_ops, close)) nic->fid.ops->close(&nic->fid);
    return;
  }
  if (nic->device_attr != nullptr) {
    std::free(nic->device_attr->name);
    std::free(nic->device_attr->device_id);
    std::free(nic->device_attr->device_version);
    std::free(nic->device_attr->vendor_id);
    std::free(nic->device_attr->driver);
    std::free(nic->device_attr->firmware);
    std::free(nic->device_attr);
  }
  std::free(nic->bus_attr);
  if (nic->link_attr != nullptr) {
    std::free(nic->link_attr->address);
    std::free(nic->link_attr->network_type);
    std::free(nic->link_attr);
  }
  std::free(nic);
}

bool copy_device(fi_device_attr *&to, const fi_device_attr *from) noexcept {
  to = nullptr;
  if (from == nullptr) return true;
  to = zeroed<fi_device_attr>();
  return to != nullptr && copy_string(to->name, from->name) &&
         copy_string(to->device_id, from->device_id) &&
         copy_string(to->device_version, from->device_version) &&
         copy_string(to->vendor_id, from->vendor_id) && copy_string(to->driver, from->driver) &&
         copy_string(to->firmware, from->firmware);
}

bool copy_link(fi_link_attr *&to, const fi_link_attr *from) noexcept {
  to = nullptr;
  if (from == nullptr) return true;
  to = zeroed<fi_link_attr>();
  if (to == nullptr) return false;
  to->mtu = from->mtu;
  to->speed = from->speed;
  to->state = from->state;
  return copy_string(to->address, from->address) &&
         copy_string(to->network_type, from->network_type);
}

bool copy_nic(fid_nic *&to, const fid_nic *from) noexcept {
  to = nullptr;
  if (from == nullptr) return true;
  if (is_foreign(*from) && FI_CHECK_OP(from->fid.ops, struct fi_ops, control)) {
    struct fid *copy = nullptr;
    auto *source = const_cast<struct fid *>(&from->fid);
    if (from->fid.ops->control(source, FI_DUP, &copy) == 0 && copy != nullptr) {
      to = container_of(copy, fid_nic, fid);
      return true;
    }
    // It cannot copy itself: the public structs are copied, without prov_attr.
  }
  to = zeroed<fid_nic>();
  if (to == nullptr) return false;
  to->fid.fclass = FI_CLASS_NIC;
  to->fid.context = from->fid.context;
  to->fid.ops = &nic_ops;
  return copy_device(to->device_attr, from->device_attr) &&
         copy_struct(to->bus_attr, from->bus_attr, sizeof(fi_bus_attr)) &&
         copy_link(to->link_attr, from->link_attr);
}

int nic_close(struct fid *fid) {
  free_nic(container_of(fid, fid_nic, fid));
  return 0;
}

int nic_control(struct fid *fid, int command, void *arg) {
  if (command != FI_DUP) return -FI_ENOSYS;
  if (arg == nullptr) return -FI_EINVAL;
  fid_nic *copy = nullptr;
  if (!copy_nic(copy, container_of(fid, fid_nic, fid))) {
    free_nic(copy);
    return -FI_ENOMEM;
  }
  *static_cast<struct fid **>(arg) = &copy->fid;
  return 0;
}

int nic_tostr(const struct fid *fid, char *buf, size_t len) {
  nic_to_text(*container_of(fid, const fid_nic, fid), buf, len);
  return 0;
}

// ---- fi_info ----

bool copy_all(fi_info &to, const fi_info &from, InfoLayout layout) noexcept {
  std::memcpy(static_cast<void *>(&to), &from, info_bytes(layout));
  // No pointer of the source may be in the copy if it is freed half done.
  to.next = nullptr;
  to.src_addr = to.dest_addr = nullptr;
  to.tx_attr = nullptr;
  to.rx_attr = nullptr;
  to.ep_attr = nullptr;
  to.domain_attr = nullptr;
  to.fabric_attr = nullptr;
  to.nic = nullptr;

  if (!copy_bytes(to.src_addr, from.src_addr, from.src_addrlen)) return false;
  if (!copy_bytes(to.dest_addr, from.dest_addr, from.dest_addrlen)) return false;
  if (!copy_struct(to.tx_attr, from.tx_attr, tx_bytes(layout))) return false;
  if (!copy_struct(to.rx_attr, from.rx_attr, rx_bytes(layout))) return false;

  if (!copy_struct(to.ep_attr, from.ep_attr, ep_bytes(layout))) return false;
  if (to.ep_attr != nullptr) {
    const uint8_t *key = to.ep_attr->auth_key;
    if (!copy_auth_key(to.ep_attr->auth_key, key, to.ep_attr->auth_key_size)) return false;
  }
  if (!copy_struct(to.domain_attr, from.domain_attr, domain_bytes(layout))) return false;
  if (to.domain_attr != nullptr) {
    const uint8_t *key = to.domain_attr->auth_key;
    to.domain_attr->auth_key = nullptr;
    if (!copy_string(to.domain_attr->name, from.domain_attr->name)) return false;
    if (!copy_auth_key(to.domain_attr->auth_key, key, to.domain_attr->auth_key_size)) return false;
  }
  if (!copy_struct(to.fabric_attr, from.fabric_attr, fabric_bytes(layout))) return false;
  if (to.fabric_attr != nullptr) {
    to.fabric_attr->prov_name = nullptr;
    if (!copy_string(to.fabric_attr->name, from.fabric_attr->name)) return false;
    if (!copy_string(to.fabric_attr->prov_name, from.fabric_attr->prov_name)) return false;
  }
  return layout < InfoLayout::kFabric1_2 || copy_nic(to.nic, from.nic);
}

}  // namespace

fi_info *alloc_info() noexcept {
  fi_info *info = zeroed<fi_info>();
  if (info == nullptr) return nullptr;
  info->tx_attr = zeroed<fi_tx_attr>();
  info->rx_attr = zeroed<fi_rx_attr>();
  info->ep_attr = zeroed<fi_ep_attr>();
  info->domain_attr = zeroed<fi_domain_attr>();
  info->fabric_attr = zeroed<fi_fabric_attr>();
  if (info->tx_attr != nullptr && info->rx_attr != nullptr && info->ep_attr != nullptr &&
      info->domain_attr != nullptr && info->fabric_attr != nullptr) {
    return info;
  }
  free_info(info);
  return nullptr;
}

fi_info *dup_info(const fi_info *info, InfoLayout layout) noexcept {
  if (info == nullptr) return alloc_info();
  fi_info *copy = zeroed<fi_info>();
  if (copy != nullptr && !copy_all(*copy, *info, layout)) {
    free_info(copy);
    copy = nullptr;
  }
  return copy;
}

void free_info(fi_info *list, InfoLayout layout) noexcept {
  while (list != nullptr) {
    fi_info *info = list;
    list = info->next;
    std::free(info->src_addr);
    std::free(info->dest_addr);
    std::free(info->tx_attr);
    std::free(info->rx_attr);
    if (info->ep_attr != nullptr) {
      if (layout >= InfoLayout::kFabric1_1) std::free(info->ep_attr->auth_key);
      std::free(info->ep_attr);
    }
    if (info->domain_attr != nullptr) {
      if (layout >= InfoLayout::kFabric1_1) std::free(info->domain_attr->auth_key);
      std::free(info->domain_attr->name);
      std::free(info->domain_attr);
    }
    if (info->fabric_attr != nullptr) {
      std::free(info->fabric_attr->name);
      std::free(info->fabric_attr->prov_name);
      std::free(info->fabric_attr);
    }
    if (layout >= InfoLayout::kFabric1_2) free_nic(info->nic);
    std::free(info);
  }
}

void hide_newer(fi_info *list, InfoLayout layout) noexcept {
  const auto clear_tail = [](auto *attr, size_t bytes) {
    if (attr != nullptr)
      std::memset(reinterpret_cast<char *>(attr) + bytes, 0, sizeof(*attr) - bytes);
  };
  for (fi_info *info = list; info != nullptr; info = info->next) {
    if (layout < InfoLayout::kFabric1_1) {
      if (info->ep_attr != nullptr) std::free(info->ep_attr->auth_key);
      if (info->domain_attr != nullptr) std::free(info->domain_attr->auth_key);
    }
    if (layout < InfoLayout::kFabric1_2) free_nic(info->nic);
    clear_tail(info->tx_attr, tx_bytes(layout));
    clear_tail(info->ep_attr, ep_bytes(layout));
    clear_tail(info->domain_attr, domain_bytes(layout));
    clear_tail(info->fabric_attr, fabric_bytes(layout));
    clear_tail(info, info_bytes(layout));
  }
}

InfoLayout layout_of(uint32_t api_version) noexcept {
  constexpr std::pair<uint32_t, InfoLayout> kSince[] = {{FI_VERSION(2, 4), InfoLayout::kFabric1_9},
                                                        {FI_VERSION(2, 0), InfoLayout::kFabric1_8},
                                                        {FI_VERSION(1, 20), InfoLayout::kFabric1_7},
                                                        {FI_VERSION(1, 9), InfoLayout::kFabric1_3},
                                                        {FI_VERSION(1, 5), InfoLayout::kFabric1_1}};
  for (const auto &[version, layout] : kSince)
    if (FI_VERSION_GE(api_version, version)) return layout;
  return InfoLayout::kFabric1_0;
}

BorrowedInfo::BorrowedInfo(const fi_info &from, InfoLayout layout) noexcept {
  std::memcpy(static_cast<void *>(&info), &from,
              std::min(info_bytes(layout), offsetof(fi_info, nic)));
  const auto borrow = [](auto *&part, auto &own, size_t bytes) {
    if (part == nullptr) return;
    std::memcpy(static_cast<void *>(&own), part, bytes);
    part = &own;
  };
  info.next = nullptr;
  borrow(info.tx_attr, tx, tx_bytes(layout));
  borrow(info.rx_attr, rx, rx_bytes(layout));
  borrow(info.ep_attr, ep, ep_bytes(layout));
  borrow(info.domain_attr, domain, domain_bytes(layout));
  borrow(info.fabric_attr, fabric, fabric_bytes(layout));
}

fi_fabric_attr widen(const fi_fabric_attr &attr, InfoLayout layout) noexcept {
  fi_fabric_attr full{};
  std::memcpy(static_cast<void *>(&full), &attr, fabric_bytes(layout));
  return full;
}

}  // namespace weft
