// SPDX-License-Identifier: BSD-2-Clause
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/traffic_class.h>

namespace weft::sdk {
namespace {

constexpr uint8_t kMaxDscp = 63;
// Older structs end before their tclass.
bool has_classes(uint32_t api_version) {
  return FI_VERSION_GE(api_version, FI_VERSION(1, 9));
}

Result<uint8_t> dscp_for(const char *call, const char *field, uint32_t tclass) {
  if (const auto dscp = dscp_of(tclass)) return *dscp;
  return fail(FI_EINVAL,
              "%s: %s 0x%x is no traffic class: use FI_TC_BEST_EFFORT or another label, or "
              "fi_tc_dscp_set() of 0 to 63",
              call, field, tclass);
}

}  // namespace

std::optional<uint8_t> dscp_of(uint32_t tclass) {
  if (tclass >= FI_TC_DSCP && tclass <= FI_TC_DSCP + kMaxDscp) return uint8_t(tclass - FI_TC_DSCP);
  switch (tclass) {
    case FI_TC_UNSPEC:
    case FI_TC_BEST_EFFORT:
      return 0;
    case FI_TC_LOW_LATENCY:
      return 18;
    case FI_TC_DEDICATED_ACCESS:
      return 46;
    case FI_TC_BULK_DATA:
      return 10;
    case FI_TC_SCAVENGER:
      return 1;
    case FI_TC_NETWORK_CTRL:
      return 48;
    default:
      return std::nullopt;
  }
}

Result<uint32_t> offered_class(const char *field, uint32_t wanted) {
  const auto known = dscp_for("fi_getinfo", field, wanted);
  if (!known) return fail(FI_ENODATA, "%s", known.error().text.c_str());
  return wanted;
}

uint32_t domain_class(const fi_info &info, uint32_t api_version) {
  return has_classes(api_version) && info.domain_attr != nullptr ? info.domain_attr->tclass
                                                                 : uint32_t(FI_TC_UNSPEC);
}

uint32_t endpoint_class(const fi_info &info, uint32_t api_version) {
  return has_classes(api_version) && info.tx_attr != nullptr ? info.tx_attr->tclass
                                                             : uint32_t(FI_TC_UNSPEC);
}

Result<uint8_t> domain_dscp(const fi_info &info, uint32_t api_version) {
  return dscp_for("fi_domain", "domain_attr.tclass", domain_class(info, api_version));
}

Result<uint8_t> endpoint_dscp(const fi_info &info, uint32_t api_version, uint8_t of_domain) {
  const uint32_t own = endpoint_class(info, api_version);
  if (own == FI_TC_UNSPEC) return of_domain;
  return dscp_for("fi_endpoint", "tx_attr.tclass", own);
}

Result<void> set_dscp(int fd, int family, uint8_t dscp) {
  const int field = dscp << 2;  // below it are the two bits of ECN
  const int rc = family == AF_INET6
                     ? setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &field, sizeof field)
                     : setsockopt(fd, IPPROTO_IP, IP_TOS, &field, sizeof field);
  if (rc == 0) {
    // To peers whose IPv4 address the socket has in IPv6. Not every socket takes it.
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IP, IP_TOS, &field, sizeof field);
    return {};
  }
  const int error = errno;
  return fail(error, "the socket cannot send with the DSCP %u (tclass): %s", unsigned(dscp),
              strerror(error));
}

}  // namespace weft::sdk
