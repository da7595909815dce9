// SPDX-License-Identifier: BSD-2-Clause
// Traffic classes (fi_endpoint.3, Traffic Class): what an application asks for in tx_attr.tclass
// and domain_attr.tclass, and the DSCP that packets of IP have for it.
//
// Example:
//    weft::Result<int> open_socket(const fi_info &info, uint32_t api_version, uint8_t of_domain) {
//      WEFT_TRY(const uint8_t dscp, endpoint_dscp(info, api_version, of_domain));
//      const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
//      if (fd < 0) return weft::fail(errno, "socket: %s", strerror(errno));
//      if (dscp != 0) WEFT_CHECK(set_dscp(fd, AF_INET, dscp));
//      return fd;
//    }
//
// A class is a DSCP (fi_tc_dscp_set), or a label, which has that of RFC 4594 and RFC 8622:
//
//    FI_TC_UNSPEC            the domain's, or 0: what the system does by itself
//    FI_TC_BEST_EFFORT       0 (DF)
//    FI_TC_LOW_LATENCY       18 (AF21, low-latency data)
//    FI_TC_DEDICATED_ACCESS  46 (EF)
//    FI_TC_BULK_DATA         10 (AF11, high-throughput data)
//    FI_TC_SCAVENGER         1 (LE, lower effort)
//    FI_TC_NETWORK_CTRL      48 (CS6)
//
// The switches decide what becomes of it. Not for devices, which have classes of their own.
#ifndef WEFT_SDK_OBJECTS_TRAFFIC_CLASS_H
#define WEFT_SDK_OBJECTS_TRAFFIC_CLASS_H

#include <rdma/fabric.h>
#include <sys/socket.h>
#include <weft/result.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

namespace weft::sdk {

// None: there is no such class.
std::optional<uint8_t> dscp_of(uint32_t tclass);

// For fi_getinfo: each class that there is may be had. `field` is the hint's name, for the error.
Result<uint32_t> offered_class(const char *field, uint32_t wanted);

// The classes of a domain and of an endpoint, whose `info` an application of this API has passed.
uint32_t domain_class(const fi_info &info, uint32_t api_version);
uint32_t endpoint_class(const fi_info &info, uint32_t api_version);
// The same as DSCP; an endpoint without a class of its own has the domain's.
Result<uint8_t> domain_dscp(const fi_info &info, uint32_t api_version);
Result<uint8_t> endpoint_dscp(const fi_info &info, uint32_t api_version, uint8_t of_domain);

// What the socket sends from now on. A new socket sends with 0, an accepted one with what the
// listener has.
Result<void> set_dscp(int fd, int family, uint8_t dscp);

}  // namespace weft::sdk

#endif
