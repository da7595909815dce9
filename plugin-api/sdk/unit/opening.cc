// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_errno.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/opening.h>

namespace weft::sdk {
namespace {

// Of the domain's queues and registrations, which endpoints share.
constexpr uint64_t kOfDomains = FI_HMEM | FI_AV_USER_ID;

// A layer asks for the newest API beneath it, whatever the application's is, and an info says for
// which it is. In the struct of an old application there may be anything.
uint32_t version_of(const fi_info &info, uint32_t otherwise) {
  constexpr uint32_t kNewest = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
  const uint32_t said = info.fabric_attr != nullptr ? info.fabric_attr->api_version : 0;
  return FI_MAJOR(said) >= 1 && FI_VERSION_GE(kNewest, said) ? said : otherwise;
}

uint64_t all_caps(const fi_info &info) {
  return info.caps | (info.domain_attr != nullptr ? info.domain_attr->caps : 0);
}

}  // namespace

int check_opening(const weft_instance *instance, uint32_t api_version, const fi_info &info) {
  const weft_core_services &core = *instance->core;
  if (!checks_openings(core)) return 0;
  weft_error why{};
  why.struct_size = sizeof why;
  const int rc = core.check_info(instance, version_of(info, api_version), &info, &why);
  if (rc != 0) WEFT_WARN(instance, FI_LOG_CORE, "it is not opened: %s", why.text);
  return rc;
}

int check_opening(const weft_instance *instance, uint32_t api_version, const fi_info &info,
                  const fi_tx_attr &attr) {
  fi_info changed = info;
  fi_tx_attr copy = attr;
  changed.tx_attr = &copy;
  return check_opening(instance, api_version, changed);
}

int check_opening(const weft_instance *instance, uint32_t api_version, const fi_info &info,
                  const fi_rx_attr &attr) {
  fi_info changed = info;
  fi_rx_attr copy = attr;
  // Whose receives they are is no flag of a receive (fi_peer.3).
  copy.op_flags &= ~uint64_t(FI_PEER);
  changed.rx_attr = &copy;
  return check_opening(instance, api_version, changed);
}

int check_domain_caps(const weft_instance *instance, const fi_info &endpoint,
                      const fi_info &domain) {
  const uint64_t missing = endpoint.caps & kOfDomains & ~all_caps(domain);
  if (missing == 0) return 0;
  WEFT_WARN(
      instance, FI_LOG_EP_CTRL,
      "info.caps: %s%s wanted, and the domain was opened without: pass the info to fi_domain, "
      "too",
      missing & FI_HMEM ? "FI_HMEM " : "", missing & FI_AV_USER_ID ? "FI_AV_USER_ID" : "");
  return -FI_EINVAL;
}

}  // namespace weft::sdk
