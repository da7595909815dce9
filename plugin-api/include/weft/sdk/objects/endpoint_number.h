// SPDX-License-Identifier: BSD-2-Clause
// The number of an endpoint: how other objects of its domain know it for sure. A region that is
// bound to an endpoint (FI_MR_ENDPOINT) keeps the number, since the address of a closed endpoint
// may come again, and an alias is the same endpoint at another address.
//
// Example:
//    int bind(const DomainContext &domain, struct fid *endpoint, uint64_t &number) {
//      return endpoint_number(domain, endpoint, number);  // -FI_EINVAL: another domain's
//    }
//
// EndpointCore (endpoint.h) answers the question. Not for applications.
#ifndef WEFT_SDK_OBJECTS_ENDPOINT_NUMBER_H
#define WEFT_SDK_OBJECTS_ENDPOINT_NUMBER_H

#include <rdma/fabric.h>

#include <cstdint>

namespace weft::sdk {

struct DomainContext;

// The fi_control() command by which an endpoint is asked; `arg` is an EndpointNumber.
inline constexpr int kGetEndpointNumber = -0x77656674;
struct EndpointNumber {
  const DomainContext *domain = nullptr;
  uint64_t number = 0;  // never 0, and never used again
};

uint64_t next_endpoint_number();

// Of an endpoint or alias of this provider; without the domain's lock held. 0 or -FI_EINVAL.
int endpoint_number(const DomainContext &domain, struct fid *endpoint, uint64_t &number);

}  // namespace weft::sdk

#endif
