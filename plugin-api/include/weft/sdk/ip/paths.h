// SPDX-License-Identifier: BSD-2-Clause
// Ways out of this host for providers that use IP. From the arguments of fi_getinfo (node, service,
// addresses of the hints), the interfaces that may be used, and the kernel's routes it makes pairs
// of addresses.
//
// Example:
//    weft::Result<InfoList> getinfo(const weft_instance *instance, const GetinfoQuery &query,
//                                   const std::vector<std::string> &patterns) {
//      WEFT_TRY(const std::vector<IpPath> paths, ip_paths(query, {"tcp", "TCP-IP", patterns}));
//      InfoList list(instance->core);
//      for (const IpPath &path : paths) {
//        WEFT_TRY(fi_info *const info, list.add());
//        WEFT_CHECK(set_path(*info, path, query.hints));
//      }
//      return list;
//    }
//
// An error says which interface was left out, or that there is no route.
#ifndef WEFT_SDK_IP_PATHS_H
#define WEFT_SDK_IP_PATHS_H

#include <weft/sdk/ip/interfaces.h>
#include <weft/sdk/unit/provider.h>

#include <string>
#include <vector>

namespace weft::sdk {

struct IpPath {
  std::string domain, fabric;  // "eth0", "10.1.0.0/16"
  SockAddr source;
  SockAddr dest;     // AF_UNSPEC: none
  unsigned mtu = 0;  // of the interface; of a wildcard source: the smallest of all; 0: unknown
};

struct IpPathSettings {
  const char *provider;                        // in errors, and the domain of a wildcard source
  const char *fabric;                          // of a wildcard source
  const std::vector<std::string> &interfaces;  // patterns (interfaces.h); empty: all
};

Result<InterfaceRanking> usable_interfaces(const std::vector<std::string> &patterns);
Result<std::vector<IpPath>> ip_paths(const GetinfoQuery &query, const IpPathSettings &settings);
// Address format and addresses of an entry.
Result<void> set_path(fi_info &info, const IpPath &path, const fi_info *hints);
// A provider's explain().
Result<void> explain_interfaces(const std::vector<std::string> &patterns, const LineSink &line);

}  // namespace weft::sdk

#endif
