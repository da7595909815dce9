// SPDX-License-Identifier: BSD-2-Clause
#include "core/probe/services.h"

#include <cstdlib>

namespace weft {
namespace {

// One block per entry. Names and addresses that a plugin adds to it are not freed: the process ends
// soon.
struct InfoBlock {
  fi_info info;
  fi_tx_attr tx;
  fi_rx_attr rx;
  fi_ep_attr ep;
  fi_domain_attr domain;
  fi_fabric_attr fabric;
};

fi_info *info_alloc() {
  auto *block = static_cast<InfoBlock *>(std::calloc(1, sizeof(InfoBlock)));
  if (block == nullptr) return nullptr;
  block->info.tx_attr = &block->tx;
  block->info.rx_attr = &block->rx;
  block->info.ep_attr = &block->ep;
  block->info.domain_attr = &block->domain;
  block->info.fabric_attr = &block->fabric;
  return &block->info;
}

fi_info *info_dup(const fi_info *info) {
  fi_info *copy = info_alloc();
  if (copy == nullptr || info == nullptr) return copy;
  auto *block = reinterpret_cast<InfoBlock *>(copy);
  if (info->tx_attr != nullptr) block->tx = *info->tx_attr;
  if (info->rx_attr != nullptr) block->rx = *info->rx_attr;
  if (info->ep_attr != nullptr) block->ep = *info->ep_attr;
  if (info->domain_attr != nullptr) block->domain = *info->domain_attr;
  if (info->fabric_attr != nullptr) block->fabric = *info->fabric_attr;
  copy->caps = info->caps;
  copy->mode = info->mode;
  copy->addr_format = info->addr_format;
  return copy;
}

void info_free(fi_info *info) {
  while (info != nullptr) {
    fi_info *next = info->next;
    std::free(info);
    info = next;
  }
}

}  // namespace

const weft_core_services &probe_services() {
  static const weft_core_services services = {
      .struct_size = sizeof(weft_core_services),
      .reserved = 0,
      .info_alloc = info_alloc,
      .info_dup = info_dup,
      .info_free = info_free,
      .log_enabled = [](const weft_instance *, int32_t, int32_t) -> int32_t { return 0; },
      .log = [](const weft_instance *, int32_t, int32_t, const char *, int32_t, const char *) {},
      .object_opened = [](fid *, fid *, weft_error *) -> int32_t { return 0; },
      .object_closing = [](fid *) {},
  };
  return services;
}

}  // namespace weft
