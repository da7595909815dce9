// SPDX-License-Identifier: BSD-2-Clause
// For tests: a Front that returns the hints, so that a test of the exported functions sees the
// hints that it got. Linked in place of core/select.
//
//  - getinfo: prov_name "fail" in the hints gives -FI_ENODATA. Else one entry per 1 + (flags & 1),
//  a copy of the hints with every
//    owning member set, whose rx_attr.total_buffered_recv is the sum of the members that old
//    layouts lack, as seen in the hints.
//  - fabric: opens an object whose api_version is that of the attributes.
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>

#include "core/base/info.h"
#include "core/select/front.h"

namespace weft {

struct Front::Impl {
  FrontOptions options;
};

Front::Front(FrontOptions options) : impl_(new Impl{std::move(options)}) {}
Front::~Front() = default;

namespace {

size_t newer_members(const fi_info &hints) {
  size_t sum = hints.nic != nullptr ? 1 : 0;
  if (hints.fabric_attr != nullptr) sum += hints.fabric_attr->api_version;
  if (hints.tx_attr != nullptr) sum += hints.tx_attr->tclass;
  if (hints.ep_attr != nullptr) sum += hints.ep_attr->auth_key_size;
  if (const fi_domain_attr *domain = hints.domain_attr) {
    sum += domain->cntr_cnt + domain->mr_iov_limit + domain->caps + domain->mode +
           domain->auth_key_size + domain->max_err_data + domain->mr_cnt + domain->tclass +
           domain->max_ep_auth_key + domain->max_group_id + domain->max_cntr_value +
           domain->max_err_cntr_value;
  }
  return sum;
}

uint8_t *key() {
  return reinterpret_cast<uint8_t *>(::strdup("key"));
}

fi_info *offer(const fi_info *hints, uint32_t version) {
  fi_info *info = dup_info(hints);
  if (info == nullptr) return nullptr;
  info->caps |= FI_MSG;
  if (info->rx_attr != nullptr && hints != nullptr)
    info->rx_attr->total_buffered_recv = newer_members(*hints);
  if (info->tx_attr != nullptr) info->tx_attr->tclass = 5;
  if (info->ep_attr != nullptr && info->ep_attr->auth_key == nullptr) {
    info->ep_attr->auth_key = key();
    info->ep_attr->auth_key_size = 3;
  }
  if (info->domain_attr != nullptr && info->domain_attr->auth_key == nullptr) {
    info->domain_attr->auth_key = key();
    info->domain_attr->auth_key_size = 3;
    info->domain_attr->max_cntr_value = info->domain_attr->max_group_id =
        info->domain_attr->max_ep_auth_key = 6;
  }
  if (info->fabric_attr != nullptr) info->fabric_attr->api_version = version;
  if (info->nic == nullptr) {
    fi_device_attr device{};
    device.name = const_cast<char *>("double");
    fid_nic nic{};
    nic.device_attr = &device;
    fi_info with_nic{};
    with_nic.nic = &nic;
    fi_info *copy = dup_info(&with_nic);
    if (copy != nullptr) std::swap(info->nic, copy->nic);
    free_info(copy);
  }
  return info;
}

int close_fabric(struct fid *fid) {
  delete container_of(fid, fid_fabric, fid);
  return 0;
}
fi_ops fabric_fid_ops = {.size = sizeof(fi_ops), .close = close_fabric};

}  // namespace

int Front::getinfo(uint32_t version, const char *, const char *, uint64_t flags,
                   const fi_info *hints, fi_info **out) noexcept {
  if (hints != nullptr && hints->fabric_attr != nullptr &&
      hints->fabric_attr->prov_name != nullptr &&
      std::strcmp(hints->fabric_attr->prov_name, "fail") == 0) {
    return -FI_ENODATA;
  }
  *out = offer(hints, version);
  if (*out != nullptr && (flags & 1) != 0) (*out)->next = offer(hints, version);
  return *out != nullptr ? 0 : -FI_ENOMEM;
}

int Front::fabric(fi_fabric_attr *attr, const fi_info *, uint64_t, fid_fabric **fabric,
                  void *context) noexcept {
  *fabric = new fid_fabric{};
  (*fabric)->fid = {FI_CLASS_FABRIC, context, &fabric_fid_ops};
  (*fabric)->api_version = attr->api_version;
  return 0;
}

Result<void> Front::attach_hook(std::span<struct fid *const>, std::string_view hook,
                                std::vector<Setting>) {
  if (hook != "trace") return fail(FI_ENOENT, "no hook \"%s\"", std::string(hook).c_str());
  return {};
}
Result<void> Front::detach_hook(std::span<struct fid *const> roots, std::string_view hook) {
  return attach_hook(roots, hook);
}
void Front::listen(PluginCalls::Listener, void *) {}
Result<void> Front::refuse(RefusedFile file) {
  if (file.library.empty()) return fail(FI_EINVAL, "no library");
  return {};
}
Result<void> Front::suppose(std::string_view what, const std::string &, const std::string &) {
  if (what != "hostname") return fail(FI_EINVAL, "no such thing");
  return {};
}
bool Front::control_allowed() {
  return false;
}
Result<std::string> Front::why_json(std::string_view name) {
  return "[\"" + std::string(name) + "\"]";
}
Result<std::string> Front::explain_json(std::string_view stack) {
  if (stack == "none") return fail(FI_ENOENT, "no such stack");
  return std::string("{}");
}
Result<std::string> Front::plugins_json() {
  return std::string("{\"plugins\":[]}");
}
Result<std::string> Front::config_json() {
  return "\"" + impl_->options.library_folder + "\"";
}
std::vector<FrontParam> Front::params() {
  return {{"FI_DOUBLE_SIZE", FI_PARAM_SIZE_T, "a size", true, "4K", "environment FI_DOUBLE_SIZE"},
          {"FI_DOUBLE_NAME", FI_PARAM_STRING, "a name", false, "", ""}};
}

}  // namespace weft
